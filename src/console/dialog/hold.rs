//! Keep entries of either queue from starting, or let them go.

use super::{Bound, Deed, Dialog, LARGE};
use crate::{
    console::{
        app::App,
        event::{Action, count},
        facts,
    },
    model::{
        entry::{EntryId, QueueKind, Stored},
        ours::Verb,
        reboot::RebootStatus,
        repair::StepStatus,
    },
};

/// Opens it, or says why there is nothing to hold or to let go.
pub fn open(app: &App, hold: bool) -> Result<Dialog, String> {
    let chosen = app.chosen_entries();
    if chosen.is_empty() {
        return Err(app.nothing_chosen("entry"));
    }
    let (mut entries, mut lines, mut bound, mut left_out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for id in &chosen {
        let Some((_, revision)) = facts::lies(&app.seen, *id) else { continue };
        let stands = facts::order(&app.seen, *id) == Some(Verb::Hold);
        if stands == hold || (hold && !can_wait(app, *id)) {
            left_out.push(id.to_string());
            continue;
        }
        let name = facts::machine(&app.seen, *id).unwrap_or_default();
        let by = app.seen.snapshot.store.orders.get(id).and_then(Stored::get).filter(|_| !hold);
        let by = by
            .map(|o| format!("  held by {}{}", o.who, o.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default()));
        lines.push(format!("{id}  {name}{}", by.unwrap_or_default()));
        entries.push((*id, revision));
        bound.push(Bound::Entry(*id, revision));
    }
    if entries.is_empty() {
        return Err(if hold {
            format!("{} cannot be held: on hold already, ended, or its command was run", left_out.join(", "))
        } else {
            format!("{} is not on hold", left_out.join(", "))
        });
    }
    if !left_out.is_empty() {
        lines.push(format!("left out: {}", left_out.join(", ")));
    }
    let n = entries.len();
    let key = app.key("unhold");
    let (title, verb, what) = if hold {
        let what = format!("it does not start before it is let go ({key}); a drain that goes on is not stopped");
        ("Hold", "Hold", what)
    } else {
        ("Let", "Let go", "the next pass may start it".to_owned())
    };
    let tail = if hold { "" } else { " go" };
    let title = format!("{title} {}{tail} on {}?", count(n, "entry"), app.cluster_word());
    let mut dialog = Dialog::new(title, verb, Deed::Act(Action::Hold { entries, hold, reason: None }));
    dialog.lines = lines;
    dialog.lines.push(what);
    dialog.bound = bound;
    dialog.expect = (n >= LARGE && !hold).then(|| format!("{} {n}", app.cluster_word()));
    Ok(dialog)
}

/// Its command was not run yet, so that it can be kept from starting.
fn can_wait(app: &App, id: EntryId) -> bool {
    match id.queue {
        QueueKind::Reboot => facts::entry(&app.seen, id).is_some_and(|e| e.status != RebootStatus::Rebooting),
        QueueKind::Repair => {
            facts::repair(&app.seen, id).is_some_and(|e| e.unfinished() && e.step_status != StepStatus::Watching)
        }
    }
}
