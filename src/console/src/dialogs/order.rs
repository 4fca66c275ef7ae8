//! Dialogs for orders to the leader: retry, done, force, and the release of an orphaned cordon.

use std::fmt::Write as _;

use cketerm_model::{
    cketerm_records::Verb,
    entry::{EntryId, QueueKind},
    reason::Reason,
    reboot::RebootStatus,
    repair::StepStatus,
};

use super::{force, tier};
use crate::state::{
    App, Target,
    dialog::{Dialog, DialogAction, Precondition, ReasonPolicy, preconditions::Phase},
    event::Action,
    queries, short_text, when,
};

/// Returns the effect of the order, and what nobody checks before.
fn consequences(verb: Verb, queue: QueueKind) -> (&'static str, &'static str) {
    match (verb, queue) {
        (Verb::Force, QueueKind::Reboot) => {
            ("reboots without waiting for the remaining pods and volumes", "whether they are still needed")
        }
        (Verb::Force, QueueKind::Repair) => (
            "runs the repair command without waiting for the remaining pods and volumes",
            "whether they are still needed",
        ),
        (_, QueueKind::Maintenance) => ("nothing: a maintenance takes no orders", ""),
        (Verb::Done, QueueKind::Reboot) => (
            "treats the machine as booted; the Node must still be Ready",
            "boot check and boot id: whether it was rebooted at all",
        ),
        (Verb::Done, QueueKind::Repair) => (
            "treats it as healthy: runs the success command, then ends it",
            "the health check: whether the machine was repaired at all",
        ),
        (_, QueueKind::Reboot) => ("runs the reboot command once more", "whether the last command succeeded unnoticed"),
        (_, QueueKind::Repair) => {
            ("runs the step's repair command once more", "whether the last command succeeded unnoticed")
        }
    }
}

/// Returns the state that the order requires and the entry's state. The first one is `None` if they match.
fn state(app: &App, id: EntryId, verb: Verb) -> Option<(Option<&'static str>, String)> {
    let now = app.now.wall;
    if let Some(entry) = queries::entry(&app.seen, id) {
        let (fits, required_status) = match verb {
            Verb::Force => {
                (matches!(entry.status, RebootStatus::Draining | RebootStatus::Queued), "queued or draining")
            }
            _ => (entry.status == RebootStatus::Rebooting, "rebooting"),
        };
        return Some(((!fits).then_some(required_status), short_text::status(entry, now).to_owned()));
    }
    let entry = queries::repair(&app.seen, id)?;
    let watching = entry.unfinished() && entry.claims_machine() && entry.step_status == StepStatus::Watching;
    let (fits, required_status) = match verb {
        Verb::Force => (entry.unfinished() && !watching, "queued or draining"),
        // After a success command of unknown outcome, too. Few entries ever are, so the text does not say so.
        _ => (watching || (entry.unfinished() && app.seen.snapshot.store.success_unknown(id)), "watching"),
    };
    let mut state = short_text::repair_status(entry, now).to_owned();
    if entry.finished() && !entry.deleted {
        let [delete, repair] = ["cancel", "repair"].map(|name| app.key(name));
        let _ = write!(state, " (delete it with {delete}, repair it again with {repair})");
    }
    Some(((!fits).then_some(required_status), state))
}

/// Opens the dialog of `retry`, `done` or `force`, or returns the reason why the order makes no sense here.
pub fn open(app: &App, verb: Verb) -> Result<Dialog, String> {
    let mut chosen = app.chosen_entries();
    if chosen.is_empty() {
        return Err(app.nothing_selected("entry"));
    }
    if chosen.len() > 1 {
        // a node may have a reboot and a repair, of which often only one fits the order
        let fitting = |id: &EntryId| matches!(state(app, *id, verb), Some((None, _)));
        let matching: Vec<EntryId> = chosen.iter().copied().filter(fitting).collect();
        if app.chosen_nodes().len() == 1 && matching.len() == 1 {
            chosen = matching;
        }
    }
    let [id] = chosen.as_slice() else {
        return Err(format!("{verb} takes one entry at a time: choose one, {} are chosen", chosen.len()));
    };
    of(app, *id, verb)
}

