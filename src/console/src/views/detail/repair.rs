//! Pane of a repair: its state, its steps and the result of each.

use std::sync::Arc;

use cketerm_model::{
    attempt::Attempt,
    cketerm_records::Verb,
    cluster::{Operation, describe_steps},
    entry::{EntryId, Stored},
    repair::{RepairEntry, RepairStatus, StepStatus},
    secret,
};
use cketerm_rules::trouble;
use ratatui::{style::Style, text::Line};

use super::{FORCE, HOLD, RESET, RETRY, Text, UNHOLD};
use crate::{
    state::{View, available, calendar, queries, short_text, when},
    table::wrap,
};

impl Text<'_> {
    /// Adds a repair. `alone`: the pane is the entry's own; else the node's lines are above it already.
    pub(super) fn repair(&mut self, id: EntryId, alone: bool) {
        let seen = Arc::clone(&self.app.seen);
        let theme = self.app.config.theme.clone();
        let Some(entry) = queries::repair(&seen, id) else { return };
        let name = seen.snapshot.machine(&entry.address);
        let since = queries::since(&seen, id).map(|at| format!(" since {}", self.moment(at))).unwrap_or_default();
        let style = match entry.status {
            RepairStatus::Failed => theme.danger,
            RepairStatus::Succeeded => theme.good,
            _ => Style::new(),
        };
        self.field("status", &format!("{}{since}", short_text::repair_status(entry, self.now())), style);
        if entry.deleted {
            self.plain("", "It is marked as deleted: the leader removes it.");
        } else if entry.finished() {
            self.field("ended", &short_text::ending(&seen, entry), style);
        }
        if let Some(why) = seen.reasons.get(&id).filter(|_| !entry.finished()) {
            let style = if trouble::own(why) { theme.trouble } else { Style::new() };
            self.field("why", &calendar::with_local_times(self.app, &short_text::sentence(why)), style);
        }
        self.pace_field(id);
        self.order_field(id);
        self.next(id, entry);
        self.health(id, entry);
        self.output(id, false);
        let operation = queries::operation(&seen, entry);
        if entry.step_status == StepStatus::Draining && entry.unfinished() {
            self.pods_left(id);
        }
        if let Some(operation) = operation {
            self.steps(id, entry, operation);
        }
        let moved = match entry.status {
            _ if entry.deleted => "deleted".to_owned(),
            RepairStatus::Processing => format!("step {} {}", entry.step.saturating_add(1), entry.step_status),
            other => other.to_string(),
        };
        self.timeline(id, entry.last_transition_time, &moved);
        self.heading("Entry".to_owned());
        let serial = entry.serial.as_ref().map(|s| format!(", serial {s}")).unwrap_or_default();
        self.plain("machine", &format!("{} {}, type {}{serial}", name, entry.address, entry.machine_type));
        let step = Some(short_text::step(&seen, entry)).filter(|s| !s.is_empty());
        let step = step.map_or_else(|| "not begun".to_owned(), |step| format!("step {step}"));
        self.plain("operation", &format!("{}, {step}", entry.operation));
        if operation.is_none() {
            let text = format!("the definition has no {} for {} any more", entry.operation, entry.machine_type);
            self.field("", &text, theme.trouble);
        }
        self.backoff_field(id.queue, entry.drain_backoff_count, entry.drain_backoff_expire);
        self.requested(id);
        if alone {
            if queries::node(&seen, &name).is_some() || queries::member(&seen, &name).is_some() {
                self.machine(&name);
            } else {
                self.plain("node", "none: the machine is outside the cluster, nothing is drained");
            }
        }
        let mut can = choices(entry, seen.snapshot.store.success_unknown(id), queries::order(&seen, id));
        can.retain(|action| *action != RETRY || queries::running(&seen, id).is_none());
        can.retain(|(name, _)| available::honoured(self.app, name, View::Repairs));
        self.blockers_first(id, &mut can);
        match can.as_slice() {
            [] => self.plain("you can", "wait: the leader removes it"),
            can => self.available_actions_field(can),
        }
        self.attempts(id);
        self.hooks(id);
    }

    /// Adds the deadline of the current phase.
    fn next(&mut self, id: EntryId, entry: &RepairEntry) {
        let Some(at) = queries::deadline(&self.app.seen, id) else { return };
        let what = match (entry.status, entry.step_status) {
            (RepairStatus::Processing, StepStatus::Watching) => "the watch ends",
            (RepairStatus::Processing, StepStatus::Draining) => "the drain is given up",
            _ if queries::retries(&self.app.seen, id.queue) => "it is retried",
            _ => "its backoff ends",
        };
        let text = format!("{what} {} ({})", when::until(at, self.now()), calendar::time(self.app, at));
        self.plain("next", &text);
    }

    /// Adds the last answer of the health check, and whether such an answer can never mean "healthy".
    fn health(&mut self, id: EntryId, entry: &RepairEntry) {
        let seen = Arc::clone(&self.app.seen);
        if let Some(answer) = queries::health(&seen, id).filter(|_| entry.unfinished()) {
            let since = queries::progress(&seen, id).and_then(|p| p.check.as_ref());
            let since = since.filter(|(_, previous)| previous == answer);
            let since = since.map(|(at, _)| format!(", since {}", self.moment(*at))).unwrap_or_default();
            self.plain("health", &format!("{answer}{since}"));
        }
        if let Some(odd) = short_text::unrecognized_health(&seen, id).filter(|_| entry.unfinished()) {
            let text =
                format!("the health check prints {odd:?}: only `true` counts as healthy, fix health_check_command");
            self.field("", &text, self.app.config.theme.trouble);
        }
    }

    /// Adds the operation's steps and the results of those that were begun.
    fn steps(&mut self, id: EntryId, entry: &RepairEntry, operation: &Operation) {
        let seen = Arc::clone(&self.app.seen);
        let store = &seen.snapshot.store;
        self.heading(format!("Steps of {}: {}", entry.operation, operation.steps().len()));
        for (step_number, command_text) in (0_i64..).zip(describe_steps(operation.steps(), &entry.address)) {
            let now = entry.status == RepairStatus::Processing && entry.step == step_number;
            let tries: Vec<&Attempt> = store
                .attempts_of(id)
                .filter_map(Stored::get)
                .filter(|a| a.step == Some(step_number) && !a.success)
                .collect();
            let result = match tries.last() {
                None => String::new(),
                Some(last) => {
                    let end = last.outcome.as_ref().map_or_else(|| "runs".to_owned(), |o| o.end.to_string());
                    let attempt_number =
                        if tries.len() > 1 { format!(" at try {}", tries.len()) } else { String::new() };
                    format!(" [{end}{attempt_number}]")
                }
            };
            let here = if now { format!(" <- {}", entry.step_status) } else { String::new() };
            let mark = if now { ">" } else { " " };
            let text = short_text::safe(&format!("{command_text}{result}{here}"));
            for (i, line) in wrap(&text, self.width.saturating_sub(4)).into_iter().enumerate() {
                let mark = if i == 0 { mark } else { " " };
                self.lines.push(Line::from(format!("{mark} {line}")));
            }
        }
        if let Some(argv) = operation.success_command.as_ref().filter(|argv| !argv.is_empty()) {
            let ran = store.attempts_of(id).filter_map(Stored::get).rfind(|a| a.success);
            let result = ran.and_then(|a| a.outcome.as_ref()).map(|o| format!(" [{}]", o.end)).unwrap_or_default();
            self.lines.push(Line::from(short_text::safe(&format!("  once healthy: {}{result}", secret::argv(argv)))));
        }
    }
}

/// Returns the commands that make sense in the entry's state, and their effects. `success_unknown`: the outcome of its
/// success command is unknown.
fn choices(entry: &RepairEntry, success_unknown: bool, order: Option<Verb>) -> Vec<(&'static str, &'static str)> {
    let mut can = vec![("cancel", "delete")];
    let commanded = entry.claims_machine() && entry.step_status == StepStatus::Watching;
    match (entry.status, entry.step_status) {
        _ if entry.deleted => return Vec::new(),
        (RepairStatus::Succeeded | RepairStatus::Failed, _) => can.push(("repair", "repair once more")),
        _ if commanded || success_unknown => can.extend([RETRY, ("done", "done (treat as healthy)")]),
        (_, StepStatus::Draining) => can.extend([HOLD, FORCE]),
        _ => can.push(HOLD),
    }
    can.extend((entry.unfinished() && !commanded && entry.drain_backoff_count > 0).then_some(RESET));
    can.extend((order == Some(Verb::Hold)).then_some(UNHOLD));
    can
}
