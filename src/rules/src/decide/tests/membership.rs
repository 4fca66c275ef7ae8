//! The definition follows the Nodes (policy `membership: nodes`).

use std::sync::Arc;

use cketerm_model::{
    cketerm_records::{Absences, Approval, Who},
    clock::Now,
    kube::{CONTROL_PLANE_PODS, EndpointsRow, NodeRow},
    names::{Address, NodeName},
    policy::{Approval as Gate, Membership},
    reason::Reason,
    reboot::RebootStatus,
    time::after,
};

use super::scene::{BOOT, Scene, now, stored};
use crate::{
    decide::{ApplyState, Effect, RegistryEffect},
    membership::propose,
    registry::Registry,
};

const HOUR: i64 = 3600;

/// Twenty workers and three control planes, all with Nodes; the control planes have their label. No other source of the
/// signals is known.
fn only_labels() -> Scene {
    let mut scene = Scene::new(20);
    scene.policy.membership = Membership::Nodes;
    scene.kube.sources.remove("endpoints");
    for last in 1..=3 {
        scene = scene.node(last, |node| label(node, "node-role.kubernetes.io/control-plane"));
    }
    scene
}

/// The same with every source: the three are endpoints, and none has static Pods.
fn scene() -> Scene {
    let mut scene = only_labels();
    know_static_pods(&mut scene);
    add_endpoints(&mut scene, &[1, 2, 3]);
    scene
}

fn know_static_pods(scene: &mut Scene) {
    let source = scene.kube.sources.get("nodes").unwrap().clone();
    scene.kube.sources.insert(CONTROL_PLANE_PODS.to_owned(), source);
}

fn add_endpoints(scene: &mut Scene, lasts: &[u8]) {
    let source = scene.kube.sources.get("nodes").unwrap().clone();
    scene.kube.sources.insert("endpoints".to_owned(), source);
    scene.kube.endpoints.push(EndpointsRow {
        kind: "EndpointSlice".to_owned(),
        namespace: "default".to_owned(),
        name: "kubernetes".to_owned(),
        addresses: lasts.iter().map(|last| Address::new(Scene::address(*last))).collect(),
        ..EndpointsRow::default()
    });
}

fn label(node: &mut NodeRow, label: &str) {
    node.described.labels = [(label.to_owned(), String::new())].into_iter().collect();
}

fn remove(scene: &mut Scene, last: u8) {
    scene.kube.remove_node(&NodeName::new(Scene::address(last)));
}

fn add(scene: &mut Scene, name: &str, addresses: &[&str]) {
    scene.kube.put_node(NodeRow {
        name: NodeName::new(name),
        addresses: addresses.iter().map(|a| Address::new(*a)).collect(),
        ready: true,
        ..NodeRow::default()
    });
}

struct Decided {
    state: ApplyState,
    reason: String,
    applied: Option<serde_json::Value>,
    warnings: Vec<String>,
    digest: String,
}

impl Decided {
    /// Names of the members after the change.
    fn members(&self) -> Vec<&str> {
        let nodes = self.applied.as_ref().expect("a definition")["nodes"].as_array().unwrap();
        nodes.iter().map(|node| node["address"].as_str().unwrap()).collect()
    }

    fn assert_waits_for(&self, words: &str) {
        let text = format!("{:?}", self.state);
        assert!(text.contains(words) && self.applied.is_none(), "{words:?} is missing: {text}");
    }
}

/// Record of members that have had no Node for so long.
fn absences(absent: &[(u8, i64)]) -> Absences {
    let since = |(last, ago): &(u8, i64)| (Address::new(Scene::address(*last)), after(now(), -*ago));
    Absences { since: absent.iter().map(since).collect() }
}

