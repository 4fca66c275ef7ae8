//! The rules: from what is seen to what is done and why not. Pure: no clock, no I/O, no randomness of its own.
//!
//! `decide` reads like the seeds' sentences; each rule has a file:
//!
//! | file | rule |
//! | --- | --- |
//! | `claims` | what is in work: one API server, one entry per machine, slots (I1, I3, I4) |
//! | `gates` | what stops new starts only: unreachable nodes, control-plane health, staleness (I6, I7) |
//! | `etcd_quorum` | the other voting members of etcd are well, before a machine that hosts one is disrupted (I46) |
//! | `windows` | when work may start at all: windows, freezes (I8) |
//! | `groups` | how many racks or other groups may be in work at once |
//! | `line` | who starts next: order, API servers, backoff, holds (I2, I5, I30) |
//! | `case` | one entry of either queue with its machine |
//! | `pods` | what a drain does with each pod (I18, I19) |
//! | `drain` | cordon, empty the node, run the command or back off, for both queues (I16) |
//! | `evictions` | preview, evict, retry, wait until the pods are gone (I15, I18, I20–I22) |
//! | `preview` | the meaning of a round of dry runs (I15) |
//! | `recheck` | the fresh read right before a command (I16, I24, I26) |
//! | `attempts` | commands of both queues: what may still run, what is run again (I25) |
//! | `results` | results of commands whose leader is gone (I47) |
//! | `boot` | boot check, the end of a reboot (I14, I35) |
//! | `host` | what a machine's BareMetalHost says of why it does not come back |
//! | `sound` | when a machine counts as back (I14) |
//! | `repair/` | the repair queue: its line, its steps, its health checks (I40, I41, I43) |
//! | `cordons` | uncordon, orphans, re-stamping after a change of leader (I9–I13) |
//! | `registry` | what is generated from the registry of machines, and what it waits for |
//! | `auto_repair` | machines that sabakan calls sick, below a cap (I42) |
//! | `endpoints` | an API server in reboot is taken out of the endpoints |

mod attempts;
mod auto_repair;
mod boot;
mod claims;
mod cordons;
mod drain;
mod effect;
mod endpoints;
mod entry_context;
mod etcd_quorum;
mod evictions;
mod gates;
mod groups;
mod host;
mod pods;
mod preview;
mod readiness;
mod recheck;
mod registry;
mod repair;
mod results;
mod scheduler;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use self::entry_context::EntryContext;
pub(in crate::engine) use self::etcd_quorum::{CATCH_UP, can_ask};
pub use self::{
    auto_repair::{AutoRepair, kept_by_hosts, plan_of},
    drain::backoff_seconds,
    effect::{Effect, End, Guard, Planned},
    etcd_quorum::Quorum,
    pods::{PodVerdict, judge},
    registry::{Apply, Applying, Registering},
};
pub(crate) use self::{
    pods::{count_leaving, held_reason},
    preview::previewed,
    readiness::readiness,
    registry::{compares, unwritten},
    repair::health::HEALTH,
};
use super::snapshot::Snapshot;
use crate::{
    clock::Now,
    model::{
        acceptance::Lead,
        entry::EntryId,
        reason::Reason,
        reboot::{RebootEntry, RebootStatus},
        repair::RepairEntry,
    },
    mutation::{Mutation, on},
    store::view::Definition,
};

/// What a pass concludes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Decision {
    /// What to do, at most one effect for a machine. Empty unless we lead.
    pub effects: Vec<Planned>,
    /// Why each unfinished entry does not move, or `Ready`.
    pub reasons: BTreeMap<EntryId, Reason>,
    /// Nodes that stay cordoned after their entry went, by Node name.
    pub orphans: BTreeMap<String, Reason>,
    /// Nodes whose pods are to be watched.
    pub watch_pods: BTreeSet<String>,
    /// Work is next or under way: each watch of Kubernetes proves its own connection.
    pub prove_watches: bool,
    /// An API server is in work or next: probe often.
    pub probe_often: bool,
    /// A machine that may host a member of etcd is in work or next: ask the members often.
    pub ask_etcd: bool,
    /// CKE's word for `status`.
    pub phase: &'static str,
    /// Boot-time seconds at which something happens by the clock alone.
    pub wake: Option<f64>,
    /// Where applying what is generated from the registry stands.
    pub registry: Applying,
    /// Where automatic repair stands.
    pub auto_repair: AutoRepair,
}

