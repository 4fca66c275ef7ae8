//! Rules of the engine: a pure function from a snapshot to effects and reasons. It has no clock, no I/O and no
//! randomness. A line `fault!(…)` breaks a rule on purpose, to test the simulation; it is in no shipped build
//! (`src/model/src/mutation.rs`).
//!
//! Each module holds one topic of `docs/spec/`:
//!
//! | module | topic |
//! | --- | --- |
//! | `claims` | machines in progress: one API server, one entry per machine, slots (I1, I3, I4) |
//! | `gates` | gates for new starts: unreachable nodes, control-plane health, staleness (I6, I7) |
//! | `etcd_quorum` | health of the other voting etcd members before a machine with a member is disrupted (I46) |
//! | `windows` | windows and freezes (I8) |
//! | `breaker`, `canary` | no start after machines that ended badly; the first machines of a batch alone |
//! | `start_gates` | no start while Prometheus reports certain alerts or results (I72) |
//! | `budget_order` | order of workers that respects budgets (REB-68) |
//! | `budget_room` | evictions that each budget still allows (REB-67) |
//! | `groups` | limit of racks or other groups in progress at once |
//! | `scheduler` | choice of the entries that start: order, API servers, backoff, holds (I2, I5, I30) |
//! | `end` | reasons for the end of an entry |
//! | `effect` | effects that a decision requests, and the revisions that guard them (SAF-8, SAF-9) |
//! | `entry_context` | one entry of either queue with its machine |
//! | `facts` | facts that a hypothetical decision may assume |
//! | `pods` | treatment of each pod by a drain (I18, I19) |
//! | `drain` | cordon, drain, then command or backoff, for both queues (I16) |
//! | `evictions` | preview, eviction, retries, wait until the pods are gone (I15, I18, I20–I22) |
//! | `preview` | meaning of a round of dry runs (I15) |
//! | `recheck` | fresh read right before a command (I16, I24, I26) |
//! | `attempts` | commands of both queues: open attempts, further tries (I25) |
//! | `results` | results of commands whose leader is gone (I47) |
//! | `boot` | boot check and end of a reboot (I14, I35) |
//! | `host` | reasons from a machine's BareMetalHost for a reboot that does not end |
//! | `readiness` | conditions under which a machine counts as recovered (I14) |
//! | `repair/` | repair queue: scheduler, steps, health checks (I40, I41, I43) |
//! | `cordons` | uncordon, orphaned cordons, owner annotations after a change of leader (I9–I13) |
//! | `registry` | definition generated from the machine registry or from the Nodes, and its gates |
//! | `absences` | record of the members without a Node, for their grace periods |
//! | `auto_repair` | automatic repair of machines that sabakan reports as unhealthy or unreachable, below a cap (I42) |
//! | `hooks` | hooks of the site around a drain (I64 to I66) |
//! | `maintenance` | Nodes that are drained and kept, without a reboot (I73) |
//! | `maintenance_requests` | `MaintenanceRequest`s: accepted once, queued once for each Node, withdrawn (I74) |
//! | `reboot_needed` | Nodes that need a reboot, and the entries that the leader queues for them (I57, I58) |
//! | `uncordon_gates` | gates of a site before the uncordon of a rebooted worker (REB-59) |
//! | `out_of_service` | end of a Node's time out of service (MET-67) |
//! | `upkeep` | upkeep of Nodes beside the work on their machines |
//! | `own_node` | another engine takes the lock before the Node of the leader's pod is drained |
//! | `node_signs` | conditions and a taint that tell others of the work (I67, I68) |
//! | `endpoints` | removal of an API server in reboot from the endpoints |

