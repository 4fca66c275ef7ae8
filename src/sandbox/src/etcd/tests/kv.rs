use etcd_client::{CompactionOptions, DeleteOptions, GetOptions, GetResponse, PutOptions, SortOrder, SortTarget};

use super::*;

fn keys(got: &GetResponse) -> String {
    got.kvs().iter().map(|kv| kv.key_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn every_write_increments_the_revision_and_the_first_is_2() {
    let (etcd, mut client) = etcd();
    let got = client.get("a", None).await.unwrap();
    let header = got.header().unwrap();
    assert_eq!((header.revision(), header.raft_term(), got.count()), (1, 2, 0));
    assert!(header.cluster_id() != 0 && header.member_id() != 0);
    client.put("a", "1", None).await.unwrap();
    let put = client.put("a", "2", Some(PutOptions::new().with_prev_key())).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), 3);
    assert_eq!(put.prev_key().unwrap().value(), b"1");
    let got = client.get("a", None).await.unwrap();
    let kv = &got.kvs()[0];
    assert_eq!((kv.create_revision(), kv.mod_revision(), kv.version(), kv.lease()), (2, 3, 2, 0));
    let deleted = client.delete("a", Some(DeleteOptions::new().with_prev_key())).await.unwrap();
    assert_eq!((deleted.deleted(), deleted.prev_kvs()[0].value()), (1, &b"2"[..]));
    let deleted = client.delete("a", None).await.unwrap();
    assert_eq!((deleted.deleted(), deleted.header().unwrap().revision()), (0, 4));
    client.put("a", "3", None).await.unwrap();
    let got = client.get("a", None).await.unwrap();
    assert_eq!((got.kvs()[0].create_revision(), got.kvs()[0].version()), (5, 1));
    assert_eq!(etcd.get("a"), Some(b"3".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn ranges_are_limited_sorted_and_counted() {
    let (etcd, mut client) = etcd();
    for (key, value) in [("/b", "3"), ("/a", "2"), ("/c", "1"), ("0", "9"), ("/a", "4")] {
        etcd.put(key, value);
    }
    let mut get = async |key: &str, options: GetOptions| client.get(key, Some(options)).await.unwrap();
    let prefix = || GetOptions::new().with_prefix();
    let got = get("/", prefix().with_limit(2)).await;
    assert_eq!((keys(&got).as_str(), got.more(), got.count()), ("/a /b", true, 3));
    let got = get("/", prefix().with_limit(3)).await;
    assert_eq!((keys(&got).as_str(), got.more(), got.count()), ("/a /b /c", false, 3));
    let got = get("/b", GetOptions::new().with_from_key()).await;
    assert_eq!(keys(&got), "/b /c 0");
    let got = get("", GetOptions::new().with_all_keys()).await;
    assert_eq!(got.count(), 4);
    let got = get("/a", GetOptions::new().with_range("/c")).await;
    assert_eq!(keys(&got), "/a /b");
    assert_eq!(get("/c", GetOptions::new().with_range("/a")).await.count(), 0);
    let got = get("/", prefix().with_count_only()).await;
    assert_eq!((got.count(), got.kvs().len()), (3, 0));
    let got = get("/", prefix().with_keys_only()).await;
    assert!(got.kvs().iter().all(|kv| kv.value().is_empty()) && got.kvs().len() == 3);
    for (target, order, expected) in [
        (SortTarget::Value, SortOrder::Ascend, "/c /b /a"),
        (SortTarget::Create, SortOrder::Descend, "/c /a /b"),
        (SortTarget::Mod, SortOrder::Descend, "/a /c /b"),
        (SortTarget::Version, SortOrder::None, "/b /c /a"),
        (SortTarget::Key, SortOrder::Descend, "/c /b /a"),
    ] {
        assert_eq!(keys(&get("/", prefix().with_sort(target, order)).await), expected, "{target:?}");
    }
    let got = get("/", prefix().with_sort(SortTarget::Mod, SortOrder::Descend).with_limit(1)).await;
    assert_eq!((keys(&got).as_str(), got.more()), ("/a", true));
    let got = get("/", prefix().with_min_mod_revision(4)).await;
    assert_eq!((keys(&got).as_str(), got.count()), ("/a /c", 3));
    assert_eq!(keys(&get("/", prefix().with_max_mod_revision(4)).await), "/b /c");
    assert_eq!(keys(&get("/", prefix().with_min_create_revision(3)).await), "/a /c");
    assert_eq!(keys(&get("/", prefix().with_max_create_revision(3)).await), "/a /b");
    let deleted = client.delete("/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    assert_eq!((deleted.deleted(), deleted.header().unwrap().revision()), (3, 7));
}

#[tokio::test(start_paused = true)]
async fn a_client_reads_old_revisions_until_they_are_compacted() {
    let (etcd, mut client) = etcd();
    for value in ["1", "2", "3"] {
        etcd.put("a", value);
    }
    let at = |revision| Some(GetOptions::new().with_revision(revision));
    let got = client.get("a", at(2)).await.unwrap();
    assert_eq!((got.kvs()[0].value(), got.header().unwrap().revision()), (&b"1"[..], 4));
    let future = "OutOfRange: mvcc: required revision is a future revision";
    assert_eq!(outcome(client.get("a", at(5)).await), future);
    assert_eq!(outcome(client.compact(5, None).await), future);
    client.compact(3, Some(CompactionOptions::new().with_physical())).await.unwrap();
    let compacted = "OutOfRange: mvcc: required revision has been compacted";
    assert_eq!(outcome(client.get("a", at(2)).await), compacted);
    assert_eq!(outcome(client.compact(3, None).await), compacted);
    assert_eq!(client.get("a", at(3)).await.unwrap().kvs()[0].value(), b"2");
    assert_eq!(etcd.compact(4), Ok(()));
    assert_eq!(etcd.history().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn invalid_puts_are_refused() {
    let (_, mut client) = etcd();
    let mut put = async |key: &str, value: &str, options| outcome(client.put(key, value, Some(options)).await);
    let options = PutOptions::new;
    assert_eq!(put("", "", options()).await, "InvalidArgument: key is not provided");
    assert_eq!(put("a", "", options().with_ignore_value()).await, "InvalidArgument: key not found");
    assert_eq!(put("a", "1", options().with_ignore_value()).await, "InvalidArgument: value is provided");
    assert_eq!(put("a", "1", options().with_ignore_lease().with_lease(7)).await, "InvalidArgument: lease is provided");
    assert_eq!(put("a", "1", options().with_lease(7)).await, "NotFound: requested lease not found");
    assert_eq!(put("a", &"x".repeat(1536 << 10), options()).await, "InvalidArgument: request is too large");
    assert!(put("a", &"x".repeat(2 << 20), options()).await.starts_with("ResourceExhausted: grpc: received message"));
    assert_eq!(put("a", &"x".repeat((1536 << 10) - 4096), options()).await, "it was carried out");
    assert_eq!(outcome(client.get("", None).await), "InvalidArgument: key is not provided");
    assert_eq!(outcome(client.delete("", None).await), "InvalidArgument: key is not provided");
}

#[tokio::test(start_paused = true)]
async fn a_put_may_keep_the_value_or_the_lease() {
    let (_, mut client) = etcd();
    let lease = client.lease_grant(60, None).await.unwrap().id();
    client.put("a", "1", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    client.put("a", "2", Some(PutOptions::new().with_ignore_lease())).await.unwrap();
    let got = client.get("a", None).await.unwrap();
    assert_eq!((got.kvs()[0].value(), got.kvs()[0].lease()), (&b"2"[..], lease));
    client.put("a", "", Some(PutOptions::new().with_ignore_value())).await.unwrap();
    let got = client.get("a", None).await.unwrap();
    assert_eq!((got.kvs()[0].value(), got.kvs()[0].lease()), (&b"2"[..], 0));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_range_returns_pages() {
    let (etcd, client) = etcd();
    for i in 0..2500 {
        etcd.put(format!("k{i:04}"), "");
    }
    let mut stream = client.kv_client().get_stream("k", Some(GetOptions::new().with_prefix())).await.unwrap();
    let mut keys = 0;
    while let Some(page) = stream.message().await.unwrap() {
        keys += page.kvs().len();
    }
    assert_eq!(keys, 2500);
}

#[tokio::test(start_paused = true)]
async fn the_history_contains_every_change_up_to_its_limit() {
    let (etcd, mut client) = etcd();
    tokio::time::advance(std::time::Duration::from_secs(3)).await;
    client.put("a", "1", None).await.unwrap();
    etcd.delete("a");
    let history = etcd.history();
    assert_eq!(history[0].value.as_deref(), Some(&b"1"[..]));
    assert_eq!((history[1].revision, history[1].value.clone(), history[1].at.as_second()), (3, None, 3));
    assert_eq!(etcd.history_since(2), history[1..]);
    etcd.limit_history(Some(100));
    for i in 0..1000 {
        etcd.put("a", i.to_string());
    }
    assert!((100..=200).contains(&etcd.history().len()));
    let old = client.get("a", Some(GetOptions::new().with_revision(500))).await;
    assert!(outcome(old).contains("compacted"));
}

#[tokio::test(start_paused = true)]
async fn puts_are_refused_until_the_nospace_alarm_is_disarmed() {
    let (etcd, mut client) = etcd();
    etcd.put("a", "1");
    etcd.set_nospace(true);
    let full = "ResourceExhausted: mvcc: database space exceeded";
    assert_eq!(outcome(client.put("a", "2", None).await), full);
    let put = etcd_client::TxnOp::put("a", "2", None);
    assert_eq!(outcome(client.txn(etcd_client::Txn::new().and_then([put])).await), full);
    assert_eq!(outcome(client.lease_grant(10, None).await), full);
    let alarms = client.alarm(etcd_client::AlarmAction::Get, etcd_client::AlarmType::None, None).await.unwrap();
    assert_eq!(alarms.alarms().len(), 1);
    client.delete("a", None).await.unwrap();
    client.alarm(etcd_client::AlarmAction::Deactivate, etcd_client::AlarmType::Nospace, None).await.unwrap();
    client.put("a", "2", None).await.unwrap();
}
