//! Effects that a decision requests, and the revisions that it was made from.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    any::QueueEntry,
    attempt::Attempt,
    batch::BatchId,
    boot_time::BootTime,
    cketerm_records::Order,
    entry::{EntryId, QueueKind, Stored},
    hook::Hook,
    hook_runs::{HookRun, HookRuns},
    kube::{BudgetRow, ConditionChange, EndpointsRow, NodeRow, Owner, PodRow},
    names::{Address, NodeName},
    reason::Reason,
    repair::RepairEntry,
    result::CommandResult,
    stored::view::StoreView,
};
use jiff::Timestamp;
use serde::Serialize;

use super::{End, QuorumCondition, StartGateCondition, budget_room::counting};
use crate::snapshot::{FreshRead, NodeUpkeep};

/// One effect, and the conditions under which it may start.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// Exclusion key: at most one effect is in flight per key. It is a Node's name, else an address, else for example
    /// `health of …`, `result of …`, `entry … of …` or the name of an endpoints object.
    pub machine: String,
    /// The entry that the effect is for.
    pub entry: Option<EntryId>,
    /// Conditions that must still hold when the effect starts.
    pub guard: Guard,
    /// The action.
    pub effect: Effect,
}

/// Revisions that a decision was made from. They are compared with the live copy right before the effect starts, and
/// again in the transaction (SAF-8, SAF-9).
///
/// | guard | compares | used by |
/// | --- | --- | --- |
/// | `Guard::default` | nothing | uncordon, history, results, registry, endpoints, removed conditions, checks of orphaned cordons |
/// | [`Guard::of_entry`] | the entry | end, backoff, unwind, renewed owner record, checks, success command |
/// | `Pass::start_guard` | also the keys that allow a start, and the window's end | preview, evictions, fresh read |
/// | `Pass::disruption_guard` | also the etcd members | start of a drain (of a reboot also the site's gates), move of the etcd leader, commands |
/// | `Pass::cordon_guard` | as for a start if this entry has cordoned the Node, else as for a disruption | cordon |
///
/// A guard for the start of a queued entry also compares the entry's batch. The removal of a non-member compares
/// `cluster` in addition to its entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Guard {
    /// The entry and its ModRevision.
    pub entry: Option<(EntryId, i64)>,
    /// For effects that start work: `<queue>/disabled`, `cluster`, `constraints`, `cketerm/policy`; 0 = no such key.
    pub start: Option<StartRevisions>,
    /// For effects that start a queued entry: its batch and the ModRevision of the batch; 0 = no such key. A pause then
    /// refuses the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<(BatchId, i64)>,
    /// For the removal of a non-member: the revision of `cluster` that lacks the node; 0 = no such key (I28).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<i64>,
    /// For effects that begin to disrupt a machine: the condition on the etcd members (I46).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<QuorumCondition>,
    /// For the start of a reboot: the condition on the site's gates (I72).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_gates: Option<Box<StartGateCondition>>,
    /// For effects that start work: end of the machine's window. After it the effect is refused (I8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// `ModRevision`s of the keys that allow work to start; 0 = no such key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StartRevisions {
    /// The queue whose switch (the key `<queue>/disabled`) is compared.
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

impl StartRevisions {
    /// Returns the revisions of the live copy.
    pub fn of(queue: QueueKind, store: &StoreView) -> Self {
        Self {
            queue,
            switch: store.switch(queue).mod_revision,
            cluster: store.cluster.as_ref().map_or(0, |s| s.mod_revision),
            constraints: store.constraints.as_ref().map_or(0, |s| s.mod_revision),
            policy: store.policy.as_ref().map_or(0, |s| s.mod_revision),
        }
    }
}

impl Guard {
    /// Returns a guard that compares the entry only.
    pub fn of_entry(id: EntryId, mod_revision: i64) -> Self {
        Self { entry: Some((id, mod_revision)), ..Self::default() }
    }

    /// Returns a guard that compares the entry and the keys that allow work to start. `Pass::start_guard` adds the end
    /// of the machine's window.
    pub fn start_guard(id: EntryId, mod_revision: i64, store: &StoreView) -> Self {
        Self { entry: Some((id, mod_revision)), start: Some(StartRevisions::of(id.queue, store)), ..Self::default() }
    }

