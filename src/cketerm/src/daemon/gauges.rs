//! Table of every gauge of `/metrics`: name, labels, help text, and the function that reads it from the engine's state.
//! CKE's own names come first, so that dashboards keep working (STO-17).
//!
//! The table is evaluated at each scrape, so a pass of the engine costs nothing more. docs/metrics.md is generated from
//! it.

use std::collections::BTreeMap;

use cketerm_model::{
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    names::Address,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus},
    start_gates::ALL_GATES,
    stored::view::Switch,
    time::seconds_between,
};
use cketerm_rules::{decide::ApplyState, reboot_needed, seen::Seen, trouble};

/// Receiver of one sample: the label values in the table's order, and the number.
pub type Sink<'a> = dyn FnMut(&[&str], f64) + 'a;

/// One gauge.
pub struct Gauge {
    /// Name with its prefix.
    pub name: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Help text, a sentence without a full stop.
    pub help: &'static str,
    /// Whether only the leader reports it. Other engines have no sample.
    pub leader_only: bool,
    read: fn(&Seen, &mut Sink<'_>),
}

impl Gauge {
    /// Passes its present samples to `sink`.
    pub fn read(&self, seen: &Seen, sink: &mut Sink<'_>) {
        if !self.leader_only || seen.snapshot.engine.leading.is_some() {
            (self.read)(seen, sink);
        }
    }
}

const REBOOT_STATUSES: [RebootStatus; 4] =
    [RebootStatus::Queued, RebootStatus::Draining, RebootStatus::Rebooting, RebootStatus::Cancelled];
const REPAIR_STATUSES: [RepairStatus; 4] =
    [RepairStatus::Queued, RepairStatus::Processing, RepairStatus::Succeeded, RepairStatus::Failed];
/// Phases that cketerm writes into `status` (STO-16). CKE has more, which are exported as they are.
const PHASES: [&str; 4] = ["uncordon-nodes", "repair-machines", "reboot-nodes", "completed"];

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&Seen, &mut Sink<'_>),
) -> Gauge {
    Gauge { name, labels, help, leader_only: false, read }
}

const fn leader_gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&Seen, &mut Sink<'_>),
) -> Gauge {
    Gauge { name, labels, help, leader_only: true, read }
}

