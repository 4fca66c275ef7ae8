//! Nodes that need a reboot: their records, and the entries that the leader queues for them by itself (policy
//! `reboot_needed`).

use std::sync::Arc;

use cketerm_model::{
    cketerm_records::Needed,
    entry::{EntryId, QueueKind, Stored},
    names::{Address, NodeName},
    policy::RebootNeeded,
    reboot::RebootEntry,
};
use jiff::Timestamp;
use serde::Serialize;

use super::{Effect, Guard, Pass, effect::StartRevisions, entry_context::EntryContext};
use crate::reboot_needed::{
    list::{Row, State, list, member_of},
    queue::free_places,
    record::{RecordChange, changes},
};

/// Key among the effects: records and entries are written one after the other.
const NEEDED: &str = "the Nodes that need a reboot";
/// Index of the entry that a machine would get. No entry of the queue has it.
const FUTURE_INDEX: u64 = u64::MAX;

/// Action for Nodes that need a reboot.
#[derive(Clone, Debug, Serialize)]
pub enum RebootNeededEffect {
    /// Writes and removes records.
    Record(Vec<RecordChange>),
    /// Queues reboots.
    Queue(NeededBatch),
}

impl RebootNeededEffect {
    /// Returns the name of the action for screens, logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Record(_) => "recording needed reboots",
            Self::Queue(_) => "queueing needed reboots",
        }
    }
}

/// Reboots to queue for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeededBatch {
    /// The cause.
    pub cause: String,
    /// The machines.
    pub machines: Vec<NeededMachine>,
}

/// A machine whose reboot is queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NeededMachine {
    /// Its Node.
    pub node: NodeName,
    /// Its address in the definition.
    pub address: Address,
    /// UID of the Node.
    pub node_uid: String,
    /// Its boot id.
    pub boot_id: String,
    /// Its record, and the `ModRevision` of that.
    pub record: Needed,
    /// `ModRevision` of the record.
    pub revision: i64,
}

/// Candidate with what decides its turn.
struct Candidate {
    /// Control planes come last, then the order is that of the times.
    turn: (bool, Option<Timestamp>, NodeName),
    cause: String,
    machine: NeededMachine,
    /// End of its window.
    closes: Option<Timestamp>,
}

impl Pass<'_> {
    /// Keeps the records up to date. Once they are, queues reboots if the policy is `queue`. While it is `off`, they stay:
    /// a signal that is still set after its reboot must not ask again once somebody looks again.
    pub(super) fn plan_reboot_needed(&mut self) {
        if self.policy.reboot_needed == RebootNeeded::Off {
            return;
        }
        if !self.leading() || !self.etcd_copy_is_fresh() || self.leadership_blocker().is_some() {
            return;
        }
        let changes = changes(&self.snap.store, &self.snap.kube, &self.snap.reboot_signals, self.now.wall);
        if !changes.is_empty() {
            self.plan(NEEDED, None, Guard::default(), Effect::RebootNeeded(RebootNeededEffect::Record(changes)));
        } else if self.policy.reboot_needed == RebootNeeded::Queue && !self.snap.store.needed.is_empty() {
            self.queue_needed_reboots();
        }
    }

    /// Queues reboots of one cause, as many as the limits allow.
    fn queue_needed_reboots(&mut self) {
        let store = Arc::clone(&self.snap.store);
        let Some(definition) = self.definition else { return };
        if definition.cluster.reboot.reboot_command.is_none() || !self.queue_enabled(QueueKind::Reboot) {
            return;
        }
        let Some(free_places) = free_places(&store, &self.policy, self.now.wall).filter(|free_places| *free_places > 0)
        else {
            return;
        };
        let rows = list(&store, &self.snap.kube, &self.snap.reboot_signals, self.now.wall);
        let mut candidates: Vec<Candidate> = rows.iter().filter_map(|row| self.candidate(row)).collect();
        // a stale copy shows neither what the Nodes need nor how they are
        if candidates.is_empty() || self.stale().is_some() {
            return;
        }
        candidates.sort_by(|a, b| a.turn.cmp(&b.turn));
        let Some(cause) = candidates.first().map(|first| first.cause.clone()) else { return };
        candidates.retain(|candidate| candidate.cause == cause);
        candidates.truncate(free_places);
        let until = candidates.iter().filter_map(|candidate| candidate.closes).min();
        let machines = candidates.into_iter().map(|candidate| candidate.machine).collect();
        // a change of the switch, the definition or the policy is decided on again
        let guard = Guard { until, start: Some(StartRevisions::of(QueueKind::Reboot, &store)), ..Guard::default() };
        let effect = RebootNeededEffect::Queue(NeededBatch { cause, machines });
        self.plan(NEEDED, None, guard, Effect::RebootNeeded(effect));
    }

    /// Returns the machine of a row if its reboot may be queued now.
    fn candidate(&self, row: &Row) -> Option<Candidate> {
        if row.state != State::Proposed {
            return None;
        }
        let node = self.snap.kube.by_name.get(&row.node)?;
        let stored = self.snap.store.needed.get(&row.node)?;
        let record = stored.get()?;
        // A Node that is away is no longer what it showed, and a cordon of somebody else is the sign of work on it.
        if !node.ready || node.unschedulable || node.keep_cordoned || node.owner.is_some() {
            return None;
        }
        // kured and others reboot the machine themselves
        if self.drained_by_other(node).is_some() {
            return None;
        }
        let member = member_of(&self.snap.store, node)?;
        if self.claims.machines.contains_key(member.address()) {
            return None;
        }
        let entry = RebootEntry::queued(FUTURE_INDEX, member.address());
        let entry = Stored { key: String::new(), mod_revision: 0, value: Ok(Arc::new(entry)) };
        let ctx = EntryContext::of_reboot(EntryId::reboot(FUTURE_INDEX), &entry, member)?;
        if self.drain_window_blocker(ctx).is_some() || self.control_plane_unclear(ctx).is_some() {
            return None;
        }
        Some(Candidate {
            turn: (member.control_plane, row.since, row.node.clone()),
            cause: row.cause.clone(),
            machine: NeededMachine {
                node: row.node.clone(),
                address: member.address().clone(),
                node_uid: node.uid.clone(),
                boot_id: node.boot_id.clone(),
                record: record.clone(),
                revision: stored.mod_revision,
            },
            closes: self.window_state(ctx).and_then(|window| window.closes),
        })
    }
}
