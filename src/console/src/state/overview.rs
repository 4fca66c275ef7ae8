//! Sums of the Overview: the progress of each queue, entries in progress, machines by rack, the last day. They are
//! computed once per change, and only while the Overview is shown. What waits for a person is in `needs_you.rs`.

mod day;
mod racks;

use std::collections::BTreeMap;

use cketerm_model::{
    cketerm_records::{Audit, Request, Verb},
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    names::Address,
    reason::Reason,
    reboot::RebootStatus,
    stored::keys::Folder,
};
use cketerm_rules::{
    seen::Seen,
    start::Start,
    trouble::{self, Trouble},
};
use jiff::Timestamp;

pub use self::{day::Day, racks::RackStates};
use super::{
    App, Target, View,
    eta::{self, RemainingWork},
    object::Object,
    past::PastId,
    queries::{self, Leader},
    short_text,
};

/// A line of the Overview that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverviewRow {
    /// An object that waits for a person.
    NeedsYou(Object),
    /// The progress of a queue.
    Progress(QueueKind),
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
}

impl OverviewRow {
    /// Returns the object behind the line. `None` if it is no row of a table.
    pub fn target(&self) -> Option<Target> {
        match self {
            Self::NeedsYou(object) => object.target(),
            Self::Work(id) => Some(Target::Entry(*id)),
            Self::Ended(id) => Some(Target::Past(Folder::History, id.clone())),
            Self::Action(id) => Some(Target::Past(Folder::Audit, id.clone())),
            Self::Progress(_) | Self::Racks | Self::Day => None,
        }
    }

    /// Returns the view that the line belongs to.
    pub fn view(&self) -> View {
        match self {
            Self::NeedsYou(object) => object.view(),
            Self::Progress(queue) => View::of_queue(*queue),
            Self::Work(id) => View::of_queue(id.queue),
            Self::Racks => View::Nodes,
            Self::Day | Self::Ended(_) => View::History,
            Self::Action(_) => View::Audit,
        }
    }
}

/// Numbers of one queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Slots in use.
    pub used: usize,
    /// Of these, slots whose entry needs an operator.
    pub used_stuck: usize,
    /// Of these, slots whose entry waits for something.
    pub used_waits: usize,
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
    /// Entries in progress, the longest first.
    pub work: Vec<EntryId>,
    /// Statistics of the last day.
    pub day: Day,
    /// Machines by rack. Empty in clusters that are too large to show each machine.
    pub racks: RackStates,
    /// The newest actions of operators.
    pub actions: Vec<PastId>,
    /// The newest ended entries and actions of operators, the newest first.
    pub latest: Vec<OverviewRow>,
}

