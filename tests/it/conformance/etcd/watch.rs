//! Events of a single watch.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, DeleteOptions, Txn, TxnOp, WatchFilterType, WatchOptions};
use serde_json::Value;

use super::{
    super::target::Target,
    session::{Session, delete, put},
};

crate::conformance::cases!("etcd watch":
    created_first, from_now, from_the_past, of_a_prefix, of_a_range, previous_values, previous_values_from_the_past,
    without_puts, without_deletions, events_of_one_transaction_come_together, a_deletion_of_a_range, from_the_future,
    from_a_compacted_revision, from_the_compacted_revision_itself, compaction_under_a_watch, of_all_keys);

fn prefix() -> WatchOptions {
    WatchOptions::new().with_prefix()
}

async fn created_first(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "created").await;
    t.fill(&[("a", "1")]).await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    t.put("a", "2", None).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn from_now(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "now").await;
    t.fill(&[("a", "1"), ("b", "1")]).await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    t.fill(&[("b", "2"), ("a/x", "2"), ("a", "2")]).await;
    t.delete("b", None).await;
    t.delete("a", None).await;
    t.delete("a", None).await;
    t.fill(&[("a", "3")]).await;
    t.events(&mut stream, 3, true).await;
    t.end()
}

async fn from_the_past(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "past").await;
    t.fill(&[("a", "1"), ("b", "1"), ("a", "2")]).await;
    t.delete("b", None).await;
    t.fill(&[("a", "3")]).await;
    let from = t.base + 2;
    let mut stream = t.watch("", Some(prefix().with_start_revision(from))).await;
    t.events(&mut stream, 4, true).await;
    t.fill(&[("a", "4")]).await;
    t.events(&mut stream, 1, true).await;
    t.end()
}

async fn of_a_prefix(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "of-prefix").await;
    let mut stream = t.watch("a", Some(prefix())).await;
    t.note_message(&mut stream).await;
    t.fill(&[("a", "1"), ("b", "1"), ("a/x", "1"), ("ab", "1"), ("A", "1"), ("a~", "1")]).await;
    t.events(&mut stream, 4, false).await;
    t.end()
}

async fn of_a_range(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "of-range").await;
    let end = t.k("c");
    let mut stream = t.watch("a", Some(WatchOptions::new().with_range(end))).await;
    t.note_message(&mut stream).await;
    t.fill(&[("c", "1"), ("b", "1"), ("a", "1"), ("b/x", "1"), ("d", "1"), ("a", "2")]).await;
    t.events(&mut stream, 4, false).await;
    t.end()
}

async fn previous_values(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "watch-prev").await;
    t.fill(&[("a", "1")]).await;
    let mut stream = t.watch("", Some(prefix().with_prev_key())).await;
    t.note_message(&mut stream).await;
    t.fill(&[("a", "2"), ("b", "1")]).await;
    t.delete("a", None).await;
    t.fill(&[("a", "3")]).await;
    t.events(&mut stream, 4, false).await;
    t.end()
}

async fn previous_values_from_the_past(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "past-prev").await;
    t.fill(&[("a", "1"), ("a", "2"), ("b", "1")]).await;
    t.delete("a", None).await;
    let from = t.base + 1;
    let mut stream = t.watch("", Some(prefix().with_prev_key().with_start_revision(from))).await;
    t.events(&mut stream, 4, false).await;
    t.end()
}

async fn without_puts(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "no-put").await;
    let mut stream = t.watch("", Some(prefix().with_filters([WatchFilterType::NoPut]))).await;
    t.note_message(&mut stream).await;
    t.fill(&[("a", "1"), ("a", "2")]).await;
    t.delete("a", None).await;
    t.events(&mut stream, 1, false).await;
    t.end()
}

async fn without_deletions(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "no-delete").await;
    let from = t.base + 1;
    t.fill(&[("a", "1")]).await;
    t.delete("a", None).await;
    let options = prefix().with_filters([WatchFilterType::NoDelete]).with_start_revision(from);
    let mut stream = t.watch("", Some(options)).await;
    t.fill(&[("a", "2")]).await;
    t.delete("a", None).await;
    t.fill(&[("a", "3")]).await;
    t.events(&mut stream, 3, false).await;
    t.end()
}

async fn events_of_one_transaction_come_together(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "together").await;
    t.fill(&[("c", "1"), ("d", "1")]).await;
    let mut stream = t.watch("", Some(prefix())).await;
    t.note_message(&mut stream).await;
    let inner = Txn::new().when([Compare::version(t.k("c"), CompareOp::Greater, 0)]).and_then([put(t.k("e"), "1")]);
    let ops = [put(t.k("b"), "1"), delete(t.k("c")), put(t.k("a"), "1"), delete(t.k("none")), TxnOp::txn(inner)];
    t.txn("five operations", Txn::new().and_then(ops)).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn a_deletion_of_a_range(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "range-gone").await;
    t.fill(&[("b", "1"), ("a", "1"), ("c", "1")]).await;
    let mut stream = t.watch("", Some(prefix().with_prev_key())).await;
    t.note_message(&mut stream).await;
    t.delete("", Some(DeleteOptions::new().with_prefix())).await;
    t.note_message(&mut stream).await;
    t.end()
}

async fn from_the_future(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "watch-future").await;
    let from = t.base + 3;
    let mut stream = t.watch("", Some(prefix().with_start_revision(from))).await;
    t.note_message(&mut stream).await;
    t.fill(&[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")]).await;
    t.events(&mut stream, 2, false).await;
    t.end()
}

async fn from_a_compacted_revision(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "watch-compacted").await;
    t.fill(&[("a", "1"), ("a", "2"), ("a", "3")]).await;
    let compacted = t.base + 3;
    t.client.compact(compacted, None).await.expect("compacted");
    let from = t.base + 1;
    let mut stream = t.watch("a", Some(WatchOptions::new().with_start_revision(from))).await;
    let first = t.note_message(&mut stream).await;
    if first["canceled"] == false {
        t.note_message(&mut stream).await;
    }
    t.end()
}

async fn from_the_compacted_revision_itself(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "watch-edge").await;
    t.fill(&[("a", "1"), ("a", "2"), ("a", "3")]).await;
    let compacted = t.base + 2;
    t.client.compact(compacted, None).await.expect("compacted");
    let mut stream = t.watch("a", Some(WatchOptions::new().with_start_revision(compacted).with_prev_key())).await;
    t.events(&mut stream, 2, false).await;
    t.end()
}

async fn compaction_under_a_watch(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "watch-under").await;
    let mut stream = t.watch("a", None).await;
    t.note_message(&mut stream).await;
    t.fill(&[("a", "1"), ("a", "2")]).await;
    t.events(&mut stream, 2, false).await;
    let compacted = t.base + 2;
    t.client.compact(compacted, None).await.expect("compacted");
    t.fill(&[("a", "3")]).await;
    t.events(&mut stream, 1, false).await;
    t.end()
}

async fn of_all_keys(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "watch-all").await;
    let (from, mut events) =
        (t.base + 1, t.client.watch("", Some(WatchOptions::new().with_all_keys())).await.expect("a watch"));
    t.note_message(&mut events).await;
    t.fill(&[("a", "1"), ("b", "1")]).await;
    t.events(&mut events, 2, false).await;
    let options = WatchOptions::new().with_from_key().with_start_revision(from);
    let mut stream = t.watch("b", Some(options)).await;
    t.events(&mut stream, 1, false).await;
    t.end()
}
