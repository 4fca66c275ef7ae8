//! Maintenance: drained as for a reboot, kept without one, released, expired (I73).

use std::sync::Arc;

use cketerm_model::{
    cketerm_records::{Request, Who},
    clock::Now,
    entry::EntryId,
    freeze::Freeze,
    kube::Owner,
    maintenance::{MaintenanceEntry, MaintenanceStatus, Released},
    names::Address,
    reason::Reason,
    reboot::RebootStatus,
    start_gates::{GateAnswer, GateState, StartGateView, StartGates},
    time::after,
};

use super::scene::{LEASE, Scene, now, stored};
use crate::decide::{Effect, End};

/// Index that no reboot of these tests has.
const ID: EntryId = EntryId { queue: cketerm_model::entry::QueueKind::Maintenance, index: 3 };

impl Scene {
    /// Adds maintenance 3 of a machine for another hour, in this status for five seconds.
    fn maintenance(mut self, last: u8, status: MaintenanceStatus) -> Self {
        let fresh = MaintenanceEntry::queued(3, &Address::new(Self::address(last)), after(now(), 3600));
        self.store.maintenance.entries.insert(3, stored("maintenance", 10, fresh.moved_to(status, after(now(), -5))));
        let request =
            Request { who: Who::default(), at: now(), reason: Some("disk".to_owned()), node_uid: None, batch: None };
        self.store.requests.insert(ID, stored("request", 10, request));
        if status != MaintenanceStatus::Queued {
            self.snap.work.entry(ID).or_default();
        }
        self
    }

    fn change_maintenance(mut self, change: impl FnOnce(&mut MaintenanceEntry)) -> Self {
        let slot = self.store.maintenance.entries.get_mut(&3).unwrap();
        let mut entry = slot.get().unwrap().clone();
        change(&mut entry);
        slot.value = Ok(Arc::new(entry));
        self
    }

    /// Marks the Node as cordoned for the maintenance, without CKE's mark.
    fn cordoned_for_maintenance(self, last: u8) -> Self {
        self.cordoned(last, 0).node(last, |n| n.cke_mark = false).owner(last, |o| o.entry = ID)
    }

    fn why(&self) -> Option<Reason> {
        self.decide().reasons.get(&ID).cloned()
    }

    fn effect_of_maintenance(&self) -> Option<Effect> {
        self.decide().effects.into_iter().find(|p| p.entry == Some(ID)).map(|p| p.effect)
    }

    fn end_of_maintenance(&self) -> Option<End> {
        match self.effect_of_maintenance() {
            Some(Effect::Remove { end, .. }) => Some(end),
            _ => None,
        }
    }

    fn uncordons(&self, last: u8) -> bool {
        self.decide().effects.iter().any(|planned| {
            matches!(&planned.effect, Effect::Release { node, uncordon: true, .. } if *node.name == *Self::address(last))
        })
    }
}

fn kept() -> Scene {
    Scene::new(3).maintenance(11, MaintenanceStatus::InMaintenance).cordoned_for_maintenance(11)
}

#[test]
fn saf42_a_maintenance_starts_before_the_queue_and_shares_its_limits() {
    let asked = Scene::new(3).maintenance(13, MaintenanceStatus::Queued).queued(&[(0, 11), (1, 13)]);
    assert!(matches!(asked.effect_of_maintenance(), Some(Effect::StartDrain { .. })));
    assert_eq!(asked.starts(), [3], "one slot, which the maintenance takes");
    assert!(
        matches!(asked.reason(0), Reason::WaitingForSlot { holder: Some(ID), limit: 1, .. }),
        "{}",
        asked.reason(0)
    );
    assert!(matches!(asked.reason(1), Reason::InMaintenance { entry: ID, .. }), "{}", asked.reason(1));
    // in reboot already
    let busy = Scene::new(3).maintenance(13, MaintenanceStatus::Queued).draining(1, 13, 5);
    assert!(matches!(busy.why(), Some(Reason::MachineInReboot { .. })), "{:?}", busy.why());
    let full = Scene::new(3).maintenance(13, MaintenanceStatus::Queued).draining(1, 11, 5);
    assert!(matches!(full.why(), Some(Reason::WaitingForSlot { limit: 1, .. })), "{:?}", full.why());
    // the switch of the reboot queue, and a freeze
    assert_eq!(asked.clone().disabled().why(), Some(Reason::QueueDisabled));
    let freeze = Freeze {
        until: after(now(), 60),
        reason: "sale".to_owned(),
        who: Who::default(),
        unknown: serde_json::Map::new(),
    };
    let frozen = asked.with(|s| s.policy.freeze = Some(freeze.clone()));
    assert!(matches!(frozen.why(), Some(Reason::Frozen { .. })));
}

