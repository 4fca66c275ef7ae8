//! Checks before the queues are handed over between CKE and cketerm: what prevents it, and what an operator should know.
//!
//! Neither direction touches CKE's lease or its key in the election. The operator stops and starts CKE; cketerm writes
//! only its own policy `engine`.

use std::collections::BTreeSet;

use cketerm_model::{
    acceptance::LeaderKind,
    cketerm_records::{EngineMode, EngineRegistration, Verb},
    entry::{EntryId, Stored},
    policy::{EngineChoice, RebootNeeded},
    stored::view::{Candidate, StoreView},
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{preflight_fault::PreflightFault, snapshot::Snapshot};

#[cfg(test)]
mod tests;

/// Work of CKE's leader under the same lock, which nobody does while cketerm leads.
pub const STOPS_WITH_CKE: &str = "certificates are not renewed, machines are neither joined nor removed, etcd and the cluster's components are \
     neither repaired nor upgraded until CKE leads again";

/// Returns what lets a program lead while nobody does: which one may, is the policy `engine`.
pub fn remedy_without_leader(store: &StoreView) -> &'static str {
    match store.policy().engine {
        EngineChoice::Cke => {
            "policy engine is `cke`: start CKE (`systemctl start cke`), or let cketerm lead (`cketerm engine take`)"
        }
        EngineChoice::Cketerm | EngineChoice::Always => "start `cketerm --daemon`, or a console without --observe",
    }
}

/// Effect of a finding on the handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It prevents the handover.
    Blocker,
    /// It prevents nothing, but something will be different from what an operator may expect.
    Warning,
    /// Good to know.
    Note,
}

/// One finding of the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its effect.
    pub level: Level,
    /// The fact, with the remedy if there is one.
    pub text: String,
}

/// Programs that may lead after the handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From CKE to cketerm.
    Take,
    /// From cketerm to CKE.
    Give,
}

/// Collects findings in order of their levels.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, text: impl Into<String>) {
        self.0.push(Finding { level, text: text.into() });
    }

    fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|finding| match finding.level {
            Level::Blocker => 0,
            Level::Warning => 1,
            Level::Note => 2,
        });
        self.0
    }
}

/// Reports whether nothing is left to hand over.
pub fn is_done(store: &StoreView, direction: Direction) -> bool {
    let lead = store.leadership().lead;
    store.leader().is_some()
        && match direction {
            Direction::Take => lead == LeaderKind::Cketerm,
            Direction::Give => lead == LeaderKind::Cke && store.policy().engine == EngineChoice::Cke,
        }
}

/// Returns the CKE programs in the election, the leader first.
pub fn cke_candidates(store: &StoreView) -> Vec<Candidate> {
    store.candidates.values().filter(|candidate| store.is_cke(candidate)).cloned().collect()
}

/// Returns the host of a candidate and the end of its lease, which tells two programs on one host apart.
pub fn described(candidate: &Candidate) -> String {
    let lease = format!("{:x}", candidate.lease);
    format!("{} (lease …{})", candidate.host, &lease[lease.len().saturating_sub(4)..])
}

/// Checks a handover, with what an observing engine on this host has seen.
/// `engine_here`: whether a daemon of cketerm answers on this host.
pub fn findings(snap: &Snapshot, direction: Direction, engine_here: bool, now: Timestamp) -> Vec<Finding> {
    let mut found = Findings::default();
    let store = &snap.store;
    match store.leadership().lead {
        LeaderKind::Unknown => found.add(Level::Blocker, store.leadership().message),
        LeaderKind::Cketerm | LeaderKind::Yielding | LeaderKind::Cke | LeaderKind::Nobody => {}
    }
    match direction {
        Direction::Take => {
            faults(snap, &mut found);
            engines(snap, engine_here, &mut found);
            in_work(store, &mut found, |entry| {
                format!(
                    "{entry} is in work at CKE: if its command has begun, cketerm shows its outcome as unknown until \
                     the boot check answers"
                )
            });
        }
        Direction::Give => {
            unknown_to_cke(store, now, &mut found);
            in_work(store, &mut found, |entry| format!("{entry} is in work: cketerm finishes it before it resigns"));
        }
    }
    unreadable(store, &mut found);
    found.sorted()
}

/// Rights, identity, configuration: an engine with these settings would only observe.
fn faults(snap: &Snapshot, found: &mut Findings) {
    for fault in &snap.engine.observing {
        let passes = match fault {
            // an engine proposes the identity when it first runs
            PreflightFault::IdentityNotProposed => !snap.store.engines.is_empty(),
            PreflightFault::EtcdUnread { .. }
            | PreflightFault::SchemaTooNew { .. }
            | PreflightFault::SchemaUnreadable { .. }
            | PreflightFault::PolicyUnreadable { .. }
            | PreflightFault::PolicyTooNew { .. }
            | PreflightFault::KubernetesNotConfigured
            | PreflightFault::IdentityUnreadable { .. }
            | PreflightFault::IdentityUnknown
            | PreflightFault::IdentityMismatch { .. }
            | PreflightFault::IdentityUnconfirmed { .. }
            | PreflightFault::ClockDiffers { .. }
            | PreflightFault::ClockWasSet { .. }
            | PreflightFault::RightsMissing { .. }
            | PreflightFault::RightsUnknown => false,
        };
        found.add(if passes { Level::Warning } else { Level::Blocker }, fault.to_string());
    }
}