/// Decides with members that have had no Node for so long.
fn decide(scene: &Scene, absent: &[(u8, i64)]) -> Decided {
    let mut scene = scene.clone();
    scene.store.registry.absent = Some(stored("absent", 7, absences(absent)));
    let mut snap = scene.snapshot();
    let proposal = propose(&snap.store, &snap.kube, now());
    let warnings = proposal.outcome.as_ref().map_or_else(|_| Vec::new(), |p| p.plan.warnings.clone());
    let digest = proposal.outcome.as_ref().map_or_else(|_| String::new(), |p| p.digest.clone());
    let reason = proposal.outcome.as_ref().map_or_else(|_| String::new(), |p| p.plan.reason.clone());
    snap.registry = Arc::new(Registry { proposal: Some(Arc::new(proposal)), ..Registry::default() });
    let decision = crate::decide::decide(&snap, Now { boot: BOOT, wall: now() });
    let json = decision.effects.iter().find_map(|planned| match &planned.effect {
        Effect::Registry(RegistryEffect::Apply(apply)) => Some(apply.json.clone()),
        _ => None,
    });
    let applied = json.map(|json| serde_json::from_str(&json).unwrap());
    Decided { state: decision.registry, reason, applied, warnings, digest }
}

#[test]
fn a_definition_that_matches_the_nodes_stays() {
    assert_eq!(decide(&scene(), &[]).state, ApplyState::Settled);
}

#[test]
fn a_new_node_joins_with_its_name_and_address() {
    let mut scene = scene();
    add(&mut scene, "w40", &["w40", "10.0.0.40"]);
    let decided = decide(&scene, &[]);
    assert_eq!(decided.members().len(), 24);
    let member = &decided.applied.as_ref().unwrap()["nodes"][23];
    assert_eq!((member["address"].as_str(), member["hostname"].as_str()), (Some("10.0.0.40"), Some("w40")));
    assert_ne!(member["control_plane"], true);
}

#[test]
fn a_node_that_cannot_join_is_named_and_the_others_join() {
    let mut scene = scene();
    add(&mut scene, "w40", &["10.0.0.40"]);
    add(&mut scene, "nameless", &["nameless"]);
    add(&mut scene, "twin", &["10.0.0.11"]);
    let decided = decide(&scene, &[]);
    assert_eq!(decided.members().len(), 24);
    assert_eq!(decided.warnings.len(), 2, "{:?}", decided.warnings);
    assert!(decided.warnings[0].contains("nameless") && decided.warnings[0].contains("no IP address"));
    assert!(decided.warnings[1].contains("twin") && decided.warnings[1].contains("10.0.0.11"));
}

#[test]
fn a_node_with_another_address_joins_after_its_old_member_left() {
    let mut scene = scene();
    scene = scene.node(15, |node| node.addresses = vec![Address::new("10.0.0.99")]);
    let decided = decide(&scene, &[(15, 0)]);
    assert_eq!((decided.state, decided.applied), (ApplyState::Settled, None));
    assert!(decided.warnings[0].contains("leaves first"), "{:?}", decided.warnings);
    let decided = decide(&scene, &[(15, HOUR)]);
    assert!(!decided.members().contains(&"10.0.0.15"));
}

#[test]
fn a_member_without_a_node_leaves_after_the_grace_period() {
    let mut scene = scene();
    remove(&mut scene, 15);
    let early = decide(&scene, &[(15, HOUR - 1)]);
    assert!(early.warnings[0].contains("10.0.0.15 (10.0.0.15) has no Node: it leaves at"), "{:?}", early.warnings);
    assert_eq!((early.state, early.applied), (ApplyState::Settled, None));
    let decided = decide(&scene, &[(15, HOUR)]);
    assert_eq!(decided.members().len(), 22);
    assert!(!decided.members().contains(&"10.0.0.15"));
    assert_eq!(decided.reason, "no Node for 3600 s or longer: 10.0.0.15");
}

#[test]
fn a_member_in_work_never_leaves() {
    for status in [RebootStatus::Draining, RebootStatus::Rebooting] {
        let mut scene = scene().entry(1, 15, status, 10);
        remove(&mut scene, 15);
        let decided = decide(&scene, &[(15, HOUR)]);
        assert_eq!((decided.state, decided.applied), (ApplyState::Settled, None), "{status}");
    }
}

