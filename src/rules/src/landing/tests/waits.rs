//! Pods that wait for unavailable nodes, and nodes that wait for each other.

use cketerm_model::names::NodeName;

use super::scene::*;
use crate::landing::{mutual, waits_only_for};

#[test]
fn a_pending_pod_waits_for_the_cordoned_nodes_with_room() {
    let mut nodes = vec![node("a1", 9), node("a2", 1), node("a3", 9), node("b1", 1)];
    for cordoned in &mut nodes[..3] {
        cordoned.unschedulable = true;
        cordoned.ready = false;
    }
    let scene = view(nodes, vec![pod("web-1", "", 5)]);
    let waits = |scene: &_, nodes: &[&str]| waits_only_for(scene, &pod("web-1", "", 5), &names(nodes));
    assert_eq!(waits(&scene, &["a1", "a2"]), names(&["a1"]));
    assert_eq!(waits(&scene, &["a1", "a2", "a3"]), names(&["a1", "a3"]));
    assert_eq!(waits(&scene, &["a2"]), names(&[]));
    assert_eq!(waits(&scene, &[]), names(&[]));
    let mut roomy = scene;
    roomy.nodes[3] = node("b1", 9);
    assert_eq!(waits(&roomy, &["a1"]), names(&[]));
    let mut bound = pod("web-1", "", 5);
    claim(&mut roomy, &mut bound, "pvc-1", &["a3"]);
    assert_eq!(waits_only_for(&roomy, &bound, &names(&["a1", "a3"])), names(&["a3"]));
}

#[test]
fn two_nodes_whose_pods_only_fit_on_each_other() {
    let zone = |name: &str, on: &str| with(pod(name, on, 2), |s| s.node_rules.selector = labels(&[("zone", "a")]));
    let nodes = vec![node("a1", 9), node("a2", 9), node("b1", 9)];
    let pair = |a: &str, b: &str| (NodeName::new(a), NodeName::new(b));
    let scene = view(nodes.clone(), vec![zone("web-1", "a1"), zone("db-1", "a2"), pod("free-1", "b1", 1)]);
    assert_eq!(mutual(&scene, &names(&["a1", "a2", "b1"])), [pair("a1", "a2")]);
    assert_eq!(mutual(&scene, &names(&["a1", "b1"])), []);
    let scene = view(nodes, vec![zone("web-1", "a1"), pod("db-1", "a2", 2)]);
    assert_eq!(mutual(&scene, &names(&["a1", "a2"])), []);
}
