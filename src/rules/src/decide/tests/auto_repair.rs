//! Machines that automatic repair adds, and machines that it skips (REP-44 to REP-55; I42, I44).

use std::sync::Arc;

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    names::Address,
};
use cketerm_sabakan::{Machines, State};

use super::{
    registry::{decide, good, machines, scene, snapshot},
    scene::{BOOT, stored},
};
use crate::{
    decide::{Decision, Effect, RegistryEffect},
    registry::{QueryState, Registry},
    snapshot::Snapshot,
};

/// Automatic repair with this cap, over machines in these states, beside this number of other entries.
fn with_broken(cap: i64, states: &[(u8, &str)], others: u64) -> Snapshot {
    let mut scene = scene();
    scene.constraints.maximum_repair_queue_entries = cap;
    for index in 0..others {
        let entry: cketerm_model::repair::RepairEntry = serde_json::from_value(serde_json::json!({
            "index": index.to_string(), "address": format!("10.9.9.{index}"), "machine_type": "ipmi", "operation": "unhealthy",
            "status": "succeeded", "step": 0, "step_status": "waiting",
        }))
        .unwrap();
        scene.store.repairs.entries.insert(index, stored("entry", 3, entry));
    }
    let mut snap = snapshot(&scene, 0, states);
    let list = machines(&scene, 0, states);
    let unhealthy = list.list.into_iter().filter(|m| m.state != State::Healthy).collect();
    let broken = QueryState {
        good: Some(good(Machines { list: unhealthy, warnings: Vec::new() })),
        error: None,
        at: Some(BOOT),
    };
    snap.registry = Arc::new(Registry { broken, ..Registry::clone(&snap.registry) });
    snap
}

fn repairs(cap: i64, states: &[(u8, &str)], others: u64) -> Decision {
    decide(&with_broken(cap, states, others))
}

#[test]
fn i44_machines_of_hosts_powered_off_or_rebooting_are_excluded_with_a_reason() {
    let host = |name: &str| cketerm_model::host::HostRow {
        namespace: "metal3".to_owned(),
        name: name.to_owned(),
        online: true,
        provisioning: "provisioned".to_owned(),
        addresses: vec![Address::new(format!("10.7.7.{}", name.len()))],
        ..Default::default()
    };
    let mut kube = cketerm_model::kube::KubeView::default();
    let mut put =
        |row: cketerm_model::host::HostRow| kube.hosts.insert((row.namespace.clone(), row.name.clone()), row.into());
    put(host("a"));
    let mut held = host("bb");
    held.asked.keys.insert("fencer".to_owned(), String::new());
    put(held);
    let mut rebooting = host("ccc");
    rebooting.pending_reboot_since = Some("2026-01-01T00:00:00Z".parse().unwrap());
    put(rebooting);
    put(cketerm_model::host::HostRow { online: false, ..host("dddd") });
    let source = cketerm_model::kube::SourceState {
        synced: true,
        last_seen: BOOT,
        fresh_as_of: BOOT,
        error: None,
        forbidden: false,
    };
    kube.sources.insert(cketerm_model::kube::HOSTS_SOURCE.to_owned(), source);
    let kept = super::super::machines_held_by_hosts(&kube, BOOT).unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["10.7.7.2", "10.7.7.3", "10.7.7.4"]);
    assert!(kept["10.7.7.2"].contains("metal3/bb is held off by fencer"), "{kept:?}");
}

#[test]
fn i44_no_repair_is_added_while_the_hosts_are_unknown() {
    use cketerm_model::kube::{HOSTS_SOURCE, KubeView, SourceState};
    let snap = with_broken(3, &[(12, "UNREACHABLE")], 0);
    let with = |source: Option<SourceState>| {
        let mut kube = KubeView::clone(&snap.kube);
        match source {
            Some(source) => kube.sources.insert(HOSTS_SOURCE.to_owned(), source),
            None => kube.sources.remove(HOSTS_SOURCE),
        };
        let decision = decide(&Snapshot { kube: Arc::new(kube), ..snap.clone() });
        let adds = |p: &super::super::Planned| matches!(p.effect, Effect::Registry(RegistryEffect::AddRepairs));
        (decision.effects.iter().any(adds), decision.auto_repair.off.unwrap_or_default())
    };
    let source = |synced, last_seen, error: Option<&str>| {
        Some(SourceState {
            synced,
            last_seen,
            fresh_as_of: last_seen,
            error: error.map(str::to_owned),
            forbidden: false,
        })
    };
    for (source, expected) in [
        (None, "not read yet"),
        (source(false, BootTime::ZERO, None), "not read yet"),
        (source(false, BootTime::ZERO, Some("does not answer")), "does not answer"),
        (source(true, BOOT - Seconds::new(11.0), None), "last read 11 s ago"),
    ] {
        let (adds, off) = with(source);
        assert!(!adds && off.starts_with("waits for BareMetalHosts") && off.contains(expected), "{expected}: {off}");
    }
    assert!(with(source(true, BOOT - Seconds::new(9.0), None)).0, "the copy is recent enough");
    assert!(
        with(source(true, BOOT, Some("it has no BareMetalHosts"))).0,
        "a definite negative answer counts as an answer"
    );
}

