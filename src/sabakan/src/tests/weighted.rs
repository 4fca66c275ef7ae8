//! Strategy `weighted`: one test for each sentence of CKE's document.

use State::{Healthy, Retired, Retiring, Unhealthy, Uninitialized, Unreachable, Updating};

use super::*;

const ANY: [&str; 2] = ["", ""];

fn all(range: std::ops::RangeInclusive<u8>) -> Vec<Machine> {
    range.map(machine).collect()
}

/// "Deselect non-healthy machines."
#[test]
fn only_healthy_machines_are_selected() {
    for state in State::ALL {
        let scene = Scene::new(&ANY, 1, (1, 0), vec![machine(1).is(state), machine(2), machine(3)]);
        let wanted: (&[u8], &[u8]) = if state == Healthy { (&[1], &[2]) } else { (&[2], &[3]) };
        scene.gives(Action::Initialize, wanted.0, wanted.1);
    }
}

/// "If the machine's lifetime is > 250 days, +10 …"; "Newer machines should be preferred than old ones."
#[test]
fn newer_machines_are_preferred_in_steps_of_lifetime() {
    for (days, score) in [
        (0, 0),
        (250, 0),
        (251, 10),
        (500, 10),
        (501, 20),
        (1000, 20),
        (1001, 30),
        (-250, 0),
        (-251, -10),
        (-500, -10),
        (-501, -20),
        (-1000, -20),
        (-1001, -30),
    ] {
        let scene = Scene::new(&ANY, 1, (0, 0), vec![machine(1).days(days)]);
        let plan = scene.gives(Action::Initialize, &[1], &[]);
        assert_eq!(of(&plan, 1).score, Some(score), "{days} days");
        assert!(of(&plan, 1).why.to_string().contains(&format!("{days} days")));
    }
    let scene = Scene::new(&ANY, 2, (0, 0), vec![machine(1), machine(2).days(251), machine(3).days(501)]);
    scene.gives(Action::Initialize, &[3, 2], &[]);
}

/// "If the cluster contains n machines in the same rack, - min(n, 10)": counted by kind, in the definition being built.
#[test]
fn racks_are_counted_separately_for_control_planes_and_workers() {
    let machines = vec![machine(1), machine(2), machine(3).rack(1), machine(4).rack(1), machine(5).rack(2)];
    let plan = Scene::new(&ANY, 3, (2, 0), machines).gives(Action::Initialize, &[1, 3, 5], &[2, 4]);
    assert_eq!(of(&plan, 2).score, Some(0), "control planes in its rack do not count for a worker");
    // the rack term is at most 10: the twelfth machine of a rack scores like the eleventh
    let mut machines = all(1..=14);
    machines[13] = machine(14).rack(1).days(-501);
    let plan = Scene::new(&["", ""], 1, (12, 0), machines).plan().unwrap();
    assert_eq!((of(&plan, 12).score, of(&plan, 13).score), (Some(-10), Some(-10)));
}

/// SAB-29: "Equal scores: break ties by rack, then index in rack, then serial."
#[test]
fn equal_scores_are_broken_by_rack_index_and_serial() {
    let at = |n: u8, rack: i64, index: i64, serial: &str| Machine {
        index_in_rack: index,
        serial: serial.to_owned(),
        ..machine(n).rack(rack)
    };
    let machines = vec![at(1, 1, 0, "a"), at(2, 0, 5, "a"), at(3, 0, 4, "z"), at(4, 0, 4, "b")];
    let plan = Scene::new(&ANY, 1, (0, 0), machines).gives(Action::Initialize, &[4], &[]);
    let why = of(&plan, 4).why.to_string();
    assert!(why.contains("highest of 4 unused healthy machines; z has the same score and comes after it"), "{why}");
}

/// "If the new node will be a control plane and a role is specified, select servers of the same role."
#[test]
fn control_planes_have_the_role_of_their_template() {
    let machines = vec![machine(1).role("ss").days(2000), machine(2), machine(3).role("ss")];
    Scene::new(&["cs", ""], 1, (1, 0), machines).gives(Action::Initialize, &[2], &[1]);
    Scene::new(&["gpu", ""], 1, (1, 0), vec![machine(1)]).fails(&[
        "1 control planes wanted, 0 present",
        "of role gpu",
        "1 of other roles",
    ]);
}

