//! Dialog that ends the backoff of entries, so that the next pass takes them.

use cketerm_model::{entry::EntryId, entry_ref::EntryRef};

use super::tier;
use crate::state::{
    App, View,
    batches::BatchSummary,
    dialog::{Dialog, DialogAction},
    event::{Action, count, count_entries, named_batches},
    queries, when,
};

/// Opens the dialog, or returns the reason why there is nothing to reset. In the list of batches it is about the
/// entries of the chosen ones.
pub fn open(app: &App) -> Result<Dialog, String> {
    if app.acts_on_batches() {
        let chosen = app.chosen_batches();
        if chosen.is_empty() {
            return Err(app.nothing_selected("batch"));
        }
        let named = named_batches(&chosen.iter().map(|batch| batch.id).collect::<Vec<_>>());
        let entries = in_batches(app, &chosen);
        return of(app, &entries, &format!("no entry of {named} has a backoff: there is nothing to reset"));
    }
    of(app, &app.chosen_entries(), "no chosen entry has a backoff: there is nothing to reset")
}

/// Returns the entries of these batches that are still stored.
pub fn in_batches(app: &App, batches: &[&BatchSummary]) -> Vec<EntryId> {
    batches.iter().flat_map(|batch| app.seen.snapshot.store.entries_of_batch(batch.id)).collect()
}

/// Opens the dialog for all entries in backoff: those of the view's queue, or of both queues if the view belongs to
/// neither.
pub fn all(app: &App) -> Result<Dialog, String> {
    let store = &app.seen.snapshot.store;
    let reboots = store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
    let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
    let all: Vec<EntryId> = match app.navigation.view {
        View::Reboots => reboots.collect(),
        View::Repairs => repairs.collect(),
        _ => reboots.chain(repairs).collect(),
    };
    of(app, &all, "no entry has a backoff: there is nothing to reset")
}

/// Opens the dialog for those of these entries that have a backoff; `none`: the answer if there are none.
pub fn of(app: &App, chosen: &[EntryId], none: &str) -> Result<Dialog, String> {
    let (entries, lines, api) = gather(app, chosen);
    if entries.is_empty() {
        return Err(none.to_owned());
    }
    let n = entries.len();
    let (title, verb) = words(&entries);
    let mut dialog = Dialog::new(title, verb, DialogAction::Act(Action::ResetBackoff { entries, reason: None }));
    dialog.lines = lines;
    dialog.expect = tier::confirmation_text(app, "reset-backoff", n, api);
    Ok(dialog)
}

/// Updates the lines. Entries that have no backoff any more are left out.
pub fn follow(app: &App, dialog: &mut Dialog) {
    let DialogAction::Act(Action::ResetBackoff { entries: shown, .. }) = &mut dialog.action else { return };
    let (entries, lines, _) = gather(app, shown);
    if entries.is_empty() {
        dialog.expire("no backoff is left to reset: they ended, or somebody reset them".to_owned());
        return;
    }
    let (title, verb) = words(&entries);
    *shown = entries;
    (dialog.title, dialog.verb, dialog.lines) = (title, verb.into(), lines);
}

/// Returns the question, and the label of the button.
fn words(entries: &[EntryId]) -> (String, String) {
    let verb = format!("Reset {}", count(entries.len(), "backoff"));
    (format!("Reset the backoff of {}?", count_entries(entries)), verb)
}

/// Returns the entries that have a backoff, a line for each, and the number of API servers among them.
fn gather(app: &App, chosen: &[EntryId]) -> (Vec<EntryId>, Vec<String>, usize) {
    let (mut entries, mut lines, mut api) = (Vec::new(), Vec::new(), 0);
    for id in chosen {
        // the backoff of a cancelled or finished entry delays nothing, and neither does one after the command
        let waits = |entry: EntryRef<'_>| entry.unfinished() && !entry.is_after_command();
        if !app.seen.snapshot.store.entry(*id).is_some_and(waits) {
            continue;
        }
        let Some(name) = queries::machine(&app.seen, *id) else { continue };
        let of_reboot = queries::entry(&app.seen, *id).map(|e| (e.drain_backoff_count, e.drain_backoff_expire));
        let of_repair = || queries::repair(&app.seen, *id).map(|e| (e.drain_backoff_count, e.drain_backoff_expire));
        let Some((times, next)) = of_reboot.or_else(of_repair).filter(|(n, until)| *n > 0 || until.is_some()) else {
            continue;
        };
        api += usize::from(queries::is_api_server(&app.seen, &name));
        let next = next.map(|t| format!(", {} left", when::left(t, app.now.wall))).unwrap_or_default();
        lines.push(format!("{id}  {name}  backed off {times}x{next}"));
        entries.push(*id);
    }
    if api > 0 {
        lines.insert(0, format!("! {} among them", count(api, "API server")));
    }
    (entries, lines, api)
}
