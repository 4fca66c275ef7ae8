//! Enable or disable a queue: the repair queue from Repairs, the reboot queue from elsewhere.

use super::{Bound, Deed, Dialog};
use crate::{
    console::{app::App, event::Action},
    model::entry::QueueKind,
};

/// Opens it.
pub fn open(app: &App) -> Dialog {
    let (queue, store) = (app.view.queue(), &app.seen.snapshot.store);
    let (switch, counts) = match queue {
        QueueKind::Reboot => (&store.reboots.switch, &app.facts.reboots),
        QueueKind::Repair => (&store.repairs.switch, &app.facts.repairs),
    };
    let enabled = !switch.enabled();
    let verb = if enabled { "Enable" } else { "Disable" };
    let deed = Deed::Act(Action::Switch { queue, enabled, reason: None });
    let mut dialog = Dialog::new(format!("{verb} the {queue} queue of {}?", app.cluster_word()), verb, deed);
    dialog.lines = if enabled {
        vec![format!("{} queued, {} in backoff: the next pass may start some", counts.queued, counts.backoff)]
    } else {
        let after = match queue {
            QueueKind::Reboot => format!("{} rebooting: goes on to its boot check", counts.after),
            QueueKind::Repair => format!("{} watching: its health is still checked, no next step begins", counts.after),
        };
        vec![
            format!("no drain and no {queue} command starts any more"),
            format!("{} draining: backed off and uncordoned", counts.draining),
            after,
        ]
    };
    dialog.bound = vec![Bound::switch(&app.seen, queue.into())];
    dialog
}
