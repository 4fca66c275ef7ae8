//! Progress of an entry in work, as far as it can be counted.

use cketerm_model::{
    attempt::Attempt,
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
    time::after,
};
use cketerm_rules::usual::{self, Pace, Usual};
use jiff::{SignedDuration, Timestamp};

use super::{App, queries};
use crate::theme::Severity;

/// Progress of an entry in work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A drain: the pods that are gone, of those when it began.
    Pods {
        /// Pods that are gone.
        gone: u32,
        /// Pods at the start.
        all: u32,
    },
    /// A command that runs: its number, and how many may run.
    Command {
        /// Number of the attempt, from 1.
        number: u32,
        /// Attempts that the definition allows.
        allowed: u32,
        /// Its start.
        since: Timestamp,
    },
    /// A command that failed or was not started: the tries so far, and the next one.
    Failed {
        /// Tries that failed.
        tries: u32,
        /// Tries that the definition allows.
        allowed: u32,
        /// Time from which the next try may start; `None` if the definition allows no more.
        again: Option<Timestamp>,
    },
    /// A drain that backed off: the time until which the entry waits.
    Backoff {
        /// End of the backoff.
        until: Timestamp,
        /// Whether somebody leads and the queue is enabled, so that the drain is then tried again.
        is_retried: bool,
    },
    /// A machine that boots, or that has to become healthy.
    Boot {
        /// End of its command.
        since: Timestamp,
        /// Seconds that it may take, if there is a limit.
        limit: Option<u64>,
    },
}

impl Progress {
    /// Returns the severity of the phase, if nothing else is wrong with the entry.
    pub fn severity(self) -> Severity {
        match self {
            Self::Failed { again: None, .. } => Severity::Failed,
            Self::Failed { again: Some(_), .. } | Self::Backoff { .. } => Severity::Slow,
            Self::Pods { .. } => Severity::Draining,
            Self::Command { .. } | Self::Boot { .. } => Severity::Rebooting,
        }
    }
}

/// Returns the progress of an entry. `None` if it is neither in work nor backing off, or if nothing can be counted.
pub fn of(app: &App, id: EntryId) -> Option<Progress> {
    let store = &app.seen.snapshot.store;
    let entry = store.entry(id)?;
    if !entry.in_work() {
        let backs_off = entry.backoff_expire().filter(|until| entry.is_waiting() && *until > app.known());
        let is_retried = queries::retries(&app.seen, id.queue);
        return backs_off.map(|until| Progress::Backoff { until, is_retried });
    }
    if !entry.is_after_command() {
        return queries::progress(&app.seen, id)
            .filter(|progress| progress.pods_at_start > 0)
            .map(|progress| Progress::Pods { gone: progress.pods_gone, all: progress.pods_at_start });
    }
    let attempt = store.attempts_of(id).filter_map(Stored::get).rfind(|attempt| !attempt.success)?;
    let allowed = allowed(app, entry);
    let Some(outcome) = &attempt.outcome else {
        return Some(Progress::Command { number: tries(app, attempt), allowed, since: attempt.start });
    };
    let failed = outcome.end.failed();
    if !failed && !attempt.withheld() {
        return Some(Progress::Boot { since: outcome.at, limit: limit(app, entry) });
    }
    let tries = tries(app, attempt);
    // the definition allows no further try after one that an operator ordered
    let is_last = failed && (tries >= allowed || attempt.ordered_by.is_some());
    let pause = if failed { interval(app, entry) } else { 0 };
    Some(Progress::Failed { tries, allowed, again: (!is_last).then(|| after(outcome.at, pause)) })
}

/// Returns the number of tries of an attempt's command up to it. A command that was not started is no try.
fn tries(app: &App, attempt: &Attempt) -> u32 {
    let all = app.seen.snapshot.store.attempts_of(attempt.entry).filter_map(Stored::get);
    let counted = all.filter(|a| !a.success && a.step == attempt.step && !a.withheld());
    counted.fold(0_u32, |tries, _| tries.saturating_add(1))
}

/// Returns the start of the phase that an entry is in: of its drain, its command, or its boot. All times in its row count
/// from there. An entry that waits has been in its state since its transition, or since its request.
pub fn since(app: &App, id: EntryId) -> Option<Timestamp> {
    let phase = usual::running(&app.seen.snapshot.store, id).map(|running| running.since);
    phase.or_else(|| queries::since(&app.seen, id))
}

/// Time of the running phase, beside the usual one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Time since the phase began.
    pub elapsed: SignedDuration,
    /// The usual time of this phase in this cluster.
    pub usual: Usual,
}

impl Compared {
    /// Returns true if the phase is slower than usual.
    pub fn is_slow(&self) -> bool {
        self.usual.judge(self.elapsed) == Pace::Slow
    }
}

/// Compares the running phase of an entry with the usual one. `None` if it is not in work, or too few have ended.
pub fn compared(app: &App, id: EntryId) -> Option<Compared> {
    // no machine boots because of a command that failed
    if let Some(Progress::Failed { .. }) = of(app, id) {
        return None;
    }
    let running = usual::running(&app.seen.snapshot.store, id)?;
    let usual = app.knowledge.usual.of_kind(&running.kind)?;
    Some(Compared { elapsed: app.known().duration_since(running.since), usual: *usual })
}

/// Returns the number of attempts that the definition allows for the entry's command.
fn allowed(app: &App, entry: EntryRef<'_>) -> u32 {
    match entry {
        EntryRef::Reboot(_) | EntryRef::Maintenance(_) => {
            app.seen.snapshot.store.definition().map_or(1, |d| d.cluster.reboot.tries())
        }
        EntryRef::Repair(repair) => {
            let step = queries::operation(&app.seen, repair).and_then(|operation| operation.step(repair.step));
            1 + step.and_then(|step| step.command_retries).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
        }
    }
}

/// Returns the seconds between a command that failed and the next try.
fn interval(app: &App, entry: EntryRef<'_>) -> i64 {
    let interval = match entry {
        EntryRef::Reboot(_) => app.seen.snapshot.store.definition().and_then(|d| d.cluster.reboot.command_interval),
        EntryRef::Maintenance(_) => None,
        EntryRef::Repair(repair) => {
            let step = queries::operation(&app.seen, repair).and_then(|operation| operation.step(repair.step));
            step.and_then(|step| step.command_interval)
        }
    };
    interval.unwrap_or(0)
}

/// Returns the seconds in which a repaired machine has to become healthy.
fn limit(app: &App, entry: EntryRef<'_>) -> Option<u64> {
    let step = queries::operation(&app.seen, entry.as_repair()?)?.step(entry.as_repair()?.step)?;
    step.watch_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0)
}