mod absences;
mod attempts;
mod auto_repair;
mod boot;
mod breaker;
mod budget_order;
mod budget_room;
mod canary;
mod claims;
mod cordons;
mod drain;
mod effect;
mod end;
mod endpoints;
mod entry_context;
mod etcd_quorum;
mod evictions;
mod facts;
mod gates;
mod groups;
mod hooks;
mod host;
mod maintenance;
mod maintenance_requests;
mod node_signs;
mod out_of_service;
mod own_node;
mod pods;
mod preview;
mod readiness;
mod reboot_needed;
mod recheck;
mod registry;
mod repair;
mod results;
mod scheduler;
mod start_gates;
#[cfg(test)]
mod tests;
mod uncordon_gates;
mod upkeep;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    acceptance::LeaderKind,
    boot_time::{BootTime, Seconds},
    clock::Now,
    entry::EntryId,
    fault,
    names::{Address, NodeName},
    reason::Reason,
    reboot::RebootStatus,
    repair::RepairEntry,
    stored::view::Definition,
};
use jiff::Timestamp;
use serde::Serialize;

use self::entry_context::EntryContext;
pub use self::etcd_quorum::{CATCH_UP_LIMIT, can_check_quorum};
pub use self::{
    auto_repair::{AutoRepair, auto_repair_plan, machines_held_by_hosts},
    drain::backoff_seconds,
    effect::{Effect, Guard, Planned},
    end::End,
    etcd_quorum::QuorumCondition,
    maintenance_requests::MaintenanceRequestEffect,
    pods::{PodVerdict, classify_pod},
    preview::{Budgeted, dry_runs, preview_result, saves_dry_runs},
    reboot_needed::{NeededBatch, NeededMachine, RebootNeededEffect},
    registry::{Apply, ApplyState, RegistryEffect, compares, unwritten},
    repair::health::HEALTH_CHECK_PREFIX,
    start_gates::StartGateCondition,
};
pub(crate) use self::{
    budget_room::{budget_hold, full_budget},
    pods::{count_leaving, pod_hold_reason},
    readiness::readiness,
};
use super::{
    assumptions::{Assumption, Assumptions},
    snapshot::Snapshot,
};

/// Result of a pass.
#[allow(clippy::struct_excessive_bools)] // independent requests to the engine
#[derive(Clone, Debug, Default, Serialize)]
pub struct Decision {
    /// Effects to carry out, at most one for each key ([`Planned::machine`]). Empty unless this engine leads.
    pub effects: Vec<Planned>,
    /// Reason for each unfinished entry that does not move, or `Ready`.
    pub reasons: BTreeMap<EntryId, Reason>,
    /// Nodes still cordoned after their entry has ended, by Node name.
    pub orphans: BTreeMap<NodeName, Reason>,
    /// Nodes whose pods are to be watched.
    pub watch_pods: BTreeSet<NodeName>,
    /// Whether work is next or in progress. Each watch of Kubernetes then proves its own connection.
    pub prove_watches: bool,
    /// Whether an API server is in progress or next. Probes then run often.
    pub probe_often: bool,
    /// Whether a machine that may host an etcd member is in progress or next. The members are then queried often.
    pub ask_etcd: bool,
    /// Whether a reboot could start but for gates that hold the whole queue. Prometheus is then asked for its alerts.
    pub ask_start_gates: bool,
    /// Host of the engine to which the leader passes the lock, because the Node of its own pod is to be drained.
    pub pass_lock: Option<String>,
    /// Phase for CKE's `status` key (STO-16).
    pub phase: &'static str,
    /// Boot time at which the next pass is due even if nothing changes.
    pub wake: Option<BootTime>,
    /// State of applying the definition generated from the registry.
    pub registry: ApplyState,
    /// State of automatic repair.
    pub auto_repair: AutoRepair,
}

