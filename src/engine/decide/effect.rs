//! What a decision asks for, and what it was decided from.

use crate::{
    model::{
        attempt::Attempt,
        entry::{EntryId, Stored},
        kube::{BudgetRow, EndpointsRow, NodeRow, Owner, PodRow},
        ours::Order,
        reason::Reason,
        reboot::RebootEntry,
    },
    store::view::StoreView,
};
use std::{collections::BTreeSet, sync::Arc};

/// One effect on one machine.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guard {
    /// The entry and its ModRevision.
    pub entry: Option<(EntryId, i64)>,
    /// The attempt's key and ModRevision.
    pub attempt: Option<(String, i64)>,
    /// For what starts work: `reboots/disabled`, `cluster`, `constraints`, `cketerm/policy`; 0 = no such key.
    pub start: Option<Start>,
}

/// `ModRevision`s of what allows work to start; 0 = no such key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// `reboots/disabled`.
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
    pub fn of(store: &StoreView) -> Self {
        Self {
            switch: store.reboots.switch.mod_revision,
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
        Self { entry: Some((id, mod_revision)), attempt: None, start: Some(Start::of(store)) }
    }

    /// Whether all of it is still so in this copy.
    pub fn holds(&self, store: &StoreView) -> bool {
        let entry = self.entry.is_none_or(|(id, revision)| {
            let now = match id.queue {
                crate::model::entry::QueueKind::Reboot => store.reboots.entries.get(&id.index).map(|s| s.mod_revision),
                crate::model::entry::QueueKind::Repair => store.repairs.entries.get(&id.index).map(|s| s.mod_revision),
            };
            now == Some(revision)
        });
        let start = self.start.is_none_or(|start| start == Start::of(store));
        entry && start
    }
}

/// How an entry ends.
#[derive(Clone, Debug, PartialEq)]
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
}

impl End {
    /// The outcome as history has it.
    pub fn outcome(&self) -> String {
        match self {
            Self::Cancelled => "cancelled".to_owned(),
            Self::NotMember => "dequeued: no longer in the cluster definition".to_owned(),
            Self::Booted => "booted".to_owned(),
            Self::Replaced => "booted: the Node was registered anew".to_owned(),
            Self::DoneBy(order) => format!("done by {}", order.who),
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Remove the entry.
    Remove {
        /// Why.
        end: End,
    },
    /// `queued` → `draining`.
    StartDrain {
        /// The entry as it was.
        entry: RebootEntry,
        /// UID of its Node now: noted, where none was noted at enqueue.
        node_uid: Option<String>,
    },
    /// `draining` → `queued`, later again.
    BackOff {
        /// The entry as it was.
        entry: RebootEntry,
        /// Why, for the operator.
        cause: Reason,
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
        /// A blocker that is known without asking.
        known: Option<Reason>,
        /// Pods of protected namespaces that a budget selects, with those budgets.
        pods: Vec<(Arc<PodRow>, Vec<Arc<BudgetRow>>)>,
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
    /// `draining` → `rebooting` and run the reboot command, after fresh checks.
    Power {
        /// The entry as it was.
        entry: RebootEntry,
        /// The Node as it was.
        node: Arc<NodeRow>,
        /// A person's order to skip pods and volumes.
        force: Option<Stored<Order>>,
        /// `OnDelete` DaemonSets' UIDs: their pods are deleted before the power command.
        on_delete: Vec<String>,
        /// The attempt that will be written.
        attempt: Attempt,
    },
    /// Run the reboot command once more.
    RunAgain {
        /// The entry as it was.
        entry: RebootEntry,
        /// The Node as it was.
        node: Arc<NodeRow>,
        /// The attempt before, closed as unknown where it has no outcome.
        before: Option<Stored<Attempt>>,
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
            Self::Stamp { cordon: true, .. } => "cordoning",
            Self::Stamp { .. } => "stamping",
            Self::Preview { .. } => "previewing",
            Self::Evict { .. } => "evicting",
            Self::Power { .. } | Self::RunAgain { .. } => "rebooting",
            Self::BootCheck { .. } => "checking boot",
            Self::Release { .. } => "uncordoning",
            Self::Settle { .. } => "settling",
            Self::SetEndpoints { .. } => "endpoints",
        }
    }

    /// It begins work on a machine: counts as in progress from now on.
    pub fn starts(&self) -> bool {
        matches!(self, Self::StartDrain { .. })
    }
}
