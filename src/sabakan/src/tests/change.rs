use cketerm_model::{boot_time::Seconds, cluster::Taint, names::Address};

use super::*;

fn node(address: &str, control_plane: bool) -> Node {
    Node { address: Address::new(address), control_plane, user: "u".to_owned(), ..Node::default() }
}

fn cluster(planes: u32, workers: u32) -> Cluster {
    let nodes = (0..planes).map(|i| node(&format!("10.0.0.{i}"), true));
    let nodes = nodes.chain((0..workers).map(|i| node(&format!("10.0.1.{i}"), false))).collect();
    Cluster { name: "c".to_owned(), nodes, ..Cluster::default() }
}

fn machines(of: &Cluster) -> Vec<Machine> {
    let text = |n: &Node| {
        format!(
            r#"{{"spec":{{"serial":"{0}","rack":0,"indexInRack":1,"role":"cs","ipv4":["{0}"],
               "registerDate":"2026-01-01T00:00:00Z","retireDate":"2028-01-01T00:00:00Z"}},"status":{{"state":"HEALTHY"}}}}"#,
            n.address
        )
    };
    let all: Vec<String> = of.nodes.iter().map(text).collect();
    super::super::machine::read(&format!("[{}]", all.join(","))).unwrap().list
}

fn judged(current: &Cluster, next: &Cluster, list: &[Machine]) -> Gate {
    diff(Some(current), next).gate(Some(current), Missing::from_list(Some(current), list), 10)
}

fn taint(effect: &str) -> Vec<Taint> {
    vec![Taint { key: "cke.cybozu.com/state".into(), value: "x".into(), effect: effect.into(), ..Taint::default() }]
}

#[test]
fn the_gate_counts_removals_replacements_and_new_noexecute_taints_in_one_change() {
    let current = cluster(3, 17);
    let list = machines(&current);
    let mut next = current.clone();
    next.nodes.truncate(18); // 2 of 20
    assert_eq!(judged(&current, &next, &list), Gate { weight: 2, of: 20, ..Gate::default() }, "10 % is not above 10 %");
    next.nodes[5].taints = Some(taint("NoExecute"));
    let gate = judged(&current, &next, &list);
    assert_eq!(gate.weight, 3);
    assert!(gate.why.unwrap().contains("gate_percent 10"));
    next.nodes[5].taints = Some(taint("NoSchedule"));
    assert_eq!(judged(&current, &next, &list).why, None, "NoSchedule evicts no pods");
    next.nodes.push(node("10.0.9.9", false));
    assert_eq!(judged(&current, &next, &list).why, None, "added nodes do not count");
}

#[test]
fn removing_or_replacing_any_control_plane_needs_approval_in_any_cluster() {
    let current = cluster(3, 197);
    let list = machines(&current);
    let mut demoted = current.clone();
    demoted.nodes[1].control_plane = false;
    demoted.nodes[150].control_plane = true;
    assert!(judged(&current, &demoted, &list).why.unwrap().contains("10.0.0.1"));
    let mut removed = current.clone();
    removed.nodes.remove(0);
    assert!(judged(&current, &removed, &list).why.unwrap().contains("10.0.0.0"));
    let mut promoted = current.clone();
    promoted.nodes[170].control_plane = true;
    assert_eq!(judged(&current, &promoted, &list).why, None, "an additional control plane replaces none");
    assert_eq!(diff(Some(&current), &promoted).new_control_planes(), [current.nodes[170].address.clone()]);
}

#[test]
fn the_gate_holds_a_list_that_lost_many_machines_even_if_few_would_change() {
    let current = cluster(3, 17);
    let list = machines(&current);
    let mut next = current.clone();
    next.nodes.truncate(19);
    assert!(judged(&current, &next, &[]).why.unwrap().contains("lacks 20 of 20"));
    assert!(judged(&current, &next, &list[..17]).why.unwrap().contains("lacks 3 of 20"));
    assert_eq!(judged(&current, &next, &list[..18]).why, None);
}

#[test]
fn a_first_definition_passes_the_gate() {
    let next = cluster(3, 17);
    let change = diff(None, &next);
    assert_eq!((change.nodes.len(), change.gate(None, Missing::from_list(None, &machines(&next)), 10).why), (20, None));
    assert_eq!(change.new_control_planes().len(), 3);
}

#[test]
fn changes_common_to_many_nodes_are_folded_and_others_listed_by_field() {
    let current = cluster(1, 9);
    let mut next = current.clone();
    for (i, node) in (0..).zip(&mut next.nodes) {
        node.labels = Some([("cke.cybozu.com/rack".to_owned(), i.to_string())].into());
    }
    next.nodes[3].taints = Some(taint("NoSchedule"));
    next.service_subnet = "10.68.0.0/16".to_owned();
    let change = diff(Some(&current), &next);
    let folds = change.folded();
    assert_eq!(folds.len(), 1);
    assert_eq!((folds[0].0.as_str(), folds[0].1.len()), ("labels[cke.cybozu.com/rack] added", 10));
    let own: Vec<String> = change.nodes.iter().flat_map(|n| change.own(n, &folds)).map(|f| f.field.clone()).collect();
    assert_eq!(own, ["taints[cke.cybozu.com/state:NoSchedule]"]);
    assert_eq!(change.fields, ["service_subnet"]);
    assert_eq!(change.touched().count(), 1);
}

#[test]
fn null_and_an_empty_map_are_no_change() {
    let current = cluster(1, 1);
    let mut next = current.clone();
    next.nodes[0].labels = Some(BTreeMap::new());
    next.nodes[1].taints = Some(Vec::new());
    assert!(diff(Some(&current), &next).is_empty());
}

#[test]
fn the_digest_changes_with_plan_template_or_machines_but_not_with_order_or_time() {
    let list = machines(&cluster(1, 2));
    let own = digest("c", "t", &list);
    let mut other = list.clone();
    other.reverse();
    other[0].duration = Seconds::new(99.0);
    assert_eq!(digest("c", "t", &other), own);
    other[0].state = super::super::State::Unhealthy;
    for changed in [digest("d", "t", &list), digest("c", "u", &list), digest("c", "t", &other), digest("c", "t", &[])] {
        assert_ne!(changed, own);
    }
}
