//! Reasons and states in few words, the object first, so that a row of 80 columns says what blocks it.
//! The full sentence is the reason's own `Display`, in the detail pane.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    app::{App, HostId},
    facts, when,
};
use crate::{
    engine::{
        snapshot::Seen,
        trouble::{self, Trouble},
    },
    model::{
        attempt::CheckAnswer,
        entry::{EntryId, QueueKind, Stored},
        host::{HostRow, Mode},
        kube::NodeRow,
        ours::Verb,
        reason::{Reason, SWITCHED_OFF},
        reboot::{RebootEntry, RebootStatus},
        repair::{RepairEntry, RepairStatus, StepStatus},
        secret,
        text::visible,
    },
};

/// A reason for a row.
pub fn reason(reason: &Reason, now: Timestamp) -> String {
    let text = match reason {
        Reason::BlockedByPdb { pod, pdb, healthy, needed } => {
            format!("pdb {pdb} {healthy}/{needed} keeps {}", below(pod, pdb))
        }
        Reason::BlockedByManyPdbs { pod, pdbs } => format!("{} pdbs select {pod}: {}", pdbs.len(), pdbs.join(", ")),
        Reason::BlockedByJob { pod, job } => format!("job {job} runs in {}", below(pod, job)),
        Reason::PodsLeaving { left, first } => format!("{left} leaving: {first}"),
        Reason::EvictionRefused { pod, answer } => format!("{pod} refused: {answer}"),
        Reason::TerminatingStuck { pod, since, node_ready } => {
            let node = if *node_ready { "" } else { ", node NotReady" };
            format!("{pod} terminating {}{node}", when::age(*since, now))
        }
        Reason::Backoff { count, until, cause: None } => {
            format!("backed off {count}x, next {}", when::until(*until, now))
        }
        // what ends it before what narrow screens cut
        Reason::Backoff { until, cause: Some(cause), .. } if cause.starts_with(SWITCHED_OFF) => {
            format!("{}, or reset-backoff ({SWITCHED_OFF})", when::until(*until, now))
        }
        Reason::Backoff { until, cause: Some(cause), .. } => {
            format!("{}: {}", when::until(*until, now), condensed(cause))
        }
        Reason::UncordonedByOther { since } => format!("uncordoned by somebody {} ago", when::age(*since, now)),
        Reason::CommandRunning { since, .. } => format!("command runs {}", when::age(*since, now)),
        Reason::OutcomeUnknown { until: Some(until), .. } => {
            format!("old command may run, known {}", when::until(*until, now))
        }
        Reason::OutcomeUnknown { until: None, .. } => "outcome unknown: order it again, or done".to_owned(),
        Reason::CommandFailed { how, stderr } => {
            let last = stderr.trim_end().lines().last().unwrap_or_default();
            if last.is_empty() { format!("command failed: {how}") } else { format!("command failed: {how}: {last}") }
        }
        Reason::WaitingForBoot { since, last, stuck } => {
            // what a check says of a machine that boots reads like a failure, and is none
            if *stuck {
                let check = if last.is_empty() { String::new() } else { format!(", check: {last}") };
                format!("STUCK, no boot for {}{check}", when::age(*since, now))
            } else if last.starts_with("done by order") {
                // the order stands, and this is what it waits for
                last.clone()
            } else {
                let check = if last.is_empty() { "" } else { ", not back yet" };
                format!("boots for {}{check}", when::age(*since, now))
            }
        }
        Reason::WaitingForHealth { last, .. } if last.is_empty() => "health not checked yet".to_owned(),
        Reason::WaitingForHealth { last, .. } => format!("not healthy yet: {}", health_word(last)),
        Reason::MachineInRepair { entry } => format!("in repair ({entry})"),
        Reason::MachineInReboot { entry } => format!("being rebooted ({entry})"),
        Reason::Settling { until, missing, .. } => {
            let end = until.map(|u| format!(", {}", when::until(u, now))).unwrap_or_default();
            format!("settles: {missing}{end}")
        }
        Reason::OutsideWindow { next_open: Some(at), .. } => format!("window opens {}", when::until(*at, now)),
        Reason::Frozen { until, why } => {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            format!("frozen, ends {}{why}", when::until(*until, now))
        }
        Reason::WaitingForGroup { by, group, holder } => format!("waits for {by} {group} (#{})", holder.index),
        // which of its parts, and where it is, is told in the banner and in the pane
        Reason::Stale { source, since } => {
            let source = source.split(" (").next().unwrap_or_default();
            format!("{source} silent for {}", when::age(*since, now))
        }
        Reason::WaitingForSlot { holder: Some(holder), limit } => {
            format!("waits for a slot, {limit} in use (#{})", holder.index)
        }
        Reason::WaitingForWorkers { holder } => format!("waits for the workers ({holder})"),
        Reason::NodeMismatch { expected, found } => format!("not that machine: {found} instead of {expected}"),
        Reason::OrphanedCordon { entry, .. } => format!("cordon left by {entry}, until booted"),
        other => other.to_string(),
    };
    made_safe(text)
}

