//! `MaintenanceRequest`s: accepted once, queued once for each Node, withdrawn when they are deleted (I74).

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    accepted_request::AcceptedRequest,
    batch::{Batch, BatchId, Cancelled},
    cketerm_records::Who,
    entry::{EntryId, QueueKind},
    kube::SourceState,
    maintenance::{MaintenanceEntry, MaintenanceStatus, Released},
    maintenance_request::{
        ConditionStatus, FINALIZER, MAINTENANCE_REQUESTS_SOURCE, RequestConditionType, RequestReason, RequestRow,
        RequestSpec, RequestStatus, RequestedAction, RequestedNodeState, RequestedWindow,
    },
    names::{Address, NodeName},
    reboot::RebootStatus,
    selector::Selector,
    time::after,
};

use super::scene::{BOOT, Scene, now, stored};
use crate::decide::{Effect, MaintenanceRequestEffect};

const UID: &str = "uid-of-disk";

fn keep(last: u8) -> RequestSpec {
    RequestSpec {
        node_names: vec![NodeName::new(Scene::address(last))],
        node_selector: None,
        reason: "disk".to_owned(),
        action: RequestedAction::Keep,
        window: RequestedWindow { start: None, end: Some(after(now(), 3600)) },
    }
}

fn reboot(last: &[u8]) -> RequestSpec {
    let node_names = last.iter().map(|last| NodeName::new(Scene::address(*last))).collect();
    RequestSpec { node_names, action: RequestedAction::Reboot, window: RequestedWindow::default(), ..keep(0) }
}

impl Scene {
    /// Adds the object, held by the leader.
    fn requested(mut self, spec: RequestSpec) -> Self {
        self.policy.maintenance_requests = true;
        let source = SourceState { synced: true, last_seen: BOOT, fresh_as_of: BOOT, ..SourceState::default() };
        self.kube.sources.insert(MAINTENANCE_REQUESTS_SOURCE.to_owned(), source);
        let row = RequestRow {
            name: "disk".to_owned(),
            uid: UID.to_owned(),
            resource_version: "5".to_owned(),
            generation: 1,
            deleting: false,
            finalizers: vec![FINALIZER.to_owned()],
            spec: Ok(spec),
            status: RequestStatus::default(),
        };
        self.kube.maintenance_requests.insert("disk".to_owned(), Arc::new(row));
        self
    }

    fn change_request(mut self, change: impl FnOnce(&mut RequestRow)) -> Self {
        let row = self.kube.maintenance_requests.get_mut("disk").unwrap();
        change(Arc::make_mut(row));
        self
    }

    /// Writes the record that the leader would write now, with these indexes of the entries.
    fn accepted(mut self, indexes: &[Option<u64>]) -> Self {
        let Some(MaintenanceRequestEffect::Accept { mut record, .. }) = self.for_request() else {
            panic!("not accepted: {:?}", self.for_request())
        };
        for (node, index) in record.nodes.iter_mut().zip(indexes) {
            node.index = *index;
        }
        self.store.maintenance_requests.insert(UID.to_owned(), stored("request", 20, record));
        self
    }

    fn change_record(mut self, change: impl FnOnce(&mut AcceptedRequest)) -> Self {
        let slot = self.store.maintenance_requests.get_mut(UID).unwrap();
        let mut record = slot.get().unwrap().clone();
        change(&mut record);
        slot.value = Ok(Arc::new(record));
        self
    }

    fn kept(mut self, index: u64, last: u8, status: MaintenanceStatus) -> Self {
        let fresh = MaintenanceEntry::queued(index, &Address::new(Self::address(last)), after(now(), 3600));
        self.store.maintenance.entries.insert(index, stored("maintenance", 10, fresh.moved_to(status, now())));
        self
    }

    fn for_request(&self) -> Option<MaintenanceRequestEffect> {
        let mut all = self.decide().effects.into_iter().filter_map(|planned| match planned.effect {
            Effect::MaintenanceRequest(effect) => Some(effect),
            _ => None,
        });
        let first = all.next();
        assert!(all.next().is_none(), "two actions for one request");
        first
    }

    /// Returns the status that is written.
    fn told(&self) -> RequestStatus {
        match self.for_request() {
            Some(MaintenanceRequestEffect::Report { status, .. }) => status,
            other => panic!("no report: {other:?}"),
        }
    }

    fn refusal(&self) -> RequestReason {
        let status = self.told();
        let condition = status.condition(RequestConditionType::Accepted).unwrap().clone();
        assert_eq!(condition.status, ConditionStatus::False);
        condition.reason
    }

