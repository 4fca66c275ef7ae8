//! Tests of the table of gauges, the documents generated from it, and the page.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_engine::{COUNTERS, Counters};
use cketerm_model::{
    boot_time::BootTime,
    clock::Now,
    entry::{EntryId, Stored},
    names::Address,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::RepairEntry,
};
use cketerm_rules::{seen::Seen, snapshot::Leading};
use jiff::Timestamp;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::sync::watch;

use super::{
    gauges::{GAUGES, markdown},
    metrics::registry,
};

#[test]
fn i44_the_unit_file_allows_more_time_than_a_graceful_shutdown_takes() {
    let unit = include_str!("../../../../docs/package/cketerm.service");
    let seconds = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    let margin = std::time::Duration::from_secs(15);
    assert!(std::time::Duration::from_secs(seconds.parse().unwrap()) >= cketerm_engine::run::LONGEST_END + margin);
    let most = format!("{} s at most", cketerm_engine::run::LONGEST_END.as_secs());
    assert!(unit.contains(&most), "the unit states how long a shutdown takes: {most}");
}

fn stored<T>(key: &str, value: Result<T, String>) -> Stored<T> {
    Stored { key: key.to_owned(), mod_revision: 1, value: value.map(Arc::new) }
}

/// A leader with three reboots, one of them unreadable, and one repair.
fn seen() -> Seen {
    let mut seen = Seen { now: Now { boot: BootTime::new(100.0), wall: Timestamp::UNIX_EPOCH }, ..Seen::default() };
    let mut store =
        cketerm_model::stored::view::StoreView { synced: true, last_seen: BootTime::new(98.5), ..Default::default() };
    let mut draining = RebootEntry::queued(0, &Address::new("10.0.0.11"));
    draining.status = RebootStatus::Draining;
    store.reboots.entries.insert(0, stored("/cke/reboots/data/0", Ok(draining)));
    store
        .reboots
        .entries
        .insert(1, stored("/cke/reboots/data/1", Ok(RebootEntry::queued(1, &Address::new("10.0.0.12")))));
    store.reboots.entries.insert(2, stored("/cke/reboots/data/2", Err("not JSON".to_owned())));
    store.reboots.switch.raw = Some("true".to_owned());
    let repair = RepairEntry::queued(0, &Address::new("10.9.9.9"), "switch", "unreachable", None);
    store.repairs.entries.insert(0, stored("/cke/repairs/data/0", Ok(repair)));
    seen.snapshot.store = Arc::new(store);
    let key = "/cke/leader//1f".to_owned();
    seen.snapshot.engine.leading =
        Some(Leading { key, create_revision: 5, since: BootTime::new(1.0), acknowledged: BootTime::new(99.0) });
    let pdb = ("shop/web-1".to_owned(), "shop/web".to_owned());
    seen.reasons = Arc::new(BTreeMap::from([
        (EntryId::reboot(0), Reason::BlockedByPdb { pod: pdb.0, pdb: pdb.1, healthy: 2, needed: 2, cause: None }),
        (EntryId::reboot(1), Reason::WaitingForSlot { holder: None, limit: 1, ahead: false }),
    ]));
    seen
}

fn page(seen: Seen) -> String {
    let (_sender, seen) = watch::channel(Arc::new(seen));
    let registry: Registry = registry(seen, &Counters::default());
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

/// Names of CKE's metrics (STO-17).
#[test]
fn all_cke_metrics_exist_and_all_but_cke_leader_are_leader_only() {
    let cke = [
        "leader",
        "node_reboot_status node status",
        "machine_repair_status address status",
        "operation_phase phase",
        "operation_phase_timestamp_seconds",
        "reboot_queue_enabled",
        "reboot_queue_entries",
        "reboot_queue_items status",
        "reboot_queue_running",
        "repair_queue_enabled",
        "auto_repair_enabled",
        "repair_queue_items status",
        "repair_queue_entries index address operation status step",
        "sabakan_integration_successful",
        "sabakan_integration_timestamp_seconds",
        "sabakan_workers role",
        "sabakan_unused_machines",
    ];
    let has: BTreeSet<String> = GAUGES
        .iter()
        .filter(|g| g.name.starts_with("cke_"))
        .map(|g| [&[&g.name["cke_".len()..]], g.labels].concat().join(" "))
        .collect();
    assert_eq!(has, cke.map(str::to_owned).into());
    assert!(GAUGES.iter().filter(|g| g.name.starts_with("cke_")).all(|g| g.leader_only == (g.name != "cke_leader")));
    let names: BTreeSet<&str> = GAUGES.iter().map(|g| g.name).collect();
    assert_eq!(names.len(), GAUGES.len(), "two gauges have the same name");
}

#[test]
fn the_metrics_page_shows_the_state_of_the_engine() {
    let text = page(seen());
    for line in [
        "cke_leader 1.0",
        "cke_reboot_queue_enabled 0.0",
        "cke_reboot_queue_entries 3.0",
        "cke_reboot_queue_items{status=\"draining\"} 1.0",
        "cke_reboot_queue_items{status=\"rebooting\"} 0.0",
        "cke_repair_queue_entries{index=\"0\",address=\"10.9.9.9\",operation=\"unreachable\",status=\"queued\",step=\"0\"} 1.0",
        "cke_machine_repair_status{address=\"10.9.9.9\",status=\"queued\"} 1.0",
        "cketerm_engine_state{state=\"leading\"} 1.0",
        "cketerm_etcd_age_seconds 1.5",
        "cketerm_broken_keys 1.0",
        "cketerm_entries{queue=\"reboot\",reason=\"WaitingForSlot\"} 1.0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.contains("index=\"1\",address=\"10.0.0.12\""), "waiting for a slot needs no operator: {text}");
    assert!(text.ends_with("# EOF\n"));
}