#[test]
fn saf42_a_maintenance_waits_for_the_gates_of_the_site_until_its_start() {
    let gates = StartGates::read("{prometheus: 'http://p', alerts: {}}").unwrap();
    let asked = Scene::new(3).maintenance(13, MaintenanceStatus::Queued);
    let closed = asked.clone().with(|s| s.policy.start_gates = Some(Box::new(gates.clone())));
    assert!(matches!(closed.why(), Some(Reason::StartGateClosed { .. })), "{:?}", closed.why());
    // checked again right before the effect, as for a reboot
    let open = closed.with(|s| {
        let answer = GateAnswer { asked: s.boot, state: GateState::Open };
        let answers = [("alerts".to_owned(), answer)].into();
        s.snap.start_gates = Arc::new(StartGateView { settings: Some(gates.clone()), answers });
    });
    let planned = open.decide().effects.into_iter().find(|p| p.entry == Some(ID)).unwrap();
    assert!(matches!(planned.effect, Effect::StartDrain { .. }) && planned.guard.start_gates.is_some());
}

#[test]
fn saf42_api_servers_are_one_at_a_time_also_in_maintenance() {
    let two = Scene::new(3).maintenance(2, MaintenanceStatus::InMaintenance).cordoned_for_maintenance(2);
    let two = two.queued(&[(0, 1), (1, 11)]);
    assert!(two.starts().is_empty(), "{:?}", two.starts());
    assert!(matches!(two.reason(0), Reason::WaitingForControlPlane { .. }));
    let next = Scene::new(3).maintenance(2, MaintenanceStatus::Queued).entry(0, 1, RebootStatus::Rebooting, 5);
    assert!(matches!(next.why(), Some(Reason::WaitingForControlPlane { .. })), "{:?}", next.why());
}

#[test]
fn saf42_a_drained_node_is_kept_without_a_command_and_without_the_mark_of_cke() {
    let drains = Scene::new(3).maintenance(11, MaintenanceStatus::Draining);
    let Some(Effect::Stamp { owner, cordon: true, mark: false, .. }) = drains.effect_of_maintenance() else {
        panic!("{:?}", drains.effect_of_maintenance())
    };
    assert_eq!((owner.entry, owner.annotation()), (ID, "cketerm.io/maintenance"));
    let cordoned = drains.cordoned_for_maintenance(11);
    let pods = cordoned.clone().pod(11, "web", |_| {});
    assert!(matches!(pods.effect_of_maintenance(), Some(Effect::Preview { .. } | Effect::Evict { .. })));
    assert!(matches!(cordoned.effect_of_maintenance(), Some(Effect::BeginMaintenance { .. })));
    // a definition without a reboot command is enough
    let plain = cordoned.with(|s| s.cluster.reboot.reboot_command = None);
    assert!(matches!(plain.effect_of_maintenance(), Some(Effect::BeginMaintenance { .. })), "{:?}", plain.why());
    let kept = kept();
    assert!(kept.decide().effects.is_empty(), "{:?}", kept.decide().effects);
    let shown = kept.why().unwrap().to_string();
    assert!(
        shown.starts_with("the machine is in maintenance until") && shown.ends_with("(maintenance/3: disk)"),
        "{shown}"
    );
}

#[test]
fn i73_a_kept_node_stays_cordoned_under_a_new_leader_and_is_cordoned_again_once() {
    let new_leader = kept().owner(11, |o| o.lease = LEASE + 1);
    let Some(Effect::Stamp { owner, .. }) = new_leader.effect_of_maintenance() else {
        panic!("{:?}", new_leader.why())
    };
    assert_eq!(owner.lease, LEASE);
    let uncordoned = kept().node(11, |n| n.unschedulable = false);
    assert!(matches!(uncordoned.effect_of_maintenance(), Some(Effect::Stamp { cordon: true, .. })));
    let twice = uncordoned.owner(11, |o| o.recordoned = 1);
    assert!(twice.effect_of_maintenance().is_none());
    assert!(matches!(twice.why(), Some(Reason::UncordonedByOther { .. })));
    // CKE rebooted it meanwhile: its entry comes first
    let rebooted = kept().entry(7, 11, RebootStatus::Rebooting, 5);
    assert!(
        !matches!(rebooted.effect_of_maintenance(), Some(Effect::Stamp { .. })),
        "{:?}",
        rebooted.effect_of_maintenance()
    );
}

