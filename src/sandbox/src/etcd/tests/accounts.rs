use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, GetOptions, LeaseTimeToLiveOptions, Permission, PutOptions, RoleRevokePermissionOptions, Txn,
    TxnOp, UserAddOptions, WatchOptions,
};

use super::*;

/// Returns a logged-in client of the same etcd.
pub(super) async fn client_of(etcd: &Etcd, name: &str, password: &str) -> Result<Client, Error> {
    let mut client = etcd.client();
    client.update_user(Some((name.to_owned(), password.to_owned()))).await?;
    Ok(client)
}

/// Returns an etcd whose user `u` may read `/r/`, write `/w/`, and do both in `/rw/`.
pub(super) async fn etcd_with_auth() -> (Etcd, Client) {
    let (etcd, mut client) = etcd();
    assert_eq!(outcome(client.auth_enable().await), "FailedPrecondition: root user does not exist");
    client.user_add("root", "pw", None).await.unwrap();
    assert_eq!(outcome(client.auth_enable().await), "FailedPrecondition: root user does not have root role");
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("u", "pw", None).await.unwrap();
    client.role_add("r").await.unwrap();
    client.user_grant_role("u", "r").await.unwrap();
    for permission in [Permission::read("/r/"), Permission::write("/w/"), Permission::read_write("/rw/")] {
        client.role_grant_permission("r", permission.with_prefix()).await.unwrap();
    }
    client.auth_enable().await.unwrap();
    (etcd, client)
}

