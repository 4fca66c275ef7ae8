//! Dialog that holds entries of either queue, or ends their holds. Holding is a stopping verb: entries that end, or whose
//! command starts, while the dialog is open are left out. The others are held in any state.

use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, Stored},
    entry_ref::EntryRef,
};

use super::{cancel::left_out, tier};
use crate::state::{
    App,
    dialog::{Dialog, DialogAction, Precondition, StopTargets},
    event::{Action, count_entries},
    queries,
};

/// Data of the entries that are to be held, or whose holds end.
#[derive(Default)]
struct Selection {
    /// Entries, each with its `ModRevision`.
    entries: Vec<(EntryId, i64)>,
    lines: Vec<String>,
    left_out: Vec<EntryId>,
}

fn gather(app: &App, chosen: &[EntryId], hold: bool) -> Selection {
    let mut selection = Selection::default();
    for id in chosen {
        let is_held = queries::order(&app.seen, *id) == Some(Verb::Hold);
        let revision = queries::stored_at(&app.seen, *id).map(|(_, revision)| revision);
        let Some(revision) = revision.filter(|_| is_held != hold && (!hold || can_hold(app, *id))) else {
            selection.left_out.push(*id);
            continue;
        };
        let name = queries::machine(&app.seen, *id).unwrap_or_default();
        let by = app.seen.snapshot.store.orders.get(id).and_then(Stored::get).filter(|_| !hold);
        let by = by
            .map(|o| format!("  held by {}{}", o.who, o.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default()));
        selection.lines.push(format!("{id}  {name}{}", by.unwrap_or_default()));
        selection.entries.push((*id, revision));
    }
    selection
}

/// Opens the dialog, or returns the reason why there is nothing to hold, or no hold to end.
pub fn open(app: &App, hold: bool) -> Result<Dialog, String> {
    let chosen = app.chosen_entries();
    if chosen.is_empty() {
        return Err(app.nothing_selected("entry"));
    }
    of(app, chosen, hold)
}

/// Opens the dialog for these entries.
pub fn of(app: &App, chosen: Vec<EntryId>, hold: bool) -> Result<Dialog, String> {
    let selection = gather(app, &chosen, hold);
    if selection.entries.is_empty() {
        let left_out = selection.left_out.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(if hold {
            format!("{left_out} cannot be held: on hold already, ended, or its command was run")
        } else {
            format!("{left_out} is not on hold")
        });
    }
    let n = selection.entries.len();
    let verb = verb(&selection, hold);
    let entries = entries(&selection, hold);
    let mut dialog =
        Dialog::new(format!("{verb}?"), verb, DialogAction::Act(Action::Hold { entries, hold, reason: None }));
    dialog.lines = lines(app, &selection, hold);
    if hold {
        dialog.stops = Some(StopTargets { ids: chosen, unfinished: true, not_started: false });
    } else {
        let order = |id: &EntryId| app.seen.snapshot.store.orders.get(id).map(|stored| stored.mod_revision);
        let bound = selection.entries.iter().filter_map(|(id, _)| Some(Precondition::Hold(*id, order(id)?)));
        dialog.preconditions = bound.collect();
        dialog.expect = tier::confirmation_text(app, "unhold", n, 0);
    }
    Ok(dialog)
}

/// Updates the lines. Entries that cannot be held any more, or whose holds have ended, are left out.
pub fn follow(app: &App, dialog: &mut Dialog) {
    dialog.check(&app.seen);
    let DialogAction::Act(Action::Hold { entries: shown, hold, .. }) = &dialog.action else { return };
    if dialog.expired.is_some() {
        return;
    }
    let hold = *hold;
    let chosen: Vec<EntryId> = match &dialog.stops {
        Some(stops) => stops.ids.clone(),
        None => shown.iter().map(|(id, _)| *id).collect(),
    };
    // the end of a hold starts nothing once the command was run
    let chosen: Vec<EntryId> = chosen.into_iter().filter(|id| hold || can_hold(app, *id)).collect();
    let selection = gather(app, &chosen, hold);
    if selection.entries.is_empty() {
        let why = if hold {
            "all of them ended meanwhile, or their commands were run: nothing is left to hold"
        } else {
            "all of them ended meanwhile, or their commands were run, or somebody ended their holds"
        };
        dialog.expire(why.to_owned());
        return;
    }
    dialog.lines = lines(app, &selection, hold);
    let verb = verb(&selection, hold);
    dialog.title = format!("{verb}?");
    dialog.verb = verb.into();
    if let DialogAction::Act(Action::Hold { entries, .. }) = &mut dialog.action {
        *entries = self::entries(&selection, hold);
    }
}

/// Returns the label of the button: what is done to how many entries.
fn verb(selection: &Selection, hold: bool) -> String {
    let entries = count_entries(selection.entries.iter().map(|(id, _)| id));
    format!("{} {entries}", if hold { "Hold" } else { "Unhold" })
}

/// Returns the entries of the action. The end of a hold is bound to the revision that was shown; a hold applies to the entry in
/// any state.
fn entries(selection: &Selection, hold: bool) -> Vec<(EntryId, Option<i64>)> {
    selection.entries.iter().map(|(id, revision)| (*id, (!hold).then_some(*revision))).collect()
}

fn lines(app: &App, selection: &Selection, hold: bool) -> Vec<String> {
    let mut lines = selection.lines.clone();
    if !selection.left_out.is_empty() {
        lines.push(left_out("left out", &selection.left_out));
    }
    if hold && selection.entries.len() > 1 {
        let stop = app.key("switch");
        lines.push(format!("entries are held one by one while the queue runs; {stop} disables it at once"));
    }
    lines.push(if hold {
        let key = app.key("unhold");
        format!("it does not start until {key} ends the hold; a draining entry returns to the queue")
    } else {
        "the next pass may start it".to_owned()
    });
    lines
}

/// Returns true if the entry's command was not run yet, so that it can be held.
fn can_hold(app: &App, id: EntryId) -> bool {
    app.seen.snapshot.store.entry(id).is_some_and(|entry| match entry {
        EntryRef::Reboot(_) => !entry.is_after_command(),
        EntryRef::Repair(_) => entry.unfinished() && !entry.is_after_command(),
        EntryRef::Maintenance(_) => false,
    })
}
