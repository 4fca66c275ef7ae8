//! The queue of an estimate, from the live copy of etcd and the history.

use std::collections::BTreeMap;

use cketerm_model::{
    attempt::Attempt,
    cketerm_records::Verb,
    cluster::Cluster,
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    kube::KubeView,
    labels::Labels,
    names::Address,
    policy::ApiServerOrder,
    reason::Reason,
    stored::view::StoreView,
    time::{after, seconds_between, whole_seconds},
    window::Windows,
};
use jiff::Timestamp;

use super::{
    Answer, Estimate, Interval, NoEstimate,
    durations::{Durations, as_f64},
    model::{Backoff, Job, Kind, Openings, Queue, State},
};
use crate::{
    start::{Bar, Start, labels},
    trouble::{self, Trouble},
    usual::{EndedTimes, MIN_SAMPLES, MachineClass, Phase, UsualTimes},
};

/// Most openings of a window that are looked up.
const MAX_OPENINGS: usize = 40;
/// Open time that is looked up, as a multiple of the expected work.
const OPEN_FACTOR: f64 = 4.0;
/// Seconds from a drain that gave up to the next one: shortest and longest first backoff (REB-46, REP-41).
const BACKOFF_WAIT: (f64, f64) = (300.0, 600.0);
/// Longest chain of entries of one machine that wait for each other.
const MAX_LINKS: usize = 8;

/// Part that an entry plays in an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It ends without an operator.
    Ends,
    /// It needs an operator, and holds a slot until then.
    HoldsSlot,
    /// It does not move before an operator acts.
    Rests,
}

/// Returns the part of an unfinished entry, by the reason that the leader gives for it.
pub fn part_of<'a>(
    store: &StoreView,
    reason_of: &dyn Fn(EntryId) -> Option<&'a Reason>,
    now: Timestamp,
    id: EntryId,
) -> Part {
    // CKE knows no holds.
    let holds = !store.leader().is_some_and(|leader| store.is_cke(leader));
    let mut at = id;
    for _ in 0..MAX_LINKS {
        let Some(entry) = store.entry(at) else { return Part::Rests };
        let reason = reason_of(at);
        let held = holds && store.orders.get(&at).and_then(Stored::get).is_some_and(|order| order.verb == Verb::Hold);
        // A leader publishes no reasons of entries that wait for one cause together.
        let paused = holds && entry.is_queued() && store.paused_batch(at).is_some();
        if matches!(
            reason,
            Some(
                Reason::OnHold { .. }
                    | Reason::BatchPaused { .. }
                    | Reason::BatchUnreadable { .. }
                    | Reason::ControlPlaneUnclear { .. }
                    | Reason::DrainedByOther { .. }
            )
        ) || (held && !entry.is_after_command())
            || paused
        {
            return Part::Rests;
        }
        if reason.and_then(|why| trouble::kept_by(store, now, at, why)) == Some(Trouble::Stuck) {
            return if at == id && entry.in_work() { Part::HoldsSlot } else { Part::Rests };
        }
        at = match reason {
            Some(Reason::DuplicateOf { index }) => EntryId::reboot(*index),
            Some(Reason::MachineInRepair { entry } | Reason::MachineInReboot { entry }) => *entry,
            Some(Reason::NotMember { .. } | Reason::InvalidEntry { .. }) => return Part::Rests,
            _ => return Part::Ends,
        };
    }
    Part::Ends
}

/// Question for the end of entries of one queue.
pub struct Question<'a> {
    /// Live copy of etcd.
    pub store: &'a StoreView,
    /// Live copy of Kubernetes, for labels that the definition lacks.
    pub kube: &'a KubeView,
    /// Queue.
    pub queue: QueueKind,
    /// Ended entries of this cluster.
    pub usual: &'a UsualTimes,
    /// Condition that keeps everything of the queue from starting.
    pub start: &'a Start,
    /// Part of each unfinished entry.
    pub part: &'a dyn Fn(EntryId) -> Part,
    /// Set of each entry, counted from 0; none = only the whole queue.
    pub set: &'a dyn Fn(EntryId) -> Option<usize>,
    /// Number of sets.
    pub sets: usize,
    /// Machines that are not queued yet but would be, as the last ones. They are the set 0.
    pub added: &'a [Address],
    /// Time of the question.
    pub now: Timestamp,
}