/// One pass as the rules see it.
pub(super) struct Pass<'a> {
    snap: &'a Snapshot,
    now: Now,
    definition: Option<&'a Definition>,
    policy: std::sync::Arc<crate::model::policy::Policy>,
    claims: claims::Claims,
    times: windows::Times,
    etcd_hosts: etcd_quorum::Hosts,
    /// Kubernetes' copy is complete; asked for every entry.
    kube_synced: bool,
    /// Somebody asked whether the copies of Kubernetes are old: what waits for the answer is next.
    needs_proof: std::cell::Cell<bool>,
    /// In the order in which they were found; the last word on an entry counts.
    reasons: Vec<(EntryId, Reason)>,
    out: Decision,
}

/// What is to be done now, and why the rest waits.
///
/// Sources: seed `cke-reboot-newer.md` (Detailed behavior), spec/reboot.md (Decisions, each pass), spec/safety.md.
pub fn decide(snap: &Snapshot, now: Now) -> Decision {
    let policy = snap.store.policy();
    let mut pass = Pass {
        snap,
        now,
        definition: snap.store.definition(),
        claims: claims::Claims::of(snap, now),
        times: windows::Times::of(snap, &policy, now.wall),
        policy,
        etcd_hosts: etcd_quorum::Hosts::of(snap),
        kube_synced: snap.kube.synced(),
        needs_proof: std::cell::Cell::new(false),
        reasons: Vec::with_capacity(snap.store.reboots.entries.len()),
        out: Decision { phase: "completed", ..Decision::default() },
    };
    pass.take_results();
    // Repairs first, as in CKE: what they claim is taken when the reboots are looked at.
    pass.repairs();
    let waiting = pass.sort_out_entries();
    pass.start_drains(&waiting);
    pass.out.ask_etcd |= pass.out.probe_often;
    pass.let_go_of_cordons();
    pass.keep_endpoints();
    pass.tend_registry();
    pass.tend_auto_repair();
    pass.wake_for_windows();
    pass.name_the_phase();
    // Who does not lead does nothing; nor is anything done from a copy that has lost its footing.
    if snap.engine.leading.is_none() || !snap.store.synced {
        pass.out.effects.clear();
    }
    pass.out.prove_watches =
        snap.engine.leading.is_some() && (pass.needs_proof.get() || !pass.claims.machines.is_empty());
    pass.out.reasons = pass.reasons.into_iter().collect();
    // What cannot be written holds an entry up, whatever else is said of it.
    for (id, work) in &snap.work {
        if let (Some((what, size)), Some(reason)) = (&work.too_large, pass.out.reasons.get_mut(id)) {
            *reason = Reason::TransactionTooLarge { what: what.clone(), size: *size };
        }
    }
    ignored_orders(snap, &mut pass.out.reasons);
    pass.out
}

/// Names the orders that were accepted before another program took the lead: it does not know them, and a person should not
/// rely on them any longer (I52).
fn ignored_orders(snap: &Snapshot, reasons: &mut BTreeMap<EntryId, Reason>) {
    if snap.engine.leading.is_some() || snap.store.orders.is_empty() {
        return;
    }
    let leadership = snap.store.leadership();
    if leadership.lead != Lead::Cke {
        return;
    }
    for (id, order) in snap.store.orders.iter().filter_map(|(id, stored)| Some((id, stored.get()?))) {
        let whose = |reason: &mut Reason| {
            let (verb, who) = (order.verb, order.who.to_string());
            *reason = Reason::OrderIgnored { verb, who, leader: leadership.said.clone() };
        };
        reasons.get_mut(id).map(whose);
    }
}