/// What a reason is stuck on, in words that are the same for all that are stuck on the same thing.
pub fn stuck_on(why: &Reason, now: Timestamp) -> String {
    let text = match why {
        Reason::BlockedByPdb { pdb, healthy, needed, .. } => format!("pdb {pdb} {healthy}/{needed}"),
        Reason::BlockedByManyPdbs { pdbs, .. } => format!("several pdbs on one pod: {}", pdbs.join(", ")),
        Reason::BlockedByJob { job, .. } => format!("job {job}"),
        Reason::Backoff { cause: Some(cause), .. } => {
            let told = condensed(cause);
            told.split(" keeps ").next().and_then(|t| t.split(" runs in ").next()).unwrap_or_default().to_owned()
        }
        Reason::CommandFailed { how, .. } => format!("command failed: {how}"),
        Reason::UnreachableGate { count, limit, names } => {
            let more = if *count > 1 { " ..." } else { "" };
            let first = names.first().map_or("", String::as_str);
            format!("{count} unreachable, limit {limit} ({first}{more})")
        }
        Reason::OutcomeUnknown { .. } => "outcome unknown".to_owned(),
        Reason::WaitingForBoot { .. } => "no boot".to_owned(),
        Reason::TerminatingStuck { .. } => "pods stuck terminating".to_owned(),
        Reason::NodeMismatch { .. } => "not the machine that was meant".to_owned(),
        Reason::OrphanedCordon { .. } => "cordon left behind".to_owned(),
        Reason::InvalidEntry { .. } => "cannot be read".to_owned(),
        Reason::UncordonedByOther { .. } => "uncordoned by somebody".to_owned(),
        other => return reason(other, now),
    };
    made_safe(text)
}

/// What an entry waits for when nothing is wrong with it.
pub fn waits_for(why: &Reason) -> &'static str {
    match why {
        Reason::WaitingForSlot { .. } => "a slot",
        Reason::WaitingForWorkers { .. } => "the workers",
        Reason::WaitingForControlPlane { .. } | Reason::Settling { .. } => "an API server",
        Reason::Backoff { .. } => "the end of a backoff",
        Reason::OnHold { .. } => "a person (on hold)",
        Reason::DuplicateOf { .. } => "the same machine's other entry",
        Reason::MachineInRepair { .. } => "a repair of the same machine",
        Reason::MachineInReboot { .. } => "a reboot of the same machine",
        Reason::QueueDisabled => "the queue (disabled)",
        Reason::EngineObserving { .. } | Reason::NoEngine { .. } => "an engine that leads",
        Reason::EngineElsewhere { .. } => "the engine elsewhere",
        Reason::Stale { .. } => "a silent source",
        Reason::OutsideWindow { .. } => "the window",
        Reason::WaitingForGroup { .. } => "another group",
        Reason::Frozen { .. } => "the end of the freeze",
        Reason::Ready | Reason::Working { .. } => "the next pass",
        Reason::UnreachableGate { .. } => "unreachable nodes to come back",
        Reason::ControlPlaneUnhealthy { .. } => "a healthy control plane",
        Reason::AwaitingApproval { .. } => "an approval",
        Reason::NoCommand { .. } | Reason::ProgramMissing { .. } => "a command that can be run",
        _ => "something else",
    }
}

/// The whole sentence, for the detail pane.
pub fn sentence(reason: &Reason) -> String {
    safe(&reason.to_string())
}

/// Text from outside for one line: nothing that steers a terminal, and ASCII where the words are ours.
pub fn safe(text: &str) -> String {
    if text.is_ascii() { visible(text, false) } else { visible(&text.replace('\u{d7}', "x"), false) }
}

/// The same of a text of its own: nothing is copied where nothing is to be changed, which is nearly always.
fn made_safe(text: String) -> String {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) { text } else { safe(&text) }
}

