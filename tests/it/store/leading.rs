//! Election, lease, and the writes that remain permitted to a leader.

use std::time::Duration;

use cketerm_clients::store::{Store, StoreError, commit::CommitError, election::Candidacy};
use cketerm_model::{
    cketerm_records::FirstDaemon,
    fence::Fence,
    stored::transaction::{Change, Put},
};
use cketerm_runtime::heartbeat::Heartbeat;
use tokio::time::timeout;

use super::{
    addresses,
    etcd::{Etcd, LinkState, Proxy, any, versions},
    person, registration, request,
};
use crate::stalls::{Stopwatch, undisturbed};

const TTL: Duration = Duration::from_secs(5);

async fn campaign(store: &Store, host: &str) -> Candidacy {
    Candidacy::campaign(store, TTL, host, registration(), &Heartbeat::new(TTL)).await.unwrap()
}

async fn lead(store: &Store) -> (Candidacy, Fence) {
    let mut candidacy = campaign(store, "first").await;
    let fence = timeout(TTL, candidacy.elected()).await.unwrap().unwrap();
    (candidacy, fence)
}

fn put(key: &str, value: &str) -> Put {
    Put { key: key.to_owned(), value: value.to_owned(), leased: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_candidate_leads_only_after_the_first_resigns() {
    undisturbed(async || {
        for version in versions() {
            let etcd = Etcd::start(&version, &[]);
            let store = etcd.store().await;
            let (first, fence) = lead(&store).await;
            assert_eq!(etcd.value(fence.key()), "first");
            let view = store.read_view_from(fence.create_revision()).await.unwrap();
            assert_eq!(
                view.leader().map(|c| (c.lease, c.create_revision)),
                Some((first.lease(), fence.create_revision()))
            );
            assert_eq!(view.engines.len(), 1, "the registration must be written with the election");
            assert!(view.leader().is_some_and(|c| !view.is_cke(c)));

            let other = etcd.store().await;
            let mut second = campaign(&other, "second").await;
            assert!(
                timeout(Duration::from_millis(500), second.elected()).await.is_err(),
                "the second candidate must not win while the first leads"
            );
            let began = Stopwatch::start();
            first.resign().await;
            let fence = timeout(TTL, second.elected()).await.unwrap().unwrap();
            assert!(
                began.elapsed() < Duration::from_millis(800),
                "the watch must report the resignation at once: {:?}",
                began.elapsed()
            );
            assert_eq!(other.leader().await.unwrap().map(|c| c.host).as_deref(), Some("second"));
            assert_eq!(
                other.read_view().await.unwrap().engines.len(),
                1,
                "the registration must be deleted with the lock"
            );
            assert!(fence.permit_record().is_ok());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cke_and_cketerm_share_one_election() {
    for version in versions() {
        let etcd = Etcd::start(&version, &[]);
        let store = etcd.store().await;
        // CKE's library uses etcd's election service
        let mut cke = store.client();
        let lease = cke.lease_grant(60, None).await.unwrap().id();
        cke.campaign("/cke/leader/", "cke-host", lease).await.unwrap();
        let mut candidate = campaign(&store, "ours").await;
        assert!(timeout(Duration::from_millis(500), candidate.elected()).await.is_err());
        let leader = store.leader().await.unwrap().unwrap();
        assert_eq!((leader.host.as_str(), leader.lease), ("cke-host", lease));
        let view = store.read_view().await.unwrap();
        assert!(view.leader().is_some_and(|c| view.is_cke(c)));
        cke.lease_revoke(lease).await.unwrap();
        timeout(TTL, candidate.elected()).await.unwrap().unwrap();
        // and in the other direction
        let lease = cke.lease_grant(60, None).await.unwrap().id();
        let mut behind = store.client();
        let campaign = tokio::spawn(async move { behind.campaign("/cke/leader/", "cke-host", lease).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!campaign.is_finished(), "CKE must wait while cketerm leads");
        candidate.resign().await;
        timeout(TTL, campaign).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i23_a_deposed_leader_cannot_commit_and_notices() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let (candidacy, fence) = lead(&store).await;
    let permit = fence.permit_record().unwrap();
    let change = || Change { puts: vec![put("/cke/x", "1")], ..Change::default() };
    store.commit(&permit, change()).await.unwrap();
    etcd.ctl(&["lease", "revoke", &format!("{:x}", candidacy.lease())]);
    etcd.ctl(&["del", "/cke/x"]);
    // even with a permit issued before the loss
    assert_eq!(store.commit(&permit, change()).await, Err(CommitError::LostLeadership));
    let leased = Change { puts: vec![Put { leased: true, ..put("/cke/x", "1") }], ..Change::default() };
    assert_eq!(store.commit(&permit, leased).await, Err(CommitError::LostLeadership));
    assert_eq!(etcd.value("/cke/x"), "");
    timeout(TTL, candidacy.lost()).await.unwrap();
    assert!(fence.permit_record().is_err());
    assert!(matches!(candidacy.update_registration(registration()).await, Err(StoreError::LeaseLost { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn i23_a_write_fails_if_the_leader_changed_after_the_permit() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let (old, fence) = lead(&store).await;
    let permit = fence.permit_record().unwrap();
    let mut new = campaign(&store, "second").await;
    old.resign().await;
    new.elected().await.unwrap();
    let change = Change { puts: vec![put("/cke/x", "late")], deletes: vec!["/cke/y".to_owned()], ..Change::default() };
    assert_eq!(store.commit(&permit, change).await, Err(CommitError::LostLeadership));
    assert_eq!(etcd.value("/cke/x"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_key_is_deleted_stops() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let (mut candidacy, fence) = lead(&store).await;
    etcd.ctl(&["del", fence.key()]);
    timeout(Duration::from_secs(2), candidacy.lost()).await.unwrap();
    assert!(fence.permit_record().is_err());
    let error = candidacy.elected().await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i27_a_cancel_between_the_engines_read_and_its_write_is_never_overwritten() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let (_candidacy, fence) = lead(&store).await;
    store.add_reboots(&person(), &addresses(1), &request(), &std::collections::BTreeMap::new()).await.unwrap();
    let seen = store.read_view().await.unwrap().reboots.entries[&0].clone();
    store.cancel_reboot(0, Some(seen.mod_revision), &person(), None).await.unwrap();
    let change = Change {
        compares: vec![
            ("/cke/reboots/write-index".to_owned(), seen.mod_revision),
            (seen.key.clone(), seen.mod_revision),
        ],
        puts: vec![put(&seen.key, r#"{"index":"0","node":"10.0.0.0","status":"draining"}"#), put("/cke/x", "1")],
        deletes: vec![],
    };
    let conflict = store.commit(&fence.permit_record().unwrap(), change).await;
    assert_eq!(conflict, Err(CommitError::Conflict { keys: vec![seen.key.clone()] }));
    assert!(etcd.value(&seen.key).contains("\"cancelled\""));
    assert_eq!(etcd.value("/cke/x"), "", "no part of the transaction may be written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_compares_absence_deletes_and_leases() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let (candidacy, fence) = lead(&store).await;
    let change = Change {
        compares: vec![("/cke/new".to_owned(), 0)],
        puts: vec![Put { leased: true, ..put("/cke/new", "1") }],
        deletes: vec!["/cke/old".to_owned()],
    };
    etcd.ctl(&["put", "/cke/old", "1"]);
    let revision = store.commit(&fence.permit_record().unwrap(), change.clone()).await.unwrap();
    assert_eq!(store.raw("/cke/new").await.unwrap().unwrap().mod_revision, revision);
    assert_eq!(etcd.value("/cke/old"), "");
    let again = store.commit(&fence.permit_record().unwrap(), change).await;
    assert_eq!(again, Err(CommitError::Conflict { keys: vec!["/cke/new".to_owned()] }));
    candidacy.resign().await;
    assert_eq!(etcd.value("/cke/new"), "", "a leased key must be deleted with the leader's lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_has_an_unknown_outcome() {
    let Some(etcd) = any() else { return };
    let proxy = Proxy::before(&etcd).await;
    let store = proxy.store().await;
    let (_candidacy, fence) = lead(&store).await;
    proxy.set(LinkState::NoAnswers);
    let permit = fence.permit_record().unwrap();
    let answer = store.commit(&permit, Change { puts: vec![put("/cke/x", "1")], ..Change::default() }).await;
    assert!(matches!(answer, Err(CommitError::Unknown(_))), "{answer:?}");
    assert_eq!(etcd.value("/cke/x"), "1", "the commit must have been carried out");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_kept_alive_and_counts_as_lost_when_etcd_is_silent() {
    undisturbed(async || {
        let Some(etcd) = any() else { return };
        let proxy = Proxy::before(&etcd).await;
        let store = proxy.store().await;
        let (candidacy, fence) = lead(&store).await;
        let kept = tokio::time::sleep(TTL + Duration::from_secs(1));
        tokio::select! {
            () = candidacy.lost() => panic!("the leadership must not be lost while etcd answers"),
            () = kept => {}
        }
        assert!(fence.life().remaining() > TTL / 2, "{:?}", fence.life().remaining());
        // a short outage has no effect
        proxy.set(LinkState::Cut);
        tokio::time::sleep(TTL / 5).await;
        proxy.set(LinkState::Open);
        tokio::time::sleep(TTL / 2).await;
        assert!(fence.life().remaining() > TTL / 2, "{:?}", fence.life().remaining());
        // a long outage ends the leadership before etcd gives the lock to another candidate
        proxy.set(LinkState::Cut);
        let began = Stopwatch::start();
        timeout(TTL + Duration::from_secs(1), candidacy.lost()).await.unwrap();
        assert!(began.elapsed() <= TTL + Duration::from_millis(300), "{:?}", began.elapsed());
        assert!(fence.permit_record().is_err());
    })
    .await;
}

/// A second daemon whose copy of etcd does not show the first one yet does not replace it.
#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_the_first_daemon_is_never_replaced() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let at = "2026-11-24T10:00:00Z".parse().unwrap();
    for host in ["first", "second"] {
        let daemon = FirstDaemon { host: host.to_owned(), version: "0.2.0".to_owned(), at };
        let heartbeat = Heartbeat::new(TTL);
        let mut candidacy =
            Candidacy::campaign_as_first(&store, TTL, host, registration(), &heartbeat, Some(daemon)).await.unwrap();
        timeout(TTL, candidacy.elected()).await.unwrap().unwrap();
        let view = store.read_view().await.unwrap();
        assert_eq!((view.leader().unwrap().host.as_str(), view.engines.len()), (host, 1));
        assert_eq!(view.daemon.unwrap().get().unwrap().host, "first");
        candidacy.resign().await;
    }
}
