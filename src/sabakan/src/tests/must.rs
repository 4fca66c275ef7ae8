//! Rules of both strategies: machines in reboot, contradictions, labels, reasons of the unused machines.

use State::{Healthy, Retired, Unhealthy, Unreachable};

use super::{super::unused_machines::unused, *};

const ANY: [&str; 2] = ["", ""];

/// SAB-24: "Rebooting machines should not be removed from the cluster nor be tainted". They are not replaced either for
/// looking unreachable.
#[test]
fn a_rebooting_machine_is_not_changed() {
    for state in [Unreachable, Unhealthy, Retired] {
        let mut scene = Scene::new(&ANY, 3, (2, 0), (1..=7).map(machine).collect()).with(&[1, 2, 3], &[4, 5]);
        scene.machines[1].state = state;
        scene.machines[3].state = state;
        let quiet = state != Retired;
        let scene = scene.rebooting(&[2, 4]);
        if quiet {
            scene.gives(Action::None, &[1, 2, 3], &[4, 5]);
        } else {
            // One healthy worker less: another one is added, and the rebooting one stays as it is.
            let plan = scene.gives(Action::IncreaseWorkers, &[1, 2, 3], &[4, 5, 6]);
            assert_eq!((taint(&plan, 2), taint(&plan, 4)), (String::new(), String::new()));
        }
    }
}

/// A rebooting machine keeps the taint that it had until the reboot is over.
#[test]
fn a_rebooting_machine_keeps_the_taint_that_it_had() {
    let mut scene =
        Scene::new(&ANY, 1, (1, 0), vec![machine(1), machine(2).is(Unhealthy), machine(3)]).with(&[1], &[2, 3]);
    scene.machines[1].state = Healthy;
    scene = scene.rebooting(&[2]);
    scene.gives(Action::None, &[1], &[2, 3]);
    scene.template_changed = true;
    let plan = scene.gives(Action::Regenerate, &[1], &[2, 3]);
    assert_eq!(taint(&plan, 2), "unhealthy:NoSchedule");
}

/// Variables may exclude unreachable machines, so a rebooting one can be absent from the answer. Its node stays as it
/// is.
#[test]
fn a_rebooting_machine_that_is_not_in_the_answer_is_kept() {
    let mut scene = Scene::new(&ANY, 3, (1, 0), (1..=5).map(machine).collect()).with(&[1, 2, 3], &[4, 5]);
    let before = scene.current.clone().unwrap().nodes[2].clone();
    scene.machines.retain(|m| ![3, 4].contains(&last(&m.address)));
    scene = scene.rebooting(&[3]);
    let plan = scene.gives(Action::RemoveNonExistent, &[1, 2, 3], &[5]);
    assert_eq!(plan.cluster.as_ref().unwrap().nodes[2], before);
    assert!(plan.warnings[0].contains("10.0.0.3 is not in sabakan's answer and is kept"), "{:?}", plan.warnings);
}

/// A rebooting machine is neither promoted nor demoted.
#[test]
fn a_rebooting_machine_keeps_its_role() {
    let machines: Vec<Machine> = vec![machine(1), machine(2).days(-2000), machine(3).days(2000), machine(4)];
    Scene::new(&ANY, 1, (0, 0), machines.clone()).with(&[1, 2], &[3, 4]).rebooting(&[2]).gives(
        Action::DecreaseControlPlane,
        &[2],
        &[3, 4, 1],
    );
    Scene::new(&ANY, 2, (0, 0), machines).with(&[1], &[2, 3, 4]).rebooting(&[3]).gives(
        Action::IncreaseControlPlane,
        &[1, 4],
        &[2, 3],
    );
}

#[test]
fn constraints_that_contradict_each_other_are_named() {
    let scene = |planes, workers| Scene::new(&ANY, planes, workers, (1..=5).map(machine).collect()).with(&[1], &[2]);
    scene(0, (1, 0)).fails(&["control-plane-count is 0"]);
    scene(-1, (1, 0)).fails(&["control-plane-count is -1", "constraints set"]);
    scene(1, (3, 2)).fails(&["maximum-workers is 2, minimum-workers is 3"]);
    scene(1, (-1, 0)).fails(&["minimum-workers is -1"]);
}

#[test]
fn two_machines_or_two_nodes_with_one_address_are_an_error() {
    let mut scene = Scene::new(&ANY, 1, (1, 0), vec![machine(1), machine(2)]);
    scene.machines.push(Machine { serial: "twin".to_owned(), ..machine(2) });
    scene.fails(&["SN02 and twin both have the address 10.0.0.2"]);
    Scene::new(&ANY, 1, (1, 0), vec![machine(1), machine(2)]).with(&[1], &[2, 2]).fails(&["10.0.0.2 twice"]);
}

