//! Users, roles and permissions: off, on, and off again. This is one case, because it changes the whole server.

use std::sync::Arc;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, LeaseGrantOptions, Permission,
    PermissionType, PutOptions, RoleRevokePermissionOptions, Txn, WatchOptions,
};
use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{Session, get, put},
};

crate::conformance::cases!("etcd auth": without_authentication, with_authentication);

impl Session {
    fn note_outcome<T>(&mut self, what: &str, answer: Result<T, Error>) {
        let answer = self.result(answer, |_, _| json!("done"));
        self.note(what, answer);
    }

    async fn users_and_roles(&mut self) {
        let users = self.client.user_list().await;
        let users = self.result(users, |_, a| json!(a.users()));
        self.note("users", users);
        let roles = self.client.role_list().await;
        let roles = self.result(roles, |_, a| json!(a.roles()));
        self.note("roles", roles);
        for user in ["cke", "nobody"] {
            let answer = self.client.user_get(user).await;
            let answer = self.result(answer, |_, a| json!(a.roles()));
            self.note(&format!("user {user}"), answer);
        }
        for role in ["cke", "root", "none"] {
            let answer = self.client.role_get(role).await;
            let answer = self.result(answer, |t, a| {
                let one = |p: &Permission| {
                    let text = |b: &[u8]| t.plain(&String::from_utf8_lossy(b));
                    json!({"type": p.get_type(), "key": text(p.key()), "end": text(p.range_end())})
                };
                Value::Array(a.permissions().iter().map(one).collect())
            });
            self.note(&format!("role {role}"), answer);
        }
    }
}

async fn without_authentication(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "no-auth").await;
    let answer = t.client.auth_enable().await;
    t.note_outcome("enabled without root", answer);
    let answer = Client::connect([&target.etcd], Some(ConnectOptions::new().with_user("cke", "secret"))).await;
    t.note_outcome("a name while it is off", answer);
    let answer = t.client.user_add("cke", "secret", None).await;
    t.note_outcome("add", answer);
    let answer = t.client.user_add("cke", "secret", None).await;
    t.note_outcome("add twice", answer);
    let answer = t.client.user_add("", "secret", None).await;
    t.note_outcome("add no name", answer);
    let answer = t.client.user_grant_role("cke", "cke").await;
    t.note_outcome("grant no role", answer);
    let answer = t.client.user_grant_role("nobody", "cke").await;
    t.note_outcome("grant to nobody", answer);
    let answer = t.client.role_add("cke").await;
    t.note_outcome("role", answer);
    let answer = t.client.role_add("cke").await;
    t.note_outcome("role twice", answer);
    let permission = Permission::read_write(t.k("cke/")).with_prefix();
    let answer = t.client.role_grant_permission("none", permission.clone()).await;
    t.note_outcome("permission for no role", answer);
    let answer = t.client.role_grant_permission("cke", permission).await;
    t.note_outcome("permission", answer);
    let answer = t.client.user_grant_role("cke", "cke").await;
    t.note_outcome("grant", answer);
    let answer = t.client.user_grant_role("cke", "cke").await;
    t.note_outcome("grant twice", answer);
    t.users_and_roles().await;
    let answer = t.client.user_revoke_role("cke", "cke").await;
    t.note_outcome("revoke", answer);
    let answer = t.client.user_revoke_role("cke", "cke").await;
    t.note_outcome("revoke twice", answer);
    let answer = t.client.role_revoke_permission("cke", "/nothing", None).await;
    t.note_outcome("revoke no permission", answer);
    let end = t.k("cke0");
    let options = RoleRevokePermissionOptions::new().with_range_end(end);
    let answer = t.client.role_revoke_permission("cke", t.k("cke/"), Some(options)).await;
    t.note_outcome("revoke the permission", answer);
    t.users_and_roles().await;
    for answer in [t.client.user_change_password("nobody", "x").await.err(), t.client.user_delete("nobody").await.err()]
    {
        let answer = answer.map_or(json!("done"), |e| t.error(&e));
        t.note("of nobody", answer);
    }
    let answer = t.client.role_delete("none").await;
    t.note_outcome("delete no role", answer);
    let answer = t.client.user_delete("cke").await;
    t.note_outcome("delete the user", answer);
    let answer = t.client.role_delete("cke").await;
    t.note_outcome("delete the role", answer);
    t.users_and_roles().await;
    t.end()
}