    /// Returns the first compared value that has changed in this copy, or `None` if nothing has.
    pub fn changed(&self, store: &StoreView) -> Option<&'static str> {
        if let Some((id, revision)) = self.entry
            && store.stored_entry(id).map(|stored| stored.mod_revision) != Some(revision)
        {
            return Some("the entry");
        }
        let cluster = || store.cluster.as_ref().map_or(0, |s| s.mod_revision);
        if self.cluster.is_some_and(|was| was != cluster()) {
            return Some("the cluster definition");
        }
        if let Some((id, revision)) = self.batch
            && store.batches.get(&id).map_or(0, |stored| stored.mod_revision) != revision
        {
            return Some("the batch");
        }
        let was = self.start?;
        let is = StartRevisions::of(was.queue, store);
        let all = [
            ("the queue's switch", was.switch, is.switch),
            ("the cluster definition", was.cluster, is.cluster),
            ("constraints", was.constraints, is.constraints),
            ("the policy", was.policy, is.policy),
        ];
        all.into_iter().find_map(|(what, was, is)| (was != is).then_some(what))
    }
}

/// Action of a decision.
#[derive(Clone, Debug, Serialize)]
pub enum Effect {
    /// Removes the entry.
    Remove {
        /// Reason for the end.
        end: End,
        /// Name of the Node that must still be Ready. Set if an operator's `done` is the only evidence.
        #[serde(skip_serializing_if = "Option::is_none")]
        ready: Option<NodeName>,
        /// Whether a command of a dead leader may still run. Its attempt then stays open, and the Node stays cordoned.
        /// Set only for an operator's `done`: a cancel, a dequeue and the deletion of an unfinished repair close no
        /// attempt.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        running: bool,
    },
    /// Moves the entry to `draining`: a reboot from `queued`, a repair from `waiting` or from the watch of the step
    /// before.
    StartDrain {
        /// The entry before the transition.
        entry: QueueEntry,
        /// UID of the Node now. It is recorded if none was recorded when the entry was added.
        node_uid: Option<String>,
        /// Record of hooks to write; none = the policy has no hook for the machine.
        hooks: Option<HookRuns>,
    },
    /// Backs off: moves a draining entry back into the queue and sets the backoff.
    BackOff {
        /// The entry before the transition.
        entry: QueueEntry,
        /// Reason, shown to the operator.
        cause: Reason,
    },
    /// Moves the entry back into the queue as if it had not started, from `draining` or with a command that never
    /// began. The window has ended, a freeze has begun, or an operator holds the entry (REB-47).
    Unwind {
        /// The entry before the transition.
        entry: QueueEntry,
        /// Reason, shown to the operator.
        cause: Reason,
        /// Attempts of the entry, none of which began. They are deleted.
        never_began: Vec<Stored<Attempt>>,
    },
    /// Writes the owner record (cketerm's annotation) to the Node, and cordons it if `cordon` is set, in one patch.
    Stamp {
        /// The Node before the patch.
        node: Arc<NodeRow>,
        /// New value of the owner annotation.
        owner: Owner,
        /// Whether `unschedulable` is set.
        cordon: bool,
        /// Whether CKE's annotation is set. (`KubeView::marked` holds Nodes with either program's annotation.)
        mark: bool,
    },
    /// Sends a dry run for each eviction.
    Preview {
        /// Pods to evict, with the budgets that select them.
        pods: Vec<(Arc<PodRow>, Vec<Arc<BudgetRow>>)>,
        /// UIDs of pods in namespaces that are not protected. No budget blocks those.
        unprotected: BTreeSet<String>,
    },
    /// Looks up the causes behind budgets that hold the drain. It only reads.
    Explain {
        /// The budgets.
        budgets: Vec<Arc<BudgetRow>>,
    },
    /// Evicts and deletes pods, all at once.
    Evict {
        /// Pods to evict, with the budgets that select them.
        evict: Vec<(Arc<PodRow>, Vec<Arc<BudgetRow>>)>,
        /// Pods to delete.
        delete: Vec<Arc<PodRow>>,
        /// UIDs of pods to evict that are deleted if a budget refuses, because their namespace is not protected.
        unprotected: BTreeSet<String>,
    },
    /// Reads a machine's Node and pods from the API server right before its command.
    Recheck {
        /// The entry before the transition.
        entry: QueueEntry,
        /// The Node's name.
        node: NodeName,
        /// Whether to read the pods too, because the Node was drained for this command.
        pods: bool,
    },
    /// Moves the entry to `rebooting` or `watching`, and runs its first command (reboot command or repair command).
    Power {
        /// The entry before the transition. A repair is at the step whose command runs.
        entry: QueueEntry,
        /// The fresh read that the decision is based on; `None` if the machine has no Node.
        fresh: Option<FreshRead>,
        /// An operator's order to skip pods and volumes.
        force: Option<Stored<Order>>,
        /// UIDs of DaemonSets with the strategy `OnDelete`. Their pods are deleted before the power command.
        on_delete: Vec<String>,
        /// The attempt to write.
        attempt: Attempt,
    },
    /// Moves a maintenance from `draining` to `in-maintenance`.
    BeginMaintenance {
        /// The entry before the transition.
        entry: QueueEntry,
    },
    /// Requests the etcd leader to hand over, if its machine's power is next.
    MoveEtcdLeader {
        /// Name of the leading member.
        member: String,
        /// Its client URLs.
        urls: Vec<String>,
        /// ID of the member that should lead.
        to: u64,
        /// Name of the member that should lead.
        to_name: String,
    },
    /// Runs a command whose entry is in `rebooting` or `watching` already: a further try, a retry that an operator
    /// ordered, or any run of a repair's success command.
    RunAgain {
        /// The entry before the transition.
        entry: QueueEntry,
        /// The fresh read that the decision is based on; `None` for a machine without a Node and for a success command.
        fresh: Option<FreshRead>,
        /// The attempt before. It is closed as unknown if it has no outcome.
        before: Option<Stored<Attempt>>,
        /// Attempts that are deleted once this one is written. The new attempt counts them.
        folded: Vec<Stored<Attempt>>,
        /// The operator's order, if there is one.
        order: Option<Stored<Order>>,
        /// The attempt to write.
        attempt: Attempt,
    },
    /// Runs a hook of the site.
    RunHook {
        /// The entry, which may be gone.
        entry: EntryId,
        /// Record of the entry's hooks.
        record: Stored<HookRuns>,
        /// The hook.
        hook: Hook,
        /// The run to write.
        run: HookRun,
        /// The operator's order for it, if there is one.
        order: Option<Stored<Order>>,
    },
    /// Deletes the record of an entry's hooks. It moves into the entry's history.
    EndHooks {
        /// The entry, which may be gone.
        entry: EntryId,
        /// Record of the entry's hooks.
        record: Stored<HookRuns>,
    },
    /// Runs the boot check.
    BootCheck {
        /// Command line with the address and the Unix time appended.
        argv: Vec<String>,
        /// Bound in seconds.
        bound: u64,
    },
    /// Runs the health check of a repair.
    HealthCheck {
        /// Command line with the address appended.
        argv: Vec<String>,
        /// Bound in seconds.
        bound: u64,
        /// Boot time at which the check was sent. Its answer is void if a command ended later.
        asked: BootTime,
    },
    /// Ends a repair as `succeeded` or `failed`. The entry stays in the queue.
    Finish {
        /// The entry before the transition.
        entry: RepairEntry,
        /// Reason for the end.
        end: End,
        /// Whether a command of a dead leader may still run. Its attempt then stays open, and the Node stays cordoned.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        running: bool,
    },
    /// Removes cketerm's annotations, and uncordons the Node if the cordon is cketerm's.
    Release {
        /// The Node before the patch.
        node: Arc<NodeRow>,
        /// Whether `unschedulable` is removed.
        uncordon: bool,
        /// Whether `keep-cordoned` is removed too: the cordon is the administrator's now.
        drop_keep: bool,
        /// Ended entry whose remaining attempts then move into history, as with [`Effect::Settle`].
        settle: Option<EntryId>,
    },
    /// Removes the taint and the record of a Node that cketerm took out of service.
    ReturnToService {
        /// The Node before the patch.
        node: Arc<NodeRow>,
    },
    /// Moves the remaining attempts of an ended entry into history. Its Node is gone or released already. It has
    /// nothing to do with `settle_seconds`.
    Settle {
        /// The ended entry.
        entry: EntryId,
    },
    /// Writes a published result into its attempt, or removes the result if it has none.
    TakeResult {
        /// The result that an engine of the command's host published.
        result: Stored<CommandResult>,
        /// The open attempt that the result belongs to.
        attempt: Option<Stored<Attempt>>,
    },
    /// An action on behalf of the machine registry.
    Registry(super::RegistryEffect),
    /// An action for Nodes that need a reboot.
    RebootNeeded(super::RebootNeededEffect),
    /// An action for a `MaintenanceRequest`.
    MaintenanceRequest(super::MaintenanceRequestEffect),
    /// Sets and removes conditions of a Node, and its taint. Nothing waits for it.
    SetNodeSigns {
        /// The Node before the patches.
        node: Arc<NodeRow>,
        /// Conditions to set and to remove.
        conditions: Vec<ConditionChange>,
        /// Whether the taint is set or removed; none = it stays as it is.
        taint: Option<bool>,
    },
    /// Replaces the addresses of an endpoints object.
    SetEndpoints {
        /// The object before the write.
        row: EndpointsRow,
        /// The new addresses.
        addresses: Vec<Address>,
    },
}

