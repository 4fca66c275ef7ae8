//! The sums of the Overview: what is in work, what is stuck on what, what waits for what. Made once for each change, and
//! only while the Overview is shown.

mod day;

use std::collections::BTreeMap;

use jiff::Timestamp;

pub use self::day::Day;

use super::{
    app::{App, Target},
    blockers::{self, Blocks},
    eta::{Left, Throughput, fewest, throughput},
    past::PastId,
    queries::{self, Leader},
    short_text,
};
use crate::{
    actions::start::Start,
    engine::{
        decide::Applying,
        snapshot::Seen,
        trouble::{self, Trouble},
    },
    model::{
        cketerm_records::Verb,
        entry::{EntryId, QueueKind, Stored},
        reason::Reason,
        reboot::RebootStatus,
        repair::{RepairEntry, RepairStatus, StepStatus},
    },
    store::keys::Folder,
};

/// A line of the Overview that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// An entry in work.
    Work(EntryId),
    /// What is stuck, by what it is stuck on; the entry or the node that is stuck for longest.
    Stuck(String, Option<EntryId>, Option<String>),
    /// What entries wait on, by that; the one that does for longest.
    WaitsOn(String, EntryId),
    /// What blocks most drains, by its name; the entry that it blocks for longest.
    Blocks(String, EntryId),
    /// A change of the definition that waits for a person.
    Gate,
    /// Nodes that are not Ready and were not sent away, and members without a Node.
    Unready,
    /// Hosts that a person should look at, or that somebody holds off.
    Hosts,
    /// An entry that ended.
    Ended(PastId),
    /// Something that a person did.
    DialogAction(PastId),
}

impl Spot {
    /// The object behind it.
    pub fn target(&self, app: &App) -> Option<Target> {
        match self {
            Self::Work(id) | Self::Blocks(_, id) | Self::WaitsOn(_, id) | Self::Stuck(_, Some(id), _) => {
                Some(Target::Entry(*id))
            }
            Self::Stuck(_, None, node) => node.clone().map(Target::Node),
            Self::Gate => None,
            Self::Unready => app.totals.unready.first().or(app.totals.missing.first()).cloned().map(Target::Node),
            Self::Hosts => {
                app.totals.hosts.trouble.first().or(app.totals.hosts.held.first()).cloned().map(Target::Host)
            }
            Self::Ended(id) => Some(Target::Past(Folder::History, id.clone())),
            Self::DialogAction(id) => Some(Target::Past(Folder::Audit, id.clone())),
        }
    }
}

/// Entries, or nodes, that are stuck on the same thing, or wait on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// On what.
    pub on: String,
    /// How many.
    pub count: usize,
    /// Since when the oldest of them stands where it stands.
    pub since: Option<Timestamp>,
    /// The oldest, where it is an entry.
    pub entry: Option<EntryId>,
    /// The oldest's node.
    pub node: Option<String>,
}

/// One queue in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Slots that are in use.
    pub used: usize,
    /// Those of them whose entry needs a person.
    pub used_stuck: usize,
    /// Those of them whose entry waits on something.
    pub used_waits: usize,
    /// Slots that there are; none without a definition.
    pub slots: Option<i64>,
    /// What is left, and how long it takes.
    pub left: Left,
}

/// The sums.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The reboot queue.
    pub reboots: Work,
    /// The repair queue.
    pub repairs: Work,
    /// In work, longest first.
    pub work: Vec<EntryId>,
    /// What is stuck, oldest first.
    pub stuck: Vec<Stuck>,
    /// What entries wait on that is not called stuck yet, likewise.
    pub waits_on: Vec<Stuck>,
    /// What blocks several drains at once, the most first.
    pub blocks: Vec<Blocks>,
    /// What ended in the last day.
    pub day: Day,
    /// What the others wait for, the most first.
    pub waits: Vec<(String, usize)>,
    /// Who waits for longest.
    pub oldest: Option<(EntryId, Timestamp)>,
    /// A change of the definition waits for a person.
    pub gate: Option<String>,
    /// The newest entries that ended.
    pub ended: Vec<PastId>,
    /// The newest deeds of people.
    pub actions: Vec<PastId>,
}

