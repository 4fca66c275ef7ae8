//! Each warning, and its absence.

use std::sync::Arc;

use cketerm_model::{
    cluster::Reboot,
    kube::BudgetRow,
    stored::{keys::Keys, row::Row},
};
use serde_json::json;

use super::*;

const DEFINITION: &str = r#"{"name": "c", "nodes": [
    {"address": "10.0.0.1", "hostname": "cp1", "control_plane": true},
    {"address": "10.0.0.2", "hostname": "cp2", "control_plane": true},
    {"address": "10.0.0.11", "hostname": "w1"}, {"address": "10.0.0.12", "hostname": "w2"}]}"#;

fn store(rows: &[(&str, serde_json::Value)]) -> StoreView {
    let (keys, mut view) = (Keys::new("/cke/"), StoreView::default());
    view.put(&keys, &Row::new(&keys.cluster(), DEFINITION, 1, 1));
    for (key, value) in rows {
        view.put(&keys, &Row::new(&format!("/cke/{key}"), &value.to_string(), 2, 2));
    }
    assert!(view.broken.is_empty(), "{:?}", view.broken);
    view
}

fn reboot(node: &str, status: &str) -> (&'static str, serde_json::Value) {
    ("reboots/data/0000000000000003", json!({"index": "3", "node": node, "status": status}))
}

/// Kubernetes with these Nodes that are not Ready.
fn kube(not_ready: &[&str]) -> KubeFacts {
    let mut facts = KubeFacts::default();
    for name in ["cp1", "cp2", "w1", "w2"] {
        let ready = !not_ready.contains(&name);
        facts.nodes.insert(NodeName::new(name), NodeReadiness { ready, uid: String::new() });
    }
    facts
}

fn lines(store: &StoreView, kube: Option<&KubeFacts>, queue: QueueKind, addresses: &[&str]) -> Vec<String> {
    let (rules, addresses) =
        (Reboot::default(), addresses.iter().map(|a| Address::new((*a).to_owned())).collect::<Vec<_>>());
    let added = Added { queue, addresses: &addresses, drain: Some(rules.eviction()) };
    warnings(store, kube, added).iter().map(ToString::to_string).collect()
}

#[test]
fn a_healthy_machine_of_no_queue_causes_no_warning() {
    let facts = kube(&[]);
    assert_eq!(lines(&store(&[]), Some(&facts), QueueKind::Reboot, &["10.0.0.1", "10.0.0.11"]), [] as [&str; 0]);
    assert_eq!(lines(&store(&[]), None, QueueKind::Reboot, &["10.0.0.11"]), [] as [&str; 0]);
}

#[test]
fn an_entry_of_the_other_queue_is_named() {
    let queued = store(&[reboot("10.0.0.11", "queued")]);
    let warned = lines(&queued, None, QueueKind::Repair, &["10.0.0.11", "10.0.0.12"]);
    assert_eq!(warned, ["w1 is in the reboot queue already: reboots/3 (queued)"]);
    assert_eq!(lines(&queued, None, QueueKind::Reboot, &["10.0.0.11"]), [] as [&str; 0], "the note says that");
    let cancelled = store(&[reboot("10.0.0.11", "cancelled")]);
    assert_eq!(lines(&cancelled, None, QueueKind::Repair, &["10.0.0.11"]), [] as [&str; 0]);
}

#[test]
fn another_api_server_in_work_is_named_with_its_entry() {
    for (status, warned) in [("draining", true), ("rebooting", true), ("queued", false)] {
        let found = lines(&store(&[reboot("10.0.0.2", status)]), None, QueueKind::Reboot, &["10.0.0.1", "10.0.0.11"]);
        let expected = ["cp1 waits for another API server: cp2 is in work (reboots/3)"];
        assert_eq!(found, if warned { &expected[..] } else { &[] }, "{status}");
    }
}

#[test]
fn the_last_control_plane_is_named() {
    let last = kube(&["cp2"]);
    let found = lines(&store(&[]), Some(&last), QueueKind::Repair, &["10.0.0.1"]);
    assert_eq!(found, ["cp1 is the last control plane that is Ready; not Ready: cp2"]);
    let only = r#"{"name": "c", "nodes": [{"address": "10.0.0.1", "hostname": "cp1", "control_plane": true}]}"#;
    let only = store(&[("cluster", serde_json::from_str(only).unwrap())]);
    let found = lines(&only, None, QueueKind::Reboot, &["10.0.0.1"]);
    assert_eq!(found, ["cp1 is the only control plane: the Kubernetes API is down while it is in work"]);
}

