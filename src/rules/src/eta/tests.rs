use std::sync::Arc;

use cketerm_model::{
    batch::{Batch, BatchId, Paused},
    cketerm_records::{EndKind, Order, Request, Who},
    cluster::{Cluster, Members, Node},
    entry::{EntryId, QueueKind, Stored},
    freeze::Freeze,
    kube::KubeView,
    names::Address,
    policy::Policy,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::RepairEntry,
    stored::view::{Definition, StoreView},
    time::after,
    verb::Verb,
    window::Windows,
};
use jiff::Timestamp;

use super::*;
use crate::{
    eta::{self, text::Detail},
    start::Start,
    usual::{EndedTimes, MachineClass, Phase, PhaseTime, UsualTimes},
};

mod distribution;
mod queue;

#[path = "../../examples/eta_coverage/measure.rs"]
#[allow(dead_code, missing_docs, clippy::all, clippy::pedantic)]
mod measure;
#[path = "../../examples/eta_coverage/site.rs"]
#[allow(dead_code, missing_docs, clippy::all, clippy::pedantic)]
mod site;

fn now() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().unwrap()
}

fn address(n: usize) -> Address {
    Address::new(format!("10.0.0.{n}"))
}

fn stored<T>(value: T) -> Stored<T> {
    Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) }
}

/// A reboot of machine `n` that drained for 60 s, and ended 120 s after its command.
fn ended(n: usize) -> EndedTimes {
    let time = |phase, seconds| PhaseTime { phase, step: None, seconds };
    EndedTimes {
        entry: EntryId::reboot(0),
        address: address(n),
        end: EndKind::Booted,
        at: after(now(), -3600),
        control_plane: n <= 2,
        machine_type: None,
        operation: None,
        backoffs: 0,
        phases: vec![time(Phase::Drain, 60.0), time(Phase::Boot, 118.0), time(Phase::Whole, 180.0)],
    }
}

/// API servers 1 and 2, workers 3 to 40 in racks of ten, two at once. Workers 3 to 8 and API server 1 are queued.
struct Scene {
    store: StoreView,
    history: usize,
    bar: Option<Bar>,
}

impl Scene {
    fn new() -> Self {
        let node = |n: usize| Node {
            address: address(n),
            control_plane: n <= 2,
            labels: Some([("cke.cybozu.com/rack".to_owned(), (n / 6).to_string())].into()),
            ..Node::default()
        };
        let mut cluster = Cluster { nodes: (1..=40).map(node).collect(), ..Cluster::default() };
        (cluster.reboot.max_concurrent_reboots, cluster.repair.max_concurrent_repairs) = (Some(2), Some(2));
        let members = Members::of(&cluster);
        let mut store = StoreView { cluster: Some(stored(Definition { cluster, members })), ..StoreView::default() };
        for n in [3, 4, 5, 6, 7, 8, 1] {
            let index = u64::try_from(n).unwrap();
            store.reboots.entries.insert(index, stored(RebootEntry::queued(index, &address(n))));
        }
        Self { store, history: 40, bar: None }
    }

    fn policy(mut self, policy: Policy) -> Self {
        self.store.policy = Some(stored(policy));
        self
    }

    fn keep(&mut self, indexes: &[u64]) {
        let gone = self.store.reboots.entries.keys().filter(|index| !indexes.contains(index));
        for index in gone.copied().collect::<Vec<_>>() {
            self.store.reboots.entries.remove(&index);
        }
    }

    fn entry(&mut self, index: u64, status: RebootStatus, ago: i64) {
        let entry = self.store.reboots.entries[&index].get().unwrap().moved_to(status, after(now(), -ago));
        self.store.reboots.entries.insert(index, stored(entry));
    }

    fn answers(&self, part: &dyn Fn(EntryId) -> Part, set: &dyn Fn(EntryId) -> Option<usize>) -> Vec<Answer> {
        self.answers_of(QueueKind::Reboot, &[], part, set)
    }

