//! Transactions: every comparison, nesting, limits, order.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp};
use serde_json::{Value, json};

use super::{
    super::target::Target,
    session::{OPS, Session, delete, get, put},
};

crate::conformance::cases!("etcd txn":
    every_comparison, comparisons_of_missing_keys, comparisons_of_ranges, several_comparisons, both_branches,
    operations_see_those_before_them, nested, nested_conditions_see_the_state_before, a_hundred_and_twenty_eight_operations,
    duplicate_keys, a_put_and_a_deletion_of_its_key, a_read_only_transaction_has_no_revision, previous_values,
    an_unknown_lease_undoes_all, an_old_revision_inside, an_empty_transaction, create_if_missing, enqueue);

async fn every_comparison(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "compare").await;
    let lease = etcd_client::LeaseGrantOptions::new().with_id(4101);
    t.client.lease_grant(600, Some(lease)).await.expect("a lease");
    t.fill(&[("a", "m"), ("b", "1"), ("a", "m")]).await;
    t.put("a", "m", Some(PutOptions::new().with_lease(4101))).await;
    let a = t.k("a");
    for (sign, op) in OPS {
        for n in [2, 3, 4] {
            t.note_comparison(&format!("version {sign} {n}"), Compare::version(a.clone(), op, n)).await;
        }
        for n in [0, 1, 2] {
            let revision = t.base + n;
            t.note_comparison(&format!("create {sign} +{n}"), Compare::create_revision(a.clone(), op, revision)).await;
        }
        for n in [3, 4, 5] {
            let revision = t.base + n;
            t.note_comparison(&format!("mod {sign} +{n}"), Compare::mod_revision(a.clone(), op, revision)).await;
        }
        for value in ["l", "m", "mm", "n", ""] {
            t.note_comparison(&format!("value {sign} {value}"), Compare::value(a.clone(), op, value)).await;
        }
        for id in [4100, 4101, 4102, 0] {
            t.note_comparison(&format!("lease {sign} {id}"), Compare::lease(a.clone(), op, id)).await;
        }
    }
    t.client.lease_revoke(4101).await.expect("revoked");
    t.end()
}

async fn comparisons_of_missing_keys(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "missing").await;
    let a = t.k("a");
    for (sign, op) in OPS {
        for n in [-1, 0, 1] {
            t.note_comparison(&format!("version {sign} {n}"), Compare::version(a.clone(), op, n)).await;
            t.note_comparison(&format!("create {sign} {n}"), Compare::create_revision(a.clone(), op, n)).await;
            t.note_comparison(&format!("mod {sign} {n}"), Compare::mod_revision(a.clone(), op, n)).await;
            t.note_comparison(&format!("lease {sign} {n}"), Compare::lease(a.clone(), op, n)).await;
        }
        for value in ["", "x"] {
            t.note_comparison(&format!("value {sign} {value:?}"), Compare::value(a.clone(), op, value)).await;
        }
    }
    t.end()
}

async fn comparisons_of_ranges(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "compare-ranges").await;
    t.fill(&[("a/1", "x"), ("a/2", "x"), ("a/3", "y"), ("a/1", "x")]).await;
    let (a, none, end) = (t.k("a/"), t.k("none/"), t.k("a/3"));
    for (sign, op) in OPS {
        t.note_comparison(&format!("all values {sign} x"), Compare::value(a.clone(), op, "x").with_prefix()).await;
        t.note_comparison(&format!("two values {sign} x"), Compare::value(a.clone(), op, "x").with_range(end.clone()))
            .await;
        t.note_comparison(&format!("versions {sign} 1"), Compare::version(a.clone(), op, 1).with_prefix()).await;
        t.note_comparison(&format!("no values {sign} x"), Compare::value(none.clone(), op, "x").with_prefix()).await;
        t.note_comparison(&format!("no versions {sign} 0"), Compare::version(none.clone(), op, 0).with_prefix()).await;
        t.note_comparison(&format!("no creates {sign} 0"), Compare::create_revision(none.clone(), op, 0).with_prefix())
            .await;
    }
    let revision = t.base + 5;
    t.note_comparison("nothing newer", Compare::mod_revision(a, CompareOp::Less, revision).with_prefix()).await;
    t.end()
}

async fn several_comparisons(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "several").await;
    t.fill(&[("a", "1"), ("b", "2")]).await;
    let is = |key: &str, value: &str| Compare::value(t.k(key), CompareOp::Equal, value);
    let all = [
        ("both", vec![is("a", "1"), is("b", "2")]),
        ("one", vec![is("a", "1"), is("b", "3")]),
        ("contrary", vec![is("a", "1"), is("a", "2")]),
        ("none", vec![]),
    ];
    for (what, compares) in all {
        t.txn(what, Txn::new().when(compares)).await;
    }
    t.end()
}