/// "Choose a node template with the smallest number of servers than the specified weight."
#[test]
fn workers_are_in_the_ratio_of_the_weights() {
    let mut machines = all(1..=30);
    for (i, m) in machines.iter_mut().enumerate() {
        ["cs", "ss", "gpu"][i % 3].clone_into(&mut m.role);
    }
    let plan = Scene::new(&["cs", "cs:6", "ss:3", "gpu:1"], 1, (10, 0), machines).plan().unwrap();
    let count = |role: &str| plan.nodes.iter().filter(|c| c.control_plane == Some(false) && c.role == role).count();
    assert_eq!((count("cs"), count("ss"), count("gpu")), (6, 3, 1));
    let third = plan.nodes.iter().find(|c| c.role == "ss").unwrap().why.to_string();
    assert!(third.contains("role ss was next (0 at weight 3)"), "{third}");
}

/// "The algorithm fails when available healthy nodes are not enough to satisfy constraints."
#[test]
fn too_few_machines_are_an_error_with_names_and_numbers() {
    Scene::new(&ANY, 3, (1, 0), vec![machine(1), machine(2), machine(3).is(Unhealthy)])
        .fails(&["3 control planes wanted, 2 present", "1 not healthy"]);
    Scene::new(&["cs", "cs:1", "ss:1"], 1, (2, 0), vec![machine(1), machine(2), machine(3)]).fails(&[
        "at least 2 healthy workers wanted, 1 present",
        "role ss",
        "next by weight 1",
    ]);
}

/// "If the current cluster contains nodes that no longer exist in the list, they are removed. New nodes may be added to
/// satisfy constraints."
#[test]
fn non_existent_nodes_are_removed_first_and_filled_up() {
    let scene = Scene::new(&ANY, 3, (2, 0), all(1..=6)).with(&[1, 2, 9], &[3, 8]);
    let plan = scene.gives(Action::RemoveNonExistent, &[1, 2, 4], &[3, 5]);
    assert!(plan.reason.contains("10.0.0.9, 10.0.0.8"), "{}", plan.reason);
    assert_eq!(of(&plan, 9).control_plane, None);
    assert!(of(&plan, 9).why.to_string().contains("sabakan no longer has it"));
}

/// SAB-34: "If too many control plane nodes would be removed, this algorithm cannot work": at least half.
#[test]
fn half_of_the_control_plane_is_never_removed() {
    for (planes, ok) in
        [(&[1_u8, 2, 9][..], true), (&[1, 9], false), (&[9], false), (&[1, 2, 8, 9], false), (&[1, 2, 3, 8, 9], true)]
    {
        let count = i64::try_from(planes.len()).unwrap();
        let scene = Scene::new(&ANY, count, (0, 0), all(1..=7)).with(planes, &[]);
        if ok {
            assert_eq!(scene.plan().unwrap().action, Action::RemoveNonExistent, "{planes:?}");
        } else {
            scene.fails(&["are no longer in sabakan's answer (10.0.0", "would break it", "cluster set"]);
        }
    }
    Scene::new(&ANY, 1, (0, 0), all(1..=2)).with(&[], &[1]).fails(&["has no control plane"]);
}

/// "When control-plane-count constraint is increased, control plane nodes are added. If there are too few unused
/// machines and the number of worker nodes are greater than minimum-workers, existing healthy worker nodes are
/// changed."
#[test]
fn control_planes_are_added_from_unused_machines_then_from_workers() {
    Scene::new(&ANY, 3, (1, 0), all(1..=5)).with(&[1], &[2]).gives(Action::IncreaseControlPlane, &[1, 3, 4], &[2]);
    let mut machines = all(1..=4);
    machines[1].state = Unhealthy;
    let scene = Scene::new(&ANY, 2, (1, 0), machines.clone()).with(&[1], &[2, 3, 4]);
    let plan = scene.gives(Action::IncreaseControlPlane, &[1, 3], &[2, 4]);
    assert!(
        of(&plan, 3)
            .why
            .to_string()
            .starts_with("becomes a control plane: 1 of 2 present, and no unused machine is left")
    );
    Scene::new(&ANY, 2, (3, 0), machines).with(&[1], &[2, 3, 4]).fails(&["2 control planes wanted, 1 present"]);
}

/// "When control-plane-count constraint is decreased, control plane nodes are changed to non-control-plane nodes".
/// Those with the lowest scores are changed; "if the machine is not healthy, -30".
#[test]
fn the_worst_control_planes_become_workers() {
    let machines = vec![machine(1).days(-300), machine(2).is(Updating), machine(3).rack(1), machine(4)];
    let plan = Scene::new(&ANY, 2, (0, 0), machines).with(&[1, 2, 3], &[4]).gives(
        Action::DecreaseControlPlane,
        &[1, 3],
        &[4, 2],
    );
    let why = of(&plan, 2).why.to_string();
    assert!(
        why.contains(
            "score -32 (+0 for 0 days of lifetime, -2 for 2 control planes in rack 0, -30 for not being healthy)"
        ),
        "{why}"
    );
}

