//! Uncordon of nodes whose entry is neither draining nor rebooting (REB-44).

use cketerm_model::{
    attempt::Ended,
    boot_time::{BootTime, Seconds},
    cketerm_records::Verb,
    reason::Reason,
    reboot::RebootStatus::{Cancelled, Rebooting},
};

use super::scene::{BOOT, LEASE, Scene};
use crate::{
    decide::{Decision, Effect},
    preflight_fault::PreflightFault,
};

/// Returns `(uncordon, drop_keep)` of the release of this node.
fn release(decision: &Decision, last: u8) -> Option<(bool, bool)> {
    decision.effects.iter().find(|p| p.machine == Scene::address(last)).and_then(|p| match &p.effect {
        Effect::Release { uncordon, drop_keep, .. } => Some((*uncordon, *drop_keep)),
        _ => None,
    })
}

#[test]
fn i10_our_cordon_is_removed_when_its_entry_is_requeued_or_gone() {
    let queued = Scene::new(1).queued(&[(0, 11)]).cordoned(11, 0).disabled();
    assert_eq!(release(&queued.decide(), 11), Some((true, false)));
    let gone = Scene::new(1).cordoned(11, 0);
    assert_eq!(release(&gone.decide(), 11), Some((true, false)));
}

#[test]
fn i10_ckes_annotation_without_an_owner_is_removed() {
    let scene = Scene::new(1).node(11, |n| {
        n.unschedulable = true;
        n.cke_mark = true;
    });
    assert_eq!(release(&scene.decide(), 11), Some((true, false)));
}

#[test]
fn saf4_in_another_cluster_and_by_unreadable_rules_nothing_is_uncordoned() {
    let with =
        |fault: PreflightFault| Scene::new(1).cordoned(11, 0).with(|scene| scene.snap.engine.observing = vec![fault]);
    let mismatch = PreflightFault::IdentityMismatch { recorded: "a".to_owned(), found: "b".to_owned() };
    for fault in [mismatch, PreflightFault::SchemaTooNew { found: 9, known: 2 }] {
        assert_eq!(release(&with(fault.clone()).decide(), 11), None, "{fault}");
    }
    let of_the_clock = PreflightFault::ClockDiffers { seconds: Seconds::new(9.0) };
    assert_eq!(release(&with(of_the_clock).decide(), 11), Some((true, false)));
}

#[test]
fn i5_i10_an_unreadable_entry_keeps_only_cordons_without_an_owner() {
    let scene = Scene::new(4)
        .queued(&[(7, 14)])
        .cordoned(12, 0)
        .node(11, |n| {
            n.unschedulable = true;
            n.cke_mark = true;
        })
        .with(|s| s.store.reboots.entries.get_mut(&7).unwrap().value = Err("not JSON".to_owned()));
    let decision = scene.decide();
    assert_eq!((release(&decision, 11), release(&decision, 12)), (None, Some((true, false))));
    let stays = &decision.orphans["10.0.0.11"];
    assert!(matches!(stays, Reason::InvalidEntry { why } if why.starts_with("reboots/7 ")), "{stays:?}");
    let ordered = scene.clone().order(7, Verb::Uncordon, 1);
    assert_eq!(release(&ordered.decide(), 11), None, "an order for the entry does not name this node");
    assert!(release(&scene.node(11, |n| n.unschedulable = false).decide(), 11).is_some(), "a person uncordoned it");
}

#[test]
fn i11_a_cordon_set_by_an_administrator_before_the_drain_stays() {
    let scene = Scene::new(1).cordoned(11, 0).owner(11, |o| o.schedulable_before = false);
    assert_eq!(release(&scene.decide(), 11), Some((false, false)));
}

#[test]
fn i12_a_cordon_with_keep_cordoned_stays() {
    let scene = Scene::new(1).cordoned(11, 0).node(11, |n| n.keep_cordoned = true);
    assert_eq!(release(&scene.decide(), 11), Some((false, true)));
}

