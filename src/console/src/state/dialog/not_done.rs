//! Answer after the button `Back`: what was not done.

use cketerm_model::entry::QueueKind;

use super::{Dialog, DialogAction};
use crate::state::event::{Action, BatchAction, RegistryAction};

impl Dialog {
    /// Returns the message after the operator went back.
    pub fn not_done(&self) -> &'static str {
        match &self.action {
            DialogAction::Quit => "not quit: this console goes on",
            DialogAction::Lead { .. } => "this console only observes",
            DialogAction::Act(action) => of(action),
        }
    }
}

fn of(action: &Action) -> &'static str {
    match action {
        Action::AddReboots { .. } | Action::AddRepairs { .. } => "nothing was queued",
        Action::Cancel { entries, .. } if entries.iter().all(|id| id.queue == QueueKind::Repair) => {
            "nothing was deleted"
        }
        Action::Cancel { .. } | Action::Batches { what: BatchAction::Cancel, .. } => "nothing was cancelled",
        Action::Remove { .. } => "nothing was removed",
        Action::ResetBackoff { .. } => "no backoff was reset",
        Action::Hold { hold: true, .. } | Action::Registry { what: RegistryAction::Hold(true, _), .. } => {
            "nothing was put on hold"
        }
        Action::Hold { hold: false, .. } | Action::Registry { what: RegistryAction::Hold(false, _), .. } => {
            "nothing was taken off hold"
        }
        Action::Batches { what: BatchAction::Pause, .. } => "nothing was paused",
        Action::Switch { enabled: true, .. }
        | Action::Registry { what: RegistryAction::Enable(true) | RegistryAction::AutoRepair(true), .. } => {
            "nothing was enabled"
        }
        Action::Switch { enabled: false, .. }
        | Action::Registry { what: RegistryAction::Enable(false) | RegistryAction::AutoRepair(false), .. } => {
            "nothing was disabled"
        }
        Action::Stop { .. } => "nothing was stopped",
        Action::Resume { .. } | Action::Batches { what: BatchAction::Resume, .. } => "nothing was resumed",
        Action::Registry { what: RegistryAction::Approve(_), .. } => "nothing was approved",
        Action::Registry { what: RegistryAction::Constraint { .. }, .. } => "no constraint was set",
        Action::Order { .. } => "nothing was ordered",
        Action::Hosts { .. } => "no host was changed",
        Action::Freeze { .. } => "nothing was frozen",
        Action::Unfreeze { .. } => "the freeze stays",
        Action::Maintenance { .. } => "no maintenance was requested",
        Action::EndMaintenance { .. } => "the maintenance goes on",
        Action::KeepCordoned { .. } => "no cordon was changed",
    }
}