impl Summary {
    /// Returns the sums of a queue.
    pub fn work_of(&self, queue: QueueKind) -> &Work {
        match queue {
            QueueKind::Reboot => &self.reboots,
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
    for id in reboots.chain(repairs) {
        let working = queries::in_work(seen, id);
        let queue = if id.queue == QueueKind::Reboot { &mut sums.reboots } else { &mut sums.repairs };
        if working {
            queue.used += 1;
            sums.work.push(id);
        }
        let rests = queries::backoff_until(seen, id).filter(|_| !held(seen, id));
        if let Some(until) = rests {
            let (n, next) = queue.left.backoff.unwrap_or((0, until));
            queue.left.backoff = Some((n + 1, next.min(until)));
        }
        if unfinished(seen, id)
            && let Some(request) = store.requests.get(&id).and_then(Stored::get)
        {
            queue.asked.add(request);
        }
        match trouble::of(seen, id) {
            Some(Trouble::Stuck) => {
                queue.left.stuck += usize::from(rests.is_none());
                queue.used_stuck += usize::from(working);
                continue;
            }
            Some(Trouble::Waits) => queue.used_waits += usize::from(working),
            None => {}
        }
        if !unfinished(seen, id) {
            continue;
        }
        if held(seen, id) {
            queue.left.held += 1;
        } else if behind(seen, id) {
            queue.left.behind += 1;
        } else if rests.is_none() {
            queue.left.left += 1;
            queue.left.finishing += usize::from(queries::finishes_anyway(seen, id));
        }
        if let Some(why) = seen.reasons.get(&id).filter(|_| !working) {
            *waits.entry((id.queue, short_text::waits_for(why).to_owned())).or_default() += 1;
        }
    }
    sums.work.sort_by_key(|id| (queries::since(seen, *id), *id));
    if let Some(d) = store.definition() {
        sums.reboots.slots = Some(d.cluster.reboot.concurrency());
        sums.repairs.slots = Some(d.cluster.repair.concurrency());
    }
    for (queue, work) in [(QueueKind::Reboot, &mut sums.reboots), (QueueKind::Repair, &mut sums.repairs)] {
        work.waits = waits.iter().filter(|((of, _), _)| *of == queue).map(|((_, on), n)| (on.clone(), *n)).collect();
        work.waits.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        (work.done, work.failed) = ended_since(app, queue, work.asked.since);
        estimate_remaining(app, queue, work);
    }
    sums.day = day::of(app);
    let is_setup = |a: &Audit| app.config.sandbox && a.who.user == SANDBOX_USER;
    let actions = app.knowledge.past.audit.rows.iter();
    let actions = actions.filter(|(_, row)| row.as_ref().is_ok_and(|a| !a.by_engine() && !is_setup(a)));
    sums.actions = actions.take(MAX_RECENT).map(|(id, _)| id.clone()).collect();
    sums.latest = latest(app, &sums.actions);
    sums
}

/// Returns the number of entries of a queue that ended since this time, and of those that did not end as intended.
fn ended_since(app: &App, queue: QueueKind, since: Option<Timestamp>) -> (usize, usize) {
    let Some(since) = since else { return (0, 0) };
    let read = app.knowledge.past.history.rows.values().filter_map(|row| row.as_deref().ok());
    let recent = read.filter(|e| e.entry.queue == queue && e.at >= since && !e.end.withdrawn());
    recent.fold((0, 0), |(done, failed), e| if e.end.good() { (done + 1, failed) } else { (done, failed + 1) })
}

/// Merges ended entries and actions, the newest first.
fn latest(app: &App, actions: &[PastId]) -> Vec<OverviewRow> {
    let past = &app.knowledge.past;
    let ended = past.history.rows.keys().take(MAX_RECENT);
    let ended = ended.filter_map(|id| Some((past.history.get(id)?.at, OverviewRow::Ended(id.clone()))));
    let actions = actions.iter().filter_map(|id| Some((past.audit.get(id)?.at, OverviewRow::Action(id.clone()))));
    let mut all: Vec<(Timestamp, OverviewRow)> = ended.chain(actions).collect();
    all.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    all.truncate(MAX_RECENT);
    all.into_iter().map(|(_, row)| row).collect()
}

/// Computes from when entries of a queue can start, and when they are done.
fn estimate_remaining(app: &App, queue: QueueKind, work: &mut Work) {
    let waiting = app.seen.reasons.keys().filter(|id| id.queue == queue && !held(&app.seen, **id));
    let addresses: Vec<&Address> = waiting.filter_map(|id| queries::address_of(&app.seen, *id)).collect();
    let start = start(app, queue, addresses);
    if start.bar.as_ref().is_some_and(|bar| !bar.allows_finishing()) {
        work.left.finishing = 0;
    }
    let before = app.knowledge.summary.work_of(queue).left.estimate.as_ref();
    let loaded = app.knowledge.past.history.loaded;
    work.left.estimate = loaded.then(|| eta::queue(app, queue, start.clone(), before));
    work.left.start = Some(start);
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
    matches!(why, Reason::UnreachableGate { .. })
}

/// Reports whether the machine with this address is an API server.
pub fn control_plane(app: &App, address: &Address) -> bool {
    let definition = app.seen.snapshot.store.definition();
    definition.and_then(|d| d.members.by_address(&d.cluster, address)).is_some_and(|member| member.control_plane)
}

/// Returns true if an entry is on hold: it does not end before an operator releases it. CKE does not support holds.
fn held(seen: &Seen, id: EntryId) -> bool {
    if matches!(queries::leader(seen), Leader::Cke(_)) {
        return false;
    }
    let waits = || queries::entry(seen, id).is_none_or(|e| e.status != RebootStatus::Rebooting);
    matches!(seen.reasons.get(&id), Some(Reason::OnHold { .. } | Reason::BatchPaused { .. }))
        || (queries::order(seen, id) == Some(Verb::Hold) && waits())
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
                let is_waiting =
                    || held(seen, at) || trouble::is_stuck(seen, at) || queries::backoff_until(seen, at).is_some();
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
    let name = |c: &cketerm_model::stored::view::Candidate| match store.engines.get(&c.lease).and_then(Stored::get) {
        Some(engine) => format!("{} ({})", short_text::safe(&engine.host), short_text::safe(&engine.mode.to_string())),
        None => format!("{} (CKE)", short_text::safe(&c.host)),
    };
    others.map(name).collect()
}
