//! What a decision asks for, and what it was decided from.

use super::Quorum;
use crate::{
    engine::snapshot::FreshRead,
    model::{
        any::QueueEntry,
        attempt::Attempt,
        cketerm_records::Order,
        entry::{EntryId, QueueKind, Stored},
        kube::{BudgetRow, EndpointsRow, NodeRow, Owner, PodRow},
        reason::Reason,
        repair::RepairEntry,
        result::CommandResult,
    },
    store::view::StoreView,
};
use jiff::Timestamp;
use serde::Serialize;
use std::{collections::BTreeSet, sync::Arc};

/// One effect on one machine.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// The Node's name, else the address: at most one effect is under way for each.
    pub machine: String,
    /// The entry it is for.
    pub entry: Option<EntryId>,
    /// What must still be true when it starts.
    pub guard: Guard,
    /// What to do.
    pub effect: Effect,
}

/// The revisions that a decision was made from. Compared with the live copy right before the effect starts, and in
/// the transaction (spec/safety.md, Effects: Transitions compare what they were decided from).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Guard {
    /// The entry and its ModRevision.
    pub entry: Option<(EntryId, i64)>,
    /// The attempt's key and ModRevision.
    pub attempt: Option<(String, i64)>,
    /// For what starts work: `<queue>/disabled`, `cluster`, `constraints`, `cketerm/policy`; 0 = no such key.
    pub start: Option<Start>,
    /// The `cluster` from which an entry's node is gone, for what ends it for that; 0 = no such key (I28).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<i64>,
    /// For what begins to disrupt a machine: what it asks of etcd's members (I46).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<Quorum>,
    /// For what starts work: the end of its window. From then on it does not start any more (I8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// `ModRevision`s of what allows work to start; 0 = no such key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    /// The queue whose switch counts.
    pub queue: QueueKind,
    /// `<queue>/disabled`.
    pub switch: i64,
    /// `cluster`.
    pub cluster: i64,
    /// `constraints`.
    pub constraints: i64,
    /// `cketerm/policy`.
    pub policy: i64,
}

impl Start {
    /// As the live copy has them.
    pub fn of(queue: QueueKind, store: &StoreView) -> Self {
        let switch = match queue {
            QueueKind::Reboot => &store.reboots.switch,
            QueueKind::Repair => &store.repairs.switch,
        };
        Self {
            queue,
            switch: switch.mod_revision,
            cluster: store.cluster.as_ref().map_or(0, |s| s.mod_revision),
            constraints: store.constraints.as_ref().map_or(0, |s| s.mod_revision),
            policy: store.policy.as_ref().map_or(0, |s| s.mod_revision),
        }
    }
}

impl Guard {
    /// Only the entry's revision counts.
    pub fn of_entry(id: EntryId, mod_revision: i64) -> Self {
        Self { entry: Some((id, mod_revision)), ..Self::default() }
    }

    /// The entry's revision and everything that allows work to start.
    pub fn starting(id: EntryId, mod_revision: i64, store: &StoreView) -> Self {
        Self { entry: Some((id, mod_revision)), start: Some(Start::of(id.queue, store)), ..Self::default() }
    }

    /// What is not as it was in this copy; none = all of it still is.
    pub fn changed(&self, store: &StoreView) -> Option<&'static str> {
        if let Some((id, revision)) = self.entry {
            let now = match id.queue {
                QueueKind::Reboot => store.reboots.entries.get(&id.index).map(|s| s.mod_revision),
                QueueKind::Repair => store.repairs.entries.get(&id.index).map(|s| s.mod_revision),
            };
            if now != Some(revision) {
                return Some("the entry");
            }
        }
        let cluster = || store.cluster.as_ref().map_or(0, |s| s.mod_revision);
        if self.cluster.is_some_and(|was| was != cluster()) {
            return Some("the cluster definition");
        }
        let was = self.start?;
        let is = Start::of(was.queue, store);
        let all = [
            ("the queue's switch", was.switch, is.switch),
            ("the cluster definition", was.cluster, is.cluster),
            ("constraints", was.constraints, is.constraints),
            ("the policy", was.policy, is.policy),
        ];
        all.into_iter().find_map(|(what, was, is)| (was != is).then_some(what))
    }
}

