//! Nodes that need a reboot, for people.

use cketerm_model::{
    batch::BatchId,
    cketerm_records::Needed,
    cluster::Member,
    entry::{EntryId, Stored},
    fault,
    kube::{KubeView, NodeRow},
    names::{Address, NodeName},
    stored::view::StoreView,
    time::after,
};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    queue::{entries_by_address, stopped_causes},
    record::{asking, is_of_last_day, still_set, updated},
    signals::ShownSignals,
};

/// Seconds after a reboot in which a signal may still be set: its program first has to look again.
const GRACE_SECONDS: i64 = 600;

/// Number of machines with a signal that is still set after their reboot, from which on the leader queues no more for its
/// cause: the cause may be wrong, for example a wanted kernel that nobody has installed.
const IN_VAIN: usize = 3;

/// One Node that needs a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its name.
    pub node: NodeName,
    /// Address of its member; none if it is no member of the definition.
    pub address: Option<Address>,
    /// Cause of the reboot.
    pub cause: String,
    /// Time at which the leader first saw the cause; none before it has recorded it.
    pub since: Option<Timestamp>,
    /// Next event.
    #[serde(flatten)]
    pub state: State,
}

/// Next event for a Node that needs a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// A reboot is proposed.
    Proposed,
    /// The machine has an entry.
    Queued {
        /// The entry.
        entry: EntryId,
    },
    /// The leader queued an entry for this boot, and it ended without a reboot. It queues no second one.
    NotAgain {
        /// Index of that entry.
        index: u64,
    },
    /// The leader queued a reboot of this machine less than a day ago, for an earlier boot. It queues no second one so
    /// soon.
    SoonAgain {
        /// Index of that entry.
        index: u64,
        /// Time of its enqueue.
        at: Timestamp,
    },
    /// Somebody paused or cancelled the batch of the cause: the leader queues nothing more for it.
    Stopped {
        /// The batch.
        batch: BatchId,
    },
    /// The signal is still set on several machines that have rebooted: the leader queues no more for the cause until it
    /// goes.
    InVain {
        /// Number of these machines.
        machines: usize,
    },
    /// The machine has just rebooted, and the signal is expected to go.
    Rebooted {
        /// Time at which the leader saw the reboot.
        at: Timestamp,
    },
    /// The signal is still set after a reboot: a person has to look.
    StillSet {
        /// Time at which the leader saw the reboot.
        at: Timestamp,
        /// Index of the entry of the reboot, if the leader had queued it.
        index: Option<u64>,
    },
    /// It is no member of the definition, so it cannot be queued.
    NotMember,
}

impl State {
    /// Returns its name, as in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Queued { .. } => "queued",
            Self::NotAgain { .. } => "not-again",
            Self::SoonAgain { .. } => "soon-again",
            Self::Stopped { .. } => "stopped",
            Self::InVain { .. } => "in-vain",
            Self::Rebooted { .. } => "rebooted",
            Self::StillSet { .. } => "still-set",
            Self::NotMember => "not-member",
        }
    }
}

impl Row {
    /// Reports whether a person may queue its reboot.
    pub fn is_proposed(&self) -> bool {
        match self.state {
            State::Proposed
            | State::NotAgain { .. }
            | State::SoonAgain { .. }
            | State::Stopped { .. }
            | State::InVain { .. } => true,
            State::Queued { .. } | State::Rebooted { .. } | State::StillSet { .. } | State::NotMember => false,
        }
    }
}