#[test]
fn i13_nodes_of_draining_or_rebooting_entries_are_never_uncordoned() {
    let rebooting = Scene::new(1).rebooting(0, 11, 5, Some(Ended::Exit(0))).disabled();
    assert_eq!(release(&rebooting.decide(), 11), None);
    let draining = Scene::new(1).draining(0, 11, 5).disabled();
    assert_eq!(release(&draining.decide(), 11), None, "the entry is queued again first");
}

#[test]
fn i14_after_a_cancel_the_node_stays_cordoned_until_it_rebooted_and_is_ready() {
    let orphan = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(0)));
    let decision = orphan.decide();
    assert_eq!(release(&decision, 11), None);
    assert!(matches!(decision.orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert_eq!(release(&orphan.clone().booted(11).node(11, |n| n.ready = false).decide(), 11), None);
    assert_eq!(release(&orphan.clone().booted(11).decide(), 11), Some((true, false)));
    assert_eq!(release(&orphan.clone().order(0, Verb::Hold, 1).decide(), 11), None, "another order");
    assert_eq!(release(&orphan.order(0, Verb::Uncordon, 1).decide(), 11), Some((true, false)));
}

#[test]
fn i14_after_done_the_node_is_uncordoned_once_ready_whatever_its_boot_id() {
    // The Node was Ready when the entry ended, and went down before the uncordon.
    let marked_done =
        Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(0))).called_done(0, 1);
    assert_eq!(release(&marked_done.decide(), 11), Some((true, false)));
    let down = marked_done.node(11, |n| n.ready = false);
    let decision = down.decide();
    assert_eq!(release(&decision, 11), None);
    assert!(matches!(decision.orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert_eq!(release(&down.order(0, Verb::Uncordon, 1).decide(), 11), Some((true, false)));
}

/// `done` ends the entry at once, while the command of a dead leader may go on. Nothing happens to its machine before
/// that command has ended or cannot run any more.
#[test]
fn i14_after_done_the_cordon_stays_while_the_command_may_still_run() {
    let since = |ago| {
        let scene = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, 3, 60, None).called_done(0, 1);
        scene.with(|s| s.snap.engine.leading.as_mut().unwrap().since = super::scene::BOOT - Seconds::new(ago))
    };
    let young = since(1.0);
    assert_eq!(release(&young.decide(), 11), None, "the command may still run");
    assert!(matches!(young.decide().orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert!(young.clone().queued(&[(1, 11)]).starts().is_empty(), "the command keeps the machine from a new drain");
    assert_eq!(release(&since(101.0).decide(), 11), Some((true, false)), "the command's bound has passed");
    let ended = young.with(|s| {
        let closed = Scene::new(1).attempt(0, 11, 1, 3, 60, Some(Ended::Exit(0))).called_done(0, 1).store.attempts;
        s.store.attempts = closed;
    });
    assert_eq!(release(&ended.decide(), 11), Some((true, false)), "the command's result is known");
    assert_eq!(release(&ended.node(11, |n| n.ready = false).decide(), 11), None, "the Node must still be Ready");
}

#[test]
fn i14_after_done_of_a_reboot_by_cke_the_node_is_uncordoned_once_ready() {
    let begun = Scene::new(1)
        .entry(0, 11, Rebooting, 30)
        .cordoned(11, 0)
        .owner(11, |o| o.taken_over_rebooting = true)
        .order(0, Verb::Done, 10);
    let Some(Effect::Stamp { owner, cordon: false, .. }) = begun.effect(0) else { panic!() };
    assert!(owner.called_done && !owner.taken_over_rebooting);
    let marked_done = Scene::new(1).cordoned(11, 0).owner(11, |o| o.called_done = true);
    assert_eq!(release(&marked_done.decide(), 11), Some((true, false)));
    let down = marked_done.node(11, |n| n.ready = false);
    assert_eq!(release(&down.decide(), 11), None);
    assert!(matches!(down.decide().orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert!(down.clone().queued(&[(1, 11)]).starts().is_empty(), "no new drain overwrites the record");
    assert_eq!(release(&down.order(0, Verb::Uncordon, 1).decide(), 11), Some((true, false)));
}

#[test]
fn uncordoning_an_orphaned_node_settles_it() {
    let orphan = Scene::new(1).cordoned(11, 0).node(11, |n| n.unschedulable = false).attempt(
        0,
        11,
        1,
        LEASE,
        60,
        Some(Ended::Exit(0)),
    );
    assert!(release(&orphan.decide(), 11).is_some());
}

#[test]
fn a_command_cancelled_before_its_start_leaves_no_orphaned_cordon() {
    let end = Some(Ended::NotStarted("cancelled".to_owned()));
    let scene = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, LEASE, 60, end);
    assert_eq!(release(&scene.decide(), 11), Some((true, false)));
}

#[test]
fn an_open_attempt_of_a_cancelled_entry_keeps_its_slot_and_its_machine() {
    let scene = Scene::new(2)
        .entry(0, 11, Cancelled, 5)
        .cordoned(11, 0)
        .attempt(0, 11, 1, 3, 5, None)
        .with(|s| s.snap.engine.leading.as_mut().unwrap().since = super::scene::BOOT - Seconds::new(1.0))
        .queued(&[(1, 12), (2, 11)]);
    assert!(scene.starts().is_empty());
    assert!(matches!(scene.reason(1), Reason::WaitingForSlot { .. }));
    assert_eq!(release(&scene.decide(), 11), None);
}

#[test]
fn i23_a_new_leader_records_its_lease_on_nodes_of_rebooting_entries() {
    let scene = Scene::new(1).rebooting(0, 11, 5, Some(Ended::Exit(0))).owner(11, |o| o.lease = 3);
    let Some(Effect::Stamp { owner, cordon: false, .. }) = scene.effect(0) else { panic!() };
    assert_eq!((owner.lease, owner.boot_id.as_str()), (LEASE, "before"));
}

#[test]
fn a_node_rebooted_by_cke_gets_an_owner_and_is_orphaned_after_a_cancel() {
    let scene = Scene::new(1).entry(0, 11, Rebooting, 5).node(11, |n| {
        n.unschedulable = true;
        n.cke_mark = true;
    });
    let Some(Effect::Stamp { owner, mark, .. }) = scene.effect(0) else { panic!() };
    assert!(mark, "CKE's mark stays: it shows whose cordon it was");
    assert!(owner.taken_over_rebooting && owner.boot_id.is_empty() && owner.schedulable_before);
    let orphan = Scene::new(1).cordoned(11, 0).owner(11, |o| {
        o.taken_over_rebooting = true;
        o.boot_id = String::new();
    });
    assert_eq!(release(&orphan.decide(), 11), None);
}

#[test]
fn attempts_without_entry_and_cordon_move_to_history() {
    let scene = Scene::new(1).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(0)));
    assert!(scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::Settle { .. })));
}

