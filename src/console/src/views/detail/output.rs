//! Output of an entry's newest command, live while it runs, and the attempts of the entry.

use std::sync::Arc;

use cketerm_model::{
    attempt::{Attempt, Ended},
    entry::{EntryId, Stored},
    hook_runs::HookRun,
    output::CommandOutput,
    secret,
};
use ratatui::text::Line;

use super::Text;
use crate::{
    state::{queries, short_text, when},
    table::wrap,
};

/// Number of lines of the output that the pane shows among everything else about the entry.
const SHOWN: usize = 8;

impl Text<'_> {
    /// Adds the output of the newest command. `all`: every kept line, else the last ones.
    pub(super) fn output(&mut self, id: EntryId, all: bool) {
        let seen = Arc::clone(&self.app.seen);
        let store = &seen.snapshot.store;
        let Some(attempt) = store.attempts_of(id).filter_map(Stored::get).rfind(|a| a.began()) else { return };
        let live = store.output.get(&(id, attempt.number)).and_then(Stored::get);
        self.output_of(attempt, live.filter(|_| attempt.open()), all);
    }

    /// Adds the output of an attempt, with its end as the heading.
    pub(super) fn output_of(&mut self, attempt: &Attempt, live: Option<&CommandOutput>, all: bool) {
        let of = step_suffix(attempt);
        let number = attempt.number;
        let heading = match (&attempt.outcome, live) {
            (Some(outcome), _) => format!("Output of attempt {number}{of}: {}", end_of(attempt, &outcome.end)),
            (None, Some(live)) => {
                let age = when::age(live.at, self.now());
                format!("Output of attempt {number}{of}, running for {}, {age} old", self.running_for(attempt))
            }
            (None, None) if queries::running(&self.app.seen, attempt.entry).is_some() => {
                format!("Output of attempt {number}{of}, running for {}: none yet", self.running_for(attempt))
            }
            (None, None) => format!("Output of attempt {number}{of}: unknown, the leader that ran it is gone"),
        };
        self.heading(short_text::safe(&heading));
        let (stdout, stderr) = match (&attempt.outcome, live) {
            (Some(outcome), _) => (&outcome.stdout, &outcome.stderr),
            (None, Some(live)) => (&live.tails.stdout, &live.tails.stderr),
            (None, None) => return,
        };
        let lines = |text: &str| secret::masked(text.trim_end()).lines().map(str::to_owned).collect::<Vec<_>>();
        let (stdout, stderr) = (lines(stdout), lines(stderr));
        if stdout.is_empty() && stderr.is_empty() {
            self.muted("  nothing was printed");
        }
        let both = !stdout.is_empty() && !stderr.is_empty();
        for (label, mut lines) in [("stdout", stdout), ("stderr", stderr)] {
            if lines.is_empty() {
                continue;
            }
            let most = if all { usize::MAX } else { SHOWN.div_ceil(1 + usize::from(both)) };
            let hidden = lines.len().saturating_sub(most);
            let shown = lines.split_off(hidden);
            if both || label == "stderr" || hidden > 0 {
                let key = self.app.key("follow");
                let more =
                    if hidden > 0 { format!(", {hidden} earlier lines: {key} shows all") } else { String::new() };
                self.muted(&format!("  {label}{more}"));
            }
            for line in shown {
                let wrapped = wrap(&short_text::safe(&line), self.width.saturating_sub(2));
                self.lines.extend(wrapped.into_iter().map(|line| Line::from(format!("  {line}"))));
            }
        }
    }

    /// Adds the attempts of an entry.
    pub(super) fn attempts(&mut self, id: EntryId) {
        let seen = Arc::clone(&self.app.seen);
        self.attempt_fields(&seen.snapshot.store.attempts_of(id).filter_map(Stored::get).collect::<Vec<_>>());
    }

    /// Adds the hooks that ran for the entry's drain.
    pub(super) fn hooks(&mut self, id: EntryId) {
        let seen = Arc::clone(&self.app.seen);
        self.hook_fields(seen.snapshot.store.hooks.get(&id).and_then(Stored::get).map_or(&[], |record| &record.runs));
    }

    /// Adds hooks, in the order of their runs.
    pub(super) fn hook_fields(&mut self, runs: &[HookRun]) {
        if runs.is_empty() {
            return;
        }
        self.heading(format!("Hooks: {}", runs.len()));
        for run in runs {
            let tries = if run.tries > 1 { format!(", try {}", run.tries) } else { String::new() };
            let end = match &run.outcome {
                Some(outcome) => outcome.end.to_string(),
                None => format!("running for {}, at most {} s", when::age(run.start, self.now()), run.bound_seconds),
            };
            self.plain(&format!("  {}", run.hook), &format!("{}{tries}: {end}", run.at));
            self.plain("    runs", &run.target);
            let output = run.outcome.as_ref().map_or("", |outcome| outcome.output.trim_end());
            if !output.is_empty() {
                self.plain("    output", &secret::masked(output));
            }
        }
    }

    /// Adds attempts with the output of their commands, newest first.
    pub(super) fn attempt_fields(&mut self, attempts: &[&Attempt]) {
        if attempts.is_empty() {
            return;
        }
        self.heading(format!("Attempts: {}", attempts.len()));
        // Its output is above.
        let shown = attempts.iter().rfind(|a| a.began()).map(|a| a.number);
        for a in attempts.iter().rev() {
            let end = match &a.outcome {
                Some(outcome) => end_of(a, &outcome.end),
                None if queries::running(&self.app.seen, a.entry).is_some_and(|running| running.number == a.number) => {
                    format!("running for {}, at most {} s", self.running_for(a), a.bound_seconds)
                }
                None => "outcome unknown, the leader that ran it is gone".to_owned(),
            };
            let ordered = a.ordered_by.as_deref().map(|o| format!(", ordered by {o}")).unwrap_or_default();
            self.plain(&format!("  #{}", a.number), &format!("{end}, on {}{}{ordered}", a.host, step_suffix(a)));
            self.plain("    argv", &a.command());
            if Some(a.number) == shown {
                continue;
            }
            for (label, tail) in a.outcome.iter().flat_map(|o| [("    stdout", &o.stdout), ("    stderr", &o.stderr)]) {
                let kept: Vec<&str> = tail.trim_end().lines().rev().take(10).collect();
                if !kept.is_empty() {
                    let kept: Vec<&str> = kept.into_iter().rev().collect();
                    self.plain(label, &secret::masked(&kept.join("\n")));
                }
            }
        }
    }

    fn running_for(&self, attempt: &Attempt) -> String {
        when::age(attempt.start, self.now())
    }

    fn muted(&mut self, text: &str) {
        self.lines.push(Line::styled(text.to_owned(), self.app.config.theme.muted));
    }
}

/// Returns how an attempt ended, and how long it took.
fn end_of(attempt: &Attempt, end: &Ended) -> String {
    match (end, &attempt.outcome) {
        // The text contains the time already.
        (Ended::TimedOut(_), _) | (_, None) => end.to_string(),
        (_, Some(outcome)) => format!("{end} after {}", when::age(attempt.start, outcome.at)),
    }
}

/// Returns which of a repair's commands an attempt ran, such as ` of step 2`. Empty for reboots.
pub(super) fn step_suffix(attempt: &Attempt) -> String {
    match attempt.step {
        _ if attempt.success => " of the success command".to_owned(),
        Some(step) => format!(" of step {}", step.saturating_add(1)),
        None => String::new(),
    }
}