#[test]
fn i42_automatic_repair_respects_the_entry_limit_and_reports_it() {
    let adds =
        |d: &Decision| d.effects.iter().any(|p| matches!(p.effect, Effect::Registry(RegistryEffect::AddRepairs)));
    let two = [(12, "UNHEALTHY"), (13, "UNREACHABLE")];
    let decision = repairs(3, &two, 1);
    assert!(adds(&decision), "{:?}", decision.auto_repair);
    let decision = repairs(3, &two, 2);
    assert!(!adds(&decision), "either all repairs are added or none");
    assert!(decision.auto_repair.plan.capped.unwrap().contains("maximum-repair-queue-entries 3"));
    let decision = repairs(0, &two, 0);
    assert!(!adds(&decision) && decision.auto_repair.off.unwrap().contains("maximum-repair-queue-entries is 0"));
}

#[test]
fn an_index_is_not_used_again_although_the_write_index_is_behind() {
    let decision = repairs(9, &[(12, "UNHEALTHY"), (13, "UNREACHABLE")], 2);
    let indexes: Vec<u64> = decision.auto_repair.plan.entries.iter().map(|entry| entry.index).collect();
    assert_eq!(indexes, [2, 3]);
}

#[test]
fn i42_no_repair_is_added_from_a_stale_sabakan_answer() {
    let mut snap = with_broken(3, &[(12, "UNHEALTHY"), (13, "UNREACHABLE")], 1);
    let adds =
        |d: &Decision| d.effects.iter().any(|p| matches!(p.effect, Effect::Registry(RegistryEffect::AddRepairs)));
    let young = decide(&snap);
    assert!(adds(&young) && !young.auto_repair.asks_again);
    let mut registry = Registry::clone(&snap.registry);
    registry.broken.good.as_mut().unwrap().at = BOOT - Seconds::new(40.0);
    snap.registry = Arc::new(registry);
    let old = decide(&snap);
    assert!(!adds(&old) && old.auto_repair.asks_again, "{:?}", old.auto_repair);
}

/// The boot check says booted, the Node is Ready and the entry is gone, but sabakan has not looked since.
#[test]
fn i42_a_machine_that_just_came_back_is_not_repaired_before_sabakan_sees_it() {
    let adds = |seconds: i64, ready: bool| {
        let mut snap = with_broken(9, &[(13, "UNREACHABLE")], 0);
        let mut scene = scene().node(13, |n| n.ready = ready);
        scene.constraints.maximum_repair_queue_entries = 9;
        scene.constraints.wait_seconds_to_repair_rebooting = seconds;
        let fresh = scene.snapshot();
        (snap.store, snap.kube) = (fresh.store, fresh.kube);
        decide(&snap).auto_repair.plan
    };
    // sabakan reports this state for 9,999.5 s.
    assert_eq!(adds(9999, true).entries.len(), 1);
    let young = adds(10_000, true);
    assert!(young.entries.is_empty() && young.skipped[0].why.contains("its Node is Ready"), "{young:?}");
    assert_eq!(adds(10_000, false).entries.len(), 1, "Kubernetes does not hear from the machine either");
    let mut snap = with_broken(9, &[(13, "UNREACHABLE")], 0);
    let mut cordoned = scene().cordoned(13, 4).node(13, |n| n.ready = false);
    cordoned.constraints.maximum_repair_queue_entries = 9;
    cordoned.constraints.wait_seconds_to_repair_rebooting = 10_000;
    let fresh = cordoned.snapshot();
    (snap.store, snap.kube) = (fresh.store, fresh.kube);
    let plan = decide(&snap).auto_repair.plan;
    assert!(plan.entries.is_empty() && plan.skipped[0].why.contains("not back yet"), "{plan:?}");
}
