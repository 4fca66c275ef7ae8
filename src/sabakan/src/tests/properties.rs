//! Properties of any data centre: constraints are kept or there is an error; a fixpoint is reached and stays; the order
//! of the input does not matter; healthy control planes never decrease without a reason.

use proptest::prelude::{ProptestConfig, Strategy as _, prop, prop_assert, prop_assert_eq, proptest};

use super::*;

const ROLES: [&str; 3] = ["cs", "ss", "odd"];

fn machines() -> impl proptest::strategy::Strategy<Value = Vec<Machine>> {
    let one = (0..4_i64, 0..3_usize, 0..12_usize, -5..6_i64, prop::bool::ANY);
    prop::collection::vec(one, 0..18).prop_map(|list| {
        let each = list.into_iter().enumerate().map(|(i, (rack, role, state, life, long))| {
            let n = u8::try_from(i + 1).unwrap();
            // most machines are healthy
            let state = State::ALL.get(state).copied().unwrap_or(State::Healthy);
            machine(n).rack(rack).role(ROLES[role]).is(state).days(life * 220).since(if long { 900.0 } else { 10.0 })
        });
        each.collect()
    })
}

fn scenes() -> impl proptest::strategy::Strategy<Value = Scene> {
    let kinds = prop::sample::select(vec![
        vec!["", ""],
        vec!["cs", ""],
        vec!["cs", "cs:2", "ss:1"],
        vec!["", "cs:1", "ss:0.3"],
        vec!["cs", "cs"],
    ]);
    let current = prop::option::of(prop::collection::vec(0..5_u8, 18));
    let taints = prop::bool::ANY;
    (machines(), kinds, 1..5_i64, 0..6_i64, 0..4_i64, current, prop::collection::btree_set(1..19_u8, 0..3), taints)
        .prop_map(|(machines, kinds, planes, least, more, current, rebooting, healthy)| {
            let most = if more == 0 { 0 } else { least + more };
            let mut scene = Scene::new(&kinds, planes, (least, most), machines);
            if healthy {
                scene.strategy = Strategy::AllHealthy;
            }
            if let Some(places) = current {
                let at = |wanted: &[u8]| -> Vec<u8> {
                    (1..19_u8).filter(|n| wanted.contains(&places[usize::from(*n) - 1])).collect()
                };
                scene = scene.with(&at(&[0]), &at(&[1, 2]));
            }
            scene.rebooting(&rebooting.into_iter().collect::<Vec<_>>())
        })
}

fn healthy_planes(scene: &Scene, cluster: &Cluster) -> usize {
    let healthy = |address: &str| {
        scene.machines.iter().any(|m| m.address == address && (m.healthy() || scene.rebooting.contains(address)))
            || scene.rebooting.contains(address)
    };
    cluster.nodes.iter().filter(|n| n.control_plane && healthy(&n.address)).count()
}