/// All gauges.
pub const GAUGES: &[Gauge] = &[
    gauge("cke_leader", &[], "1 if this process leads", |s, sample| {
        sample(&[], flag(s.snapshot.engine.leading.is_some()));
    }),
    leader_gauge("cke_operation_phase", &["phase"], "1 for the leader's current phase", phases),
    leader_gauge("cke_operation_phase_timestamp_seconds", &[], "Unix time of the last phase change", phase_since),
    leader_gauge("cke_reboot_queue_enabled", &[], "1 if the reboot queue is enabled", |s, sample| {
        sample(&[], switch(&s.snapshot.store.reboots.switch));
    }),
    leader_gauge("cke_reboot_queue_running", &[], "1 if the reboot queue is enabled and not empty", |s, sample| {
        sample(&[], flag(s.snapshot.store.running.as_deref() == Some("true")));
    }),
    leader_gauge(
        "cke_reboot_queue_entries",
        &[],
        "Entries of the reboot queue, including unreadable ones",
        |s, sample| {
            sample(&[], count(s.snapshot.store.reboots.entries.len()));
        },
    ),
    leader_gauge("cke_reboot_queue_items", &["status"], "Entries of the reboot queue by status", |s, sample| {
        for status in REBOOT_STATUSES {
            sample(&[&status.to_string()], count(reboots(s).filter(|e| e.status == status).count()));
        }
    }),
    leader_gauge(
        "cke_node_reboot_status",
        &["node", "status"],
        "1 for the status of the node's reboot entry",
        node_reboots,
    ),
    leader_gauge("cke_repair_queue_enabled", &[], "1 if the repair queue is enabled", |s, sample| {
        sample(&[], switch(&s.snapshot.store.repairs.switch));
    }),
    leader_gauge("cke_repair_queue_items", &["status"], "Entries of the repair queue by status", |s, sample| {
        for status in REPAIR_STATUSES {
            sample(&[&status.to_string()], count(repairs(s).filter(|e| e.status == status).count()));
        }
    }),
    leader_gauge(
        "cke_repair_queue_entries",
        &["index", "address", "operation", "status", "step"],
        "1 for each entry of the repair queue",
        |s, sample| {
            for e in repairs(s) {
                let (index, status, step) = (e.index.to_string(), e.status.to_string(), e.step.to_string());
                sample(&[&index, &e.address, &e.operation, &status, &step], 1.0);
            }
        },
    ),
    leader_gauge(
        "cke_machine_repair_status",
        &["address", "status"],
        "1 for the status of the machine's repair entry",
        machine_repairs,
    ),
    leader_gauge("cke_auto_repair_enabled", &[], "1 if automatic repair is enabled", |s, sample| {
        sample(&[], switch(&s.snapshot.store.auto_repair));
    }),
    leader_gauge("cke_sabakan_integration_successful", &[], "1 if the last plan was generated", sabakan_success),
    leader_gauge(
        "cke_sabakan_integration_timestamp_seconds",
        &[],
        "Unix time of sabakan's last valid answer",
        |s, sample| {
            if let Some(good) = &s.snapshot.registry.members.good {
                sample(&[], unix(good.wall));
            }
        },
    ),
    leader_gauge("cke_sabakan_workers", &["role"], "Workers in the definition by role of their machine", workers),
    leader_gauge("cke_sabakan_unused_machines", &[], "Machines in sabakan that the definition does not use", unused),
    gauge("cketerm_info", &["version", "host"], "Always 1; labels: version and host of this program", |s, sample| {
        sample(&[env!("CARGO_PKG_VERSION"), &s.snapshot.engine.host], 1.0);
    }),
    gauge(
        "cketerm_engine_state",
        &["state"],
        "1 for the current state of this engine: leading, standing-by (also if the policy `engine` keeps it from leading), or observing (it may not lead; /readyz names the cause)",
        engine_state,
    ),
    gauge("cketerm_candidates", &["program"], "Candidates for the lock", candidates),
    gauge("cketerm_etcd_age_seconds", &[], "Seconds since etcd last answered; above 10 nothing starts", |s, sample| {
        sample(&[], (s.now.boot - s.snapshot.store.last_seen).get().max(0.0));
    }),
    gauge("cketerm_kubernetes_age_seconds", &["watch"], "Seconds since the watch last received data", |s, sample| {
        for (name, source) in s.snapshot.kube.sources.iter().filter(|(_, source)| source.synced) {
            sample(&[name], (s.now.boot - source.last_seen).get().max(0.0));
        }
    }),
    gauge("cketerm_broken_keys", &[], "Keys and entries in etcd that cannot be read", |s, sample| {
        let store = &s.snapshot.store;
        let reboots = store.reboots.entries.values().filter(|e| e.value.is_err()).count();
        let repairs = store.repairs.entries.values().filter(|e| e.value.is_err()).count();
        let maintenance = store.maintenance.entries.values().filter(|e| e.value.is_err()).count();
        sample(&[], count(store.broken.len() + reboots + repairs + maintenance));
    }),
    leader_gauge("cketerm_entries", &["queue", "reason"], "Unfinished entries by reason", by_reason),
    leader_gauge(
        "cketerm_entry_needs_attention",
        &["queue", "index", "address", "reason"],
        "1 for each stuck entry, as in the console; gates that hold a whole queue are only in cketerm_entries",
        attention,
    ),
    leader_gauge(
        "cketerm_oldest_entry_seconds",
        &["queue"],
        "Age of the oldest unfinished entry with a request time",
        oldest,
    ),
    leader_gauge(
        "cketerm_maintenance_end_timestamp_seconds",
        &["address"],
        "Unix time at which the machine's maintenance ends; a maintenance that still waits has one too",
        maintenance_ends,
    ),
    leader_gauge("cketerm_slots", &["queue"], "Maximum number of machines in work at once", |s, sample| {
        if let Some(definition) = s.snapshot.store.definition() {
            let cluster = &definition.cluster;
            sample(&["reboot"], integer(cluster.reboot.concurrency()));
            sample(&["repair"], integer(cluster.repair.max_concurrent_repairs.unwrap_or(1)));
        }
    }),
    leader_gauge("cketerm_orphaned_cordons", &[], "Nodes still cordoned after their entry has ended", |s, sample| {
        sample(&[], count(s.orphans.len()));
    }),
    leader_gauge(
        "cketerm_reboots_needed",
        &["state"],
        "Nodes that need a reboot, by state as in `rq needed -o json`",
        |s, sample| {
            let (store, kube) = (&s.snapshot.store, &s.snapshot.kube);
            let mut states: BTreeMap<&str, usize> = BTreeMap::new();
            for row in reboot_needed::list::list(store, kube, &s.snapshot.reboot_signals, s.now.wall) {
                *states.entry(row.state.name()).or_default() += 1;
            }
            for (state, nodes) in states {
                sample(&[state], count(nodes));
            }
        },
    ),
    leader_gauge("cketerm_nodes_not_ready", &[], "Nodes whose Ready condition is not True", |s, sample| {
        sample(&[], count(s.snapshot.kube.not_ready.len()));
    }),
    leader_gauge(
        "cketerm_control_plane_probe",
        &["address"],
        "1 if the last probe of the control plane was good",
        |s, sample| {
            for (address, probe) in &s.snapshot.probes {
                sample(&[address], flag(probe.good_since.is_some()));
            }
        },
    ),
    leader_gauge(
        "cketerm_start_gate_closed",
        &["gate"],
        "1 for the start gate that holds the reboot queue, 0 for the others",
        start_gates,
    ),
    leader_gauge("cketerm_sabakan_enabled", &[], "1 if the sabakan integration is enabled", |s, sample| {
        sample(&[], switch(&s.snapshot.store.sabakan));
    }),
    leader_gauge("cketerm_approval_waiting", &[], "1 if a change of the definition waits for approval", |s, sample| {
        sample(&[], flag(matches!(*s.applying, ApplyState::Approval(..))));
    }),
    leader_gauge("cketerm_notices_pending", &["receiver"], "Notices not yet confirmed by the receiver", |s, sample| {
        for (name, receiver) in s.notices.iter() {
            sample(&[name], integer(i64::try_from(receiver.pending).unwrap_or(i64::MAX)));
        }
    }),
    leader_gauge(
        "cketerm_notices_receiver_down",
        &["receiver"],
        "1 if deliveries to the receiver fail",
        |s, sample| {
            for (name, receiver) in s.notices.iter() {
                sample(&[name], flag(receiver.trouble.is_some()));
            }
        },
    ),
    leader_gauge(
        "cketerm_metal3_controller",
        &[],
        "1 if this engine is the controller of BareMetalHosts",
        |s, sample| {
            sample(&[], flag(s.snapshot.metal3.runs));
        },
    ),
    leader_gauge(
        "cketerm_metal3_host_error",
        &["host"],
        "1 for each BareMetalHost whose power cannot be set as requested",
        |s, sample| {
            for (name, _) in s.snapshot.metal3.hosts.iter().filter(|(_, host)| host.error.is_some()) {
                sample(&[name], 1.0);
            }
        },
    ),
];