/// Opens the dialog for this entry.
pub fn of(app: &App, id: EntryId, verb: Verb) -> Result<Dialog, String> {
    let (_, revision) = queries::stored_at(&app.seen, id)
        .ok_or_else(|| format!("{id} is gone: it ended, or was cancelled or deleted"))?;
    let (required_status, now) =
        state(app, id, verb).ok_or_else(|| format!("{id} cannot be read: {} removes it", app.key("cancel")))?;
    if let Some(required_status) = required_status {
        return Err(format!("{verb} needs an entry that is {required_status}; {id} is {now}"));
    }
    if let Some(running) = queries::running(&app.seen, id).filter(|_| verb == Verb::Retry) {
        let (since, host) = (when::age(running.start, app.now.wall), short_text::safe(&running.host));
        return Err(format!("the command of {id} has run on {host} for {since}: wait for it, or cancel the entry"));
    }
    let name = queries::machine(&app.seen, id).unwrap_or_default();
    let api = queries::is_api_server(&app.seen, &name);
    let action = Action::Order { entry: id, verb, seen: Some(revision), reason: None };
    let work = match id.queue {
        QueueKind::Reboot => "reboot",
        QueueKind::Repair => "repair",
        QueueKind::Maintenance => "maintenance",
    };
    let (title, label) = match verb {
        Verb::Force => (format!("Force the {work} of {name}?"), format!("Force 1 {work}")),
        Verb::Done => (format!("Treat the {work} of {name} as done?"), format!("Mark 1 {work} done")),
        _ => (format!("Retry the {work} of {name}?"), format!("Retry 1 {work}")),
    };
    let mut dialog = Dialog::new(title, label, DialogAction::Act(action));
    dialog.lines = lines(app, id, verb, &now);
    dialog.why = ReasonPolicy::Required;
    dialog.preconditions = Phase::of(&app.seen, id).map(|phase| Precondition::Phase(id, phase)).into_iter().collect();
    dialog.expect = tier::confirmation_text(app, &verb.to_string(), 1, usize::from(api));
    Ok(dialog)
}

/// Returns the dialog's lines about the entry, which is in the state `now`.
fn lines(app: &App, id: EntryId, verb: Verb, now: &str) -> Vec<String> {
    let (what, unchecked) = consequences(verb, id.queue);
    let name = queries::machine(&app.seen, id).unwrap_or_default();
    let address = queries::address_of(&app.seen, id).map_or("", |address| address.as_str());
    let work = queries::repair(&app.seen, id).map(|e| {
        format!("  {} step {}: {}", e.operation, short_text::step(&app.seen, e), short_text::command(&app.seen, e))
    });
    let mut lines = vec![
        format!("{id}  {name}  {address}{}  {now}", work.unwrap_or_default()),
        format!("the leader {what}"),
        format!("not checked: {unchecked}"),
    ];
    if queries::is_api_server(&app.seen, &name) {
        lines.insert(0, "! API server; its checks still apply".to_owned());
    }
    if verb == Verb::Force {
        lines.extend(force::gates(app, id));
    }
    if let Some(why) = app.seen.reasons.get(&id) {
        lines.extend(force::warning(why).filter(|_| verb == Verb::Force).map(str::to_owned));
        lines.push(short_text::sentence(why));
    }
    lines
}

/// Updates the lines and the revision. The order stays true while the entry is in the phase that was shown; in another
/// one it expires.
pub fn follow(app: &App, dialog: &mut Dialog) {
    dialog.check(&app.seen);
    let DialogAction::Act(Action::Order { entry, verb, seen: Some(shown), .. }) = &mut dialog.action else { return };
    if dialog.expired.is_some() {
        return;
    }
    let (id, verb) = (*entry, *verb);
    match (queries::stored_at(&app.seen, id), state(app, id, verb)) {
        (Some((_, revision)), Some((None, now))) => {
            *shown = revision;
            dialog.lines = lines(app, id, verb, &now);
        }
        (_, Some((Some(_), now))) => dialog.expire(format!("{id} is {now} now: nothing was done")),
        (None, _) | (_, None) => dialog.expire(format!("{id} no longer exists: nothing was done")),
    }
}

/// Opens the dialog that releases an orphaned cordon.
pub fn release(app: &App) -> Result<Dialog, String> {
    let (Some(Target::Node(_)), chosen) = (app.target(), app.chosen_nodes()) else {
        return Err(format!("uncordon nodes in the Nodes view: press {} and choose one", app.key("nodes")));
    };
    let [name] = chosen.as_slice() else {
        return Err(format!(
            "{} uncordons one node at a time, and {} are marked: unmark the others",
            app.key("release"),
            chosen.len()
        ));
    };
    release_of(app, name)
}

/// Opens the same dialog for this node.
pub fn release_of(app: &App, name: &str) -> Result<Dialog, String> {
    let name = name.to_owned();
    let owner = || queries::node(&app.seen, &name).and_then(|row| row.owner()).map(|owner| owner.entry);
    let entry = match app.seen.orphans.get(name.as_str()) {
        Some(Reason::OrphanedCordon { entry, .. }) => Some(*entry),
        Some(Reason::DrainedByOther { .. }) => owner(),
        Some(_) | None => None,
    };
    let Some(entry) = entry else {
        return Err(format!("{name} has no orphaned cordon"));
    };
    let action = Action::Order { entry, verb: Verb::Uncordon, seen: None, reason: None };
    let mut dialog = Dialog::new(format!("Uncordon {name}?"), "Uncordon 1 node", DialogAction::Act(action));
    dialog.lines = vec![
        format!("{entry} is gone; its command may have been running on {name}"),
        "! pods may be scheduled on it again".to_owned(),
        "not checked: whether it has booted".to_owned(),
    ];
    let uid = queries::node(&app.seen, &name).map_or("", |n| n.uid.as_str());
    dialog.preconditions = vec![Precondition::Node(name, uid.to_owned())];
    Ok(dialog)
}