#[test]
fn a_member_whose_node_came_back_after_the_plan_stays() {
    let mut scene = scene();
    let row = scene.kube.by_name.get("10.0.0.15").unwrap().clone();
    remove(&mut scene, 15);
    scene.store.registry.absent = Some(stored("absent", 7, absences(&[(15, HOUR)])));
    let proposal = propose(&scene.snapshot().store, &scene.kube, now());
    scene.kube.put_node((*row).clone());
    let mut snap = scene.snapshot();
    snap.registry = Arc::new(Registry { proposal: Some(Arc::new(proposal)), ..Registry::default() });
    let decision = crate::decide::decide(&snap, Now { boot: BOOT, wall: now() });
    assert!(format!("{:?}", decision.registry).contains("has its Node again"), "{:?}", decision.registry);
    assert!(!decision.effects.iter().any(|p| matches!(p.effect, Effect::Registry(RegistryEffect::Apply(_)))));
}

#[test]
fn a_member_whose_node_came_back_after_the_decision_stays() {
    let mut scene = scene();
    let row = scene.kube.by_name.get("10.0.0.15").unwrap().clone();
    remove(&mut scene, 15);
    scene.store.registry.absent = Some(stored("absent", 7, absences(&[(15, HOUR)])));
    let mut snap = scene.snapshot();
    let proposal = propose(&snap.store, &snap.kube, now());
    snap.registry = Arc::new(Registry { proposal: Some(Arc::new(proposal)), ..Registry::default() });
    let decision = crate::decide::decide(&snap, Now { boot: BOOT, wall: now() });
    let apply = decision.effects.into_iter().find_map(|planned| match planned.effect {
        Effect::Registry(RegistryEffect::Apply(apply)) => Some(apply),
        _ => None,
    });
    let apply = apply.unwrap();
    assert_eq!(apply.changed_input(&snap.store, &snap.kube), None, "the switch of sabakan is not asked");
    scene.kube.put_node((*row).clone());
    assert_eq!(apply.changed_input(&snap.store, &scene.kube), Some("the Nodes"));
}

#[test]
fn many_members_without_nodes_wait_for_an_approval() {
    let mut scene = scene();
    for last in 11..14 {
        remove(&mut scene, last);
    }
    // one of three is due: Nodes that are deleted one by one do not pass one by one
    let decided = decide(&scene, &[(11, HOUR), (12, 0), (13, 0)]);
    decided.assert_waits_for("3 of 23 members have no Node");
    let approval = Approval { who: Who::default(), at: after(now(), -10), until: after(now(), 600), reason: None };
    scene.store.registry.approvals.insert(decided.digest.clone(), stored("approval", 9, approval));
    let approved = decide(&scene, &[(11, HOUR), (12, 0), (13, 0)]);
    assert_eq!(approved.members().len(), 22);
}

#[test]
fn a_new_node_joins_while_a_removal_waits_for_an_approval() {
    let mut scene = scene();
    for last in 11..14 {
        remove(&mut scene, last);
    }
    add(&mut scene, "w40", &["10.0.0.40"]);
    let decided = decide(&scene, &[(11, HOUR), (12, HOUR), (13, HOUR)]);
    assert_eq!(decided.members().len(), 24);
}

#[test]
fn the_removal_of_a_control_plane_always_waits_for_an_approval() {
    let mut scene = scene();
    scene.policy.approval = Gate::Never;
    remove(&mut scene, 2);
    decide(&scene, &[(2, HOUR)]).assert_waits_for("10.0.0.2");
}

#[test]
fn nothing_leaves_while_the_nodes_are_not_known_or_the_selector_picks_none() {
    let mut scene = scene();
    remove(&mut scene, 15);
    let mut unknown = scene.clone();
    unknown.kube.sources.get_mut("nodes").unwrap().synced = false;
    decide(&unknown, &[(15, HOUR)]).assert_waits_for("not known");
    scene.policy.node_selector = "pool=a".to_owned().try_into().unwrap();
    decide(&scene, &[(15, HOUR)]).assert_waits_for("node_selector picks no Node");
}

