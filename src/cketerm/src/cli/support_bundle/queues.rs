//! Entries of the queues, engines and leader of a bundle.

use cketerm_model::{
    attempt::{Attempt, Ended},
    cketerm_records::{EngineRegistration, Identity, Order, Progress, Request, Who},
    entry::{EntryId, Stored},
    maintenance::MaintenanceEntry,
    reboot::RebootEntry,
    repair::RepairEntry,
    stored::view::{Candidate, StoreView},
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    cluster::{Program, program},
    safe::{Mask, Text},
};

/// A request for an entry.
#[derive(Serialize)]
pub(super) struct Requested {
    who: Text,
    at: Timestamp,
    reason: Option<Text>,
    batch: Option<Text>,
}

/// Returns a request for a bundle.
pub(super) fn requested(request: &Request, mask: &Mask) -> Requested {
    Requested {
        who: person(&request.who, mask),
        at: request.at,
        reason: request.reason.as_ref().map(|reason| mask.text(reason)),
        batch: request.batch.as_ref().map(|batch| mask.text(&batch.to_string())),
    }
}

/// Returns a user for a bundle.
pub(super) fn person(who: &Who, mask: &Mask) -> Text {
    mask.text(&who.to_string())
}

/// An attempt without arguments and outputs of its command.
#[derive(Serialize)]
#[allow(clippy::struct_excessive_bools)] // facts of a record, each by itself
pub(super) struct Tried {
    number: u32,
    step: Option<i64>,
    success_command: bool,
    machine_type: Option<Text>,
    operation: Option<Text>,
    node: Option<Text>,
    control_plane: bool,
    lease: String,
    host: Text,
    command: Option<Program>,
    bound_seconds: u64,
    boot_id: Option<Text>,
    not_ready: bool,
    start: Timestamp,
    drain_start: Option<Timestamp>,
    forced: bool,
    ordered_by: Option<Text>,
    done_by: Option<Text>,
    folded: u32,
    outcome: Option<Outcome>,
}

#[derive(Serialize)]
struct Outcome {
    end: Text,
    at: Timestamp,
    stdout_bytes: usize,
    stderr_bytes: usize,
}

/// Returns an attempt for a bundle.
pub(super) fn tried(attempt: &Attempt, mask: &Mask) -> Tried {
    let text = |text: &Option<String>| text.as_ref().map(|text| mask.text(text));
    Tried {
        number: attempt.number,
        step: attempt.step,
        success_command: attempt.success,
        machine_type: text(&attempt.machine_type),
        operation: text(&attempt.operation),
        node: attempt.node.as_ref().map(|node| mask.text(node)),
        control_plane: attempt.control_plane,
        lease: format!("{:x}", attempt.lease),
        host: mask.text(&attempt.host),
        command: program(&attempt.argv, mask),
        bound_seconds: attempt.bound_seconds,
        boot_id: text(&attempt.boot_id),
        not_ready: attempt.not_ready,
        start: attempt.start,
        drain_start: attempt.drain_start,
        forced: attempt.forced,
        ordered_by: text(&attempt.ordered_by),
        done_by: text(&attempt.done_by),
        folded: attempt.folded,
        outcome: attempt.outcome.as_ref().map(|outcome| Outcome {
            end: ended(&outcome.end, mask),
            at: outcome.at,
            stdout_bytes: outcome.stdout.len(),
            stderr_bytes: outcome.stderr.len(),
        }),
    }
}

/// Returns the end of a command.
pub(super) fn ended(end: &Ended, mask: &Mask) -> Text {
    mask.text(&end.to_string())
}

/// State of an entry, in the form that all queues share.
#[derive(Serialize)]
struct State {
    address: Text,
    nodename: Option<Text>,
    status: Text,
    step_status: Option<Text>,
    step: Option<i64>,
    machine_type: Option<Text>,
    operation: Option<Text>,
    deleted: bool,
    until: Option<Timestamp>,
    last_transition_time: Option<Timestamp>,
    drain_backoff_count: i64,
    drain_backoff_expire: Option<Timestamp>,
    unknown_fields: Vec<Text>,
}

fn names(unknown: &Map<String, Value>, mask: &Mask) -> Vec<Text> {
    unknown.keys().map(|name| mask.text(name)).collect()
}

