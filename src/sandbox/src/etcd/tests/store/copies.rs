//! The live copy, followed folders and reads of several pages.

use std::convert::Infallible;

use cketerm_clients::store::{
    pages::{Page, Part},
    tail::Tailed,
};
use cketerm_model::stored::{keys::Folder, view::StoreView};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    super::accounts::{client_of, etcd_with_auth},
    *,
};
use crate::faults::State;

const SOON: Duration = Duration::from_secs(30);

/// Waits until the live copy is like this.
async fn until(live: &Live, what: &str, holds: impl Fn(&StoreView) -> bool) {
    let mut views = live.subscribe();
    let found = tokio::time::timeout(SOON, views.wait_for(|view| holds(view))).await;
    assert!(found.is_ok(), "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_deleted_in_a_compacted_gap_leaves_the_copy() {
    let (etcd, store, link) = linked();
    etcd.put("/cke/reboots/disabled", "true");
    let live = Live::follow(&store);
    until(&live, "the switch is read", |view| view.synced && !view.reboots.switch.enabled()).await;
    link.set_state(State::Cut);
    etcd.delete("/cke/reboots/disabled");
    let now = etcd.put("/cke/other", "1");
    etcd.compact(now).unwrap();
    link.set_state(State::Open);
    until(&live, "the copy is read again", |view| view.revision >= now && view.error.is_none()).await;
    assert!(live.borrow().reboots.switch.enabled());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_changes_is_followed_to_its_last_one() {
    let (etcd, client) = etcd();
    let live = Live::follow(&Store::from_client(client, "/cke/", clock()));
    until(&live, "the copy is read", |view| view.synced).await;
    etcd.stall_watches(true);
    for round in 0..999 {
        etcd.put("/cke/reboots/disabled", if round % 2 == 0 { "true" } else { "false" });
    }
    let last = etcd.put("/cke/reboots/disabled", "true");
    etcd.stall_watches(false);
    until(&live, "the last change is known", |view| view.revision == last).await;
    assert!(!live.borrow().reboots.switch.enabled());
}

/// Follows `/cke/folder/` after a revision.
fn tail(store: Store, folder: &'static str, revision: i64) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        let sent = store.tail::<u32, Infallible>(folder, revision, |item| {
            let _ = sender.send(match item {
                Tailed::Value(stored) => format!("{:?}", stored.value.map(|value| *value)),
                Tailed::Trouble(text) => text,
            });
            Ok(())
        });
        match sent.await {
            Ok(()) => {}
        }
    });
    receiver
}

