//! Entries that wait for a person, of both queues. Entries with one cause are one line.

use std::collections::BTreeMap;

use cketerm_model::{entry::EntryId, entry_ref::EntryRef, reason::Reason, repair::RepairStatus};
use cketerm_rules::trouble;

use super::{NeedsYou, Urgency};
use crate::{
    keys::Command,
    state::{App, object::Object, queries, short_text},
};

/// Returns a line for each cause, by the entry that it has held longest.
pub(super) fn lines(app: &App) -> Vec<NeedsYou> {
    let mut causes: BTreeMap<String, NeedsYou> = BTreeMap::new();
    for id in trouble::all_stuck(&app.seen) {
        let cause = cause(app, id);
        let line = line(app, id);
        match causes.get_mut(&cause) {
            None => {
                causes.insert(cause, line);
            }
            Some(known) => {
                let count = known.count + 1;
                if known.since.is_none_or(|at| line.since.is_some_and(|since| since < at)) {
                    *known = line;
                }
                known.count = count;
            }
        }
    }
    let with_cause = |(cause, line): (String, NeedsYou)| {
        // a single entry shows its whole reason, with the pod
        if line.count > 1 { NeedsYou { what: cause, ..line } } else { line }
    };
    causes.into_iter().map(with_cause).collect()
}

fn line(app: &App, id: EntryId) -> NeedsYou {
    let name = queries::machine(&app.seen, id).unwrap_or_else(|| id.to_string());
    let what = match app.seen.reasons.get(&id).filter(|why| trouble::own(why)) {
        Some(why) => short_text::reason(why, app.known()),
        None => match queries::repair(&app.seen, id) {
            Some(entry) if entry.status == RepairStatus::Failed => {
                format!("{}: {}", entry.operation, short_text::ending(&app.seen, entry))
            }
            _ => cause(app, id),
        },
    };
    let line = NeedsYou::new(Object::Entry(id), name, what, Urgency::Stuck);
    line.since(queries::since(&app.seen, id)).remedies(&remedies(app, id))
}

/// Returns the cause that an entry is stuck on, as the same text for all entries stuck on it.
fn cause(app: &App, id: EntryId) -> String {
    let seen = &app.seen;
    match (seen.reasons.get(&id).filter(|why| trouble::own(why)), queries::repair(seen, id)) {
        (Some(why), _) => short_text::stuck_on(why, app.now.wall),
        (None, Some(entry)) if entry.status == RepairStatus::Failed => {
            format!("{} failed", short_text::safe(&entry.operation))
        }
        _ => "cannot be read".to_owned(),
    }
}

/// Returns the commands that may end the trouble of an entry, the usual one first.
fn remedies(app: &App, id: EntryId) -> Vec<Command> {
    let Some(entry) = app.seen.snapshot.store.entry(id) else { return vec![Command::Cancel] };
    let failed = matches!(entry, EntryRef::Repair(repair) if repair.status == RepairStatus::Failed);
    let backoff = matches!(app.seen.reasons.get(&id), Some(Reason::Backoff { .. }));
    if failed {
        vec![Command::Repair, Command::Cancel]
    } else if entry.is_after_command() {
        vec![Command::Retry, Command::Done, Command::Cancel]
    } else if backoff {
        vec![Command::ResetBackoff, Command::Hold, Command::Force, Command::Cancel]
    } else {
        vec![Command::Hold, Command::Force, Command::Cancel]
    }
}
