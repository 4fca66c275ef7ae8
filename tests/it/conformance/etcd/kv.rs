//! Puts, ranges, deletions, compaction.

use std::sync::Arc;

use etcd_client::{CompactionOptions, DeleteOptions, GetOptions, PutOptions, SortOrder, SortTarget};
use serde_json::{Value, json};

use super::{super::target::Target, session::Session};

crate::conformance::cases!("etcd kv":
    put_and_get, put_with_previous, put_keeps_what_it_is_told_to, put_with_an_unknown_lease, an_empty_key, odd_keys,
    a_range_end_before_its_start, ranges, limits_and_counts, sorted_ranges, only_keys_or_only_the_count,
    revision_filters, an_older_revision, pages_at_one_revision, a_future_revision, compaction, a_compacted_revision,
    versions_begin_anew_after_a_deletion, delete_with_previous, delete_ranges, a_deletion_of_nothing_has_no_revision,
    one_and_a_half_mebibytes, a_serializable_read, status);

async fn put_and_get(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "put").await;
    t.get("nothing", "a", None).await;
    t.put("a", "1", None).await;
    t.put("a", "2", None).await;
    t.put("b", "", None).await;
    t.get("a", "a", None).await;
    t.get("b", "b", None).await;
    t.end()
}

async fn put_with_previous(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "prev").await;
    let prev = || Some(PutOptions::new().with_prev_key());
    t.put("a", "1", prev()).await;
    t.put("a", "2", prev()).await;
    t.put("a", "2", prev()).await;
    t.delete("a", None).await;
    t.put("a", "3", prev()).await;
    t.end()
}

async fn put_keeps_what_it_is_told_to(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "keep").await;
    let lease = etcd_client::LeaseGrantOptions::new().with_id(4001);
    t.client.lease_grant(600, Some(lease)).await.expect("a lease");
    t.put("a", "", Some(PutOptions::new().with_ignore_value())).await;
    t.put("a", "", Some(PutOptions::new().with_ignore_lease())).await;
    t.put("a", "1", Some(PutOptions::new().with_lease(4001))).await;
    t.put("a", "2", Some(PutOptions::new().with_ignore_lease())).await;
    t.get("value 2, lease kept", "a", None).await;
    t.put("a", "", Some(PutOptions::new().with_ignore_value())).await;
    t.get("value kept, lease gone", "a", None).await;
    t.put("a", "x", Some(PutOptions::new().with_ignore_value())).await;
    t.put("a", "x", Some(PutOptions::new().with_lease(4001).with_ignore_lease())).await;
    t.put("a", "", Some(PutOptions::new().with_ignore_value().with_lease(4001).with_prev_key())).await;
    t.get("value kept, lease new", "a", None).await;
    t.client.lease_revoke(4001).await.expect("revoked");
    t.end()
}

async fn put_with_an_unknown_lease(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "unknown-lease").await;
    t.put("a", "1", Some(PutOptions::new().with_lease(4002))).await;
    t.get("nothing", "a", None).await;
    t.end()
}

async fn an_empty_key(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "empty").await;
    let answer = t.client.put("", "x", None).await;
    let answer = t.result(answer, |_, _| json!("taken"));
    t.note("put", answer);
    // etcd_client writes "all keys" for an empty key with a range, and nothing for one without
    let answer = t.client.get("", None).await;
    let answer = t.result(answer, |_, _| json!("taken"));
    t.note("get", answer);
    let answer = t.client.delete("", None).await;
    let answer = t.result(answer, |_, _| json!("taken"));
    t.note("delete", answer);
    t.end()
}

async fn odd_keys(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "odd").await;
    for key in ["a\u{0}b", "ü", "a b", "A", "~", "a/", "a0", "a"] {
        t.put(key, key, None).await;
    }
    let prefix = t.prefix.clone();
    let mut raw = prefix.clone().into_bytes();
    raw.extend([0xff, 0xfe]);
    t.client.put(raw, "bytes", None).await.expect("a put");
    t.get("all", "", Some(GetOptions::new().with_prefix())).await;
    t.get("a", "a", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn a_range_end_before_its_start(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "reverse").await;
    t.fill(&[("a", "1"), ("b", "2")]).await;
    let end = t.k("a");
    t.get("b to a", "b", Some(GetOptions::new().with_range(end.clone()))).await;
    t.get("a to a", "a", Some(GetOptions::new().with_range(end.clone()))).await;
    t.delete("b", Some(DeleteOptions::new().with_range(end))).await;
    t.end()
}