    /// Returns the entry that is withdrawn next.
    fn withdrawn(&self) -> (EntryId, RequestReason) {
        match self.for_request() {
            Some(MaintenanceRequestEffect::Withdraw { entry, cause, .. }) => (entry.0, cause),
            other => panic!("nothing withdrawn: {other:?}"),
        }
    }

    fn request_end(&self) -> RequestReason {
        match self.for_request() {
            Some(MaintenanceRequestEffect::End { cause, .. }) => cause,
            other => panic!("no end: {other:?}"),
        }
    }
}

#[test]
fn saf43_a_request_is_held_then_accepted_then_queued_once() {
    let scene = Scene::new(3).requested(reboot(&[12, 11]));
    let bare = scene.clone().change_request(|row| row.finalizers.clear());
    assert!(matches!(bare.for_request(), Some(MaintenanceRequestEffect::Hold { is_held: true, .. })));
    let accepted = scene.accepted(&[]);
    let record = accepted.store.maintenance_requests.get(UID).unwrap().get().unwrap().clone();
    let names: Vec<&str> = record.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["10.0.0.11", "10.0.0.12"]);
    match accepted.for_request() {
        Some(MaintenanceRequestEffect::Queue { nodes, .. }) => assert_eq!(nodes, [0, 1]),
        other => panic!("{other:?}"),
    }
    // the machine of one Node has a reboot already
    match accepted.clone().queued(&[(7, 11)]).for_request() {
        Some(MaintenanceRequestEffect::Queue { nodes, .. }) => assert_eq!(nodes, [1]),
        other => panic!("{other:?}"),
    }
    // both have had their entries, which are over
    let over = accepted.change_record(|record| {
        record.nodes[0].index = Some(0);
        record.nodes[1].index = Some(1);
    });
    let status = over.told();
    let complete = status.condition(RequestConditionType::Complete).unwrap();
    assert_eq!((complete.status, complete.reason), (ConditionStatus::True, RequestReason::Ended));
    let told = over.change_request(|row| row.status = status);
    assert!(told.for_request().is_none(), "an unchanged status is not written again");
}

#[test]
fn saf43_a_request_that_cannot_be_accepted_says_why_and_takes_nothing() {
    let cases: [(RequestSpec, RequestReason); 5] = [
        (RequestSpec { node_names: vec![NodeName::new("w99")], ..keep(11) }, RequestReason::NoNodes),
        (
            RequestSpec {
                node_names: Vec::new(),
                node_selector: Some(Selector {
                    match_labels: Some(BTreeMap::from([("rack".to_owned(), "9".to_owned())])),
                    match_expressions: None,
                }),
                ..keep(11)
            },
            RequestReason::NoNodes,
        ),
        (
            RequestSpec { window: RequestedWindow { start: None, end: Some(after(now(), 367 * 86_400)) }, ..keep(11) },
            RequestReason::TooLong,
        ),
        (
            RequestSpec {
                window: RequestedWindow { start: Some(after(now(), 60)), end: Some(after(now(), 120)) },
                ..keep(11)
            },
            RequestReason::BeforeWindow,
        ),
        (
            RequestSpec { window: RequestedWindow { start: None, end: Some(after(now(), -1)) }, ..keep(11) },
            RequestReason::WindowEnded,
        ),
    ];
    for (spec, expected) in cases {
        let scene = Scene::new(3).requested(spec.clone()).change_request(|row| row.finalizers.clear());
        assert_eq!(scene.refusal(), expected, "{spec:?}");
    }
    let broken = Scene::new(3).requested(keep(11)).change_request(|row| row.spec = Err("spec: odd".to_owned()));
    assert_eq!(broken.refusal(), RequestReason::InvalidSpec);
    let stranger = Scene::new(3).requested(keep(11)).with(|s| s.cluster.nodes.retain(|n| n.address != "10.0.0.11"));
    assert_eq!(stranger.refusal(), RequestReason::NotMember);
    // nothing happens with another policy, and nothing for a list that is not complete
    assert!(Scene::new(3).requested(keep(11)).with(|s| s.policy.maintenance_requests = false).for_request().is_none());
    assert!(Scene::new(3).requested(keep(11)).with(|s| s.kube.sources.clear()).for_request().is_none());
    let unlisted = |s: &mut Scene| s.kube.sources.get_mut(MAINTENANCE_REQUESTS_SOURCE).unwrap().synced = false;
    assert!(Scene::new(3).requested(keep(11)).with(unlisted).for_request().is_none());
    let window = RequestedWindow { start: None, end: Some(after(now(), 366 * 86_400)) };
    let longest = Scene::new(3).requested(RequestSpec { window, ..keep(11) });
    assert!(matches!(longest.for_request(), Some(MaintenanceRequestEffect::Accept { .. })));
}

