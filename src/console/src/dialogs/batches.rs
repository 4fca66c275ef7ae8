//! Dialog that pauses, resumes or cancels whole batches.

use cketerm_model::{
    batch::{BatchId, BatchState},
    entry::QueueKind,
};

use super::tier;
use crate::state::{
    App, View,
    batches::BatchSummary,
    dialog::{Dialog, DialogAction, Precondition},
    event::{Action, BatchAction, count, named_batches},
    queries, short_text,
};

/// Opens the dialog for the chosen batches, or returns the reason why there is nothing to change.
pub fn open(app: &App, what: BatchAction) -> Result<Dialog, String> {
    let chosen = app.chosen_batches();
    if chosen.is_empty() {
        return Err(app.nothing_selected("batch"));
    }
    let queue = if app.acting_view() == View::Repairs { QueueKind::Repair } else { QueueKind::Reboot };
    of(app, queue, &chosen, what)
}

/// Opens the dialog for these batches of a queue.
pub fn of(app: &App, queue: QueueKind, chosen: &[&BatchSummary], what: BatchAction) -> Result<Dialog, String> {
    let batches: Vec<&BatchSummary> = chosen.iter().copied().filter(|batch| fits(batch, what)).collect();
    if batches.is_empty() {
        let named = named_batches(&chosen.iter().map(|batch| batch.id).collect::<Vec<_>>());
        return Err(match what {
            BatchAction::Pause => format!("{named} cannot be paused: paused or done already"),
            BatchAction::Resume => format!("{named} is not paused"),
            BatchAction::Cancel => format!("{named} has no open entry: there is nothing to cancel"),
        });
    }
    let bound = bound(app, &batches, what);
    let action = DialogAction::Act(Action::Batches { queue, batches: bound, what, reason: None });
    let mut dialog = Dialog::new("", "", action);
    if what == BatchAction::Resume {
        let pause = |batch: &&BatchSummary| Some(Precondition::Pause(batch.id, batch.batch.paused.clone()?));
        dialog.preconditions = batches.iter().filter_map(pause).collect();
    }
    show(app, &mut dialog, &batches, what);
    Ok(dialog)
}

/// Returns the batches with the revisions that the dialog shows. A pause, and a cancellation of an enqueue that still
/// runs, are bound to none: what stops work has to succeed whatever was written meanwhile.
fn bound(app: &App, batches: &[&BatchSummary], what: BatchAction) -> Vec<(BatchId, Option<i64>)> {
    let bound = batches.iter().map(|batch| {
        let is_bound = match what {
            BatchAction::Pause => false,
            BatchAction::Resume => true,
            BatchAction::Cancel => !batch.batch.growing(app.now.wall),
        };
        let stored = app.seen.snapshot.store.batches.get(&batch.id).filter(|_| is_bound);
        (batch.id, stored.map(|stored| stored.mod_revision))
    });
    bound.collect()
}

/// Reports whether a change applies to a batch.
fn fits(batch: &BatchSummary, what: BatchAction) -> bool {
    match what {
        BatchAction::Pause => batch.state() == BatchState::Running,
        BatchAction::Resume => batch.state() == BatchState::Paused,
        BatchAction::Cancel => batch.totals.open() > 0,
    }
}

/// Updates the dialog, which acts on the entries that the batches have when it is confirmed. Batches to which the change
/// no longer applies are left out. A resume is bound to the pause that was shown.
pub fn follow(app: &App, dialog: &mut Dialog) {
    dialog.check(&app.seen);
    let DialogAction::Act(Action::Batches { batches: chosen, what, .. }) = &mut dialog.action else { return };
    if dialog.expired.is_some() {
        return;
    }
    let what = *what;
    let found = chosen.iter().filter_map(|(id, _)| app.knowledge.batches.get(*id));
    let batches: Vec<&BatchSummary> = found.filter(|batch| fits(batch, what)).collect();
    if batches.is_empty() {
        dialog.expire(match what {
            BatchAction::Pause => "paused or done meanwhile: nothing is left to pause".to_owned(),
            BatchAction::Resume => "done meanwhile: nothing is left to resume".to_owned(),
            BatchAction::Cancel => "all entries ended meanwhile: nothing is left to cancel".to_owned(),
        });
        return;
    }
    *chosen = bound(app, &batches, what);
    show(app, dialog, &batches, what);
}

/// Shows what the change does to these batches.
fn show(app: &App, dialog: &mut Dialog, batches: &[&BatchSummary], what: BatchAction) {
    let sum = |of: fn(&BatchSummary) -> u64| batches.iter().map(|batch| of(batch)).sum::<u64>();
    let (queued, in_work) = (sum(|batch| batch.totals.queued), sum(|batch| batch.totals.in_work));
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let named = named_batches(&batches.iter().map(|batch| batch.id).collect::<Vec<_>>());
    let (verb, tier) = match what {
        BatchAction::Pause => (format!("Pause {named}"), None),
        BatchAction::Resume => (format!("Resume {named}"), Some(("unhold", number(queued)))),
        BatchAction::Cancel => {
            let entries = number(queued.saturating_add(in_work));
            (format!("Cancel {} of {named}", count(entries, "entry")), Some(("cancel", entries)))
        }
    };
    dialog.title = format!("{verb}?");
    dialog.verb = verb.into();
    dialog.lines = lines(app, batches, what, (queued, in_work));
    // A phrase for more entries is also enough for fewer: they end while the operator types.
    if let Some((name, entries)) = tier.filter(|(_, entries)| *entries > dialog.batch_entries) {
        dialog.expect = tier::confirmation_text(app, name, entries, 0);
        dialog.batch_entries = entries;
    }
}

fn lines(app: &App, batches: &[&BatchSummary], what: BatchAction, (queued, in_work): (u64, u64)) -> Vec<String> {
    let mut lines: Vec<String> = batches.iter().map(|batch| line(batch)).collect();
    lines.push(match what {
        BatchAction::Pause => {
            format!("{queued} queued do not start until {} resumes it; {in_work} in work finish", app.key("unhold"))
        }
        BatchAction::Resume => format!("{queued} queued: the next pass may start them"),
        BatchAction::Cancel => {
            format!("{queued} queued and {in_work} in work; entries that end meanwhile are left out")
        }
    });
    if what == BatchAction::Cancel && batches.iter().any(|batch| commanded(app, batch.id)) {
        lines.push("! a running command continues; the node stays cordoned until booted".to_owned());
    }
    lines
}

fn line(batch: &BatchSummary) -> String {
    let reason = batch.batch.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let (done, all) = (batch.totals.done(), batch.totals.all());
    short_text::safe(&format!("{}  {done}/{all} done  asked by {}{reason}", batch.id, batch.batch.who))
}

/// Reports whether the command of an entry of the batch may be running.
fn commanded(app: &App, id: BatchId) -> bool {
    let store = &app.seen.snapshot.store;
    store.entries_of_batch(id).any(|entry| {
        queries::in_work(&app.seen, entry)
            && store.entry(entry).is_some_and(cketerm_model::entry_ref::EntryRef::is_after_command)
    })
}
