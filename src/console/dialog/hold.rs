//! Dialog that holds entries of either queue, or releases them. Holding is a stopping verb: entries that end, or whose
//! command starts, while the dialog is open are left out. The others are held in any state.

use super::{Bound, Dialog, DialogAction, Stops, cancel::left_out, tier};
use crate::{
    console::{
        app::App,
        event::{Action, count},
        queries,
    },
    model::{
        cketerm_records::Verb,
        entry::{EntryId, QueueKind, Stored},
        reboot::RebootStatus,
        repair::StepStatus,
    },
};

/// Data of the entries that are to be held or released.
#[derive(Default)]
struct Found {
    /// Entries, each with its `ModRevision`.
    entries: Vec<(EntryId, i64)>,
    lines: Vec<String>,
    left_out: Vec<EntryId>,
}

fn gather(app: &App, chosen: &[EntryId], hold: bool) -> Found {
    let mut found = Found::default();
    for id in chosen {
        let stands = queries::order(&app.seen, *id) == Some(Verb::Hold);
        let revision = queries::lies(&app.seen, *id).map(|(_, revision)| revision);
        let Some(revision) = revision.filter(|_| stands != hold && (!hold || can_wait(app, *id))) else {
            found.left_out.push(*id);
            continue;
        };
        let name = queries::machine(&app.seen, *id).unwrap_or_default();
        let by = app.seen.snapshot.store.orders.get(id).and_then(Stored::get).filter(|_| !hold);
        let by = by
            .map(|o| format!("  held by {}{}", o.who, o.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default()));
        found.lines.push(format!("{id}  {name}{}", by.unwrap_or_default()));
        found.entries.push((*id, revision));
    }
    found
}

/// Opens the dialog, or returns the reason why there is nothing to hold or to release.
pub fn open(app: &App, hold: bool) -> Result<Dialog, String> {
    let chosen = app.chosen_entries();
    if chosen.is_empty() {
        return Err(app.nothing_chosen("entry"));
    }
    of(app, chosen, hold)
}

/// Opens the dialog for these entries.
pub fn of(app: &App, chosen: Vec<EntryId>, hold: bool) -> Result<Dialog, String> {
    let found = gather(app, &chosen, hold);
    if found.entries.is_empty() {
        let left_out = found.left_out.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(if hold {
            format!("{left_out} cannot be held: on hold already, ended, or its command was run")
        } else {
            format!("{left_out} is not on hold")
        });
    }
    let n = found.entries.len();
    let verb = if hold { "Hold" } else { "Unhold" };
    let title = format!("{verb} {} on {}?", count(n, "entry"), app.cluster_word());
    let entries = entries(&found, hold);
    let mut dialog = Dialog::new(title, verb, DialogAction::Act(Action::Hold { entries, hold, reason: None }));
    dialog.lines = lines(app, &found, hold);
    if hold {
        dialog.stops = Some(Stops { ids: chosen, unfinished: true, unbegun: false });
    } else {
        dialog.bound = found.entries.iter().map(|(id, revision)| Bound::Entry(*id, *revision)).collect();
        dialog.expect = tier::typed(app, "unhold", n, 0);
    }
    Ok(dialog)
}

/// Updates the lines.
pub fn follow(app: &App, dialog: &mut Dialog) {
    let Some(stops) = &dialog.stops else { return };
    let found = gather(app, &stops.ids, true);
    if found.entries.is_empty() {
        dialog.expire("all of them ended meanwhile, or their commands were run: nothing is left to hold".to_owned());
        return;
    }
    dialog.lines = lines(app, &found, true);
    if let DialogAction::Act(Action::Hold { entries, .. }) = &mut dialog.action {
        *entries = self::entries(&found, true);
    }
}

/// Returns the entries of the action. A release is bound to the revision that was shown; a hold applies to the entry in
/// any state.
fn entries(found: &Found, hold: bool) -> Vec<(EntryId, Option<i64>)> {
    found.entries.iter().map(|(id, revision)| (*id, (!hold).then_some(*revision))).collect()
}

fn lines(app: &App, found: &Found, hold: bool) -> Vec<String> {
    let mut lines = found.lines.clone();
    if !found.left_out.is_empty() {
        lines.push(left_out("left out", &found.left_out));
    }
    if hold && found.entries.len() > 1 {
        let stop = app.key("switch");
        lines.push(format!("entries are held one by one while the queue runs; {stop} disables it at once"));
    }
    lines.push(if hold {
        let key = app.key("unhold");
        format!("it will not start before its release ({key}); a draining entry returns to the queue")
    } else {
        "the next pass may start it".to_owned()
    });
    lines
}

/// Returns true if the entry's command was not run yet, so that it can be held.
fn can_wait(app: &App, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => queries::entry(&app.seen, id).is_some_and(|e| e.status != RebootStatus::Rebooting),
        QueueKind::Repair => {
            queries::repair(&app.seen, id).is_some_and(|e| e.unfinished() && e.step_status != StepStatus::Watching)
        }
    }
}
