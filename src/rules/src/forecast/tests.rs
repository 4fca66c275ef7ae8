//! Tests of the forecast: times by what has been measured, and waves.

use jiff::Timestamp;

use super::*;
use cketerm_model::names::NodeName;
use cketerm_model::{
    boot_time::BootTime,
    cketerm_records::{Order, Verb, Who},
    cluster::{Cluster, Members, Node},
    entry::Stored,
    kube::NodeRow,
    policy::Policy,
    reboot::RebootEntry,
    stored::view::{Candidate, Definition},
};

fn stored<T>(value: T) -> Stored<T> {
    Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) }
}

/// API servers 1 and 2, workers 3 to 7, two at once. Entries by index and the last part of their address.
fn fixture(
    entries: &[(u64, u8)],
    change: impl FnOnce(&mut Cluster, &mut StoreView, &mut KubeView),
) -> (StoreView, KubeView) {
    let node = |n: u8| Node { address: Address::new(format!("10.0.0.{n}")), control_plane: n <= 2, ..Node::default() };
    let mut cluster = Cluster { nodes: (1..=7).map(node).collect(), ..Cluster::default() };
    cluster.reboot.max_concurrent_reboots = Some(2);
    (cluster.reboot.reboot_command, cluster.reboot.boot_check_command) =
        (Some(vec!["r".to_owned()]), Some(vec!["c".to_owned()]));
    let (mut store, mut kube) = (StoreView::default(), KubeView::default());
    for n in 1..=7_u8 {
        kube.put_node(NodeRow {
            name: NodeName::new(format!("10.0.0.{n}")),
            addresses: vec![Address::new(format!("10.0.0.{n}"))],
            ready: true,
            ..NodeRow::default()
        });
    }
    for (index, n) in entries {
        store.reboots.entries.insert(*index, stored(RebootEntry::queued(*index, &Address::new(format!("10.0.0.{n}")))));
    }
    change(&mut cluster, &mut store, &mut kube);
    let members = Members::of(&cluster);
    store.cluster = Some(stored(Definition { cluster, members }));
    (store, kube)
}

fn now() -> Now {
    Now { boot: BootTime::new(1000.0), wall: Timestamp::UNIX_EPOCH }
}

fn planned((store, kube): (StoreView, KubeView), addresses: &[&str]) -> Forecast {
    forecast(&store, &kube, &addresses.iter().map(|a| Address::new(*a)).collect::<Vec<_>>(), now()).unwrap()
}

/// Last part of each address, with its wave; 0 = in no wave.
fn waves(forecasted: &Forecast) -> Vec<(&str, usize)> {
    let wave = |p: &Place| if let Place::Wave(n, _) = p { *n } else { 0 };
    forecasted.placed.iter().map(|p| (&p.address[7..], wave(&p.place))).collect()
}

fn waiting(forecasted: &Forecast) -> Vec<(Option<u64>, String)> {
    let waits =
        |p: &MachineForecast| if let Place::Waits(why) = &p.place { Some((p.entry, why.clone())) } else { None };
    forecasted.placed.iter().filter_map(waits).collect()
}

#[test]
fn waves_hold_up_to_the_limit_of_workers_or_one_api_server() {
    let five = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
    let last = planned(fixture(&[], |_, _, _| {}), &five);
    assert_eq!(waves(&last), [("3", 1), ("4", 1), ("5", 2), ("1", 3), ("2", 4)]);
    let first = planned(
        fixture(&[], |_, store, _| {
            let policy = Policy { api_server_order: ApiServerOrder::First, ..Policy::default() };
            store.policy = Some(stored(policy));
        }),
        &five,
    );
    assert_eq!(waves(&first), [("1", 1), ("2", 2), ("3", 3), ("4", 3), ("5", 4)]);
}

