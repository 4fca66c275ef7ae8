//! The leader passes the lock on before the Node of its own pod is drained (SAF-41).

use cketerm_model::{
    cketerm_records::{EngineMode, EngineRegistration},
    names::NodeName,
    reason::Reason,
    stored::view::Candidate,
};

use super::scene::{LEASE, Scene, stored};

impl Scene {
    /// Registers another engine on the Node of this worker, or outside the cluster.
    fn engine(mut self, lease: i64, worker: Option<u8>, change_fn: impl FnOnce(&mut EngineRegistration)) -> Self {
        let text = serde_json::json!({"host": format!("pod-{lease}"), "pid": 1, "version": "0.2.0", "mode": "daemon",
            "probes_seen": true, "etcd_members_seen": true});
        let mut registration: EngineRegistration = serde_json::from_value(text).unwrap();
        registration.node = worker.map(|last| NodeName::new(format!("10.0.0.{last}")));
        change_fn(&mut registration);
        self.store.engines.insert(lease, stored("engine", 5, registration));
        self.candidate(LEASE, 2).candidate(lease, lease)
    }

    fn candidate(mut self, lease: i64, create_revision: i64) -> Self {
        let key = format!("leader//{lease:x}");
        let candidate = Candidate { key, lease, host: format!("pod-{lease}"), create_revision };
        self.store.candidates.insert(create_revision, candidate);
        self
    }
}

/// The leader's pod is on worker 11, which is queued, and so is worker 12. Two may be in reboot.
fn scene() -> Scene {
    Scene::new(4).queued(&[(0, 11), (1, 12)]).with(|s| {
        s.cluster.reboot.max_concurrent_reboots = Some(2);
        s.constraints.maximum_unreachable_nodes_for_reboot = 9;
        s.snap.engine.node = Some(NodeName::new("10.0.0.11"));
    })
}

#[test]
fn saf41_the_lock_passes_to_a_complete_engine_elsewhere_before_the_own_node_is_drained() {
    for worker in [Some(13), None] {
        let passes = scene().engine(8, worker, |_| {});
        assert_eq!(passes.starts(), [1], "other machines start");
        assert_eq!(passes.reason(0), Reason::LeaderOnNode { to: "pod-8".to_owned() });
        assert_eq!(passes.decide().pass_lock.as_deref(), Some("pod-8"));
    }
    let later = scene().engine(8, Some(13), |_| {}).with(|s| s.cluster.reboot.max_concurrent_reboots = Some(1));
    let full = later.rebooting(7, 14, 5, Some(cketerm_model::attempt::Ended::Exit(0)));
    assert_eq!(full.decide().pass_lock, None, "the entry would not start now");
}

#[test]
fn saf41_without_another_engine_that_can_take_over_the_drain_starts() {
    let alone = vec![
        scene(),
        scene().engine(LEASE, Some(13), |_| {}),
        scene().engine(8, Some(11), |_| {}),
        scene().engine(8, Some(13), |engine| engine.probes_seen = false),
        scene().engine(8, Some(13), |engine| engine.standing_back = Some("it waits".to_owned())),
        scene().engine(8, Some(13), |_| {}).node(13, |node| node.unschedulable = true),
        scene().engine(8, Some(13), |engine| engine.mode = EngineMode::Console),
        // the oldest candidate gets the lock, and it is CKE
        scene().engine(8, Some(13), |_| {}).candidate(5, 5),
        scene().engine(8, Some(99), |_| {}),
    ];
    for (place, scene) in alone.into_iter().enumerate() {
        assert!(scene.starts().contains(&0), "{place}: {:?}", scene.reason(0));
        assert_eq!(scene.decide().pass_lock, None, "{place}");
    }
    let elsewhere = scene().engine(8, Some(13), |_| {}).with(|s| s.snap.engine.node = None);
    assert_eq!(elsewhere.starts(), [0, 1], "an engine outside the cluster");
}

#[test]
fn saf41_two_engines_whose_nodes_are_both_queued_are_not_drained_at_once() {
    let both = scene().engine(8, Some(12), |_| {});
    assert!(both.starts().is_empty(), "the node of the next leader waits until it leads");
    assert_eq!(both.decide().pass_lock.as_deref(), Some("pod-8"));
    // in the other order the own node waits until the other engine's is back
    let busy = both.draining(1, 12, 5);
    assert!(!busy.starts().contains(&0) && busy.decide().pass_lock.is_none());
    assert_eq!(busy.reason(0), Reason::LeaderOnNode { to: "pod-8".to_owned() });
}

#[test]
fn saf41_a_repair_that_drains_the_own_node_waits_too() {
    let repair = |operation| {
        let scene = Scene::repairing(3).repair(0, 11, operation).engine(8, Some(13), |_| {});
        scene.with(|s| s.snap.engine.node = Some(NodeName::new("10.0.0.11")))
    };
    let drains = repair("drain");
    assert_eq!(drains.repair_reason(0), Reason::LeaderOnNode { to: "pod-8".to_owned() });
    assert!(drains.repairs(0).is_none() && drains.decide().pass_lock.as_deref() == Some("pod-8"));
    assert_eq!(repair("plain").decide().pass_lock, None, "nothing is evicted");
}