    fn answers_of(
        &self,
        queue: QueueKind,
        added: &[Address],
        part: &dyn Fn(EntryId) -> Part,
        set: &dyn Fn(EntryId) -> Option<usize>,
    ) -> Vec<Answer> {
        let history = (0..self.history).map(|i| EndedTimes { entry: EntryId { queue, index: 0 }, ..ended(1 + i % 8) });
        self.answers_from(history.collect(), queue, added, part, set)
    }

    fn answers_from(
        &self,
        history: Vec<EndedTimes>,
        queue: QueueKind,
        added: &[Address],
        part: &dyn Fn(EntryId) -> Part,
        set: &dyn Fn(EntryId) -> Option<usize>,
    ) -> Vec<Answer> {
        let usual = UsualTimes::of(history, |address| MachineClass::of_address(&self.store, address));
        let question = Question {
            store: &self.store,
            kube: &KubeView::default(),
            queue,
            usual: &usual,
            start: &Start::at(now(), self.bar.clone()),
            part,
            set,
            sets: 1,
            added,
            now: now(),
        };
        question.answers()
    }

    /// Minutes until the whole queue is done, likely.
    fn minutes(&self) -> f64 {
        let answer = self.answers(&|_| Part::Ends, &|_| None).pop().unwrap();
        minutes_until(answer.unwrap().likely)
    }
}

fn minutes_until(at: Timestamp) -> f64 {
    at.duration_since(now()).as_secs_f64() / 60.0
}

fn assert_about(minutes: f64, expected: f64) {
    assert!((minutes - expected).abs() < 0.5, "{minutes} instead of {expected}");
}

/// Six workers, two at once, of three minutes each; then an API server.
#[test]
fn workers_share_the_slots_and_an_api_server_comes_last_and_alone() {
    let mut scene = Scene::new();
    assert_about(scene.minutes(), 12.0);
    scene.store.reboots.entries.remove(&1);
    assert_about(scene.minutes(), 9.0);
}

/// Two repairs at once, of three minutes each.
#[test]
fn an_api_server_in_repair_shares_the_slots() {
    let mut scene = Scene::new();
    for n in [1, 2, 3, 4] {
        let repair = RepairEntry::queued(1, &address(n), "QEMU", "unreachable", None);
        scene.store.repairs.entries.insert(u64::try_from(n).unwrap(), stored(repair));
    }
    let answers = scene.answers_of(QueueKind::Repair, &[], &|_| Part::Ends, &|_| None);
    assert_about(minutes_until(answers[1].as_ref().unwrap().likely), 6.0);
}

#[test]
fn machines_that_would_be_queued_end_after_what_is_queued() {
    let mut scene = Scene::new();
    scene.store.reboots.entries.remove(&1);
    let answers = scene.answers_of(QueueKind::Reboot, &[address(9)], &|_| Part::Ends, &|_| None);
    assert_about(minutes_until(answers[0].as_ref().unwrap().likely), 12.0);
}

#[test]
fn progress_of_an_entry_in_work_counts() {
    let mut scene = Scene::new();
    scene.keep(&[3, 4]);
    scene.entry(3, RebootStatus::Draining, 30);
    scene.entry(4, RebootStatus::Rebooting, 90);
    assert_about(scene.minutes(), 2.5);
    scene.store.reboots.entries.remove(&3);
    assert_about(scene.minutes(), 0.5);
}

#[test]
fn a_set_ends_before_the_entries_behind_it_and_an_entry_at_rest_does_not_count() {
    let scene = Scene::new();
    let answers = scene.answers(&|_| Part::Ends, &|id| (id.index == 3 || id.index == 4).then_some(0));
    assert_about(minutes_until(answers[0].as_ref().unwrap().likely), 3.0);
    assert_about(minutes_until(answers[1].as_ref().unwrap().likely), 12.0);
    let rests = |id: EntryId| if id.index >= 5 { Part::Rests } else { Part::Ends };
    assert_about(minutes_until(scene.answers(&rests, &|_| None)[1].clone().unwrap().likely), 6.0);
}

