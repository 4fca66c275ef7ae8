//! Sums of the Overview: the progress of each queue, entries in progress, machines by rack, the last day. They are
//! computed once per change, and only while the Overview is shown. What waits for a person is in `needs_you.rs`.

mod day;
mod latest;
mod motion;
mod racks;
mod sections;

use std::collections::BTreeMap;

use cketerm_model::{
    batch::BatchId,
    cketerm_records::{Audit, OneAnAction, Request},
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    names::Address,
    reason::Reason,
    stored::keys::Folder,
};
use cketerm_rules::{beside_cke::recorded::Event, seen::Seen, start::Start, trouble};
use jiff::Timestamp;

pub use self::{
    day::Day,
    motion::Motion,
    racks::{CountedRack, Rack, RackStates},
    sections::Section,
};
use super::{App, Target, View, eta::RemainingWork, object::Object, past::PastId, queries, short_text};

/// A line of the Overview that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverviewRow {
    /// An object that waits for a person.
    NeedsYou(Object),
    /// The progress of a queue.
    Progress(QueueKind),
    /// The progress of a batch.
    Batch(QueueKind, BatchId),
    /// An entry in progress.
    Work(EntryId),
    /// The racks.
    Racks,
    /// The last day.
    Day,
    /// An entry that ended.
    Ended(PastId),
    /// An action of an operator.
    Action(PastId),
    /// An event of CKE, by its record.
    Cke(PastId),
}

impl OverviewRow {
    /// Returns the object behind the line. `None` if it is no row of a table.
    pub fn target(&self) -> Option<Target> {
        match self {
            Self::NeedsYou(object) => object.target(),
            Self::Work(id) => Some(Target::Entry(*id)),
            Self::Ended(id) => Some(Target::Past(Folder::History, id.clone())),
            Self::Action(id) => Some(Target::Past(Folder::Audit, id.clone())),
            Self::Cke(id) => Some(Target::Past(Folder::Records, id.clone())),
            Self::Progress(_) | Self::Batch(..) | Self::Racks | Self::Day => None,
        }
    }

    /// Returns the view that the line belongs to.
    pub fn view(&self) -> View {
        match self {
            Self::NeedsYou(object) => object.view(),
            Self::Progress(queue) | Self::Batch(queue, _) => View::of_queue(*queue),
            Self::Work(id) => View::of_queue(id.queue),
            Self::Racks => View::Nodes,
            Self::Day | Self::Ended(_) | Self::Cke(_) => View::History,
            Self::Action(_) => View::Audit,
        }
    }

    /// Returns the batch of the line.
    pub fn batch(&self) -> Option<BatchId> {
        match self {
            Self::Batch(_, id) | Self::NeedsYou(Object::Batch(_, id)) => Some(*id),
            Self::NeedsYou(_)
            | Self::Progress(_)
            | Self::Work(_)
            | Self::Racks
            | Self::Day
            | Self::Ended(_)
            | Self::Action(_)
            | Self::Cke(_) => None,
        }
    }
}

/// Numbers of one queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Slots in use.
    pub used: usize,
    /// Entries whose drain backs off, which are not in work.
    pub backing_off: usize,
    /// Entries that were cancelled or deleted since the oldest remaining one was requested.
    pub withdrawn: usize,
    /// Its entries, counted by how they move.
    pub motion: Motion,
    /// Number of slots. `None` without a definition.
    pub slots: Option<i64>,
    /// The remaining entries, and the estimated time.
    pub left: RemainingWork,
    /// Entries that ended since the oldest remaining one was requested.
    pub done: usize,
    /// Of these, the ones that did not end as intended.
    pub failed: usize,
    /// The reason and the operator of the remaining entries, if they all have the same.
    pub asked: Asked,
    /// Causes that the waiting entries wait for, the most frequent first.
    pub waits: Vec<(String, usize)>,
    /// The open batches and the entries without one. Empty if no batch is open.
    pub sections: Vec<Section>,
    /// Failed entries of no open batch. While a batch is open, its numbers do not include them.
    pub others_failed: usize,
}

impl Work {
    /// Returns the parts that are shown one by one: none if everything is one batch, or has none.
    pub fn parts(&self) -> &[Section] {
        if self.sections.len() > 1 { &self.sections } else { &[] }
    }

