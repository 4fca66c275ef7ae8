//! The live copy during every kind of fault of an etcd.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_clients::store::{
    Store,
    live::Live,
    pages::{Page, Part},
};
use cketerm_model::{
    cketerm_records::Audit,
    clock::Clock,
    stored::{
        keys::{Folder, SwitchName},
        view::StoreView,
    },
};

use super::{
    addresses,
    etcd::{Etcd, LinkState, Proxy, any, versions, wait_until},
    person, request,
};
use crate::stalls::undisturbed;

const SOON: Duration = Duration::from_secs(10);

async fn until(live: &Live, what: &str, holds: impl Fn(&StoreView) -> bool) -> Arc<StoreView> {
    wait_until(what, SOON, || holds(&live.borrow())).await;
    live.borrow()
}

/// Asserts that the live copy and a fresh read agree, except for the time of reading.
async fn agrees(live: &Live, store: &Store) {
    let fresh = store.read_view().await.unwrap();
    until(live, "the copy catches up", |v| v.revision >= fresh.revision).await;
    let copy = StoreView::clone(&live.borrow());
    // without the fields that only a watch fills
    let copy = StoreView {
        last_seen: fresh.last_seen,
        revision: fresh.revision,
        grown: fresh.grown.clone(),
        recent: fresh.recent.clone(),
        watch_health: fresh.watch_health,
        ..copy
    };
    assert_eq!(copy, fresh);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copy_follows_pages_of_keys_changes_and_deletions() {
    for version in versions() {
        let etcd = Etcd::start(&version, &[]);
        let store = etcd.store().await;
        store.add_reboots(&person(), &addresses(1600), &request(), &BTreeMap::new()).await.unwrap();
        etcd.ctl(&["put", "/cke/records/0000000000000001", "{"]);
        let live = Live::follow(&store);
        let view = until(&live, "3,200 keys are read", |v| v.synced).await;
        assert_eq!((view.reboots.entries.len(), view.requests.len(), view.broken.len()), (1600, 1600, 0));
        agrees(&live, &store).await;
        store.cancel_reboot(7, None, &person(), None).await.unwrap();
        etcd.ctl(&["del", "/cke/reboots/data/0000000000000008"]);
        until(&live, "the deletion is known", |v| !v.reboots.entries.contains_key(&8)).await;
        agrees(&live, &store).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recent_records_read_by_key_equal_a_read_of_the_whole_prefix() {
    for version in versions() {
        let etcd = Etcd::start(&version, &[]);
        let store = etcd.store().await;
        let live = Live::follow(&store);
        let begun = until(&live, "the copy is synced", |v| v.synced).await.revision;
        for round in 0..7 {
            store.set_switch(SwitchName::Reboots, round % 2 == 0, &person(), Some(&round.to_string())).await.unwrap();
        }
        let last = store.read_view().await.unwrap().revision;
        let view = until(&live, "all changes are known", |v| v.revision >= last).await;
        let keys = view.recent.after(Folder::Audit, begun).unwrap();
        assert_eq!(keys.len(), 7);
        for n in [3, 7, 50] {
            let by_key = store.page_of_keys::<Audit>(Folder::Audit, begun, &keys, n).await.unwrap();
            let all = store.page::<Audit>(Folder::Audit, Part::After(begun), n).await.unwrap();
            let reasons = |page: &Page<Audit>| {
                page.values.iter().map(|v| v.get().unwrap().reason.clone().unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(reasons(&by_key), reasons(&all), "limit {n}");
            assert_eq!((by_key.more, by_key.values.len()), (n < 7, usize::try_from(n.min(7)).unwrap()));
        }
        assert_eq!(view.recent.after(Folder::Audit, 0), None, "keys from before the watch must be unknown");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_written_with_a_slow_clock_is_among_the_newest() {
    for version in versions() {
        let etcd = Etcd::start(&version, &[]);
        let store = etcd.store().await;
        for round in 0..90 {
            store.set_switch(SwitchName::Reboots, round % 2 == 0, &person(), Some(&round.to_string())).await.unwrap();
        }
        let newest = store.page::<Audit>(Folder::Audit, Part::Newest, 10).await.unwrap().values;
        let last = newest[0].get().unwrap();
        assert_eq!(last.reason.as_deref(), Some("89"));
        // its name is older than all others, but its etcd revision is newer
        let late = Audit { reason: Some("late".to_owned()), ..last.clone() };
        let named = newest[0].key.rsplit('/').next().unwrap();
        let (early, rest) = (1_700_000_000_000_000_000_u64, &named[20..]);
        let key = format!("{}{early:020}{rest}", store.keys().audit_prefix());
        etcd.ctl(&["put", &key, &serde_json::to_string(&late).unwrap()]);
        let page = store.page::<Audit>(Folder::Audit, Part::Newest, 10).await.unwrap();
        let reasons = |n: usize| page.values[n].get().unwrap().reason.clone().unwrap();
        assert_eq!((page.values.len(), reasons(0).as_str(), reasons(1).as_str()), (10, "late", "89"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copy_survives_a_lost_connection_and_a_compaction_meanwhile() {
    for version in versions() {
        let etcd = Etcd::start(&version, &[]);
        let proxy = Proxy::before(&etcd).await;
        let direct = etcd.store().await;
        direct.add_reboots(&person(), &addresses(600), &request(), &BTreeMap::new()).await.unwrap();
        let live = Live::follow(&proxy.store().await);
        until(&live, "the copy is synced", |v| v.synced).await;
        // a gap without a compaction
        proxy.set(LinkState::Cut);
        until(&live, "the copy reports an error", |v| v.error.is_some()).await;
        let error = live.borrow().error.clone().unwrap();
        assert!(error.contains(&proxy.url), "{error}");
        direct.cancel_reboot(1, None, &person(), None).await.unwrap();
        proxy.set(LinkState::Open);
        until(&live, "the copy follows etcd again", |v| v.error.is_none()).await;
        agrees(&live, &direct).await;
        // a gap in which deletions and changes are compacted
        proxy.set(LinkState::Cut);
        until(&live, "the copy reports an error", |v| v.error.is_some()).await;
        etcd.ctl(&["del", "--prefix", "/cke/reboots/data/000000000000000"]);
        etcd.ctl(&["put", "/cke/reboots/disabled", "true"]);
        let revision = direct.read_view().await.unwrap().revision;
        etcd.ctl(&["compact", &revision.to_string()]);
        proxy.set(LinkState::Open);
        let view = until(&live, "the copy is read again", |v| v.error.is_none() && !v.reboots.switch.enabled()).await;
        assert_eq!(view.reboots.entries.len(), 600 - 16);
        agrees(&live, &direct).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copy_survives_a_restart_and_an_etcd_that_was_rebuilt() {
    let Some(mut etcd) = any() else { return };
    let store = etcd.store().await;
    store.add_reboots(&person(), &addresses(5), &request(), &BTreeMap::new()).await.unwrap();
    let live = Live::follow(&store);
    until(&live, "the copy is synced", |v| v.synced).await;
    etcd.down();
    until(&live, "the copy reports an error", |v| v.error.is_some()).await;
    assert!(live.borrow().synced, "the copy must keep its data during an outage");
    etcd.up();
    etcd.ctl(&["put", "/cke/reboots/disabled", "true"]);
    until(&live, "the copy follows etcd again", |v| v.error.is_none() && !v.reboots.switch.enabled()).await;
    // another history, with smaller revisions
    etcd.rebuild();
    etcd.ctl(&["put", "/cke/constraints", "{}"]);
    let view = until(&live, "the rebuilt etcd is read", |v| v.constraints.is_some()).await;
    assert_eq!((view.reboots.entries.len(), view.reboots.switch.enabled(), view.revision), (0, true, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copy_is_fresh_while_idle_and_stale_when_etcd_is_silent() {
    undisturbed(async || {
        for version in versions() {
            let etcd = Etcd::start(&version, &[]);
            let store = etcd.store().await;
            let live = Live::follow(&store);
            until(&live, "the copy is synced", |v| v.synced).await;
            let age = || (Clock::host().boot() - live.borrow().last_seen).get();
            for _ in 0..35 {
                tokio::time::sleep(Duration::from_millis(200)).await;
                assert!(age() < 5.0, "{} s old on an idle etcd", age());
            }
            etcd.signal("-STOP");
            tokio::time::sleep(Duration::from_secs(6)).await;
            assert!(age() > 5.0, "{} s old on a stopped etcd", age());
            etcd.signal("-CONT");
            wait_until("the copy is fresh again", SOON, || age() < 2.0).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_keys_are_listed_while_the_others_are_followed() {
    let Some(etcd) = any() else { return };
    let store = etcd.store().await;
    let live = Live::follow(&store);
    store.add_reboots(&person(), &addresses(2), &request(), &BTreeMap::new()).await.unwrap();
    for (key, value) in [("reboots/data/0000000000000009", "{"), ("cluster", "no"), ("cketerm/policy", "[]")] {
        etcd.ctl(&["put", &format!("/cke/{key}"), value]);
    }
    let view = until(&live, "all three broken keys are listed", |v| v.broken.len() == 3).await;
    for (key, why) in &view.broken {
        assert!(why.contains(key.as_str()) && why.contains("etcdctl"), "{why}");
    }
    assert_eq!(view.reboots.entries.values().filter(|e| e.value.is_ok()).count(), 2);
    etcd.ctl(&["put", "/cke/cluster", r#"{"name":"c","nodes":[{"address":"10.0.0.1","user":"u"}]}"#]);
    let view = until(&live, "the corrected definition is read", |v| v.definition().is_some()).await;
    assert_eq!(view.broken.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_started_without_etcd_reports_it_and_fills_once_etcd_is_up() {
    let Some(mut etcd) = any() else { return };
    etcd.down();
    let live = Live::follow(&etcd.store().await);
    let view = until(&live, "the copy reports an error", |v| v.error.is_some()).await;
    let error = view.error.clone().unwrap();
    assert!(!view.synced && error.contains(&etcd.url) && error.contains("refused"), "{error}");
    etcd.up();
    until(&live, "the copy is synced", |v| v.synced && v.error.is_none()).await;
}
