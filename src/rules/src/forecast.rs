//! Forecast of the reboot queue's schedule: what is in progress, each wave, and what waits for what. It uses the
//! engine's own rules, as if an engine led now, or while CKE leads the reading of CKE's rules. It writes nothing.

mod by_budgets;
mod separation;

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    clock::Now,
    entry::EntryId,
    kube::KubeView,
    names::Address,
    policy::ApiServerOrder,
    reason::Reason,
    reboot::RebootStatus,
    stored::view::{StoreView, Switch},
};

pub use self::{
    by_budgets::{Budgets, Demand, Slots},
    separation::Separation,
};
use crate::{
    assumptions::{Assumption, Assumptions},
    beside_cke,
    decide::decide_assuming,
    explain::assumptions_of_reader,
    handover::remedy_without_leader,
    snapshot::Snapshot,
};

/// Position of a machine in the forecast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An entry works on it: the entry's status.
    InWork(String),
    /// It starts with this wave, counted from 1. The reason why it cannot start now, unless it only waits for its turn.
    Wave(usize, Option<String>),
    /// It starts only after something changes: what has to change.
    Waits(String),
}

/// A machine of the queue, or one that the caller named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineForecast {
    /// Address of the machine.
    pub address: Address,
    /// Name of its Node, or the address if it is not a member.
    pub name: String,
    /// Whether it is an API server.
    pub api_server: bool,
    /// Index of its entry, or `None` if the caller only named the machine.
    pub entry: Option<u64>,
    /// Its position in the forecast.
    pub place: Place,
    /// The nodes and the budgets that the order by budgets keeps it apart from.
    pub apart: Option<Separation>,
}

/// Forecast of the queue, or of some machines if they were added to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Reasons why nothing at all can start: a disabled queue, no command, no leader, too many unreachable nodes.
    pub notes: Vec<String>,
    /// Machines in progress first, then by wave, then those that wait.
    pub placed: Vec<MachineForecast>,
    /// Slots of the queue.
    pub slots: Slots,
}

impl Forecast {
    /// Returns the number of waves.
    pub fn waves(&self) -> usize {
        let wave = |p: &MachineForecast| if let Place::Wave(n, _) = p.place { n } else { 0 };
        self.placed.iter().map(wave).max().unwrap_or(0)
    }
}

/// Forecasts what a leader would do with the queue, or with reboots of these addresses behind it, by its own rules.
/// Whatever blocks the whole queue becomes a note, and the waves are those that would follow without it. Returns `None`
/// without a definition.
pub fn forecast(store: &StoreView, kube: &KubeView, addresses: &[Address], now: Now) -> Option<Forecast> {
    let definition = store.definition()?;
    let (cluster, members) = (&definition.cluster, &definition.members);
    let mut notes = queue_blockers(store);
    let assumed = assumptions_of_reader(now)
        .and(Assumption::PolicyReadable)
        .and(Assumption::RebootQueueEnabled)
        .and(Assumption::RebootCommandsConfigured)
        .queued(addresses);
    let snap = Snapshot { store: Arc::new(store.clone()), kube: Arc::new(kube.clone()), ..Snapshot::default() };
    let reasons = if beside_cke::applies(store) {
        reasons_by_ckes_rules(snap, &assumed, now)
    } else {
        decide_assuming(&snap, &assumed, now).reasons
    };
    let (mut in_work, mut starts, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let mut taken = 0_usize;
    for (&index, stored) in store.reboots.entries.iter().chain(assumed.entries()) {
        let Some(entry) = stored.get().filter(|e| e.status != RebootStatus::Cancelled) else { continue };
        let id = EntryId::reboot(index);
        let is_assumed = assumed.entry(id).is_some();
        let included = addresses.is_empty() || is_assumed;
        let member = members.by_address(cluster, &entry.node);
        let placed = |place| MachineForecast {
            address: entry.node.clone(),
            name: member.map_or(entry.node.as_str(), |m| m.node_name()).to_owned(),
            api_server: member.is_some_and(|m| m.control_plane),
            entry: (!is_assumed).then_some(index),
            place,
            apart: None,
        };
        let reason = reasons.get(&id);
        let place = match reason {
            Some(Reason::DuplicateOf { index: before }) if assumed.entry(EntryId::reboot(*before)).is_some() => {
                Place::Waits("given twice: it waits for the first, then is rebooted again".to_owned())
            }
            Some(reason @ (Reason::DuplicateOf { .. } | Reason::NotMember { .. })) => Place::Waits(reason.to_string()),
            _ if entry.status != RebootStatus::Queued => {
                taken += 1;
                Place::InWork(entry.status.to_string())
            }
            Some(reason) => place_of(reason, &assumed, &mut notes),
            None => Place::Wave(UNNUMBERED, None),
        };
        match place {
            _ if !included => {}
            Place::InWork(_) => in_work.push(placed(place)),
            Place::Wave(..) => starts.push(placed(place)),
            Place::Waits(_) => waits.push(placed(place)),
        }
    }
    let limit = usize::try_from(cluster.reboot.concurrency()).unwrap_or(1).max(1);
    let free = limit.saturating_sub(taken);
    if taken > 0 {
        notes.push(format!("{taken} of {limit} slots are in use; {free} more can start"));
    }
    let api_first = store.policy().api_server_order == ApiServerOrder::First;
    let slots = Slots { limit, free: if free == 0 { limit } else { free }, api_first };
    let starts = split_into_waves(starts, slots);
    Some(Forecast { notes, placed: in_work.into_iter().chain(starts).chain(waits).collect(), slots })
}

/// Returns the reasons by CKE's rules, which know no windows, groups and holds of cketerm. What blocks the whole queue
/// is assumed away, as for cketerm's own rules. Nodes that the caller has read are current.
fn reasons_by_ckes_rules(mut snap: Snapshot, assumed: &Assumptions, now: Now) -> BTreeMap<EntryId, Reason> {
    let (store, kube) = (Arc::make_mut(&mut snap.store), Arc::make_mut(&mut snap.kube));
    if !kube.nodes.is_empty() {
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
            kube.sources.entry(source.to_owned()).or_default().synced = true;
        }
    }
    store.reboots.switch = Switch::default();
    store.reboots.entries.extend(assumed.entries().iter().map(|(index, entry)| (*index, entry.clone())));
    if let Some(stored) = &mut store.cluster
        && let Some(mut definition) = stored.get().cloned()
    {
        let reboot = &mut definition.cluster.reboot;
        for command in [&mut reboot.reboot_command, &mut reboot.boot_check_command] {
            if command.as_ref().is_none_or(Vec::is_empty) {
                *command = Some(vec!["assumed".to_owned()]);
            }
        }
        stored.value = Ok(Arc::new(definition));
    }
    beside_cke::readings(&snap, now).reasons
}

