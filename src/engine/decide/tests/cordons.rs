//! Uncordon of nodes whose entry is neither draining nor rebooting (REB-44).

use super::scene::{BOOT, LEASE, Scene};
use crate::{
    engine::decide::{Decision, Effect},
    model::{
        attempt::Ended,
        cketerm_records::Verb,
        reason::Reason,
        reboot::RebootStatus::{Cancelled, Rebooting},
    },
};

/// Returns `(uncordon, drop_keep)` of the release of this node.
fn release(decision: &Decision, last: u8) -> Option<(bool, bool)> {
    decision.effects.iter().find(|p| p.machine == Scene::address(last)).and_then(|p| match &p.effect {
        Effect::Release { uncordon, drop_keep, .. } => Some((*uncordon, *drop_keep)),
        _ => None,
    })
}

#[test]
fn i10_a_cordon_of_ours_is_removed_when_its_entry_is_queued_again_or_gone_also_while_disabled() {
    let queued = Scene::new(1).queued(&[(0, 11)]).cordoned(11, 0).disabled();
    assert_eq!(release(&queued.decide(), 11), Some((true, false)));
    let gone = Scene::new(1).cordoned(11, 0);
    assert_eq!(release(&gone.decide(), 11), Some((true, false)));
}

#[test]
fn i10_ckes_mark_without_an_owner_is_taken_off_too() {
    let scene = Scene::new(1).node(11, |n| {
        n.unschedulable = true;
        n.cke_mark = true;
    });
    assert_eq!(release(&scene.decide(), 11), Some((true, false)));
}

