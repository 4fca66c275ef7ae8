//! Pause of a batch: queued entries do not start, entries in work finish (REB-55, REP-20, I53).

use cketerm_model::{
    batch::{Batch, BatchId, Paused},
    cketerm_records::{Request, Who},
    entry::{EntryId, QueueKind, Stored},
    reason::Reason,
    repair::StepStatus,
    stored::view::Candidate,
};

use super::scene::{Scene, now, stored};
use crate::decide::Guard;

const REVISION: i64 = 21;

fn id() -> BatchId {
    BatchId::at(now())
}

impl Scene {
    /// Puts entries into one batch.
    fn batch(mut self, queue: QueueKind, indexes: &[u64], paused: bool) -> Self {
        let who = || Who { user: "ann".to_owned(), host: "h".to_owned(), ssh_client: None };
        let paused = paused.then(|| Paused { who: who(), at: now(), reason: Some("T-2".to_owned()) });
        let batch = Batch { paused, ..Batch::new(queue, who(), now(), None, 3) };
        self.store.batches.insert(id(), stored("batch", REVISION, batch));
        for index in indexes {
            let request = Request { who: who(), at: now(), reason: None, node_uid: None, batch: Some(id()) };
            self.store.requests.insert(EntryId { queue, index: *index }, stored("request", 20, request));
        }
        self
    }

    /// Breaks the record of the batch.
    fn broken_batch(mut self) -> Self {
        let key = "/cke/cketerm/batches/x".to_owned();
        let broken = Stored { key, mod_revision: REVISION, value: Err("EOF while parsing".to_owned()) };
        self.store.batches.insert(id(), broken);
        self
    }

    fn guard(&self, entry: EntryId) -> Guard {
        self.decide().effects.into_iter().find(|p| p.entry == Some(entry)).map(|p| p.guard).unwrap()
    }
}

#[test]
fn i53_queued_entries_of_a_paused_batch_do_not_start_and_others_do() {
    let scene =
        Scene::new(3).queued(&[(0, 11), (1, 12), (2, 13)]).with(|s| s.cluster.reboot.max_concurrent_reboots = Some(3));
    let paused = scene.clone().batch(QueueKind::Reboot, &[0, 2], true);
    assert_eq!(paused.starts(), [1]);
    assert_eq!(
        paused.reason(0).to_string(),
        "batch 6fy2jg00 paused by ann@h since 2026-08-01T12:00:00Z: T-2".replace("6fy2jg00", &id().to_string())
    );
    assert_eq!(scene.batch(QueueKind::Reboot, &[0, 2], false).starts(), [0, 1, 2]);
}

/// A broken record may hold a pause, so its queued entries wait.
#[test]
fn i53_queued_entries_of_an_unreadable_batch_do_not_start_and_others_do() {
    let scene = Scene::new(2).queued(&[(0, 11), (1, 12)]).batch(QueueKind::Reboot, &[0], false);
    let scene = scene.with(|s| s.cluster.reboot.max_concurrent_reboots = Some(2));
    assert_eq!(scene.starts(), [0, 1]);
    let broken = scene.broken_batch();
    assert_eq!(broken.starts(), [1]);
    let (text, id) = (broken.reason(0).to_string(), id());
    assert!(
        text.starts_with(&format!("batch {id} cannot be read and may be paused: /cke/cketerm/batches/x")),
        "{text}"
    );
    assert!(text.ends_with("EOF while parsing; fix it with etcdctl, or remove it"), "{text}");
    let repair = Scene::repairing(1).repair(0, 11, "two").batch(QueueKind::Repair, &[0], false).broken_batch();
    assert!(repair.repair_starts().is_empty());
    let draining = Scene::new(1).draining(0, 11, 1).batch(QueueKind::Reboot, &[0], false).broken_batch();
    assert_eq!(draining.does(0), Some("rebooting"), "entries in work finish");
}

/// A pause holds up nobody: neither a slot nor the API servers wait for such an entry.
#[test]
fn i53_an_entry_of_a_paused_batch_holds_up_nobody() {
    let scene = Scene::new(2).queued(&[(0, 11), (1, 1)]).batch(QueueKind::Reboot, &[0], true);
    assert_eq!(scene.starts(), [1]);
}

#[test]
fn i53_entries_in_work_of_a_paused_batch_finish() {
    let draining = |paused| Scene::new(1).draining(0, 11, 1).batch(QueueKind::Reboot, &[0], paused);
    assert_eq!((draining(true).does(0), draining(false).does(0)), (Some("rebooting"), Some("rebooting")));
    let watching = |paused| {
        let scene = Scene::repairing(1).repair(0, 11, "two").at_step(0, 1, StepStatus::Waiting, 5);
        scene.batch(QueueKind::Repair, &[0], paused).repair_starts()
    };
    assert_eq!((watching(true), watching(false)), (vec![0], vec![0]), "the second step of a repair in work");
}

#[test]
fn i53_queued_repairs_of_a_paused_batch_do_not_start() {
    let repair = |paused| Scene::repairing(1).repair(0, 11, "two").batch(QueueKind::Repair, &[0], paused);
    assert_eq!((repair(true).repair_starts(), repair(false).repair_starts()), (vec![], vec![0]));
    assert!(matches!(repair(true).repair_reason(0), Reason::BatchPaused { batch, .. } if batch == id()));
}

/// The transaction of a start compares the batch, so a pause in the same moment wins.
#[test]
fn i53_a_start_compares_the_batch_and_work_in_progress_does_not() {
    let queued = Scene::new(1).queued(&[(0, 11)]).batch(QueueKind::Reboot, &[0], false);
    let guard = queued.guard(EntryId::reboot(0));
    assert_eq!(guard.batch, Some((id(), REVISION)));
    assert_eq!(guard.changed(&queued.snapshot().store), None);
    let mut store = queued.store.clone();
    store.batches.remove(&id());
    store.reboots.entries.clone_from(&queued.store.reboots.entries);
    assert_eq!(Guard { start: None, ..guard }.changed(&store), Some("the batch"));
    let repair = Scene::repairing(1).repair(0, 11, "plain").batch(QueueKind::Repair, &[0], false);
    assert_eq!(repair.guard(EntryId::repair(0)).batch, Some((id(), REVISION)));
    let draining = Scene::new(1).draining(0, 11, 1).batch(QueueKind::Reboot, &[0], false);
    assert_eq!(draining.guard(EntryId::reboot(0)).batch, None);
    let older = Scene::new(1).queued(&[(0, 11)]);
    assert_eq!(older.guard(EntryId::reboot(0)).batch, None, "an entry of version 0.1 has none");
}

#[test]
fn a_pause_from_before_cke_took_the_lead_is_reported_as_not_in_force() {
    let scene = Scene::new(1).queued(&[(0, 11)]).batch(QueueKind::Reboot, &[0], true).with(|s| {
        s.snap.engine.leading = None;
        let (key, host) = ("/cke/leader//9".to_owned(), "boot-0".to_owned());
        s.store.candidates.insert(3, Candidate { key, lease: 9, host, create_revision: 3 });
    });
    let reason = scene.reason(0);
    assert!(matches!(&reason, Reason::BatchPauseIgnored { batch, .. } if *batch == id()), "{reason:?}");
    assert!(reason.to_string().contains("NOT IN FORCE: CKE on boot-0 leads"), "{reason}");
    let reason = scene.broken_batch().reason(0);
    assert!(matches!(&reason, Reason::EngineElsewhere { .. }), "CKE starts it: {reason:?}");
}
