//! Facts that a hypothetical decision may assume (`src/rules/src/assumptions.rs`). Every rule asks for them here,
//! and nowhere in the snapshot; the pass and its schedule are made with the assumptions (`mod.rs`, `windows.rs`).

use cketerm_model::{
    boot_time::BootTime,
    cluster::{Eviction, Reboot},
    entry::QueueKind,
    fault,
    kube::NodeRow,
    names::Address,
    policy::EtcdMembers,
};

use super::{Pass, entry_context::EntryContext, readiness::probe_fault};
use crate::{
    assumptions::{AssumedDrain, Assumption, Assumptions, MANUAL_DRAIN},
    preflight_fault::PreflightFault,
    snapshot::Snapshot,
};

/// Returns the boot time since which this engine leads, or `None` if it does not lead.
pub(super) fn leading_since(snap: &Snapshot, assumptions: &Assumptions) -> Option<BootTime> {
    snap.engine.leading.as_ref().map(|leading| leading.since).or_else(|| assumptions.leader_since())
}

impl<'a> Pass<'a> {
    /// Returns the boot time since which this engine leads, or `None` if it does not lead.
    pub(super) fn leading_since(&self) -> Option<BootTime> {
        self.leading_since
    }

    /// Reports whether this engine leads.
    pub(super) fn leading(&self) -> bool {
        self.leading_since.is_some()
    }

    /// Reports whether this leader resigns as soon as nothing is in progress.
    pub(super) fn resigning(&self) -> bool {
        self.snap.engine.resigning.is_some() && self.assumptions.leader_since().is_none()
    }

    /// Reports whether a fault leaves this engine only the work in progress: the cluster is another one, or a newer
    /// version has written rules that this one cannot read (SAF-4).
    pub(super) fn only_finishes_work(&self) -> bool {
        fault!(ForeignClusterChanged => return false);
        let observing = &self.snap.engine.observing;
        self.assumptions.leader_since().is_none() && observing.iter().any(PreflightFault::ends_leadership)
    }

    /// Returns the reason why a leader starts nothing new: it resigns, its preflight fails, or its host can start no
    /// program. An assumed leader has only the last of these.
    pub(super) fn leader_fault(&self) -> Option<String> {
        let engine = &self.snap.engine;
        if self.assumptions.leader_since().is_some() {
            return engine.unable.clone();
        }
        let fault = || (!engine.observing.is_empty()).then(|| PreflightFault::joined(&engine.observing));
        engine.resigning.clone().or_else(fault).or_else(|| engine.unable.clone())
    }

    /// Reports whether the copy of etcd is complete.
    pub(super) fn etcd_synced(&self) -> bool {
        self.snap.store.synced || self.assumes(Assumption::ReadJustNow)
    }

    /// Returns the boot time at which etcd answered last.
    pub(super) fn etcd_last_seen(&self) -> BootTime {
        if self.assumes(Assumption::ReadJustNow) { self.monotonic_now() } else { self.snap.store.last_seen }
    }

    /// Reports whether all of Kubernetes was read just now, whatever the state of the watches is.
    pub(super) fn kube_read_just_now(&self) -> bool {
        self.assumes(Assumption::ReadJustNow)
    }

    /// Reports whether a queue is enabled.
    pub(super) fn queue_enabled(&self, queue: QueueKind) -> bool {
        let assumed = queue == QueueKind::Reboot && self.assumes(Assumption::RebootQueueEnabled);
        assumed || self.snap.store.switch(queue).enabled()
    }

    /// Reports whether this entry's commands count as configured although the definition lacks them.
    pub(super) fn commands_assumed(&self, queue: QueueKind) -> bool {
        queue == QueueKind::Reboot && self.assumes(Assumption::RebootCommandsConfigured)
    }

    /// Reports whether control planes are judged by their Node alone, without probes.
    pub(super) fn control_planes_by_node(&self) -> bool {
        self.policy.control_plane_probe.url().is_none() || self.assumes(Assumption::ControlPlanesByNode)
    }

    /// Returns the fault of a control plane's probe, or `None` if it is good or none is required.
    pub(super) fn probe_fault(&self, address: &Address) -> Option<String> {
        if self.control_planes_by_node() { None } else { probe_fault(self.snap, address, self.now) }
    }

    /// Reports whether the members of etcd are queried before a machine is disrupted.
    pub(super) fn checks_etcd_members(&self) -> bool {
        match self.policy.etcd_members {
            EtcdMembers::None => false,
            EtcdMembers::Check => !self.assumes(Assumption::ControlPlanesByNode),
        }
    }

    /// Reports whether answers of Prometheus are to be expected: only a leader has them.
    pub(super) fn asks_prometheus(&self) -> bool {
        !self.assumes(Assumption::ControlPlanesByNode)
    }

    /// Reports whether the control planes that the last definition added count as joined.
    pub(super) fn control_planes_joined(&self) -> bool {
        self.assumes(Assumption::ControlPlanesJoined)
    }

    /// Returns the `reboot` section for this entry: the definition's, or that of the manual drain.
    pub(super) fn reboot_settings(&self, ctx: EntryContext<'_>) -> Option<&'a Reboot> {
        let drain = self.manual_drain(ctx).map(|drain| &drain.settings);
        drain.or_else(|| self.definition.map(|definition| &definition.cluster.reboot))
    }

    /// Returns the drain rules for this entry, or `None` without a definition.
    pub(super) fn drain_rules(&self, ctx: EntryContext<'_>) -> Option<Eviction<'a>> {
        match ctx.queue() {
            QueueKind::Reboot | QueueKind::Maintenance => self.reboot_settings(ctx).map(Reboot::eviction),
            QueueKind::Repair => self.definition.map(|definition| definition.cluster.repair.eviction()),
        }
    }

    /// Returns how often this entry has cordoned the Node again, if the cordon is recorded as this entry's, under this
    /// engine's lease. The operator's cordon counts as the record of a manual drain.
    pub(super) fn times_recordoned(&self, ctx: EntryContext<'_>, node: &NodeRow) -> Option<u32> {
        if self.manual_drain(ctx).is_some() {
            return Some(0);
        }
        let lease = self.snap.engine.lease;
        node.owner().filter(|owner| owner.entry == ctx.id && owner.lease == lease).map(|owner| owner.recordoned)
    }

    /// Moves the manual drain on.
    pub(super) fn process_manual_drain(&mut self) {
        let drain = self.assumptions.manual_drain();
        let Some(ctx) = drain.and_then(|drain| EntryContext::of_reboot(MANUAL_DRAIN, &drain.entry, drain.member()?))
        else {
            return;
        };
        let reason = self.drain(ctx);
        self.reason(ctx.id, reason);
    }

    fn manual_drain(&self, ctx: EntryContext<'_>) -> Option<&'a AssumedDrain> {
        self.assumptions.manual_drain().filter(|_| ctx.id == MANUAL_DRAIN)
    }

    fn assumes(&self, fact: Assumption) -> bool {
        self.assumptions.assumes(fact)
    }
}
