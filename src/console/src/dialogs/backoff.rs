//! Dialog that ends the backoff of entries, so that the next pass takes them.

use cketerm_model::entry::EntryId;

use super::tier;
use crate::state::{
    App, View,
    dialog::{Dialog, DialogAction, Precondition},
    event::{Action, count, count_entries},
    queries, when,
};

/// Opens the dialog, or returns the reason why there is nothing to reset.
pub fn open(app: &App) -> Result<Dialog, String> {
    of(app, &app.chosen_entries(), "no chosen entry has a backoff: there is nothing to reset")
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

fn of(app: &App, chosen: &[EntryId], none: &str) -> Result<Dialog, String> {
    let (mut entries, mut lines, mut preconditions, mut api) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for id in chosen {
        let (Some((_, revision)), Some(name)) = (queries::stored_at(&app.seen, *id), queries::machine(&app.seen, *id))
        else {
            continue;
        };
        let of_reboot = queries::entry(&app.seen, *id).map(|e| (e.drain_backoff_count, e.drain_backoff_expire));
        let of_repair = || queries::repair(&app.seen, *id).map(|e| (e.drain_backoff_count, e.drain_backoff_expire));
        let Some((times, next)) = of_reboot.or_else(of_repair).filter(|(n, until)| *n > 0 || until.is_some()) else {
            continue;
        };
        api += usize::from(queries::is_api_server(&app.seen, &name));
        let next = next.map(|t| when::until(t, app.now.wall)).unwrap_or_default();
        lines.push(format!("{id}  {name}  backed off {times}x, next {next}"));
        entries.push(*id);
        preconditions.push(Precondition::Entry(*id, revision));
    }
    if entries.is_empty() {
        return Err(none.to_owned());
    }
    let n = entries.len();
    let verb = format!("Reset {}", count(n, "backoff"));
    let title = format!("Reset the backoff of {}?", count_entries(&entries));
    let mut dialog = Dialog::new(title, verb, DialogAction::Act(Action::ResetBackoff { entries, reason: None }));
    if api > 0 {
        lines.insert(0, format!("! {} among them", count(api, "API server")));
    }
    dialog.lines = lines;
    dialog.preconditions = preconditions;
    dialog.expect = tier::confirmation_text(app, "reset-backoff", n, api);
    Ok(dialog)
}