fn reboot(entry: &RebootEntry, mask: &Mask) -> State {
    State {
        address: mask.text(&entry.node),
        nodename: None,
        status: mask.text(&entry.status.to_string()),
        step_status: None,
        step: None,
        machine_type: None,
        operation: None,
        deleted: false,
        until: None,
        last_transition_time: entry.last_transition_time,
        drain_backoff_count: entry.drain_backoff_count,
        drain_backoff_expire: entry.drain_backoff_expire,
        unknown_fields: names(&entry.unknown, mask),
    }
}

fn repair(entry: &RepairEntry, mask: &Mask) -> State {
    State {
        address: mask.text(&entry.address),
        nodename: Some(mask.text(&entry.nodename)),
        status: mask.text(&entry.status.to_string()),
        step_status: Some(mask.text(&entry.step_status.to_string())),
        step: Some(entry.step),
        machine_type: Some(mask.text(&entry.machine_type)),
        operation: Some(mask.text(&entry.operation)),
        deleted: entry.deleted,
        until: None,
        last_transition_time: entry.last_transition_time,
        drain_backoff_count: entry.drain_backoff_count,
        drain_backoff_expire: entry.drain_backoff_expire,
        unknown_fields: names(&entry.unknown, mask),
    }
}

fn maintenance(entry: &MaintenanceEntry, mask: &Mask) -> State {
    State {
        address: mask.text(&entry.node),
        nodename: None,
        status: mask.text(&entry.status.to_string()),
        step_status: None,
        step: None,
        machine_type: None,
        operation: None,
        deleted: entry.released.is_some(),
        until: Some(entry.until),
        last_transition_time: entry.last_transition_time,
        drain_backoff_count: entry.drain_backoff_count,
        drain_backoff_expire: entry.drain_backoff_expire,
        unknown_fields: names(&entry.unknown, mask),
    }
}

#[derive(Serialize)]
struct Moving {
    phase: Text,
    since: Timestamp,
    pods_at_start: u32,
    pods_gone: u32,
    reason: Option<Text>,
    blockers: Vec<Blocked>,
    next: Option<Timestamp>,
}

#[derive(Serialize)]
struct Blocked {
    pod: Text,
    why: Text,
}

fn moving(progress: &Progress, mask: &Mask) -> Moving {
    let blocked =
        progress.blockers.iter().map(|b| Blocked { pod: mask.text(&b.pod), why: mask.text(&b.why.to_string()) });
    Moving {
        phase: mask.text(&progress.phase),
        since: progress.since,
        pods_at_start: progress.pods_at_start,
        pods_gone: progress.pods_gone,
        reason: progress.reason.as_ref().map(|reason| mask.text(&reason.to_string())),
        blockers: blocked.collect(),
        next: progress.next,
    }
}

#[derive(Serialize)]
struct Ordered {
    verb: Text,
    who: Text,
    at: Timestamp,
    reason: Option<Text>,
    entry_revision: i64,
}

fn ordered(order: &Order, mask: &Mask) -> Ordered {
    Ordered {
        verb: mask.text(&order.verb.to_string()),
        who: person(&order.who, mask),
        at: order.at,
        reason: order.reason.as_ref().map(|reason| mask.text(reason)),
        entry_revision: order.entry_revision,
    }
}

/// An entry and all that is recorded about it.
#[derive(Serialize)]
pub(super) struct Entry {
    id: EntryId,
    revision: i64,
    /// None if the stored value cannot be read.
    state: Option<State>,
    request: Option<Requested>,
    order: Option<Ordered>,
    cancelled_by: Option<Text>,
    progress: Option<Moving>,
    attempts: Vec<Tried>,
}

/// Returns all entries, queue by queue.
pub(super) fn entries(view: &StoreView, mask: &Mask) -> Vec<Entry> {
    let reboots = view.reboots.entries.iter().map(|(index, stored)| {
        (EntryId::reboot(*index), stored.mod_revision, stored.get().map(|entry| reboot(entry, mask)))
    });
    let repairs = view.repairs.entries.iter().map(|(index, stored)| {
        (EntryId::repair(*index), stored.mod_revision, stored.get().map(|entry| repair(entry, mask)))
    });
    let maintenances = view.maintenance.entries.iter().map(|(index, stored)| {
        (EntryId::maintenance(*index), stored.mod_revision, stored.get().map(|entry| maintenance(entry, mask)))
    });
    let entry = |(id, revision, state)| Entry {
        id,
        revision,
        state,
        request: view.requests.get(&id).and_then(Stored::get).map(|request| requested(request, mask)),
        order: view.orders.get(&id).and_then(Stored::get).map(|order| ordered(order, mask)),
        cancelled_by: view.cancels.get(&id).and_then(Stored::get).map(|cancel| person(&cancel.who, mask)),
        progress: view.progress.get(&id).and_then(Stored::get).map(|progress| moving(progress, mask)),
        attempts: view.attempts_of(id).filter_map(Stored::get).map(|attempt| tried(attempt, mask)).collect(),
    };
    reboots.chain(repairs).chain(maintenances).map(entry).collect()
}

