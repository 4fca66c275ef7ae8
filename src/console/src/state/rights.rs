//! Permissions that the operator lacks, shown before a dialog opens. The console queries the servers for them when it
//! starts.

use cketerm_model::{entry::QueueKind, rights::Area};

use super::{
    App, View,
    event::{Action, BatchAction},
};
use crate::keys::Command;

/// Returns the area that a command changes in this view. `None` if its permission is not queried in advance.
pub fn area(command: Command, view: View) -> Option<Area> {
    let queue = of_queue(view.queue());
    let registry = matches!(view, View::Machines | View::Diff);
    Some(match command {
        Command::HostPower | Command::Fence => Area::Hosts,
        Command::Hold | Command::Unhold if view == View::Hosts => Area::Hosts,
        Command::Switch | Command::Hold | Command::Unhold if registry => Area::Registry,
        Command::Approve | Command::AutoRepair => Area::Registry,
        Command::Constraint => Area::Settings,
        Command::Hold | Command::Unhold | Command::Retry | Command::Done | Command::Force | Command::Release => {
            Area::Orders
        }
        // Both switches are in the same place: a user who may write one may write both.
        Command::Reboot | Command::CancelAll | Command::Stop | Command::Resume => Area::Reboots,
        Command::Repair | Command::DeleteFinished | Command::DeleteUnfinished => Area::Repairs,
        Command::Cancel | Command::ResetBackoff | Command::Switch => queue,
        Command::KeepCordoned => Area::Nodes,
        _ => return None,
    })
}

/// Returns the area that an action changes, for dialogs that can be opened from any view.
pub fn area_of(action: &Action) -> Option<Area> {
    Some(match action {
        Action::AddReboots { .. } | Action::Stop { .. } | Action::Resume { .. } => Area::Reboots,
        Action::AddRepairs { .. } => Area::Repairs,
        Action::Cancel { entries, .. } | Action::ResetBackoff { entries, .. } => of_queue(entries.first()?.queue),
        Action::Remove { entry, .. } => of_queue(entry.queue),
        Action::Switch { queue, .. } | Action::Batches { queue, what: BatchAction::Cancel, .. } => of_queue(*queue),
        Action::Maintenance { .. } | Action::EndMaintenance { .. } => Area::Maintenance,
        Action::Batches { .. } | Action::Hold { .. } | Action::Order { .. } => Area::Orders,
        Action::Freeze { .. } | Action::Unfreeze { .. } => Area::Settings,
        Action::KeepCordoned { .. } => Area::Nodes,
        _ => return None,
    })
}

fn of_queue(queue: QueueKind) -> Area {
    match queue {
        QueueKind::Reboot => Area::Reboots,
        QueueKind::Maintenance => Area::Maintenance,
        QueueKind::Repair => Area::Repairs,
    }
}

impl App {
    /// Returns why the operator has no permission for this command in the open view.
    pub fn forbidden(&self, command: Command) -> Option<&str> {
        self.knowledge.rights.refusal(area(command, self.acting_view())?)
    }
}