/// Returns the Nodes that need a reboot, by cause and name. Without records the rows are made from the signals alone.
pub fn list(store: &StoreView, kube: &KubeView, shown: &ShownSignals, now: Timestamp) -> Vec<Row> {
    if store.needed.is_empty() && shown.current.is_empty() {
        return Vec::new();
    }
    let (entries, stopped) = (entries_by_address(store), stopped_causes(store));
    let mut names: Vec<&NodeName> = store.needed.keys().chain(shown.current.iter()).collect();
    names.sort_unstable();
    names.dedup();
    let mut rows: Vec<Row> = Vec::new();
    for name in names {
        let stored = store.needed.get(name).and_then(Stored::get);
        let Some(node) = kube.by_name.get(name) else { continue };
        let signals = shown.of_node(name);
        let Some(record) = updated(stored, Some(node), signals, now) else { continue };
        let member = member_of(store, node).map(|member| member.node().address.clone());
        let recorded = |since: Timestamp, cause: &str| {
            stored.is_some_and(|stored| stored.signals.iter().any(|s| s.cause == cause)).then_some(since)
        };
        let boot_id = node.boot_id.as_str();
        let (signal, state) = if let Some(signal) = asking(&record, boot_id).next() {
            let stopped = stopped.get(signal.cause.as_str()).copied();
            let state = |address: &Address| state(&record, boot_id, entries.get(address).copied(), stopped, now);
            (signal, member.as_ref().map_or(State::NotMember, state))
        } else if let Some((signal, reboot)) = still_set(&record, signals, boot_id).next().zip(record.rebooted.as_ref())
        {
            let entry = member.as_ref().and_then(|address| entries.get(address));
            let state = match entry {
                Some(entry) => State::Queued { entry: *entry },
                None if now < after(reboot.at, GRACE_SECONDS) => State::Rebooted { at: reboot.at },
                None => State::StillSet { at: reboot.at, index: record.queued.as_ref().map(|queued| queued.index) },
            };
            (signal, state)
        } else {
            continue;
        };
        rows.push(Row {
            node: name.clone(),
            address: member,
            cause: signal.cause.clone(),
            since: recorded(signal.since, &signal.cause),
            state,
        });
    }
    rows.sort_by(|a, b| (&a.cause, &a.node).cmp(&(&b.cause, &b.node)));
    for of_cause in rows.chunk_by_mut(|a, b| a.cause == b.cause) {
        let machines =
            of_cause.iter().filter(|row| matches!(row.state, State::Rebooted { .. } | State::StillSet { .. })).count();
        if machines >= IN_VAIN {
            let proposed = of_cause.iter_mut().filter(|row| row.state == State::Proposed);
            proposed.for_each(|row| row.state = State::InVain { machines });
        }
    }
    rows
}

/// Returns the cause for which a Node needs a reboot, or for which it has rebooted in vain.
pub fn cause_of(store: &StoreView, shown: &ShownSignals, node: &NodeRow, now: Timestamp) -> Option<String> {
    if !shown.current.contains(&node.name) && !store.needed.contains_key(&node.name) {
        return None;
    }
    let signals = shown.of_node(&node.name);
    let record = updated(store.needed.get(&node.name).and_then(Stored::get), Some(node), signals, now)?;
    let signal = asking(&record, &node.boot_id).next().or_else(|| still_set(&record, signals, &node.boot_id).next());
    signal.map(|signal| signal.cause.clone())
}

/// Returns the member whose machine this Node is: it has the member's name and address.
pub fn member_of<'a>(store: &'a StoreView, node: &NodeRow) -> Option<Member<'a>> {
    let definition = store.definition()?;
    let member = |address: &Address| definition.members.by_address(&definition.cluster, address);
    node.addresses.iter().filter_map(member).find(|member| *member.node_name() == node.name)
}

/// Returns the state of a member whose Node asks for a reboot. `entry`: the entry of its machine.
fn state(record: &Needed, boot_id: &str, entry: Option<EntryId>, stopped: Option<BatchId>, now: Timestamp) -> State {
    let queued = record.queued.as_ref().filter(|queued| queued.boot_id == boot_id || is_of_last_day(queued, now));
    fault!(StillSetAsks => queued = record.queued.as_ref().filter(|queued| queued.boot_id == boot_id));
    fault!(NeededTwice => queued = None);
    match (entry, queued, stopped) {
        (Some(entry), ..) => State::Queued { entry },
        (None, Some(queued), _) if queued.boot_id == boot_id => State::NotAgain { index: queued.index },
        (None, Some(queued), _) => State::SoonAgain { index: queued.index, at: queued.at },
        (None, None, Some(batch)) => State::Stopped { batch },
        (None, None, None) => State::Proposed,
    }
}