async fn ranges(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "ranges").await;
    t.fill(&[("b", "2"), ("a", "1"), ("a/x", "3"), ("a/y", "4"), ("c", "5")]).await;
    let end = t.k("b");
    t.get("a to b", "a", Some(GetOptions::new().with_range(end))).await;
    t.get("prefix a", "a", Some(GetOptions::new().with_prefix())).await;
    t.get("prefix none", "zz", Some(GetOptions::new().with_prefix())).await;
    t.get("nothing between", "a/y0", Some(GetOptions::new().with_range(t.k("a/z")))).await;
    t.end()
}

async fn limits_and_counts(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "limits").await;
    t.fill(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]).await;
    for limit in [1, 3, 4, 5, 0] {
        t.get(&format!("limit {limit}"), "", Some(GetOptions::new().with_prefix().with_limit(limit))).await;
    }
    t.get("b limit 1", "b", Some(GetOptions::new().with_limit(1))).await;
    t.end()
}

async fn sorted_ranges(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "sorted").await;
    t.fill(&[("a", "3"), ("b", "1"), ("c", "2"), ("a", "4"), ("a", "4"), ("b", "5")]).await;
    let targets = [
        ("key", SortTarget::Key),
        ("version", SortTarget::Version),
        ("create", SortTarget::Create),
        ("mod", SortTarget::Mod),
        ("value", SortTarget::Value),
    ];
    for (name, target) in targets {
        for (way, order) in [("up", SortOrder::Ascend), ("down", SortOrder::Descend), ("none", SortOrder::None)] {
            let options = GetOptions::new().with_prefix().with_sort(target, order);
            t.get(&format!("{name} {way}"), "", Some(options.clone())).await;
            t.get(&format!("{name} {way}, first"), "", Some(options.with_limit(1))).await;
        }
    }
    t.end()
}

async fn only_keys_or_only_the_count(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "only").await;
    t.fill(&[("a", "1"), ("b", "2"), ("c", "3")]).await;
    t.get("keys", "", Some(GetOptions::new().with_prefix().with_keys_only())).await;
    t.get("keys, limit", "", Some(GetOptions::new().with_prefix().with_keys_only().with_limit(2))).await;
    t.get("count", "", Some(GetOptions::new().with_prefix().with_count_only())).await;
    t.get("count, limit", "", Some(GetOptions::new().with_prefix().with_count_only().with_limit(2))).await;
    t.end()
}

async fn revision_filters(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "filters").await;
    t.fill(&[("a", "1"), ("b", "2"), ("c", "3"), ("a", "4")]).await;
    let at = |n: i64| t.base + n;
    let filters = [
        ("mod from 3", GetOptions::new().with_min_mod_revision(at(3))),
        ("mod to 2", GetOptions::new().with_max_mod_revision(at(2))),
        ("create from 2", GetOptions::new().with_min_create_revision(at(2))),
        ("create to 1", GetOptions::new().with_max_create_revision(at(1))),
        ("mod from 3, limit 1", GetOptions::new().with_min_mod_revision(at(3)).with_limit(1)),
        ("mod from 3, count", GetOptions::new().with_min_mod_revision(at(3)).with_count_only()),
    ];
    for (name, options) in filters {
        t.get(name, "", Some(options.with_prefix())).await;
    }
    t.end()
}

async fn an_older_revision(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "older").await;
    t.fill(&[("a", "1"), ("b", "2"), ("a", "3")]).await;
    t.delete("b", None).await;
    t.fill(&[("b", "4")]).await;
    for back in 0..6 {
        let revision = t.base + back;
        t.get(&format!("at {back}"), "", Some(GetOptions::new().with_prefix().with_revision(revision))).await;
    }
    t.get("at -1", "a", Some(GetOptions::new().with_revision(-1))).await;
    t.end()
}

async fn pages_at_one_revision(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "pages").await;
    let keys: Vec<String> = (0..11).map(|i| format!("{i:04}")).collect();
    let fill: Vec<(&str, &str)> = keys.iter().map(|k| (k.as_str(), "v")).collect();
    t.fill(&fill).await;
    let revision = t.base + 11;
    let mut from = String::new();
    for page in 0..3 {
        // Other clients write and delete meanwhile.
        t.fill(&[("0005x", "new"), ("0007", "changed")]).await;
        t.delete(&format!("{:04}", 9 - page), None).await;
        let options = GetOptions::new().with_range(t.k("0")[..t.prefix.len()].to_owned() + "1").with_limit(5);
        t.get(&format!("page {page}"), &from, Some(options.with_revision(revision))).await;
        from = format!("{:04}\u{0}", page * 5 + 4);
    }
    t.end()
}