#[test]
fn a_selector_picks_by_labels() {
    let mut scene = scene();
    scene.policy.node_selector = "!virtual".to_owned().try_into().unwrap();
    add(&mut scene, "w40", &["10.0.0.40"]);
    add(&mut scene, "v41", &["10.0.0.41"]);
    let row = scene.kube.by_name.get("v41").unwrap().clone();
    let mut row = (*row).clone();
    label(&mut row, "virtual");
    scene.kube.put_node(row);
    assert_eq!(decide(&scene, &[]).members().len(), 24);
}

#[test]
fn any_signal_makes_a_control_plane() {
    let control_planes = |decided: &Decided| -> Vec<String> {
        let nodes = decided.applied.as_ref().expect("a definition")["nodes"].as_array().unwrap().clone();
        let planes = nodes.into_iter().filter(|node| node["control_plane"] == true);
        planes.map(|node| node["address"].as_str().unwrap().to_owned()).collect()
    };
    let mut by_endpoint = scene();
    add_endpoints(&mut by_endpoint, &[11]);
    assert!(control_planes(&decide(&by_endpoint, &[])).contains(&"10.0.0.11".to_owned()));
    let mut by_pod = scene();
    by_pod.kube.control_plane_pods.insert("uid".to_owned(), NodeName::new("10.0.0.12"));
    assert!(control_planes(&decide(&by_pod, &[])).contains(&"10.0.0.12".to_owned()));
}

#[test]
fn a_control_plane_becomes_a_worker_only_if_every_source_is_known_and_approved() {
    let mut scene = only_labels().node(3, |node| node.described.labels = std::iter::empty().collect());
    assert_eq!(decide(&scene, &[]).state, ApplyState::Settled, "static Pods are not known");
    know_static_pods(&mut scene);
    assert_eq!(decide(&scene, &[]).state, ApplyState::Settled, "the endpoints are not known");
    add_endpoints(&mut scene, &[1, 2]);
    decide(&scene, &[]).assert_waits_for("10.0.0.3");
}

#[test]
fn a_node_that_may_be_a_control_plane_does_not_join_before_that_is_known() {
    let mut scene = only_labels();
    add(&mut scene, "w40", &["10.0.0.40"]);
    know_static_pods(&mut scene);
    let decided = decide(&scene, &[]);
    assert_eq!((decided.state, decided.applied), (ApplyState::Settled, None));
    assert!(decided.warnings[0].contains("not known whether"), "{:?}", decided.warnings);
    add_endpoints(&mut scene, &[1, 2, 3]);
    assert_eq!(decide(&scene, &[]).members().len(), 24);
}

#[test]
fn queued_entries_of_a_machine_are_refused_while_the_sources_disagree() {
    let mut unlabelled = scene().node(3, |node| node.described.labels = std::iter::empty().collect());
    unlabelled = unlabelled.entry(1, 3, RebootStatus::Queued, 10).entry(2, 11, RebootStatus::Queued, 10);
    let reason = unlabelled.reason(1);
    assert!(matches!(&reason, Reason::ControlPlaneUnclear { signals } if !signals.label), "{reason:?}");
    assert!(reason.to_string().contains("label no"), "{reason}");
    assert!(!matches!(unlabelled.reason(2), Reason::ControlPlaneUnclear { .. }));

    let worker = |scene: Scene| scene.entry(1, 11, RebootStatus::Queued, 10).reason(1);
    let labelled = |scene: Scene| scene.node(11, |node| label(node, "node-role.kubernetes.io/master"));
    assert!(matches!(worker(labelled(scene())), Reason::ControlPlaneUnclear { .. }));
    let mut manual = labelled(scene());
    manual.policy.membership = Membership::Manual;
    assert!(!matches!(worker(manual), Reason::ControlPlaneUnclear { .. }));

    // work in progress is not affected
    let in_work = labelled(scene()).entry(1, 11, RebootStatus::Draining, 10);
    assert!(!matches!(in_work.reason(1), Reason::ControlPlaneUnclear { .. }));
}

