//! Commands that the leader would not honour. The console refuses them before a dialog opens, and leaves them out of
//! the footer (`src/model/src/acceptance.rs`).

use cketerm_actions as actions;
use cketerm_model::{
    acceptance::{LeaderKind, OperatorCommand},
    batch::{BatchState, Paused},
};

use super::{
    App, View,
    batches::BatchSummary,
    event::{Action, BatchAction, RegistryAction},
};
use crate::keys::Command;

/// Returns the table row for a command in this view. `None` if the command changes nothing.
pub fn requested(command: Command, view: View) -> Option<OperatorCommand> {
    let registry = matches!(view, View::Machines | View::Diff);
    Some(match command {
        Command::Hold if registry => OperatorCommand::HoldApplying,
        Command::Unhold if registry => OperatorCommand::ApplyAgain,
        Command::Hold | Command::Unhold if view == View::Hosts => OperatorCommand::Manual,
        Command::Hold => OperatorCommand::Hold,
        Command::Unhold => OperatorCommand::Unhold,
        Command::Retry => OperatorCommand::Retry,
        Command::Done => OperatorCommand::Done,
        Command::Force => OperatorCommand::Force,
        Command::Release => OperatorCommand::Release,
        Command::KeepCordoned => OperatorCommand::KeepCordoned,
        Command::Approve => OperatorCommand::Approve,
        Command::Reboot | Command::Repair => OperatorCommand::Add,
        Command::Cancel | Command::CancelAll | Command::DeleteFinished | Command::DeleteUnfinished => {
            OperatorCommand::Cancel
        }
        Command::ResetBackoff => OperatorCommand::ResetBackoff,
        Command::Switch | Command::AutoRepair => OperatorCommand::Disable,
        Command::Stop => OperatorCommand::Stop,
        Command::Resume => OperatorCommand::Resume,
        Command::Constraint => OperatorCommand::Settings,
        Command::HostPower | Command::Fence => OperatorCommand::Manual,
        _ => return None,
    })
}

/// Returns the table row for an action.
fn requested_by(action: &Action) -> OperatorCommand {
    match action {
        Action::AddReboots { .. } | Action::AddRepairs { .. } => OperatorCommand::Add,
        Action::Cancel { .. } | Action::Remove { .. } | Action::Batches { what: BatchAction::Cancel, .. } => {
            OperatorCommand::Cancel
        }
        Action::ResetBackoff { .. } => OperatorCommand::ResetBackoff,
        Action::Hold { hold: true, .. } => OperatorCommand::Hold,
        Action::Hold { hold: false, .. } => OperatorCommand::Unhold,
        Action::Batches { what: BatchAction::Pause, .. } => OperatorCommand::PauseBatch,
        Action::Batches { what: BatchAction::Resume, .. } => OperatorCommand::ResumeBatch,
        Action::Switch { enabled: true, .. } => OperatorCommand::Enable,
        Action::Switch { enabled: false, .. } => OperatorCommand::Disable,
        Action::Registry { what, .. } => match what {
            RegistryAction::Enable(true) | RegistryAction::AutoRepair(true) => OperatorCommand::Enable,
            RegistryAction::Enable(false) | RegistryAction::AutoRepair(false) => OperatorCommand::Disable,
            RegistryAction::Approve(_) => OperatorCommand::Approve,
            RegistryAction::Hold(true, _) => OperatorCommand::HoldApplying,
            RegistryAction::Hold(false, _) => OperatorCommand::ApplyAgain,
            RegistryAction::Constraint { .. } => OperatorCommand::Settings,
        },
        Action::Order { verb, .. } => OperatorCommand::from(*verb),
        Action::Hosts { .. } => OperatorCommand::Manual,
        Action::Freeze { .. } => OperatorCommand::Freeze,
        Action::Unfreeze { .. } => OperatorCommand::Unfreeze,
        Action::Stop { .. } => OperatorCommand::Stop,
        Action::Resume { .. } => OperatorCommand::Resume,
        Action::Maintenance { .. } => OperatorCommand::Maintain,
        Action::EndMaintenance { .. } => OperatorCommand::EndMaintenance,
        Action::KeepCordoned { keep: true, .. } => OperatorCommand::KeepCordoned,
        Action::KeepCordoned { keep: false, .. } => OperatorCommand::GiveCordonBack,
    }
}

