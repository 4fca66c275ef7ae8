//! Rules for API servers.

use cketerm_model::{
    attempt::Ended,
    boot_time::Seconds,
    policy::ApiServerOrder,
    reason::Reason,
    reboot::RebootStatus::{Cancelled, Rebooting},
};

use super::scene::{BOOT, Scene};

fn first(scene: Scene) -> Scene {
    scene.with(|s| s.policy.api_server_order = ApiServerOrder::First)
}

fn wide(scene: Scene) -> Scene {
    scene.with(|s| s.cluster.reboot.max_concurrent_reboots = Some(5))
}

#[test]
fn i1_api_servers_are_processed_one_at_a_time() {
    let scene = wide(Scene::new(0)).queued(&[(0, 1), (1, 2), (2, 3)]);
    assert_eq!(scene.starts(), [0]);
    assert_eq!(scene.reason(1), Reason::WaitingForControlPlane { other: "10.0.0.1".to_owned() });
}

#[test]
fn i2_non_api_servers_are_processed_first() {
    let scene = wide(Scene::new(2)).queued(&[(0, 1), (1, 11), (2, 12)]);
    assert_eq!(scene.starts(), [1, 2]);
    assert!(matches!(scene.reason(0), Reason::WaitingForWorkers { .. }));
}

#[test]
fn i2_no_api_server_starts_while_a_worker_is_in_progress() {
    let scene = wide(Scene::new(2)).queued(&[(0, 1)]).entry(1, 11, Rebooting, 5);
    assert!(scene.starts().is_empty());
}

#[test]
fn i2_api_servers_are_not_processed_simultaneously_with_others() {
    let scene = wide(Scene::new(2)).entry(0, 1, Rebooting, 5).queued(&[(1, 11), (2, 2)]);
    assert!(scene.starts().is_empty());
    assert_eq!(scene.reason(1), Reason::WaitingForControlPlane { other: "10.0.0.1".to_owned() });
}

#[test]
fn a_worker_in_backoff_does_not_block_api_servers() {
    let scene = Scene::new(1).queued(&[(0, 11), (1, 1)]).change(0, |e| {
        e.drain_backoff_expire = Some(cketerm_model::time::after(super::scene::now(), 100));
    });
    assert_eq!(scene.starts(), [1]);
}

#[test]
fn order_first_processes_api_servers_first() {
    let scene = first(wide(Scene::new(2))).queued(&[(0, 11), (1, 1), (2, 12)]);
    assert_eq!(scene.starts(), [1]);
    assert!(matches!(scene.reason(0), Reason::WaitingForControlPlane { .. }));
}

#[test]
fn order_first_starts_no_worker_while_an_api_server_waits() {
    let scene = first(wide(Scene::new(3))).entry(0, 11, Rebooting, 5).queued(&[(1, 1), (2, 12)]);
    assert!(scene.starts().is_empty());
    assert!(matches!(scene.reason(1), Reason::WaitingForWorkers { .. }));
    assert!(matches!(scene.reason(2), Reason::WaitingForControlPlane { .. }));
}

#[test]
fn i7_no_api_server_starts_while_another_control_plane_is_unhealthy() {
    let not_ready = Scene::new(0)
        .with(|s| s.constraints.maximum_unreachable_nodes_for_reboot = 5)
        .queued(&[(0, 1)])
        .node(3, |n| n.ready = false);
    assert!(not_ready.starts().is_empty());
    assert!(matches!(not_ready.reason(0), Reason::ControlPlaneUnhealthy { node, .. } if node == "10.0.0.3"));
    let silent = Scene::new(0).queued(&[(0, 1)]).with(|s| {
        s.snap.probes.get_mut("10.0.0.2").unwrap().error = Some("503".to_owned());
    });
    assert!(
        matches!(silent.reason(0), Reason::ControlPlaneUnhealthy { node, why } if node == "10.0.0.2" && why.contains("503"))
    );
    let old = Scene::new(0).queued(&[(0, 1)]).with(|s| {
        s.snap.probes.get_mut("10.0.0.2").unwrap().last_good = Some(BOOT - Seconds::new(61.0));
    });
    assert!(matches!(old.reason(0), Reason::ControlPlaneUnhealthy { .. }));
}