/// Data of one pass.
pub(super) struct Pass<'a> {
    snap: &'a Snapshot,
    assumptions: &'a Assumptions,
    /// Boot time since which this engine leads; none = it does not lead.
    leading_since: Option<BootTime>,
    now: Now,
    definition: Option<&'a Definition>,
    policy: std::sync::Arc<cketerm_model::policy::Policy>,
    claims: claims::Claims,
    schedule: windows::Schedule,
    etcd_hosts: etcd_quorum::MemberHosts,
    /// Whether some batch is paused or cannot be read. Stored here because each queued entry needs it.
    any_batch_barred: bool,
    /// Entries with a record of hooks, by address. Stored here because each queued entry needs it.
    hook_records: BTreeMap<Address, Vec<EntryId>>,
    /// Whether the Kubernetes cache is complete. Stored here because each entry needs it.
    kube_synced: bool,
    /// Set by `stale_sources`: work that needs fresh Kubernetes caches is next. It becomes `Decision::prove_watches`.
    needs_proof: std::cell::Cell<bool>,
    /// Reasons in the order in which they were found. The last one of an entry counts.
    reasons: Vec<(EntryId, Reason)>,
    /// Evictions under way by budget; none until a drain needs it.
    budget_use: Option<budget_room::BudgetUse>,
    out: Decision,
}

/// Returns the effects to start now, and the reasons why the other entries wait. An engine that does not lead runs the
/// same rules to show reasons; its effects are dropped at the end (`docs/spec/reboot.md`,
/// `docs/spec/repair.md`, `docs/spec/safety.md`).
pub fn decide(snap: &Snapshot, now: Now) -> Decision {
    decide_assuming(snap, &Assumptions::default(), now)
}

/// Returns the decision of [`decide`] for a snapshot of which some facts are assumed. Its effects say what an engine
/// would do. Only those of a manual drain are carried out, and not by an engine.
pub fn decide_assuming(snap: &Snapshot, assumptions: &Assumptions, now: Now) -> Decision {
    let policy = snap.store.policy();
    let leading_since = facts::leading_since(snap, assumptions);
    let mut pass = Pass {
        snap,
        assumptions,
        leading_since,
        now,
        definition: snap.store.definition(),
        claims: claims::Claims::of(snap, leading_since, now),
        schedule: windows::Schedule::of(snap, assumptions, &policy, now.wall),
        policy,
        etcd_hosts: etcd_quorum::MemberHosts::of(snap),
        any_batch_barred: snap.store.batches.values().any(|s| s.get().is_none_or(|b| b.paused.is_some())),
        hook_records: hooks::records_by_address(snap),
        kube_synced: snap.kube.synced() || assumptions.assumes(Assumption::ReadJustNow),
        needs_proof: std::cell::Cell::new(false),
        reasons: Vec::with_capacity(snap.store.reboots.entries.len()),
        budget_use: None,
        out: Decision { phase: "completed", ..Decision::default() },
    };
    pass.record_results();
    // The repair queue is decided first, as in CKE. Its claims hold when the reboot queue is decided.
    pass.process_repairs();
    // A person waits for a maintenance: it goes before the queue.
    let mut waiting = pass.process_maintenance();
    waiting.append(&mut pass.process_reboots());
    pass.process_manual_drain();
    pass.start_drains(&waiting);
    pass.out.ask_etcd |= pass.out.probe_often;
    let only_finishes_work = pass.only_finishes_work();
    if !only_finishes_work {
        pass.release_cordons();
        pass.end_hooks();
        pass.reconcile_endpoints();
    }
    pass.plan_registry();
    pass.plan_auto_repair();
    pass.plan_reboot_needed();
    pass.plan_maintenance_requests();
    if !only_finishes_work {
        pass.return_to_service();
        pass.plan_node_signs(&waiting);
    }
    pass.wake_for_windows();
    pass.set_phase();
    // Only the leader acts, and only on a live copy of etcd that is complete.
    if !pass.leading() || !pass.etcd_synced() {
        pass.out.effects.clear();
    }
    let leading = pass.leading();
    pass.out.prove_watches = leading && (pass.needs_proof.get() || !pass.claims.machines.is_empty());
    pass.out.reasons = pass.reasons.into_iter().collect();
    // A transaction that is too large holds the entry up, whatever other reason it has.
    for (id, work) in &snap.work {
        if let (Some((what, size)), Some(reason)) = (&work.too_large, pass.out.reasons.get_mut(id)) {
            *reason = Reason::TransactionTooLarge { what: what.clone(), size: *size };
        }
    }
    if !leading {
        ignored_orders(snap, &mut pass.out.reasons);
    }
    pass.out
}