async fn with_authentication(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "auth").await;
    t.fill(&[("cke/a", "1"), ("ro/a", "1"), ("wo/a", "1"), ("other", "1")]).await;
    t.client.user_add("root", "r00t", None).await.expect("root is added");
    let answer = t.client.auth_enable().await;
    t.note_outcome("enabled while root has no role", answer);
    let answer = t.client.role_add("root").await;
    t.note_outcome("the role of root", answer);
    t.client.user_grant_role("root", "root").await.expect("granted");
    t.client.user_add("cke", "secret", None).await.expect("a user");
    t.client.role_add("cke").await.expect("a role");
    for (kind, key) in
        [(PermissionType::Readwrite, "cke/"), (PermissionType::Read, "ro/"), (PermissionType::Write, "wo/")]
    {
        let permission = Permission::new(kind, t.k(key)).with_prefix();
        t.client.role_grant_permission("cke", permission).await.expect("granted");
    }
    t.client.user_grant_role("cke", "cke").await.expect("granted");
    let answer = t.client.auth_enable().await;
    t.note_outcome("enabled", answer);

    // Requests without a user name.
    let answer = t.client.get(t.k("cke/a"), None).await;
    t.note_outcome("a read without a name", answer);
    let answer = t.client.put(t.k("cke/a"), "2", None).await;
    t.note_outcome("a write without a name", answer);
    let answer = t.client.user_list().await;
    t.note_outcome("users without a name", answer);
    let answer = t.client.lease_grant(600, Some(LeaseGrantOptions::new().with_id(6001))).await;
    t.note_outcome("a lease without a name", answer);
    let answer = t.client.status().await;
    t.note_outcome("status without a name", answer);
    for (name, password) in [("cke", "wrong"), ("nobody", "secret"), ("cke", "")] {
        let answer = Client::connect([&target.etcd], Some(ConnectOptions::new().with_user(name, password))).await;
        t.note_outcome(&format!("{name} with {password:?}"), answer);
    }

    // Requests of a user with a role.
    let nobody = t.client.clone();
    let connect = |name: &'static str, password: &'static str| {
        let etcd = target.etcd.clone();
        async move {
            Client::connect([etcd], Some(ConnectOptions::new().with_user(name, password)))
                .await
                .expect("the user is authenticated")
        }
    };
    t.client = connect("cke", "secret").await;
    for key in ["cke/a", "ro/a", "wo/a", "other"] {
        t.get(key, key, None).await;
        t.put(key, "2", None).await;
        t.put(key, "3", Some(PutOptions::new().with_prev_key())).await;
        t.delete(key, Some(DeleteOptions::new().with_prev_key())).await;
    }
    t.get("the prefix", "cke/", Some(GetOptions::new().with_prefix())).await;
    t.get("more than the prefix", "", Some(GetOptions::new().with_prefix())).await;
    t.get("from the key on", "cke/", Some(GetOptions::new().with_from_key())).await;
    t.delete("cke", Some(DeleteOptions::new().with_prefix())).await;
    for (what, compared, written) in
        [("allowed", "cke/a", "cke/b"), ("comparison refused", "other", "cke/b"), ("write refused", "cke/a", "other")]
    {
        let txn = Txn::new()
            .when([Compare::version(t.k(compared), CompareOp::Greater, 7)])
            .and_then([put(t.k(written), "x")])
            .or_else([get(t.k("cke/a"))]);
        t.txn(what, txn).await;
    }
    for (what, key) in [("allowed", "cke/"), ("refused", "other")] {
        let mut stream = t.watch(key, Some(WatchOptions::new().with_prefix())).await;
        t.note(what, json!(null));
        t.note_message(&mut stream).await;
    }
    let answer = t.client.lease_grant(600, Some(LeaseGrantOptions::new().with_id(6001))).await;
    t.note_outcome("a lease", answer);
    t.put("cke/leased", "1", Some(PutOptions::new().with_lease(6001))).await;
    let answer = t.client.lease_keep_alive(6001).await;
    t.note_outcome("kept alive", answer);
    let answer = t.client.lease_time_to_live(6001, None).await;
    t.note_outcome("looked at", answer);
    let answer = t.client.lease_revoke(6001).await;
    t.note_outcome("revoked", answer);
    let answer = t.client.user_list().await;
    t.note_outcome("users", answer);
    let answer = t.client.user_get("cke").await;
    t.note_outcome("oneself", answer);
    let answer = t.client.role_get("cke").await;
    t.note_outcome("one's role", answer);
    let answer = t.client.user_add("more", "x", None).await;
    t.note_outcome("one more", answer);
    let answer = t.client.status().await;
    t.note_outcome("status", answer);
    let answer = t.client.auth_disable().await;
    t.note_outcome("disabled", answer);

    // Changes by root take effect at once.
    let mut root = connect("root", "r00t").await;
    root.put(t.k("other"), "root", None).await.expect("root may write");
    let denied = RoleRevokePermissionOptions::new().with_range_end(t.k("ro0"));
    root.role_revoke_permission("cke", t.k("ro/"), Some(denied)).await.expect("revoked");
    t.client = connect("cke", "secret").await;
    t.get("what was taken away", "ro/a", None).await;
    root.user_change_password("cke", "new").await.expect("changed");
    let answer = Client::connect([&target.etcd], Some(ConnectOptions::new().with_user("cke", "secret"))).await;
    t.note_outcome("the old password", answer);
    t.client = connect("cke", "new").await;
    t.get("with the new one", "cke/", Some(GetOptions::new().with_prefix())).await;

    t.client = connect("root", "r00t").await;
    t.users_and_roles().await;
    let answer = t.client.user_delete("root").await;
    t.note_outcome("root deleted", answer);
    let answer = t.client.role_delete("root").await;
    t.note_outcome("its role deleted", answer);
    let answer = t.client.auth_disable().await;
    t.note_outcome("disabled by root", answer);
    t.client = nobody;
    t.get("open again", "other", None).await;
    for user in ["cke", "root"] {
        t.client.user_delete(user).await.expect("deleted");
    }
    for role in ["cke", "root"] {
        t.client.role_delete(role).await.expect("deleted");
    }
    t.end()
}
