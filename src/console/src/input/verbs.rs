//! Verbs that change the cluster. They are refused while the console is read-only or etcd is stale; then a dialog asks
//! for confirmation.

use cketerm_model::cketerm_records::Verb;

use crate::{
    dialogs,
    keys::Command,
    state::{
        App, Pane, Target, View,
        dialog::{Dialog, DialogAction},
        event::{Action, ActionOutcome, BatchAction, Effect},
        leaders,
        past::ReadRequest,
        queries, rights, sources, tour,
        undo::{UndoAction, UndoOffer},
    },
};

/// Starts the verb of a key.
///
/// The text after `--` on the command line becomes the reason of the dialog.
pub(super) fn begin(app: &mut App, command: Command, reason: Option<String>) -> Vec<Effect> {
    if let Some(why) = refusal(app) {
        app.print_error(why);
        return Vec::new();
    }
    if let Some(why) = app.forbidden(command).map(str::to_owned) {
        return not_granted(app, why);
    }
    // giving a cordon back has the same key as keeping it: it is judged once it is known which one is meant
    let requested = leaders::requested(command, app.acting_view()).filter(|_| command != Command::KeepCordoned);
    if let Some(why) = requested.and_then(|requested| leaders::refusal(app, requested)) {
        app.print_error(why);
        return Vec::new();
    }
    // marked rows are identified by name, so the cursor's place does not matter
    if app.navigation.pane.is_none() && app.list().marked() == 0 && app.cursor_displaced() && !whole_queue(command) {
        // the key was meant for a row that has just ended under the cursor, and so is any reason that follows
        let why = "the row under the cursor ended, and the cursor moved to the next: check it, and press the key again";
        show(app, Dialog::obsolete("Nothing was done", why));
        return Vec::new();
    }
    let view = app.acting_view();
    let registry = matches!(view, View::Machines | View::Diff);
    let batches = app.acts_on_batches();
    let opened = match command {
        Command::Hold if batches => dialogs::batches::open(app, BatchAction::Pause),
        Command::Unhold if batches => dialogs::batches::open(app, BatchAction::Resume),
        Command::Cancel if batches => dialogs::batches::open(app, BatchAction::Cancel),
        Command::HostPower => dialogs::host::power(app),
        Command::Fence => dialogs::host::fence(app),
        Command::Hold if view == View::Hosts => dialogs::host::hold_off(app),
        Command::Unhold if view == View::Hosts => dialogs::host::release(app),
        Command::Repair => dialogs::repair::open(app),
        Command::DeleteFinished => dialogs::cancel::delete_all_repairs(app, true),
        Command::DeleteUnfinished => dialogs::cancel::delete_all_repairs(app, false),
        Command::Hold if app.holds_applying() => dialogs::registry::hold(app, true),
        Command::Unhold if app.holds_applying() => dialogs::registry::hold(app, false),
        Command::Switch if registry => Ok(dialogs::registry::switch(app)),
        Command::Approve => dialogs::registry::approve(app),
        Command::Constraint => dialogs::registry::constraint(app),
        Command::AutoRepair => Ok(dialogs::registry::auto_repair(app)),
        Command::Hold => dialogs::hold::open(app, true),
        Command::Unhold => dialogs::hold::open(app, false),
        Command::Reboot => dialogs::add::open(app),
        Command::Cancel => dialogs::cancel::open(app),
        Command::CancelAll => dialogs::cancel::all(app),
        Command::ResetBackoff => dialogs::backoff::open(app),
        Command::Switch => Ok(dialogs::switch::open(app)),
        Command::Stop => Ok(dialogs::stop::stop(app)),
        Command::Resume => dialogs::stop::resume(app),
        Command::Retry => dialogs::order::open(app, Verb::Retry),
        Command::Done => dialogs::order::open(app, Verb::Done),
        Command::Force => dialogs::order::open(app, Verb::Force),
        Command::Release => dialogs::order::release(app),
        Command::KeepCordoned => dialogs::keep_cordoned::open(app),
        _ => return Vec::new(),
    };
    match opened {
        Ok(mut opened) => {
            let (hidden, filter) = (app.list().hidden_marks(), app.list().filter());
            if hidden > 0 && app.navigation.pane.is_none() && !whole_queue(command) {
                opened.notes.push(format!("! {hidden} marked rows are hidden by the filter {filter:?}"));
            }
            if let Some(reason) = reason {
                opened.set_reason(reason);
            }
            show_numbered(app, opened);
        }
        Err(why) if obsolete(app) => show(app, Dialog::obsolete("Nothing was done", why)),
        Err(why) => app.print_error(why),
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
        && let Some(why) =
            rights::area_of(action).and_then(|area| app.knowledge.rights.refusal(area)).map(str::to_owned)
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
    app.print_error(why);
    vec![Effect::Ask(ReadRequest::Rights)]
}

/// Shows a dialog with what was typed into an expired one of its kind. Numbers its preview, so that the answer can be
/// assigned to it.
pub(super) fn show_numbered(app: &mut App, mut opened: Dialog) {
    if let Some(kept_text) = app.session.kept_text.take() {
        kept_text.restore(&mut opened);
        dialogs::follow_choice(app, &mut opened);
    }
    if let Some(plan) = &mut opened.plan {
        app.session.last_plan_number += 1;
        plan.number = app.session.last_plan_number;
    }
    show(app, opened);
}

/// Opens the dialog and removes the previous message.
pub(super) fn show(app: &mut App, mut dialog: Dialog) {
    app.navigation.help = None;
    app.session.message = None;
    if dialog.expired.is_some() {
        dialog.expired_at = Some(app.now.boot);
    }
    app.dialog = Some(dialog);
}

/// Returns true if the pane's entry ended while it was shown.
fn obsolete(app: &App) -> bool {
    matches!(&app.navigation.pane, Some(Pane { of: Target::Entry(id), .. }) if queries::stored_at(&app.seen, *id).is_none())
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
        app.print_error(why);
        return Vec::new();
    }
    // the leader may have changed while the dialog was open
    if let Some(why) = leaders::refusal_of(app, &action) {
        app.print_error(why);
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
    let undo_action = UndoAction::of(app, &action);
    app.session.pending_undo = undo_action.filter(|_| app.session.busy == 0);
    app.session.undo = None;
    tour::on_action(app, &action);
    app.begin(&action);
    vec![Effect::Act(action)]
}

/// Reports the end of an action, and offers its undo if there is one.
pub(super) fn ended(app: &mut App, result: Result<ActionOutcome, String>) {
    let undo_action = app.session.pending_undo.take().filter(|_| app.session.busy == 0);
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(text) => return app.print_error(text),
    };
    match undo_action.and_then(|undo_action| undo_action.after(&outcome)) {
        None if outcome.partial => app.print_error(outcome.response),
        None => app.print(outcome.response),
        Some(undo_action) => {
            let response = format!("{}; {} {}", outcome.response, app.key("undo"), undo_action.description());
            if outcome.partial {
                app.print_error(response);
            } else {
                app.print(response);
            }
            if let Some(message) = &mut app.session.message {
                message.without_undo = Some(outcome.response);
            }
            app.session.undo = Some(UndoOffer::new(app, undo_action, outcome.written_revision));
        }
    }
}

/// Opens the confirmation of undoing the last action.
pub(super) fn undo(app: &mut App) -> Vec<Effect> {
    let Some(offer) = app.session.undo.clone() else {
        app.print_here("nothing to undo: this console's last action cannot be undone, or there was none");
        return Vec::new();
    };
    if let Some(why) = offer.refusal(app) {
        app.print_error_here(why);
        return Vec::new();
    }
    let opened = dialogs::undo::open(&offer, app);
    open(app, opened).unwrap_or_else(|why| {
        app.print_error_here(why);
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