    /// Returns the only part, if all entries are of one batch.
    pub fn only(&self) -> Option<&Section> {
        match self.sections.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Common request of several entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Time of the oldest request.
    pub since: Option<Timestamp>,
    /// The operator; `None` if there are several.
    pub by: Option<String>,
    /// The reason; `None` if there are several, or none.
    pub reason: Option<String>,
    /// Number of requests.
    requests: usize,
}

impl Asked {
    fn add(&mut self, request: &Request) {
        self.since = Some(self.since.map_or(request.at, |at| at.min(request.at)));
        if self.requests == 0 {
            (self.by, self.reason) = (Some(request.who.user.clone()), request.reason.clone());
        }
        if self.by.as_ref().is_some_and(|by| *by != request.who.user) {
            self.by = None;
        }
        if self.reason != request.reason {
            self.reason = None;
        }
        self.requests += 1;
    }
}

/// Sums of the Overview.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The reboot queue.
    pub reboots: Work,
    /// The repair queue.
    pub repairs: Work,
    /// Entries in progress, the longest first; then those that back off, the next one first.
    pub work: Vec<EntryId>,
    /// Number of entries in progress: the first ones of `work`.
    pub in_progress: usize,
    /// Statistics of the last day.
    pub day: Day,
    /// Machines by rack.
    pub racks: RackStates,
    /// The newest actions of operators.
    pub actions: Vec<PastId>,
    /// The newest ended entries and actions of operators, the newest first. Entries that one operator withdrew in a row
    /// are one row: the newest of them.
    pub latest: Vec<OverviewRow>,
    /// Number of entries that a row of `latest` stands for, if it is more than one.
    pub folded: BTreeMap<PastId, usize>,
    /// CKE's events among `latest`.
    pub cke: BTreeMap<PastId, Event>,
}

impl Summary {
    /// Returns the sums of a queue.
    pub fn work_of(&self, queue: QueueKind) -> &Work {
        match queue {
            QueueKind::Reboot | QueueKind::Maintenance => &self.reboots,
            QueueKind::Repair => &self.repairs,
        }
    }
}

/// Most rows of the past that any screen shows here.
const MAX_RECENT: usize = 40;
/// User of the actions that set up a sandbox.
const SANDBOX_USER: &str = "sandbox";

/// Recomputes the sums that the Overview shows.
pub fn refresh(app: &mut App) {
    let racks = std::mem::take(&mut app.knowledge.summary.racks).updated(app);
    app.knowledge.summary = Summary { racks, ..summary(app) };
}

/// Computes the sums.
pub fn summary(app: &App) -> Summary {
    let seen = &app.seen;
    let store = &seen.snapshot.store;
    let mut sums = Summary::default();
    let reboots = store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    let mut waits: BTreeMap<(QueueKind, String), usize> = BTreeMap::new();
    let mut backing_off: Vec<(Timestamp, EntryId)> = Vec::new();
    for id in reboots.chain(repairs) {
        let working = queries::in_work(seen, id);
        let queue = if id.queue == QueueKind::Repair { &mut sums.repairs } else { &mut sums.reboots };
        if working {
            sums.work.push(id);
        }
        queue.motion.add(seen, id);
        let rests = queries::backoff_until(seen, id).filter(|_| !queries::held(seen, id));
        if let Some(until) = rests {
            let (n, next) = queue.left.backoff.unwrap_or((0, until));
            queue.left.backoff = Some((n + 1, next.min(until)));
            if !working {
                queue.backing_off += 1;
                backing_off.push((until, id));
            }
        }
        if unfinished(seen, id)
            && let Some(request) = store.requests.get(&id).and_then(Stored::get)
        {
            queue.asked.add(request);
        }
        if trouble::is_stuck(seen, id) || !unfinished(seen, id) {
            continue;
        }
        if let Some(why) = seen.reasons.get(&id).filter(|_| !working && rests.is_none()) {
            *waits.entry((id.queue, short_text::waits_for(why).to_owned())).or_default() += 1;
        }
    }
    sums.work.sort_by_key(|id| (queries::since(seen, *id), *id));
    sums.in_progress = sums.work.len();
    backing_off.sort_unstable();
    sums.work.extend(backing_off.into_iter().map(|(_, id)| id).take(MAX_RECENT));
    if let Some(d) = store.definition() {
        sums.reboots.slots = Some(d.cluster.reboot.concurrency());
        sums.repairs.slots = Some(d.cluster.repair.concurrency());
    }
    for (queue, work) in [(QueueKind::Reboot, &mut sums.reboots), (QueueKind::Repair, &mut sums.repairs)] {
        work.waits = waits.iter().filter(|((of, _), _)| *of == queue).map(|((_, on), n)| (on.clone(), *n)).collect();
        work.waits.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        (work.sections, work.others_failed) = sections::of(app, queue);
        let motion = work.motion;
        work.used = motion.used;
        (work.left.left, work.left.finishing) = (motion.left, motion.finishing);
        (work.left.held, work.left.behind) = (motion.held, motion.behind);
        // a failed entry of an older batch does not keep this one from its end
        work.left.stuck = motion.stuck.saturating_sub(work.others_failed);
        (work.done, work.failed, work.withdrawn) = match work.only() {
            Some(batch) => (batch.done, batch.failed, batch.withdrawn),
            None => ended_since(app, queue, work.asked.since),
        };
        let start = start_of_queue(app, queue);
        if start.bar.as_ref().is_some_and(|bar| !bar.allows_finishing()) {
            work.left.finishing = 0;
        }
        work.left.start = Some(start);
    }
    sums.day = day::of(app);
    let is_setup = |a: &Audit| app.config.sandbox && a.who.user == SANDBOX_USER;
    let mut one_an_action = OneAnAction::default();
    let actions = app.knowledge.past.audit.rows.iter();
    let actions = actions.filter(|(_, row)| row.as_ref().is_ok_and(|a| !a.by_engine() && !is_setup(a)));
    let actions = actions.filter(|(_, row)| row.as_ref().is_ok_and(|a| one_an_action.shows(a)));
    sums.actions = actions.take(MAX_RECENT).map(|(id, _)| id.clone()).collect();
    sums.cke = latest::cke_events(app);
    (sums.latest, sums.folded) = latest::merged(app, &sums.actions, &sums.cke);
    sums
}

