//! One rack at a time, and the next one when a rack is stuck (policy `groups`).

use cketerm_model::{
    attempt::Ended, entry::EntryId, freeze::Groups, labels::Labels, reason::Reason, reboot::RebootStatus::Rebooting,
};

use super::scene::Scene;

/// Workers 11 and 12 in rack a, 13 and 14 in rack b, 15 without a rack; five reboots at once.
fn racks(limit: u32) -> Scene {
    Scene::new(5).with(|s| {
        s.cluster.reboot.max_concurrent_reboots = Some(5);
        // The limit of unreachable nodes must not matter here.
        s.constraints.maximum_unreachable_nodes_for_reboot = 9;
        for (i, node) in s.cluster.nodes.iter_mut().filter(|n| !n.control_plane).enumerate() {
            let rack = ["a", "a", "b", "b"].get(i);
            node.labels = rack.map(|rack| [("cke.cybozu.com/rack".to_owned(), (*rack).to_owned())].into());
        }
        s.policy.groups = Some(Groups::read(&format!("{{by: rack, limit: {limit}}}")).unwrap());
    })
}

fn waits(group: &str, holder: u64) -> Reason {
    Reason::WaitingForGroup { by: "rack".to_owned(), group: group.to_owned(), holder: EntryId::reboot(holder) }
}

#[test]
fn one_group_is_processed_completely_before_the_next() {
    let scene = racks(1).queued(&[(0, 11), (1, 13), (2, 12), (3, 15)]);
    assert_eq!(scene.starts(), [0, 2]);
    assert_eq!((scene.reason(1), scene.reason(3)), (waits("a", 0), waits("a", 0)));
    assert_eq!(racks(2).queued(&[(0, 11), (1, 13), (2, 12), (3, 15)]).starts(), [0, 1, 2]);
    assert_eq!(
        racks(3).queued(&[(0, 11), (1, 13), (2, 12), (3, 15)]).starts(),
        [0, 1, 2, 3],
        "a machine without a rack is its own group"
    );
}

#[test]
fn i30_the_next_group_starts_when_the_current_one_has_ended() {
    let scene = racks(1).rebooting(0, 11, 60, Some(Ended::Exit(0))).queued(&[(1, 13), (2, 14)]);
    assert!(scene.starts().is_empty());
    assert_eq!(racks(1).queued(&[(1, 13), (2, 14)]).starts(), [1, 2]);
}

#[test]
fn a_stuck_group_does_not_block_the_next_and_continues_last() {
    let stuck = |age| racks(1).rebooting(0, 11, age, Some(Ended::Exit(0))).queued(&[(1, 12), (2, 13)]);
    assert_eq!(stuck(1799).starts(), [1], "its own rack continues");
    let scene = stuck(1800);
    assert_eq!(scene.starts(), [2], "the next rack starts");
    assert_eq!(scene.reason(1), waits("a", 0));
    let alone = racks(1).rebooting(0, 11, 1800, Some(Ended::Exit(0))).queued(&[(1, 12)]);
    assert_eq!(alone.starts(), [1], "no other rack has an entry to start");
    let next = racks(1).rebooting(0, 11, 1800, Some(Ended::Exit(0))).rebooting(1, 13, 5, Some(Ended::Exit(0)));
    let next = next.queued(&[(2, 12), (3, 14)]);
    assert_eq!((next.starts(), next.reason(2)), (vec![3], waits("b", 1)));
}

#[test]
fn a_finally_failed_or_unknown_command_makes_its_group_stuck() {
    for end in [Some(Ended::Exit(1)), Some(Ended::Unknown("lost".to_owned()))] {
        let scene = racks(1).rebooting(0, 11, 5, end).queued(&[(1, 13)]);
        assert_eq!(scene.starts(), [1]);
    }
    let retries = racks(1).with(|s| s.cluster.reboot.command_retries = Some(1));
    let scene = retries.rebooting(0, 11, 5, Some(Ended::Exit(1))).queued(&[(1, 13)]);
    assert!(scene.starts().is_empty(), "the command has a retry left");
    // A reboot that another program began.
    assert_eq!(racks(1).entry(0, 11, Rebooting, 5).cordoned(11, 0).queued(&[(1, 13)]).starts(), [1]);
}

#[test]
fn a_group_with_only_backoffs_is_not_in_progress() {
    let scene = racks(1).queued(&[(0, 11), (1, 13)]).change(0, |e| {
        e.drain_backoff_count = 1;
        e.drain_backoff_expire = Some(cketerm_model::time::after(super::scene::now(), 100));
    });
    assert_eq!(scene.starts(), [1]);
}

#[test]
fn a_stored_group_limit_of_zero_counts_as_one() {
    let scene = racks(1).with(|s| s.policy.groups.as_mut().unwrap().limit = 0).queued(&[(0, 11), (1, 13)]);
    assert_eq!(scene.starts(), [0]);
}

/// The definition of sabakan may have an empty map. The Node knows its rack.
#[test]
fn a_machine_without_labels_in_the_definition_has_the_rack_of_its_node() {
    let scene = racks(1).with(|s| {
        for node in s.cluster.nodes.iter_mut().filter(|n| !n.control_plane) {
            node.labels = Some(Labels::default());
        }
    });
    let rack = |scene: Scene, last, rack: &str| {
        scene.node(last, |n| n.shown_labels = vec![("cke.cybozu.com/rack".to_owned(), rack.to_owned())])
    };
    let scene = rack(rack(scene, 11, "a"), 12, "b").queued(&[(0, 11), (1, 12)]);
    assert_eq!(scene.starts(), [0]);
    assert_eq!(scene.reason(1), waits("a", 0));
}
