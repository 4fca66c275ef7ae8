//! Facts that the rules read, as plain data.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use cketerm_model::{
    attempt::Attempt,
    cketerm_records::Verb,
    cluster::{Cluster, Operation},
    entry::{EntryId, QueueKind},
    policy::Policy,
};
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Answer to a question about the state. `None` = the record cannot tell, for example because copies lag.
pub type Fact = Option<bool>;

/// Returns the answer, or that it is not known.
pub fn unknown_if(unknown: bool, answer: bool) -> Fact {
    (!unknown).then_some(answer)
}

/// Kind of object that a step changes: an entry of a queue, or the cordon of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // said above
pub enum Kind {
    Reboot,
    Repair,
    Node,
}

/// State of an entry, by the words of REB-2, REP-2 and REP-3, or of a Node's cordon. A repair in `processing` has the
/// place of its step. A Node is `Foreign` if it is unschedulable without an owner record, `Marked` with CKE's mark
/// alone, `Owned` with a record, `Uncordoned` if it is schedulable in spite of a record, else `Free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[rustfmt::skip]
#[allow(missing_docs)] // said above
pub enum Place {
    #[default]
    Absent,
    Unreadable, Queued, Draining, Rebooting, Cancelled, Waiting, Watching, Succeeded, Failed, Deleted,
    Free, Foreign, Marked, Owned, Uncordoned,
}

/// An entry of either queue, or a maintenance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Its state.
    pub place: Place,
    /// Address of its machine.
    pub address: String,
    /// Machine type and operation of a repair.
    pub repair: (String, String),
    /// Step of a repair.
    pub step: i64,
    /// Number of backoffs, and the end of the last one.
    pub backoff: (i64, Option<Timestamp>),
    /// Time of the last transition.
    pub since: Option<Timestamp>,
    /// All other fields.
    pub rest: Map<String, Value>,
}

/// Facts about one machine over the time in which a decision may have been made.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Whether its Node was Ready.
    pub ready: Fact,
    /// Whether its Node exists and is the right one (SAF-14).
    pub matches: Fact,
    /// Whether it was in reboot at any moment.
    pub in_reboot: bool,
    /// Whether a freeze or its window forbids commands (REB-52, REB-53).
    pub closed: Fact,
    /// Whether a freeze, its window or the window's margin forbids a new drain.
    pub closing: Fact,
    /// Whether a cordon is left of an entry that is gone, after its command began (SAF-35).
    pub orphaned: Fact,
    /// Whether its Node is cordoned for the entry of the step.
    pub cordoned: Fact,
    /// Whether no pod that must leave and no volume is left on it (REB-33).
    pub empty: Fact,
    /// Whether the other etcd members allow to take it down (SAF-23).
    pub quorum: Fact,
    /// Whether it was seen Ready with a new boot id since the first command of the step's entry.
    pub back: Fact,
    /// Whether a Ready Node with another UID has its address (REB-42).
    pub replaced: Fact,
}

/// Facts from right before a step.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Time of the step.
    pub now: Option<Timestamp>,
    /// Seconds by which clocks of engines may be wrong.
    pub skew: f64,
    /// Lease of the present leader, and the time from which its key has led.
    pub leader: Option<(i64, Timestamp)>,
    /// Seconds of the leader's lease.
    pub ttl: f64,
    /// Definition; none if it cannot be read.
    pub cluster: Option<Cluster>,
    /// Policy.
    pub policy: Policy,
    /// Limit of unreachable nodes; none if the record cannot tell which nodes count.
    pub unreachable_limit: Option<i64>,
    /// Maximum length of the repair queue for automatic repair.
    pub repair_limit: i64,
    /// Whether `reboots/disabled` and `repairs/disabled` have the exact value `true`.
    pub disabled: (bool, bool),
    /// All entries of both queues, and maintenances.
    pub entries: BTreeMap<EntryId, Entry>,
    /// Entries that have been as they are since before any copy that counts.
    pub steady: BTreeSet<EntryId>,
    /// Attempts of all entries, by number.
    pub attempts: BTreeMap<(EntryId, u32), Attempt>,
    /// Attempts whose command never began on any machine, as after a lost answer to the transaction that wrote them.
    pub unbegun: BTreeSet<(EntryId, u32)>,
    /// Orders in the time of the decision, and whether each was there all the time.
    pub orders: Vec<(EntryId, Verb, bool)>,
    /// Entries of batches that are paused or cannot be read.
    pub paused: BTreeSet<EntryId>,
    /// Queued workers that nothing but their place in the schedule has held back all the time.
    pub startable: BTreeSet<EntryId>,
    /// Those of them that are still queued some time after the step.
    pub left_behind: BTreeSet<EntryId>,
    /// Machines by address.
    pub machines: BTreeMap<String, Machine>,
    /// Whether the breaker is open, or the canaries of the entry's batch are not back (REB-60, REB-62).
    pub breaker: Fact,
    /// Whether a gate before the start is closed (REB-63).
    pub gate: Fact,
    /// Whether somebody's cancel was accepted that this step repeats or carries out.
    pub withdrawn: Fact,
    /// Seconds for which the object of the step has been in its place.
    pub lasted: f64,
}