/// The sentence of a budget's or a Job's hold (the cause of a backoff is kept as text) in few words, the object first.
fn condensed(cause: &str) -> String {
    let Some((pod, why)) = cause.strip_prefix("pod ").and_then(|rest| rest.split_once(' ')) else {
        return cause.to_owned();
    };
    if let Some((pdb, numbers)) = why.strip_prefix("is kept by pdb ").and_then(|rest| rest.split_once(" (healthy ")) {
        let numbers = numbers.trim_end_matches(')').replace(", needs ", "/");
        return format!("pdb {pdb} {numbers} keeps {}", below(pod, pdb));
    }
    match why.strip_prefix("belongs to the protected running job ") {
        Some(job) => format!("job {job} runs in {}", below(pod, job)),
        None => cause.to_owned(),
    }
}

/// A name that does not fit loses its middle: host names differ at either end.
pub fn squeezed(name: &str, width: usize) -> String {
    let name = safe(name);
    let length = name.chars().count();
    if length <= width || width < 5 {
        return name;
    }
    let tail = (width - 1) / 3;
    let head: String = name.chars().take(width - 1 - tail).collect();
    let tail: String = name.chars().skip(length - tail).collect();
    format!("{head}~{tail}")
}

/// `pod` without its namespace where the other object lies in the same one.
fn below<'a>(pod: &'a str, other: &str) -> &'a str {
    match (pod.split_once('/'), other.split_once('/')) {
        (Some((one, name)), Some((two, _))) if one == two => name,
        _ => pod,
    }
}

/// The status word of an entry.
pub fn status(entry: &RebootEntry, now: Timestamp) -> &'static str {
    match entry.status {
        RebootStatus::Queued if entry.drain_backoff_expire.is_some_and(|t| t > now) => "backoff",
        RebootStatus::Queued => "queued",
        RebootStatus::Draining => "draining",
        RebootStatus::Rebooting => "rebooting",
        RebootStatus::Cancelled => "cancelled",
    }
}

/// The status of a repair in one word: that of its step while it is in work.
pub fn repair_status(entry: &RepairEntry, now: Timestamp) -> &'static str {
    match (entry.status, entry.step_status) {
        _ if entry.deleted => "deleted",
        (RepairStatus::Succeeded, _) => "succeeded",
        (RepairStatus::Failed, _) => "failed",
        (_, StepStatus::Draining) => "draining",
        (_, StepStatus::Watching) => "watching",
        _ if entry.drain_backoff_expire.is_some_and(|t| t > now) => "backoff",
        (RepairStatus::Queued, _) => "queued",
        (RepairStatus::Processing, _) => "waiting",
    }
}

/// Step n of m, counted from 1; `?` where the definition does not have the operation any more. Nothing before the
/// entry's turn has come.
pub fn step(seen: &Seen, entry: &RepairEntry) -> String {
    let begun = || seen.snapshot.store.attempts_of(EntryId::repair(entry.index)).next().is_some();
    let untouched = match entry.status {
        RepairStatus::Queued => entry.step == 0,
        RepairStatus::Succeeded => entry.step == 0 && !begun(),
        _ => false,
    };
    if untouched {
        return String::new();
    }
    let all = facts::operation(seen, entry).map_or_else(|| "?".to_owned(), |o| o.steps().len().to_string());
    // past the last step, a failed one stands where it ended
    let most = facts::operation(seen, entry).and_then(|o| i64::try_from(o.steps().len()).ok()).unwrap_or(i64::MAX);
    format!("{}/{all}", entry.step.saturating_add(1).min(most))
}

/// What was ordered for an entry and still stands, for its row: `[on hold] `.
pub fn order(seen: &Seen, id: EntryId) -> String {
    match facts::order(seen, id) {
        Some(Verb::Hold) if matches!(seen.reasons.get(&id), Some(Reason::OnHold { .. })) => String::new(),
        Some(Verb::Hold) => "[on hold] ".to_owned(),
        Some(verb) => format!("[{verb} ordered] "),
        None => String::new(),
    }
}

/// The command of an entry's step, its address not appended.
pub fn command(seen: &Seen, entry: &RepairEntry) -> String {
    let step = facts::operation(seen, entry).and_then(|o| o.step(entry.step));
    step.and_then(|s| s.repair_command.as_ref()).map(|argv| safe(&secret::argv(argv))).unwrap_or_default()
}

/// What a health check said, in a word or two.
pub fn health(seen: &Seen, id: EntryId) -> String {
    match facts::health(seen, id) {
        None => String::new(),
        Some(CheckAnswer::Yes) => "true".to_owned(),
        Some(CheckAnswer::No(said)) => safe(&health_word(said)),
        Some(CheckAnswer::Unavailable(_)) => "no answer".to_owned(),
    }
}

