//! Strategy `all-healthy` (SAB-47 to SAB-58).

use State::{Healthy, Retired, Retiring, Unhealthy, Unreachable, Updating};
use cketerm_model::names::NodeName;

use super::*;

fn scene(kinds: &[&str], planes: i64, machines: Vec<Machine>) -> Scene {
    Scene::new(kinds, planes, (1, 0), machines).all_healthy()
}

fn tainted(scene: &mut Scene, n: u8, key: &str) {
    let taint = Taint { key: key.to_owned(), ..Taint::default() };
    scene.nodes.get_or_insert_default().insert(NodeName::new(format!("10.0.0.{n}")), vec![taint]);
}

/// Every healthy machine of a templated role becomes a worker.
#[test]
fn every_healthy_machine_of_a_templated_role_is_a_worker() {
    let machines = vec![machine(1), machine(2), machine(3).is(Updating), machine(4).role("odd"), machine(5).role("ss")];
    scene(&["cs", "cs", "ss"], 1, machines.clone()).gives(Action::Initialize, &[1], &[2, 5]);
    scene(&["cs", "cs", "ss"], 1, machines).with(&[1], &[]).gives(Action::IncreaseWorkers, &[1], &[2, 5]);
    // as many stay unused as control planes are unhealthy, and none is replaced, as in recorded runs of CKE
    let machines = vec![machine(1), machine(2).is(Unhealthy), machine(3), machine(4)];
    scene(&["cs", "cs"], 2, machines).with(&[1, 2], &[]).gives(Action::IncreaseWorkers, &[1, 2], &[3]);
}

/// SAB-49: the fill subtracts all control planes of the definition being built, healthy or not.
#[test]
fn the_fill_leaves_a_machine_for_each_control_plane_that_is_not_healthy() {
    let machines = vec![machine(1), machine(2).is(Unhealthy), machine(3), machine(4)];
    let mut s = scene(&["cs", "cs"], 1, machines).with(&[1, 2], &[3, 9]);
    s.gives(Action::RemoveNonExistent, &[1, 2], &[3]);
    // all control planes are healthy: no machine is left out
    s.machines[1].state = Healthy;
    s.gives(Action::RemoveNonExistent, &[1, 2], &[3, 4]);
    // workers count, healthy or not
    let machines = vec![machine(1), machine(2).is(Unhealthy), machine(3)];
    let s = scene(&["cs", "cs"], 1, machines).with(&[1], &[2, 9]);
    s.gives(Action::RemoveNonExistent, &[1], &[2]);
}

/// SAB-50: healthy machines of any role count.
#[test]
fn machines_of_any_role_count_towards_the_worker_target() {
    let machines = vec![machine(1).is(Unhealthy), machine(3), machine(4).role("odd")];
    scene(&["cs", "cs"], 1, machines).with(&[1], &[]).gives(Action::IncreaseWorkers, &[1], &[3]);
    let machines = vec![machine(1).is(Unhealthy), machine(3)];
    scene(&["cs", "cs"], 1, machines).with(&[1], &[]).gives(Action::None, &[1], &[]);
}

/// SAB-51, SAB-52, SAB-53: the template's turn.
#[test]
fn the_template_with_the_smallest_share_of_its_machines_is_next() {
    let ss = |n| machine(n).role("ss");
    let kinds = ["cs", "cs", "ss"];
    let machines = vec![machine(1), machine(2), machine(3), machine(4), ss(5), ss(6)];
    scene(&kinds, 1, machines.clone()).gives(Action::Initialize, &[1], &[2, 5, 3, 6, 4]);
    // an unhealthy one counts as a worker of its role, but not as one of its machines
    let mut bad = machines;
    bad[1].state = Unhealthy;
    scene(&kinds, 1, bad).with(&[1], &[2]).gives(Action::IncreaseWorkers, &[1], &[2, 5, 3, 6, 4]);
    // cs has one healthy machine and one control plane
    let machines = vec![machine(1).is(Unhealthy), machine(2), ss(3)];
    scene(&kinds, 1, machines).with(&[1], &[]).gives(Action::IncreaseWorkers, &[1], &[3]);
}

/// A control-plane template without a role works beside workers with roles. In CKE it fails.
#[test]
fn control_planes_without_a_role_beside_workers_with_roles() {
    let machines = vec![machine(1).role("ss"), machine(2), machine(3).role("ss")];
    scene(&["", "cs", "ss"], 1, machines).gives(Action::Initialize, &[1], &[2, 3]);
}

/// SAB-54: a foreign taint excludes a machine as a control plane.
#[test]
fn a_machine_with_foreign_taints_cannot_be_a_control_plane() {
    for (key, free) in [
        ("site/user", false),
        ("node.kubernetes.io/unschedulable", true),
        ("cke.cybozu.com/state", true),
        ("cke.cybozu.com/master", true),
        ("site/tolerated", true),
        ("site/spare", true),
        // cketerm's own taint of planned reboots, with another effect
        ("cketerm.io/reboot-planned", false),
    ] {
        let mut s = scene(&["cs", "cs"], 2, vec![machine(1), machine(2), machine(3)]).with(&[1], &[2, 3]);
        s.template.cluster.control_plane_tolerations = Some(vec!["site/tolerated".to_owned()]);
        s.template.cluster.sabakan = serde_json::json!({"spare_node_taint_key": "site/spare"});
        tainted(&mut s, 2, key);
        let wanted = if free { 2 } else { 3 };
        s.gives(Action::IncreaseControlPlane, &[1, wanted], &[5 - wanted]);
    }
}

