//! Short texts for the rows of entries, hosts and Nodes.

use std::sync::Arc;

use cketerm_model::{
    attempt::CheckAnswer,
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    host::{HostRow, Mode},
    kube::NodeRow,
    maintenance::{MaintenanceEntry, MaintenanceStatus},
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
    secret,
};
use cketerm_rules::{
    reboot_needed::list::cause_of,
    seen::Seen,
    trouble::{self, Trouble},
    usual::text::span,
};
use jiff::{SignedDuration, Timestamp};

use super::{into_safe, reason, safe, stuck_on};
use crate::state::{App, HostId, progress::Progress, queries, when};

/// Returns the status of an entry in one word.
pub fn status(entry: &RebootEntry, now: Timestamp) -> &'static str {
    match entry.status {
        RebootStatus::Queued if entry.drain_backoff_expire.is_some_and(|t| t > now) => "backoff",
        RebootStatus::Queued => "queued",
        RebootStatus::Draining => "draining",
        RebootStatus::Rebooting => "rebooting",
        RebootStatus::Cancelled => "cancelled",
    }
}

/// Returns the status of a repair in one word: that of its step while it is in progress.
pub fn repair_status(entry: &RepairEntry, now: Timestamp) -> &'static str {
    match (entry.status, entry.step_status) {
        _ if entry.deleted => "deleted",
        (RepairStatus::Succeeded, _) => "succeeded",
        (RepairStatus::Failed, _) => "failed",
        (_, StepStatus::Draining) => "draining",
        (_, StepStatus::Watching) => "watching",
        _ if entry.drain_backoff_expire.is_some_and(|t| t > now) => "backoff",
        // its next step has not begun
        (RepairStatus::Queued | RepairStatus::Processing, _) => "queued",
    }
}

/// Returns step n of m, counted from 1, with `?` if the definition no longer has the operation. Empty before the
/// entry's turn.
pub fn step(seen: &Seen, entry: &RepairEntry) -> String {
    let has_attempts = || seen.snapshot.store.attempts_of(EntryId::repair(entry.index)).next().is_some();
    let not_started = match entry.status {
        RepairStatus::Queued => entry.step == 0,
        RepairStatus::Succeeded => entry.step == 0 && !has_attempts(),
        RepairStatus::Processing | RepairStatus::Failed => false,
    };
    if not_started {
        return String::new();
    }
    let all = queries::operation(seen, entry).map_or_else(|| "?".to_owned(), |o| o.steps().len().to_string());
    // a failed entry past the last step shows the last step
    let last_step =
        queries::operation(seen, entry).and_then(|o| i64::try_from(o.steps().len()).ok()).unwrap_or(i64::MAX);
    format!("{}/{all}", entry.step.saturating_add(1).min(last_step))
}

/// Returns the order of an entry that is still in force, for its row: `[on hold] `.
pub fn order(seen: &Seen, id: EntryId) -> String {
    match queries::order(seen, id) {
        Some(Verb::Hold) if matches!(seen.reasons.get(&id), Some(Reason::OnHold { .. })) => String::new(),
        Some(Verb::Hold) => "[on hold] ".to_owned(),
        Some(verb) => format!("[{verb} ordered] "),
        None => String::new(),
    }
}

/// Returns the command of an entry's step, without the address.
pub fn command(seen: &Seen, entry: &RepairEntry) -> String {
    let step = queries::operation(seen, entry).and_then(|o| o.step(entry.step));
    step.and_then(|s| s.repair_command.as_ref()).map(|argv| safe(&secret::argv(argv))).unwrap_or_default()
}

/// Returns the answer of a health check in one or two words.
pub fn health(seen: &Seen, id: EntryId) -> String {
    match queries::health(seen, id) {
        None => String::new(),
        Some(CheckAnswer::Yes) => "true".to_owned(),
        Some(answer @ (CheckAnswer::No(_) | CheckAnswer::Failed { .. } | CheckAnswer::TimedOut(_))) => {
            safe(&answer.to_string())
        }
        Some(CheckAnswer::Unavailable(_)) => "no answer".to_owned(),
    }
}

/// Returns the output of a health check that neither reports health nor a failure: the definition's command needs a
/// fix.
pub fn unrecognized_health(seen: &Seen, id: EntryId) -> Option<String> {
    queries::health(seen, id)?.unrecognized().map(str::to_owned)
}