#[test]
fn the_grace_period_of_a_member_begins_with_its_record() {
    let mut scene = scene();
    remove(&mut scene, 15);
    let recorded = |scene: &Scene| {
        let decision = crate::decide::decide(&scene.snapshot(), Now { boot: BOOT, wall: now() });
        decision.effects.into_iter().find_map(|planned| match planned.effect {
            Effect::Registry(RegistryEffect::RecordAbsences { absences, revision }) => Some((absences, revision)),
            _ => None,
        })
    };
    assert_eq!(recorded(&scene), Some((absences(&[(15, 0)]), 0)));

    // what is recorded stays, and what came back is forgotten
    let record = absences(&[(14, 100), (15, 100)]);
    scene.store.registry.absent = Some(stored("absent", 7, record));
    assert_eq!(recorded(&scene), Some((absences(&[(15, 100)]), 7)));
    scene.store.registry.absent = Some(stored("absent", 8, absences(&[(15, 100)])));
    assert_eq!(recorded(&scene), None);

    // a host whose clock is ahead cannot make it shorter
    scene.store.registry.absent = Some(stored("absent", 9, absences(&[(14, 100), (15, -500)])));
    assert_eq!(recorded(&scene), Some((absences(&[(15, 0)]), 9)));

    // nothing is recorded for a definition that does not follow the Nodes, or while they are not known
    let mut manual = scene.clone();
    manual.policy.membership = Membership::Manual;
    assert_eq!(recorded(&manual), None);
    scene.kube.sources.get_mut("nodes").unwrap().synced = false;
    assert_eq!(recorded(&scene), None);
}

#[test]
fn a_record_that_cannot_be_read_is_named_and_kept() {
    let mut scene = scene();
    remove(&mut scene, 15);
    let mut broken = stored("absent", 7, Absences::default());
    broken.value = Err("expected a map".to_owned());
    scene.store.registry.absent = Some(broken);
    let proposal = propose(&scene.snapshot().store, &scene.kube, now());
    assert!(proposal.outcome.unwrap_err().contains("delete it"));
    let decision = crate::decide::decide(&scene.snapshot(), Now { boot: BOOT, wall: now() });
    assert!(
        !decision.effects.iter().any(|p| matches!(p.effect, Effect::Registry(RegistryEffect::RecordAbsences { .. })))
    );
}

#[test]
fn a_vanished_node_holds_nothing_back_unless_many_are_gone() {
    let gate = |scene: &Scene| scene.clone().entry(1, 20, RebootStatus::Queued, 10).reason(1);
    let mut scene = scene();
    remove(&mut scene, 11);
    assert!(!matches!(gate(&scene), Reason::UnreachableGate { .. }), "{:?}", gate(&scene));
    remove(&mut scene, 12);
    assert!(!matches!(gate(&scene), Reason::UnreachableGate { .. }), "{:?}", gate(&scene));
    // three of 23 are more than ten percent
    remove(&mut scene, 13);
    assert!(matches!(gate(&scene), Reason::UnreachableGate { count: 3, limit: 2, .. }), "{:?}", gate(&scene));
}

#[test]
fn a_share_of_the_members_may_be_unreachable() {
    let down = |scene: Scene, last: u8| scene.node(last, |node| node.ready = false);
    let gate = |scene: &Scene| scene.clone().entry(1, 20, RebootStatus::Queued, 10).reason(1);
    let two = down(down(scene(), 11), 12);
    assert!(!matches!(gate(&two), Reason::UnreachableGate { .. }), "{:?}", gate(&two));
    let mut manual = two.clone();
    manual.policy.membership = Membership::Manual;
    assert!(matches!(gate(&manual), Reason::UnreachableGate { count: 2, limit: 0, .. }));
    let three = down(two, 13);
    assert!(matches!(gate(&three), Reason::UnreachableGate { count: 3, limit: 2, .. }));
}