#[tokio::test(start_paused = true)]
async fn users_roles_and_permissions_can_be_managed() {
    let (_, mut client) = etcd();
    client.user_add("u", "pw", None).await.unwrap();
    client.user_add("quiet", "", Some(UserAddOptions::new().with_no_pwd())).await.unwrap();
    assert_eq!(outcome(client.user_add("u", "pw", None).await), "FailedPrecondition: user name already exists");
    assert_eq!(outcome(client.user_add("", "pw", None).await), "InvalidArgument: user name is empty");
    assert_eq!(client.user_list().await.unwrap().users(), ["quiet", "u"]);
    assert_eq!(outcome(client.user_get("x").await), "FailedPrecondition: user name not found");
    assert_eq!(outcome(client.user_change_password("x", "1").await), "FailedPrecondition: user name not found");
    assert_eq!(outcome(client.user_grant_role("u", "r").await), "FailedPrecondition: role name not found");
    client.role_add("r").await.unwrap();
    assert_eq!(outcome(client.role_add("r").await), "FailedPrecondition: role name already exists");
    assert_eq!(outcome(client.role_add("").await), "InvalidArgument: role name is empty");
    client.user_grant_role("u", "r").await.unwrap();
    assert_eq!(client.user_get("u").await.unwrap().roles(), ["r"]);
    client.role_grant_permission("r", Permission::read_write("b").with_prefix()).await.unwrap();
    client.role_grant_permission("r", Permission::read("a")).await.unwrap();
    let granted = client.role_get("r").await.unwrap().permissions();
    let granted: Vec<_> = granted.iter().map(|p| (p.get_type(), p.key().to_vec(), p.range_end().to_vec())).collect();
    assert_eq!(granted, [(0, b"a".to_vec(), vec![]), (2, b"b".to_vec(), b"c".to_vec())]);
    let no = client.role_revoke_permission("r", "b", None).await;
    assert_eq!(outcome(no), "FailedPrecondition: permission is not granted to the role");
    let all = RoleRevokePermissionOptions::new().with_prefix();
    client.role_revoke_permission("r", "b", Some(all)).await.unwrap();
    let backwards = client.role_grant_permission("r", Permission::read("z").with_range_end("b")).await;
    assert_eq!(outcome(backwards), "InvalidArgument: invalid auth management");
    client.role_delete("r").await.unwrap();
    assert!(
        client.user_get("u").await.unwrap().roles().is_empty() && client.role_list().await.unwrap().roles().is_empty()
    );
    assert_eq!(outcome(client.user_revoke_role("u", "r").await), "FailedPrecondition: role is not granted to the user");
    client.user_delete("u").await.unwrap();
    assert_eq!(outcome(client.user_delete("u").await), "FailedPrecondition: user name not found");
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_valid_token_are_refused() {
    let (etcd, mut client) = etcd();
    assert_eq!(outcome(client_of(&etcd, "u", "pw").await), "FailedPrecondition: authentication is not enabled");
    drop((etcd, client));
    let (etcd, nobody) = etcd_with_auth().await;
    client = nobody;
    let empty = "InvalidArgument: user name is empty";
    assert_eq!(outcome(client.get("/r/a", None).await), empty);
    assert_eq!(outcome(client.put("/r/a", "", None).await), empty);
    assert_eq!(outcome(client.user_list().await), empty);
    assert_eq!(outcome(client.status().await), empty);
    assert_eq!(outcome(client.auth_disable().await), empty);
    let failed = "InvalidArgument: authentication failed, invalid user ID or password";
    assert_eq!(outcome(client_of(&etcd, "u", "wrong").await), failed);
    assert_eq!(outcome(client_of(&etcd, "nobody", "pw").await), failed);
    // A token expires after five minutes without use. Each use extends it.
    let mut user = client_of(&etcd, "u", "pw").await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(250)).await;
        user.get("/r/a", None).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(outcome(user.get("/r/a", None).await), "Unauthenticated: invalid auth token");
    let mut user = client_of(&etcd, "u", "pw").await.unwrap();
    let mut root = client_of(&etcd, "root", "pw").await.unwrap();
    root.user_change_password("u", "other").await.unwrap();
    assert_eq!(outcome(user.get("/r/a", None).await), "Unauthenticated: invalid auth token");
    assert_eq!(outcome(root.user_delete("root").await), "InvalidArgument: invalid auth management");
    assert_eq!(outcome(root.user_revoke_role("root", "root").await), "InvalidArgument: invalid auth management");
    root.auth_disable().await.unwrap();
    client.put("anything", "", None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_user_can_access_only_the_keys_that_its_roles_allow() {
    let (etcd, _) = etcd_with_auth().await;
    let mut user = client_of(&etcd, "u", "pw").await.unwrap();
    let denied = "PermissionDenied: permission denied";
    let done = "it was carried out";
    let prefix = || Some(GetOptions::new().with_prefix());
    assert_eq!(outcome(user.get("/r/", prefix()).await), done);
    assert_eq!(outcome(user.get("/r", prefix()).await), denied);
    assert_eq!(outcome(user.get("/w/a", None).await), denied);
    assert_eq!(outcome(user.put("/w/a", "1", None).await), done);
    assert_eq!(outcome(user.put("/w/a", "1", Some(PutOptions::new().with_prev_key())).await), denied);
    assert_eq!(outcome(user.put("/rw/a", "1", Some(PutOptions::new().with_prev_key())).await), done);
    assert_eq!(outcome(user.put("/r/a", "1", None).await), denied);
    assert_eq!(outcome(user.delete("/r/a", None).await), denied);
    assert_eq!(outcome(user.delete("/w/a", None).await), done);
    // The permissions of both branches and of every comparison count.
    let txn = |compared: &str, read: &str, written: &str| {
        let compare = Compare::version(compared, CompareOp::Equal, 0);
        Txn::new().when([compare]).and_then([TxnOp::get(read, None)]).or_else([TxnOp::put(written, "1", None)])
    };
    assert_eq!(outcome(user.txn(txn("/r/a", "/r/a", "/w/a")).await), done);
    assert_eq!(outcome(user.txn(txn("/w/a", "/r/a", "/w/a")).await), denied);
    assert_eq!(outcome(user.txn(txn("/r/a", "/w/a", "/w/a")).await), denied);
    assert_eq!(outcome(user.txn(txn("/r/a", "/r/a", "/r/a")).await), denied);
    assert_eq!(outcome(user.user_list().await), denied);
    assert_eq!(user.user_get("u").await.unwrap().roles(), ["r"]);
    assert_eq!(user.role_get("r").await.unwrap().permissions().len(), 3);
    assert_eq!(outcome(user.role_get("root").await), denied);
    let mut stream = user.watch("/w/", Some(WatchOptions::new().with_prefix())).await.unwrap();
    let message = stream.message().await.unwrap().unwrap();
    assert!(message.created() && message.canceled() && message.watch_id() == -1);
    assert!(message.cancel_reason().contains("PermissionDenied desc = etcdserver: permission denied"));
    let mut stream = user.watch("/r/", Some(WatchOptions::new().with_prefix())).await.unwrap();
    assert!(!stream.message().await.unwrap().unwrap().canceled());
    // A lease may be used by a user who may write all its keys.
    let mut root = client_of(&etcd, "root", "pw").await.unwrap();
    let lease = user.lease_grant(60, None).await.unwrap().id();
    let with_lease = || Some(PutOptions::new().with_lease(lease));
    root.put("/secret", "1", with_lease()).await.unwrap();
    assert_eq!(outcome(user.put("/w/a", "1", with_lease()).await), denied);
    assert_eq!(outcome(user.lease_revoke(lease).await), denied);
    let with_keys = Some(LeaseTimeToLiveOptions::new().with_keys());
    assert_eq!(outcome(user.lease_time_to_live(lease, with_keys).await), denied);
    assert_eq!(outcome(user.lease_time_to_live(lease, None).await), done);
    root.lease_revoke(lease).await.unwrap();
}
