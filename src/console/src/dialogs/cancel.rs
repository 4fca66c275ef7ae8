//! Dialog that cancels reboots or deletes repairs: the selected ones, all that have ended, or all that have not. It is
//! a stopping verb: changes of its entries while the dialog is open do not block it; entries that end are left out.

use cketerm_actions::LEFT;
use cketerm_model::{
    entry::{EntryId, QueueKind, Stored},
    reboot::RebootStatus,
    repair::{RepairEntry, StepStatus},
};

use super::tier;
use crate::state::{
    App, View,
    dialog::{Dialog, DialogAction, Precondition, StopTargets},
    event::{Action, count},
    queries, short_text,
};

/// Number of left-out entries that are named.
const MAX_NAMED: usize = 5;

/// Data of the entries that are to be cancelled.
#[derive(Default)]
struct Selection {
    entries: Vec<EntryId>,
    lines: Vec<String>,
    /// Number of entries of API servers.
    api_servers: usize,
    /// Number of entries whose command may be running.
    commands: usize,
    /// Unreadable entries.
    broken: Vec<EntryId>,
    /// Entries that are cancelled, deleted or removed already, or finished if only unfinished ones are meant.
    ended: Vec<EntryId>,
    /// Entries that have begun, if only those that have not begun are meant.
    started: Vec<EntryId>,
}

fn gather(app: &App, stops: &StopTargets) -> Selection {
    let mut selection = Selection::default();
    for id in &stops.ids {
        if queries::stored_at(&app.seen, *id).is_none() {
            selection.ended.push(*id);
            continue;
        }
        let Some(name) = queries::machine(&app.seen, *id) else {
            selection.broken.push(*id);
            continue;
        };
        if stops.not_started && !queries::not_started(&app.seen, *id) {
            selection.started.push(*id);
            continue;
        }
        let is_api_server = queries::is_api_server(&app.seen, &name);
        let api = if is_api_server { "  API server" } else { "" };
        let state = match (queries::entry(&app.seen, *id), queries::repair(&app.seen, *id)) {
            (Some(e), _) if e.status != RebootStatus::Cancelled => {
                selection.commands += usize::from(e.status == RebootStatus::Rebooting);
                short_text::status(e, app.now.wall).to_owned()
            }
            (_, Some(e)) if !(e.deleted || (stops.unfinished && e.finished())) => {
                selection.commands += usize::from(e.unfinished() && e.step_status == StepStatus::Watching);
                format!("{}  {}", e.operation, short_text::repair_status(e, app.now.wall))
            }
            _ => {
                selection.ended.push(*id);
                continue;
            }
        };
        selection.entries.push(*id);
        selection.api_servers += usize::from(is_api_server);
        selection.lines.push(format!("{id}  {name}  {state}{api}"));
    }
    selection
}

/// Opens the dialog for entries that were queued just now; those that have begun are left alone.
pub fn queued(app: &App, ids: Vec<EntryId>) -> Result<Dialog, String> {
    let stops = StopTargets { ids, unfinished: false, not_started: true };
    let selection = gather(app, &stops);
    if selection.entries.is_empty() {
        return Err("undo refused: all of them have begun or are gone; cancel them instead".to_owned());
    }
    let mut dialog = dialog(app, &selection, false);
    dialog.stops = Some(stops);
    Ok(dialog)
}

/// Opens the dialog for the selection, or returns the reason why there is nothing to cancel or to delete.
pub fn open(app: &App) -> Result<Dialog, String> {
    let chosen = app.chosen_entries();
    if chosen.is_empty() {
        return Err(app.nothing_selected("entry"));
    }
    of(app, chosen)
}

/// Opens the dialog for these entries.
pub fn of(app: &App, chosen: Vec<EntryId>) -> Result<Dialog, String> {
    let stops = StopTargets { ids: chosen, unfinished: false, not_started: false };
    let mut selection = gather(app, &stops);
    if selection.entries.is_empty() {
        return match selection.broken.as_slice() {
            [] => Err("the entry is gone: it ended, or was cancelled or deleted".to_owned()),
            [one] => remove(app, *one),
            some => Err(left_out("none of them can be read: choose one, they are removed one at a time", some)),
        };
    }
    // entries that were gone before the dialog was opened were never shown
    selection.ended.clear();
    Ok(dialog(app, &selection, stops.unfinished))
}

/// Opens the dialog that removes an unreadable entry. It shows the stored value and is bound to its revision.
pub fn remove(app: &App, id: EntryId) -> Result<Dialog, String> {
    let (_, revision) = queries::stored_at(&app.seen, id).ok_or_else(|| format!("{id} is gone"))?;
    let action = DialogAction::Act(Action::Remove { entry: id, seen: revision, reason: None });
    let mut dialog = Dialog::new(format!("Remove {id}?"), format!("Remove {id}"), action);
    dialog.lines = vec![
        format!("! {id} cannot be read: {}", queries::broken(&app.seen, id).unwrap_or_default()),
        "! a newer program may have written it and may be processing it".to_owned(),
    ];
    let nodes = app.seen.snapshot.kube.nodes.values();
    let cordoned = nodes.filter(|node| node.owner().is_some_and(|owner| owner.entry == id)).map(|node| &*node.name);
    let cordoned: Vec<&str> = cordoned.collect();
    dialog.lines.push(match cordoned.as_slice() {
        [] => "no node is cordoned for it".to_owned(),
        some => format!("! cordoned for it: {}, which {LEFT}", some.join(", ")),
    });
    dialog.preconditions = vec![Precondition::Entry(id, revision)];
    Ok(dialog)
}

