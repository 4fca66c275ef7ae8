//! Commands that the leader would not honour. The console refuses them before a dialog opens, and leaves them out of
//! the footer (`src/model/acceptance.rs`).

use super::{
    app::{App, View},
    event::{Action, Registering},
    keys::Command,
};
use crate::{
    actions,
    model::acceptance::{Asked, Lead},
};

/// Returns the table row for a command in this view. `None` if the command changes nothing.
pub fn asked(command: Command, view: View) -> Option<Asked> {
    let registry = matches!(view, View::Machines | View::Diff);
    Some(match command {
        Command::Hold if registry => Asked::HoldApplying,
        Command::Unhold if registry => Asked::ApplyAgain,
        Command::Unhold if view == View::Hosts => Asked::ByHand,
        Command::Hold => Asked::Hold,
        Command::Unhold => Asked::Unhold,
        Command::Retry => Asked::Retry,
        Command::Done => Asked::Done,
        Command::Force => Asked::Force,
        Command::Release => Asked::Release,
        Command::Keep => Asked::KeepCordoned,
        Command::Approve => Asked::Approve,
        Command::Reboot | Command::Repair => Asked::Add,
        Command::Cancel | Command::CancelAll | Command::DeleteFinished | Command::DeleteUnfinished => Asked::Cancel,
        Command::ResetBackoff => Asked::ResetBackoff,
        Command::Switch | Command::AutoRepair => Asked::Disable,
        Command::Stop => Asked::Stop,
        Command::Resume => Asked::Resume,
        Command::Constraint => Asked::Settings,
        Command::HostPower | Command::Fence => Asked::ByHand,
        _ => return None,
    })
}

/// Returns the table row for an action.
fn asked_of(action: &Action) -> Asked {
    match action {
        Action::AddReboots { .. } | Action::AddRepairs { .. } => Asked::Add,
        Action::Cancel { .. } | Action::Remove { .. } => Asked::Cancel,
        Action::ResetBackoff { .. } => Asked::ResetBackoff,
        Action::Hold { hold: true, .. } => Asked::Hold,
        Action::Hold { hold: false, .. } => Asked::Unhold,
        Action::Switch { enabled: true, .. } => Asked::Enable,
        Action::Switch { enabled: false, .. } => Asked::Disable,
        Action::Registry { what, .. } => match what {
            Registering::Enable(true) | Registering::AutoRepair(true) => Asked::Enable,
            Registering::Enable(false) | Registering::AutoRepair(false) => Asked::Disable,
            Registering::Approve(_) => Asked::Approve,
            Registering::Hold(true, _) => Asked::HoldApplying,
            Registering::Hold(false, _) => Asked::ApplyAgain,
            Registering::Constraint { .. } => Asked::Settings,
        },
        Action::Order { verb, .. } => Asked::from(*verb),
        Action::Hosts { .. } => Asked::ByHand,
        Action::Freeze { .. } => Asked::Freeze,
        Action::Unfreeze { .. } => Asked::Unfreeze,
        Action::Stop { .. } => Asked::Stop,
        Action::Resume { .. } => Asked::Resume,
        Action::KeepCordoned { keep: true, .. } => Asked::KeepCordoned,
        Action::KeepCordoned { keep: false, .. } => Asked::GiveCordonBack,
    }
}

/// Returns why the leader would not honour a command. An order for an entry in progress is checked against that entry
/// when it is given.
pub fn refusal(app: &App, asked: Asked) -> Option<String> {
    actions::refusal(asked, &app.seen.snapshot.store.leadership(), true, false)
}

/// Same as [`refusal`], for an action that a dialog confirms.
pub fn refusal_of(app: &App, action: &Action) -> Option<String> {
    refusal(app, asked_of(action))
}

/// Returns why the policy's rules are not in force now. `None` if they are.
pub fn not_in_force(app: &App) -> Option<&'static str> {
    (app.seen.snapshot.store.leadership().lead == Lead::Cke).then_some("NOT IN FORCE: CKE does not know it")
}