#[test]
fn i14_stale_nodes_do_not_move_attempts_to_history() {
    let mut snap = Scene::new(1).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(0))).snapshot();
    let at = cketerm_model::clock::Now { boot: super::scene::BOOT, wall: super::scene::now() };
    let settles = |snap: &crate::snapshot::Snapshot| {
        crate::decide::decide(snap, at).effects.iter().any(|p| matches!(p.effect, Effect::Settle { .. }))
    };
    assert!(settles(&snap));
    let kube = std::sync::Arc::make_mut(&mut snap.kube);
    kube.sources["nodes"].fresh_as_of = super::scene::BOOT - Seconds::new(60.0);
    assert!(!settles(&snap));
}

#[test]
fn i13_an_unreadable_definition_uncordons_no_node() {
    let scene = Scene::new(2).draining(0, 11, 5).rebooting(1, 12, 30, Some(Ended::Exit(0))).booted(12);
    let mut snap = scene.snapshot();
    let mut store = (*snap.store).clone();
    store.cluster.as_mut().unwrap().value = Err("not JSON".to_owned());
    snap.store = std::sync::Arc::new(store.clone());
    let at = cketerm_model::clock::Now { boot: super::scene::BOOT, wall: super::scene::now() };
    assert!(crate::decide::decide(&snap, at).effects.is_empty());
    // An incomplete live copy causes no effect either.
    snap.store = std::sync::Arc::new(cketerm_model::stored::view::StoreView {
        last_seen: super::scene::BOOT,
        ..Default::default()
    });
    assert!(crate::decide::decide(&snap, at).effects.is_empty());
}

