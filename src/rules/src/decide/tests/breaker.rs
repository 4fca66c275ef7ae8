//! No start after machines that ended badly (policy `breaker`), and the first machines of a batch alone (policy `canary`).

use cketerm_model::{
    attempt::Ended,
    batch::{Batch, BatchEnds, BatchId},
    cketerm_records::{EndKind, Request, Who},
    entry::EntryId,
    names::Address,
    outcomes::{BadEnd, Breaker, BreakerReset, Canary, Outcome},
    reason::{MAX_NAMES, Reason},
    reboot::RebootStatus,
    time::after,
};

use super::scene::{Scene, now, stored};

fn batch() -> BatchId {
    BatchId::at(now())
}

impl Scene {
    /// Adds the outcome of an entry of that batch, for a worker, which ended so many seconds ago.
    fn ended(mut self, index: u64, worker: u8, age: i64, bad: Option<BadEnd>) -> Self {
        let revision = 1000 - age;
        let address = Address::new(format!("10.0.0.{worker}"));
        let outcome = Outcome { address, at: after(now(), -age), bad, stuck_at: None, batch: Some(batch()) };
        self.store.outcomes.insert(index, stored("outcome", revision, outcome));
        let end = if bad.is_none() { EndKind::Booted } else { EndKind::Cancelled };
        self.store.batch_ends.insert((batch(), EntryId::reboot(index)), stored("end", revision, end));
        self
    }

    fn breaker(self, failures: u64, of: u64) -> Self {
        let breaker = Breaker::read(&format!("{{failures: {failures}, of: {of}}}")).unwrap();
        self.with(|s| s.policy.breaker = Some(breaker.clone()))
    }

    /// Records a reset so many seconds ago.
    fn reset(mut self, age: i64, forgiven: &[u64]) -> Self {
        let forgiven = forgiven.iter().map(|index| EntryId::reboot(*index)).collect();
        let reset = BreakerReset { who: Who::default(), at: after(now(), -age), reason: None, forgiven };
        self.store.breaker_reset = Some(stored("reset", 1000 - age, reset));
        self
    }

    /// Puts the entries into that batch.
    fn in_batch(mut self, indexes: &[u64]) -> Self {
        let record = Batch::new(cketerm_model::entry::QueueKind::Reboot, Who::default(), now(), None, 9);
        self.store.batches.insert(batch(), stored("batch", 1, record));
        for index in indexes {
            let request =
                Request { who: Who::default(), at: now(), reason: None, node_uid: None, batch: Some(batch()) };
            self.store.requests.insert(EntryId::reboot(*index), stored("request", 1, request));
        }
        self
    }
}

/// Five workers, of which three may be in reboot, and entries 10 to 13.
fn scene() -> Scene {
    Scene::new(5).queued(&[(10, 11), (11, 12), (12, 13), (13, 14)]).with(|s| {
        s.cluster.reboot.max_concurrent_reboots = Some(3);
        s.constraints.maximum_unreachable_nodes_for_reboot = 9;
    })
}

const BAD: Option<BadEnd> = Some(BadEnd::Withdrawn);

#[test]
fn reb60_nothing_starts_after_so_many_of_the_last_machines_ended_badly() {
    let two = scene().ended(1, 11, 90, BAD).ended(2, 12, 80, None).ended(3, 13, 70, BAD);
    assert_eq!(two.starts(), [10, 11, 12], "no breaker");
    assert_eq!(two.clone().breaker(3, 5).starts(), [10, 11, 12]);
    assert_eq!(two.clone().breaker(2, 2).starts(), [10, 11, 12], "the last two are one bad and one good");
    let open = two.clone().breaker(2, 3);
    assert!(open.starts().is_empty());
    assert_eq!(
        open.reason(10).to_string(),
        "the breaker is open: 2 of the last 3 reboots ended badly: 10.0.0.11, 10.0.0.13; `rq reset-breaker` closes it"
    );
    let later = (4..9).fold(open, |scene, index| scene.ended(index, 14, 60 - i64::try_from(index).unwrap(), None));
    assert!(later.starts().is_empty(), "what was in work ends well and does not close it");
    assert_eq!(later.clone().reset(65, &[]).starts(), [10, 11, 12]);
    assert!(later.reset(75, &[]).breaker(1, 9).starts().is_empty(), "one ended badly after the reset");
}

#[test]
fn reb61_a_stuck_machine_counts_and_a_reset_forgives_what_is_in_reboot() {
    let stuck = |age| scene().ended(1, 11, 90, BAD).rebooting(2, 15, age, Some(Ended::Exit(0))).breaker(2, 4);
    assert_eq!(stuck(1799).starts(), [10, 11]);
    let failed = scene().ended(1, 11, 90, BAD).rebooting(2, 15, 60, Some(Ended::Exit(1))).breaker(2, 4);
    assert_eq!(failed.starts(), [10, 11], "it may boot nevertheless");
    let open = stuck(1800);
    assert!(open.starts().is_empty());
    assert!(matches!(open.reason(10), Reason::BreakerOpen { count: 2, of: 2, .. }), "{}", open.reason(10));
    assert!(open.clone().breaker(1, 4).reset(10, &[]).starts().is_empty(), "it is stuck still");
    let reset = open.breaker(1, 4).reset(10, &[2]);
    assert_eq!(reset.starts(), [10, 11]);
    assert_eq!(reset.ended(2, 15, 5, Some(BadEnd::Late)).starts(), [10, 11], "its end was forgiven too");
}

