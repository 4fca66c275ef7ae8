//! Verbs that change the cluster. They are refused while the console is read-only or etcd is stale; then a dialog asks
//! for confirmation.

use crate::{
    console::{
        app::{App, Pane, Target, View},
        dialog::{self, Dialog, DialogAction},
        event::{Action, ActionOutcome, Effect},
        keys::Command,
        leaders,
        past::Question,
        queries, rights, sources, tour,
        undo::{Offer, Way},
    },
    model::cketerm_records::Verb,
};

/// Starts the verb of a key.
///
/// The text after `--` on the command line becomes the reason of the dialog.
pub(super) fn begin(app: &mut App, command: Command, reason: Option<String>) -> Vec<Effect> {
    if let Some(why) = refusal(app) {
        app.refuse(why);
        return Vec::new();
    }
    if let Some(why) = app.may_not(command).map(str::to_owned) {
        return not_granted(app, why);
    }
    // giving a cordon back has the same key as keeping it: it is judged once it is known which one is meant
    let asked = leaders::asked(command, app.view).filter(|_| command != Command::Keep);
    if let Some(why) = asked.and_then(|asked| leaders::refusal(app, asked)) {
        app.refuse(why);
        return Vec::new();
    }
    // marked rows are identified by name, so the cursor's place does not matter
    if app.pane.is_none() && app.list().marked() == 0 && app.strayed() && !whole_queue(command) {
        // the key was meant for a row that has just ended under the cursor, and so is any reason that follows
        let why = "the row under the cursor ended, and the cursor moved to the next: check it, and press the key again";
        show(app, Dialog::gone("Nothing was asked", why));
        return Vec::new();
    }
    let registry = matches!(app.view, View::Machines | View::Diff);
    let opened = match command {
        Command::HostPower => dialog::host::power(app),
        Command::Fence => dialog::host::fence(app),
        Command::Unhold if app.view == View::Hosts => dialog::host::release(app),
        Command::Repair => dialog::repair::open(app),
        Command::DeleteFinished => dialog::cancel::whole(app, true),
        Command::DeleteUnfinished => dialog::cancel::whole(app, false),
        Command::Hold if registry => dialog::registry::hold(app, true),
        Command::Unhold if registry => dialog::registry::hold(app, false),
        Command::Switch if registry => Ok(dialog::registry::switch(app)),
        Command::Approve => dialog::registry::approve(app),
        Command::Constraint => dialog::registry::constraint(app),
        Command::AutoRepair => Ok(dialog::registry::auto_repair(app)),
        Command::Hold => dialog::hold::open(app, true),
        Command::Unhold => dialog::hold::open(app, false),
        Command::Reboot => dialog::add::open(app),
        Command::Cancel => dialog::cancel::open(app),
        Command::CancelAll => dialog::cancel::all(app),
        Command::ResetBackoff => dialog::backoff::open(app),
        Command::Switch => Ok(dialog::switch::open(app)),
        Command::Stop => Ok(dialog::stop::stop(app)),
        Command::Resume => dialog::stop::resume(app),
        Command::Retry => dialog::order::open(app, Verb::Retry),
        Command::Done => dialog::order::open(app, Verb::Done),
        Command::Force => dialog::order::open(app, Verb::Force),
        Command::Release => dialog::order::release(app),
        _ => return keep(app),
    };
    match opened {
        Ok(mut opened) => {
            let (hidden, filter) = (app.list().hidden_marks(), app.list().filter());
            if hidden > 0 && app.pane.is_none() && !whole_queue(command) {
                opened.notes.push(format!("! {hidden} marked rows are hidden by the filter {filter:?}"));
            }
            if let Some(reason) = reason {
                opened.because(reason);
            }
            show_numbered(app, opened);
        }
        Err(why) if gone(app) => show(app, Dialog::gone("Nothing was asked", why)),
        Err(why) => app.refuse(why),
    }
    Vec::new()
}

/// Opens the dialog of a command that changes the cluster; after an error the command line stays open.
pub(super) fn open(app: &mut App, opened: Result<Dialog, String>) -> Result<Vec<Effect>, String> {
    if let Some(why) = refusal(app) {
        return Err(why);
    }
    let opened = opened?;
    if let DialogAction::Act(action) = &opened.action
        && let Some(why) = rights::area_of(action).and_then(|area| app.rights.refusal(area)).map(str::to_owned)
    {
        return Ok(not_granted(app, why));
    }
    if let DialogAction::Act(action) = &opened.action
        && let Some(why) = leaders::refusal_of(app, action)
    {
        return Err(why);
    }
    show_numbered(app, opened);
    Ok(Vec::new())
}

/// Refuses an action that the servers would reject. The rights are queried again, so that the next press finds new
/// ones.
fn not_granted(app: &mut App, why: String) -> Vec<Effect> {
    app.refuse(why);
    vec![Effect::Ask(Question::Rights)]
}

