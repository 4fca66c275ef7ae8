//! Orders for whoever leads: retry, done, force, and the release of an orphaned cordon.

use super::{Bound, Deed, Dialog, Why};
use crate::{
    console::{
        app::{App, Target},
        brief,
        event::Action,
        facts,
    },
    model::{ours::Verb, reason::Reason, reboot::RebootStatus},
};

/// Opens the dialog of `retry`, `done` or `force`, or says why the order makes no sense here.
pub fn open(app: &App, verb: Verb) -> Result<Dialog, String> {
    let chosen = app.chosen_entries();
    if chosen.is_empty() {
        return Err(app.nothing_chosen("entry"));
    }
    let [id] = chosen.as_slice() else {
        return Err(format!("{verb} is given to one entry at a time: choose one, {} are chosen", chosen.len()));
    };
    let stored = facts::stored(&app.seen, *id).ok_or_else(|| format!("{id} is gone: it ended or was cancelled"))?;
    let entry = stored.get().ok_or_else(|| format!("{id} cannot be read: mend or delete its key with etcdctl"))?;
    let (wanted, what, unchecked) = match verb {
        Verb::Force => (
            RebootStatus::Draining,
            "goes on to the reboot without waiting for the pods and volumes left",
            "who still needs those pods and volumes",
        ),
        Verb::Done => (
            RebootStatus::Rebooting,
            "treats the machine as booted; the Node must still be Ready",
            "boot check and boot id: whether it was rebooted at all",
        ),
        _ => (
            RebootStatus::Rebooting,
            "runs the reboot command once more",
            "whether the last command did its work unseen",
        ),
    };
    let forced_from_the_queue = verb == Verb::Force && entry.status == RebootStatus::Queued;
    if entry.status != wanted && !forced_from_the_queue {
        return Err(format!("{verb} is for an entry that is {wanted}; {id} is {}", entry.status));
    }
    let name = app.seen.snapshot.machine(&entry.node);
    let api = facts::is_api_server(&app.seen, &name);
    let deed = Action::Order { entry: *id, verb, seen: Some(stored.mod_revision), reason: None };
    let label = match verb {
        Verb::Force => "Force",
        Verb::Done => "Done",
        _ => "Retry",
    };
    let mut dialog = Dialog::new(format!("Order {verb} of {id} on {}?", app.cluster_word()), label, Deed::Act(deed));
    dialog.lines = vec![
        format!("{name}  {}  {}", entry.node, entry.status),
        format!("the leader {what}"),
        format!("not checked: {unchecked}"),
    ];
    if api {
        dialog.lines.insert(0, "! API server; its rules are not skipped".to_owned());
    }
    if let Some(why) = app.seen.reasons.get(id) {
        dialog.lines.push(brief::sentence(why));
    }
    dialog.why = Why::Required;
    dialog.bound = vec![Bound::Entry(*id, stored.mod_revision)];
    dialog.expect = (api && verb != Verb::Done).then(|| format!("{} 1", app.cluster_word()));
    Ok(dialog)
}

/// Opens the dialog that releases an orphaned cordon.
pub fn release(app: &App) -> Result<Dialog, String> {
    let Some(Target::Node(name)) = app.target() else {
        return Err("cordons are released from the nodes: press 2 and choose one".to_owned());
    };
    let Some(Reason::OrphanedCordon { entry, .. }) = app.seen.orphans.get(&name) else {
        return Err(format!("{name} has no cordon that a cancelled entry left behind"));
    };
    let deed = Action::Order { entry: *entry, verb: Verb::Uncordon, seen: None, reason: None };
    let mut dialog = Dialog::new(format!("Release the cordon of {name}?"), "Release", Deed::Act(deed));
    dialog.lines = vec![
        format!("{entry} was cancelled while {name} was rebooting"),
        "! pods may be scheduled on it again".to_owned(),
        "not checked: whether it has booted".to_owned(),
    ];
    let uid = facts::node(&app.seen, &name).map_or("", |n| n.uid.as_str());
    dialog.bound = vec![Bound::Node(name, uid.to_owned())];
    Ok(dialog)
}
