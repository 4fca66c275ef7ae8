//! One entry of any kind with its machine. Drain, commands and cordons work on this type, so all kinds share them.

use std::sync::Arc;

use cketerm_model::{
    acceptance::LeaderKind,
    any::QueueEntry,
    boot_time::BootTime,
    cketerm_records::{Order, Verb},
    cluster::{Member, Operation},
    entry::{EntryId, QueueKind, Stored},
    fault,
    kube::NodeRow,
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    names::{Address, NodeName},
    policy::Membership,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus},
};
use jiff::Timestamp;

use super::Pass;
use crate::{
    membership,
    snapshot::{BmcAccess, BmcRefusal},
};

/// Field of the definition with the health check, in reasons.
pub(super) const HEALTH_CHECK_FIELD: &str = "health_check_command in this operation";

/// Readable entry and its machine.
#[derive(Clone, Copy)]
pub(super) struct EntryContext<'a> {
    pub id: EntryId,
    pub mod_revision: i64,
    pub address: &'a Address,
    /// Key under which effects of the machine exclude one another: the Node's name, or the address.
    pub machine: &'a str,
    /// The machine's node in the definition; `None` outside the cluster, which only a repair can be.
    pub member: Option<Member<'a>>,
    /// Time of the last change of the status.
    pub since: Option<Timestamp>,
    /// Number of backoffs so far, and the end of the last one.
    pub backoff: (i64, Option<Timestamp>),
    pub kind: EntryKind<'a>,
}

/// Parts that the kinds do not share.
#[derive(Clone, Copy)]
pub(super) enum EntryKind<'a> {
    Reboot(&'a RebootEntry),
    Repair {
        entry: &'a RepairEntry,
        operation: &'a Operation,
        /// The step whose action is next. It may be the step after the entry's own.
        step: i64,
    },
    Maintenance(&'a MaintenanceEntry),
}

/// Command of the definition, for one entry.
#[derive(Clone, Copy)]
pub(super) struct CommandSpec<'a> {
    /// Name for messages.
    pub name: &'static str,
    pub argv: &'a [String],
    /// Bound in seconds.
    pub bound: u64,
    /// Maximum number of tries.
    pub tries: u32,
    /// Seconds between tries.
    pub interval: i64,
    /// Step of a repair; `None` for reboots.
    pub step: Option<i64>,
    /// Whether it is a repair's success command.
    pub success: bool,
}

impl EntryContext<'_> {
    pub(super) fn queue(&self) -> QueueKind {
        self.id.queue
    }

    pub(super) fn control_plane(&self) -> bool {
        self.member.is_some_and(|m| m.control_plane)
    }

    pub(super) fn is_repair(&self) -> bool {
        self.queue() == QueueKind::Repair
    }

    /// Reports whether no work on the entry has begun. A repair between two steps is not queued.
    pub(super) fn is_queued(&self) -> bool {
        match self.kind {
            EntryKind::Reboot(entry) => entry.status == RebootStatus::Queued,
            EntryKind::Repair { entry, .. } => entry.status == RepairStatus::Queued,
            EntryKind::Maintenance(entry) => entry.status == MaintenanceStatus::Queued,
        }
    }

    /// Reports whether a reboot or a maintenance drains its Node now.
    pub(super) fn is_draining(&self) -> bool {
        match self.kind {
            EntryKind::Reboot(entry) => entry.status == RebootStatus::Draining,
            EntryKind::Maintenance(entry) => entry.status == MaintenanceStatus::Draining,
            EntryKind::Repair { .. } => false,
        }
    }

    /// Returns the entry from which the next transition starts: at its step, with the Node's present name.
    pub(super) fn queue_entry(&self) -> QueueEntry {
        match self.kind {
            EntryKind::Reboot(entry) => QueueEntry::Reboot(entry.clone()),
            EntryKind::Repair { entry, step, .. } => {
                let nodename = self.member.map_or_else(NodeName::default, |m| m.node_name().clone());
                QueueEntry::Repair(RepairEntry { nodename, step, ..entry.clone() })
            }
            EntryKind::Maintenance(entry) => QueueEntry::Maintenance(entry.clone()),
        }
    }
}

impl<'a> EntryContext<'a> {
    /// Returns the context of an entry of the reboot queue whose machine is a member.
    pub(super) fn of_reboot(id: EntryId, stored: &'a Stored<RebootEntry>, member: Member<'a>) -> Option<Self> {
        let entry = stored.get()?;
        Some(Self {
            id,
            mod_revision: stored.mod_revision,
            address: &entry.node,
            machine: member.node_name(),
            member: Some(member),
            since: entry.last_transition_time,
            backoff: (entry.drain_backoff_count, entry.drain_backoff_expire),
            kind: EntryKind::Reboot(entry),
        })
    }