/// A stuck entry is not promised, but its slot is missing.
#[test]
fn an_entry_that_needs_an_operator_only_takes_its_slot() {
    let mut scene = Scene::new();
    scene.store.reboots.entries.remove(&1);
    scene.entry(3, RebootStatus::Rebooting, 20_000);
    let part = |id: EntryId| if id.index == 3 { Part::HoldsSlot } else { Part::Ends };
    assert_about(minutes_until(scene.answers(&part, &|_| None)[1].clone().unwrap().likely), 15.0);
}

#[test]
fn one_rack_at_a_time_leaves_slots_empty() {
    let groups = serde_json::from_str(r#"{"by": "rack", "limit": 1}"#).unwrap();
    let mut scene = Scene::new().policy(Policy { groups: Some(groups), ..Policy::default() });
    // workers 3, 4 and 5 are of rack 0, workers 6, 7 and 8 of rack 1
    assert_about(scene.minutes(), 15.0);
    scene.store.reboots.entries.remove(&1);
    assert_about(scene.minutes(), 12.0);
}

/// Eight minutes a night: two pairs start, and a drain that would end after the window returns to the queue.
#[test]
fn work_continues_in_the_next_window() {
    let windows = "time_zone: UTC\nallow: ['0-7 10 * * *']\nmargin_seconds: 60";
    let mut scene = Scene::new().policy(Policy { windows: Some(Windows::read(windows).unwrap()), ..Policy::default() });
    scene.store.reboots.entries.remove(&1);
    assert_about(scene.minutes(), 9.0);
    scene.store.reboots.entries.insert(1, stored(RebootEntry::queued(1, &address(1))));
    assert_about(scene.minutes(), 24.0 * 60.0 + 3.0);
}

/// Only the repairs wait for the night: of seven reboots, two start in each of the windows of eight minutes.
#[test]
fn windows_of_the_other_queue_delay_nothing() {
    let windows = "time_zone: UTC\nallow: ['0-7 10 * * *']\nqueues: [repair]";
    let scene = Scene::new().policy(Policy { windows: Some(Windows::read(windows).unwrap()), ..Policy::default() });
    assert_about(scene.minutes(), 12.0);
}

#[test]
fn a_freeze_delays_everything_but_what_was_commanded() {
    let freeze =
        Freeze { until: after(now(), 7200), reason: "x".into(), who: Who::default(), unknown: serde_json::Map::new() };
    let mut scene = Scene::new().policy(Policy { freeze: Some(freeze), ..Policy::default() });
    scene.bar = Some(Bar::Before(after(now(), 7200), "freeze"));
    assert_about(scene.minutes(), 132.0);
    scene.keep(&[3]);
    scene.entry(3, RebootStatus::Rebooting, 60);
    assert_about(scene.minutes(), 1.0);
}

#[test]
fn a_backoff_is_waited_for() {
    let mut scene = Scene::new();
    scene.keep(&[3, 4]);
    let entry = scene.store.reboots.entries[&3].get().unwrap().clone();
    let until = Some(after(now(), 600));
    scene
        .store
        .reboots
        .entries
        .insert(3, stored(RebootEntry { drain_backoff_count: 1, drain_backoff_expire: until, ..entry }));
    assert_about(scene.minutes(), 13.0);
    let answers = scene.answers(&|_| Part::Ends, &|id| (id.index == 4).then_some(0));
    assert_about(minutes_until(answers[0].as_ref().unwrap().likely), 3.0);
}

#[test]
fn without_an_estimate_the_reason_is_named() {
    let of = |change: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::new();
        change(&mut scene);
        scene.answers(&|_| Part::Ends, &|_| None).pop().unwrap().unwrap_err()
    };
    assert_eq!(of(&|scene| scene.history = 7), NoEstimate::FewSamples { known: 7, needed: 8 });
    assert_eq!(of(&|scene| scene.bar = Some(Bar::Disabled)), NoEstimate::Barred(Bar::Disabled));
    assert_eq!(of(&|scene| scene.store.reboots.entries.clear()), NoEstimate::NothingLeft);
    let scene = Scene::new();
    assert_eq!(scene.answers(&|_| Part::Rests, &|_| None), vec![Err(NoEstimate::NothingLeft); 2]);
    let clock = |at: Timestamp| at.to_string();
    let text = |why: NoEstimate| why.described(clock).unwrap_or_default();
    assert_eq!(text(NoEstimate::FewSamples { known: 0, needed: 8 }), "no estimate yet (needs 8 completed)");
    assert_eq!(text(NoEstimate::Barred(Bar::Not("while nobody leads"))), "no estimate while nobody leads");
}

