use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::*;

fn put(key: &str) -> TxnOp {
    TxnOp::put(key, "1", None)
}

#[tokio::test(start_paused = true)]
async fn every_compare_target_supports_every_operator() {
    type Make = fn(i64, CompareOp) -> Compare;
    let (_, mut client) = etcd();
    let lease = client.lease_grant(60, Some(etcd_client::LeaseGrantOptions::new().with_id(5))).await.unwrap().id();
    client.put("x", "m", None).await.unwrap();
    client.put("a", "m", None).await.unwrap();
    client.put("a", "m", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    // Create revision 3, mod revision 4, version 2, lease 5.
    let targets: [(Make, i64); 5] = [
        (|n, op| Compare::version("a", op, n), 2),
        (|n, op| Compare::create_revision("a", op, n), 3),
        (|n, op| Compare::mod_revision("a", op, n), 4),
        (|n, op| Compare::lease("a", op, n), 5),
        (|n, op| Compare::value("a", op, [b'm' + u8::try_from(n + 100).unwrap() - 100]), 0),
    ];
    for (target, (make, is)) in targets.into_iter().enumerate() {
        for (op, holds) in [
            (CompareOp::Equal, [false, true, false]),
            (CompareOp::NotEqual, [true, false, true]),
            (CompareOp::Greater, [true, false, false]),
            (CompareOp::Less, [false, false, true]),
        ] {
            for (than, expected) in [is - 1, is, is + 1].into_iter().zip(holds) {
                let answer = client.txn(Txn::new().when([make(than, op)])).await.unwrap();
                assert_eq!(answer.succeeded(), expected, "target {target} {op:?} {than}");
            }
        }
    }
    // A missing key compares as zeros and has no value at all.
    for (compare, holds) in [
        (Compare::version("no", CompareOp::Equal, 0), true),
        (Compare::create_revision("no", CompareOp::Greater, 0), false),
        (Compare::value("no", CompareOp::Equal, ""), false),
        (Compare::value("no", CompareOp::NotEqual, "x"), false),
        // Every key of a range must match.
        (Compare::version("a", CompareOp::Greater, 0).with_prefix(), true),
        (Compare::version("a", CompareOp::Equal, 2).with_range("z"), false),
        (Compare::create_revision("k", CompareOp::Equal, 0).with_prefix(), true),
    ] {
        let text = format!("{compare:?}");
        assert_eq!(client.txn(Txn::new().when([compare])).await.unwrap().succeeded(), holds, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_one_revision_and_reads_its_own_writes() {
    let (etcd, mut client) = etcd();
    etcd.put("old", "1");
    let inner = Txn::new()
        .when([Compare::version("n", CompareOp::Equal, 0)])
        .and_then([put("inner"), TxnOp::get("n", None)])
        .or_else([put("else")]);
    let ops = [put("n"), TxnOp::get("n", None), TxnOp::delete("old", None), TxnOp::txn(inner)];
    let answer = client.txn(Txn::new().and_then(ops)).await.unwrap();
    assert_eq!((answer.header().unwrap().revision(), answer.succeeded()), (3, true));
    let responses = answer.op_responses();
    let TxnOpResponse::Get(got) = &responses[1] else { panic!("{responses:?}") };
    assert_eq!((got.kvs()[0].mod_revision(), got.header().unwrap().revision()), (3, 3));
    let TxnOpResponse::Delete(deleted) = &responses[2] else { panic!("{responses:?}") };
    assert_eq!(deleted.deleted(), 1);
    // The inner comparison saw the state before the transaction: no "n".
    let TxnOpResponse::Txn(inner) = &responses[3] else { panic!("{responses:?}") };
    assert!(inner.succeeded() && etcd.get("inner").is_some() && etcd.get("else").is_none());
    assert!(etcd.history_since(2).iter().all(|w| w.revision == 3));
    // A transaction that changes nothing has no revision.
    let answer = client.txn(Txn::new().and_then([TxnOp::get("n", None), TxnOp::delete("no", None)])).await.unwrap();
    assert_eq!((answer.header().unwrap().revision(), etcd.revision()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_operation_refuses_the_whole_transaction() {
    let (etcd, mut client) = etcd();
    let mut refuse = async |txn| outcome(client.txn(txn).await);
    let duplicate = "InvalidArgument: duplicate key given in txn request";
    let and_then = |ops: Vec<TxnOp>| Txn::new().and_then(ops);
    assert_eq!(refuse(and_then(vec![put("a"), put("a")])).await, duplicate);
    assert_eq!(refuse(and_then(vec![put("a"), TxnOp::delete("a", None)])).await, duplicate);
    let range = etcd_client::DeleteOptions::new().with_prefix();
    assert_eq!(refuse(and_then(vec![TxnOp::delete("a", Some(range)), put("ab")])).await, duplicate);
    assert_eq!(refuse(and_then(vec![put("a"), TxnOp::txn(and_then(vec![put("a")]))])).await, duplicate);
    assert_eq!(refuse(Txn::new().or_else([put("a"), put("a")])).await, duplicate);
    let either = Txn::new().and_then([put("a")]).or_else([put("a")]);
    assert_eq!(refuse(and_then(vec![TxnOp::txn(either)])).await, "it was carried out");
    let twice = vec![TxnOp::delete("a", None), TxnOp::delete("a", None)];
    assert_eq!(refuse(and_then(twice)).await, "it was carried out");
    let many = "InvalidArgument: too many operations in txn request";
    let gets = |n| (0..n).map(|_| TxnOp::get("a", None)).collect::<Vec<_>>();
    assert_eq!(refuse(and_then(gets(129))).await, many);
    assert_eq!(refuse(and_then(gets(128))).await, "it was carried out");
    let mut nested = gets(127);
    nested.push(TxnOp::txn(and_then(gets(3))));
    assert_eq!(refuse(and_then(nested)).await, many);
    assert_eq!(refuse(and_then(vec![put("")])).await, "InvalidArgument: key is not provided");
    let compare = Txn::new().when([Compare::version("", CompareOp::Equal, 0)]);
    assert_eq!(refuse(compare).await, "InvalidArgument: key is not provided");
    let large = |key: &str| TxnOp::put(key, "x".repeat(800 << 10), None);
    assert_eq!(refuse(and_then(vec![large("x"), large("y")])).await, "InvalidArgument: request is too large");
    // A failure is detected before anything is written.
    let before = etcd.revision();
    let leased = TxnOp::put("l", "1", Some(PutOptions::new().with_lease(9)));
    assert_eq!(refuse(and_then(vec![put("b"), leased])).await, "NotFound: requested lease not found");
    let future = TxnOp::get("a", Some(etcd_client::GetOptions::new().with_revision(99)));
    assert!(refuse(and_then(vec![put("b"), future])).await.starts_with("OutOfRange"));
    assert_eq!((etcd.revision(), etcd.get("b")), (before, None));
}
