//! Meaning of etcd's answers: denials, refusals, conflicts, logins.

use cketerm_clients::store::{EtcdSettings, StoreError, commit::CommitError};
use cketerm_model::{
    entry::EntryId,
    stored::{
        keys::SwitchName,
        transaction::{Change, Put, Ranged},
    },
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

use super::{
    super::accounts::{client_of, etcd_with_auth},
    *,
};
use crate::faults::RequestFault;

#[tokio::test(start_paused = true)]
async fn denied_access_names_the_login_or_the_missing_right() {
    let (etcd, _) = etcd_with_auth().await;
    let anonymous = Store::from_client(etcd.client(), "/rw/", clock());
    let error = anonymous.read_view().await.unwrap_err().to_string();
    assert!(error.contains("user name is empty"), "{error}");
    assert!(error.ends_with("check etcd.username and etcd.password"), "{error}");
    let user = client_of(&etcd, "u", "pw").await.unwrap();
    let elsewhere = Store::from_client(user, "/other/", clock());
    let error = elsewhere.read_view().await.unwrap_err().to_string();
    assert!(error.ends_with("permission denied; grant the user read and write on /other/"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn i28_a_refused_write_was_not_executed_unless_it_was_sent_before() {
    let (etcd, store, link) = linked();
    etcd.set_nospace(true);
    let refused = store.set_switch(SwitchName::Reboots, false, &person(), None).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused:?}");
    // The first request is lost on its way, which the client cannot know.
    link.next("/Txn", RequestFault::LoseRequest);
    let unknown = store.set_switch(SwitchName::Reboots, false, &person(), None).await.unwrap_err();
    assert!(matches!(unknown, StoreError::Unknown { .. }), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_names_the_changed_keys_and_a_new_key_of_a_compared_range() {
    let (etcd, store, _) = linked();
    let mut candidacy = campaign(&store, "a").await;
    let permit = candidacy.elected().await.unwrap().permit_record().unwrap();
    let id = EntryId::reboot(3);
    let seen = etcd.put("/cke/changed", "1");
    etcd.put("/cke/changed", "2");
    let kept = etcd.put("/cke/kept", "1");
    etcd.put(store.keys().attempt(id, 7), "{}");
    let change = Change {
        compares: vec![("/cke/changed".to_owned(), seen), ("/cke/kept".to_owned(), kept), ("/cke/none".to_owned(), 0)],
        puts: vec![Put { key: "/cke/x".to_owned(), value: "1".to_owned(), leased: false }],
        ..Change::default()
    };
    let (unwritten, cleared) = (vec![(store.keys().attempts_of(id), kept)], Vec::new());
    let conflict = store.commit(&permit, Ranged { change, unwritten, cleared }).await.unwrap_err();
    let keys = vec!["/cke/changed".to_owned(), store.keys().attempt(id, 7)];
    assert_eq!(conflict, CommitError::Conflict { keys });
    assert_eq!(etcd.get("/cke/x"), None);
}

/// A password is checked when the client connects, not with the first request.
#[tokio::test]
async fn a_login_is_checked_at_once_and_needs_no_authentication() {
    let (etcd, mut admin) = etcd();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let served = tonic::transport::Server::builder().add_routes(etcd.routes());
    tokio::spawn(served.serve_with_incoming(TcpListenerStream::new(listener)));
    let connect = async |password: &str| {
        let (username, password) = (Some("root".to_owned()), Some(password.to_owned()));
        let settings =
            EtcdSettings { endpoints: vec![endpoint.clone()], username, password, ..EtcdSettings::default() };
        Store::connect(&settings, clock()).await
    };
    connect("any").await.unwrap().read_view().await.unwrap();
    admin.user_add("root", "pw", None).await.unwrap();
    admin.role_add("root").await.unwrap();
    admin.user_grant_role("root", "root").await.unwrap();
    admin.auth_enable().await.unwrap();
    connect("pw").await.unwrap().read_view().await.unwrap();
    let denied = connect("wrong").await.unwrap_err();
    assert!(matches!(denied, StoreError::Denied { .. }), "{denied:?}");
}
