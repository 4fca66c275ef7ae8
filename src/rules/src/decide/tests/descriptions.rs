//! The definition's labels, annotations and taints on Nodes (SAB-75, SAB-76).

use std::collections::BTreeMap;

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    cluster::Taint,
    reboot::RebootStatus,
    stored::view::Switch,
};

use super::{
    registry::{decide, scene, snapshot},
    scene::{BOOT, Scene},
};
use crate::{
    decide::{Effect, RegistryEffect},
    snapshot::{InFlight, NodeUpkeep, Snapshot, UpkeepProgress},
};

#[test]
fn node_metadata_is_applied_only_while_the_integration_is_enabled() {
    let base = scene().with(|s| {
        let taints = Some(vec![Taint {
            key: "cke.cybozu.com/state".into(),
            value: "unhealthy".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        }]);
        s.cluster.nodes[7].taints = taints;
    });
    let address = base.cluster.nodes[7].address.clone();
    let described = |scene: &Scene| {
        let effects = decide(&snapshot(scene, 0, &[])).effects;
        effects
            .into_iter()
            .filter(|p| matches!(p.effect, Effect::Registry(RegistryEffect::Describe { .. })))
            .map(|p| p.machine)
            .collect::<Vec<_>>()
    };
    assert!(!described(&base).is_empty());
    let only_it = base.clone().with(|s| {
        for node in &s.cluster.nodes {
            let mut row = (**s.kube.by_name.get(node.address.as_str()).unwrap()).clone();
            row.described.labels = node.labels.clone().unwrap_or_default().into();
            row.described.annotations = node.annotations.clone().unwrap_or_default().into();
            s.kube.put_node(row);
        }
    });
    assert_eq!(described(&only_it), [format!("description of {address}")]);
    let off = only_it.with(|s| s.store.sabakan = Switch { raw: Some("true".to_owned()), mod_revision: 9 });
    assert!(described(&off).is_empty());
}

#[test]
fn at_most_8_nodes_are_described_at_once_and_failed_ones_hold_no_place() {
    let scene = scene();
    let described = |snap: &Snapshot| -> Vec<String> {
        let effects = decide(snap).effects.into_iter();
        effects
            .filter(|p| matches!(p.effect, Effect::Registry(RegistryEffect::Describe { .. })))
            .map(|p| p.machine)
            .collect()
    };
    let mut snap = snapshot(&scene, 0, &[]);
    let first = described(&snap);
    assert_eq!(first.len(), 8);
    let flight = |upkeep: Option<UpkeepProgress>| InFlight {
        what: "describing".to_owned(),
        entry: None,
        starts: false,
        patches_node: false,
        upkeep,
        evictions: BTreeMap::new(),
        attempt: None,
        since: BootTime::ZERO,
    };
    for key in &first {
        snap.in_flight.insert(key.clone(), flight(Some(UpkeepProgress::UnderWay(NodeUpkeep::Description))));
    }
    assert!(described(&snap).is_empty());
    snap.in_flight.remove(&first[3]);
    assert_eq!(described(&snap), first[3..4]);
    let failed = |since| InFlight { since, ..flight(Some(UpkeepProgress::Failed(NodeUpkeep::Description))) };
    snap.in_flight.clear();
    for key in &first[..7] {
        snap.in_flight.insert(key.clone(), failed(BOOT));
    }
    let next = described(&snap);
    assert_eq!(next.len(), 8, "the first ones wait to be tried again");
    assert!(next.iter().all(|key| !first[..7].contains(key)));
    // with the eighth, it looks as if all were refused: one is tried each second
    snap.in_flight.insert(first[7].clone(), failed(BOOT - Seconds::new(0.9)));
    assert!(described(&snap).is_empty());
    for key in &first {
        snap.in_flight.insert(key.clone(), failed(BOOT - Seconds::new(1.0)));
    }
    let next = described(&snap);
    assert_eq!(next.len(), 1);
    snap.in_flight.insert(next[0].clone(), flight(Some(UpkeepProgress::UnderWay(NodeUpkeep::Description))));
    assert!(described(&snap).is_empty());
    let machine = first[0].strip_prefix("description of ").unwrap();
    let mut snap = snapshot(&scene, 0, &[]);
    for (key, other) in [
        (machine.to_owned(), InFlight { patches_node: true, ..flight(None) }),
        (format!("signs of {machine}"), flight(Some(UpkeepProgress::UnderWay(NodeUpkeep::Signs)))),
    ] {
        snap.in_flight.insert(key.clone(), other);
        assert!(!described(&snap).contains(&first[0]), "{key} is under way");
        snap.in_flight.remove(&key);
    }
    assert!(described(&snap).contains(&first[0]));
    let node = scene.cluster.nodes[7].address.clone();
    let last = node.rsplit('.').next().unwrap().parse().unwrap();
    let mut snap = snapshot(&scene.entry(1, last, RebootStatus::Queued, 10), 0, &[]);
    let work = |snap: &Snapshot| {
        let effects = decide(snap).effects.into_iter();
        effects.filter(|p| p.entry.is_some()).map(|p| (p.machine, p.effect.as_str())).collect::<Vec<_>>()
    };
    let before = work(&snap);
    assert!(before.iter().any(|(machine, _)| *machine == *node), "{before:?}");
    snap.in_flight.insert(format!("description of {node}"), failed(BOOT));
    assert_eq!(work(&snap), before, "a description that failed holds no entry back");
}