/// Most rows of the past that any screen shows here.
const PAST: usize = 40;

/// Makes the sums.
pub fn summary(app: &App) -> Summary {
    let seen = &app.seen;
    let mut sums = Summary { gate: gate(seen), ..Summary::default() };
    let reboots = seen.snapshot.store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = seen.snapshot.store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    let (mut stuck, mut waits_on) = (BTreeMap::new(), BTreeMap::new());
    let mut waits: BTreeMap<String, usize> = BTreeMap::new();
    for id in reboots.chain(repairs) {
        let working = in_work(seen, id);
        let queue = if id.queue == QueueKind::Reboot { &mut sums.reboots } else { &mut sums.repairs };
        if working {
            queue.used += 1;
            sums.work.push(id);
        }
        let since = queries::since(seen, id);
        let rests = queries::backs_off(seen, id).filter(|_| !held(seen, id));
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
            queue.left.ending += usize::from(ends_anyway(seen, id));
            let address = queries::address_of(seen, id);
            // repairs have no rule of their own for API servers
            let alone = id.queue == QueueKind::Reboot && address.is_some_and(|address| control_plane(app, address));
            queue.left.alone += usize::from(alone);
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
        add(&mut stuck, Stuck { on, count: 1, since: None, entry: None, node: Some(node.clone()) });
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
        how_long(app, queue, work);
    }
    sums.blocks = blockers::of_several(app);
    sums.day = day::of(app);
    sums.ended = app.past.history.rows.keys().take(PAST).cloned().collect();
    let actions = app.past.audit.rows.iter().filter(|(_, row)| row.as_ref().is_ok_and(|a| !a.by_engine()));
    sums.actions = actions.take(PAST).map(|(id, _)| id.clone()).collect();
    sums
}

/// From when on something of a queue starts, and at which pace it goes.
fn how_long(app: &App, queue: QueueKind, work: &mut Work) {
    let waiting = app.seen.reasons.keys().filter(|id| id.queue == queue && !held(&app.seen, **id));
    let addresses: Vec<&str> = waiting.filter_map(|id| queries::address_of(&app.seen, *id)).collect();
    let start = start(app, queue, addresses);
    if start.bar.as_ref().is_some_and(|bar| !bar.lets_end()) {
        work.left.ending = 0;
    }
    let fewest = fewest(work.slots);
    work.left.slots = work.slots.and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
    work.left.throughput = pace_of(app, queue, work.slots, start.bar.is_some());
    work.left.fewest = app.past.history.begun.then_some(fewest);
    work.left.start = Some(start);
}

/// When something of a queue may start on one of these machines.
pub fn start<'a>(app: &App, queue: QueueKind, addresses: impl IntoIterator<Item = &'a str>) -> Start {
    let snap = &app.seen.snapshot;
    let observing = snap.engine.leading.is_some() && !snap.engine.observing.is_empty();
    let start = Start::of(&snap.store, &snap.kube, observing, queue, addresses, app.now.wall);
    start.or_held(gate_of(app, queue))
}

/// What the leader says of a gate that holds all of a queue that waits for its start.
fn gate_of(app: &App, queue: QueueKind) -> Option<String> {
    let held = app
        .totals
        .holds
        .iter()
        .find(|hold| hold.0.queue == queue && app.seen.reasons.get(&hold.0).is_some_and(bars_all));
    held.and_then(|(id, _)| app.seen.reasons.get(id)).map(|why| short_text::safe(&why.to_string()))
}

/// An API server that is not well holds back the others alone.
fn bars_all(why: &Reason) -> bool {
    matches!(why, Reason::UnreachableGate { .. })
}

/// The pace of a queue's entries that ended lately, with so many slots.
pub fn pace_of(app: &App, queue: QueueKind, slots: Option<i64>, rests: bool) -> Option<Throughput> {
    let ended = app.past.history.rows.values().filter_map(|row| row.as_deref().ok());
    let seen = &app.seen;
    let ids = seen.reasons.keys().filter(|id| id.queue == queue && in_work(seen, **id));
    let busy = ids.filter_map(|id| queries::since(seen, *id)).min().filter(|_| !rests);
    throughput(ended, queue, fewest(slots), app.now.wall, busy)
}