async fn a_future_revision(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "future").await;
    t.fill(&[("a", "1")]).await;
    let revision = t.base + 100;
    t.get("the future", "a", Some(GetOptions::new().with_revision(revision))).await;
    let answer = t.client.compact(revision, None).await;
    let answer = t.result(answer, |_, _| json!("compacted"));
    t.note("compact the future", answer);
    t.end()
}

async fn compaction(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "compaction").await;
    t.fill(&[("a", "1"), ("b", "1"), ("a", "2"), ("a", "3")]).await;
    t.delete("b", None).await;
    for at in [2, 2, 1, 5, 5] {
        let revision = t.base + at;
        let answer = t.client.compact(revision, Some(CompactionOptions::new().with_physical())).await;
        let answer = t.result(answer, |t, a| json!(a.header().map(|h| t.rel(h.revision()))));
        t.note(&format!("compact {at}"), answer);
        t.get("still there", "", Some(GetOptions::new().with_prefix())).await;
        t.get("at it", "", Some(GetOptions::new().with_prefix().with_revision(revision))).await;
        t.get("before it", "", Some(GetOptions::new().with_prefix().with_revision(revision - 1))).await;
    }
    t.end()
}

async fn a_compacted_revision(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "compacted").await;
    t.fill(&[("a", "1"), ("a", "2"), ("a", "3")]).await;
    let revision = t.base + 3;
    t.client.compact(revision, None).await.expect("compacted");
    for back in 1..4 {
        let at = t.base + back;
        t.get(&format!("at {back}"), "a", Some(GetOptions::new().with_revision(at))).await;
    }
    let at = t.base + 1;
    t.get("count at 1", "a", Some(GetOptions::new().with_revision(at).with_count_only())).await;
    t.end()
}

async fn versions_begin_anew_after_a_deletion(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "versions").await;
    t.fill(&[("a", "1"), ("a", "2")]).await;
    t.delete("a", None).await;
    t.fill(&[("a", "3")]).await;
    t.get("a", "a", None).await;
    t.end()
}

async fn delete_with_previous(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "delete-prev").await;
    t.fill(&[("a", "1"), ("a", "2"), ("b", "3"), ("c", "4")]).await;
    t.delete("a", Some(DeleteOptions::new().with_prev_key())).await;
    t.delete("a", Some(DeleteOptions::new().with_prev_key())).await;
    t.delete("", Some(DeleteOptions::new().with_prefix().with_prev_key())).await;
    t.end()
}

async fn delete_ranges(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "delete-ranges").await;
    t.fill(&[("a", "1"), ("b", "2"), ("c", "3"), ("d/1", "4"), ("d/2", "5"), ("e", "6")]).await;
    let end = t.k("c");
    t.delete("a", Some(DeleteOptions::new().with_range(end))).await;
    t.delete("d/", Some(DeleteOptions::new().with_prefix())).await;
    t.delete("zz", Some(DeleteOptions::new().with_prefix())).await;
    t.get("the rest", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn a_deletion_of_nothing_has_no_revision(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "delete-nothing").await;
    t.delete("a", None).await;
    t.put("b", "1", None).await;
    t.end()
}

async fn one_and_a_half_mebibytes(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "size").await;
    // The limit applies to the whole request, so these sizes stay some bytes away from it.
    let whole = 1_572_864;
    for size in [1 << 20, whole - 200, whole + 1, 2 << 20] {
        t.put("a", &"x".repeat(size), None).await;
    }
    let half = |key: &str| super::session::put(t.k(key), &"x".repeat(whole / 2));
    let txn = etcd_client::Txn::new().and_then([half("a"), half("b"), half("c")]);
    t.txn("of too much", txn).await;
    t.get("a", "a", None).await;
    t.delete("a", None).await;
    t.end()
}

async fn a_serializable_read(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "serializable").await;
    t.fill(&[("a", "1")]).await;
    t.get("a", "a", Some(GetOptions::new().with_serializable())).await;
    t.end()
}

async fn status(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "status").await;
    let answer = t.client.status().await;
    let answer = t.result(answer, |t, a| {
        let version: Vec<&str> = a.version().split('.').take(1).collect();
        json!({"version": version, "leads": a.leader() == a.header().map_or(0, etcd_client::ResponseHeader::member_id), "learner": a.is_learner(),
            "errors": a.errors(), "revision": a.header().map(|h| t.rel(h.revision())), "size": a.db_size() > 0})
    });
    t.note("status", answer);
    let answer = t.client.member_list().await;
    let answer = t.result(answer, |_, a| {
        let members = a.members().iter();
        json!(
            members.map(|m| json!({"named": !m.name().is_empty(), "urls": m.client_urls().len()})).collect::<Vec<_>>()
        )
    });
    t.note("members", answer);
    t.end()
}