/// Reports the orders and the pauses of batches that were accepted before another program took the lead. That program does not know them, so the
/// operator must not rely on them any longer (I52). Not called while this engine leads.
fn ignored_orders(snap: &Snapshot, reasons: &mut BTreeMap<EntryId, Reason>) {
    let any_paused = snap.store.batches.values().any(|stored| stored.get().is_some_and(|b| b.paused.is_some()));
    if snap.store.orders.is_empty() && !any_paused {
        return;
    }
    let leadership = snap.store.leadership();
    if leadership.lead != LeaderKind::Cke {
        return;
    }
    for (id, order) in snap.store.orders.iter().filter_map(|(id, stored)| Some((id, stored.get()?))) {
        let set_reason = |reason: &mut Reason| {
            let (verb, who) = (order.verb, order.who.to_string());
            *reason = Reason::OrderIgnored { verb, who, leader: leadership.message.clone() };
        };
        reasons.get_mut(id).map(set_reason);
    }
    for reason in reasons.values_mut() {
        if let Reason::BatchPaused { batch, by, .. } = reason {
            let (batch, by) = (*batch, std::mem::take(by));
            *reason = Reason::BatchPauseIgnored { batch, by, leader: leadership.message.clone() };
        }
    }
}

impl<'a> Pass<'a> {
    /// Goes through the queue by index. It removes entries that have ended, moves entries in progress, and returns the
    /// queued entries that may be candidates (REB-6 to REB-10).
    fn process_reboots(&mut self) -> Vec<EntryContext<'a>> {
        let entries = self.snap.store.reboots.entries.len();
        let mut waiting = Vec::with_capacity(entries);
        // First entry of each member, by the member's place in the definition. A cancelled entry still counts in this
        // pass, because its removal is not written yet: a later entry of the same member waits for the next pass.
        let mut seen: Vec<Option<u64>> = vec![None; self.definition.map_or(0, |d| d.cluster.nodes.len())];
        let definition = self.definition;
        let index_of = |address: &Address| definition.and_then(|d| d.members.index_of(address));
        let snap = self.snap;
        for (&index, stored) in snap.store.reboots.entries.iter().chain(self.assumptions.entries()) {
            let id = EntryId::reboot(index);
            let entry = match &stored.value {
                Ok(entry) => entry.as_ref(),
                // A broken entry is shown and never stops the others (I5).
                Err(why) => {
                    self.reasons.push((id, Reason::InvalidEntry { why: format!("cannot be read: {why}") }));
                    continue;
                }
            };
            if entry.status == RebootStatus::Cancelled {
                if let Some(first) = index_of(&entry.node).and_then(|member_index| seen.get_mut(member_index)) {
                    first.get_or_insert(index);
                }
                fault!(CancelWaits if !(self.claims.workers.is_empty() && self.claims.api_servers.is_empty()) => {
                    self.reasons.push((id, Reason::Working { phase: "cancelling".to_owned() }));
                    continue;
                });
                self.remove(id, stored.mod_revision, &entry.node, End::Cancelled);
                continue;
            }
            // Without a definition the members are unknown: nothing is removed, nothing moves (REB-7).
            let Some(definition) = self.definition else {
                self.reasons.push((id, self.no_definition()));
                continue;
            };
            let member_index = definition.members.index_of(&entry.node);
            let member = member_index.and_then(|i| definition.members.at(&definition.cluster, i).zip(seen.get_mut(i)));
            let Some((member, first)) = member else {
                self.reasons.push((id, Reason::NotMember { address: entry.node.clone() }));
                fault!(NonMemberStays => continue);
                self.remove(id, stored.mod_revision, &entry.node, End::NotMember);
                continue;
            };
            // Of two entries for one node, only the one with the smaller index is processed (I4).
            fault!(DuplicateStarts => *first = None);
            if let Some(first) = *first {
                self.reasons.push((id, Reason::DuplicateOf { index: first }));
                continue;
            }
            *first = Some(index);
            let Some(ctx) = EntryContext::of_reboot(id, stored, member) else { continue };
            let reason = match entry.status {
                RebootStatus::Draining => self.drain(ctx),
                RebootStatus::Rebooting => self.process_rebooting(ctx),
                RebootStatus::Queued | RebootStatus::Cancelled => {
                    waiting.push(ctx);
                    continue;
                }
            };
            self.reason(id, reason);
        }
        waiting
    }

    /// Returns the reason while the cluster definition is missing or cannot be read. It names no command: the
    /// definition is the missing field.
    fn no_definition(&self) -> Reason {
        let why = match self.snap.store.cluster.as_ref().map(|c| &c.value) {
            Some(Err(why)) => format!("cluster definition that can be read ({why})"),
            _ => "cluster definition (`cluster set FILE`)".to_owned(),
        };
        Reason::NoCommand { field: why }
    }

    /// Removes an entry, also while the queue is disabled or full. Cancelling and dequeuing do not wait for another
    /// machine either (REB-6, REB-8, I27).
    fn remove(&mut self, id: EntryId, mod_revision: i64, address: &Address, end: End) {
        let machine = self.snap.machine(address);
        let mut guard = Guard::of_entry(id, mod_revision);
        if end == End::NotMember {
            // The node may be a member again when this is written.
            guard.cluster = Some(self.snap.store.cluster.as_ref().map_or(0, |s| s.mod_revision));
        }
        // The removal has a key of its own, so a command that runs on the machine does not delay it. The command goes
        // on, and its open attempt keeps its slot. `running` is for `done` only, so it is false here.
        let removal = Effect::Remove { end, ready: None, running: false };
        let planned = self.plan(&format!("entry {id} of {machine}"), Some(id), guard, removal);
        // If the removal failed before, the entry shows the cause.
        if let Some(reason) = self.paused(id, "removing the entry").filter(|_| !planned) {
            self.reason(id, reason);
        }
    }

    /// Plans an effect and returns true, or drops it if one with this key is planned or in flight already. `machine` is
    /// the exclusion key ([`Planned::machine`]), mostly a machine's name.
    fn plan(&mut self, machine: &str, entry: Option<EntryId>, guard: Guard, effect: Effect) -> bool {
        if self.snap.in_flight.contains_key(machine) || self.out.effects.iter().any(|p| p.machine == machine) {
            return false;
        }
        self.out.effects.push(Planned { machine: machine.to_owned(), entry, guard, effect });
        true
    }

    /// Records the reason of an entry. The last one that is recorded in a pass counts.
    fn reason(&mut self, id: EntryId, reason: Reason) {
        self.reasons.push((id, reason));
    }

    /// Returns the present boot time of this host, which has nothing to do with reboots.
    fn monotonic_now(&self) -> BootTime {
        self.now.boot
    }

    /// Requests the next pass at this boot time at the latest.
    fn wake_at(&mut self, boot: BootTime) {
        if boot > self.monotonic_now() {
            self.out.wake = Some(self.out.wake.map_or(boot, |w| w.min(boot)));
        }
    }

    /// Requests the next pass at this wall time at the latest.
    fn wake_at_wall(&mut self, at: Timestamp) {
        self.wake_at(
            self.monotonic_now() + cketerm_model::time::seconds_between(self.now.wall, at) + Seconds::new(0.001),
        );
    }

    /// Sets CKE's phase: uncordon before repairs before reboots.
    fn set_phase(&mut self) {
        let store = &self.snap.store;
        let repairs = || store.repairs.entries.values().any(|s| s.get().is_none_or(RepairEntry::unfinished));
        self.out.phase = if self.out.effects.iter().any(|p| matches!(p.effect, Effect::Release { .. })) {
            "uncordon-nodes"
        } else if repairs() {
            "repair-machines"
        } else if store.reboots.entries.is_empty() {
            "completed"
        } else {
            "reboot-nodes"
        };
    }
}