#[derive(Serialize)]
struct Holder {
    host: Text,
    lease: String,
    create_revision: i64,
    is_cketerm: bool,
}

#[derive(Serialize)]
struct Engine {
    lease: String,
    host: Text,
    pid: u32,
    version: Text,
    mode: Text,
    http: Option<Text>,
    node: Option<Text>,
    missing_programs: Vec<Text>,
    missing_settings: Vec<Text>,
    unable: Option<Text>,
    standing_back: Option<Text>,
    migrating: Option<Text>,
    probes_seen: bool,
    etcd_members_seen: bool,
}

fn engine(lease: i64, engine: &EngineRegistration, mask: &Mask) -> Engine {
    let text = |text: &Option<String>| text.as_ref().map(|text| mask.text(text));
    Engine {
        lease: format!("{lease:x}"),
        host: mask.text(&engine.host),
        pid: engine.pid,
        version: mask.text(&engine.version),
        mode: mask.text(&engine.mode.to_string()),
        http: text(&engine.http),
        node: engine.node.as_ref().map(|node| mask.text(node)),
        missing_programs: engine.missing_programs.iter().map(|program| mask.text(program)).collect(),
        missing_settings: engine.missing_settings.iter().map(|setting| mask.text(&setting.to_string())).collect(),
        unable: text(&engine.unable),
        standing_back: text(&engine.standing_back),
        migrating: text(&engine.migrating),
        probes_seen: engine.probes_seen,
        etcd_members_seen: engine.etcd_members_seen,
    }
}

#[derive(Serialize)]
struct Cluster {
    uid: Text,
    confirmed_by: Option<Text>,
    at: Timestamp,
}

#[derive(Serialize)]
#[allow(clippy::struct_excessive_bools)] // switches, each by itself
struct Switches {
    reboot_queue: bool,
    repair_queue: bool,
    sabakan: bool,
    auto_repair: bool,
}

/// Leader, candidates, engines, identity and switches.
#[derive(Serialize)]
pub(super) struct Leadership {
    revision: i64,
    schema: Option<u32>,
    migrating: bool,
    candidates: Vec<Holder>,
    phase: Option<Text>,
    engines: Vec<Engine>,
    identity: Option<Cluster>,
    enabled: Switches,
    stopped_by: Option<Text>,
    /// Whether a URL of sabakan is stored. The URL itself is left out.
    has_sabakan_url: bool,
    has_template: bool,
    unreadable_keys: Vec<Text>,
}

/// Returns the leadership for a bundle. The first candidate leads.
pub(super) fn leadership(view: &StoreView, mask: &Mask) -> Leadership {
    let holder = |candidate: &Candidate| Holder {
        host: mask.text(&candidate.host),
        lease: format!("{:x}", candidate.lease),
        create_revision: candidate.create_revision,
        is_cketerm: !view.is_cke(candidate),
    };
    let identity = |identity: &Identity| Cluster {
        uid: mask.text(&identity.uid),
        confirmed_by: identity.confirmed_by.as_ref().map(|who| person(who, mask)),
        at: identity.at,
    };
    let engines = view.engines.iter().filter_map(|(lease, stored)| Some(engine(*lease, stored.get()?, mask)));
    Leadership {
        revision: view.revision,
        schema: view.schema.as_ref().and_then(Stored::get).copied(),
        migrating: view.migrating,
        candidates: view.candidates.values().map(holder).collect(),
        phase: view.status.as_ref().and_then(Stored::get).map(|status| mask.text(&status.phase)),
        engines: engines.collect(),
        identity: view.identity.as_ref().and_then(Stored::get).map(identity),
        enabled: Switches {
            reboot_queue: view.reboots.switch.enabled(),
            repair_queue: view.repairs.switch.enabled(),
            sabakan: view.sabakan.enabled(),
            auto_repair: view.auto_repair.enabled(),
        },
        stopped_by: view.stopped.as_ref().and_then(Stored::get).map(|stopped| person(&stopped.who, mask)),
        has_sabakan_url: view.registry.url.is_some(),
        has_template: view.registry.template.is_some(),
        unreadable_keys: view.broken.keys().map(|key| mask.text(key)).collect(),
    }
}