/// Only `true` is healthy; whatever else a check prints, `OK` for example, is shown as the odd word it is.
fn health_word(said: &str) -> String {
    let said = said.trim();
    match said {
        "" => "no output".to_owned(),
        "false" => said.to_owned(),
        _ if said.starts_with("exit ") => said.split_whitespace().take(2).collect::<Vec<_>>().join(" "),
        _ if said.starts_with("no answer") => said.to_owned(),
        odd => format!("{odd:?}, not true"),
    }
}

/// What a check printed where it is neither a word of health nor a failure: the definition's command is to be mended.
pub fn odd_health(seen: &Seen, id: EntryId) -> Option<String> {
    match facts::health(seen, id) {
        Some(CheckAnswer::No(said)) if health_word(said).ends_with(", not true") => Some(said.trim().to_owned()),
        _ => None,
    }
}

/// How a repair that has ended came to that: what its last attempt says.
pub fn ending(seen: &Seen, entry: &RepairEntry) -> String {
    let last = seen.snapshot.store.attempts_of(EntryId::repair(entry.index)).next_back().and_then(Stored::get);
    let text = match (entry.status, last) {
        (RepairStatus::Succeeded, None) => "was healthy, nothing was run; it can be deleted".to_owned(),
        (RepairStatus::Succeeded, Some(_)) => "healthy; it can be deleted".to_owned(),
        (RepairStatus::Failed, Some(a)) if a.outcome.is_some() && !a.succeeded() => {
            let outcome = a.outcome.as_ref();
            let how = outcome.map(|o| o.end.to_string()).unwrap_or_default();
            let said = outcome.and_then(|o| o.stderr.trim_end().lines().last()).unwrap_or_default();
            let what = if a.success { "success command" } else { "command" };
            format!("{what} failed: {how}{}{said}", if said.is_empty() { "" } else { ": " })
        }
        (RepairStatus::Failed, Some(_)) => "not healthy after the last step".to_owned(),
        (RepairStatus::Failed, None) => "failed; no attempt is recorded".to_owned(),
        _ => String::new(),
    };
    safe(&text)
}

/// Pods gone of pods at the start, where somebody counted them.
pub fn pods(seen: &Seen, id: EntryId) -> String {
    let in_work = match id.queue {
        QueueKind::Reboot => facts::entry(seen, id).is_some_and(|e| e.status != RebootStatus::Queued),
        QueueKind::Repair => facts::repair(seen, id).is_some_and(|e| e.step_status == StepStatus::Draining),
    };
    match facts::progress(seen, id) {
        Some(p) if p.pods_at_start > 0 && in_work => format!("{}/{}", p.pods_gone, p.pods_at_start),
        _ => String::new(),
    }
}

/// `on`, `off`, or `-` where nobody has written it.
pub fn host_power(host: &HostRow) -> &'static str {
    match host.powered_on {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    }
}

/// What is asked of a host, by whom: `reboot hard, cketerm soft`.
pub fn host_asked(host: &HostRow) -> String {
    let base = host.asked.base.iter().map(|value| format!("reboot {}", Mode::of(value)));
    let keys = host.asked.keys.iter().map(|(key, value)| format!("{key} {}", Mode::of(value)));
    safe(&base.chain(keys).collect::<Vec<_>>().join(", "))
}

/// What is to be said of a host beside its fields, and whether a person should look: its error, what keeps a request
/// from being carried out, what our controller is at.
pub fn host(seen: &Seen, id: &HostId) -> (String, bool) {
    let Some(host) = facts::host(seen, id) else { return ("gone".to_owned(), true) };
    let ours = seen.snapshot.metal3.hosts.get(&host.full_name());
    if let Some(error) = ours.and_then(|seen| seen.error.as_ref()) {
        return (safe(error), true);
    }
    if !host.error.is_empty() {
        return (safe(&host.error), true);
    }
    match (host.hindrance(), ours) {
        (Some(why), _) => (safe(&why.to_string()), !host.asked.is_empty()),
        (None, Some(seen)) if !host.asked.is_empty() || host.pending() => (safe(&seen.doing), false),
        _ => (String::new(), false),
    }
}

/// The one truthful state of a node, e.g. `Ready cordoned draining stuck: pdb shop/web 2/2 12/40`: what holds it up before
/// what narrow screens may cut. Also whether that is worth a look.
pub fn node_state(app: &App, name: &str) -> (String, Option<Trouble>) {
    let entries = [app.facts.reboot_of(name), app.facts.repair_of(name)];
    node_state_of(app, name, facts::node(&app.seen, name), entries)
}