/// SAB-54: the taint of planned reboots reserves nothing.
#[test]
fn the_taint_of_planned_reboots_does_not_reserve_a_node() {
    let mut s = scene(&["cs", "cs"], 2, vec![machine(1), machine(2), machine(3)]).with(&[1], &[2, 3]);
    s.nodes.get_or_insert_default().insert(NodeName::new("10.0.0.2"), vec![cketerm_model::kube::planned_taint()]);
    s.gives(Action::IncreaseControlPlane, &[1, 2], &[3]);
}

/// SAB-55: spare nodes are preferred.
#[test]
fn nodes_with_the_spare_taint_are_preferred_as_control_planes() {
    let mut s = scene(&["cs", "cs"], 2, vec![machine(1), machine(2).days(2000), machine(3)]).with(&[1], &[2, 3]);
    s.template.cluster.sabakan = serde_json::json!({"spare_node_taint_key": "site/spare"});
    tainted(&mut s, 3, "site/spare");
    s.gives(Action::IncreaseControlPlane, &[1, 3], &[2]);
}

/// SAB-26, SAB-27: the terms of `all-healthy`.
#[test]
fn racks_count_more_than_lifetimes_and_health_most_for_staying() {
    let machines = vec![machine(1), machine(2).days(2000), machine(3).rack(1)];
    let plan = scene(&["cs", "cs"], 2, machines).with(&[1], &[]).gives(Action::IncreaseControlPlane, &[1, 3], &[2]);
    assert_eq!(of(&plan, 3).score, Some(1000));
    let machines = vec![machine(1), machine(2), machine(3).rack(1).is(Updating)];
    let plan =
        scene(&["cs", "cs"], 2, machines).with(&[1, 2, 3], &[]).gives(Action::DecreaseControlPlane, &[1, 2], &[3]);
    assert_eq!(of(&plan, 3).score, Some(990));
}

/// SAB-58: the rate and the wait.
#[test]
fn retired_workers_are_removed_down_to_the_minimum_rate() {
    for (state, duration, rate, leaves) in [
        (Retired, 300.1, 50, true),
        (Retired, 300.0, 50, false),
        (Retiring, 900.0, 50, false),
        (Retired, 900.0, 51, false),
    ] {
        let machines = vec![machine(1), machine(2).is(state).since(duration), machine(3), machine(4)];
        let mut s = scene(&["cs", "cs"], 1, machines).with(&[1], &[2, 3, 4]);
        s.constraints.minimum_workers_rate = rate;
        if leaves {
            s.gives(Action::DecreaseWorkers, &[1], &[3, 4]);
        } else {
            let plan = s.gives(Action::None, &[1], &[2, 3, 4]);
            assert_eq!(plan.reason.contains("less than 51 % of 4 machines"), rate == 51, "{}", plan.reason);
        }
    }
}

/// SAB-63: no taint `unhealthy` with `all-healthy`.
#[test]
fn unhealthy_machines_are_not_tainted() {
    let mut s = scene(&["cs", "cs"], 1, vec![machine(1), machine(2), machine(3)]).with(&[1], &[2, 3]);
    s.machines[1].state = Unhealthy;
    s.gives(Action::None, &[1], &[2, 3]);
    s.machines[2].state = Unreachable;
    let plan = s.gives(Action::TaintNodes, &[1], &[2, 3]);
    assert_eq!((taint(&plan, 2), taint(&plan, 3)), (String::new(), "unreachable:NoSchedule".to_owned()));
    s.machines[2].state = Healthy;
    s.gives(Action::None, &[1], &[2, 3]);
}

/// SAB-61: labels of `all-healthy`.
#[test]
fn nodes_have_the_current_labels() {
    let plan = scene(&["cs", "cs"], 1, vec![machine(1).rack(3), machine(2)]).plan().unwrap();
    let nodes = &plan.cluster.as_ref().unwrap().nodes;
    let label = |i: usize, key: &str| nodes[i].labels.as_ref().unwrap().get(key).cloned();
    let plane = usize::from(nodes[1].control_plane);
    for (key, value) in [
        ("node-role.kubernetes.io/cs", "true"),
        ("cke.cybozu.com/register-month", "2026-01"),
        ("cke.cybozu.com/retire-month", "2026-06"),
        ("cke.cybozu.com/retire-year", "2026"),
        ("node-role.kubernetes.io/master", "true"),
        ("node-role.kubernetes.io/control-plane", "true"),
    ] {
        assert_eq!(label(plane, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(label(1 - plane, "node-role.kubernetes.io/master"), None);
    let zones: BTreeSet<_> = (0..2).map(|i| label(i, "topology.kubernetes.io/zone").unwrap()).collect();
    assert_eq!(zones, BTreeSet::from(["rack0".to_owned(), "rack3".to_owned()]));
}
