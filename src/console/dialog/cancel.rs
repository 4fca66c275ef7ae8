//! Cancel reboots, delete repairs: those that are chosen, or all that have ended, or all that have not.

use super::{Bound, Deed, Dialog, LARGE};
use crate::{
    console::{
        app::{App, View},
        brief,
        event::{Action, count},
        facts,
    },
    model::{
        entry::{EntryId, QueueKind, Stored},
        reboot::RebootStatus,
        repair::{RepairEntry, StepStatus},
    },
};

/// What is found of the entries that are to go.
#[derive(Default)]
struct Going {
    entries: Vec<(EntryId, i64)>,
    lines: Vec<String>,
    /// A command may be running for so many of them.
    commands: usize,
    broken: Vec<String>,
}

fn gather(app: &App, chosen: &[EntryId]) -> Going {
    let mut going = Going::default();
    for id in chosen {
        let Some((key, revision)) = facts::lies(&app.seen, *id) else { continue };
        let Some(name) = facts::machine(&app.seen, *id) else {
            going.broken.push(key.to_owned());
            continue;
        };
        let api = if facts::is_api_server(&app.seen, &name) { "  API server" } else { "" };
        let state = match (facts::entry(&app.seen, *id), facts::repair(&app.seen, *id)) {
            (Some(e), _) => {
                going.commands += usize::from(e.status == RebootStatus::Rebooting);
                brief::status(e, app.now.wall).to_owned()
            }
            (_, Some(e)) if e.deleted => continue,
            (_, Some(e)) => {
                going.commands += usize::from(e.unfinished() && e.step_status == StepStatus::Watching);
                format!("{}  {}", e.operation, brief::repair_status(e, app.now.wall))
            }
            _ => continue,
        };
        going.entries.push((*id, revision));
        going.lines.push(format!("{id}  {name}  {state}{api}"));
    }
    going
}

/// Opens it for what is chosen, or says why there is nothing to cancel or to delete.
pub fn open(app: &App) -> Result<Dialog, String> {
    let chosen = app.chosen_entries();
    if chosen.is_empty() {
        return Err(app.nothing_chosen("entry"));
    }
    let mut going = gather(app, &chosen);
    if going.entries.is_empty() {
        return Err(match going.broken.first() {
            Some(key) => {
                format!("the entry cannot be read, so nobody can cancel it: mend or delete {key} with etcdctl")
            }
            None => "the entry is gone: it ended, or was cancelled or deleted".to_owned(),
        });
    }
    if let (1, Some(why)) = (going.entries.len(), chosen.first().and_then(|id| app.seen.reasons.get(id))) {
        going.lines.push(brief::sentence(why));
    }
    Ok(dialog(app, going))
}

/// Opens it for all repairs that have ended, or for all that have not; it is bound to those that it shows.
pub fn whole(app: &App, finished: bool) -> Result<Dialog, String> {
    if app.view != View::Repairs {
        return Err(format!("that is about the repair queue: press {}, then the key again", app.key("repairs")));
    }
    let meant = |e: &RepairEntry| !e.deleted && e.finished() == finished;
    let entries = app.seen.snapshot.store.repairs.entries.iter();
    let chosen: Vec<EntryId> =
        entries.filter(|(_, s)| Stored::get(s).is_some_and(meant)).map(|(index, _)| EntryId::repair(*index)).collect();
    if chosen.is_empty() {
        return Err(if finished {
            "no repair has ended: there is nothing to delete"
        } else {
            "no repair is unfinished"
        }
        .to_owned());
    }
    let n = chosen.len();
    let mut dialog = dialog(app, gather(app, &chosen));
    let what = if finished { "finished" } else { "UNFINISHED" };
    dialog.title = format!("Delete all {n} {what} repairs on {}?", app.cluster_word());
    if !finished {
        dialog.expect = Some(format!("{} {n}", app.cluster_word()));
    }
    Ok(dialog)
}

fn dialog(app: &App, going: Going) -> Dialog {
    let Going { entries, mut lines, commands, broken } = going;
    if !broken.is_empty() {
        lines.insert(0, format!("! left out, cannot be read: {}", broken.join(", ")));
    }
    if commands > 0 {
        lines.insert(0, "! a command that runs goes on; the node stays cordoned until it is back".to_owned());
    }
    let n = entries.len();
    if n > 1 {
        let (api, work) = (
            lines.iter().filter(|l| l.ends_with("API server")).count(),
            entries.iter().filter(|(id, _)| crate::console::overview::in_work(&app.seen, *id)).count(),
        );
        let summary = format!("{n} entries, {work} of them in work, {}", count(api, "API server"));
        lines.insert(0, summary);
    }
    let repairs = entries.iter().filter(|(id, _)| id.queue == QueueKind::Repair).count();
    let (what, verb) = match repairs {
        0 => ("Cancel", "Cancel entries"),
        all if all == n => ("Delete", "Delete entries"),
        _ => ("Cancel or delete", "Cancel and delete"),
    };
    let bound = entries.iter().map(|(id, revision)| Bound::Entry(*id, *revision)).collect();
    let title = format!("{what} {} on {}?", count(n, "entry"), app.cluster_word());
    let mut dialog = Dialog::new(title, verb, Deed::Act(Action::Cancel { entries, reason: None }));
    dialog.lines = lines;
    dialog.bound = bound;
    dialog.expect = (n >= LARGE).then(|| format!("{} {n}", app.cluster_word()));
    dialog
}