/// Opens the dialog for all reboots.
pub fn all(app: &App) -> Result<Dialog, String> {
    let entries = &app.seen.snapshot.store.reboots.entries;
    let ids = entries.keys().map(|index| EntryId::reboot(*index)).collect();
    let mut selection = gather(app, &StopTargets { ids, unfinished: false, not_started: false });
    selection.ended.clear();
    let n = selection.entries.len();
    if n == 0 {
        return Err("the reboot queue has no entry that can be cancelled".to_owned());
    }
    let mut dialog = dialog(app, &selection, false);
    dialog.title = format!("Cancel all {}?", count(n, "reboot"));
    dialog.expect = tier::confirmation_text(app, "cancel-all", n, 0);
    Ok(dialog)
}

/// Opens the dialog for all repairs that have ended, or for all that have not. It is about those that it shows.
pub fn delete_all_repairs(app: &App, finished: bool) -> Result<Dialog, String> {
    if app.acting_view() != View::Repairs {
        return Err(format!("only in the Repairs view: press {}, then the key again", app.key("repairs")));
    }
    let is_affected = |e: &RepairEntry| !e.deleted && e.finished() == finished;
    let entries = app.seen.snapshot.store.repairs.entries.iter();
    let chosen: Vec<EntryId> = entries
        .filter(|(_, s)| Stored::get(s).is_some_and(is_affected))
        .map(|(index, _)| EntryId::repair(*index))
        .collect();
    if chosen.is_empty() {
        return Err(if finished {
            "no repair has ended: there is nothing to delete"
        } else {
            "no repair is unfinished"
        }
        .to_owned());
    }
    let n = chosen.len();
    let mut dialog =
        dialog(app, &gather(app, &StopTargets { ids: chosen, unfinished: !finished, not_started: false }), !finished);
    let what = if finished { "finished" } else { "UNFINISHED" };
    dialog.title = format!("Delete all {n} {what} repairs?");
    dialog.expect = tier::confirmation_text(app, if finished { "delete-finished" } else { "delete-unfinished" }, n, 0);
    Ok(dialog)
}

/// Updates the lines. Entries that have ended are left out and named.
pub fn follow(app: &App, dialog: &mut Dialog) {
    let Some(stops) = &dialog.stops else { return };
    let selection = gather(app, stops);
    if selection.entries.is_empty() {
        let why = if selection.started.is_empty() {
            "all of them ended meanwhile: nothing is left to stop"
        } else {
            "they have begun or ended meanwhile: nothing was done, cancel them instead"
        };
        dialog.expire(why.to_owned());
        return;
    }
    dialog.lines = lines(app, &selection);
    let verb = verb(&selection.entries);
    if dialog.title == format!("{}?", dialog.verb) {
        dialog.title = format!("{verb}?");
    }
    dialog.verb = verb.into();
    if let DialogAction::Act(Action::Cancel { entries, .. }) = &mut dialog.action {
        *entries = selection.entries;
    }
}

/// Returns the dialog's lines about the entries.
fn lines(app: &App, selection: &Selection) -> Vec<String> {
    let Selection { entries, lines: each, api_servers, commands, broken, ended, started } = selection;
    let mut lines = Vec::new();
    if !started.is_empty() {
        lines.push(left_out("! left out, already begun", started));
    }
    if !ended.is_empty() {
        lines.push(left_out("! left out, ended meanwhile", ended));
    }
    if *commands > 0 {
        lines.push("! a running command continues; the node stays cordoned until booted".to_owned());
    }
    if !broken.is_empty() {
        lines.push(left_out("! left out, cannot be read (removed one at a time)", broken));
    }
    if entries.len() > 1 {
        let work = entries.iter().filter(|id| crate::state::queries::in_work(&app.seen, **id)).count();
        let api = count(*api_servers, "API server");
        lines.push(format!("{} entries, {work} of them in work, {api}", entries.len()));
    }
    lines.extend(each.iter().cloned());
    if let [only] = entries.as_slice() {
        lines.extend(app.seen.reasons.get(only).map(short_text::sentence));
    }
    lines
}

/// Returns the line about the entries that are left out, with the reason.
pub(super) fn left_out(why: &str, ids: &[EntryId]) -> String {
    let named: Vec<String> = ids.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = if ids.len() > MAX_NAMED { format!(" and {} more", ids.len() - MAX_NAMED) } else { String::new() };
    format!("{why}: {}{more}", named.join(", "))
}

/// Returns the label of the button: what is done to how many entries.
fn verb(entries: &[EntryId]) -> String {
    let repairs = entries.iter().filter(|id| id.queue == QueueKind::Repair).count();
    match (entries.len() - repairs, repairs) {
        (reboots, 0) => format!("Cancel {}", count(reboots, "reboot")),
        (0, repairs) => format!("Delete {}", count(repairs, "repair")),
        (reboots, repairs) => format!("Cancel {}, delete {}", count(reboots, "reboot"), count(repairs, "repair")),
    }
}

fn dialog(app: &App, selection: &Selection, unfinished: bool) -> Dialog {
    let entries = selection.entries.clone();
    let n = entries.len();
    let verb = verb(&entries);
    let stops = StopTargets { ids: entries.clone(), unfinished, not_started: false };
    let action = DialogAction::Act(Action::Cancel { entries, reason: None });
    let mut dialog = Dialog::new(format!("{verb}?"), verb, action);
    dialog.lines = lines(app, selection);
    dialog.stops = Some(stops);
    dialog.expect = tier::confirmation_text(app, "cancel", n, 0);
    dialog
}
