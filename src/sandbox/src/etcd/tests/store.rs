//! cketerm's own store on the sandbox's etcd.

mod answers;
mod copies;
mod leading;
mod queues;

use std::time::Duration;

use cketerm_clients::store::{Store, election::Candidacy, live::Live};
use cketerm_model::{
    cketerm_records::{EngineRegistration, Request, Who},
    fence::Person,
    names::Address,
};
use cketerm_runtime::{heartbeat::Heartbeat, tasks::Gate};

use super::*;
use crate::faults::Link;

fn clock() -> Clock {
    cketerm_runtime::tokio_clock::starting_at(jiff::Timestamp::UNIX_EPOCH)
}

/// Returns an empty etcd, a store on it, and the link between them.
fn linked() -> (Etcd, Store, Link) {
    let (etcd, _) = etcd();
    let (store, link) = store_over_link(&etcd);
    (etcd, store, link)
}

/// Returns a store on this etcd, and the link between them.
fn store_over_link(etcd: &Etcd) -> (Store, Link) {
    let link = Link::new("a", Gate::default(), 1);
    let client = etcd.client_through(|wire| link.wrap(wire, tonic::body::Body::new, tonic::body::Body::new));
    (Store::from_client(client, "/cke/", clock()), link)
}

fn who() -> Who {
    Who { user: "ann".to_owned(), host: "desk".to_owned(), ssh_client: None }
}

fn person() -> Person {
    Person::asks(&who())
}

fn request() -> Request {
    Request { who: who(), at: jiff::Timestamp::UNIX_EPOCH, reason: None, node_uid: None, batch: None }
}

fn addresses(count: usize) -> Vec<Address> {
    (0..count).map(|i| Address::new(format!("10.0.{}.{}", i / 256, i % 256))).collect()
}

fn registration(host: &str) -> EngineRegistration {
    let registration = serde_json::json!({"host": host, "pid": 1, "version": "1", "mode": "daemon"});
    serde_json::from_value(registration).unwrap()
}

async fn campaign(store: &Store, host: &str) -> Candidacy {
    let ttl = Duration::from_secs(10);
    Candidacy::campaign(store, ttl, host, registration(host), &Heartbeat::new(ttl)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_second_candidate_leads_after_the_first_loses_its_lease() {
    let (etcd, client) = etcd();
    let store = Store::from_client(client, "/cke/", clock());
    let (mut first, mut second) = (campaign(&store, "a").await, campaign(&store, "b").await);
    first.elected().await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_mins(10), second.elected()).await;
    assert!(waiting.is_err(), "the first candidate keeps its lease for ten minutes");
    etcd.expire_lease(first.lease());
    first.lost().await;
    second.elected().await.unwrap();
    second.resign().await;
    assert!(etcd.leases().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_live_copy_survives_watch_cuts_stalls_and_compactions() {
    let (etcd, client) = etcd();
    etcd.put("/cke/reboots/disabled", "true");
    let store = Store::from_client(client, "/cke/", clock());
    let live = Live::follow(&store);
    let mut views = live.subscribe();
    let mut revision = etcd.revision();
    for round in 0..4 {
        match round {
            1 => etcd.cut_watches(),
            2 => {
                etcd.stall_watches(true);
                etcd.put("/cke/reboots/disabled", "true");
                let now = etcd.put("/cke/reboots/disabled", "false");
                etcd.compact(now).unwrap();
                tokio::time::sleep(Duration::from_secs(5)).await;
                etcd.stall_watches(false);
            }
            _ => {}
        }
        tokio::time::timeout(Duration::from_secs(30), views.wait_for(|view| view.revision >= revision))
            .await
            .unwrap_or_else(|_| panic!("round {round}: no view at {revision}"))
            .unwrap();
        revision = etcd.put("/cke/reboots/disabled", if round % 2 == 0 { "false" } else { "true" });
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_main_loop_releases_the_lock_and_permits_nothing_more() {
    let (etcd, client) = etcd();
    let store = Store::from_client(client, "/cke/", clock());
    let ttl = Duration::from_mins(1);
    let heartbeat = Heartbeat::new(ttl);
    tokio::spawn(heartbeat.clone().watch());
    let mut candidacy = Candidacy::campaign(&store, ttl, "a", registration("a"), &heartbeat).await.unwrap();
    let fence = candidacy.elected().await.unwrap();
    for _ in 0..60 {
        heartbeat.beat();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert!(fence.permit(store.clock().boot()).is_ok());
    let silent = tokio::time::Instant::now();
    let why = heartbeat.stuck().await;
    assert!(why.contains("the lock was released"), "{why}");
    let took = silent.elapsed().as_secs();
    assert!((20..=35).contains(&took), "the lock was released after {took} s");
    assert!(fence.permit(store.clock().boot()).is_err() && fence.permit_record().is_err());
    assert!(etcd.leases().is_empty());
    candidacy.lost().await;
}