/// How an entry ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum End {
    /// A person cancelled it.
    Cancelled,
    /// Its node is no longer in the definition.
    NotMember,
    /// It has booted, and meets all that safety.md asks.
    Booted,
    /// Another machine took its place: a new Node UID with the same address, Ready.
    Replaced,
    /// A person said that it is done.
    DoneBy(Order),
    /// A repair: marked as deleted.
    Deleted,
    /// A repair: the machine is healthy.
    Healthy,
    /// A repair: given up, why.
    Failed(String),
}

impl End {
    /// The reason of the Kubernetes Event that says so.
    pub fn event(&self) -> &'static str {
        match self {
            Self::Cancelled => "Cancelled",
            Self::NotMember => "Dequeued",
            Self::Booted | Self::Replaced => "Rebooted",
            Self::DoneBy(_) => "MarkedDone",
            Self::Deleted => "RepairDeleted",
            Self::Healthy => "RepairSucceeded",
            Self::Failed(_) => "RepairFailed",
        }
    }

    /// The outcome as history has it.
    pub fn outcome(&self) -> String {
        match self {
            Self::Cancelled => "cancelled".to_owned(),
            Self::NotMember => "dequeued: no longer in the cluster definition".to_owned(),
            Self::Booted => "booted".to_owned(),
            Self::Replaced => "booted: the Node was registered anew".to_owned(),
            Self::DoneBy(order) => format!("done by {}", order.who),
            Self::Deleted => "deleted".to_owned(),
            Self::Healthy => "succeeded".to_owned(),
            Self::Failed(why) => format!("failed: {why}"),
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, Serialize)]
pub enum Effect {
    /// Remove the entry.
    Remove {
        /// Why.
        end: End,
        /// The Node that has to be Ready still, by name: a person said that it is done, and nothing else did.
        #[serde(skip_serializing_if = "Option::is_none")]
        ready: Option<String>,
        /// A command of a dead leader may still run: its attempt stays open, and with it the cordon.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        running: bool,
    },
    /// Into `draining`: a reboot from `queued`, a repair from `waiting` or from the watch of the step before.
    StartDrain {
        /// The entry as it was.
        entry: QueueEntry,
        /// UID of its Node now: noted, where none was noted at enqueue.
        node_uid: Option<String>,
    },
    /// From `draining` back into the queue, later again.
    BackOff {
        /// The entry as it was.
        entry: QueueEntry,
        /// Why, for the operator.
        cause: Reason,
    },
    /// Back into the queue as if it had not started, from `draining` or with a command that never began: its window has
    /// ended, a freeze has begun, or a person holds it.
    Unwind {
        /// The entry as it was.
        entry: QueueEntry,
        /// Why, for the operator.
        cause: Reason,
        /// Its attempts, none of which began: they go.
        never_began: Vec<Stored<Attempt>>,
    },
    /// Cordon, or re-stamp the owner annotation: one patch.
    Stamp {
        /// The Node as it was.
        node: Arc<NodeRow>,
        /// What the annotation will say.
        owner: Owner,
        /// Whether `unschedulable` is set.
        cordon: bool,
        /// Whether CKE's annotation is set.
        mark: bool,
    },
    /// Ask by dry run whether the evictions would be allowed.
    Preview {
        /// The pods that will be evicted, with the budgets that select them.
        pods: Vec<(Arc<PodRow>, Vec<Arc<BudgetRow>>)>,
        /// UIDs of those that no budget keeps: their namespace is not protected.
        unprotected: BTreeSet<String>,
    },
    /// Evict and delete pods, all together.
    Evict {
        /// To evict, with the budgets that select them.
        evict: Vec<(Arc<PodRow>, Vec<Arc<BudgetRow>>)>,
        /// To delete.
        delete: Vec<Arc<PodRow>>,
        /// UIDs of those to evict that are deleted if a budget refuses: their namespace is not protected.
        unprotected: BTreeSet<String>,
    },
    /// Ask the API server itself for a machine's Node and pods, right before its command.
    Recheck {
        /// The entry as it was.
        entry: QueueEntry,
        /// The Node's name.
        node: String,
        /// The Node was drained for this command: its pods are asked for, too.
        pods: bool,
    },
    /// Into `rebooting` or `watching`, and run the command.
    Power {
        /// The entry as it was; a repair at the step whose command is run.
        entry: QueueEntry,
        /// The fresh read that this was decided from; none = the machine has no Node.
        fresh: Option<FreshRead>,
        /// A person's order to skip pods and volumes.
        force: Option<Stored<Order>>,
        /// `OnDelete` DaemonSets' UIDs: their pods are deleted before the power command.
        on_delete: Vec<String>,
        /// The attempt that will be written.
        attempt: Attempt,
    },
    /// Ask the member of etcd that leads, on a machine whose power is next, to hand over.
    MoveEtcdLeader {
        /// Its name.
        member: String,
        /// Its client URLs.
        urls: Vec<String>,
        /// The id of the member that should lead.
        to: u64,
        /// Its name.
        to_name: String,
    },
    /// Run the command once more; or a repair's success command.
    RunAgain {
        /// The entry as it was.
        entry: QueueEntry,
        /// The fresh read that this was decided from; none = the machine has no Node, or a success command.
        fresh: Option<FreshRead>,
        /// The attempt before, closed as unknown where it has no outcome.
        before: Option<Stored<Attempt>>,
        /// Attempts that are not needed any more once this one is written.
        folded: Vec<Stored<Attempt>>,
        /// A person's order, if it is one.
        order: Option<Stored<Order>>,
        /// The attempt that will be written.
        attempt: Attempt,
    },
    /// Run the boot check.
    BootCheck {
        /// The command line, address and Unix time appended.
        argv: Vec<String>,
        /// Seconds it may take.
        bound: u64,
    },
    /// Run the health check of a repair.
    HealthCheck {
        /// The command line, address appended.
        argv: Vec<String>,
        /// Seconds it may take.
        bound: u64,
        /// Boot-time seconds at which it was asked: a command that ended later makes its answer worthless.
        asked: f64,
    },
    /// A repair ends: `succeeded` or `failed`; it stays in the queue.
    Finish {
        /// The entry as it was.
        entry: RepairEntry,
        /// How it ends.
        end: End,
        /// A command of a dead leader may still run: its attempt stays open, and with it the cordon.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        running: bool,
    },
    /// Take our annotations off, and uncordon if it was our cordon.
    Release {
        /// The Node as it was.
        node: Arc<NodeRow>,
        /// Whether `unschedulable` goes.
        uncordon: bool,
        /// Whether `keep-cordoned` goes too: the cordon is the administrator's now.
        drop_keep: bool,
        /// The entry whose left-over attempts go into history with it.
        settle: Option<EntryId>,
    },
    /// Move an ended entry's left-over attempts into history: its Node is gone or released already.
    Settle {
        /// The entry that was.
        entry: EntryId,
    },
    /// Take a published result over into its attempt; without one, remove it.
    TakeResult {
        /// What an engine of the host published.
        result: Stored<CommandResult>,
        /// The open attempt that it belongs to.
        attempt: Option<Stored<Attempt>>,
    },
    /// Something that the registry of machines asks for.
    Registry(super::Registering),
    /// Replace the addresses of an endpoints object.
    SetEndpoints {
        /// The object as it was.
        row: EndpointsRow,
        /// What it will have.
        addresses: Vec<String>,
    },
}