/// A machine that is named twice appears once in the waves.
#[test]
fn i4_a_machine_appears_in_at_most_one_wave() {
    let twice = planned(fixture(&[], |_, _, _| {}), &["10.0.0.3", "10.0.0.3", "10.0.0.4"]);
    assert_eq!(waves(&twice), [("3", 1), ("4", 1), ("3", 0)]);
    assert!(waiting(&twice)[0].1.contains("given twice"), "{twice:?}");
    let queued = planned(fixture(&[(4, 3)], |_, _, _| {}), &["10.0.0.3"]);
    assert_eq!(waiting(&queued).len(), 1, "{queued:?}");
    assert!(waiting(&queued)[0].1.contains('4'), "the earlier entry is named: {queued:?}");
}

#[test]
fn blocked_entries_wait_and_entries_in_progress_take_a_slot() {
    let forecasted = planned(
        fixture(&[(0, 3), (1, 4), (2, 5), (3, 6), (4, 9), (5, 7)], |_, store, _| {
            let mut entry = |index: u64, how: &dyn Fn(&mut RebootEntry)| {
                let mut changed = store.reboots.entries[&index].get().cloned().unwrap();
                how(&mut changed);
                store.reboots.entries.insert(index, stored(changed));
            };
            entry(0, &|e| e.status = RebootStatus::Rebooting);
            entry(2, &|e| (e.drain_backoff_count, e.drain_backoff_expire) = (1, Some(Timestamp::MAX)));
            let order = Order {
                verb: Verb::Hold,
                who: Who { user: "ann".to_owned(), ..Who::default() },
                at: Timestamp::UNIX_EPOCH,
                reason: None,
                entry_revision: 1,
            };
            store.orders.insert(EntryId::reboot(1), stored(order));
        }),
        &[],
    );
    assert_eq!(forecasted.placed[0].place, Place::InWork("rebooting".to_owned()));
    assert_eq!(waves(&forecasted)[1..3], [("6", 1), ("7", 2)], "one slot is free: {forecasted:?}");
    let waits = waiting(&forecasted);
    let by = |index: u64| waits.iter().find(|(i, _)| *i == Some(index)).map(|(_, why)| why.clone()).unwrap();
    assert!(by(1).contains("ann"), "{waits:?}");
    assert!(by(4).contains("10.0.0.9"), "{waits:?}");
    assert_eq!(waits.len(), 3);
}

#[test]
fn queue_wide_blockers_become_notes_and_the_waves_ignore_them() {
    let forecasted = planned(
        fixture(&[(0, 3), (1, 4), (2, 5)], |cluster, store, kube| {
            cluster.reboot.reboot_command = None;
            store.reboots.switch = Switch { raw: Some("true".to_owned()), mod_revision: 1 };
            for n in [6, 7] {
                let mut node = NodeRow::clone(&kube.nodes[format!("10.0.0.{n}").as_str()]);
                node.ready = false;
                kube.put_node(node);
            }
        }),
        &[],
    );
    assert_eq!(waves(&forecasted), [("3", 1), ("4", 1), ("5", 2)]);
    let notes = forecasted.notes.join("\n");
    for text in ["the reboot queue is disabled", "no reboot.reboot_command", "nobody leads", "nothing starts now: "] {
        assert!(notes.contains(text), "{text}: {notes}");
    }
}

#[test]
fn a_closed_start_gate_that_the_leader_published_is_a_note() {
    let reason = serde_json::json!({"reason": "StartGateClosed", "gate": "alerts", "why": "HostDown"});
    let progress = serde_json::json!({"phase": "", "since": Timestamp::UNIX_EPOCH, "pods_at_start": 0,
        "pods_gone": 0, "reason": reason});
    let forecasted = planned(
        fixture(&[(0, 3)], |_, store, _| {
            store.progress.insert(EntryId::reboot(0), stored(serde_json::from_value(progress).unwrap()));
        }),
        &[],
    );
    assert_eq!(waves(&forecasted), [("3", 1)]);
    let note = "nothing starts now: start gate alerts is closed: HostDown";
    assert!(forecasted.notes.iter().any(|found| found == note), "{:?}", forecasted.notes);
}

