//! Entries that wait for a person, of both queues. Entries with one cause are one line.

use std::collections::{BTreeMap, btree_map::Entry};

use cketerm_model::{entry::EntryId, entry_ref::EntryRef, reason::Reason, repair::RepairStatus};
use cketerm_rules::{
    trouble,
    usual::{self, Pace, Phase},
};

use super::{NeedsYou, Urgency, stuck_after};
use crate::{
    keys::Command,
    state::{
        App, blockers,
        object::Object,
        queries,
        short_text::{self, Forms},
        when,
    },
};

/// Most texts of one cause that are counted.
const MAX_TEXTS: usize = 64;

/// Entries with one cause.
struct Cause {
    /// Line about the entry that has waited longest.
    line: NeedsYou,
    /// Number of entries by their text, of a cause that is not an object.
    texts: BTreeMap<String, usize>,
    /// Budget with the trouble behind it, of the first entry that knows it.
    trouble: Option<Forms>,
}

/// Returns a line for each cause, by the entry that it has held longest.
pub(super) fn lines(app: &App) -> Vec<NeedsYou> {
    let mut causes: BTreeMap<String, Cause> = BTreeMap::new();
    for id in app.knowledge.totals.stuck.iter().copied() {
        let line = line(app, id);
        // a budget or a Job is the cause itself, whichever pod it keeps
        let why = app.seen.reasons.get(&id);
        let names_object = why.is_some_and(short_text::names_object);
        let trouble = why.and_then(short_text::budget_trouble);
        let trouble = trouble.map(|whole| Forms { whole, shorter: line.shorter.clone() });
        // unreadable entries are removed one by one
        let is_readable = app.seen.snapshot.store.entry(id).is_some();
        match causes.entry(if is_readable { cause(app, id) } else { id.to_string() }) {
            Entry::Vacant(vacant) => {
                let texts = if names_object { BTreeMap::new() } else { BTreeMap::from([(line.what.clone(), 1)]) };
                vacant.insert(Cause { line, texts, trouble });
            }
            Entry::Occupied(mut occupied) => {
                let Cause { line: known, texts, trouble: known_trouble } = occupied.get_mut();
                // not every entry knows the trouble behind a budget
                *known_trouble = known_trouble.take().or(trouble);
                if !names_object && (texts.len() < MAX_TEXTS || texts.contains_key(&line.what)) {
                    *texts.entry(line.what.clone()).or_default() += 1;
                }
                known.add(line);
            }
        }
    }
    let with_cause = |(key, Cause { line, texts, trouble }): (String, Cause)| {
        // a single entry shows its whole reason, with the pod; of several, the commonest one says the most
        let commonest = texts.into_iter().max_by_key(|(_, n)| *n).filter(|(_, n)| *n > 1);
        match (line.count, commonest) {
            (0 | 1, _) => line,
            // the shorter forms belong to the text of this entry
            (_, Some((what, _))) if what == line.what => line,
            (_, Some((what, _))) => NeedsYou { what, shorter: Vec::new(), ..line },
            (_, None) => match trouble {
                Some(Forms { whole, shorter }) => NeedsYou { what: whole, shorter, ..line },
                None => NeedsYou { what: key, ..line },
            },
        }
    };
    causes.into_iter().map(with_cause).collect()
}