impl Question<'_> {
    /// Returns the estimates of the sets, and of the whole queue as the last one.
    pub fn answers(&self) -> Vec<Answer> {
        let none = |why: &NoEstimate| vec![Err(why.clone()); self.sets + 1];
        let (queue, left) = self.queue();
        if left.iter().all(|n| *n == 0) {
            return none(&NoEstimate::NothingLeft);
        }
        let samples = self.samples().count();
        if samples < MIN_SAMPLES {
            return none(&NoEstimate::FewSamples { known: samples, needed: MIN_SAMPLES });
        }
        if let Some(bar) = &self.start.bar
            && !matches!(bar, Bar::Before(..))
        {
            return none(&NoEstimate::Barred(bar.clone()));
        }
        let second = |seconds: f64| after(whole_seconds(self.now), whole(seconds));
        let answer = |(forecast, left): (Option<super::Forecast>, &usize)| match forecast {
            _ if *left == 0 => Err(NoEstimate::NothingLeft),
            None => Err(NoEstimate::NotInSight),
            Some(f) => {
                let (low, likely, high) = (second(f.low), second(f.likely), second(f.high));
                let steady = f.steady.map(|[low, likely, high]| Interval {
                    low: second(low),
                    likely: second(likely),
                    high: second(high),
                });
                Ok(Estimate { at: self.now, low, likely, high, steady, samples })
            }
        };
        queue.forecast(self.sets).into_iter().zip(&left).map(answer).collect()
    }

    fn entries(&self) -> Box<dyn Iterator<Item = EntryId> + '_> {
        match self.queue {
            QueueKind::Reboot => Box::new(self.store.reboots.entries.keys().map(|index| EntryId::reboot(*index))),
            QueueKind::Repair => Box::new(self.store.repairs.entries.keys().map(|index| EntryId::repair(*index))),
            // It ends when a person says so, or at its time: there is nothing to estimate.
            QueueKind::Maintenance => Box::new(std::iter::empty()),
        }
    }

    /// Returns the ended entries that say how long one is in work. An operator's cancel also ends the work.
    fn samples(&self) -> impl Iterator<Item = &EndedTimes> {
        let known = |e: &&EndedTimes| e.entry.queue == self.queue && e.seconds_of(Phase::Whole).is_some();
        self.usual.ended().iter().filter(known)
    }

    /// Returns the queue, and the number of entries left in each set and in all.
    fn queue(&self) -> (Queue, Vec<usize>) {
        let mut left = vec![0; self.sets + 1];
        let mut classes: Vec<MachineClass> = Vec::new();
        let mut places = Places::default();
        let (mut shared, mut alone) = (Vec::new(), Vec::new());
        let policy = self.store.policy();
        let limited = self.queue == QueueKind::Reboot && policy.groups.is_some();
        let windows = policy.windows.as_ref().filter(|windows| windows.bind(self.queue));
        let ids = self.entries().filter_map(|id| Some((id, self.store.entry(id)?)));
        let queued = ids.filter(|(_, entry)| entry.unfinished()).map(|(id, e)| (Some((id, e)), e.address()));
        for (entry, address) in queued.chain(self.added.iter().map(|address| (None, address))) {
            let part = entry.map_or(Part::Ends, |(id, _)| (self.part)(id));
            if part == Part::Rests {
                continue;
            }
            let class = self.class(entry.map(|(_, entry)| entry), address);
            let api_server = class.api_server;
            let kind = place_of(&mut classes, class);
            let needs_labels = limited || windows.is_some_and(Windows::by_machine);
            let labels = if needs_labels { labels(self.store, self.kube, address) } else { Labels::default() };
            let set = entry.map_or(Some(0), |(id, _)| (self.set)(id));
            let job = Job {
                kind,
                group: policy.groups.as_ref().filter(|_| limited).map_or(0, |g| places.group(g.of(&labels))),
                window: places.window(windows.map_or(0, |windows| windows.index_for(&labels))),
                set: (part == Part::Ends).then_some(set.unwrap_or(usize::MAX)),
                state: entry.map_or(State::Waiting, |(id, entry)| self.state(id, entry)),
                ready: entry.map_or(0.0, |(_, entry)| self.ready(entry)),
                count: 1,
            };
            if part == Part::Ends {
                left[self.sets] += 1;
                if let Some(left) = set.and_then(|set| left.get_mut(set)) {
                    *left += 1;
                }
            }
            if api_server && self.queue == QueueKind::Reboot { alone.push(job) } else { shared.push(job) }
        }
        let cluster = self.store.definition().map(|d| &d.cluster);
        let kinds: Vec<Kind> = classes.iter().map(|class| self.kind(class)).collect();
        let work = kinds.iter().map(|k| k.drain.mean() + k.after.mean()).fold(0.0, f64::max) * as_f64(left[self.sets]);
        let queue = Queue {
            slots: slots(cluster, self.queue),
            alone_first: policy.api_server_order == ApiServerOrder::First,
            groups: policy.groups.as_ref().filter(|_| limited).map(|g| usize::try_from(g.limit.max(1)).unwrap_or(1)),
            group_hold: as_f64(usize::try_from(policy.stuck_seconds).unwrap_or(usize::MAX)),
            windows: places.windows.iter().map(|window| self.openings(windows, *window, work)).collect(),
            margin: windows.map_or(0.0, |windows| f64::from(windows.margin_seconds())),
            backoff: self.backoff(cluster),
            shared,
            alone,
            kinds,
        };
        (queue, left)
    }

    fn class(&self, entry: Option<EntryRef<'_>>, address: &Address) -> MachineClass {
        match entry {
            Some(EntryRef::Repair(e)) => MachineClass { machine_type: Some(e.machine_type.clone()), api_server: false },
            Some(EntryRef::Reboot(_) | EntryRef::Maintenance(_)) | None => {
                MachineClass::of_address(self.store, address)
            }
        }
    }

    fn state(&self, id: EntryId, entry: EntryRef<'_>) -> State {
        let ago = |since: Timestamp| seconds_between(since, self.now).get().max(0.0);
        let mut attempts = self.store.attempts_of(id).filter_map(Stored::get).filter(|a: &&Attempt| a.began());
        let changed = entry.last_transition_time().map_or(0.0, ago);
        match (self.queue, attempts.next()) {
            // The whole repair counts, with the waits between its steps.
            (QueueKind::Repair, Some(first)) => State::Commanded(ago(first.drain_start.unwrap_or(first.start))),
            (QueueKind::Repair, None) if entry.in_work() => State::Commanded(changed),
            (QueueKind::Reboot, first) if entry.is_after_command() => {
                State::Commanded(first.map_or(changed, |first| ago(first.start)))
            }
            (QueueKind::Reboot, _) if entry.in_work() => State::Draining(changed),
            (QueueKind::Repair, None) | (QueueKind::Reboot | QueueKind::Maintenance, _) => State::Waiting,
        }
    }

    /// Returns the seconds until the end of a backoff.
    fn ready(&self, entry: EntryRef<'_>) -> f64 {
        entry.backoff_expire().map_or(0.0, |until| seconds_between(self.now, until).get().max(0.0))
    }

    /// Returns the durations of a class: of machines like it, else of its role, else of all.
    fn kind(&self, class: &MachineClass) -> Kind {
        let of_address = |address: &_| MachineClass::of_address(self.store, address);
        let all: Vec<(MachineClass, &EndedTimes)> = self.samples().map(|e| (e.class(of_address), e)).collect();
        let chosen = |keep: &dyn Fn(&MachineClass) -> bool| -> Vec<&EndedTimes> {
            all.iter().filter(|(class, _)| keep(class)).map(|(_, e)| *e).collect()
        };
        let own = chosen(&|other| other == class);
        let role = chosen(&|other| other.api_server == class.api_server);
        let (of, foreign) = match (own.len() >= MIN_SAMPLES, role.len() >= MIN_SAMPLES) {
            (true, _) => (own, false),
            (false, true) => (role, true),
            (false, false) => (chosen(&|_| true), true),
        };
        let drain = |e: &EndedTimes| match e.entry.queue {
            QueueKind::Reboot | QueueKind::Maintenance => e.seconds_of(Phase::Drain).unwrap_or(0.0),
            QueueKind::Repair => 0.0,
        };
        let after = |e: &EndedTimes| (e.seconds_of(Phase::Whole).unwrap_or(0.0) - drain(e)).max(0.0);
        let stuck = as_f64(usize::try_from(self.store.policy().stuck_seconds).unwrap_or(usize::MAX));
        Kind {
            drain: Durations::of(of.iter().map(|e| drain(e)).collect(), None, foreign),
            after: Durations::of(of.iter().map(|e| after(e)).collect(), Some(stuck), foreign),
        }
    }

    fn backoff(&self, cluster: Option<&Cluster>) -> Backoff {
        let (drains, given_up) =
            self.samples().fold((0_u32, 0_u32), |(n, b), e| (n.saturating_add(1), b.saturating_add(e.backoffs)));
        let timeout = cluster.map_or(600, |cluster| cluster.reboot.eviction_timeout());
        let share = f64::from(given_up) / f64::from(drains.saturating_add(given_up).max(1));
        let timeout = as_f64(usize::try_from(timeout).unwrap_or(0));
        Backoff { share: if self.queue == QueueKind::Reboot { share } else { 0.0 }, timeout, wait: BACKOFF_WAIT }
    }

    /// Returns the openings of a window, by its place in the policy, after any freeze.
    fn openings(&self, windows: Option<&Windows>, place: usize, work: f64) -> Openings {
        let policy = self.store.policy();
        let frozen = policy.freeze.as_ref().filter(|freeze| freeze.holds(self.now)).map(|freeze| freeze.until);
        let from = frozen.unwrap_or(self.now);
        let seconds = |at: Timestamp| seconds_between(self.now, at).get().max(0.0);
        let Some(window) = windows.and_then(|windows| windows.all().nth(place)).map(|(_, window)| window) else {
            return Openings(vec![(seconds(from), f64::INFINITY)]);
        };
        let (mut openings, mut open) = (Vec::new(), 0.0);
        for (opens, closes) in window.openings(from).take(MAX_OPENINGS) {
            let (opens, closes) = (seconds(opens), closes.map_or(f64::INFINITY, seconds));
            openings.push((opens, closes));
            open += closes - opens;
            if open > work * OPEN_FACTOR + 3600.0 {
                break;
            }
        }
        Openings(openings)
    }
}

/// Places of the groups and windows that occur.
#[derive(Default)]
struct Places {
    groups: BTreeMap<String, usize>,
    /// Places in the policy.
    windows: Vec<usize>,
}

impl Places {
    fn group(&mut self, name: String) -> usize {
        let next = self.groups.len();
        *self.groups.entry(name).or_insert(next)
    }

    fn window(&mut self, of_policy: usize) -> usize {
        place_of(&mut self.windows, of_policy)
    }
}

fn place_of<T: PartialEq>(all: &mut Vec<T>, one: T) -> usize {
    all.iter().position(|known| *known == one).unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    })
}

fn slots(cluster: Option<&Cluster>, queue: QueueKind) -> usize {
    let slots = cluster.map_or(1, |cluster| match queue {
        QueueKind::Reboot | QueueKind::Maintenance => cluster.reboot.concurrency(),
        QueueKind::Repair => cluster.repair.concurrency(),
    });
    usize::try_from(slots).unwrap_or(1).max(1)
}

#[allow(clippy::cast_possible_truncation)] // at most centuries
fn whole(seconds: f64) -> i64 {
    seconds.clamp(0.0, 3.2e9).round() as i64
}
