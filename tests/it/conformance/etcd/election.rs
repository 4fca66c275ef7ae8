//! The election recipe with two candidates, and its fencing.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, WatchOptions};
use serde_json::Value;

use super::{
    super::target::Target,
    session::{Session, get, put},
};

crate::conformance::cases!("etcd election": by_the_recipe, the_leader_dies, a_fenced_write);

impl Session {
    /// Campaigns: writes its key under its lease, unless the key exists.
    async fn campaign(&mut self, lease: i64, host: &str) {
        let key = self.k(&format!("leader/{lease:x}"));
        let ours = TxnOp::put(key.clone(), host, Some(PutOptions::new().with_lease(lease)));
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([ours])
            .or_else([get(key)]);
        self.txn(&format!("{host} campaigns"), txn).await;
    }

    /// The leader, and the candidate just before the one with that revision.
    async fn leader(&mut self, own: i64) {
        let first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
        self.get("the leader", "leader/", Some(first)).await;
        let before = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(1);
        let max = self.base + own - 1;
        self.get("who stands before", "leader/", Some(before.with_max_create_revision(max))).await;
    }
}

async fn by_the_recipe(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "recipe").await;
    t.grant(0x51, 600).await;
    t.grant(0x52, 600).await;
    t.campaign(0x51, "one").await;
    t.campaign(0x52, "two").await;
    t.campaign(0x51, "one").await;
    t.leader(2).await;
    let from = t.base + 3;
    let mut stream = t.watch("leader/51", Some(WatchOptions::new().with_start_revision(from))).await;
    t.note_message(&mut stream).await;
    // The leader resigns: it deletes the key only if it is still the one that it wrote.
    let ours = t.base + 1;
    let txn = Txn::new()
        .when([Compare::create_revision(t.k("leader/51"), CompareOp::Equal, ours)])
        .and_then([super::session::delete(t.k("leader/51"))]);
    t.txn("one resigns", txn).await;
    t.note_message(&mut stream).await;
    t.leader(2).await;
    t.campaign(0x51, "one again").await;
    t.leader(4).await;
    t.revoke(0x51).await;
    t.revoke(0x52).await;
    t.leader(2).await;
    t.end()
}

async fn the_leader_dies(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "dies").await;
    t.grant(0x61, 2).await;
    t.grant(0x62, 600).await;
    t.campaign(0x61, "one").await;
    t.campaign(0x62, "two").await;
    let mut stream = t.watch("leader/61", None).await;
    t.note_message(&mut stream).await;
    t.note_message(&mut stream).await;
    t.leader(2).await;
    t.campaign(0x61, "a ghost").await;
    t.revoke(0x62).await;
    t.end()
}

async fn a_fenced_write(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "fence").await;
    t.grant(0x71, 600).await;
    t.campaign(0x71, "one").await;
    t.put("entry", "queued", None).await;
    let (leads, entry) = (t.base + 1, t.base + 2);
    for (what, value) in [("as leader", "draining"), ("from a stale read", "rebooting")] {
        let txn = Txn::new()
            .when([
                Compare::create_revision(t.k("leader/71"), CompareOp::Equal, leads),
                Compare::mod_revision(t.k("entry"), CompareOp::Equal, entry),
            ])
            .and_then([put(t.k("entry"), value)])
            .or_else([get(t.k("leader/71")), get(t.k("entry"))]);
        t.txn(what, txn).await;
    }
    t.revoke(0x71).await;
    let txn = Txn::new()
        .when([Compare::create_revision(t.k("leader/71"), CompareOp::Equal, leads)])
        .and_then([put(t.k("entry"), "late")])
        .or_else([get(t.k("leader/71"))]);
    t.txn("after its lease", txn).await;
    t.grant(0x71, 600).await;
    t.campaign(0x71, "another").await;
    let txn = Txn::new()
        .when([Compare::create_revision(t.k("leader/71"), CompareOp::Equal, leads)])
        .and_then([put(t.k("entry"), "late")]);
    t.txn("under the same name", txn).await;
    t.revoke(0x71).await;
    t.end()
}