/// Attempt that a step also writes: for the command of a reboot or of a repair's step, for a success command, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // said above
pub enum Attempted {
    Nothing,
    Command,
    Success,
}

/// State of a Node as a patch finds or leaves it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cordon {
    /// Entry of the owner record.
    pub owner: Option<EntryId>,
    /// State before, as the record shows it.
    pub schedulable_before: bool,
    /// Number of repeated cordons in the record.
    pub repeated: u32,
    /// Whether an administrator keeps the cordon.
    pub keep: bool,
    /// Whether another program drains the Node.
    pub other_program: bool,
    /// Whether the record's entry claims the Node; of the Node before a patch: whether any entry does.
    pub claimed: Fact,
    /// Whether the machine is back from the command of the record's entry (SAF-35).
    pub back: Fact,
}

/// One change of one entry or of one Node's cordon.
#[derive(Clone, Debug)]
pub struct Step {
    /// Kind of object.
    pub kind: Kind,
    /// The entry; of a Node: the one in its owner record.
    pub entry: EntryId,
    /// Whether an engine of cketerm made it.
    pub engine: bool,
    /// Entry before and after. Of a Node: only the places.
    pub change: (Entry, Entry),
    /// Attempt of the same transaction.
    pub attempt: Option<Attempt>,
    /// Cordon before and after.
    pub cordon: (Cordon, Cordon),
}

impl Step {
    /// Returns a change of an entry by an engine, without an attempt.
    pub fn of(entry: EntryId, before: Entry, after: Entry) -> Self {
        let kind = if entry.queue == QueueKind::Repair { Kind::Repair } else { Kind::Reboot };
        Self { kind, entry, engine: true, change: (before, after), attempt: None, cordon: Default::default() }
    }

    /// Returns the address of the entry's machine.
    pub fn address(&self) -> &str {
        let (before, after) = &self.change;
        if before.address.is_empty() { &after.address } else { &before.address }
    }

    /// Returns the kind of the attempt that it writes.
    pub fn attempted(&self) -> Attempted {
        match &self.attempt {
            None => Attempted::Nothing,
            Some(attempt) if attempt.success => Attempted::Success,
            Some(_) => Attempted::Command,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = &self.change;
        let with = if self.attempt.is_some() { " with a command" } else { "" };
        let of = if self.kind == Kind::Node { "cordon for " } else { "" };
        write!(f, "{of}{} of {}: {:?} → {:?}{with}", self.entry, self.address(), before.place, after.place)
    }
}

impl State {
    /// Reports whether there was this order for the entry.
    pub fn order(&self, entry: EntryId, verb: Verb) -> Fact {
        let mut given = self.orders.iter().filter(|(of, v, _)| *of == entry && *v == verb).peekable();
        if given.peek().is_none() { Some(false) } else { unknown_if(given.all(|(.., all_along)| !all_along), true) }
    }

    /// Reports whether the machine is an API server; none if it is no member.
    pub fn api_server(&self, address: &str) -> Option<bool> {
        self.cluster.as_ref()?.nodes.iter().find(|n| n.address == *address).map(|n| n.control_plane)
    }

    /// Reports whether the machine is an API server of the definition.
    pub fn is_api(&self, address: &str) -> bool {
        self.api_server(address) == Some(true)
    }

    /// Facts about the machine of a step.
    pub fn machine(&self, step: &Step) -> Option<&Machine> {
        self.machines.get(step.address())
    }

    /// Entries that claim their machines (REB-16, REP-4).
    pub fn in_progress(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        let claims = |e: &Entry| matches!(e.place, Place::Draining | Place::Rebooting | Place::Watching);
        self.entries.iter().filter(move |(_, e)| claims(e)).map(|(id, e)| (*id, e))
    }

    /// Attempts of an entry, the newest last.
    pub fn attempts_of(&self, entry: EntryId) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.attempts.range((entry, 0)..=(entry, u32::MAX)).map(|(_, attempt)| attempt)
    }

    /// Operation of a repair (REP-12, REP-13).
    pub fn operation(&self, entry: &Entry) -> Option<&Operation> {
        let mut procedures = self.cluster.as_ref()?.repair.repair_procedures.iter().flatten();
        let procedure = procedures.find(|p| p.machine_types.iter().flatten().any(|t| *t == entry.repair.0))?;
        procedure.repair_operations.iter().flatten().find(|o| o.operation == entry.repair.1)
    }

    /// Reports whether the entry's queue is disabled. Maintenance follows the switch of the reboot queue.
    pub fn is_disabled(&self, queue: QueueKind) -> bool {
        if queue == QueueKind::Repair { self.disabled.1 } else { self.disabled.0 }
    }
}
