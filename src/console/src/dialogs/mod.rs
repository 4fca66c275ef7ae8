//! The dialogs. Each has its own file, which opens it and, if it follows its objects, keeps it up to date.

pub mod add;
pub mod again;
pub mod backoff;
pub mod batches;
pub mod cancel;
mod force;
pub mod freeze;
pub mod hold;
pub mod host;
pub mod keep_cordoned;
pub mod lead;
pub mod maintenance;
pub mod order;
pub mod preview;
pub mod quit;
pub mod registry;
pub mod repair;
pub mod stop;
pub mod switch;
pub mod tier;
pub mod undo;

use crate::state::{
    App,
    dialog::{Dialog, DialogAction},
    event::Action,
};

/// Updates what follows from the choices in a dialog: after each key, and whenever the dialog is updated.
pub fn follow_choice(app: &App, dialog: &mut Dialog) {
    host::follow_choice(dialog);
    repair::follow_choice(app, dialog);
}

/// Updates an open dialog after each snapshot and once a second. A dialog that stops entries follows them; any other
/// one may expire.
pub fn refresh(app: &App, dialog: &mut Dialog) {
    if dialog.expired.is_none() {
        match &dialog.action {
            DialogAction::Act(Action::Cancel { .. }) => cancel::follow(app, dialog),
            DialogAction::Act(Action::Hold { .. }) => hold::follow(app, dialog),
            DialogAction::Act(Action::ResetBackoff { .. }) => backoff::follow(app, dialog),
            DialogAction::Act(Action::Order { .. }) => order::follow(app, dialog),
            DialogAction::Act(Action::Batches { .. }) => batches::follow(app, dialog),
            DialogAction::Act(Action::Freeze { .. }) => freeze::follow(app, dialog),
            DialogAction::Act(Action::Switch { .. }) => switch::follow(app, dialog),
            DialogAction::Act(Action::Stop { .. }) => stop::follow(app, dialog),
            DialogAction::Act(Action::Resume { .. }) => stop::follow_resume(app, dialog),
            DialogAction::Act(Action::AddReboots { .. }) => add::follow(app, dialog),
            DialogAction::Quit => quit::follow(app, dialog),
            DialogAction::Lead { .. } => lead::follow(app, dialog),
            DialogAction::Act(_) => {}
        }
        follow_choice(app, dialog);
        preview::refresh(app, dialog);
        preview::renew(app, dialog);
    }
    dialog.check(&app.seen);
    if dialog.expired.is_some() {
        dialog.expired_at.get_or_insert(app.now.boot);
        dialog.asks_again = again::of(app, dialog).is_some();
    }
}
