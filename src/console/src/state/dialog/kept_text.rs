//! Input of an expired dialog. It is offered again by the next dialog of the same kind, so that nothing has to be typed
//! twice.

use std::mem::discriminant;

use tui_input::Input;

use super::{Dialog, DialogAction, ReasonPolicy};
use crate::state::event::Action;

/// Input of an expired dialog.
#[derive(Clone, Debug)]
pub struct KeptText {
    action: Action,
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
            action: action.clone(),
            reason: dialog.reason.clone(),
            value: dialog.value.clone(),
            chosen,
        })
    }

    /// Fills in a dialog of the same kind. Fields that have a value already keep it: the key that was pressed chose it,
    /// or the machine did. A choice is taken over only for the same objects.
    pub fn restore(self, dialog: &mut Dialog) {
        let DialogAction::Act(action) = &dialog.action else { return };
        if discriminant(action) != discriminant(&self.action) {
            return;
        }
        let same_objects = is_for_same_objects(action, &self.action);
        if let (Some(pick), Some((first, second))) = (dialog.pick.as_mut().filter(|_| same_objects), &self.chosen) {
            if pick.machine_type().is_none() {
                pick.choose(first);
            }
            if let Some(second) = second
                && pick.machine_type() == Some(first)
                && pick.chosen().is_none()
            {
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

/// Reports whether two actions of one kind that offer a choice are for the same objects. There is one set of constraints.
fn is_for_same_objects(one: &Action, other: &Action) -> bool {
    if let (Action::Hosts { hosts: one, .. }, Action::Hosts { hosts: other, .. }) = (one, other) {
        return one == other;
    }
    if let (Action::AddRepairs { addresses: one, .. }, Action::AddRepairs { addresses: other, .. }) = (one, other) {
        return one == other;
    }
    true
}
