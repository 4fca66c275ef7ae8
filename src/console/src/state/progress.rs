//! Progress of an entry in work, as far as it can be counted.

use cketerm_model::{
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
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
    /// A machine that boots, or that has to become healthy.
    Boot {
        /// End of its command.
        since: Timestamp,
        /// Seconds that it may take, if there is a limit.
        limit: Option<u64>,
    },
}

impl Progress {
    /// Returns the severity of work that proceeds as it should.
    pub fn severity(self) -> Severity {
        match self {
            Self::Pods { .. } => Severity::Draining,
            Self::Command { .. } | Self::Boot { .. } => Severity::Rebooting,
        }
    }
}

/// Returns the progress of an entry. `None` if it is not in work, or if nothing can be counted.
pub fn of(app: &App, id: EntryId) -> Option<Progress> {
    let store = &app.seen.snapshot.store;
    let entry = store.entry(id).filter(|entry| entry.in_work())?;
    if !entry.is_after_command() {
        return queries::progress(&app.seen, id)
            .filter(|progress| progress.pods_at_start > 0)
            .map(|progress| Progress::Pods { gone: progress.pods_gone, all: progress.pods_at_start });
    }
    let attempt = store.attempts_of(id).filter_map(Stored::get).rfind(|attempt| !attempt.success)?;
    Some(match &attempt.outcome {
        None => Progress::Command { number: attempt.number, allowed: allowed(app, entry), since: attempt.start },
        Some(outcome) => Progress::Boot { since: outcome.at, limit: limit(app, entry) },
    })
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
    let running = usual::running(&app.seen.snapshot.store, id)?;
    let usual = app.knowledge.usual.of_kind(&running.kind)?;
    Some(Compared { elapsed: app.known().duration_since(running.since), usual: *usual })
}

/// Returns the number of attempts that the definition allows for the entry's command.
fn allowed(app: &App, entry: EntryRef<'_>) -> u32 {
    match entry {
        EntryRef::Reboot(_) => app.seen.snapshot.store.definition().map_or(1, |d| d.cluster.reboot.tries()),
        EntryRef::Repair(repair) => {
            let step = queries::operation(&app.seen, repair).and_then(|operation| operation.step(repair.step));
            1 + step.and_then(|step| step.command_retries).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
        }
    }
}

/// Returns the seconds in which a repaired machine has to become healthy.
fn limit(app: &App, entry: EntryRef<'_>) -> Option<u64> {
    let step = queries::operation(&app.seen, entry.as_repair()?)?.step(entry.as_repair()?.step)?;
    step.watch_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0)
}
