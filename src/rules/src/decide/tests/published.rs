//! Progress and reasons that the leader publishes, and their use by other engines.

use std::collections::BTreeMap;

use cketerm_model::{
    attempt::Ended,
    cketerm_records::Progress,
    clock::Now,
    entry::{EntryId, QueueKind},
    names::Address,
    reason::{PodHold, Reason},
    reboot::RebootStatus::Draining,
    repair::StepStatus,
    stored::keys::Keys,
};

use super::scene::{BOOT, Scene, now, stored};
use crate::publish::{blockers, changes, merged};

const ID: EntryId = EntryId { queue: QueueKind::Reboot, index: 0 };

fn progress(reason: Reason) -> Progress {
    Progress {
        phase: "waiting".to_owned(),
        since: now(),
        pods_at_start: 0,
        pods_gone: 0,
        reason: Some(reason),
        blockers: Vec::new(),
        next: None,
        step: None,
        check: None,
    }
}

/// Returns the progress of this entry that the leader writes.
fn written(scene: &Scene, id: EntryId) -> Option<Progress> {
    let keys = Keys::new("/cke/");
    let change = changes(&keys, &scene.snapshot(), &scene.decide(), Now { boot: BOOT, wall: now() })?;
    let put = change.puts.into_iter().find(|put| put.key == keys.progress(id))?;
    Some(serde_json::from_str(&put.value).unwrap())
}

#[test]
fn the_reasons_of_another_cketerm_engine_replace_those_of_an_observer() {
    let queued = Scene::new(1).queued(&[(0, 11)]).with(|s| {
        s.store.progress.insert(ID, stored("progress", 9, progress(Reason::QueueDisabled)));
    });
    let shown = |scene: &Scene| merged(&scene.snapshot(), BTreeMap::from([(ID, Reason::Ready)]))[&ID].clone();
    assert_eq!(shown(&queued.clone().led_by_another_engine()), Reason::QueueDisabled);
    assert_eq!(shown(&queued.clone().led_by_cke()), Reason::Ready, "CKE publishes none");
    let own = queued.clone().led_by_another_engine().with(|s| s.snap.engine.lease = 9);
    assert_eq!(shown(&own), Reason::Ready, "it has just won the lock itself");
    assert_eq!(shown(&queued), Reason::Ready, "it leads");
}

#[test]
fn only_the_pods_that_hold_a_drain_are_published() {
    let with_pod = |scene: Scene| scene.pod(11, "web", |_| {}).budget("web", "web");
    let named = |scene: Scene| written(&with_pod(scene), ID).map(|progress| progress.blockers.len());
    assert_eq!(named(Scene::new(1).draining(0, 11, 5).work(0, |w| w.drain.accepted = true)), Some(1));
    assert_eq!(named(Scene::new(1).rebooting(0, 11, 5, Some(Ended::Exit(0)))), Some(0), "it is drained");
}

/// Nothing is known of a drain that another engine does. Its pods leave nevertheless.
#[test]
fn the_pods_of_a_drain_that_is_not_remembered_are_named_as_leaving() {
    let scene = Scene::new(1).entry(0, 11, Draining, 5).pod(11, "web", |_| {});
    let named = blockers(&scene.snapshot(), ID, &Address::new("10.0.0.11"));
    let named: Vec<(&str, &PodHold)> = named.iter().map(|blocker| (blocker.pod.as_str(), &blocker.why)).collect();
    assert_eq!(named, [("shop/web", &PodHold::Leaving)]);
}

#[test]
fn a_progress_is_written_once_and_deleted_with_its_entry() {
    let keys = Keys::new("/cke/");
    let change = |scene: &Scene| {
        let change = changes(&keys, &scene.snapshot(), &scene.decide(), Now { boot: BOOT, wall: now() });
        change.map_or((0, 0), |change| (change.puts.len(), change.deletes.len()))
    };
    let empty = Scene::new(1).with(|s| {
        let phase = s.decide().phase;
        let status = cketerm_model::cketerm_records::Status { phase: phase.to_owned(), timestamp: now().to_string() };
        s.store.status = Some(stored("status", 9, status));
        s.store.running = Some("false".to_owned());
    });
    assert_eq!(change(&empty), (0, 0), "all is known");
    let gone = empty.with(|s| drop(s.store.progress.insert(ID, stored("progress", 9, progress(Reason::Ready)))));
    assert_eq!(change(&gone), (0, 1));
}

#[test]
fn a_repair_with_an_unknown_operation_has_no_number_of_steps() {
    let steps = |operation: &str| {
        let scene = Scene::repairing(1).repair(0, 11, operation).at_step(0, 0, StepStatus::Watching, 5);
        written(&scene, EntryId::repair(0)).and_then(|progress| progress.step)
    };
    assert_eq!((steps("two"), steps("gone")), (Some((0, 2)), Some((0, 0))));
}
