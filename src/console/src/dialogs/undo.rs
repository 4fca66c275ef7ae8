//! Dialog that confirms the undo of this console's last action.

use cketerm_model::{entry::QueueKind, stored::keys::SwitchName};

use super::{add, batches, cancel, freeze, hold, host, registry, switch};
use crate::state::{
    App,
    dialog::Dialog,
    event::{BatchAction, count},
    undo::{UndoAction, UndoOffer},
    when,
};

/// Opens the confirmation of the offered undo.
pub fn open(offer: &UndoOffer, app: &App) -> Result<Dialog, String> {
    let mut opened = inverse(&offer.undo_action, app)?;
    let ago = app.now.boot - offer.since;
    opened.notes.insert(0, format!("undoes this console's action of {} ago", when::seconds(ago)));
    Ok(opened)
}

/// Opens the confirmation of an inverse action.
fn inverse(undo_action: &UndoAction, app: &App) -> Result<Dialog, String> {
    match undo_action {
        UndoAction::Enable(SwitchName::Reboots) => Ok(switch::of(app, QueueKind::Reboot)),
        UndoAction::Enable(SwitchName::Repairs) => Ok(switch::of(app, QueueKind::Repair)),
        UndoAction::Enable(SwitchName::Sabakan) => Ok(registry::switch(app)),
        UndoAction::Enable(SwitchName::AutoRepair) => Ok(registry::auto_repair(app)),
        UndoAction::Unhold(ids) => hold::of(app, ids.clone(), false),
        UndoAction::ResumeApplying => registry::hold(app, false),
        UndoAction::ResumeBatches(queue, ids) => {
            let found: Vec<_> = ids.iter().filter_map(|id| app.knowledge.batches.get(*id)).collect();
            batches::of(app, *queue, &found, BatchAction::Resume)
        }
        UndoAction::Unfreeze(..) => freeze::unfreeze(app, ""),
        UndoAction::Constraint { name, old, .. } => registry::constraint_to(app, name, &old.to_string()),
        UndoAction::CancelQueued(ids) => cancel::queued(app, ids.clone()),
        UndoAction::Release(id) => host::release_of(app, id),
        UndoAction::Requeue { cancelled, others, reason } => {
            let mut again = add::of(app, cancelled.iter().map(|w| w.node.clone()).collect())?;
            again.notes.push("at the end of the queue, requested by you".to_owned());
            if *others > 0 {
                let more = count(*others, "other entry");
                again.notes.push(format!("! without the {more} for which work had begun"));
            }
            if let Some(reason) = reason {
                again.set_reason(reason.clone());
            }
            Ok(again)
        }
    }
}