#[test]
fn i73_a_released_or_expired_maintenance_ends_and_its_node_is_uncordoned_once_ready() {
    let released = Released { who: Who::default(), at: now(), reason: None };
    let ended = kept().change_maintenance(|m| m.released = Some(released.clone()));
    assert_eq!(ended.end_of_maintenance(), Some(End::Released(released)));
    assert!(!ended.uncordons(11), "its record is there still");
    let expired = kept().change_maintenance(|m| m.until = now());
    assert_eq!(expired.end_of_maintenance(), Some(End::Expired));
    assert_eq!(kept().change_maintenance(|m| m.until = after(now(), 1)).end_of_maintenance(), None);
    // without a definition, and while it drains
    let draining = Scene::new(3).maintenance(11, MaintenanceStatus::Draining).change_maintenance(|m| m.until = now());
    assert_eq!(draining.end_of_maintenance(), Some(End::Expired));
    let gone = kept().with(|s| drop(s.store.maintenance.entries.remove(&3)));
    assert!(gone.uncordons(11));
    let down = gone.clone().node(11, |n| n.ready = false);
    assert!(!down.uncordons(11) && down.decide().orphans.contains_key(Scene::address(11).as_str()));
    let cordoned_before = gone.clone().owner(11, |o: &mut Owner| o.schedulable_before = false);
    assert!(!cordoned_before.uncordons(11));
    // an API server that is down still counts as in work
    let api = Scene::new(3).cordoned_for_maintenance(2).node(2, |n| n.ready = false).queued(&[(0, 1)]);
    assert!(api.starts().is_empty());
}

#[test]
fn i5_an_unreadable_maintenance_is_shown_and_stops_nothing() {
    let broken = kept().queued(&[(0, 12)]).with(|s| {
        s.store.maintenance.entries.get_mut(&3).unwrap().value = Err("not JSON".to_owned());
    });
    assert!(matches!(broken.why(), Some(Reason::InvalidEntry { .. })));
    assert!(!broken.uncordons(11), "nobody knows whether it is over");
    assert_eq!(broken.starts(), [0]);
}

#[test]
fn i73_nothing_starts_on_a_node_whose_maintenance_cannot_be_read() {
    let broken = |last| {
        let scene = Scene::new(3).maintenance(last, MaintenanceStatus::InMaintenance).cordoned_for_maintenance(last);
        scene.with(|s| s.store.maintenance.entries.get_mut(&3).unwrap().value = Err("not JSON".to_owned()))
    };
    let own = broken(11).queued(&[(0, 11), (1, 12)]);
    assert_eq!(own.starts(), [1]);
    assert!(matches!(own.reason(0), Reason::InvalidEntry { .. }), "{}", own.reason(0));
    assert!(broken(2).queued(&[(0, 1)]).starts().is_empty(), "it may be an API server that is off");
}

#[test]
fn i73_work_that_cke_began_on_the_machine_goes_first_or_unwinds() {
    // a drain goes back, a reboot ends
    let drains = kept().draining(7, 11, 5);
    assert!(matches!(drains.effect(7), Some(Effect::Unwind { .. })), "{:?}", drains.effect(7));
    assert!(drains.effect_of_maintenance().is_none());
    let reboots = Scene::new(3).maintenance(11, MaintenanceStatus::Draining).rebooting(7, 11, 5, None);
    assert!(reboots.effect_of_maintenance().is_none());
    assert!(matches!(reboots.why(), Some(Reason::MachineInReboot { .. })), "{:?}", reboots.why());
}

#[test]
fn i73_pods_that_came_meanwhile_and_a_missing_node_are_reported() {
    let pods = kept().pod(11, "web", |_| {});
    assert!(matches!(pods.why(), Some(Reason::PodsLeaving { left: 1, .. })), "{:?}", pods.why());
    let gone = kept().with(|s| s.kube.remove_node(&cketerm_model::names::NodeName::new(Scene::address(11))));
    assert!(matches!(gone.why(), Some(Reason::NodeMismatch { .. })), "{:?}", gone.why());
}

#[test]
fn i73_after_the_end_a_machine_that_is_down_may_be_rebooted() {
    let gone = kept().with(|s| drop(s.store.maintenance.entries.remove(&3))).node(11, |n| n.ready = false);
    let gone = gone.with(|s| s.constraints.maximum_unreachable_nodes_for_reboot = 9);
    assert_eq!(gone.queued(&[(0, 11)]).starts(), [0]);
}

#[test]
fn i73_an_uncordon_by_somebody_else_is_noted_with_the_time_of_its_first_sight() {
    let noted = |scene: &Scene| {
        let mut snap = scene.snapshot();
        crate::memory::observe(&mut snap, Now { boot: scene.boot, wall: now() });
        snap.work[&ID].drain.uncordoned
    };
    assert_eq!(noted(&kept()), None);
    let uncordoned = kept().node(11, |n| n.unschedulable = false);
    assert_eq!(noted(&uncordoned), Some(now()));
    let earlier = Some(after(now(), -30));
    let known = uncordoned.with(|s| s.snap.work.get_mut(&ID).unwrap().drain.uncordoned = earlier);
    assert_eq!(noted(&known), earlier);
}

#[test]
fn saf42_a_maintenance_of_a_machine_that_left_the_definition_takes_no_slot() {
    let queued = kept().queued(&[(0, 12)]);
    assert!(queued.starts().is_empty(), "one slot");
    assert_eq!(queued.with(|s| s.cluster.nodes.retain(|n| n.address != "10.0.0.11")).starts(), [0]);
}
