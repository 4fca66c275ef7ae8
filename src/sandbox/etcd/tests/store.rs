//! Our own store on it.

use std::time::Duration;

use crate::store::{Store, election::Candidacy, live::Live};

use super::*;

fn clock() -> Clock {
    Clock::tokio(jiff::Timestamp::UNIX_EPOCH)
}

async fn stand(store: &Store, host: &str) -> Candidacy {
    let registration = serde_json::json!({"host": host, "pid": 1, "version": "1", "mode": "daemon"});
    Candidacy::stand(store, Duration::from_secs(10), host, serde_json::from_value(registration).unwrap()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_candidates_lead_one_after_the_other() {
    let (etcd, client) = etcd();
    let store = Store::from_client(client, "/cke/", clock());
    let (mut first, mut second) = (stand(&store, "a").await, stand(&store, "b").await);
    first.elected().await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_mins(10), second.elected()).await;
    assert!(waiting.is_err(), "kept alive, the first leads for ten minutes");
    etcd.expire_lease(first.lease());
    first.lost().await;
    second.elected().await.unwrap();
    second.resign().await;
    assert!(etcd.leases().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_live_copy_follows_through_cuts_stalls_and_compactions() {
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