/// The same condition as in the console, so that alerts and views agree.
#[test]
fn an_entry_needs_attention_once_it_is_stuck() {
    let line =
        "cketerm_entry_needs_attention{queue=\"reboot\",index=\"0\",address=\"10.0.0.11\",reason=\"BlockedByPDB\"} 1.0";
    let after = |seconds: i64| {
        let mut seen = seen();
        let mut draining = RebootEntry::queued(0, &Address::new("10.0.0.11"));
        draining.status = RebootStatus::Draining;
        draining.last_transition_time = Some(Timestamp::UNIX_EPOCH);
        let store = Arc::make_mut(&mut seen.snapshot.store);
        store.reboots.entries.insert(0, stored("/cke/reboots/data/0", Ok(draining)));
        seen.now.wall = Timestamp::from_second(seconds).unwrap();
        page(seen).lines().any(|l| l == line)
    };
    assert!(!after(1799) && after(1800));
}

#[test]
fn a_follower_reports_only_its_own_metrics() {
    let mut seen = seen();
    seen.snapshot.engine.leading = None;
    let text = page(seen);
    assert!(
        text.contains("cke_leader 0.0") && text.contains("cketerm_engine_state{state=\"standing-by\"} 1.0"),
        "{text}"
    );
    let led: Vec<&str> = GAUGES.iter().filter(|g| g.leader_only).map(|g| g.name).collect();
    let is_leader_metric =
        |l: &&str| led.iter().any(|n| l.strip_prefix(n).is_some_and(|rest| rest.starts_with([' ', '{'])));
    assert_eq!(text.lines().filter(is_leader_metric).count(), 0, "{text}");
}

/// Names in etcd may hold any text.
#[test]
fn hostile_label_values_are_escaped() {
    let mut seen = seen();
    let mut store = cketerm_model::stored::view::StoreView::clone(&seen.snapshot.store);
    let entry = RepairEntry::queued(7, &Address::new("a\"} 1\ncke_leader 0\n#"), "t", "o\\", None);
    store.repairs.entries.insert(7, stored("/cke/repairs/data/7", Ok(entry)));
    seen.snapshot.store = Arc::new(store);
    let text = page(seen);
    assert_eq!(text.lines().filter(|l| l.starts_with("cke_leader")).count(), 1, "{text}");
    assert!(text.contains(r#"address="a\"} 1\ncke_leader 0\n#""#), "{text}");
}

#[test]
fn docs_metrics_md_matches_the_gauge_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, markdown()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), markdown(), "docs/metrics.md is outdated: run `make docs`");
}

#[test]
fn alert_rules_use_existing_metrics_and_labels() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/alerts.yaml")).unwrap();
    let rules: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    let [alerts, aggregates] = [0, 1].map(|group: usize| rules["groups"][group]["rules"].as_sequence().unwrap());
    assert!(alerts.len() >= 8 && aggregates.len() >= 5);
    for rule in alerts.iter().chain(aggregates) {
        let name = rule.get("alert").unwrap_or_else(|| &rule["record"]).as_str().unwrap();
        let expr = rule["expr"].as_str().unwrap();
        let words: Vec<&str> = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let metrics: Vec<&&str> = words.iter().filter(|w| w.starts_with("cke")).collect();
        assert!(!metrics.is_empty(), "{name}");
        let mut labels: Vec<&str> = Vec::new();
        for metric in metrics {
            let gauge = GAUGES.iter().find(|g| g.name == *metric).map(|g| g.labels);
            let counter = COUNTERS.iter().find(|c| c.0 == *metric).map(|c| c.1);
            labels.extend(gauge.or(counter).unwrap_or_else(|| panic!("{name}: {metric} does not exist")));
        }
        for part in expr.split('{').skip(1) {
            for pair in part.split('}').next().unwrap().split(',') {
                let label = pair.split(['=', '!']).next().unwrap().trim();
                assert!(labels.contains(&label), "{name}: no label {label}");
            }
        }
        if rule.get("record").is_some() {
            continue;
        }
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        for label in summary.split("$labels.").skip(1).map(|l| l.split([' ', '}']).next().unwrap()) {
            assert!(labels.contains(&label), "{name}: the summary names {label}");
        }
        assert!(rule["annotations"]["runbook"].as_str().unwrap().starts_with("docs/"), "{name}");
        assert!(["critical", "warning", "info"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
    }
}