/// A worker's role may have no template. CKE panics; cketerm names the worker and keeps the current definition.
#[test]
fn a_worker_without_a_template_is_named() {
    let machines = vec![machine(1), machine(2).role("odd"), machine(3), machine(4).role("ss")];
    let mut scene = Scene::new(&["", "cs:1", "ss:1"], 1, (1, 0), machines).with(&[1], &[2, 3]);
    scene.template_changed = true;
    scene.fails(&["the worker 10.0.0.2 (SN02) has the role odd, but no worker template has it"]);
    // such a control plane leaves when it is demoted
    scene = Scene { template_changed: false, ..scene }.with(&[2, 1], &[3]);
    let plan = scene.gives(Action::DecreaseControlPlane, &[1], &[3]);
    assert!(of(&plan, 2).why.to_string().starts_with("leaves, because no worker template has its role"));
}

/// SAB-60, SAB-62: the template's labels follow the machine's.
#[test]
fn a_node_has_the_labels_and_annotations_of_its_machine() {
    let text = "name: x\nnodes:\n- {user: u, control_plane: true}\n- {user: w, labels: {sabakan.cke.cybozu.com/site: mine, zone: 'r{{ .Rack }}-{{ index .Labels \"product\" }}'}, annotations: {a: b}, taints: [{key: k, value: v, effect: NoSchedule}]}\n";
    let mut scene = Scene::new(&ANY, 1, (1, 0), vec![machine(1), machine(2).rack(7).is(Unhealthy)]).with(&[1], &[2]);
    scene.template = Template::read(text).unwrap();
    scene.template_changed = true;
    let label = |n: &str, v: &str| (n.to_owned(), v.to_owned());
    scene.machines[1].labels =
        vec![label("product", "r640"), label("site", "tokyo"), label("bad name", "x"), label("long", &"x".repeat(64))];
    let plan = scene.gives(Action::Regenerate, &[1], &[2]);
    let node = &plan.cluster.as_ref().unwrap().nodes[1];
    let labels: Vec<String> = node.labels.iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        labels,
        [
            "cke.cybozu.com/index-in-rack=2",
            "cke.cybozu.com/rack=7",
            "cke.cybozu.com/role=cs",
            "sabakan.cke.cybozu.com/product=r640",
            "sabakan.cke.cybozu.com/site=mine",
            "zone=r7-r640",
        ]
    );
    let annotations: Vec<String> = node.annotations.iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        annotations,
        [
            "a=b",
            "cke.cybozu.com/register-date=2026-01-01T00:00:00Z",
            "cke.cybozu.com/retire-date=2026-06-01T00:00:00Z",
            "cke.cybozu.com/serial=SN02",
        ]
    );
    let taints: Vec<&str> = node.taints.iter().flatten().map(|t| t.key.as_str()).collect();
    assert_eq!((taints, node.user.as_str()), (vec!["k", "cke.cybozu.com/state"], "w"));
    let left_out =
        plan.warnings.iter().filter(|w| w.contains("left out, because it is not valid in Kubernetes")).count();
    assert_eq!(left_out, 2, "{:?}", plan.warnings);
    scene.machines[1].labels = vec![label("product", "a b")];
    scene.fails(&[
        "machine SN02: the template's label zone",
        "gives \"r7-a b\", which is not a valid Kubernetes label value",
    ]);
}

/// Each unused machine has a reason.
#[test]
fn every_machine_that_is_not_used_has_its_reason() {
    let machines = vec![
        machine(1),
        machine(2).days(300),
        machine(3).is(Unreachable),
        machine(4).role("odd"),
        machine(5),
        machine(6),
        machine(7).role("ss"),
    ];
    let scene = Scene::new(&["cs", "cs:1", "ss:1"], 1, (1, 0), machines).rebooting(&[6]);
    let plan = scene.plan().unwrap();
    let input = Input {
        machines: &scene.machines,
        template: &scene.template,
        constraints: &scene.constraints,
        current: None,
        kubernetes_nodes: None,
        rebooting: &scene.rebooting,
        template_changed: false,
        wait_seconds: 300,
        strategy: Strategy::Weighted,
        now: now(),
    };
    let why: Vec<String> =
        unused(&input, &plan).into_iter().map(|u| format!("{} {}", last(&u.address), u.why)).collect();
    assert_eq!(
        why,
        [
            "3 it is unreachable",
            "4 no template has role odd",
            "5 not needed: others were preferred, the last SN01 with 0; if added next: score -1 (+0 for 0 days of lifetime, -1 for 1 worker in rack 0)",
            "6 it is being rebooted",
            "7 healthy and not needed; if added next: score -1 (+0 for 0 days of lifetime, -1 for 1 worker in rack 0)",
        ]
    );
}
