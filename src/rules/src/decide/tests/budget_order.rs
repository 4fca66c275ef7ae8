//! Order of workers that respects budgets (policy `worker_order`).

use std::sync::Arc;

use cketerm_model::{entry::EntryId, policy::WorkerOrder, reason::Reason};

use super::scene::Scene;

/// Workers 11 to 15, each with a pod of the budget of this name that allows one eviction; three reboots at once.
fn sharing(budgets: [&str; 5]) -> Scene {
    let mut scene = Scene::new(5).with(|s| {
        s.cluster.reboot.max_concurrent_reboots = Some(3);
        s.constraints.maximum_unreachable_nodes_for_reboot = 9;
        s.policy.worker_order = WorkerOrder::Budgets;
    });
    for (node, name) in (11_u8..).zip(budgets) {
        let label = [("app".to_owned(), name.to_owned())].into();
        scene = scene.pod(node, &format!("pod-{node}"), |p| p.labels = label).budget(name, name);
    }
    allow(scene, 1)
}

fn allow(scene: Scene, allowed: i32) -> Scene {
    scene.with(|s| {
        let names: Vec<(String, String)> = s.kube.budgets.keys().cloned().collect();
        for name in names {
            Arc::make_mut(s.kube.budgets.get_mut(&name).unwrap()).allowed = allowed;
        }
    })
}

const ALL: [(u64, u8); 5] = [(0, 11), (1, 12), (2, 13), (3, 14), (4, 15)];

fn waits(budget: &str, holder: u64) -> Reason {
    Reason::WaitingForBudget { budget: format!("shop/{budget}"), holder: EntryId::reboot(holder), overtaken: false }
}

#[test]
fn nodes_that_share_an_exhausted_budget_start_one_after_the_other() {
    let scene = sharing(["a", "a", "b", "a", "c"]).queued(&ALL);
    assert_eq!(scene.starts(), [0, 2, 4]);
    assert_eq!((scene.reason(1), scene.reason(3)), (waits("a", 0), waits("a", 0)));
    assert_eq!(allow(scene.clone(), 2).starts(), [0, 1, 2], "the budget allows two of its pods at once");
    let by_queue = scene.with(|s| s.policy.worker_order = WorkerOrder::Queue);
    assert_eq!(by_queue.starts(), [0, 1, 2], "the order of the queue is the default");
}

#[test]
fn a_node_alone_with_its_budget_starts_whatever_the_budget_allows() {
    let closed = allow(sharing(["a", "b", "c", "d", "e"]), 0).queued(&ALL);
    assert_eq!(closed.starts(), [0, 1, 2], "the drain itself waits, or backs off with the cause");
}

#[test]
fn a_drain_in_progress_holds_its_budgets_until_its_pods_have_left() {
    let draining = sharing(["a", "a", "b", "c", "d"]).draining(0, 11, 1).queued(&[(1, 12), (2, 13)]);
    assert_eq!((draining.starts(), draining.reason(1)), (vec![2], waits("a", 0)));
    let left = draining.with(|s| {
        s.kube.pods.get_mut("10.0.0.11").unwrap().pods.remove("uid-pod-11").unwrap();
    });
    assert_eq!(left.starts(), [1, 2]);
}

#[test]
fn an_entry_is_overtaken_by_no_index_beyond_the_bound() {
    let scene = sharing(["a", "a", "b", "c", "d"]).queued(&ALL).with(|s| s.policy.max_overtakes = 1);
    assert_eq!(scene.starts(), [0, 2], "entry 1 waits, entry 2 overtakes it, entry 3 may not");
    let behind = Reason::WaitingForBudget { budget: String::new(), holder: EntryId::reboot(1), overtaken: true };
    assert_eq!(scene.reason(3), behind);
    assert!(behind.to_string().starts_with("waits behind reboots/1: only"));
}

#[test]
fn a_candidate_waits_until_its_pods_are_listed() {
    let scene = sharing(["a", "b", "c", "d", "e"]).queued(&ALL).with(|s| {
        s.kube.pods.get_mut("10.0.0.11").unwrap().synced = false;
    });
    assert_eq!(scene.starts(), [1, 2, 3]);
    let watched = scene.decide().watch_pods;
    assert!(watched.contains("10.0.0.11") && watched.contains("10.0.0.15"), "the pods of candidates are watched");
}