fn flag(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

fn switch(switch: &Switch) -> f64 {
    flag(switch.enabled())
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn count(n: usize) -> f64 {
    n as f64
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn integer(n: i64) -> f64 {
    n as f64
}

fn unix(at: jiff::Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

fn reboots(seen: &Seen) -> impl Iterator<Item = &RebootEntry> {
    seen.snapshot.store.reboots.entries.values().filter_map(Stored::get)
}

fn repairs(seen: &Seen) -> impl Iterator<Item = &RepairEntry> {
    seen.snapshot.store.repairs.entries.values().filter_map(Stored::get).filter(|e| !e.deleted)
}

fn phases(seen: &Seen, sample: &mut Sink<'_>) {
    let now = seen.snapshot.store.status.as_ref().and_then(Stored::get).map(|s| s.phase.as_str());
    for phase in PHASES.into_iter().chain(now.filter(|p| !PHASES.contains(p))) {
        sample(&[phase], flag(now == Some(phase)));
    }
}

fn phase_since(seen: &Seen, sample: &mut Sink<'_>) {
    let status = seen.snapshot.store.status.as_ref().and_then(Stored::get);
    if let Some(at) = status.and_then(|s| s.timestamp.parse().ok()) {
        sample(&[], unix(at));
    }
}

/// Every node of the definition with every status, as CKE exports it, by the name of its Node.
fn node_reboots(seen: &Seen, sample: &mut Sink<'_>) {
    let Some(definition) = seen.snapshot.store.definition() else { return };
    let mut of: BTreeMap<&str, Vec<RebootStatus>> = BTreeMap::new();
    for entry in reboots(seen) {
        of.entry(&entry.node).or_default().push(entry.status);
    }
    for node in &definition.cluster.nodes {
        let has = of.get(node.address.as_str());
        let name = node.node_name();
        for status in REBOOT_STATUSES {
            sample(&[&name, &status.to_string()], flag(has.is_some_and(|h| h.contains(&status))));
        }
    }
}

/// The definition's nodes and all other machines in the repair queue.
fn machine_repairs(seen: &Seen, sample: &mut Sink<'_>) {
    let mut of: BTreeMap<&str, Vec<RepairStatus>> = BTreeMap::new();
    if let Some(definition) = seen.snapshot.store.definition() {
        of.extend(definition.cluster.nodes.iter().map(|n| (n.address.as_str(), Vec::new())));
    }
    for entry in repairs(seen) {
        of.entry(&entry.address).or_default().push(entry.status);
    }
    for (address, has) in of {
        for status in REPAIR_STATUSES {
            sample(&[address, &status.to_string()], flag(has.contains(&status)));
        }
    }
}

fn sabakan_success(seen: &Seen, sample: &mut Sink<'_>) {
    let (store, registry) = (&seen.snapshot.store, &seen.snapshot.registry);
    if store.sabakan.enabled() && store.registry.url.is_some() {
        let planned = registry.proposal.as_ref().is_some_and(|p| p.outcome.is_ok());
        sample(&[], flag(planned && registry.members.error.is_none()));
    }
}

fn workers(seen: &Seen, sample: &mut Sink<'_>) {
    let Some(definition) = seen.snapshot.store.definition() else { return };
    let mut of: BTreeMap<&str, usize> = BTreeMap::new();
    for node in definition.cluster.nodes.iter().filter(|n| !n.control_plane) {
        let role = node.labels.as_ref().and_then(|l| l.get("cke.cybozu.com/role"));
        *of.entry(role.map_or("", String::as_str)).or_default() += 1;
    }
    for (role, n) in of {
        sample(&[role], count(n));
    }
}

fn unused(seen: &Seen, sample: &mut Sink<'_>) {
    let (Some(good), Some(definition)) = (&seen.snapshot.registry.members.good, seen.snapshot.store.definition())
    else {
        return;
    };
    let used = |address: &Address| definition.members.by_address(&definition.cluster, address).is_some();
    sample(&[], count(good.machines.list.iter().filter(|m| !used(&m.address)).count()));
}

fn engine_state(seen: &Seen, sample: &mut Sink<'_>) {
    let engine = &seen.snapshot.engine;
    let now = match (&engine.leading, engine.observing.is_empty()) {
        (Some(_), _) => "leading",
        (None, true) => "standing-by",
        (None, false) => "observing",
    };
    for state in ["leading", "standing-by", "observing"] {
        sample(&[state], flag(state == now));
    }
}

fn candidates(seen: &Seen, sample: &mut Sink<'_>) {
    let store = &seen.snapshot.store;
    let cke = store.candidates.values().filter(|c| store.is_cke(c)).count();
    sample(&["cke"], count(cke));
    sample(&["cketerm"], count(store.candidates.len() - cke));
}

fn by_reason(seen: &Seen, sample: &mut Sink<'_>) {
    let mut of: BTreeMap<(QueueKind, String), usize> = BTreeMap::new();
    for (id, reason) in seen.reasons.iter() {
        *of.entry((id.queue, reason.name())).or_default() += 1;
    }
    for ((queue, reason), n) in of {
        sample(&[&queue.to_string(), &reason], count(n));
    }
}

fn maintenance_ends(seen: &Seen, sample: &mut Sink<'_>) {
    let entries = seen.snapshot.store.maintenance.entries.values().filter_map(Stored::get);
    for entry in entries.filter(|entry| entry.released.is_none()) {
        sample(&[&entry.node], unix(entry.until));
    }
}

fn start_gates(seen: &Seen, sample: &mut Sink<'_>) {
    let policy = seen.snapshot.store.policy();
    let Some(settings) = &policy.start_gates else { return };
    let closed = seen
        .reasons
        .values()
        .find_map(|reason| if let Reason::StartGateClosed { gate, .. } = reason { Some(gate.as_str()) } else { None });
    for gate in settings.gates().iter().map(|(gate, _)| *gate).chain([ALL_GATES]) {
        sample(&[gate], flag(closed == Some(gate)));
    }
}

fn address(seen: &Seen, id: EntryId) -> String {
    seen.snapshot.store.entry(id).map_or_else(String::new, |entry| entry.address().to_string())
}

fn attention(seen: &Seen, sample: &mut Sink<'_>) {
    for id in trouble::all_stuck(seen) {
        let why = seen.reasons.get(&id).map(Reason::name);
        let failed =
            || if trouble::unreadable(&seen.snapshot.store, id) { "InvalidEntry" } else { "Failed" }.to_owned();
        sample(&[&id.queue.to_string(), &id.index.to_string(), &address(seen, id), &why.unwrap_or_else(failed)], 1.0);
    }
}

/// A backoff or a gate does not end the wait: the gauge shows how long the requester has been waiting.
fn oldest(seen: &Seen, sample: &mut Sink<'_>) {
    let finished = |id: EntryId| seen.snapshot.store.entry(id).is_some_and(EntryRef::finished);
    for queue in QueueKind::QUEUES {
        let of = seen.snapshot.store.requests.iter().filter(|(id, _)| id.queue == queue && !finished(**id));
        let ages = of.filter_map(|(_, r)| r.get()).map(|r| seconds_between(r.at, seen.now.wall).get());
        sample(&[&queue.to_string()], ages.fold(0.0, f64::max));
    }
}

/// Returns the whole of `docs/metrics.md`.
#[cfg(test)]
pub(super) fn markdown() -> String {
    use std::fmt::Write as _;

    let mut out = String::from(
        "# Metrics\n\nGenerated from the tables in `src/cketerm/src/daemon/gauges.rs` and `src/engine/src/counters.rs`; a test compares them \
         (`make docs` writes this file).\n`cketerm --daemon` serves them as OpenMetrics text under `/metrics`, by default on \
         `127.0.0.1:10181` (`--http`). Values are read at each scrape.\n\nThe names that begin with `cke_` are CKE's, \
         with CKE's meaning; *leader*: only the leader has samples. Reasons are explained in [reasons.md](reasons.md), alert and recording \
         rules are in [alerts.yaml](alerts.yaml).\n\n| name | labels | what it says | |\n| --- | --- | --- | --- |\n",
    );
    let ticked = |labels: &[&str]| labels.iter().map(|l| format!("`{l}`")).collect::<Vec<_>>().join(" ");
    for g in GAUGES {
        let leader = if g.leader_only { "leader" } else { "" };
        let _ = writeln!(out, "| `{}` | {} | {} | {leader} |", g.name, ticked(g.labels), g.help);
    }
    for (name, labels, help) in cketerm_engine::COUNTERS {
        let _ = writeln!(out, "| `{name}` | {} | {help} | |", ticked(labels));
    }
    out
}