/// The same of what is looked up already.
pub fn node_state_of(
    app: &App,
    name: &str,
    node: Option<&Arc<NodeRow>>,
    entries: [Option<EntryId>; 2],
) -> (String, Option<Trouble>) {
    let (seen, now) = (&app.seen, app.known());
    let mut words = String::new();
    let mut trouble = None;
    let entries = || entries.into_iter().flatten();
    match node {
        None if !seen.snapshot.kube.sources.get("nodes").is_some_and(|s| s.synced) => {
            say(&mut words, "unknown (Kubernetes not heard)");
        }
        None => {
            say(&mut words, "no Node");
            trouble = Some(Trouble::Stuck);
        }
        Some(row) => {
            say(&mut words, if row.ready { "Ready" } else { "NotReady" });
            // one whose command was run is away because it was asked to be
            let away = |id| crate::console::overview::ends_anyway(seen, id);
            if !row.ready && !entries().any(away) {
                trouble = Some(Trouble::Stuck);
            }
            if row.unschedulable {
                let kept = row.keep_cordoned || row.owner().is_some_and(|o| !o.schedulable_before);
                say(&mut words, if kept { "cordoned (kept)" } else { "cordoned" });
            }
        }
    }
    for id in entries() {
        if let Some(entry) = facts::entry(seen, id) {
            say(&mut words, status(entry, now));
        } else if let Some(entry) = facts::repair(seen, id) {
            say(&mut words, "repair");
            say(&mut words, repair_status(entry, now));
            say(&mut words, &step(seen, entry));
        }
        let held = trouble::of(seen, id);
        if let Some(why) = seen.reasons.get(&id).filter(|_| held.is_some()) {
            say(&mut words, if held == Some(Trouble::Stuck) { "stuck:" } else { "waits on" });
            say(&mut words, &stuck_on(why, now));
        }
        say(&mut words, &pods(seen, id));
        trouble = trouble.max(held);
    }
    if let Some(orphan) = seen.orphans.get(name) {
        trouble = Some(Trouble::Stuck);
        say(&mut words, &reason(orphan, now));
    }
    (made_safe(words), trouble)
}

/// One more word, if it says something.
fn say(words: &mut String, word: &str) {
    if !words.is_empty() && !word.is_empty() {
        words.push(' ');
    }
    words.push_str(word);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_drain_names_budget_numbers_and_pod_in_few_columns() {
        let why = Reason::BlockedByPdb { pod: "shop/web-7d9f".into(), pdb: "shop/web".into(), healthy: 2, needed: 2 };
        assert_eq!(reason(&why, Timestamp::UNIX_EPOCH), "pdb shop/web 2/2 keeps web-7d9f");
    }

    #[test]
    fn the_cause_of_a_backoff_is_as_short_as_the_hold_that_it_was() {
        let pod = || "shop/db-w4".to_owned();
        let holds = [
            Reason::BlockedByPdb { pod: pod(), pdb: "shop/db".into(), healthy: 2, needed: 2 },
            Reason::BlockedByJob { pod: pod(), job: "shop/nightly".into() },
        ];
        for hold in holds {
            let cause = Some(hold.to_string());
            let until = crate::model::time::after(Timestamp::UNIX_EPOCH, 500);
            let backed_off = Reason::Backoff { count: 1, until, cause };
            let now = Timestamp::UNIX_EPOCH;
            assert_eq!(reason(&backed_off, now), format!("in 8m: {}", reason(&hold, now)));
        }
    }

    /// Review 9 of the operator, 23: the hint was what a row of 80 columns cut.
    #[test]
    fn whom_the_switch_sent_back_is_told_first_what_ends_the_wait() {
        let cause = Some("the queue was disabled (reset-backoff ends the wait)".to_owned());
        let until = crate::model::time::after(Timestamp::UNIX_EPOCH, 240);
        let why = Reason::Backoff { count: 1, until, cause };
        let said = "in 4m, or reset-backoff (the queue was disabled)";
        assert_eq!(reason(&why, Timestamp::UNIX_EPOCH), said);
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(squeezed("worker-012.rack3.tokyo.example.com", 18), "worker-012.r~e.com");
        assert_eq!(squeezed("w1", 18), "w1");
    }

    #[test]
    fn escape_sequences_in_a_reason_do_not_reach_the_terminal() {
        let why = Reason::EvictionRefused { pod: "a/b".into(), answer: "\u{1b}[2J".into() };
        assert!(!reason(&why, Timestamp::UNIX_EPOCH).contains('\u{1b}'));
    }
}