/// Returns the number of entries of a queue that ended since this time, of those that did not end as intended, and of
/// those that were withdrawn.
fn ended_since(app: &App, queue: QueueKind, since: Option<Timestamp>) -> (usize, usize, usize) {
    let Some(since) = since else { return (0, 0, 0) };
    let read = app.knowledge.past.history.rows.values().filter_map(|row| row.as_deref().ok());
    let recent = read.filter(|e| e.entry.queue == queue && e.at >= since);
    recent.fold((0, 0, 0), |(done, failed, withdrawn), e| match (e.end.good(), e.end.withdrawn()) {
        (true, _) => (done + 1, failed, withdrawn),
        (false, true) => (done, failed, withdrawn + 1),
        (false, false) => (done, failed + 1, withdrawn),
    })
}

/// Returns when the waiting entries of a queue may start.
pub fn start_of_queue(app: &App, queue: QueueKind) -> Start {
    let waiting = app.seen.reasons.keys().filter(|id| id.queue == queue && !queries::held(&app.seen, **id));
    let addresses: Vec<&Address> = waiting.filter_map(|id| queries::address_of(&app.seen, *id)).collect();
    start(app, queue, addresses)
}

/// Returns when entries of a queue may start on one of these machines.
pub fn start<'a>(app: &App, queue: QueueKind, addresses: impl IntoIterator<Item = &'a Address>) -> Start {
    let snap = &app.seen.snapshot;
    let observing = snap.engine.leading.is_some() && !snap.engine.observing.is_empty();
    let start = Start::of(&snap.store, &snap.kube, observing, queue, addresses, app.now.wall);
    start.or_gate(gate_of(app, queue))
}

/// Returns the leader's reason for a gate that holds all waiting entries of a queue.
fn gate_of(app: &App, queue: QueueKind) -> Option<String> {
    let held = app
        .knowledge
        .totals
        .holds
        .iter()
        .find(|hold| hold.0.queue == queue && app.seen.reasons.get(&hold.0).is_some_and(blocks_all));
    held.and_then(|(id, _)| app.seen.reasons.get(id)).map(|why| short_text::safe(&why.to_string()))
}

/// Reports whether a reason holds the whole queue. An unhealthy API server holds back only the other API servers.
fn blocks_all(why: &Reason) -> bool {
    matches!(why, Reason::UnreachableGate { .. } | Reason::BreakerOpen { .. } | Reason::StartGateClosed { .. })
}

/// Reports whether the machine with this address is an API server.
pub fn control_plane(app: &App, address: &Address) -> bool {
    let definition = app.seen.snapshot.store.definition();
    definition.and_then(|d| d.members.by_address(&d.cluster, address)).is_some_and(|member| member.control_plane)
}

/// Longest chain of entries of one machine that wait for each other.
const MAX_LINKS: usize = 8;

/// Returns true if an entry waits for another entry of its machine that does not move by itself.
fn behind(seen: &Seen, id: EntryId) -> bool {
    let mut at = id;
    for _ in 0..MAX_LINKS {
        at = match seen.reasons.get(&at) {
            Some(Reason::DuplicateOf { index }) => EntryId::reboot(*index),
            Some(Reason::MachineInRepair { entry } | Reason::MachineInReboot { entry }) => *entry,
            _ => {
                let is_waiting = || {
                    queries::held(seen, at) || trouble::is_stuck(seen, at) || queries::backoff_until(seen, at).is_some()
                };
                return at != id && is_waiting();
            }
        };
    }
    false
}

fn unfinished(seen: &Seen, id: EntryId) -> bool {
    seen.snapshot.store.entry(id).is_some_and(EntryRef::unfinished)
}

/// Returns the standby engines: registered, but not leading.
pub fn standby_engines(seen: &Seen) -> Vec<String> {
    let store = &seen.snapshot.store;
    let leads = store.leader().map(|c| c.lease);
    let others = store.candidates.values().filter(|c| Some(c.lease) != leads);
    let name = |c: &cketerm_model::stored::view::Candidate| {
        let engine = store.engines.get(&c.lease).and_then(Stored::get);
        let known =
            engine.map(|e| format!("{} ({})", short_text::safe(&e.host), short_text::safe(&e.mode.to_string())));
        known.unwrap_or_else(|| {
            let lease = queries::lease_end(&format!("{:x}", c.lease));
            format!("{} (CKE, lease {lease})", short_text::safe(&c.host))
        })
    };
    others.map(name).collect()
}