#[test]
fn i5_i10_beside_an_entry_that_cannot_be_read_a_cordon_with_ckes_mark_alone_stays_and_ours_go() {
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
fn i11_the_administrators_own_cordon_from_before_stays() {
    let scene = Scene::new(1).cordoned(11, 0).owner(11, |o| o.schedulable_before = false);
    assert_eq!(release(&scene.decide(), 11), Some((false, false)));
}

#[test]
fn i12_a_cordon_that_was_made_the_administrators_stays() {
    let scene = Scene::new(1).cordoned(11, 0).node(11, |n| n.keep_cordoned = true);
    assert_eq!(release(&scene.decide(), 11), Some((false, true)));
}

#[test]
fn i13_a_node_whose_entry_is_draining_or_rebooting_is_never_let_go_of_whatever_the_switch_says() {
    let rebooting = Scene::new(1).rebooting(0, 11, 5, Some(Ended::Exit(0))).disabled();
    assert_eq!(release(&rebooting.decide(), 11), None);
    let draining = Scene::new(1).draining(0, 11, 5).disabled();
    assert_eq!(release(&draining.decide(), 11), None, "first it is queued again");
}

#[test]
fn i14_after_a_cancel_a_rebooting_node_stays_cordoned_until_a_new_boot_id_and_ready() {
    let orphan = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(0)));
    let decision = orphan.decide();
    assert_eq!(release(&decision, 11), None);
    assert!(matches!(decision.orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert_eq!(release(&orphan.clone().booted(11).node(11, |n| n.ready = false).decide(), 11), None);
    assert_eq!(release(&orphan.clone().booted(11).decide(), 11), Some((true, false)));
    assert_eq!(release(&orphan.order(0, Verb::Uncordon, 1).decide(), 11), Some((true, false)));
}

#[test]
fn i14_after_done_the_node_is_let_go_of_once_it_is_ready_whatever_its_boot_id() {
    // The Node was Ready when the entry ended, and went down before the uncordon.
    let said = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(0))).called_done(0, 1);
    assert_eq!(release(&said.decide(), 11), Some((true, false)));
    let down = said.node(11, |n| n.ready = false);
    let decision = down.decide();
    assert_eq!(release(&decision, 11), None);
    assert!(matches!(decision.orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert_eq!(release(&down.order(0, Verb::Uncordon, 1).decide(), 11), Some((true, false)));
}

/// `done` ends the entry at once, while the command of a dead leader may go on. Nothing happens to its machine before
/// that command has ended or cannot run any more.
#[test]
fn i14_after_done_beside_a_command_that_may_run_the_cordon_stays_until_its_end_or_its_bound() {
    let since = |ago| {
        let scene = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, 3, 60, None).called_done(0, 1);
        scene.with(|s| s.snap.engine.leading.as_mut().unwrap().since = super::scene::BOOT - ago)
    };
    let young = since(1.0);
    assert_eq!(release(&young.decide(), 11), None, "it may still run");
    assert!(matches!(young.decide().orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert!(young.clone().queued(&[(1, 11)]).starts().is_empty(), "and bars the machine");
    assert_eq!(release(&since(101.0).decide(), 11), Some((true, false)), "its bound has passed");
    let ended = young.with(|s| {
        let closed = Scene::new(1).attempt(0, 11, 1, 3, 60, Some(Ended::Exit(0))).called_done(0, 1).store.attempts;
        s.store.attempts = closed;
    });
    assert_eq!(release(&ended.decide(), 11), Some((true, false)), "its result is known");
    assert_eq!(release(&ended.node(11, |n| n.ready = false).decide(), 11), None, "and Ready counts all the same");
}

#[test]
fn i14_after_done_of_a_reboot_that_cke_started_the_node_is_let_go_of_once_it_is_ready() {
    let begun = Scene::new(1)
        .entry(0, 11, Rebooting, 30)
        .cordoned(11, 0)
        .owner(11, |o| o.taken_over_rebooting = true)
        .order(0, Verb::Done, 10);
    let Some(Effect::Stamp { owner, cordon: false, .. }) = begun.effect(0) else { panic!() };
    assert!(owner.called_done && !owner.taken_over_rebooting);
    let said = Scene::new(1).cordoned(11, 0).owner(11, |o| o.called_done = true);
    assert_eq!(release(&said.decide(), 11), Some((true, false)));
    let down = said.node(11, |n| n.ready = false);
    assert_eq!(release(&down.decide(), 11), None);
    assert!(matches!(down.decide().orphans["10.0.0.11"], Reason::OrphanedCordon { .. }));
    assert!(down.clone().queued(&[(1, 11)]).starts().is_empty(), "no new drain writes over the record");
    assert_eq!(release(&down.order(0, Verb::Uncordon, 1).decide(), 11), Some((true, false)));
}

#[test]
fn a_person_who_uncordons_an_orphan_settles_it() {
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
fn a_command_that_was_cancelled_before_it_started_leaves_no_orphan() {
    let end = Some(Ended::NotStarted("cancelled".to_owned()));
    let scene = Scene::new(1).cordoned(11, 0).attempt(0, 11, 1, LEASE, 60, end);
    assert_eq!(release(&scene.decide(), 11), Some((true, false)));
}

#[test]
fn an_open_attempt_of_a_cancelled_entry_keeps_its_slot_and_bars_the_machine() {
    let scene = Scene::new(2)
        .entry(0, 11, Cancelled, 5)
        .cordoned(11, 0)
        .attempt(0, 11, 1, 3, 5, None)
        .with(|s| s.snap.engine.leading.as_mut().unwrap().since = super::scene::BOOT - 1.0)
        .queued(&[(1, 12), (2, 11)]);
    assert!(scene.starts().is_empty());
    assert!(matches!(scene.reason(1), Reason::WaitingForSlot { .. }));
    assert_eq!(release(&scene.decide(), 11), None);
}

#[test]
fn i23_a_new_leader_stamps_the_nodes_of_rebooting_entries_with_its_lease() {
    let scene = Scene::new(1).rebooting(0, 11, 5, Some(Ended::Exit(0))).owner(11, |o| o.lease = 3);
    let Some(Effect::Stamp { owner, cordon: false, .. }) = scene.effect(0) else { panic!() };
    assert_eq!((owner.lease, owner.boot_id.as_str()), (LEASE, "before"));
}

#[test]
fn a_node_that_cke_is_rebooting_gets_its_first_record_and_is_an_orphan_after_a_cancel() {
    let scene = Scene::new(1).entry(0, 11, Rebooting, 5).node(11, |n| {
        n.unschedulable = true;
        n.cke_mark = true;
    });
    let Some(Effect::Stamp { owner, mark, .. }) = scene.effect(0) else { panic!() };
    assert!(mark, "CKE's mark stays: it says whose cordon it was");
    assert!(owner.taken_over_rebooting && owner.boot_id.is_empty() && owner.schedulable_before);
    let orphan = Scene::new(1).cordoned(11, 0).owner(11, |o| {
        o.taken_over_rebooting = true;
        o.boot_id = String::new();
    });
    assert_eq!(release(&orphan.decide(), 11), None);
}

#[test]
fn attempts_whose_entry_and_cordon_are_gone_go_into_history() {
    let scene = Scene::new(1).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(0)));
    assert!(scene.decide().effects.iter().any(|p| matches!(p.effect, Effect::Settle { .. })));
}

#[test]
fn i14_an_old_copy_of_the_nodes_does_not_make_the_proof_of_a_powered_machine_history() {
    let mut snap = Scene::new(1).attempt(0, 11, 1, LEASE, 60, Some(Ended::Exit(0))).snapshot();
    let at =
        crate::clock::Now { boot: std::time::Duration::from_secs_f64(super::scene::BOOT), wall: super::scene::now() };
    let settles = |snap: &crate::engine::snapshot::Snapshot| {
        crate::engine::decide::decide(snap, at).effects.iter().any(|p| matches!(p.effect, Effect::Settle { .. }))
    };
    assert!(settles(&snap));
    let kube = std::sync::Arc::make_mut(&mut snap.kube);
    kube.sources["nodes"].proved = super::scene::BOOT - 60.0;
    assert!(!settles(&snap));
}

#[test]
fn i13_a_definition_that_cannot_be_read_lets_go_of_nothing() {
    let scene = Scene::new(2).draining(0, 11, 5).rebooting(1, 12, 30, Some(Ended::Exit(0))).booted(12);
    let mut snap = scene.snapshot();
    let mut store = (*snap.store).clone();
    store.cluster.as_mut().unwrap().value = Err("not JSON".to_owned());
    snap.store = std::sync::Arc::new(store.clone());
    let at =
        crate::clock::Now { boot: std::time::Duration::from_secs_f64(super::scene::BOOT), wall: super::scene::now() };
    assert!(crate::engine::decide::decide(&snap, at).effects.is_empty());
    // An incomplete live copy causes no effect either.
    snap.store = std::sync::Arc::new(crate::store::view::StoreView { heard: super::scene::BOOT, ..Default::default() });
    assert!(crate::engine::decide::decide(&snap, at).effects.is_empty());
}

#[test]
fn i14_a_new_entry_does_not_wipe_out_what_keeps_the_cordon_of_a_machine_that_is_away() {
    let scene = Scene::new(1).cordoned(11, 3).attempt(3, 11, 1, LEASE, 40, Some(Ended::Exit(0))).queued(&[(4, 11)]);
    assert!(scene.starts().is_empty());
    assert!(matches!(scene.reason(4), Reason::OrphanedCordon { .. }));
    assert_eq!(scene.booted(11).starts(), [4]);
}

#[test]
fn i14_a_drain_that_has_begun_writes_over_no_record_of_a_machine_that_went_away_since() {
    let drains = Scene::new(1).draining(4, 11, 5).cordoned(11, 3).attempt(3, 11, 1, LEASE, 40, Some(Ended::Exit(0)));
    assert_eq!(drains.does(4), None);
    assert!(matches!(drains.reason(4), Reason::OrphanedCordon { .. }));
    assert_eq!(drains.booted(11).does(4), Some("cordoning"));
}

#[test]
fn i1_an_api_server_that_cke_rebooted_and_a_person_cancelled_counts_until_it_is_back() {
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
fn i10_a_cordon_made_again_after_a_persons_uncordon_is_ours() {
    let scene = Scene::new(1)
        .draining(0, 11, 1)
        .owner(11, |o| o.schedulable_before = false)
        .node(11, |n| n.unschedulable = false);
    let Some(Effect::Stamp { owner, .. }) = scene.effect(0) else { panic!() };
    assert!(owner.schedulable_before);
}

#[test]
fn i24_a_record_that_may_be_a_later_leaders_is_let_alone_until_a_keep_alive_proves_that_we_still_lead() {
    let later = Scene::new(1).queued(&[(0, 11)]).disabled().cordoned(11, 0).owner(11, |o| o.lease = LEASE + 1);
    let seen = |at: f64| later.clone().foreign(11, LEASE + 1, at);
    assert_eq!(release(&seen(BOOT - 5.0).acknowledged(BOOT - 6.0).decide(), 11), None, "revoked behind our back?");
    assert_eq!(release(&seen(BOOT - 5.0).acknowledged(BOOT - 4.0).decide(), 11), Some((true, false)), "an older one");
    let before_we_won = seen(BOOT - 2000.0).acknowledged(BOOT - 2001.0);
    assert_eq!(release(&before_we_won.decide(), 11), Some((true, false)), "of the leader before us");
}