impl Effect {
    /// A word for screens, logs and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Remove { .. } => "removing",
            Self::StartDrain { .. } => "starting",
            Self::BackOff { .. } => "backing off",
            Self::Unwind { .. } => "unwinding",
            Self::Stamp { cordon: true, .. } => "cordoning",
            Self::Stamp { .. } => "stamping",
            Self::Preview { .. } => "previewing",
            Self::Recheck { .. } => "rechecking",
            Self::Evict { .. } => "evicting",
            Self::RunAgain { attempt, .. } if attempt.success => "finishing",
            Self::Power { attempt, .. } | Self::RunAgain { attempt, .. } => match attempt.entry.queue {
                QueueKind::Reboot => "rebooting",
                QueueKind::Repair => "repairing",
            },
            Self::MoveEtcdLeader { .. } => "moving etcd's leader",
            Self::HealthCheck { .. } => "checking health",
            Self::Finish { .. } => "finishing",
            Self::BootCheck { .. } => "checking boot",
            Self::Release { .. } => "uncordoning",
            Self::Settle { .. } => "settling",
            Self::TakeResult { .. } => "taking over a result",
            Self::SetEndpoints { .. } => "endpoints",
            Self::Registry(what) => what.word(),
        }
    }

    /// It begins work on a machine: counts as in progress from now on.
    pub fn starts(&self) -> bool {
        match self {
            Self::StartDrain { .. } => true,
            // A repair that does not drain starts with its command, and with the fresh read for it.
            Self::Power { entry: QueueEntry::Repair(entry), .. }
            | Self::Recheck { entry: QueueEntry::Repair(entry), .. } => !entry.claims_machine(),
            _ => false,
        }
    }
}
