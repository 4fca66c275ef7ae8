//! What this person may not do, said before a dialog opens: the servers were asked when the console began.

use super::{
    app::{App, View},
    event::Action,
    keys::Command,
};
use crate::model::{entry::QueueKind, rights::Area};

/// What the command changes in this view; none = nothing that is asked for beforehand.
pub fn area(command: Command, view: View) -> Option<Area> {
    let queue = of_queue(view.queue());
    let registry = matches!(view, View::Machines | View::Diff);
    Some(match command {
        Command::HostPower | Command::Fence => Area::Hosts,
        Command::Unhold if view == View::Hosts => Area::Hosts,
        Command::Switch | Command::Hold | Command::Unhold if registry => Area::Registry,
        Command::Approve | Command::AutoRepair => Area::Registry,
        Command::Constraint => Area::Settings,
        Command::Hold | Command::Unhold | Command::Retry | Command::Done | Command::Force | Command::Release => {
            Area::Orders
        }
        // the two switches lie beside each other: who may write one may write both
        Command::Reboot | Command::CancelAll | Command::Stop | Command::Resume => Area::Reboots,
        Command::Repair | Command::DeleteFinished | Command::DeleteUnfinished => Area::Repairs,
        Command::Cancel | Command::ResetBackoff | Command::Switch => queue,
        Command::Keep => Area::Nodes,
        _ => return None,
    })
}

/// What the action changes, where a dialog of any view may have led to it.
pub fn area_of(action: &Action) -> Option<Area> {
    Some(match action {
        Action::AddReboots { .. } | Action::Stop { .. } | Action::Resume { .. } => Area::Reboots,
        Action::AddRepairs { .. } => Area::Repairs,
        Action::Cancel { entries, .. } | Action::ResetBackoff { entries, .. } => of_queue(entries.first()?.queue),
        Action::Remove { entry, .. } => of_queue(entry.queue),
        Action::Switch { queue, .. } => of_queue(*queue),
        Action::Hold { .. } | Action::Order { .. } => Area::Orders,
        Action::Freeze { .. } | Action::Unfreeze { .. } => Area::Settings,
        Action::KeepCordoned { .. } => Area::Nodes,
        _ => return None,
    })
}

fn of_queue(queue: QueueKind) -> Area {
    match queue {
        QueueKind::Reboot => Area::Reboots,
        QueueKind::Repair => Area::Repairs,
    }
}

impl App {
    /// Why this command is not for this person, in the view that is open.
    pub fn may_not(&self, command: Command) -> Option<&str> {
        self.rights.refusal(area(command, self.view)?)
    }
}
