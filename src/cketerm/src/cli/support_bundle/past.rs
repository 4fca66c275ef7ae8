//! Audit records and ended entries of a bundle.

use cketerm_model::{
    cketerm_records::{Audit, Ending},
    entry::EntryId,
    hook_runs::HookRun,
};
use jiff::Timestamp;
use serde::Serialize;

use super::{
    cluster::program_of_text,
    queues::{Requested, Tried, person, requested, tried},
    safe::{Mask, Text},
};

/// An audit record.
#[derive(Serialize)]
pub(super) struct Action {
    at: Timestamp,
    who: Text,
    what: Text,
    on: Text,
    reason: Option<Text>,
    result: Text,
    failed: bool,
    entry: Option<EntryId>,
    tries: u32,
}

/// Returns an audit record for a bundle.
pub(super) fn action(audit: &Audit, mask: &Mask) -> Action {
    let result = if audit.shows_command_line() { program_of_text(&audit.result) } else { &audit.result };
    Action {
        at: audit.at,
        who: person(&audit.who, mask),
        what: mask.text(&audit.what),
        on: mask.text(&audit.on),
        reason: audit.reason.as_ref().map(|reason| mask.text(reason)),
        result: mask.text(result),
        failed: audit.failed,
        entry: audit.entry,
        tries: audit.count(),
    }
}

#[derive(Serialize)]
struct Hook {
    name: Text,
    at: &'static str,
    tries: u32,
    host: Text,
    start: Timestamp,
    end: Option<Text>,
}

fn hook(run: &HookRun, mask: &Mask) -> Hook {
    Hook {
        name: mask.text(&run.hook),
        at: run.at.as_str(),
        tries: run.tries,
        host: mask.text(&run.host),
        start: run.start,
        end: run.outcome.as_ref().map(|outcome| mask.text(&outcome.end.to_string())),
    }
}

/// An entry that ended.
#[derive(Serialize)]
pub(super) struct Ended {
    entry: EntryId,
    address: Text,
    outcome: Text,
    is_good: bool,
    withdrawn_by: Option<Text>,
    at: Timestamp,
    request: Option<Requested>,
    attempts: Vec<Tried>,
    omitted_attempts: u32,
    hooks: Vec<Hook>,
}

/// Returns an ended entry for a bundle. Outputs of commands are left out.
pub(super) fn ended(ending: &Ending, mask: &Mask) -> Ended {
    Ended {
        entry: ending.entry,
        address: mask.text(&ending.address),
        outcome: mask.text(&ending.outcome),
        is_good: ending.good(),
        withdrawn_by: ending.withdrawn_by.as_ref().map(|who| person(who, mask)),
        at: ending.at,
        request: ending.request.as_ref().map(|request| requested(request, mask)),
        attempts: ending.attempts.iter().map(|attempt| tried(attempt, mask)).collect(),
        omitted_attempts: ending.omitted,
        hooks: ending.hooks.iter().map(|run| hook(run, mask)).collect(),
    }
}