/// Hosts that can lead afterwards. Engines that do not campaign are not registered, so only this host is known for
/// certain.
fn engines(snap: &Snapshot, engine_here: bool, found: &mut Findings) {
    let daemons = snap.store.engines.values().filter_map(Stored::get).filter(|engine| is_daemon(engine));
    for text in daemons.filter_map(lacking) {
        found.add(Level::Warning, text);
    }
    if snap.store.daemon_seen().is_none() && !engine_here {
        let text = "no cketerm daemon has ever led this cluster, and none answers on this host: run `systemctl enable \
                    --now cketerm` on the hosts that are to lead, one of them this one";
        found.add(Level::Blocker, text);
    }
    let host = &snap.engine.host;
    if let Some(why) = &snap.engine.unable {
        found.add(Level::Blocker, format!("this host, {host}, cannot start programs: {why}"));
    }
    let programs = &snap.engine.missing_programs;
    if !programs.is_empty() {
        let text = format!(
            "this host, {host}, lacks {}: if its engine leads, the entries that need them wait; install them, or let \
             engines run elsewhere",
            programs.join(", ")
        );
        found.add(Level::Warning, text);
    }
}

fn is_daemon(engine: &EngineRegistration) -> bool {
    match engine.mode {
        EngineMode::Daemon => true,
        EngineMode::Console | EngineMode::Other(_) => false,
    }
}

/// Returns what the host of an engine lacks.
fn lacking(engine: &EngineRegistration) -> Option<String> {
    let programs = engine.missing_programs.iter().cloned();
    let settings = engine.missing_settings.iter().map(ToString::to_string);
    let all: Vec<String> = programs.chain(settings).chain(engine.unable.clone()).collect();
    (!all.is_empty()).then(|| format!("{} lacks {}: correct it before", engine.host, all.join(", ")))
}

fn in_work(store: &StoreView, found: &mut Findings, text: impl Fn(String) -> String) {
    let reboots = store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    for id in reboots.chain(repairs) {
        if let Some(entry) = store.entry(id).filter(|entry| entry.in_work()) {
            found.add(Level::Note, text(format!("{id} ({})", entry.address())));
        }
    }
}

/// Orders and settings that an operator gave cketerm and CKE will not obey.
fn unknown_to_cke(store: &StoreView, now: Timestamp, found: &mut Findings) {
    let policy = store.policy();
    if policy.freeze.as_ref().is_some_and(|freeze| freeze.holds(now)) {
        found.add(
            Level::Warning,
            "a freeze is in force, and CKE knows none: run `cketerm stop` to keep both queues still",
        );
    }
    let settings = [
        ("windows", policy.windows.is_some()),
        ("groups", policy.groups.is_some()),
        ("reboot_needed", policy.reboot_needed == RebootNeeded::Queue),
    ];
    for (name, _) in settings.into_iter().filter(|(_, set)| *set) {
        found.add(Level::Warning, format!("policy `{name}` is set, and CKE does not know it"));
    }
    for (id, order) in &store.orders {
        if let Some(order) = order.get().filter(|order| order.verb == Verb::Hold) {
            let text =
                format!("{id} is held by {}, and CKE does not know holds: cancel it, or run `cketerm stop`", order.who);
            found.add(Level::Warning, text);
        }
    }
    for entry in store.maintenance.entries.values().filter_map(Stored::get).filter(|entry| entry.claims_machine()) {
        let (id, node) = (EntryId::maintenance(entry.index), &entry.node);
        let text =
            format!("{id} ({node}) stays cordoned, but CKE knows no maintenance: a reboot of {node} would start");
        found.add(Level::Warning, text);
    }
    let paused: BTreeSet<String> = store
        .batches
        .iter()
        .filter(|(_, batch)| batch.get().is_some_and(|batch| batch.paused.is_some()))
        .map(|(id, _)| id.to_string())
        .collect();
    for id in paused {
        found.add(
            Level::Warning,
            format!("batch {id} is paused, and CKE does not know batches: cancel it, or run `cketerm stop`"),
        );
    }
}

fn unreadable(store: &StoreView, found: &mut Findings) {
    let reboots = store.reboots.entries.iter().filter(|(_, stored)| stored.get().is_none());
    let repairs = store.repairs.entries.iter().filter(|(_, stored)| stored.get().is_none());
    let ids =
        reboots.map(|(index, _)| EntryId::reboot(*index)).chain(repairs.map(|(index, _)| EntryId::repair(*index)));
    for id in ids {
        found.add(Level::Warning, format!("{id} cannot be read: it stays as it is"));
    }
}
