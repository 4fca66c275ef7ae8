//! cketerm's own store on the sandbox's etcd.

use std::time::Duration;

use cketerm_clients::store::{Store, election::Candidacy, live::Live};
use cketerm_runtime::heartbeat::Heartbeat;

use super::*;

fn clock() -> Clock {
    cketerm_runtime::tokio_clock::starting_at(jiff::Timestamp::UNIX_EPOCH)
}

async fn campaign(store: &Store, host: &str) -> Candidacy {
    let registration = serde_json::json!({"host": host, "pid": 1, "version": "1", "mode": "daemon"});
    let (ttl, registration) = (Duration::from_secs(10), serde_json::from_value(registration).unwrap());
    Candidacy::campaign(store, ttl, host, registration, &Heartbeat::new(ttl)).await.unwrap()
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
    let registration = serde_json::json!({"host": "a", "pid": 1, "version": "1", "mode": "daemon"});
    let registration = serde_json::from_value(registration).unwrap();
    let mut candidacy = Candidacy::campaign(&store, ttl, "a", registration, &heartbeat).await.unwrap();
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