/// Returns why the leader would not honour a command. An order for an entry in progress is checked against that entry
/// when it is given.
pub fn refusal(app: &App, requested: OperatorCommand) -> Option<String> {
    let leadership = app.seen.snapshot.store.leadership();
    actions::refusal_naming(requested, &leadership, true, false, &instead(app, requested))
}

/// Returns the alternative by the console's keys, in so few words that a screen of 80 columns shows all of it. A command
/// that the console lacks, or an effect that no key has, keeps the text of the command line.
fn instead(app: &App, requested: OperatorCommand) -> String {
    let [cancel, switch, add] = ["cancel", "switch", "reboot"].map(|name| app.key(name));
    match requested {
        OperatorCommand::Hold => {
            format!("{cancel} cancels the entry, {switch} disables its queue, :stop disables both queues")
        }
        OperatorCommand::PauseBatch => {
            format!("{cancel} cancels the batch, {switch} disables its queue, :stop disables both queues")
        }
        OperatorCommand::Retry => {
            format!("{cancel} cancels the entry and {add} adds it again, or run `cketerm power cycle ADDRESS`")
        }
        OperatorCommand::Done => format!("{cancel} cancels the entry, then run `cketerm nodes uncordon NODE`"),
        OperatorCommand::Force => format!("delete the remaining pods with kubectl, or {cancel} cancels the entry"),
        OperatorCommand::KeepCordoned => {
            format!("{cancel} cancels the entry, then run `cketerm nodes cordon NODE`")
        }
        OperatorCommand::Approve | OperatorCommand::HoldApplying => {
            format!("{switch} in Machines or Diff disables the integration")
        }
        OperatorCommand::Freeze => {
            ":stop disables both queues, whoever leads; `cketerm freeze --for-handover` stores it for cketerm"
                .to_owned()
        }
        OperatorCommand::Release
        | OperatorCommand::Maintain
        | OperatorCommand::EndMaintenance
        | OperatorCommand::Windows
        | OperatorCommand::Groups
        | OperatorCommand::Policy
        | OperatorCommand::Add
        | OperatorCommand::Cancel
        | OperatorCommand::ResetBackoff
        | OperatorCommand::Enable
        | OperatorCommand::Disable
        | OperatorCommand::Settings
        | OperatorCommand::Manual
        | OperatorCommand::Stop
        | OperatorCommand::Resume
        | OperatorCommand::Engine
        | OperatorCommand::Unhold
        | OperatorCommand::ResumeBatch
        | OperatorCommand::Unfreeze
        | OperatorCommand::ApplyAgain
        | OperatorCommand::GiveCordonBack => requested.instead().to_owned(),
    }
}

/// Same as [`refusal`], for an action that a dialog confirms.
pub fn refusal_of(app: &App, action: &Action) -> Option<String> {
    refusal(app, requested_by(action))
}

/// Returns the pause of a batch, if it is in force: CKE knows no pauses.
pub fn pause_in_force<'a>(app: &App, batch: &'a BatchSummary) -> Option<&'a Paused> {
    batch.batch.paused.as_ref().filter(|_| not_in_force(app).is_none())
}

/// Returns the state of a batch. One whose pause is not in force runs.
pub fn batch_state(app: &App, batch: &BatchSummary) -> BatchState {
    match batch.state() {
        BatchState::Paused if pause_in_force(app, batch).is_none() => BatchState::Running,
        state => state,
    }
}

/// Returns why the policy's rules are not in force now. `None` if they are.
pub fn not_in_force(app: &App) -> Option<&'static str> {
    (app.seen.snapshot.store.leadership().lead == LeaderKind::Cke).then_some("NOT IN FORCE: CKE does not know it")
}
