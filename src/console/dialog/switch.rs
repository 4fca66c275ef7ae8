//! Enable or disable the reboot queue.

use super::{Bound, Deed, Dialog};
use crate::console::{app::App, event::Action};

/// Opens it.
pub fn open(app: &App) -> Dialog {
    let switch = &app.seen.snapshot.store.reboots.switch;
    let enabled = !switch.enabled();
    let (title, verb) = if enabled { ("Enable", "Enable") } else { ("Disable", "Disable") };
    let deed = Deed::Act(Action::Switch { enabled, reason: None });
    let mut dialog = Dialog::new(format!("{title} the reboot queue of {}?", app.cluster_word()), verb, deed);
    dialog.lines = if enabled {
        vec![format!("{} queued, {} in backoff: the next pass may start some", app.facts.queued, app.facts.backoff)]
    } else {
        vec![
            "no drain and no reboot command starts any more".to_owned(),
            format!("{} draining: backed off and uncordoned", app.facts.draining),
            format!("{} rebooting: goes on to its boot check", app.facts.rebooting),
        ]
    };
    dialog.bound = vec![Bound::Switch(switch.mod_revision)];
    dialog
}