/// SAB-36: "If the total number of worker nodes exceeds maximum-workers, existing worker nodes are removed". As in
/// recorded runs of CKE, demoted control planes leave first.
#[test]
fn demoted_control_planes_leave_where_there_may_be_no_more_workers() {
    let machines = vec![machine(1), machine(2), machine(3).days(300), machine(4).days(-2000), machine(5)];
    let plan =
        Scene::new(&ANY, 1, (1, 2), machines).with(&[1, 2, 3], &[4]).gives(Action::DecreaseControlPlane, &[3], &[4, 1]);
    assert!(of(&plan, 2).why.to_string().starts_with("leaves, because maximum-workers is reached"));
    // equal scores: the definition's order
    assert_eq!((of(&plan, 1).score, of(&plan, 2).score), (Some(-3), Some(-2)));
    let over = Scene::new(&ANY, 1, (1, 1), all(1..=4)).with(&[1, 2], &[3, 4]);
    over.gives(Action::DecreaseControlPlane, &[2], &[3]);
}

/// SAB-29: the order in which control planes leave.
#[test]
fn control_planes_with_equal_scores_are_demoted_in_definition_order() {
    Scene::new(&ANY, 1, (0, 0), all(1..=3)).with(&[3, 1, 2], &[]).gives(Action::DecreaseControlPlane, &[2], &[3, 1]);
    // 2 and 3 share a rack: 2 leaves. Then 3 and 1 are equal, and 3 is before 1 in the sorted list.
    let machines = vec![machine(1), machine(2).rack(1), machine(3).rack(1)];
    Scene::new(&ANY, 1, (0, 0), machines).with(&[1, 2, 3], &[]).gives(Action::DecreaseControlPlane, &[1], &[2, 3]);
}

/// SAB-29: of workers to promote, the first in the definition's order is taken.
#[test]
fn of_workers_with_equal_scores_the_first_in_the_definition_is_promoted() {
    let machines = vec![machine(1), machine(3), machine(4)];
    Scene::new(&ANY, 2, (1, 0), machines).with(&[1], &[4, 3]).gives(Action::IncreaseControlPlane, &[1, 4], &[3]);
}

/// SAB-30: a control plane that leaves no longer counts in its rack.
#[test]
fn a_bad_control_plane_is_not_counted_in_its_rack_when_its_successor_is_scored() {
    let machines = vec![machine(1).rack(1).is(Unreachable), machine(2), machine(3).rack(1), machine(4)];
    Scene::new(&ANY, 2, (1, 2), machines).with(&[1, 2], &[4, 3]).gives(Action::ReplaceControlPlane, &[2, 3], &[4, 1]);
}

/// SAB-42: a bad control plane without a successor is skipped, also if no more workers are allowed.
#[test]
fn a_bad_control_plane_without_a_successor_is_kept_at_the_worker_maximum() {
    let machines = vec![machine(1), machine(2).is(Unreachable), machine(3).is(Unhealthy)];
    let plan = Scene::new(&ANY, 2, (1, 1), machines).with(&[1, 2], &[3]).gives(Action::None, &[1, 2], &[3]);
    assert!(plan.reason.contains("no healthy machine can take its place"), "{}", plan.reason);
}

/// "If a control plane node is neither healthy, updating, or uninitialized, the node is demoted to a worker, and a new
/// machine is added as a control plane node."
#[test]
fn one_bad_control_plane_is_replaced_per_pass() {
    for state in State::ALL {
        let bad = !matches!(state, Healthy | Updating | Uninitialized);
        let machines = vec![machine(1), machine(2).is(state), machine(3).is(state), machine(4), machine(5)];
        let scene = Scene::new(&ANY, 3, (0, 0), machines).with(&[1, 2, 3], &[]);
        if bad {
            let plan = scene.gives(Action::ReplaceControlPlane, &[1, 3, 4], &[2]);
            assert!(
                plan.reason.contains(&format!("10.0.0.2 (SN02) is {state}: 10.0.0.4 (SN04) takes its place")),
                "{}",
                plan.reason
            );
        } else {
            scene.gives(Action::None, &[1, 2, 3], &[]);
        }
    }
}