/// Returns what a followed folder has passed within a minute.
async fn within_a_minute(items: &mut UnboundedReceiver<String>) -> Vec<String> {
    tokio::time::sleep(Duration::from_mins(1)).await;
    std::iter::from_fn(|| items.try_recv().ok()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_quiet_folder_is_followed_without_trouble() {
    let (etcd, store, _) = linked();
    let mut items = tail(store, "/cke/folder/", 0);
    assert!(within_a_minute(&mut items).await.is_empty());
    etcd.put("/cke/folder/1", "7");
    assert_eq!(within_a_minute(&mut items).await, ["Ok(7)"]);
}

#[tokio::test(start_paused = true)]
async fn a_followed_folder_names_a_compacted_gap_once_and_goes_on_after_it() {
    let (etcd, store, _) = linked();
    for value in 1..=4 {
        etcd.put("/cke/folder/1", value.to_string());
    }
    etcd.compact(4).unwrap();
    let mut items = tail(store, "/cke/folder/", 0);
    let gap = "etcd was compacted; some changes below /cke/folder/ were missed";
    assert_eq!(within_a_minute(&mut items).await, [gap, "Ok(3)", "Ok(4)"]);
    etcd.put("/cke/folder/1", "5");
    assert_eq!(within_a_minute(&mut items).await, ["Ok(5)"]);
}

#[tokio::test(start_paused = true)]
async fn a_compaction_of_what_is_known_leaves_no_gap() {
    let (etcd, store, _) = linked();
    let known = etcd.put("/cke/folder/1", "1");
    etcd.put("/cke/folder/1", "2");
    etcd.compact(known + 1).unwrap();
    let mut items = tail(store, "/cke/folder/", known);
    assert_eq!(within_a_minute(&mut items).await, ["Ok(2)"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_reopened_repeats_nothing_and_reports_no_gap_that_etcd_has_denied() {
    let (etcd, store, link) = linked();
    let known = etcd.put("/cke/folder/1", "1");
    let mut items = tail(store, "/cke/folder/", known);
    etcd.put("/cke/folder/1", "2");
    assert_eq!(within_a_minute(&mut items).await, ["Ok(2)"]);
    // etcd goes on elsewhere, and its answers say so
    for value in 0..9 {
        etcd.put("/cke/other", value.to_string());
    }
    let now = etcd.put("/cke/other", "9");
    assert!(within_a_minute(&mut items).await.is_empty());
    link.set_state(State::Cut);
    etcd.compact(now).unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    link.set_state(State::Open);
    etcd.put("/cke/folder/1", "3");
    let after = within_a_minute(&mut items).await;
    let values: Vec<&String> = after.iter().filter(|item| item.starts_with("Ok(")).collect();
    assert_eq!(values, ["Ok(3)"], "{after:?}");
    assert!(!after.iter().any(|item| item.contains("were missed")), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_reopened_repeats_nothing_that_etcd_still_has() {
    let (etcd, store, _) = linked();
    let known = etcd.put("/cke/folder/1", "1");
    let mut items = tail(store, "/cke/folder/", known);
    etcd.put("/cke/folder/1", "2");
    etcd.put("/cke/folder/2", "3");
    assert_eq!(within_a_minute(&mut items).await, ["Ok(2)", "Ok(3)"]);
    etcd.cut_watches();
    etcd.put("/cke/folder/1", "4");
    let after = within_a_minute(&mut items).await;
    assert_eq!(after.iter().filter(|item| item.starts_with("Ok(")).count(), 1, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_followed_folder_of_an_idle_etcd_is_not_reported_as_silent() {
    let (etcd, store, _) = linked();
    etcd.put("/cke/folder/1", "1");
    let revision = etcd.put("/cke/folder/2", "2");
    let mut items = tail(store, "/cke/folder/", revision);
    assert!(within_a_minute(&mut items).await.is_empty());
    etcd.put("/cke/folder/1", "3");
    assert_eq!(within_a_minute(&mut items).await, ["Ok(3)"]);
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_may_not_be_followed_is_reported_once() {
    let (etcd, _) = etcd_with_auth().await;
    let user = client_of(&etcd, "u", "pw").await.unwrap();
    let mut items = tail(Store::from_client(user, "/w/", clock()), "/w/folder/", 1);
    let reported = within_a_minute(&mut items).await;
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("permission denied") && reported[0].ends_with("; retrying"), "{reported:?}");
    assert!(within_a_minute(&mut items).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_one_read_are_of_one_revision() {
    let (etcd, store, link) = linked();
    let key = |n: u32| format!("/cke/folder/{n:04}");
    let last = (0..1100).map(|n| etcd.put(key(n), n.to_string())).max().unwrap();
    link.slow(Some((Duration::from_millis(100), Duration::from_millis(100))), 1);
    let reading = tokio::spawn(async move { store.newest_first_from::<u32>("/cke/folder/", "/cke/folder/").await });
    tokio::time::sleep(Duration::from_millis(150)).await;
    etcd.delete(key(1099));
    etcd.put(key(1100), "1100");
    let (revision, values) = reading.await.unwrap().unwrap();
    let values: Vec<u32> = values.iter().map(|value| *value.get().unwrap()).collect();
    assert_eq!(revision, last);
    assert!(values.iter().copied().eq((0..1100).rev()), "{} values", values.len());
}

/// A writer whose clock is far behind names its record as the oldest one.
#[tokio::test(start_paused = true)]
async fn the_last_place_of_the_newest_page_may_be_of_a_slow_clock() {
    let (etcd, store, _) = linked();
    let key = |at: u32| format!("{}{at:020}-x", store.keys().audit_prefix());
    for n in 1001..=1200 {
        if n == 1192 {
            etcd.put(key(1), "1");
        }
        etcd.put(key(n), n.to_string());
    }
    let page: Page<u32> = store.page(Folder::Audit, Part::Newest, 10).await.unwrap();
    let values: Vec<u32> = page.values.iter().map(|value| *value.get().unwrap()).collect();
    assert_eq!(values, [1200, 1199, 1198, 1197, 1196, 1195, 1194, 1193, 1192, 1]);
}

/// A folder that nobody prunes, such as that of a year without an engine, must not make its first pages slow.
#[tokio::test(start_paused = true)]
async fn a_page_of_a_long_folder_costs_etcd_no_read_of_the_whole_folder() {
    const RECORDS: u32 = 40_000;
    let (etcd, store, _) = linked();
    let folder = store.keys().audit_prefix();
    for n in 1..=RECORDS {
        etcd.put(format!("{folder}{n:020}-x"), n.to_string());
    }
    let cost = |before: usize| etcd.values_read() - before;
    let begun = etcd.values_read();
    let page: Page<u32> = store.page(Folder::Audit, Part::Newest, 200).await.unwrap();
    assert_eq!((page.values.len(), page.more), (200, true));
    assert!(cost(begun) < 11_000, "{} values", cost(begun));
    let begun = etcd.values_read();
    let oldest = page.values.last().unwrap().mod_revision;
    let older: Page<u32> = store.page(Folder::Audit, Part::Before(oldest), 200).await.unwrap();
    assert_eq!(*older.values[0].get().unwrap(), RECORDS - 200);
    assert!(cost(begun) < 11_000, "{} values", cost(begun));
    let begun = etcd.values_read();
    let newer: Page<u32> = store.page(Folder::Audit, Part::After(oldest), 100).await.unwrap();
    assert_eq!((*newer.values[0].get().unwrap(), newer.more), (RECORDS - 99, true));
    assert!(cost(begun) < 11_000, "{} values", cost(begun));
    let begun = etcd.values_read();
    assert_eq!(store.newest::<u32>(&folder, 100).await.unwrap().len(), 100);
    assert!(cost(begun) <= 201, "{} values", cost(begun));
}