/// Returns everything that blocks the whole queue as notes. The forecast assumes that it is gone, to show what would
/// follow.
fn queue_blockers(store: &StoreView) -> Vec<String> {
    let mut notes = Vec::new();
    if !store.reboots.switch.enabled() {
        notes.push("the reboot queue is disabled; enable it with `cketerm rq enable`".to_owned());
    }
    match store.leader() {
        None => notes.push(match store.standing_back() {
            Some(why) => format!("nobody leads: {why}"),
            None => format!("nobody leads; {}", remedy_without_leader(store)),
        }),
        Some(leader) if store.is_cke(leader) => {
            notes.push(format!("CKE on {} leads; the waves follow its rules, {}", leader.host, beside_cke::LABEL));
        }
        Some(leader) => notes.extend(store.migrates(leader)),
    }
    // Only the leader has the answers of Prometheus.
    let mut published = store.progress.values().filter_map(|progress| progress.get()?.reason.as_ref());
    if let Some(closed) = published.find(|reason| matches!(reason, Reason::StartGateClosed { .. })) {
        notes.push(format!("nothing starts now: {closed}"));
    }
    let Some(definition) = store.definition() else { return notes };
    let reboot = &definition.cluster.reboot;
    let lacks = |argv: &Option<Vec<String>>| argv.as_ref().is_none_or(Vec::is_empty);
    let commands = [("reboot_command", &reboot.reboot_command), ("boot_check_command", &reboot.boot_check_command)];
    for (name, _) in commands.iter().filter(|(_, argv)| lacks(argv)) {
        notes.push(format!("the definition has no reboot.{name}; nothing starts without it"));
    }
    notes
}

/// Number of a wave until [`number`] counts them.
const UNNUMBERED: usize = 0;