impl<'a> Pass<'a> {
    /// Goes through the queue by index: removes what is to be removed, moves what is in work, and returns the
    /// queued entries that are looked at.
    fn sort_out_entries(&mut self) -> Vec<EntryContext<'a>> {
        let entries = self.snap.store.reboots.entries.len();
        let mut waiting = Vec::with_capacity(entries);
        // The first entry of each member, by its place in the definition.
        let mut seen: Vec<Option<u64>> = vec![None; self.definition.map_or(0, |d| d.cluster.nodes.len())];
        let definition = self.definition;
        let place_of = |address: &str| definition.and_then(|d| d.members.place_of(address));
        let snap = self.snap;
        for (&index, stored) in &snap.store.reboots.entries {
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
                if let Some(first) = place_of(&entry.node).and_then(|place| seen.get_mut(place)) {
                    first.get_or_insert(index);
                }
                if on(Mutation::CancelWaits) && self.others_in_work() {
                    self.reasons.push((id, Reason::Working { phase: "is cancelled".to_owned() }));
                } else {
                    self.remove(id, stored.mod_revision, &entry.node, End::Cancelled);
                }
                continue;
            }
            // Without a definition nobody can say who is a member: nothing is removed, nothing moves.
            let Some(definition) = self.definition else {
                self.reasons.push((id, self.no_definition()));
                continue;
            };
            let place = definition.members.place_of(&entry.node);
            let member = place.and_then(|place| definition.cluster.nodes.get(place).zip(seen.get_mut(place)));
            let Some((node, first)) = member else {
                self.reasons.push((id, Reason::NotMember { address: entry.node.clone() }));
                if !on(Mutation::StrangerStays) {
                    self.remove(id, stored.mod_revision, &entry.node, End::NotMember);
                }
                continue;
            };
            // Two entries for one node: only the one with the smaller index is looked at (I4).
            if let Some(first) = first.filter(|_| !on(Mutation::DuplicateStarts)) {
                self.reasons.push((id, Reason::DuplicateOf { index: first }));
                continue;
            }
            *first = Some(index);
            let Some(case) = EntryContext::of_reboot(id, stored, node) else { continue };
            let reason = match entry.status {
                RebootStatus::Draining => self.drain(case),
                RebootStatus::Rebooting => self.after_power(case),
                RebootStatus::Queued | RebootStatus::Cancelled => {
                    waiting.push(case);
                    continue;
                }
            };
            self.reason(id, reason);
        }
        waiting
    }

    /// Whether any reboot is in work: asked for a fault put in on purpose alone.
    fn others_in_work(&self) -> bool {
        let in_work = |e: &RebootEntry| matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting);
        self.snap.store.reboots.entries.values().any(|s| s.get().is_some_and(in_work))
    }

    fn no_definition(&self) -> Reason {
        let why = match self.snap.store.cluster.as_ref().map(|c| &c.value) {
            Some(Err(why)) => format!("readable cluster definition ({why})"),
            _ => "cluster definition (`cluster set FILE`)".to_owned(),
        };
        Reason::NoCommand { field: why }
    }

    /// Cancel and dequeue wait for nothing: not for the switch, a limit, or another machine (spec/reboot.md,
    /// Decisions 1 and 7; I27).
    fn remove(&mut self, id: EntryId, mod_revision: i64, address: &str, end: End) {
        let machine = self.snap.machine(address);
        let mut guard = Guard::of_entry(id, mod_revision);
        if end == End::NotMember {
            // its node may be a member again when this is written
            guard.cluster = Some(self.snap.store.cluster.as_ref().map_or(0, |s| s.mod_revision));
        }
        // A place of its own: a command that runs on the machine does not hold the removal back. It goes on, and its
        // open attempt keeps its slot.
        let removal = Effect::Remove { end, ready: None, running: false };
        let planned = self.plan(&format!("entry {id} of {machine}"), Some(id), guard, removal);
        // Where it came to nothing before, it is said why.
        if let Some(reason) = self.paused(id, "the removal").filter(|_| !planned) {
            self.reason(id, reason);
        }
    }

    /// Plans an effect, unless one is under way on that machine already (one action per machine over both queues).
    fn plan(&mut self, machine: &str, entry: Option<EntryId>, guard: Guard, effect: Effect) -> bool {
        if self.snap.in_flight.contains_key(machine) || self.out.effects.iter().any(|p| p.machine == machine) {
            return false;
        }
        self.out.effects.push(Planned { machine: machine.to_owned(), entry, guard, effect });
        true
    }

    fn reason(&mut self, id: EntryId, reason: Reason) {
        self.reasons.push((id, reason));
    }

    /// Boot-time seconds now.
    fn boot(&self) -> f64 {
        self.now.boot.as_secs_f64()
    }

    /// Asks to be woken at this boot time.
    fn wake_at(&mut self, boot: f64) {
        if boot > self.boot() {
            self.out.wake = Some(self.out.wake.map_or(boot, |w| w.min(boot)));
        }
    }

    /// Asks to be woken at this wall time.
    fn wake_at_wall(&mut self, at: Timestamp) {
        self.wake_at(self.boot() + crate::model::time::seconds_between(self.now.wall, at) + 0.001);
    }

    fn leading(&self) -> bool {
        self.snap.engine.leading.is_some()
    }

    /// CKE's word for what is being done: uncordoning before repairs before reboots.
    fn name_the_phase(&mut self) {
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