/// SAB-40: "When there is no unused healthy machine, a healthy worker node is selected to promote". A single control
/// plane is not replaced.
#[test]
fn a_worker_is_promoted_where_no_machine_is_unused() {
    let machines = vec![machine(1), machine(2).is(Unreachable), machine(3).is(Unhealthy).days(2000), machine(4)];
    Scene::new(&ANY, 2, (1, 0), machines.clone()).with(&[1, 2], &[3, 4]).gives(
        Action::ReplaceControlPlane,
        &[1, 4],
        &[3, 2],
    );
    Scene::new(&ANY, 1, (1, 0), machines.clone()).with(&[2], &[4]).gives(Action::None, &[2], &[4]);
    let plan =
        Scene::new(&ANY, 2, (1, 0), machines[..3].to_vec()).with(&[2, 1], &[3]).gives(Action::None, &[2, 1], &[3]);
    assert!(
        plan.reason.contains("10.0.0.2 (SN02) is unreachable, and no healthy machine can take its place"),
        "{}",
        plan.reason
    );
}

/// SAB-41: at `maximum-workers` the bad control plane and a healthy worker change places, or the bad one leaves.
#[test]
fn at_the_worker_maximum_a_bad_control_plane_is_swapped_or_removed() {
    let machines = vec![machine(1), machine(2).is(Unreachable), machine(3), machine(4)];
    Scene::new(&ANY, 2, (1, 1), machines).with(&[1, 2], &[3]).gives(Action::ReplaceControlPlane, &[1, 3], &[2]);
    let machines = vec![machine(1), machine(2).is(Unreachable), machine(3).is(Unhealthy), machine(4)];
    let plan =
        Scene::new(&ANY, 2, (1, 1), machines).with(&[1, 2], &[3]).gives(Action::ReplaceControlPlane, &[1, 4], &[3]);
    assert!(of(&plan, 2).why.to_string().contains("leaves: it is unreachable, and maximum-workers is reached"));
}

/// "If the number of healthy worker nodes is less than minimum-workers and the total number of worker nodes is less
/// than maximum-workers, new worker nodes are added."
#[test]
fn workers_are_added_for_those_that_are_not_healthy() {
    let machines =
        vec![machine(1), machine(2).is(Unhealthy), machine(3).is(Updating), machine(4), machine(5), machine(6)];
    let scene = |most| Scene::new(&ANY, 1, (2, most), machines.clone()).with(&[1], &[2, 3]);
    scene(0).gives(Action::IncreaseWorkers, &[1], &[2, 3, 4, 5]);
    scene(3).gives(Action::IncreaseWorkers, &[1], &[2, 3, 4]);
    scene(2).gives(Action::None, &[1], &[2, 3]);
    let plan =
        Scene::new(&ANY, 1, (2, 0), machines[..3].to_vec()).with(&[1], &[2, 3]).gives(Action::None, &[1], &[2, 3]);
    assert!(plan.reason.contains("at least 2 healthy workers wanted, 0 present"), "{}", plan.reason);
}

/// "If a worker node is either retiring or retired for a while, it is removed if the number of workers is greater than
/// minimum-workers, or replaced with a new machine if available, otherwise it is left untouched."
#[test]
fn retired_workers_are_removed_replaced_or_kept() {
    for (state, duration, leaves) in
        [(Retiring, 300.0, true), (Retired, 300.0, true), (Retired, 299.9, false), (Unhealthy, 9e9, false)]
    {
        let machines =
            vec![machine(1), machine(2).is(state).since(duration), machine(3), machine(4).is(state).since(duration)];
        let scene = Scene::new(&ANY, 1, (1, 0), machines).with(&[1], &[2, 3, 4]);
        if leaves {
            scene.gives(Action::DecreaseWorkers, &[1], &[3, 4]);
        } else {
            scene.gives(Action::None, &[1], &[2, 3, 4]);
        }
    }
    // at the minimum, which counts healthy workers
    let machines = vec![machine(1), machine(2).is(Retired), machine(3).is(Unhealthy), machine(4)];
    let scene = Scene::new(&ANY, 1, (2, 2), machines.clone()).with(&[1], &[2, 3]);
    let plan = scene.gives(Action::DecreaseWorkers, &[1], &[3, 4]);
    assert!(
        plan.reason.contains("10.0.0.2 (SN02) has been retired for 1000 s: 10.0.0.4 (SN04) takes its place"),
        "{}",
        plan.reason
    );
    let plan =
        Scene::new(&ANY, 1, (2, 2), machines[..3].to_vec()).with(&[1], &[2, 3]).gives(Action::None, &[1], &[2, 3]);
    assert!(plan.reason.contains("is left untouched"), "{}", plan.reason);
}