/// Returns the cause of a repair's end, from its last attempt.
pub fn ending(seen: &Seen, entry: &RepairEntry) -> String {
    let last = seen.snapshot.store.attempts_of(EntryId::repair(entry.index)).next_back().and_then(Stored::get);
    let text = match (entry.status, last) {
        (RepairStatus::Succeeded, None) => "finished: was healthy, nothing was run".to_owned(),
        (RepairStatus::Succeeded, Some(_)) => "finished: healthy".to_owned(),
        (RepairStatus::Failed, Some(a)) if a.outcome.is_some() && !a.succeeded() => {
            let outcome = a.outcome.as_ref();
            let how = outcome.map(|o| o.end.to_string()).unwrap_or_default();
            let output = outcome.and_then(|o| o.stderr.trim_end().lines().last()).unwrap_or_default();
            let what = if a.success { "success command" } else { "command" };
            format!("{what} failed: {how}{}{output}", if output.is_empty() { "" } else { ": " })
        }
        (RepairStatus::Failed, Some(_)) => "not healthy after the last step".to_owned(),
        (RepairStatus::Failed, None) => "failed; no attempt is recorded".to_owned(),
        _ => String::new(),
    };
    safe(&text)
}

/// Returns the pods that are gone, of those at the start, if they were counted.
pub fn pods(seen: &Seen, id: EntryId) -> String {
    let in_work = match seen.snapshot.store.entry(id) {
        None => false,
        Some(EntryRef::Reboot(e)) => e.status != RebootStatus::Queued,
        Some(EntryRef::Repair(e)) => e.step_status == StepStatus::Draining,
        Some(EntryRef::Maintenance(e)) => e.status == MaintenanceStatus::Draining,
    };
    match queries::progress(seen, id) {
        Some(p) if p.pods_at_start > 0 && in_work => format!("{}/{}", p.pods_gone, p.pods_at_start),
        _ => String::new(),
    }
}

/// Returns the progress of an entry: `6/8` pods, `try 2/3, 16s`, `retry 2/3 in 5s`, `failed 3/3`, or the time since its
/// command.
pub fn progress(progress: &Progress, now: Timestamp) -> String {
    match progress {
        Progress::Pods { gone, all } => format!("{gone}/{all}"),
        Progress::Command { number, allowed, since } if number <= allowed => {
            format!("try {number}/{allowed}, {}", when::age(*since, now))
        }
        Progress::Command { number, since, .. } => format!("try {number}, {}", when::age(*since, now)),
        Progress::Failed { tries, allowed, again: None } if tries <= allowed => format!("failed {tries}/{allowed}"),
        Progress::Failed { tries, again: None, .. } => format!("failed {tries}x"),
        Progress::Failed { tries, allowed, again: Some(at) } => {
            format!("retry {}/{allowed} {}", tries.saturating_add(1), when::until(*at, now))
        }
        Progress::Backoff { until, is_retried: true } => format!("again {}", when::until(*until, now)),
        Progress::Backoff { until, is_retried: false } => format!("{} left", when::left(*until, now)),
        Progress::Boot { since, limit: None } => format!("boot {}", when::age(*since, now)),
        Progress::Boot { since, limit: Some(limit) } => {
            format!("{}/{}", when::age(*since, now), span(SignedDuration::from_secs(limit.cast_signed())))
        }
    }
}

/// Reports whether a host that was last seen on is asked to be off, and its controller acts on that.
pub fn turns_off(host: &HostRow) -> bool {
    let is_asked = !host.online || !host.asked.keys.is_empty();
    let is_followed = !(host.paused || host.detached || host.deleting || host.disable_power_off);
    host.powered_on == Some(true) && is_asked && is_followed
}

/// Returns `on`, `off`, `turning off`, or `-` if the power is not recorded.
pub fn host_power(host: &HostRow) -> &'static str {
    match host.powered_on {
        Some(true) if turns_off(host) => "turning off",
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    }
}

/// Returns the requests to a host and their keys: `reboot hard, cketerm soft`.
pub fn host_requests(host: &HostRow) -> String {
    let base = host.asked.base.iter().map(|value| format!("reboot {}", Mode::of(value)));
    let keys = host.asked.keys.iter().map(|(key, value)| format!("{key} {}", Mode::of(value)));
    safe(&base.chain(keys).collect::<Vec<_>>().join(", "))
}

