//! Candidates and the leader.

use std::cell::RefCell;

use cketerm_clients::store::election::defer_election;
use cketerm_model::cketerm_records::SCHEMA;
use tokio::time::{Instant, sleep, timeout};

use super::*;

/// The wait for the candidate before starts from a revision. If that is compacted before the watch is there, etcd cancels
/// the watch and leaves its stream open.
#[tokio::test(start_paused = true)]
async fn a_candidate_survives_a_compaction_while_it_starts_to_wait() {
    let (etcd, client) = etcd();
    let first = campaign(&Store::from_client(client, "/cke/", clock()), "a").await;
    let (store, link) = store_over_link(&etcd);
    let mut second = campaign(&store, "b").await;
    sleep(Duration::from_secs(1)).await;
    // It asks for the candidates at 100 ms, for the key of the first one at 200 ms, and for its watch at 300 ms.
    link.slow(Some((Duration::from_millis(100), Duration::from_millis(100))), 1);
    let elected = tokio::spawn(async move { second.elected().await.map(|_| second) });
    sleep(Duration::from_millis(250)).await;
    etcd.put("/cke/x", "1");
    let now = etcd.put("/cke/x", "2");
    etcd.compact(now).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(!elected.is_finished());
    assert!(etcd.expire_lease(first.lease()));
    timeout(Duration::from_secs(5), elected).await.expect("it leads").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_defers_is_registered_until_its_lease_expires() {
    let (_etcd, store, _) = linked();
    let (_end, end_signal) = tokio::sync::oneshot::channel();
    tokio::spawn(defer_election(store.clone(), Duration::from_secs(10), registration("a"), end_signal));
    sleep(Duration::from_secs(9)).await;
    assert_eq!(store.read_view().await.unwrap().engines.len(), 1);
    sleep(Duration::from_secs(2)).await;
    assert!(store.read_view().await.unwrap().engines.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_migration_that_fails_is_retried_after_growing_pauses() {
    let (etcd, store, _) = linked();
    etcd.put(store.keys().schema(), "1");
    let mut candidacy = campaign(&store, "a").await;
    let fence = candidacy.elected().await.unwrap();
    etcd.set_nospace(true);
    let (began, failures) = (Instant::now(), RefCell::new(Vec::new()));
    let (author, on_error) = (who(), |_| failures.borrow_mut().push(began.elapsed().as_secs()));
    let migration = store.migrate(&fence, &author, on_error);
    tokio::pin!(migration);
    assert!(timeout(Duration::from_secs(100), &mut migration).await.is_err());
    assert_eq!(*failures.borrow(), [0, 1, 3, 7, 15, 31, 61, 91]);
    etcd.set_nospace(false);
    timeout(Duration::from_secs(30), &mut migration).await.expect("it is done");
    assert_eq!(etcd.get(store.keys().schema()), Some(SCHEMA.to_string().into_bytes()));
}