/// Shows a dialog and numbers its preview, so that the answer can be assigned to it.
fn show_numbered(app: &mut App, mut opened: Dialog) {
    if let Some(plan) = &mut opened.plan {
        app.plans += 1;
        plan.number = app.plans;
    }
    show(app, opened);
}

/// Opens the dialog and removes the previous message.
pub(super) fn show(app: &mut App, dialog: Dialog) {
    app.help = None;
    app.message = None;
    app.dialog = Some(dialog);
}

/// Returns true if the pane's entry ended while it was shown.
fn gone(app: &App) -> bool {
    matches!(&app.pane, Some(Pane { of: Target::Entry(id), .. }) if queries::lies(&app.seen, *id).is_none())
}

/// Reports whether a verb is independent of the row under the cursor.
fn whole_queue(command: Command) -> bool {
    use Command::{Approve, AutoRepair, CancelAll, Constraint, DeleteFinished, DeleteUnfinished, Resume, Stop, Switch};
    matches!(
        command,
        Switch | Stop | Resume | Approve | Constraint | AutoRepair | CancelAll | DeleteFinished | DeleteUnfinished
    )
}

/// Starts a confirmed action, unless writing has become impossible meanwhile.
pub(super) fn act(app: &mut App, action: Action) -> Vec<Effect> {
    if let Some(why) = refusal(app) {
        app.refuse(why);
        return Vec::new();
    }
    // the leader may have changed while the dialog was open
    if let Some(why) = leaders::refusal_of(app, &action) {
        app.refuse(why);
        return Vec::new();
    }
    let of_rows = !matches!(
        action,
        Action::KeepCordoned { .. }
            | Action::Switch { .. }
            | Action::Stop { .. }
            | Action::Resume { .. }
            | Action::Freeze { .. }
            | Action::Unfreeze { .. }
    );
    if of_rows {
        app.list_mut().unmark();
    }
    // with two actions under way it is unknown which one ended, so neither can be undone
    let way = Way::of(app, &action);
    app.leaving = way.filter(|_| app.busy == 0);
    app.undo = None;
    tour::began(app, &action);
    app.begin(&action);
    vec![Effect::Act(action)]
}

/// Reports the end of an action, and offers its undo if there is one.
pub(super) fn ended(app: &mut App, result: Result<ActionOutcome, String>) {
    let way = app.leaving.take().filter(|_| app.busy == 0);
    let came = match result {
        Ok(came) => came,
        Err(text) => return app.refuse(text),
    };
    match way.and_then(|way| way.after(&came)) {
        None if came.partly => app.refuse(came.said),
        None => app.say(came.said),
        Some(way) => {
            let said = format!("{}; {} {}", came.said, app.key("undo"), way.word());
            if came.partly {
                app.refuse(said);
            } else {
                app.say(said);
            }
            app.undo = Some(Offer::new(app, way, came.wrote));
        }
    }
}

/// Opens the confirmation of undoing the last action.
pub(super) fn undo(app: &mut App) -> Vec<Effect> {
    let Some(offer) = app.undo.clone() else {
        app.say_here("nothing to undo: this console's last action cannot be undone, or there was none");
        return Vec::new();
    };
    if let Some(why) = offer.refusal(app) {
        app.refuse_here(why);
        return Vec::new();
    }
    let opened = offer.open(app);
    open(app, opened).unwrap_or_else(|why| {
        app.refuse_here(why);
        Vec::new()
    })
}

/// Returns the reason why nothing can be written now.
fn refusal(app: &App) -> Option<String> {
    if app.read_only() {
        return Some("this console was started read-only; `:write 15m` allows changes for that time".to_owned());
    }
    if !app.seen.snapshot.store.synced {
        return Some("not connected to etcd yet: nothing can be written".to_owned());
    }
    sources::refusal(app)
}

/// Toggles keep-cordoned. It needs no confirmation, because the same key reverts it.
fn keep(app: &mut App) -> Vec<Effect> {
    let boot = app.now.boot.as_secs_f64();
    if queries::kube_lost(&app.seen, boot).is_some() {
        app.refuse("Kubernetes does not answer: no node can be changed until it is back");
        return Vec::new();
    }
    let nodes = app.chosen_nodes();
    if nodes.is_empty() {
        app.refuse(app.nothing_chosen("node"));
        return Vec::new();
    }
    let [name] = nodes.as_slice() else {
        app.refuse(format!("keep-cordoned takes one node at a time, {} are chosen", nodes.len()));
        return Vec::new();
    };
    let Some(row) = queries::node(&app.seen, name) else {
        app.refuse(format!("{name} has no Node in Kubernetes"));
        return Vec::new();
    };
    if !row.unschedulable && !row.keep_cordoned {
        app.refuse(format!("{name} is not cordoned: there is no cordon to keep"));
        return Vec::new();
    }
    let action = Action::KeepCordoned { node: name.clone(), keep: !row.keep_cordoned };
    act(app, action)
}