#[test]
fn held_stuck_and_duplicate_entries_do_not_end_by_themselves() {
    let mut scene = Scene::new();
    scene.entry(3, RebootStatus::Rebooting, 20_000);
    let who = || Who { user: "ann".to_owned(), ..Who::default() };
    let order = Order { verb: Verb::Hold, who: who(), at: now(), reason: None, entry_revision: 1 };
    scene.store.orders.insert(EntryId::reboot(4), stored(order));
    let waits = Reason::WaitingForSlot { holder: Some(EntryId::reboot(3)), limit: 2, ahead: false };
    let reasons = [
        (
            EntryId::reboot(3),
            Reason::CommandFailed {
                end: cketerm_model::attempt::Ended::Exit(1),
                stderr: String::new(),
                retry: cketerm_model::reason::CommandRetry::Never,
            },
        ),
        (EntryId::reboot(5), Reason::DuplicateOf { index: 4 }),
        (EntryId::reboot(6), Reason::DuplicateOf { index: 7 }),
        (EntryId::reboot(7), waits),
        (
            EntryId::reboot(8),
            Reason::BatchPaused { batch: BatchId::at(now()), by: "ann".to_owned(), since: now(), why: None },
        ),
    ];
    let reason_of = |id: EntryId| reasons.iter().find(|(of, _)| *of == id).map(|(_, why)| why);
    // a pause without a published reason, of an entry that is queued and of one in work
    let batch = BatchId::at(now());
    let paused = Paused { who: who(), at: now(), reason: None };
    let batch_value = Batch { paused: Some(paused), ..Batch::new(QueueKind::Reboot, who(), now(), None, 2) };
    scene.store.batches.insert(batch, stored(batch_value));
    for index in [10, 11] {
        scene.store.reboots.entries.insert(index, stored(RebootEntry::queued(index, &address(20))));
    }
    scene.entry(11, RebootStatus::Draining, 60);
    for index in [10, 11] {
        let request = Request { who: who(), at: now(), reason: None, node_uid: None, batch: Some(batch) };
        scene.store.requests.insert(EntryId::reboot(index), stored(request));
    }
    let of_batch = [10, 11].map(|index| part_of(&scene.store, &reason_of, now(), EntryId::reboot(index)));
    assert_eq!(of_batch, [Part::Rests, Part::Ends]);
    let parts: Vec<Part> =
        (3..=8).map(|index| part_of(&scene.store, &reason_of, now(), EntryId::reboot(index))).collect();
    assert_eq!(parts, [Part::HoldsSlot, Part::Rests, Part::Rests, Part::Ends, Part::Ends, Part::Rests]);
}

#[test]
fn an_even_interval_is_written_with_its_half_and_an_uneven_one_with_both_ends() {
    let clock = |at: Timestamp| at.strftime("%H:%MZ").to_string();
    let text = |low, likely, high| {
        let at = |minutes: i64| after(now(), minutes * 60);
        let estimate =
            Estimate { at: now(), low: at(low), likely: at(likely), high: at(high), steady: None, samples: 9 };
        estimate.described(Detail::Full, clock)
    };
    assert_eq!(text(5, 10, 16), "done 10:10Z ± 6m");
    assert_eq!(text(9, 10, 11), "done 10:10Z ± 1m");
    assert_eq!(text(10, 10, 10), "done 10:10Z");
    assert_eq!(text(5, 8, 40), "done between 10:05Z and 10:40Z");
    assert_eq!(text(60, 400, 700), "done 16:20Z ± 6h");
}

