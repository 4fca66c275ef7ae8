//! Sums of the Overview: entries in progress, what is stuck and why, what waits and for what. They are computed once
//! per change, and only while the Overview is shown.

mod day;

use std::collections::BTreeMap;

use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    names::Address,
    reason::Reason,
    reboot::RebootStatus,
    repair::RepairStatus,
    stored::keys::Folder,
};
use cketerm_rules::{
    decide::ApplyState,
    seen::Seen,
    start::Start,
    trouble::{self, Trouble},
};
use jiff::Timestamp;

pub use self::day::Day;
use super::{
    App, Target,
    blockers::{self, SharedBlocker},
    eta::{self, RemainingWork},
    past::PastId,
    queries::{self, Leader},
    short_text,
};

/// A line of the Overview that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverviewRow {
    /// An entry in progress.
    Work(EntryId),
    /// Objects stuck on the same cause: the cause, and the entry or node that has been stuck longest.
    Stuck(String, Option<EntryId>, Option<String>),
    /// Entries that wait for the same thing: the cause, and the entry that has waited longest.
    WaitsOn(String, EntryId),
    /// An object that blocks several drains: its name, and the entry that it has blocked longest.
    Blocks(String, EntryId),
    /// A change of the definition that waits for approval.
    Gate,
    /// Nodes that are unexpectedly not Ready, and members without a Node.
    Unready,
    /// Hosts that an operator should look at, or that somebody holds off.
    Hosts,
    /// An entry that ended.
    Ended(PastId),
    /// An action of an operator.
    Action(PastId),
}

impl OverviewRow {
    /// Returns the object behind the line.
    pub fn target(&self, app: &App) -> Option<Target> {
        match self {
            Self::Work(id) | Self::Blocks(_, id) | Self::WaitsOn(_, id) | Self::Stuck(_, Some(id), _) => {
                Some(Target::Entry(*id))
            }
            Self::Stuck(_, None, node) => node.clone().map(Target::Node),
            Self::Gate => None,
            Self::Unready => {
                app.knowledge.totals.unready.first().or(app.knowledge.totals.missing.first()).cloned().map(Target::Node)
            }
            Self::Hosts => app
                .knowledge
                .totals
                .hosts
                .trouble
                .first()
                .or(app.knowledge.totals.hosts.held.first())
                .cloned()
                .map(Target::Host),
            Self::Ended(id) => Some(Target::Past(Folder::History, id.clone())),
            Self::Action(id) => Some(Target::Past(Folder::Audit, id.clone())),
        }
    }
}

/// Entries or nodes that are stuck on the same cause, or wait for the same thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// The cause.
    pub on: String,
    /// Number of entries or nodes.
    pub count: usize,
    /// Time since which the oldest of them has been in its state.
    pub since: Option<Timestamp>,
    /// The oldest, if it is an entry.
    pub entry: Option<EntryId>,
    /// The node of the oldest.
    pub node: Option<String>,
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
    /// Stuck objects, oldest first.
    pub stuck: Vec<Stuck>,
    /// Entries that wait for something but are not stuck yet, oldest first.
    pub waits_on: Vec<Stuck>,
    /// Objects that block several drains, the one that blocks most first.
    pub blocks: Vec<SharedBlocker>,
    /// Statistics of the last day.
    pub day: Day,
    /// Causes that the other entries wait for, the most frequent first.
    pub waits: Vec<(String, usize)>,
    /// The entry that has waited longest.
    pub oldest: Option<(EntryId, Timestamp)>,
    /// The change of the definition that waits for approval.
    pub gate: Option<String>,
    /// The newest entries that ended.
    pub ended: Vec<PastId>,
    /// The newest actions of operators.
    pub actions: Vec<PastId>,
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

/// Recomputes the sums that the Overview shows.
pub fn refresh(app: &mut App) {
    app.knowledge.summary = summary(app);
}