async fn both_branches(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "branches").await;
    t.fill(&[("a", "1")]).await;
    let a = t.k("a");
    for value in ["1", "2", "1"] {
        let txn = Txn::new()
            .when([Compare::value(a.clone(), CompareOp::Equal, value)])
            .and_then([put(a.clone(), "2"), get(a.clone())])
            .or_else([get(a.clone()), delete(a.clone()), get(a.clone())]);
        t.txn(value, txn).await;
    }
    t.end()
}

async fn operations_see_those_before_them(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "order").await;
    let all = || TxnOp::get(t.prefix.clone(), Some(GetOptions::new().with_prefix()));
    let txn = Txn::new().and_then([all(), put(t.k("a"), "1"), all(), put(t.k("b"), "2"), delete(t.k("c")), all()]);
    t.txn("puts", txn).await;
    let txn = Txn::new().and_then([
        TxnOp::delete(t.prefix.clone(), Some(DeleteOptions::new().with_prefix().with_prev_key())),
        TxnOp::get(t.prefix.clone(), Some(GetOptions::new().with_prefix())),
    ]);
    t.txn("deletions", txn).await;
    t.put("a", "3", None).await;
    t.get("a", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn nested(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "nested").await;
    t.fill(&[("a", "1")]).await;
    let is = |key: &str, value: &str| Compare::value(t.k(key), CompareOp::Equal, value);
    let deepest =
        Txn::new().when([is("a", "1")]).and_then([put(t.k("d"), "4"), get(t.k("d"))]).or_else([get(t.k("a"))]);
    let deep =
        Txn::new().when([is("b", "9")]).and_then([put(t.k("c"), "3")]).or_else([TxnOp::txn(deepest), get(t.k("a"))]);
    let txn = Txn::new().when([is("a", "1")]).and_then([TxnOp::txn(deep), put(t.k("e"), "5")]);
    t.txn("three deep", txn).await;
    t.get("all", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn nested_conditions_see_the_state_before(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "nested-before").await;
    t.fill(&[("a", "1")]).await;
    let inner = Txn::new()
        .when([Compare::value(t.k("a"), CompareOp::Equal, "2")])
        .and_then([put(t.k("seen"), "after")])
        .or_else([put(t.k("seen"), "before")]);
    t.txn("inner", Txn::new().and_then([put(t.k("a"), "2"), TxnOp::txn(inner)])).await;
    t.get("all", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn a_hundred_and_twenty_eight_operations(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "many").await;
    for n in [128, 129] {
        let puts: Vec<TxnOp> = (0..n).map(|i| put(t.k(&format!("{i}")), "v")).collect();
        let answer = t.client.txn(Txn::new().and_then(puts.clone())).await;
        let answer = t.result(answer, |_, a| json!(a.op_responses().len()));
        t.note(&format!("{n} puts"), answer);
        let answer = t.client.txn(Txn::new().or_else(puts.clone())).await;
        let answer = t.result(answer, |_, a| json!(a.op_responses().len()));
        t.note(&format!("{n} puts that are not made"), answer);
        let compares: Vec<Compare> =
            (0..n).map(|i| Compare::version(t.k(&format!("{i}")), CompareOp::Equal, 1)).collect();
        let answer = t.client.txn(Txn::new().when(compares)).await;
        let answer = t.result(answer, |_, a| json!(a.succeeded()));
        t.note(&format!("{n} comparisons"), answer);
        let inner = Txn::new().and_then((0..n).map(|i| get(t.k(&format!("{i}")))).collect::<Vec<_>>());
        let answer = t.client.txn(Txn::new().and_then([TxnOp::txn(inner)])).await;
        let answer = t.result(answer, |_, a| json!(a.op_responses().len()));
        t.note(&format!("{n} inside"), answer);
    }
    t.get("how many", "", Some(GetOptions::new().with_prefix().with_count_only())).await;
    t.end()
}

async fn duplicate_keys(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "duplicate").await;
    let (a, b) = (t.k("a"), t.k("b"));
    t.txn("two puts", Txn::new().and_then([put(a.clone(), "1"), put(a.clone(), "2")])).await;
    t.txn("two puts elsewhere", Txn::new().or_else([put(a.clone(), "1"), put(a.clone(), "2")])).await;
    let inner = |key: &str| TxnOp::txn(Txn::new().and_then([put(key.to_owned(), "1")]));
    t.txn("outside and inside", Txn::new().and_then([put(a.clone(), "1"), inner(&a)])).await;
    t.txn("inside twice", Txn::new().and_then([inner(&a), inner(&a)])).await;
    let either = TxnOp::txn(Txn::new().and_then([put(b.clone(), "1")]).or_else([put(b.clone(), "2")]));
    t.txn("either branch", Txn::new().and_then([put(a.clone(), "1"), either])).await;
    t.txn("two reads", Txn::new().and_then([get(a.clone()), get(a.clone())])).await;
    t.txn("two deletions", Txn::new().and_then([delete(a.clone()), delete(a)])).await;
    t.get("all", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn a_put_and_a_deletion_of_its_key(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "put-delete").await;
    t.fill(&[("a", "1")]).await;
    let (a, prefix) = (t.k("a"), t.prefix.clone());
    let all = || TxnOp::delete(prefix.clone(), Some(DeleteOptions::new().with_prefix()));
    t.txn("put, delete", Txn::new().and_then([put(a.clone(), "2"), delete(a.clone())])).await;
    t.txn("delete, put", Txn::new().and_then([delete(a.clone()), put(a.clone(), "3")])).await;
    t.txn("put, delete all", Txn::new().and_then([put(a.clone(), "4"), all()])).await;
    t.txn("delete all, put", Txn::new().and_then([all(), put(a.clone(), "5")])).await;
    let inner = TxnOp::txn(Txn::new().and_then([all()]));
    t.txn("put, delete all inside", Txn::new().and_then([put(a, "6"), inner])).await;
    t.get("all", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn a_read_only_transaction_has_no_revision(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "read-only").await;
    t.fill(&[("a", "1")]).await;
    t.txn("read", Txn::new().and_then([get(t.k("a"))])).await;
    t.txn("delete nothing", Txn::new().and_then([delete(t.k("b"))])).await;
    t.put("c", "1", None).await;
    t.end()
}

async fn previous_values(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "txn-prev").await;
    t.fill(&[("a", "1"), ("b", "1")]).await;
    let a = TxnOp::put(t.k("a"), "2", Some(PutOptions::new().with_prev_key()));
    let b = TxnOp::delete(t.k("b"), Some(DeleteOptions::new().with_prev_key()));
    t.txn("prev", Txn::new().and_then([a, b])).await;
    let kept = TxnOp::put(t.k("a"), "", Some(PutOptions::new().with_ignore_value().with_prev_key()));
    t.txn("kept", Txn::new().and_then([kept])).await;
    let missing = TxnOp::put(t.k("zz"), "", Some(PutOptions::new().with_ignore_value()));
    t.txn("kept of nothing", Txn::new().and_then([put(t.k("a"), "9"), missing])).await;
    t.get("all", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn an_unknown_lease_undoes_all(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "txn-lease").await;
    let bad = TxnOp::put(t.k("b"), "1", Some(PutOptions::new().with_lease(4103)));
    t.txn("unknown lease", Txn::new().and_then([put(t.k("a"), "1"), bad])).await;
    t.get("nothing", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}

async fn an_old_revision_inside(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "txn-old").await;
    t.fill(&[("a", "1"), ("a", "2")]).await;
    let base = t.base;
    let at = |n: i64| TxnOp::get(t.k("a"), Some(GetOptions::new().with_revision(base + n)));
    t.txn("past", Txn::new().and_then([put(t.k("a"), "3"), at(1), at(2)])).await;
    let at = |n: i64| TxnOp::get(t.k("a"), Some(GetOptions::new().with_revision(base + n)));
    t.txn("future", Txn::new().and_then([put(t.k("a"), "4"), at(90)])).await;
    t.get("a", "a", None).await;
    t.end()
}

async fn an_empty_transaction(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "txn-empty").await;
    t.txn("empty", Txn::new()).await;
    t.put("a", "1", None).await;
    t.end()
}

async fn create_if_missing(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "create").await;
    for value in ["1", "2"] {
        let txn = Txn::new()
            .when([Compare::create_revision(t.k("a"), CompareOp::Equal, 0)])
            .and_then([put(t.k("a"), value)])
            .or_else([get(t.k("a"))]);
        t.txn(value, txn).await;
    }
    t.end()
}

async fn enqueue(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "enqueue").await;
    let (index, mut seen) = (t.k("write-index"), 0);
    for attempt in 0..4 {
        // The third transaction compares with the state before the second.
        let txn = Txn::new()
            .when([Compare::mod_revision(index.clone(), CompareOp::Equal, seen)])
            .and_then([put(t.k(&format!("data/{attempt:016x}")), "{}"), put(index.clone(), &(attempt + 1).to_string())])
            .or_else([get(index.clone())]);
        t.txn(&format!("attempt {attempt}"), txn).await;
        if attempt != 1 {
            let got = t.client.get(index.clone(), None).await.expect("a read");
            seen = got.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision);
        }
    }
    t.get("all", "", Some(GetOptions::new().with_prefix())).await;
    t.end()
}
