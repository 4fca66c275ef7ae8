//! Dialog that enables or disables a queue: the repair queue from Repairs, the reboot queue from other views.

use cketerm_model::{acceptance::LeaderKind, entry::QueueKind};

use crate::state::{
    App,
    dialog::{Dialog, DialogAction, Precondition},
    event::Action,
};

/// Opens the dialog for the view's queue.
pub fn open(app: &App) -> Dialog {
    of(app, app.acting_view().queue())
}

/// Opens the dialog for a queue.
pub fn of(app: &App, queue: QueueKind) -> Dialog {
    let enabled = !app.seen.snapshot.store.switch(queue).enabled();
    let verb = if enabled { "Enable" } else { "Disable" };
    let action = DialogAction::Act(Action::Switch { queue, enabled, reason: None });
    let verb = format!("{verb} the {queue} queue");
    let mut dialog = Dialog::new(format!("{verb}?"), verb, action);
    dialog.lines = lines(app, queue, enabled);
    dialog.preconditions = vec![Precondition::switch(&app.seen, queue.into())];
    dialog
}

/// Updates the counts.
pub fn follow(app: &App, dialog: &mut Dialog) {
    if let DialogAction::Act(Action::Switch { queue, enabled, .. }) = &dialog.action {
        dialog.lines = lines(app, *queue, *enabled);
    }
}

/// Returns the effects of the switch on the queue's entries.
fn lines(app: &App, queue: QueueKind, enabled: bool) -> Vec<String> {
    let counts = app.knowledge.totals.counts(queue);
    if enabled {
        let starts = format!("{} queued, {} in backoff: the next pass may start some", counts.queued, counts.backoff);
        std::iter::once(starts).chain(drains_at_enable(app, counts.draining)).collect()
    } else {
        let after = match queue {
            QueueKind::Reboot => format!("{} rebooting: continue to the boot check", counts.after),
            QueueKind::Repair => format!("{} watching: health checks continue, no next step begins", counts.after),
            QueueKind::Maintenance => format!("{} in maintenance: stay cordoned", counts.after),
        };
        vec![format!("no drain and no {queue} command starts any more"), drains_at_disable(app, counts.draining), after]
    }
}

/// Returns what becomes of so many drains when their queue is disabled. CKE may keep their status: with the next enable
/// it goes on where it was.
pub(super) fn drains_at_disable(app: &App, draining: usize) -> String {
    if app.seen.snapshot.store.leadership().lead == LeaderKind::Cke && draining > 0 {
        format!("{draining} draining: CKE may go on with their commands at the next enable")
    } else {
        format!("{draining} draining: backed off and uncordoned")
    }
}

/// Returns what becomes of drains that CKE kept, when their queue is enabled. `None` without such drains.
pub(super) fn drains_at_enable(app: &App, draining: usize) -> Option<String> {
    let is_kept = app.seen.snapshot.store.leadership().lead == LeaderKind::Cke && draining > 0;
    is_kept.then(|| format!("{draining} draining: CKE goes on with them and may run their commands"))
}