#[test]
fn control_plane_health_does_not_gate_workers() {
    let scene = Scene::new(1).queued(&[(0, 11)]).with(|s| {
        s.snap.probes.get_mut("10.0.0.2").unwrap().error = Some("503".to_owned());
    });
    assert_eq!(scene.starts(), [0]);
}

#[test]
fn policy_probe_node_checks_only_node_readiness() {
    let scene = Scene::new(0).queued(&[(0, 1)]).with(|s| {
        s.policy.control_plane_probe = cketerm_model::policy::ControlPlaneProbe::Node;
        s.snap.probes.clear();
    });
    assert_eq!(scene.starts(), [0]);
}

#[test]
fn i1_a_cancelled_api_server_is_in_progress_until_it_is_back() {
    let cancelled = Scene::new(1)
        .entry(0, 1, Cancelled, 5)
        .cordoned(1, 0)
        .attempt(0, 1, 1, super::scene::LEASE, 10, Some(Ended::Exit(0)))
        .queued(&[(1, 2), (2, 11)]);
    assert!(cancelled.starts().is_empty());
    // The entry is removed, the cordon stays.
    let gone = cancelled.with(|s| {
        s.store.reboots.entries.remove(&0);
    });
    assert!(gone.starts().is_empty());
    assert!(gone.decide().orphans.contains_key("10.0.0.1"));
    let back = gone.booted(1);
    let words: Vec<_> = back.decide().effects.iter().map(|p| p.effect.as_str()).collect();
    assert!(words.contains(&"uncordoning"), "{words:?}");
}

#[test]
fn i1_an_api_server_under_repair_blocks_other_api_servers_but_no_worker() {
    let repair = serde_json::json!({"index": "4", "address": "10.0.0.3", "machine_type": "t", "operation": "o",
        "status": "processing", "step_status": "draining"});
    let scene = |queue: &[(u64, u8)]| {
        Scene::new(1).queued(queue).with(|s| {
            let value = Ok(std::sync::Arc::new(serde_json::from_value(repair.clone()).unwrap()));
            let stored = cketerm_model::entry::Stored { key: "k".to_owned(), mod_revision: 9, value };
            s.store.repairs.entries.insert(4, stored);
        })
    };
    assert!(scene(&[(0, 1)]).starts().is_empty());
    assert_eq!(scene(&[(0, 1), (1, 11)]).starts(), [1]);
}

/// The entry with the smaller index is processed while a later entry of the same API server is in progress already.
#[test]
fn i2_no_worker_starts_while_a_later_api_server_entry_is_in_progress() {
    for order in [ApiServerOrder::Last, ApiServerOrder::First] {
        let scene = Scene::new(2)
            .with(|s| {
                s.policy.api_server_order = order;
                s.cluster.reboot.max_concurrent_reboots = Some(3);
            })
            .queued(&[(0, 1), (1, 11)])
            .rebooting(5, 1, 5, Some(Ended::Exit(0)));
        assert!(!scene.starts().contains(&1), "{order:?}: a worker starts beside an API server");
        assert_eq!(scene.reason(1), Reason::WaitingForControlPlane { other: "10.0.0.1".to_owned() });
    }
}

/// Only a leader has probes. An observer leaves the health of the control plane to the leader's published reasons.
#[test]
fn an_observer_does_not_judge_api_servers_by_probes_that_it_lacks() {
    let follower = Scene::new(0).queued(&[(0, 1)]).led_by_another_engine();
    let follower = follower.with(|s| s.snap.probes.clear());
    assert_eq!(follower.reason(0), Reason::Ready);
}
