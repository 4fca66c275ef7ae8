use std::time::Duration;

use etcd_client::{LeaseGrantOptions, LeaseTimeToLiveOptions, PutOptions, WatchOptions};
use tokio::time::sleep;

use super::*;

fn with_lease(lease: i64) -> PutOptions {
    PutOptions::new().with_lease(lease)
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_deletes_its_keys_in_one_revision() {
    let (etcd, mut client) = etcd();
    let lease = client.lease_grant(10, None).await.unwrap();
    assert_eq!(lease.ttl(), 10);
    let mut stream = client.watch("", Some(WatchOptions::new().with_all_keys())).await.unwrap();
    stream.message().await.unwrap();
    for key in ["b", "a", "moved", "freed"] {
        client.put(key, "1", Some(with_lease(lease.id()))).await.unwrap();
        stream.message().await.unwrap();
    }
    let other = client.lease_grant(60, None).await.unwrap().id();
    client.put("moved", "2", Some(with_lease(other))).await.unwrap();
    client.put("freed", "2", None).await.unwrap();
    for _ in 0..2 {
        stream.message().await.unwrap();
    }
    let started = Instant::now();
    let message = stream.message().await.unwrap().unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(10));
    let deleted: Vec<_> =
        message.events().iter().map(|e| e.kv().unwrap()).map(|kv| (kv.key(), kv.mod_revision())).collect();
    assert_eq!(deleted, [(&b"a"[..], 8), (&b"b"[..], 8)]);
    assert_eq!(etcd.leases(), [other]);
    assert!(etcd.expire_lease(other) && !etcd.expire_lease(other));
    assert!(etcd.get("moved").is_none() && etcd.get("freed").is_some());
}

#[tokio::test(start_paused = true)]
async fn leases_are_granted_renewed_listed_and_revoked() {
    let (etcd, mut client) = etcd();
    let with_id = |id| Some(LeaseGrantOptions::new().with_id(id));
    let lease = client.lease_grant(10, with_id(5)).await.unwrap();
    assert_eq!((lease.id(), lease.ttl()), (5, 10));
    assert_eq!(outcome(client.lease_grant(10, with_id(5)).await), "FailedPrecondition: lease already exists");
    assert_eq!(outcome(client.lease_grant(9_000_000_001, None).await), "OutOfRange: too large lease TTL");
    let short = client.lease_grant(0, None).await.unwrap();
    assert!(short.ttl() == 2 && short.id() > 0);
    client.lease_grant(9_000_000_000, with_id(6)).await.unwrap();
    client.put("k", "1", Some(with_lease(5))).await.unwrap();
    sleep(Duration::from_millis(1500)).await;
    let shown = client.lease_time_to_live(5, Some(LeaseTimeToLiveOptions::new().with_keys())).await.unwrap();
    assert_eq!((shown.ttl(), shown.granted_ttl(), shown.keys()), (8, 10, &[b"k".to_vec()][..]));
    assert!(client.lease_time_to_live(5, None).await.unwrap().keys().is_empty());
    assert_eq!(client.lease_time_to_live(9, None).await.unwrap().ttl(), -1);
    let ids: Vec<_> = client.leases().await.unwrap().leases().iter().map(etcd_client::LeaseStatus::id).collect();
    assert_eq!(ids, [short.id(), 5, 6]);
    let (mut renewer, mut renewals) = client.lease_keep_alive(5).await.unwrap();
    renewer.keep_alive().await.unwrap();
    assert_eq!(renewals.message().await.unwrap().unwrap().ttl(), 10);
    sleep(Duration::from_millis(9900)).await;
    assert_eq!(etcd.leases(), [5, 6]);
    client.lease_revoke(5).await.unwrap();
    assert!(etcd.get("k").is_none());
    assert_eq!(outcome(client.lease_revoke(5).await), "NotFound: requested lease not found");
    renewer.keep_alive().await.unwrap();
    assert_eq!(renewals.message().await.unwrap().unwrap().ttl(), 0);
    assert!(client.lease_keep_alive(5).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn renewing_a_lease_for_an_hour_takes_less_than_half_a_second() {
    let (etcd, mut client) = etcd();
    let lease = client.lease_grant(60, None).await.unwrap().id();
    client.put("k", "1", Some(with_lease(lease))).await.unwrap();
    let (mut renewer, mut renewals) = client.lease_keep_alive(lease).await.unwrap();
    let began = std::time::Instant::now();
    for _ in 0..180 {
        sleep(Duration::from_secs(20)).await;
        renewer.keep_alive().await.unwrap();
        assert_eq!(renewals.message().await.unwrap().unwrap().ttl(), 60);
    }
    let took = began.elapsed();
    println!("an hour took {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(etcd.leases(), [lease]);
    sleep(Duration::from_secs(61)).await;
    assert!(etcd.get("k").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_cannot_be_renewed() {
    let (_, mut client) = etcd();
    let lease = client.lease_grant(10, None).await.unwrap().id();
    let (mut renewer, mut renewals) = client.lease_keep_alive(lease).await.unwrap();
    renewer.keep_alive().await.unwrap();
    // Nothing ran in between.
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(renewals.message().await.unwrap().unwrap().ttl(), 0);
}

#[tokio::test(start_paused = true)]
async fn eight_watches_receive_every_write() {
    let (etcd, mut client) = etcd();
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(client.watch("/cke/", Some(WatchOptions::new().with_prefix())).await.unwrap());
    }
    let began = std::time::Instant::now();
    for i in 0..2000 {
        client.put(format!("/cke/{}", i % 100), "x".repeat(200), None).await.unwrap();
    }
    println!("a put took {:?}", began.elapsed() / 2000);
    for stream in &mut streams {
        let mut seen = 0;
        while seen < 2000 {
            seen += stream.message().await.unwrap().unwrap().events().len();
        }
    }
    println!("a put and eight events took {:?}", began.elapsed() / 2000);
    assert_eq!(etcd.revision(), 2001);
}