/// CKE knows neither groups nor holds, and processes no reboot while a repair is in the way.
#[test]
fn beside_cke_the_waves_follow_ckes_rules() {
    let beside = |change: &dyn Fn(&mut Cluster, &mut StoreView)| {
        planned(
            fixture(&[(0, 3), (1, 4), (2, 5), (3, 1), (4, 2)], |cluster, store, _| {
                let key = "leader//7".to_owned();
                let cke = Candidate { key, lease: 7, host: "boot-0".into(), create_revision: 1 };
                store.candidates.insert(1, cke);
                for node in &mut cluster.nodes {
                    node.labels = Some([("cke.cybozu.com/rack".to_owned(), "0".to_owned())].into());
                }
                let groups = serde_json::from_str(r#"{"by": "rack", "limit": 1}"#).unwrap();
                store.policy = Some(stored(Policy { groups: Some(groups), ..Policy::default() }));
                change(cluster, store);
            }),
            &[],
        )
    };
    let plain = beside(&|_, _| {});
    assert_eq!(waves(&plain), [("3", 1), ("4", 1), ("5", 2), ("1", 3), ("2", 4)]);
    assert!(plain.placed.iter().all(|p| matches!(p.place, Place::Wave(_, None))), "no group holds: {plain:?}");
    assert!(plain.notes.iter().any(|note| note.contains("as cketerm reads CKE's rules")), "{plain:?}");
    let held = beside(&|_, store| {
        let order =
            Order { verb: Verb::Hold, who: Who::default(), at: Timestamp::UNIX_EPOCH, reason: None, entry_revision: 1 };
        store.orders.insert(EntryId::reboot(1), stored(order));
    });
    assert_eq!(waves(&held), waves(&plain), "CKE does not know the hold");
    let disabled = beside(&|cluster, store| {
        store.reboots.switch = Switch { raw: Some("true".to_owned()), mod_revision: 1 };
        cluster.reboot.reboot_command = None;
    });
    assert_eq!(waves(&disabled), waves(&plain), "the notes name what blocks all");
    let backed_off = beside(&|_, store| {
        let mut entry = store.reboots.entries[&0].get().cloned().unwrap();
        (entry.drain_backoff_count, entry.drain_backoff_expire) = (1, Some(Timestamp::MAX));
        store.reboots.entries.insert(0, stored(entry));
    });
    assert_eq!(waves(&backed_off), [("4", 1), ("5", 1), ("1", 2), ("2", 3), ("3", 0)]);
}

/// An added entry has no number yet, so that the machine is named.
#[test]
fn a_group_that_an_added_machine_holds_is_named_with_that_machine() {
    let forecasted = planned(
        fixture(&[], |cluster, store, _| {
            for (node, rack) in cluster.nodes.iter_mut().zip(["0", "0", "1", "2", "1", "2", "1"]) {
                node.labels = Some([("cke.cybozu.com/rack".to_owned(), rack.to_owned())].into());
            }
            let groups = serde_json::from_str(r#"{"by": "rack", "limit": 1}"#).unwrap();
            store.policy = Some(stored(Policy { groups: Some(groups), ..Policy::default() }));
        }),
        &["10.0.0.3", "10.0.0.4"],
    );
    let waits: Vec<_> = forecasted.placed.iter().map(|p| &p.place).collect();
    assert_eq!(waits, [&Place::Wave(1, None), &Place::Wave(1, Some("waits for rack 1 (10.0.0.3)".to_owned()))]);
}

#[test]
fn a_published_reason_of_one_entry_is_no_note() {
    let forecasted = planned(
        fixture(&[(0, 3)], |_, store, _| {
            let progress = serde_json::json!({"phase": "", "since": Timestamp::UNIX_EPOCH, "pods_at_start": 0,
                "pods_gone": 0, "reason": Reason::Ready});
            store.progress.insert(EntryId::reboot(0), stored(serde_json::from_value(progress).unwrap()));
        }),
        &[],
    );
    assert!(!forecasted.notes.iter().any(|note| note.starts_with("nothing starts now")), "{:?}", forecasted.notes);
}