#[test]
fn reb60_what_ends_well_later_does_not_close_an_open_breaker() {
    // 15 has been stuck for a minute; the good ends come after that
    let stuck = || scene().ended(1, 11, 90, BAD).rebooting(2, 15, 1860, Some(Ended::Exit(0))).breaker(2, 3);
    assert!(stuck().starts().is_empty());
    assert!(stuck().ended(3, 12, 50, None).ended(4, 13, 40, None).starts().is_empty());
    // and when it comes back late, it keeps its place
    let late = scene().ended(1, 11, 90, BAD).ended(3, 12, 50, None).ended(4, 13, 40, None).breaker(2, 3);
    let late = late.ended(2, 15, 5, Some(BadEnd::Late));
    let back = |stuck_at| {
        late.clone().with(|s| {
            let slot = s.store.outcomes.get_mut(&2).unwrap();
            let outcome = slot.get().unwrap().clone();
            slot.value = Ok(std::sync::Arc::new(Outcome { stuck_at, ..outcome }));
        })
    };
    assert!(back(Some(after(now(), -60))).starts().is_empty());
    assert_eq!(back(None).starts(), [10, 11, 12], "in the order of their ends they are far apart");
}

#[test]
fn reb61_a_withdrawn_reboot_counts_before_its_outcome_is_written() {
    let rebooting = || scene().rebooting(2, 15, 60, Some(Ended::Exit(0))).breaker(1, 4);
    assert_eq!(rebooting().starts(), [10, 11]);
    let cancelled = rebooting().change(2, |entry| entry.status = RebootStatus::Cancelled);
    assert!(cancelled.starts().is_empty(), "its slot is free, and its outcome comes with its removal");
    let stranger = rebooting().with(|s| s.cluster.nodes.retain(|node| *node.address != *Scene::address(15)));
    assert!(stranger.starts().is_empty());
    // a command that never began did nothing to the machine
    let never = scene().rebooting(2, 15, 60, Some(Ended::NotStarted("no such file".to_owned()))).breaker(1, 4);
    assert_eq!(never.change(2, |entry| entry.status = RebootStatus::Cancelled).starts(), [10, 11, 12]);
}

#[test]
fn reb62_the_first_of_a_batch_run_alone_and_others_after_the_soak() {
    let canary = |text: &str| {
        let canary = Canary::read(text).unwrap();
        scene().in_batch(&[10, 11, 12]).with(|s| s.policy.canary = Some(canary.clone()))
    };
    let one = canary("{first: 1, soak_seconds: 600}");
    assert_eq!(one.starts(), [10, 13], "13 has no batch");
    assert_eq!(one.reason(11).to_string(), format!("waits for the first 1 of batch {} (0 booted)", batch()));
    assert_eq!(canary("first: 2").starts(), [10, 11, 13]);
    // a bad end is no canary
    assert_eq!(one.clone().ended(1, 15, 900, BAD).starts(), [10, 13]);
    let soaks = one.clone().ended(1, 15, 599, None);
    assert_eq!(soaks.starts(), [13]);
    assert!(matches!(soaks.reason(10), Reason::CanaryPending { until: Some(_), fault: None, booted: 1, .. }));
    let back = one.clone().ended(1, 15, 600, None);
    assert_eq!(back.starts(), [10, 11, 12]);
    let down = |scene: &Scene| scene.clone().node(15, |n| n.ready = false);
    let fault = down(&back);
    assert_eq!(fault.starts(), [13]);
    assert!(fault.reason(10).to_string().ends_with("(1 booted): 10.0.0.15 is not Ready"), "{}", fault.reason(10));
    let others = down(&back).ended(2, 14, 30, None);
    assert_eq!(others.starts(), [10, 11, 12], "others were started before");
    // an outcome that is no longer kept is older than the oldest one that is
    let forgotten = one.with(|s| {
        let mut record = Batch::new(cketerm_model::entry::QueueKind::Reboot, Who::default(), now(), None, 9);
        record.ends = BatchEnds { done: 1, ..BatchEnds::default() };
        s.store.batches.insert(batch(), stored("batch", 1, record));
    });
    assert_eq!(forgotten.starts(), [10, 11, 12]);
}

#[test]
fn reb60_the_reason_names_at_most_twenty_machines() {
    let all = (0..25).fold(Scene::new(30).queued(&[(99, 40)]), |scene, place| {
        scene.ended(place, 11 + u8::try_from(place).unwrap(), 90, BAD)
    });
    let Reason::BreakerOpen { count, names, .. } = all.breaker(25, 25).reason(99) else { panic!("it is open") };
    assert_eq!((count, names.len()), (25, MAX_NAMES));
}

#[test]
fn reb62_canaries_in_work_count_and_the_soak_begins_with_the_last_one() {
    let canary = Canary::read("{first: 2, soak_seconds: 600}").unwrap();
    let batch = scene().with(|s| s.policy.canary = Some(canary));
    let one_in_work = batch.clone().draining(9, 15, 5).in_batch(&[9, 10, 11, 12]);
    assert_eq!(one_in_work.starts(), [10, 13], "one of the first two is in work");
    let soaks = batch.in_batch(&[10, 11, 12]).ended(1, 15, 900, None).ended(2, 14, 300, None);
    assert_eq!(soaks.starts(), [13], "the second has been back for 300 s");
}