/// SAB-63; "for other machine states, the taint is removed".
#[test]
fn nodes_are_tainted_by_their_states() {
    for (state, wanted) in [
        (Unhealthy, "unhealthy:NoSchedule"),
        (Unreachable, "unreachable:NoSchedule"),
        (Retiring, "retiring:NoExecute"),
        (Retired, "retired:NoExecute"),
        (Healthy, ""),
        (Updating, ""),
        (Uninitialized, ""),
    ] {
        for before in State::ALL {
            let mut scene = Scene::new(&ANY, 1, (0, 0), vec![machine(1).is(before)]).with(&[1], &[]);
            scene.machines[0].state = state;
            let right = super::super::state_taint::state_taint(before, Strategy::Weighted).is_none()
                && wanted.is_empty()
                || before == state;
            if right {
                scene.gives(Action::None, &[1], &[]);
            } else {
                let plan = scene.gives(Action::TaintNodes, &[1], &[]);
                assert_eq!(taint(&plan, 1), wanted, "{before} → {state}");
                assert!(plan.reason.starts_with("10.0.0.1 is "), "{}", plan.reason);
            }
        }
    }
}

/// "When the configuration template is updated, CKE will soon regenerate the cluster configuration."
#[test]
fn a_newer_template_regenerates_the_same_nodes_when_nothing_else_is_to_do() {
    let mut scene = Scene::new(&ANY, 1, (1, 0), all(1..=3)).with(&[1], &[2]);
    scene.template_changed = true;
    scene.gives(Action::Regenerate, &[1], &[2]);
    scene.machines[1].state = Unhealthy;
    scene.gives(Action::IncreaseWorkers, &[1], &[2, 3]);
}

/// The order of the seven actions. In each of these scenes two conditions hold, and the first action is taken.
#[test]
fn the_first_applicable_action_is_taken() {
    let bad = |n: u8, state| machine(n).is(state);
    let scene = Scene::new(&ANY, 3, (1, 0), all(1..=8)).with(&[1, 2, 20], &[3]);
    scene.gives(Action::RemoveNonExistent, &[1, 2, 4], &[3]);
    let machines = vec![bad(1, Unhealthy), machine(2), machine(3), machine(4)];
    Scene::new(&ANY, 3, (1, 0), machines.clone()).with(&[1, 2], &[3]).gives(
        Action::IncreaseControlPlane,
        &[1, 2, 4],
        &[3],
    );
    Scene::new(&ANY, 1, (1, 0), machines.clone()).with(&[1, 2], &[3]).gives(
        Action::DecreaseControlPlane,
        &[2],
        &[3, 1],
    );
    let machines = vec![bad(1, Unhealthy), machine(2), bad(3, Unhealthy), machine(4), machine(5)];
    Scene::new(&ANY, 2, (1, 0), machines).with(&[1, 2], &[3]).gives(Action::ReplaceControlPlane, &[2, 4], &[3, 1]);
    let machines = vec![machine(1), bad(2, Retired), machine(3), machine(4)];
    Scene::new(&ANY, 1, (2, 0), machines).with(&[1], &[2, 3]).gives(Action::IncreaseWorkers, &[1], &[2, 3, 4]);
    let mut scene = Scene::new(&ANY, 1, (1, 0), vec![machine(1), bad(2, Retired), machine(3)]).with(&[1], &[2, 3]);
    scene.machines[2].state = Unhealthy;
    scene.machines.push(machine(4));
    scene.gives(Action::IncreaseWorkers, &[1], &[2, 3, 4]);
}

/// SAB-31: the CKE of 2019 counts the workers of the current definition, cketerm those of the definition being built.
/// Recorded scenarios w215, w225 and w465 differ by this.
#[test]
fn shares_are_counted_in_the_definition_being_built() {
    let machines = vec![machine(1), machine(2), machine(3).role("ss")];
    let mut scene = Scene::new(&["cs", "cs:1", "ss:1"], 1, (1, 0), machines).with(&[1], &[9]);
    let vanished = &mut scene.current.as_mut().unwrap().nodes[1];
    vanished.labels = Some(BTreeMap::from([("cke.cybozu.com/role".to_owned(), "cs".to_owned())]));
    scene.gives(Action::RemoveNonExistent, &[1], &[2]);
}