/// The interval of all futures is an hour wide where a machine may get stuck. Nobody can plan with that.
#[test]
fn the_planned_end_assumes_that_no_machine_gets_stuck_and_the_late_end_stands_beside_it() {
    let clock = |at: Timestamp| at.strftime("%H:%MZ").to_string();
    let scene = Scene::new();
    let estimate = scene.answers(&|_| Part::Ends, &|_| None).pop().unwrap().unwrap();
    let (planned, late) = (estimate.planned(), estimate.late().unwrap());
    assert!(planned.high.duration_since(planned.low).as_secs() < 240, "{estimate:?}");
    assert!(late.duration_since(planned.high).as_secs() > 300, "{estimate:?}");
    let by = clock(late);
    assert_eq!(estimate.described(Detail::Short, clock), "done 10:12Z");
    assert_eq!(estimate.described(Detail::Assumed, clock), "done 10:12Z if none sticks");
    assert_eq!(estimate.described(Detail::Full, clock), format!("done 10:12Z if none sticks, 90 % by {by}"));
    // hundreds of machines: some will get stuck, and a promise that none does would be empty
    let durations = || Durations::of((0..100).map(f64::from).chain([3000.0; 4]).collect(), Some(1800.0), false);
    let forecast = |n| {
        let kinds = vec![Kind { drain: Durations::of(vec![10.0; 104], None, false), after: durations() }];
        Queue { kinds, ..alternating(n, 1, None) }.forecast(1)[0].unwrap()
    };
    assert!(forecast(500).steady.is_none(), "{:?}", forecast(500));
    let [low, likely, high] = forecast(20).steady.unwrap();
    assert!(low < likely && likely < high && high < forecast(20).high, "{:?}", forecast(20));
}

/// So many waiting entries on four slots, of this number of machine types that alternate, in racks of forty.
fn alternating(n: usize, kinds: usize, groups: Option<usize>) -> Queue {
    let durations = |seconds: f64| Durations::of((0..100).map(|i| seconds + f64::from(i)).collect(), None, false);
    let job = |n: usize| Job {
        kind: n % kinds,
        group: if groups.is_some() { n / 40 } else { 0 },
        window: 0,
        set: Some(0),
        state: State::Waiting,
        ready: 0.0,
        count: 1,
    };
    Queue {
        slots: 4,
        shared: (0..n).map(job).collect(),
        alone: Vec::new(),
        alone_first: false,
        groups,
        group_hold: 1800.0,
        windows: vec![Openings::always()],
        margin: 0.0,
        backoff: Backoff { share: 0.0, timeout: 600.0, wait: (300.0, 600.0) },
        kinds: vec![Kind { drain: durations(10.0), after: durations(50.0) }; kinds],
    }
}

#[test]
fn long_queues_are_estimated_as_short_ones_are() {
    // 159 s each
    for (n, kinds) in [(250, 1), (251, 1), (5000, 1), (5000, 3)] {
        let queue = alternating(n, kinds, None);
        let (forecast, expected) = (queue.forecast(1)[0].unwrap(), f64::from(u32::try_from(n).unwrap()) * 159.0 / 4.0);
        assert!((forecast.likely - expected).abs() < expected * 0.03, "{n}: {forecast:?}, {expected}");
        assert!(forecast.low < expected && expected < forecast.high, "{n}: {forecast:?}, {expected}");
        assert_eq!(queue.forecast(1)[0], Some(forecast), "the same question has the same answer");
    }
}