/// The machine with this address is an API server.
pub fn control_plane(app: &App, address: &str) -> bool {
    let definition = app.seen.snapshot.store.definition();
    definition.and_then(|d| d.members.by_address(&d.cluster, address)).is_some_and(|member| member.control_plane)
}

/// A person keeps it: it will not come to its end before he lets it go. CKE knows no holds.
fn held(seen: &Seen, id: EntryId) -> bool {
    if matches!(queries::leader(seen), Leader::Cke(_)) {
        return false;
    }
    let waits = || queries::entry(seen, id).is_none_or(|e| e.status != RebootStatus::Rebooting);
    matches!(seen.reasons.get(&id), Some(Reason::OnHold { .. }))
        || (queries::order(seen, id) == Some(Verb::Hold) && waits())
}

/// Entries of one machine that wait for each other, at most.
const LINKS: usize = 8;

/// It waits for another entry of its machine, and that one does not move by itself.
fn behind(seen: &Seen, id: EntryId) -> bool {
    let mut at = id;
    for _ in 0..LINKS {
        at = match seen.reasons.get(&at) {
            Some(Reason::DuplicateOf { index }) => EntryId::reboot(*index),
            Some(Reason::MachineInRepair { entry } | Reason::MachineInReboot { entry }) => *entry,
            _ => {
                let stands = || held(seen, at) || trouble::is_stuck(seen, at) || queries::backs_off(seen, at).is_some();
                return at != id && stands();
            }
        };
    }
    false
}

/// Its command was run: it waits for nothing but its machine.
pub fn ends_anyway(seen: &Seen, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => queries::entry(seen, id).is_some_and(|e| e.status == RebootStatus::Rebooting),
        QueueKind::Repair => queries::repair(seen, id)
            .is_some_and(|e| e.status == RepairStatus::Processing && e.step_status == StepStatus::Watching),
    }
}

fn oldest_first(groups: BTreeMap<String, Stuck>) -> Vec<Stuck> {
    let mut groups: Vec<Stuck> = groups.into_values().collect();
    groups.sort_by_key(|s| (s.since.is_none(), s.since, s.entry));
    groups
}

/// Puts one more to those that are stuck on the same; the oldest gives its name.
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

/// What an entry is stuck on, in words that are the same for all that are stuck on it.
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

/// Whether it holds a slot.
pub fn in_work(seen: &Seen, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => {
            let status = queries::entry(seen, id).map(|e| e.status);
            matches!(status, Some(RebootStatus::Draining | RebootStatus::Rebooting))
        }
        QueueKind::Repair => {
            queries::repair(seen, id).is_some_and(|e| e.status == RepairStatus::Processing && !e.deleted)
        }
    }
}

fn unfinished(seen: &Seen, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => queries::entry(seen, id).is_some_and(|e| e.status != RebootStatus::Cancelled),
        QueueKind::Repair => queries::repair(seen, id).is_some_and(RepairEntry::unfinished),
    }
}

fn gate(seen: &Seen) -> Option<String> {
    match &*seen.applying {
        Applying::Approval(digest, why) => Some(format!("the definition waits for approval of {digest}: {why}")),
        Applying::Error(why) => Some(format!("the definition: {why}")),
        _ => None,
    }
}

/// Engines that stand by: registered, and not the one that leads.
pub fn standing_by(seen: &Seen) -> Vec<String> {
    let store = &seen.snapshot.store;
    let leads = store.leader().map(|c| c.lease);
    let others = store.candidates.values().filter(|c| Some(c.lease) != leads);
    let name = |c: &crate::store::view::Candidate| match store.engines.get(&c.lease).and_then(Stored::get) {
        Some(engine) => format!("{} ({})", short_text::safe(&engine.host), short_text::safe(&engine.mode)),
        None => format!("{} (CKE)", short_text::safe(&c.host)),
    };
    others.map(name).collect()
}
