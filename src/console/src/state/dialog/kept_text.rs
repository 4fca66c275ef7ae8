//! Input of an expired dialog. It is offered again by the next dialog of the same kind, so that nothing has to be typed
//! twice.

use std::mem::{Discriminant, discriminant};

use tui_input::Input;

use super::{Dialog, DialogAction, ReasonPolicy};
use crate::state::event::Action;

/// Input of an expired dialog.
#[derive(Clone, Debug)]
pub struct KeptText {
    kind: Discriminant<Action>,
    reason: Input,
    value: Option<Input>,
    chosen: Option<(String, Option<String>)>,
}

impl KeptText {
    /// Returns what was typed and chosen in a dialog. `None` if it was nothing, or if the dialog is about no action.
    pub fn of(dialog: &Dialog) -> Option<Self> {
        let DialogAction::Act(action) = &dialog.action else { return None };
        let chosen = dialog.pick.as_ref().and_then(|pick| {
            let operation = pick.chosen().map(|(_, operation)| operation.to_owned());
            Some((pick.machine_type()?.to_owned(), operation))
        });
        let typed = !dialog.reason.value().trim().is_empty();
        (typed || chosen.is_some() || dialog.value.is_some()).then(|| Self {
            kind: discriminant(action),
            reason: dialog.reason.clone(),
            value: dialog.value.clone(),
            chosen,
        })
    }

    /// Fills in a dialog of the same kind. Fields that have a value already keep it.
    pub fn restore(self, dialog: &mut Dialog) {
        let DialogAction::Act(action) = &dialog.action else { return };
        if discriminant(action) != self.kind {
            return;
        }
        if let (Some(pick), Some((first, second))) = (&mut dialog.pick, &self.chosen) {
            pick.choose(first);
            if let Some(second) = second {
                pick.choose_operation(second);
            }
        }
        if dialog.proposed.is_none() && dialog.value.is_some() && self.value.is_some() {
            dialog.value = self.value;
        }
        if dialog.why != ReasonPolicy::Never && dialog.reason.value().is_empty() {
            dialog.reason = self.reason;
        }
    }
}
