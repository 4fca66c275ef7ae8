//! Dialog that pauses, resumes or cancels whole batches.

use cketerm_model::{
    batch::{BatchId, BatchState},
    entry::QueueKind,
};

use super::tier;
use crate::state::{
    App, View,
    batches::BatchSummary,
    dialog::{Dialog, DialogAction},
    event::{Action, BatchAction, count, named_batches},
    queries, short_text,
};

/// Opens the dialog for the chosen batches, or returns the reason why there is nothing to change.
pub fn open(app: &App, what: BatchAction) -> Result<Dialog, String> {
    let chosen = app.chosen_batches();
    if chosen.is_empty() {
        return Err(app.nothing_selected("batch"));
    }
    let fits = |batch: &&&BatchSummary| match what {
        BatchAction::Pause => batch.state() == BatchState::Running,
        BatchAction::Resume => batch.state() == BatchState::Paused,
        BatchAction::Cancel => batch.totals.open() > 0,
    };
    let batches: Vec<&BatchSummary> = chosen.iter().filter(fits).copied().collect();
    let ids: Vec<BatchId> = batches.iter().map(|batch| batch.id).collect();
    if ids.is_empty() {
        let named = named_batches(&chosen.iter().map(|batch| batch.id).collect::<Vec<_>>());
        return Err(match what {
            BatchAction::Pause => format!("{named} cannot be paused: paused or done already"),
            BatchAction::Resume => format!("{named} is not paused"),
            BatchAction::Cancel => format!("{named} has no open entry: there is nothing to cancel"),
        });
    }
    let sum = |of: fn(&BatchSummary) -> u64| batches.iter().map(|batch| of(batch)).sum::<u64>();
    let (queued, in_work) = (sum(|batch| batch.totals.queued), sum(|batch| batch.totals.in_work));
    let entries = usize::try_from(queued.saturating_add(in_work)).unwrap_or(usize::MAX);
    let named = named_batches(&ids);
    let verb = match what {
        BatchAction::Pause => format!("Pause {named}"),
        BatchAction::Resume => format!("Resume {named}"),
        BatchAction::Cancel => format!("Cancel {} of {named}", count(entries, "entry")),
    };
    let queue = if app.navigation.view == View::Repairs { QueueKind::Repair } else { QueueKind::Reboot };
    let action = DialogAction::Act(Action::Batches { queue, batches: ids.clone(), what, reason: None });
    let mut dialog = Dialog::new(format!("{verb}?"), verb, action);
    dialog.lines = lines(app, &batches, what, (queued, in_work));
    match what {
        BatchAction::Pause | BatchAction::Resume => {}
        BatchAction::Cancel => dialog.expect = tier::confirmation_text(app, "cancel", entries, 0),
    }
    Ok(dialog)
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