impl Effect {
    /// Returns the name of the effect for screens, logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Remove { .. } => "removing",
            Self::StartDrain { .. } => "starting",
            Self::BackOff { .. } => "backing off",
            Self::Unwind { .. } => "unwinding",
            Self::Stamp { cordon: true, .. } => "cordoning",
            Self::Stamp { .. } => "stamping",
            Self::Preview { .. } => "previewing",
            Self::Recheck { .. } => "rechecking",
            Self::Explain { .. } => "explaining",
            Self::Evict { .. } => "evicting",
            Self::RunAgain { attempt, .. } if attempt.success => "finishing",
            Self::Power { attempt, .. } | Self::RunAgain { attempt, .. } => match attempt.entry.queue {
                QueueKind::Reboot => "rebooting",
                QueueKind::Repair => "repairing",
                QueueKind::Maintenance => "keeping",
            },
            Self::BeginMaintenance { .. } => "beginning the maintenance",
            Self::MoveEtcdLeader { .. } => "moving etcd's leader",
            Self::HealthCheck { .. } => "checking health",
            Self::Finish { .. } => "finishing",
            Self::RunHook { .. } => "running a hook",
            Self::EndHooks { .. } => "ending hooks",
            Self::BootCheck { .. } => "checking boot",
            Self::Release { .. } => "uncordoning",
            Self::ReturnToService { .. } => "returning to service",
            Self::Settle { .. } => "settling",
            Self::TakeResult { .. } => "taking over a result",
            Self::SetNodeSigns { .. } => "setting conditions",
            Self::SetEndpoints { .. } => "endpoints",
            Self::Registry(what) => what.as_str(),
            Self::RebootNeeded(what) => what.as_str(),
            Self::MaintenanceRequest(what) => what.as_str(),
        }
    }

    /// Returns the number of evictions that the effect sends, by the budget (`namespace/name`) that counts them.
    pub fn evictions(&self) -> BTreeMap<String, u32> {
        let mut count = BTreeMap::new();
        if let Self::Evict { evict, .. } = self {
            for budget in evict.iter().filter_map(|(pod, budgets)| counting(pod, budgets)) {
                *count.entry(budget.full_name()).or_default() += 1;
            }
        }
        count
    }

    /// Returns the id of the attempt or hook that the effect runs. Nothing may repeat it meanwhile.
    pub fn run_id(&self) -> Option<String> {
        if let Self::Power { attempt, .. } | Self::RunAgain { attempt, .. } = self {
            return Some(attempt.id.clone());
        }
        if let Self::RunHook { entry, run, .. } = self { Some(run.id(*entry)) } else { None }
    }

    /// Returns true if the effect patches the Node for the work on its machine. A patch for others waits meanwhile.
    pub fn patches_node(&self) -> bool {
        matches!(self, Self::Stamp { .. } | Self::Release { .. })
    }

    /// Returns the kind of upkeep of Nodes that the effect is. `None`: it is something else.
    pub fn upkeep(&self) -> Option<NodeUpkeep> {
        if matches!(self, Self::SetNodeSigns { .. }) {
            return Some(NodeUpkeep::Signs);
        }
        matches!(self, Self::Registry(super::RegistryEffect::Describe { .. })).then_some(NodeUpkeep::Description)
    }

    /// Returns true if the effect begins work on a machine, which counts as in progress from then on.
    pub fn starts(&self) -> bool {
        match self {
            Self::StartDrain { .. } => true,
            // A repair without a drain counts from the fresh read for its command on, so that no other entry takes the
            // slot between read and command.
            Self::Power { entry: QueueEntry::Repair(entry), .. }
            | Self::Recheck { entry: QueueEntry::Repair(entry), .. } => !entry.claims_machine(),
            Self::Power { entry: QueueEntry::Reboot(_) | QueueEntry::Maintenance(_), .. }
            | Self::Recheck { entry: QueueEntry::Reboot(_) | QueueEntry::Maintenance(_), .. }
            | Self::BeginMaintenance { .. }
            | Self::Remove { .. }
            | Self::BackOff { .. }
            | Self::Unwind { .. }
            | Self::Stamp { .. }
            | Self::Preview { .. }
            | Self::Explain { .. }
            | Self::Evict { .. }
            | Self::MoveEtcdLeader { .. }
            | Self::RunAgain { .. }
            | Self::RunHook { .. }
            | Self::EndHooks { .. }
            | Self::BootCheck { .. }
            | Self::HealthCheck { .. }
            | Self::Finish { .. }
            | Self::Release { .. }
            | Self::ReturnToService { .. }
            | Self::Settle { .. }
            | Self::TakeResult { .. }
            | Self::Registry(_)
            | Self::RebootNeeded(_)
            | Self::MaintenanceRequest(_)
            | Self::SetNodeSigns { .. }
            | Self::SetEndpoints { .. } => false,
        }
    }
}