#[test]
fn unreachable_nodes_are_counted_by_the_rule_of_cke() {
    let limit = |limit: i64| ("constraints", json!({"maximum-unreachable-nodes-for-reboot": limit}));
    let facts = kube(&["w1", "w2"]);
    let found =
        |rows: &[(&str, serde_json::Value)]| lines(&store(rows), Some(&facts), QueueKind::Reboot, &["10.0.0.1"]);
    let more = found(&[limit(1)]);
    assert!(more.len() == 1 && more[0].starts_with("2 nodes are unreachable (w1, w2), more than the 1"), "{more:?}");
    let same = found(&[limit(2)]);
    assert!(same.len() == 1 && same[0].ends_with("with one more, no reboot starts"), "{same:?}");
    assert_eq!(found(&[limit(3)]), [] as [&str; 0]);
    // a node under reboot does not count, unless an older CKE leads
    let (rebooting, older) = (reboot("10.0.0.12", "rebooting"), ("cketerm/policy", json!({"unreachable_rule": "all"})));
    assert_eq!(found(&[limit(2), rebooting.clone()]), [] as [&str; 0]);
    assert_eq!(found(&[limit(2), rebooting, older]).len(), 1);
    assert_eq!(lines(&store(&[limit(1)]), Some(&facts), QueueKind::Repair, &["10.0.0.1"]), [] as [&str; 0]);
    assert_eq!(lines(&store(&[limit(1)]), None, QueueKind::Reboot, &["10.0.0.1"]), [] as [&str; 0], "unknown");
}

fn budget(needed: i32, pods: i32) -> Arc<BudgetRow> {
    let selector = serde_json::from_value(json!({"matchLabels": {"app": "db"}})).unwrap();
    let (namespace, name) = ("shop".to_owned(), "db".to_owned());
    Arc::new(BudgetRow {
        namespace,
        name,
        selector: Some(selector),
        needed,
        pods,
        healthy: pods,
        ..BudgetRow::default()
    })
}

#[test]
fn a_budget_that_can_never_open_is_named_once_a_node_with_its_numbers() {
    let mut facts = kube(&[]);
    let pod = |name: &str, app: &str| PodRow {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        phase: "Running".to_owned(),
        labels: [("app".to_owned(), app.to_owned())].into(),
        ..PodRow::default()
    };
    facts.pods.insert(NodeName::new("w1"), vec![pod("web-0", "web"), pod("db-0", "db"), pod("db-1", "db")]);
    for (needed, pods, warned) in [(3, 3, true), (4, 3, true), (2, 3, false), (0, 0, false)] {
        facts.view.budgets.insert(("shop".into(), "db".into()), budget(needed, pods));
        let found = lines(&store(&[]), Some(&facts), QueueKind::Reboot, &["10.0.0.11", "10.0.0.12"]);
        let expected = format!(
            "pod shop/db-0 on w1 can never be evicted: PodDisruptionBudget shop/db needs {needed} healthy of {pods} pods; \
             change the budget, or add replicas"
        );
        assert_eq!(found, if warned { vec![expected] } else { Vec::new() }, "{needed} of {pods}");
    }
    facts.view.budgets.insert(("shop".into(), "db".into()), budget(3, 3));
    let added = Added { queue: QueueKind::Repair, addresses: &[Address::new("10.0.0.11".to_owned())], drain: None };
    assert_eq!(warnings(&store(&[]), Some(&facts), added), [], "a repair that drains nothing");
}

/// Reading the pods of all machines takes long, and only a budget that can never open needs them.
#[test]
fn pods_are_read_for_drained_machines_if_a_budget_can_never_open() {
    let (store, mut kube) = (store(&[]), KubeFacts::default());
    kube.nodes.insert(NodeName::new("w1"), NodeReadiness::default());
    let addresses: Vec<Address> = ["10.0.0.11", "10.0.0.12", "10.0.0.99"].map(Address::new).into();
    let rules = Reboot::default();
    let added = Added { queue: QueueKind::Reboot, addresses: &addresses, drain: Some(rules.eviction()) };
    assert_eq!(nodes_to_read(&store, &kube, added), [] as [NodeName; 0], "there is no budget");
    kube.view.budgets.insert(("shop".into(), "db".into()), budget(2, 3));
    assert_eq!(nodes_to_read(&store, &kube, added), [] as [NodeName; 0], "one pod may be evicted");
    kube.view.budgets.insert(("shop".into(), "db".into()), budget(3, 3));
    assert_eq!(nodes_to_read(&store, &kube, added), [NodeName::new("w1")], "w2 has no Node, the last one is no member");
    assert_eq!(nodes_to_read(&store, &kube, Added { drain: None, ..added }), [] as [NodeName; 0]);
}
