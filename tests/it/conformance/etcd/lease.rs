//! Leases: granted, kept alive, counted, revoked, expired.

use std::sync::Arc;

use etcd_client::{GetOptions, LeaseGrantOptions, LeaseTimeToLiveOptions, PutOptions, Txn, TxnOp, WatchOptions};
use serde_json::{Value, json};

use super::{super::target::Target, session::Session};

crate::conformance::cases!("etcd lease":
    granted, an_id_of_the_servers, a_taken_id, short_and_long_times, kept_alive, keep_alive_of_an_unknown_one, time_to_live,
    revoked, revoked_twice, keys_leave_a_lease, a_deleted_key_leaves_its_lease, runs_out, kept_until_it_is_not, in_a_transaction);

impl Session {
    /// Grants a lease with that id.
    pub async fn grant(&mut self, id: i64, ttl: i64) {
        let answer = self.client.lease_grant(ttl, Some(LeaseGrantOptions::new().with_id(id))).await;
        let answer = self.result(answer, |t, a| {
            json!({"id": a.id(), "ttl": a.ttl(), "error": a.error(), "revision": a.header().map(|h| t.rel(h.revision()))})
        });
        self.note(&format!("grant {id} for {ttl}"), answer);
    }

    /// Notes the remaining time of a lease.
    pub async fn remaining(&mut self, id: i64) {
        let answer = self.client.lease_time_to_live(id, Some(LeaseTimeToLiveOptions::new().with_keys())).await;
        let answer = self.result(answer, |t, a| {
            let mut keys: Vec<String> = a.keys().iter().map(|k| t.plain(&String::from_utf8_lossy(k))).collect();
            keys.sort(); // etcd returns them unordered
            // the exact remaining time depends on the speed of the machine
            let about = (0..=3).contains(&(a.granted_ttl() - a.ttl()));
            let remaining = if about { json!("nearly all") } else { json!(a.ttl()) };
            json!({"id": a.id(), "left": remaining, "granted": a.granted_ttl(), "keys": keys})
        });
        self.note(&format!("time to live of {id}"), answer);
    }

    /// Revokes a lease.
    pub async fn revoke(&mut self, id: i64) {
        let answer = self.client.lease_revoke(id).await;
        let answer = self.result(answer, |t, a| json!(a.header().map(|h| t.rel(h.revision()))));
        self.note(&format!("revoke {id}"), answer);
    }

    /// Puts a key under a lease.
    pub async fn put_under(&mut self, key: &str, lease: i64) {
        self.put(key, "v", Some(PutOptions::new().with_lease(lease))).await;
    }

    async fn all(&mut self) {
        self.get("all", "", Some(GetOptions::new().with_prefix())).await;
    }
}

async fn granted(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "granted").await;
    t.grant(5001, 600).await;
    t.put_under("b", 5001).await;
    t.put_under("a", 5001).await;
    t.all().await;
    t.remaining(5001).await;
    let answer = t.client.leases().await;
    let answer = t.result(answer, |_, a| json!(a.leases().iter().any(|l| l.id() == 5001)));
    t.note("it is listed", answer);
    t.revoke(5001).await;
    let answer = t.client.leases().await;
    let answer = t.result(answer, |_, a| json!(a.leases().iter().any(|l| l.id() == 5001)));
    t.note("it is listed no more", answer);
    t.end()
}

async fn an_id_of_the_servers(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "server-id").await;
    let first = t.client.lease_grant(600, None).await.expect("a lease").id();
    let second = t.client.lease_grant(600, None).await.expect("a lease").id();
    t.note("positive and different", json!(first > 0 && second > 0 && first != second));
    t.client.lease_revoke(first).await.expect("revoked");
    t.client.lease_revoke(second).await.expect("revoked");
    t.end()
}

async fn a_taken_id(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "taken-lease").await;
    t.grant(5002, 600).await;
    t.grant(5002, 300).await;
    t.remaining(5002).await;
    t.revoke(5002).await;
    t.grant(5002, 300).await;
    t.revoke(5002).await;
    t.end()
}

async fn short_and_long_times(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "times").await;
    for (id, ttl) in [(5010, 1), (5011, 0), (5012, -5), (5013, 9_000_000_000), (5014, 9_000_000_001)] {
        t.grant(id, ttl).await;
        let _ = t.client.lease_revoke(id).await;
    }
    t.end()
}