/// An entry that does not fit into an opening comes back at its end, where nothing starts even without a margin.
#[test]
fn a_window_without_a_margin_is_left_at_its_end() {
    let day = |n: u32| (f64::from(n) * 86_400.0, f64::from(n) * 86_400.0 + 300.0);
    let windows = || vec![Openings((0..40).map(day).collect())];
    let short = Queue { windows: windows(), ..alternating(20, 1, None) };
    let long = Queue { windows: windows(), ..alternating(1000, 1, None) };
    let jobs = short.shared.clone();
    let alone = Queue { windows: windows(), shared: Vec::new(), alone: jobs, ..alternating(0, 1, None) };
    let days = |queue: &Queue| queue.forecast(1)[0].map(|forecast| (forecast.likely / 86_400.0).floor());
    // 159 s each; two of a slot begin on a day of 300 s
    assert_eq!(days(&short), Some(2.0));
    assert_eq!(days(&alone), Some(9.0));
    assert_eq!(days(&long), None, "forty days are not enough");
    let never = Queue { windows: vec![Openings(vec![(0.0, 1.0), (86_400.0, 86_401.0)])], ..alternating(4, 1, None) };
    assert_eq!(days(&never), None);
}

/// Jobs that are played, over all runs: they are the cost.
#[test]
fn the_work_of_an_estimate_does_not_grow_with_the_queue() {
    let work = |n, kinds, groups| {
        let queue = alternating(n, kinds, groups);
        let (prepared, runs) = queue.prepared();
        assert_eq!(prepared.shared.iter().map(|job| job.count).sum::<usize>(), n);
        // and again without anything stuck
        prepared.jobs() * runs * 2
    };
    for (n, kinds, groups) in
        [(60, 1, None), (1000, 1, None), (5000, 1, None), (5000, 4, None), (1000, 2, Some(1)), (5000, 2, Some(1))]
    {
        assert!(work(n, kinds, groups) <= 15_000, "{n}, {kinds}, {groups:?}: {}", work(n, kinds, groups));
    }
}

/// A small part of the weeks that `make eta` plays.
#[test]
fn four_of_five_batches_end_within_the_interval_and_the_error_is_smaller_than_the_simple_one() {
    let sums: Vec<_> = site::SHAPES.iter().map(|shape| measure::measure(*shape, 2, 4)).collect();
    for (place, point) in measure::POINTS.iter().enumerate() {
        let of = |f: &dyn Fn(&measure::Sums) -> f64| sums.iter().map(|sums| f(&sums[place])).sum::<f64>();
        let estimates = of(&|s| f64::from(u32::try_from(s.estimates).unwrap()));
        let number = |n: usize| f64::from(u32::try_from(n).unwrap());
        let covered = of(&|s| number(s.covered)) / estimates;
        assert!((0.75..=0.85).contains(&covered), "{point}: {covered} of {estimates}");
        // the statements on the screen: `± 2m if none sticks`, and `90 % by 08:29Z`
        let steady = of(&|s| number(s.steady.covered)) / of(&|s| number(s.steady.estimates));
        assert!((0.75..=0.85).contains(&steady), "{point}: {steady} without stuck machines");
        let late = of(&|s| number(s.by_high)) / estimates;
        assert!((0.85..=0.95).contains(&late), "{point}: {late} by the late end");
        let shapes = f64::from(u32::try_from(sums.len()).unwrap());
        let error = of(&|s| s.error / s.simple_error) / shapes;
        assert!(error < 0.9, "{point}: the error is {error} of the simple one");
    }
}

/// Eight repairs of its own machine type took 3 minutes each, thirty of another type half an hour.
#[test]
fn eight_ended_entries_of_a_machine_type_are_enough_to_estimate_by_them() {
    let mut scene = Scene::new();
    let repair = RepairEntry::queued(1, &address(3), "QEMU", "unreachable", None);
    scene.store.repairs.entries.insert(1, stored(repair));
    let of_type = |machine_type: &str, seconds: f64, n: usize| {
        let phases = vec![PhaseTime { phase: Phase::Whole, step: None, seconds }];
        let entry = EntryId::repair(0);
        vec![EndedTimes { entry, machine_type: Some(machine_type.to_owned()), phases, ..ended(3) }; n]
    };
    let history = [of_type("QEMU", 180.0, 8), of_type("R640", 1800.0, 30)].concat();
    let answers = scene.answers_from(history, QueueKind::Repair, &[], &|_| Part::Ends, &|_| None);
    assert_about(minutes_until(answers[1].as_ref().unwrap().likely), 3.0);
}