#[test]
fn i14_a_new_entry_does_not_overwrite_the_owner_of_an_orphaned_cordon() {
    let scene = Scene::new(1).cordoned(11, 3).attempt(3, 11, 1, LEASE, 40, Some(Ended::Exit(0))).queued(&[(4, 11)]);
    assert!(scene.starts().is_empty());
    assert!(matches!(scene.reason(4), Reason::OrphanedCordon { .. }));
    assert_eq!(scene.booted(11).starts(), [4]);
}

#[test]
fn i14_a_running_drain_does_not_overwrite_the_owner_of_an_orphaned_cordon() {
    let drains = Scene::new(1).draining(4, 11, 5).cordoned(11, 3).attempt(3, 11, 1, LEASE, 40, Some(Ended::Exit(0)));
    assert_eq!(drains.does(4), None);
    assert!(matches!(drains.reason(4), Reason::OrphanedCordon { .. }));
    assert_eq!(drains.booted(11).does(4), Some("cordoning"));
}

#[test]
fn i1_a_cancelled_api_server_reboot_by_cke_counts_until_it_is_back() {
    let scene = Scene::new(0)
        .cordoned(1, 3)
        .owner(1, |o| {
            o.taken_over_rebooting = true;
            o.boot_id = String::new();
        })
        .queued(&[(4, 2)]);
    assert!(scene.starts().is_empty());
}

#[test]
fn i10_a_cordon_repeated_after_an_operators_uncordon_is_ours() {
    let scene = Scene::new(1)
        .draining(0, 11, 1)
        .owner(11, |o| o.schedulable_before = false)
        .node(11, |n| n.unschedulable = false);
    let Some(Effect::Stamp { owner, .. }) = scene.effect(0) else { panic!() };
    assert!(owner.schedulable_before);
}

#[test]
fn i24_a_cordon_of_a_possible_later_leader_stays_until_leadership_is_confirmed() {
    let later = Scene::new(1).queued(&[(0, 11)]).disabled().cordoned(11, 0).owner(11, |o| o.lease = LEASE + 1);
    let seen = |at: BootTime| later.clone().foreign(11, LEASE + 1, at);
    assert_eq!(
        release(&seen(BOOT - Seconds::new(5.0)).acknowledged(BOOT - Seconds::new(6.0)).decide(), 11),
        None,
        "leadership is not confirmed since the cordon appeared"
    );
    assert_eq!(
        release(&seen(BOOT - Seconds::new(5.0)).acknowledged(BOOT - Seconds::new(4.0)).decide(), 11),
        Some((true, false)),
        "leadership is confirmed since the cordon appeared"
    );
    let before_we_won = seen(BOOT - Seconds::new(2000.0)).acknowledged(BOOT - Seconds::new(2001.0));
    assert_eq!(release(&before_we_won.decide(), 11), Some((true, false)), "the cordon is from before this leadership");
}

/// Its entry is removed in this pass. The next one reports the cordon, if the command still runs then.
#[test]
fn the_cordon_of_an_entry_that_still_exists_is_not_orphaned() {
    let running = Scene::new(2).rebooting(0, 11, 5, None).with(|s| {
        s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(1.0);
        s.cluster.nodes.retain(|node| node.address != "10.0.0.11");
    });
    assert!(!running.decide().orphans.contains_key("10.0.0.11"));
    let removed = running.with(|s| drop(s.store.reboots.entries.remove(&0)));
    assert!(removed.decide().orphans.contains_key("10.0.0.11"));
}