async fn kept_alive(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "alive").await;
    t.grant(5020, 600).await;
    let (mut keeper, mut answers) = t.client.lease_keep_alive(5020).await.expect("a stream");
    for _ in 0..2 {
        keeper.keep_alive().await.expect("sent");
        let answer = answers.message().await.expect("the stream works").expect("an answer");
        t.note("kept", json!({"id": answer.id(), "ttl": answer.ttl()}));
    }
    t.revoke(5020).await;
    keeper.keep_alive().await.expect("sent");
    let answer = answers.message().await;
    let answer = t.result(answer, |_, a| json!(a.as_ref().map(|a| (a.id(), a.ttl()))));
    t.note("after its end", answer);
    t.end()
}

async fn keep_alive_of_an_unknown_one(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "alive-unknown").await;
    let answer = t.client.lease_keep_alive(5029).await;
    let answer = t.result(answer, |_, _| json!("a stream"));
    t.note("keep alive", answer);
    t.end()
}

async fn time_to_live(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "ttl").await;
    t.remaining(5030).await;
    t.grant(5030, 100).await;
    t.remaining(5030).await;
    for key in ["c", "a", "b"] {
        t.put_under(key, 5030).await;
    }
    t.remaining(5030).await;
    t.revoke(5030).await;
    t.remaining(5030).await;
    t.end()
}

async fn revoked(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "revoked").await;
    t.grant(5040, 600).await;
    let mut stream = t.watch("", Some(WatchOptions::new().with_prefix().with_prev_key())).await;
    t.note_message(&mut stream).await;
    t.put("other", "1", None).await;
    for key in ["c", "a", "b"] {
        t.put_under(key, 5040).await;
    }
    t.events(&mut stream, 4, false).await;
    t.revoke(5040).await;
    t.note_message(&mut stream).await;
    t.all().await;
    t.grant(5041, 600).await;
    t.revoke(5041).await;
    t.put("other", "2", None).await;
    t.end()
}

async fn revoked_twice(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "revoked-twice").await;
    t.revoke(5050).await;
    t.grant(5050, 600).await;
    t.revoke(5050).await;
    t.revoke(5050).await;
    t.end()
}

async fn keys_leave_a_lease(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "leave").await;
    t.grant(5060, 600).await;
    t.grant(5061, 600).await;
    for key in ["a", "b", "c"] {
        t.put_under(key, 5060).await;
    }
    t.put("a", "free", None).await;
    t.put_under("b", 5061).await;
    t.remaining(5060).await;
    t.remaining(5061).await;
    t.revoke(5060).await;
    t.all().await;
    t.revoke(5061).await;
    t.all().await;
    t.end()
}

async fn a_deleted_key_leaves_its_lease(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "deleted-leaves").await;
    t.grant(5070, 600).await;
    t.put_under("a", 5070).await;
    t.delete("a", None).await;
    t.remaining(5070).await;
    t.put("a", "free", None).await;
    t.revoke(5070).await;
    t.all().await;
    t.end()
}

async fn runs_out(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "runs-out").await;
    t.grant(5080, 2).await;
    for key in ["b", "a"] {
        t.put_under(key, 5080).await;
    }
    let mut stream = t.watch("", Some(WatchOptions::new().with_prefix().with_prev_key())).await;
    t.note_message(&mut stream).await;
    t.note_message(&mut stream).await;
    t.all().await;
    t.remaining(5080).await;
    t.put_under("a", 5080).await;
    t.revoke(5080).await;
    t.end()
}

async fn kept_until_it_is_not(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "kept").await;
    t.grant(5090, 3).await;
    t.put_under("a", 5090).await;
    let mut stream = t.watch("", Some(WatchOptions::new().with_prefix())).await;
    t.note_message(&mut stream).await;
    let (mut keeper, mut answers) = t.client.lease_keep_alive(5090).await.expect("a stream");
    for _ in 0..4 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        keeper.keep_alive().await.expect("sent");
        let answer = answers.message().await.expect("the stream works").expect("an answer");
        t.note("kept", json!(answer.ttl()));
    }
    t.all().await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn in_a_transaction(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "lease-txn").await;
    t.grant(5100, 600).await;
    let under = |key: &str| TxnOp::put(t.k(key), "v", Some(PutOptions::new().with_lease(5100)));
    let txn = Txn::new().and_then([under("a"), under("b")]);
    t.txn("two under a lease", txn).await;
    t.remaining(5100).await;
    t.revoke(5100).await;
    t.all().await;
    t.end()
}