/// Derives the position of a queued entry from the reason that a leader would give for it.
#[warn(clippy::wildcard_enum_match_arm)]
fn place_of(reason: &Reason, assumed: &Assumptions, notes: &mut Vec<String>) -> Place {
    match reason {
        Reason::Ready
        | Reason::Working { .. }
        | Reason::WaitingForSlot { .. }
        | Reason::WaitingForWorkers { .. }
        | Reason::WaitingForControlPlane { .. }
        | Reason::WaitingForRepairs { .. }
        | Reason::LeaderOnNode { .. } => Place::Wave(UNNUMBERED, None),
        Reason::UnreachableGate { .. } | Reason::BreakerOpen { .. } | Reason::StartGateClosed { .. } => {
            let note = format!("nothing starts now: {reason}");
            if !notes.contains(&note) {
                notes.push(note);
            }
            Place::Wave(UNNUMBERED, None)
        }
        // an assumed entry has no number that a reader could look up
        Reason::WaitingForBudget { holder, .. } => {
            Place::Wave(UNNUMBERED, assumed.entry(*holder).is_none().then(|| reason.to_string()))
        }
        Reason::WaitingForGroup { by, group, holder } => {
            // An assumed entry has no number that a reader could look up: its machine is named.
            let machine = assumed.entry(*holder).map(|entry| format!("waits for {by} {group} ({})", entry.node));
            Place::Wave(UNNUMBERED, Some(machine.unwrap_or_else(|| reason.to_string())))
        }
        Reason::CanaryPending { .. } | Reason::ControlPlaneUnhealthy { .. } => {
            Place::Wave(UNNUMBERED, Some(reason.to_string()))
        }
        other @ (Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::OutsideWindow { .. }
        | Reason::Backoff { .. }
        | Reason::BlockedByPdb { .. }
        | Reason::BlockedByManyPdbs { .. }
        | Reason::PdbNeverAllows { .. }
        | Reason::BlockedByJob { .. }
        | Reason::PodsLeaving { .. }
        | Reason::PodsCannotLand { .. }
        | Reason::LandingUnknown { .. }
        | Reason::EvictionRefused { .. }
        | Reason::DeferredToWebhook { .. }
        | Reason::DeniedByWebhook { .. }
        | Reason::EvictionFailing { .. }
        | Reason::TerminatingStuck { .. }
        | Reason::VolumeAttached { .. }
        | Reason::UncordonedByOther { .. }
        | Reason::CommandRunning { .. }
        | Reason::CommandFailed { .. }
        | Reason::OutcomeUnknown { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::NodeMismatch { .. }
        | Reason::OrphanedCordon { .. }
        | Reason::AwaitingApproval { .. }
        | Reason::Frozen { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::EngineObserving { .. }
        | Reason::NoEngine { .. }
        | Reason::OnHold { .. }
        | Reason::BatchPaused { .. }
        | Reason::BatchUnreadable { .. }
        | Reason::ControlPlaneUnclear { .. }
        | Reason::DrainedByOther { .. }
        | Reason::HookRunning { .. }
        | Reason::HookFailed { .. }
        | Reason::UncordonGateClosed { .. }
        | Reason::OrderIgnored { .. }
        | Reason::BatchPauseIgnored { .. }
        | Reason::Stale { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::DuplicateOf { .. }
        | Reason::InMaintenance { .. }
        | Reason::MachineInRepair { .. }
        | Reason::MachineInReboot { .. }
        | Reason::WaitingForHealth { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::WaitingForBoot { .. }
        | Reason::Settling { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. }
        | Reason::QueueDisabled
        | Reason::NoCommand { .. }
        | Reason::NotMember { .. }
        | Reason::InvalidEntry { .. }
        | Reason::EffectFailed { .. }
        | Reason::TransactionTooLarge { .. }) => Place::Waits(other.to_string()),
    }
}

/// Splits the starts into waves. Each wave has as many workers as the definition allows, the first one as many as there
/// are free slots. API servers go one by one. The policy decides whether API servers or workers come first.
fn split_into_waves(starts: Vec<MachineForecast>, slots: Slots) -> Vec<MachineForecast> {
    let Slots { limit, free, api_first } = slots;
    let (api_servers, workers): (Vec<MachineForecast>, Vec<MachineForecast>) =
        starts.into_iter().partition(|p| p.api_server);
    let (now, later) = workers.split_at(free.min(workers.len()));
    let workers = [now].into_iter().chain(later.chunks(limit)).filter(|wave| !wave.is_empty());
    let (workers, api_servers) = (workers.map(<[_]>::to_vec), api_servers.chunks(1).map(<[_]>::to_vec));
    let waves: Vec<Vec<MachineForecast>> =
        if api_first { api_servers.chain(workers).collect() } else { workers.chain(api_servers).collect() };
    number(waves)
}

/// Numbers the waves, counted from 1.
fn number(waves: Vec<Vec<MachineForecast>>) -> Vec<MachineForecast> {
    let numbered = |(wave, nodes): (usize, Vec<MachineForecast>)| {
        nodes.into_iter().map(move |mut node| {
            if let Place::Wave(number, _) = &mut node.place {
                *number = wave + 1;
            }
            node
        })
    };
    waves.into_iter().enumerate().flat_map(numbered).collect()
}

#[cfg(test)]
mod tests;