#[test]
fn i74_a_deleted_request_withdraws_its_entries_before_its_finalizer_goes() {
    let kept = Scene::new(3).requested(keep(11)).accepted(&[Some(3)]).kept(3, 11, MaintenanceStatus::InMaintenance);
    let status = kept.told();
    assert_eq!(status.nodes[0].state, RequestedNodeState::InMaintenance);
    assert_eq!(status.condition(RequestConditionType::Complete).unwrap().status, ConditionStatus::False);
    let deleted = kept.clone().change_request(|row| row.deleting = true);
    assert_eq!(deleted.withdrawn(), (EntryId::maintenance(3), RequestReason::Deleted));
    let recorded = deleted
        .change_record(|record| *record = crate::maintenance_requests::ended(record, RequestReason::Deleted, now()));
    assert!(matches!(recorded.for_request(), Some(MaintenanceRequestEffect::Hold { is_held: false, .. })));

    // an object that was lost ends nothing; its record is forgotten when its entries have ended
    let lost = kept.with(|s| s.kube.maintenance_requests.clear());
    assert!(lost.for_request().is_none());
    let over = lost.with(|s| s.store.maintenance.entries.clear());
    assert!(matches!(over.for_request(), Some(MaintenanceRequestEffect::Forget { .. })));
}

#[test]
fn saf43_the_end_of_a_window_cancels_only_what_has_not_begun() {
    let spec =
        RequestSpec { window: RequestedWindow { start: None, end: Some(after(now(), 60)) }, ..reboot(&[11, 12]) };
    let scene = Scene::new(3).requested(spec).accepted(&[Some(0), Some(1)]);
    let scene = scene.queued(&[(1, 12)]).entry(0, 11, RebootStatus::Draining, 5);
    assert!(matches!(scene.for_request(), Some(MaintenanceRequestEffect::Report { .. })));
    let over = scene.change_record(|record| record.end = Some(now()));
    assert_eq!(over.withdrawn(), (EntryId::reboot(1), RequestReason::WindowEnded));
    // deleted after its end, it cancels the rest too
    let ended = over.change_record(|record| {
        *record = crate::maintenance_requests::ended(record, RequestReason::WindowEnded, now());
    });
    let deleted = ended.change_request(|row| row.deleting = true);
    assert_eq!(deleted.withdrawn(), (EntryId::reboot(0), RequestReason::Deleted));
    let rest = deleted.entry(0, 11, RebootStatus::Cancelled, 5).entry(1, 12, RebootStatus::Cancelled, 5);
    assert_eq!(rest.request_end(), RequestReason::Deleted);
}

#[test]
fn saf43_a_cancelled_batch_ends_its_request() {
    let id: BatchId = BatchId::at(now());
    let scene = Scene::new(3).requested(reboot(&[11, 12])).accepted(&[Some(0), None]);
    let scene = scene.change_record(|record| record.batch = Some(id)).with(|s| {
        let cancelled = Some(Cancelled { who: Who::default(), at: now(), reason: None });
        let batch = Batch { cancelled, ..Batch::new(QueueKind::Reboot, Who::default(), now(), None, 2) };
        s.store.batches.insert(id, stored("batch", 20, batch));
    });
    assert_eq!(scene.request_end(), RequestReason::BatchCancelled);
}

/// A maintenance ends by itself at the end of its window.
#[test]
fn i74_a_request_withdraws_a_maintenance_once_and_only_because_it_is_deleted() {
    let kept = Scene::new(3).requested(keep(11)).accepted(&[Some(3)]).kept(3, 11, MaintenanceStatus::InMaintenance);
    let withdraws = |scene: &Scene, cause| {
        let record = scene.store.maintenance_requests.get(UID).unwrap().get().unwrap();
        crate::maintenance_requests::to_withdraw(&scene.store, record, cause)
    };
    assert_eq!(withdraws(&kept, RequestReason::Deleted), [EntryId::maintenance(3)]);
    assert_eq!(withdraws(&kept, RequestReason::WindowEnded), []);
    let released = kept.with(|s| {
        let slot = s.store.maintenance.entries.get_mut(&3).unwrap();
        let mut entry = slot.get().unwrap().clone();
        entry.released = Some(Released { who: Who::default(), at: now(), reason: None });
        slot.value = Ok(Arc::new(entry));
    });
    assert_eq!(withdraws(&released, RequestReason::Deleted), []);
}

#[test]
fn saf43_the_end_of_a_window_wakes_the_engine() {
    let window = RequestedWindow { start: None, end: Some(after(now(), 60)) };
    let waiting = Scene::new(3).requested(RequestSpec { window, ..reboot(&[11]) }).accepted(&[None]);
    let wake = (waiting.decide().wake.unwrap() - BOOT).get();
    assert!((59.9..=60.1).contains(&wake), "{wake}");
}