/// Returns further text about a host, and whether an operator should look: its error, what keeps a request from being
/// carried out, the phase of cketerm's controller.
pub fn host(seen: &Seen, id: &HostId) -> (String, bool) {
    let Some(host) = queries::host(seen, id) else { return ("gone".to_owned(), true) };
    let controller = seen.snapshot.metal3.hosts.get(&host.full_name());
    if let Some(error) = controller.and_then(|seen| seen.error.as_ref()) {
        return (safe(error), true);
    }
    if !host.error.is_empty() {
        return (safe(&host.error), true);
    }
    match (host.hindrance(), controller) {
        (Some(why), _) => (safe(&why.to_string()), !host.asked.is_empty()),
        (None, Some(seen)) if !host.asked.is_empty() || host.pending() => (safe(&seen.doing), false),
        _ => (String::new(), false),
    }
}

/// Returns the state of a node, e.g. `Ready, cordoned, draining, stuck: pdb shop/web has 2, needs 2, 12/40 pods`, and its
/// trouble. The blocker comes early, because narrow screens cut the end.
pub fn node_state(app: &App, name: &str) -> (String, Option<Trouble>) {
    node_state_of(app, name, queries::node(&app.seen, name), app.knowledge.totals.by_kind(name))
}

/// Returns the state from data that is looked up already.
pub fn node_state_of(
    app: &App,
    name: &str,
    node: Option<&Arc<NodeRow>>,
    entries: [Option<EntryId>; 3],
) -> (String, Option<Trouble>) {
    let (seen, now) = (&app.seen, app.known());
    let mut words = String::new();
    let mut trouble = None;
    let entries = || entries.into_iter().flatten();
    match node {
        None if !seen.snapshot.kube.sources.get("nodes").is_some_and(|s| s.synced) => {
            push_part(&mut words, "unknown (no Kubernetes data)");
        }
        None => {
            push_part(&mut words, "no Node");
            trouble = Some(Trouble::Stuck);
        }
        Some(row) => {
            push_part(&mut words, if row.ready { "Ready" } else { "NotReady" });
            // a machine is expected to be away once its command was run
            let is_rebooting = |id| crate::state::queries::finishes_anyway(seen, id);
            if !row.ready && !entries().any(is_rebooting) {
                trouble = Some(Trouble::Stuck);
            }
            if row.unschedulable {
                let kept = row.keep_cordoned || row.owner().is_some_and(|o| !o.schedulable_before);
                push_part(&mut words, if kept { "cordoned (kept)" } else { "cordoned" });
            }
            let cause = cause_of(&seen.snapshot.store, &seen.snapshot.reboot_signals, row, now);
            if let Some(cause) = cause.filter(|_| entries().next().is_none()) {
                push_part(&mut words, &format!("needs a reboot: {cause}"));
            }
        }
    }
    for id in entries() {
        if let Some(entry) = queries::entry(seen, id) {
            push_part(&mut words, status(entry, now));
        } else if let Some(entry) = queries::repair(seen, id) {
            let what = format!("repair {} {}", repair_status(entry, now), step(seen, entry));
            push_part(&mut words, what.trim_end());
        } else if let Some(entry) = queries::maintenance(seen, id) {
            push_part(&mut words, &maintenance_state(entry, now));
        }
        let entry_trouble = trouble::of(seen, id);
        if let Some(why) = seen.reasons.get(&id).filter(|_| entry_trouble.is_some()) {
            let is_past = matches!(why, Reason::Backoff { tried: Some(_), .. });
            let how = match entry_trouble {
                Some(Trouble::Stuck) => "stuck:",
                Some(Trouble::Waits) | None if is_past => "was held by",
                Some(Trouble::Waits) | None => "waits on",
            };
            push_part(&mut words, &format!("{how} {}", stuck_on(why, now)));
        }
        let pods = pods(seen, id);
        push_part(&mut words, &if pods.is_empty() { pods } else { format!("{pods} pods") });
        trouble = trouble.max(entry_trouble);
    }
    if let Some(orphan) = seen.orphans.get(name) {
        trouble = Some(Trouble::Stuck);
        push_part(&mut words, &reason(orphan, now));
    }
    (into_safe(words), trouble)
}

/// Returns the state of a maintenance, e.g. `in maintenance, ends in 3h`.
pub fn maintenance_state(entry: &MaintenanceEntry, now: Timestamp) -> String {
    match entry.status {
        MaintenanceStatus::Queued => "waits for maintenance".to_owned(),
        MaintenanceStatus::Draining => "draining for maintenance".to_owned(),
        MaintenanceStatus::InMaintenance => format!("in maintenance, ends {}", when::until(entry.until, now)),
    }
}

/// Appends a part, if it is not empty.
fn push_part(text: &mut String, part: &str) {
    if !text.is_empty() && !part.is_empty() {
        text.push_str(", ");
    }
    text.push_str(part);
}
