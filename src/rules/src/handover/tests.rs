use std::sync::Arc;

use cketerm_model::{
    batch::{Batch, BatchId, Paused},
    cketerm_records::{FirstDaemon, Order, Who},
    entry::{QueueKind, Stored},
    names::Address,
    policy::Policy,
    reboot::{RebootEntry, RebootStatus},
};

use super::*;

fn now() -> Timestamp {
    "2026-08-01T12:00:00Z".parse().unwrap()
}

fn stored<T>(value: T) -> Stored<T> {
    Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) }
}

fn candidate(lease: i64, host: &str) -> Candidate {
    Candidate { key: format!("leader//{lease:x}"), lease, host: host.to_owned(), create_revision: lease }
}

fn daemon(host: &str) -> EngineRegistration {
    EngineRegistration {
        host: host.to_owned(),
        pid: 1,
        version: "0".to_owned(),
        mode: EngineMode::Daemon,
        node: None,
        http: None,
        missing_programs: Vec::new(),
        missing_settings: Vec::new(),
        unable: None,
        standing_back: None,
        migrating: None,
        probes_seen: true,
        etcd_members_seen: true,
    }
}

/// CKE leads on boot-0 and waits on boot-1; cketerm's daemons run on boot-2 and boot-3.
fn site() -> StoreView {
    let mut store = StoreView { synced: true, ..StoreView::default() };
    for (lease, host) in [(0x7001, "boot-0"), (0x7002, "boot-1")] {
        store.candidates.insert(lease, candidate(lease, host));
    }
    store.engines.insert(0x8001, stored(daemon("boot-2")));
    store.engines.insert(0x8002, stored(daemon("boot-3")));
    store.policy = Some(stored(Policy { engine: EngineChoice::Cke, ..Policy::default() }));
    let at = now();
    store.daemon = Some(stored(FirstDaemon { host: "boot-2".to_owned(), version: "0".to_owned(), at }));
    store
}

fn snapshot(store: StoreView) -> Snapshot {
    Snapshot { store: Arc::new(store), ..Snapshot::default() }
}

fn texts(snap: &Snapshot, direction: Direction) -> Vec<(Level, String)> {
    findings(snap, direction, false, now()).into_iter().map(|f| (f.level, f.text)).collect()
}

#[test]
fn a_fit_site_has_no_finding_and_names_where_cke_runs() {
    let store = site();
    let hosts: Vec<String> = cke_candidates(&store).iter().map(described).collect();
    assert_eq!(hosts, ["boot-0 (lease …7001)", "boot-1 (lease …7002)"]);
    assert!(!is_done(&store, Direction::Take) && is_done(&store, Direction::Give));
    assert_eq!(texts(&snapshot(store), Direction::Take), []);
}

#[test]
fn a_missing_right_prevents_it() {
    let mut snap = snapshot(site());
    snap.engine.observing = vec![PreflightFault::RightsMissing { rights: vec!["create pods/eviction".to_owned()] }];
    let found = texts(&snap, Direction::Take);
    assert!(found[0].0 == Level::Blocker && found[0].1.contains("pods/eviction"), "{found:?}");
    assert_eq!(texts(&snap, Direction::Give), [], "the leader needs no rights of this host to resign");
}

#[test]
fn without_any_daemon_nobody_would_lead() {
    let mut store = site();
    store.daemon = None;
    store.engines.clear();
    let snap = snapshot(store);
    let found = texts(&snap, Direction::Take);
    assert!(found[0].0 == Level::Blocker && found[0].1.contains("systemctl enable --now cketerm"), "{found:?}");
    assert_eq!(findings(&snap, Direction::Take, true, now()), [], "one answers on this host");
}

#[test]
fn a_host_that_lacks_a_program_is_a_warning_and_one_that_starts_none_prevents_it() {
    let mut store = site();
    let lacks = EngineRegistration { missing_programs: vec!["neco".to_owned()], ..daemon("boot-3") };
    store.engines.insert(0x8002, stored(lacks));
    let mut snap = snapshot(store);
    assert_eq!(texts(&snap, Direction::Take), [(Level::Warning, "boot-3 lacks neco: correct it before".to_owned())]);
    snap.engine.host = "boot-2".to_owned();
    snap.engine.missing_programs = vec!["neco".to_owned()];
    assert!(texts(&snap, Direction::Take)[1].1.starts_with("this host, boot-2, lacks neco"));
    snap.engine.unable = Some("no memory".to_owned());
    assert_eq!(texts(&snap, Direction::Take)[0].0, Level::Blocker);
}

#[test]
fn work_in_progress_and_unreadable_entries_are_named() {
    let mut store = site();
    let entry = RebootEntry::queued(3, &Address::new("10.0.0.11")).moved_to(RebootStatus::Rebooting, now());
    store.reboots.entries.insert(3, stored(entry));
    store.reboots.entries.insert(5, stored(RebootEntry::queued(5, &Address::new("10.0.0.12"))));
    let broken = Stored { key: "reboots/data/4".to_owned(), mod_revision: 2, value: Err("not JSON".into()) };
    store.reboots.entries.insert(4, broken);
    let found = texts(&snapshot(store), Direction::Take);
    let levels: Vec<Level> = found.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [Level::Warning, Level::Note], "{found:?}");
    assert!(found[0].1.contains("cannot be read") && found[1].1.contains("10.0.0.11"), "{found:?}");
}

#[test]
fn what_cke_does_not_know_is_named_before_the_queues_are_given_back() {
    let mut store = site();
    let who = Who { user: "bob".to_owned(), host: "boot-2".to_owned(), ssh_client: None };
    let order = Order { verb: Verb::Hold, who: who.clone(), at: now(), reason: None, entry_revision: 1 };
    store.orders.insert(EntryId::reboot(3), stored(order));
    let freeze = cketerm_model::freeze::Freeze {
        until: "2026-08-02T12:00:00Z".parse().unwrap(),
        reason: "r".to_owned(),
        who,
        unknown: serde_json::Map::new(),
    };
    store.policy = Some(stored(Policy { freeze: Some(freeze), ..Policy::default() }));
    let found = texts(&snapshot(store.clone()), Direction::Give);
    assert_eq!(found.iter().map(|(level, _)| *level).collect::<Vec<_>>(), [Level::Warning; 2], "{found:?}");
    assert!(found[0].1.contains("freeze") && found[1].1.contains("held by bob"), "{found:?}");
    let paused = Paused { who: Who::default(), at: now(), reason: None };
    let batch = || Batch::new(QueueKind::Reboot, Who::default(), now(), None, 2);
    store.batches.insert(BatchId::at(now()), stored(batch()));
    assert_eq!(texts(&snapshot(store.clone()), Direction::Give).len(), 2, "a batch that is not paused");
    store.batches.insert(BatchId::at(now()), stored(Batch { paused: Some(paused), ..batch() }));
    let found = texts(&snapshot(store.clone()), Direction::Give);
    assert!(found.len() == 3 && found[2].1.contains("is paused, and CKE does not know batches"), "{found:?}");
    assert_eq!(texts(&snapshot(store), Direction::Take), [], "cketerm knows both");
}