/// Returns the entries in work whose phase is slower than usual and has lasted for the policy's `stuck_seconds`. Those that
/// are stuck have their own lines.
pub(super) fn slow(app: &App) -> Vec<NeedsYou> {
    let store = &app.seen.snapshot.store;
    let limit = stuck_after(app);
    let mut lines: BTreeMap<String, NeedsYou> = BTreeMap::new();
    for id in app.knowledge.totals.in_work.iter().copied() {
        let Some(running) = usual::running(store, id) else { continue };
        let elapsed = app.known().duration_since(running.since);
        if elapsed < limit || trouble::is_stuck(&app.seen, id) {
            continue;
        }
        let phase = phase_name(running.kind.phase);
        let what = match app.knowledge.usual.of_kind(&running.kind) {
            Some(usual) if usual.judge(elapsed) == Pace::Usual => continue,
            Some(usual) => format!("{phase} slower than usual ({})", usual.range()),
            None => format!("{phase} takes longer than {}", when::span(limit)),
        };
        let name = queries::machine(&app.seen, id).unwrap_or_else(|| id.to_string());
        let line = NeedsYou::new(Object::Entry(id), name, what.clone(), Urgency::Waits);
        let line = line.since(Some(running.since)).remedies(&remedies(app, id));
        match lines.entry(what) {
            Entry::Vacant(vacant) => {
                vacant.insert(line);
            }
            Entry::Occupied(mut occupied) => occupied.get_mut().add(line),
        }
    }
    lines.into_values().collect()
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Drain => "drain",
        Phase::Command => "command",
        Phase::Boot => "boot",
        Phase::RepairStep => "repair step",
        Phase::Whole => "work",
    }
}

fn line(app: &App, id: EntryId) -> NeedsYou {
    let name = queries::machine(&app.seen, id).unwrap_or_else(|| id.to_string());
    let forms = match app.seen.reasons.get(&id).filter(|why| trouble::own(why)) {
        Some(why) => short_text::reason_forms(&app.seen, why, app.known()),
        None => match queries::repair(&app.seen, id) {
            Some(entry) if entry.status == RepairStatus::Failed => {
                let ending = short_text::ending(&app.seen, entry);
                Forms {
                    whole: format!("repair {}: {ending}", entry.operation),
                    shorter: vec![short_text::safe(&format!("{}: {ending}", entry.operation)), ending],
                }
            }
            _ => Forms::only(cause(app, id)),
        },
    };
    let line = NeedsYou::new(Object::Entry(id), name, forms.whole, Urgency::Stuck).shorter(forms.shorter);
    line.since(queries::since(&app.seen, id)).remedies(&remedies(app, id))
}

/// Returns the cause that an entry is stuck on, as the same text for all entries stuck on it.
fn cause(app: &App, id: EntryId) -> String {
    let seen = &app.seen;
    match (seen.reasons.get(&id).filter(|why| trouble::own(why)), queries::repair(seen, id)) {
        (Some(why), _) => short_text::stuck_key(why, app.now.wall),
        (None, Some(entry)) if entry.status == RepairStatus::Failed => {
            format!("repair {} failed", short_text::safe(&entry.operation))
        }
        _ => "cannot be read".to_owned(),
    }
}

/// Returns the commands that may end the trouble of an entry, the usual one first.
fn remedies(app: &App, id: EntryId) -> Vec<Command> {
    let Some(entry) = app.seen.snapshot.store.entry(id) else { return vec![Command::Cancel] };
    let failed = matches!(entry, EntryRef::Repair(repair) if repair.status == RepairStatus::Failed);
    let retry_helps = match app.seen.reasons.get(&id) {
        Some(Reason::Backoff { cause, .. }) => Some(cause.as_deref().is_none_or(blockers::may_pass)),
        Some(_) | None => None,
    };
    // the key that helps comes first: a hold keeps things as they are
    if failed {
        vec![Command::Repair, Command::Cancel]
    } else if entry.is_after_command() {
        vec![Command::Retry, Command::Done, Command::Cancel]
    } else if retry_helps == Some(true) {
        vec![Command::ResetBackoff, Command::Force, Command::Cancel, Command::Hold]
    } else if retry_helps == Some(false) {
        // the next drain meets the same: the list says what to change
        vec![Command::Blockers, Command::Force, Command::Cancel, Command::Hold]
    } else if entry.in_work() {
        // the detail shows the pods and what keeps each
        vec![Command::Open, Command::Force, Command::Cancel, Command::Hold]
    } else {
        vec![Command::Open, Command::Cancel, Command::Force, Command::Hold]
    }
}