/// Computes the sums.
pub fn summary(app: &App) -> Summary {
    let seen = &app.seen;
    let mut sums = Summary { gate: gate(seen), ..Summary::default() };
    let reboots = seen.snapshot.store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = seen.snapshot.store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    let (mut stuck, mut waits_on) = (BTreeMap::new(), BTreeMap::new());
    let mut waits: BTreeMap<String, usize> = BTreeMap::new();
    for id in reboots.chain(repairs) {
        let working = queries::in_work(seen, id);
        let queue = if id.queue == QueueKind::Reboot { &mut sums.reboots } else { &mut sums.repairs };
        if working {
            queue.used += 1;
            sums.work.push(id);
        }
        let since = queries::since(seen, id);
        let rests = queries::backoff_until(seen, id).filter(|_| !held(seen, id));
        if let Some(until) = rests {
            let (n, next) = queue.left.backoff.unwrap_or((0, until));
            queue.left.backoff = Some((n + 1, next.min(until)));
        }
        let group =
            || Stuck { on: stuck_on(app, id), count: 1, since, entry: Some(id), node: queries::machine(seen, id) };
        match trouble::of(seen, id) {
            Some(Trouble::Stuck) => {
                queue.left.stuck += usize::from(rests.is_none());
                queue.used_stuck += usize::from(working);
                add(&mut stuck, group());
                continue;
            }
            Some(Trouble::Waits) => {
                queue.used_waits += usize::from(working);
                add(&mut waits_on, group());
            }
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
        if working {
            continue;
        }
        if let Some(why) = seen.reasons.get(&id) {
            *waits.entry(short_text::waits_for(why).to_owned()).or_default() += 1;
        }
        if let Some(since) = since
            && sums.oldest.is_none_or(|(_, at)| since < at)
        {
            sums.oldest = Some((id, since));
        }
    }
    for (node, why) in seen.orphans.iter() {
        let on = short_text::stuck_on(why, app.now.wall);
        add(&mut stuck, Stuck { on, count: 1, since: None, entry: None, node: Some(node.to_string()) });
    }
    sums.work.sort_by_key(|id| (queries::since(seen, *id), *id));
    (sums.stuck, sums.waits_on) = (oldest_first(stuck), oldest_first(waits_on));
    sums.waits = waits.into_iter().collect();
    sums.waits.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    if let Some(d) = seen.snapshot.store.definition() {
        sums.reboots.slots = Some(d.cluster.reboot.concurrency());
        sums.repairs.slots = Some(d.cluster.repair.concurrency());
    }
    for (queue, work) in [(QueueKind::Reboot, &mut sums.reboots), (QueueKind::Repair, &mut sums.repairs)] {
        estimate_remaining(app, queue, work);
    }
    sums.blocks = blockers::shared_blockers(app);
    sums.day = day::of(app);
    sums.ended = app.knowledge.past.history.rows.keys().take(MAX_RECENT).cloned().collect();
    let actions = app.knowledge.past.audit.rows.iter().filter(|(_, row)| row.as_ref().is_ok_and(|a| !a.by_engine()));
    sums.actions = actions.take(MAX_RECENT).map(|(id, _)| id.clone()).collect();
    sums
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

fn oldest_first(groups: BTreeMap<String, Stuck>) -> Vec<Stuck> {
    let mut groups: Vec<Stuck> = groups.into_values().collect();
    groups.sort_by_key(|s| (s.since.is_none(), s.since, s.entry));
    groups
}

/// Adds one to the group with the same cause. The oldest represents the group.
fn add(all: &mut BTreeMap<String, Stuck>, one: Stuck) {
    match all.get_mut(&one.on) {
        None => {
            all.insert(one.on.clone(), one);
        }
        Some(group) => {
            let count = group.count + 1;
            if group.since.is_none_or(|at| one.since.is_some_and(|since| since < at)) {
                *group = one;
            }
            group.count = count;
        }
    }
}

/// Returns the cause that an entry is stuck on, as the same text for all entries stuck on it.
fn stuck_on(app: &App, id: EntryId) -> String {
    let seen = &app.seen;
    match (seen.reasons.get(&id).filter(|why| trouble::own(why)), queries::repair(seen, id)) {
        (Some(why), _) => short_text::stuck_on(why, app.now.wall),
        (None, Some(entry)) if entry.status == RepairStatus::Failed => {
            format!("{} failed", short_text::safe(&entry.operation))
        }
        _ => "cannot be read".to_owned(),
    }
}

fn unfinished(seen: &Seen, id: EntryId) -> bool {
    seen.snapshot.store.entry(id).is_some_and(EntryRef::unfinished)
}

fn gate(seen: &Seen) -> Option<String> {
    match &*seen.applying {
        ApplyState::Approval(digest, why) => Some(format!("the definition waits for approval of {digest}: {why}")),
        ApplyState::Error(why) => Some(format!("the definition: {why}")),
        _ => None,
    }
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