    /// Returns the context of a maintenance whose machine is a member.
    pub(super) fn of_maintenance(
        id: EntryId,
        stored: &'a Stored<MaintenanceEntry>,
        member: Member<'a>,
    ) -> Option<Self> {
        let entry = stored.get()?;
        Some(Self {
            id,
            mod_revision: stored.mod_revision,
            address: &entry.node,
            machine: member.node_name(),
            member: Some(member),
            since: entry.last_transition_time,
            backoff: (entry.drain_backoff_count, entry.drain_backoff_expire),
            kind: EntryKind::Maintenance(entry),
        })
    }
}

impl<'a> Pass<'a> {
    /// Returns the context of an entry of the repair queue, at its own step.
    pub(super) fn repair_context(
        &self,
        id: EntryId,
        stored: &'a Stored<RepairEntry>,
        operation: &'a Operation,
    ) -> Option<EntryContext<'a>> {
        let entry = stored.get()?;
        let member = self.definition.and_then(|d| d.members.by_address(&d.cluster, &entry.address));
        Some(EntryContext {
            id,
            mod_revision: stored.mod_revision,
            address: &entry.address,
            machine: self.snap.machine_ref(&entry.address),
            member,
            since: entry.last_transition_time,
            backoff: (entry.drain_backoff_count, entry.drain_backoff_expire),
            kind: EntryKind::Repair { entry, operation, step: entry.step },
        })
    }

    /// Returns the machine's Node, if it is a member and has one.
    pub(super) fn node_of(&self, ctx: EntryContext<'_>) -> Option<&'a Arc<NodeRow>> {
        // The member is known already. A second look-up for each of ten thousand entries would be measurable.
        let (name, kube) = (ctx.member?.node_name(), &self.snap.kube);
        kube.by_name.get(name).or_else(|| kube.by_address.get(ctx.address).and_then(|name| kube.by_name.get(name)))
    }

    /// Returns the command that does the work: the reboot command, or the command of the repair's step. A maintenance has
    /// none.
    pub(super) fn command_spec(&self, ctx: EntryContext<'a>) -> Option<CommandSpec<'a>> {
        let cap = self.policy.command_cap_seconds;
        match ctx.kind {
            EntryKind::Reboot(_) => {
                let reboot = self.reboot_settings(ctx)?;
                Some(CommandSpec {
                    name: "the reboot command",
                    argv: reboot.reboot_command.as_deref().unwrap_or_default(),
                    bound: reboot.command_bound(cap),
                    tries: reboot.tries(),
                    interval: reboot.command_interval.unwrap_or(0),
                    step: None,
                    success: false,
                })
            }
            EntryKind::Repair { operation, step, .. } => operation.step(step).map(|found| CommandSpec {
                name: "the repair command",
                argv: found.repair_command.as_deref().unwrap_or_default(),
                bound: found.command_bound(cap),
                tries: found.tries(),
                interval: found.command_interval.unwrap_or(0),
                step: Some(step),
                success: false,
            }),
            EntryKind::Maintenance(_) => None,
        }
    }

    /// Returns the reason if a command is not available: the definition lacks it, this host can start no program or
    /// lacks this one, or the command may not use the machine's BMC. A missing program bars only the entries that need
    /// it.
    pub(super) fn no_command(&self, ctx: EntryContext<'a>) -> Option<Reason> {
        if let Some(why) = self.snap.engine.unable.clone().filter(|_| self.leading()) {
            return Some(Reason::EngineObserving { why });
        }
        let lacks = |field: &str, argv: Option<&Vec<String>>| match argv.filter(|argv| !argv.is_empty()) {
            None if self.commands_assumed(ctx.queue()) => None,
            None => Some(Reason::NoCommand { field: field.to_owned() }),
            Some(argv) if self.leading() => self.program_missing(argv),
            Some(_) => None,
        };
        match ctx.kind {
            EntryKind::Reboot(_) => {
                let reboot = self.reboot_settings(ctx)?;
                lacks("reboot.reboot_command", reboot.reboot_command.as_ref())
                    .or_else(|| lacks("reboot.boot_check_command", reboot.boot_check_command.as_ref()))
                    .or_else(|| self.bmc_not_allowed(ctx, [&reboot.reboot_command, &reboot.boot_check_command]))
            }
            EntryKind::Repair { operation, step, .. } => {
                let command = operation.step(step).and_then(|s| s.repair_command.as_ref());
                lacks("repair_command in this step", command)
                    .or_else(|| lacks(HEALTH_CHECK_FIELD, operation.health_check_command.as_ref()))
                    .or_else(|| self.bmc_not_allowed(ctx, [&command.cloned(), &operation.health_check_command]))
            }
            // It runs none.
            EntryKind::Maintenance(_) => None,
        }
    }

    /// Returns a reason if this host lacks the program. It bars only the entries that need the program.
    pub(super) fn program_missing(&self, argv: &[String]) -> Option<Reason> {
        let program = argv.first().filter(|p| self.snap.engine.missing_programs.contains(p))?;
        Some(Reason::ProgramMissing { path: program.clone() })
    }

    /// Returns a reason if a power command would fail for this machine: it logs in to a BMC that this host's file does
    /// not allow, a program of its driver cannot be run, its BareMetalHost would not carry out the request, or its
    /// agent has not reported. It bars only the entries that need the BMC (SAF-39).
    fn bmc_not_allowed(&self, ctx: EntryContext<'_>, commands: [&Option<Vec<String>>; 2]) -> Option<Reason> {
        let bmcs = &self.snap.engine.bmcs;
        let fault = match bmcs.refusal(ctx.address) {
            Some(BmcRefusal::NotNamed) => None,
            Some(BmcRefusal::Fault(why)) => Some(why.to_owned()),
            None => {
                let host = bmcs.host_fault(ctx.address, &self.snap.kube);
                let agent = || bmcs.agent_fault(ctx.address, || self.node_of(ctx));
                Some(host.or_else(agent)?)
            }
        };
        if !self.leading() || !commands.into_iter().flatten().any(|argv| BmcAccess::concerns(argv)) {
            return None;
        }
        Some(Reason::BmcNotAllowed { address: ctx.address.clone(), fault })
    }

    /// Returns a reason unless the Node is the intended machine. The Node must have the entry's address. Its UID must
    /// be the one recorded when the entry was added, else the one recorded at the start of the drain (SAF-14, I26). A
    /// reboot needs a Node. A repair without one goes on as for a machine outside the cluster.
    pub(super) fn wrong_node(&self, ctx: EntryContext<'_>, node: Option<&NodeRow>) -> Option<Reason> {
        if !self.kube_synced {
            return None;
        }
        let address = ctx.address;
        let Some(node) = node else {
            return (!ctx.is_repair()).then(|| Reason::NodeMismatch {
                expected: format!("a Node with address {address}"),
                found: "none".to_owned(),
            });
        };
        if !node.addresses.iter().any(|a| a == address) {
            return Some(Reason::NodeMismatch {
                expected: format!("Node {} with address {address}", node.name),
                found: node.addresses.join(", "),
            });
        }
        // The UID in etcd comes first: the annotation disappears with the Node that it should identify.
        let requested = || self.snap.store.requests.get(&ctx.id)?.get()?.node_uid.as_deref();
        let stamped = || node.owner().filter(|o| o.entry == ctx.id).map(|o| o.uid.as_str());
        let noted = requested().or_else(stamped)?;
        (noted != node.uid)
            .then(|| Reason::NodeMismatch { expected: format!("UID {noted}"), found: format!("UID {}", node.uid) })
    }

    /// Returns an operator's order for this entry, if it was given for this revision. `hold` and `force` stay valid
    /// after changes: a drain that a budget backs off at once would otherwise drop its `force`.
    pub(super) fn order(&self, id: EntryId, mod_revision: i64, verb: Verb) -> Option<&'a Order> {
        let order = self.snap.store.orders.get(&id)?.get()?;
        let lasting = matches!(verb, Verb::Hold | Verb::Force);
        (order.verb == verb && (lasting || order.entry_revision == mod_revision)).then_some(order)
    }

    /// Returns the same order as stored in etcd, for the transaction that consumes it.
    pub(super) fn order_of(&self, ctx: EntryContext<'_>, verb: Verb) -> Option<&'a Stored<Order>> {
        self.order(ctx.id, ctx.mod_revision, verb)?;
        self.snap.store.orders.get(&ctx.id)
    }

    /// Returns a reason if an operator holds the entry.
    pub(super) fn on_hold(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        let hold = self.order(ctx.id, 0, Verb::Hold)?; // a hold is valid for every revision
        Some(Reason::OnHold { who: hold.who.to_string(), why: hold.reason.clone() })
    }

    /// Returns a reason if the batch of a queued entry is paused, or cannot be read and may be paused. Entries in work
    /// finish (REB-55, REP-20).
    pub(super) fn batch_blocker(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        if !self.any_batch_barred || !ctx.is_queued() {
            return None;
        }
        let unreadable = self.snap.store.unreadable_batch(ctx.id);
        fault!(UnreadableBatchIgnored => unreadable = None);
        if let Some((batch, key, why)) = unreadable {
            // CKE does not read batches and starts the entry.
            let ignored = !self.leading() && self.snap.store.leadership().lead == LeaderKind::Cke;
            return (!ignored).then(|| Reason::BatchUnreadable { batch, key: key.to_owned(), why: why.to_owned() });
        }
        fault!(BatchPauseForgotten => return None);
        let (batch, paused) = self.snap.store.paused_batch(ctx.id)?;
        let (by, since, why) = (paused.who.to_string(), paused.at, paused.reason.clone());
        Some(Reason::BatchPaused { batch, by, since, why })
    }

    /// Returns the reason why a waiting entry is no candidate by itself: a hold, a paused or unreadable batch, a disabled
    /// queue, a missing command, a machine of which it is unclear whether it is a control plane, or whose Node another program
    /// drains.
    pub(super) fn entry_blocker(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        if let Some(held) = self.on_hold(ctx).or_else(|| self.batch_blocker(ctx)) {
            return Some(held);
        }
        let enabled = self.queue_enabled(ctx.queue());
        fault!(SwitchIgnored => enabled = true);
        if !enabled {
            return Some(Reason::QueueDisabled);
        }
        let unclear = self.no_command(ctx).or_else(|| self.control_plane_unclear(ctx));
        let unclear = unclear.or_else(|| self.hook_program_missing(ctx)).or_else(|| self.hooks_pending(ctx));
        if unclear.is_some() || self.snap.kube.drained_by_other.is_empty() {
            return unclear;
        }
        self.drained_by_other_for(ctx, self.node_of(ctx)?)
    }

    /// Returns the reason why an entry waits for another program on this Node. A machine in repair that is not Ready does not
    /// wait: nobody on it would take the sign away.
    pub(super) fn drained_by_other_for(&self, ctx: EntryContext<'_>, node: &NodeRow) -> Option<Reason> {
        if ctx.is_repair() && !node.ready { None } else { self.drained_by_other(node) }
    }

    /// Returns a reason while another program drains, reboots or deletes the Node: cketerm neither begins a drain, nor
    /// runs a command, nor uncordons meanwhile. CKE does not look.
    pub(super) fn drained_by_other(&self, node: &NodeRow) -> Option<Reason> {
        let found = node.drain_sign()?;
        if !self.leading() && self.snap.store.leadership().lead == LeaderKind::Cke {
            return None;
        }
        fault!(OtherDrainerIgnored => return None);
        Some(Reason::DrainedByOther { program: found.program, sign: found.sign })
    }

    /// Returns a reason if the definition follows the Nodes and the sources do not agree whether this machine is a
    /// control plane: its rules may be the wrong ones.
    pub(super) fn control_plane_unclear(&self, ctx: EntryContext<'_>) -> Option<Reason> {
        if self.policy.membership != Membership::Nodes || !ctx.is_queued() {
            return None;
        }
        let signals = membership::unclear(ctx.member?.node(), &self.snap.kube, &self.policy.node_selector)?;
        Some(Reason::ControlPlaneUnclear { signals })
    }

    /// Returns the reason while the backoff after a failed drain lasts. A `force` order ends the wait.
    pub(super) fn backing_off(&mut self, ctx: EntryContext<'a>) -> Option<Reason> {
        let (count, until) = ctx.backoff;
        let cause = self.snap.work.get(&ctx.id).and_then(|w| w.backoff_cause.as_deref());
        // A force skips no hook: without the wait, the drain would end at the same hook again and again.
        let by_hook = matches!(cause, Some(Reason::HookFailed { .. }));
        let forced = !by_hook && self.order(ctx.id, 0, Verb::Force).is_some(); // valid for every revision
        let lasting = until.filter(|until| *until > self.now.wall);
        fault!(BackoffForEver => lasting = until);
        let until = lasting.filter(|_| !forced)?;
        self.wake_at_wall(until);
        if let Some(longer) = self.closed_longer_than(ctx, until) {
            return Some(longer);
        }
        let last = self.snap.work.get(&ctx.id).and_then(|w| w.backoff_cause.clone());
        // the entry went back to the queue when its last drain ended
        let tried = ctx.since.filter(|_| last.is_some());
        Some(Reason::Backoff { count, until, cause: last, tried })
    }

    /// Returns the reason during the pause of some seconds after a failed effect. Nothing is tried in that time
    /// (SAF-12). `what`: name of the action, as text for the reason.
    pub(super) fn paused(&mut self, id: EntryId, what: &str) -> Option<Reason> {
        let (until, why) = self.snap.work.get(&id)?.pause.clone()?;
        if until <= self.monotonic_now() {
            return None;
        }
        self.wake_at(until);
        Some(Reason::EffectFailed { what: what.to_owned(), why })
    }

    /// Returns the whole seconds until a boot time.
    pub(super) fn seconds_until(&self, boot: BootTime) -> i64 {
        (boot - self.monotonic_now()).whole()
    }
}