fn exists(scene: &Scene, address: &str) -> bool {
    scene.machines.iter().any(|m| m.address == address) || scene.rebooting.contains(address)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// "User-specified constraints must be satisfied": a new definition satisfies them, or there is an error.
    #[test]
    fn a_new_definition_keeps_the_constraints(scene in scenes()) {
        let Ok(plan) = scene.plan() else { return Ok(()) };
        let Some(cluster) = &plan.cluster else { return Ok(()) };
        let planes = cluster.nodes.iter().filter(|n| n.control_plane).count();
        let workers = cluster.nodes.len() - planes;
        let limit = |n: Option<i64>| usize::try_from(n.unwrap()).unwrap();
        prop_assert!(planes >= usize::try_from(scene.constraints.control_plane_count).unwrap());
        let mut addresses: Vec<&str> = cluster.nodes.iter().map(|n| n.address.as_str()).collect();
        prop_assert!(addresses.iter().all(|a| exists(&scene, a)), "only machines that exist");
        addresses.sort_unstable();
        addresses.dedup();
        prop_assert_eq!(addresses.len(), cluster.nodes.len(), "no machine twice");
        prop_assert!(cluster.nodes.is_sorted_by_key(|n| !n.control_plane), "control planes come first");
        if scene.strategy == Strategy::Weighted {
            prop_assert!(workers >= limit(scene.constraints.minimum_workers));
            let most = limit(scene.constraints.maximum_workers);
            let before = scene.current.as_ref().map_or(0, |c| c.nodes.iter().filter(|n| !n.control_plane).count());
            prop_assert!(most == 0 || workers <= most.max(before), "{workers} workers, {most} allowed, {before} before");
        }
    }

    /// Repeated passes over unchanged machines reach a fixpoint and stay there.
    #[test]
    fn repeated_planning_reaches_a_stable_definition(scene in scenes()) {
        let mut scene = scene;
        for _ in 0..60 {
            match scene.plan() {
                Err(_) => return Ok(()),
                Ok(plan) if plan.changed => scene.current = plan.cluster,
                Ok(plan) => {
                    prop_assert_eq!(plan.action, Action::None);
                    prop_assert_eq!(scene.plan().unwrap().cluster, None);
                    return Ok(());
                }
            }
        }
        prop_assert!(false, "after 60 passes: {:?}", scene.plan().map(|p| (p.action, p.reason)));
    }

    /// SAB-21: the order of sabakan's list does not matter.
    #[test]
    fn the_order_of_the_machines_does_not_matter(scene in scenes(), seed in 0..1000_usize) {
        let before = scene.plan();
        let mut other = scene;
        let n = other.machines.len();
        for i in 0..n {
            other.machines.swap(i, (i * 7 + seed) % n);
        }
        let after = other.plan();
        match (before, after) {
            (Ok(a), Ok(b)) => {
                prop_assert_eq!(a.cluster, b.cluster);
                prop_assert_eq!((a.action, a.reason), (b.action, b.reason));
            }
            (a, b) => prop_assert_eq!(a.err(), b.err()),
        }
    }

    /// Healthy control planes never decrease unless the operator wants fewer. Half of etcd's members never leave at
    /// once.
    #[test]
    fn healthy_control_planes_stay(scene in scenes()) {
        let (Some(before), Ok(plan)) = (&scene.current, scene.plan()) else { return Ok(()) };
        let Some(after) = &plan.cluster else { return Ok(()) };
        if plan.action == Action::DecreaseControlPlane {
            return Ok(());
        }
        prop_assert!(healthy_planes(&scene, after) >= healthy_planes(&scene, before), "{}", plan.reason);
        let was: Vec<&str> = before.nodes.iter().filter(|n| n.control_plane).map(|n| n.address.as_str()).collect();
        let kept = after.nodes.iter().filter(|n| n.control_plane && was.contains(&n.address.as_str())).count();
        prop_assert!(kept * 2 >= was.len(), "{kept} of {} kept: {}", was.len(), plan.reason);
        let replaced = was.iter().filter(|a| exists(&scene, a)).count() - kept;
        prop_assert!(replaced <= 1, "one control plane a pass: {}", plan.reason);
    }

    /// SAB-24: "Rebooting machines should not be removed from the cluster nor be tainted."
    #[test]
    fn rebooting_machines_stay_and_get_no_taint(scene in scenes()) {
        let (Some(before), Ok(plan)) = (&scene.current, scene.plan()) else { return Ok(()) };
        let Some(after) = &plan.cluster else { return Ok(()) };
        for node in before.nodes.iter().filter(|n| scene.rebooting.contains(&n.address)) {
            let now = after.nodes.iter().find(|n| n.address == node.address);
            prop_assert!(now.is_some_and(|n| n.control_plane == node.control_plane), "{} is gone: {}", node.address, plan.reason);
            let taints = |n: &cketerm_model::cluster::Node| super::super::state_taint::state_taints(n).cloned().collect::<Vec<_>>();
            prop_assert_eq!(taints(now.unwrap()), taints(node));
        }
    }
}
