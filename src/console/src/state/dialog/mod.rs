//! Confirmations. A dialog is data: the action to confirm, bound to the objects that were shown. When one of them changes
//! so that the question is another one, the dialog expires and can no longer be confirmed; Enter asks again. Stopping verbs are not bound like that: entries
//! that end meanwhile are left out, and the others are stopped in any state.
//!
//! The focus begins in the first field. Enter moves on, and from the last field always to the button that acts; a second
//! Enter presses it. A dialog without fields begins on `Back`. `y` is a key only on the buttons, and no other letter is
//! one.
//!
//! This module holds the parts that all dialogs share: focus, text fields, expiry. `dialogs` opens each of them.

pub mod kept_text;
pub mod not_done;
pub mod pick;
pub mod plan;
pub mod preconditions;

use std::borrow::Cow;

use cketerm_actions::constraint;
use cketerm_model::{boot_time::BootTime, cketerm_records::Verb, entry::EntryId};
use cketerm_rules::seen::Seen;
use tui_input::Input;

pub use self::preconditions::Precondition;
use self::{pick::Pick, plan::Plan};
use super::event::Action;

/// Largest number of machines for which nothing has to be typed to confirm.
pub const LARGE_COUNT: usize = 20;

/// Effect of the confirming button.
#[derive(Clone, Debug, PartialEq)]
pub enum DialogAction {
    /// Carry out an action.
    Act(Action),
    /// Leave the console.
    Quit,
    /// Let this console's engine campaign.
    Lead {
        /// Whether the console asks by itself. The answer is then kept on this host; otherwise it is for this session.
        first: bool,
    },
}

/// Whether a reason can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonPolicy {
    /// There is no field for it.
    Never,
    /// It may be given.
    Optional,
    /// It must be given.
    Required,
}

/// Element that has the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// The button that does nothing.
    Back,
    /// The choice of a machine type.
    Type,
    /// The choice of an operation.
    Operation,
    /// The value for what was chosen.
    Value,
    /// The reason.
    Reason,
    /// The text that has to be typed as a confirmation.
    Typed,
    /// The button that confirms.
    Confirm,
}

/// Entries that a stopping verb was opened for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopTargets {
    /// All of them, including those that have ended meanwhile.
    pub ids: Vec<EntryId>,
    /// Whether only unfinished entries are meant.
    pub unfinished: bool,
    /// Whether only entries are meant for which nothing has been done.
    pub not_started: bool,
}

/// An open dialog.
#[derive(Clone, Debug)]
pub struct Dialog {
    /// Question to the operator.
    pub title: String,
    /// Notes that come first and stay when the lines are updated.
    pub notes: Vec<String>,
    /// Details: objects, numbers, warnings (those begin with `!`).
    pub lines: Vec<String>,
    /// Number of lines that are scrolled away.
    pub scroll: usize,
    /// Number of lines of the text that the screen has shown so far, from the first one.
    pub shown_to: usize,
    /// Label of the confirming button.
    pub verb: Cow<'static, str>,
    /// Effect of the confirming button.
    pub action: DialogAction,
    /// Choice of the operation, in the dialog of a repair.
    pub pick: Option<Pick>,
    /// Value for what is chosen, if one has to be typed.
    pub value: Option<Input>,
    /// Value that was proposed before the operator typed.
    pub proposed: Option<String>,
    /// Whether a reason can be given.
    pub why: ReasonPolicy,
    /// The reason so far.
    pub reason: Input,
    /// Text that has to be typed; `None` = the button is enough.
    pub expect: Option<String>,
    /// Confirmation text so far.
    pub typed: Input,
    /// Element that has the focus.
    pub focus: Focus,
    /// Objects to which the dialog is bound.
    pub preconditions: Vec<Precondition>,
    /// Selected objects that the action leaves out.
    pub left_out: Vec<String>,
    /// Entries that the action stops; `None` for other actions.
    pub stops: Option<StopTargets>,
    /// Number of entries of batches that the confirmation text was made for.
    pub batch_entries: usize,
    /// Preview, which is queried from Kubernetes while the dialog is open.
    pub plan: Option<Plan>,
    /// Reason why the dialog can no longer be confirmed.
    pub expired: Option<String>,
    /// Time from which the dialog is known to have expired.
    pub expired_at: Option<BootTime>,
    /// Whether the question of the expired dialog still makes sense, so that Enter asks it again.
    pub asks_again: bool,
    /// Whether the initial focus was set.
    focus_initialized: bool,
}

impl Dialog {
    /// Creates a dialog; [`Self::begin`], which `update` calls, sets its focus.
    pub fn new(title: impl Into<String>, verb: impl Into<Cow<'static, str>>, action: DialogAction) -> Self {
        Self {
            title: title.into(),
            notes: Vec::new(),
            lines: Vec::new(),
            scroll: 0,
            shown_to: 0,
            verb: verb.into(),
            action,
            pick: None,
            value: None,
            proposed: None,
            why: ReasonPolicy::Optional,
            reason: Input::default(),
            expect: None,
            typed: Input::default(),
            focus: Focus::Back,
            preconditions: Vec::new(),
            left_out: Vec::new(),
            stops: None,
            batch_entries: 0,
            plan: None,
            expired: None,
            expired_at: None,
            asks_again: false,
            focus_initialized: false,
        }
    }

    /// Creates an expired dialog for an object that was gone when the key was pressed. It takes the letters that
    /// follow, which were meant for the reason.
    pub fn obsolete(title: impl Into<String>, why: impl Into<String>) -> Self {
        let mut dialog = Self::new(title, "", DialogAction::Quit);
        dialog.expire(why.into());
        dialog
    }

    /// Sets the initial focus, once: to the first choice or field that needs input.
    pub fn begin(&mut self) {
        if !std::mem::replace(&mut self.focus_initialized, true) && self.expired.is_none() {
            self.focus = match &self.pick {
                Some(pick) if pick.machine_type().is_none() => Focus::Type,
                Some(pick) if pick.chosen().is_none() => Focus::Operation,
                _ if self.value.is_some() && self.proposed.is_none() => Focus::Value,
                _ if self.why != ReasonPolicy::Never => Focus::Reason,
                _ => Focus::Back,
            };
        }
    }

    /// Sets a reason that was typed before the dialog was opened. The Enter after it has moved on from it: to what must
    /// be typed, else to the button that acts.
    pub fn set_reason(&mut self, reason: String) {
        self.begin();
        if reason.is_empty() || self.why == ReasonPolicy::Never || self.expired.is_some() {
            return;
        }
        self.reason = Input::new(reason);
        if self.focus == Focus::Reason {
            self.focus = if self.expect.is_some() { Focus::Typed } else { Focus::Confirm };
        }
    }

    /// Returns the fields and buttons in their order.
    pub fn focus_order(&self) -> Vec<Focus> {
        let mut stops = Vec::new();
        if self.expired.is_some() {
            return vec![Focus::Back];
        }
        if let Some(pick) = &self.pick {
            stops.push(Focus::Type);
            stops.extend(pick.has_second().then_some(Focus::Operation));
        }
        stops.extend(self.value.as_ref().map(|_| Focus::Value));
        if self.why != ReasonPolicy::Never {
            stops.push(Focus::Reason);
        }
        if self.expect.is_some() {
            stops.push(Focus::Typed);
        }
        stops.extend([Focus::Confirm, Focus::Back]);
        stops
    }

    /// Moves the focus.
    pub fn move_focus(&mut self, forward: bool) {
        let stops = self.focus_order();
        let at = stops.iter().position(|f| *f == self.focus).unwrap_or(0);
        let next = if forward { at + 1 } else { at + stops.len() - 1 };
        self.focus = stops.get(next % stops.len()).copied().unwrap_or(Focus::Back);
    }

    /// Moves on from a field or a choice (Enter): from the last one to the button that acts, or to missing input, which
    /// is returned.
    pub fn focus_next(&mut self) -> Option<String> {
        self.move_focus(true);
        if self.focus != Focus::Confirm {
            return None;
        }
        let missing = self.missing();
        if missing.is_some() {
            self.focus_missing();
        }
        missing
    }

    /// Reports whether the action disrupts more than its queue's rules allow, or cannot be undone.
    pub fn dangerous(&self) -> bool {
        let action = matches!(
            &self.action,
            DialogAction::Act(Action::Remove { .. } | Action::Order { verb: Verb::Force | Verb::Uncordon, .. })
        );
        self.expect.is_some() || action
    }

    /// Reports whether the focus is on a button.
    pub fn at_buttons(&self) -> bool {
        matches!(self.focus, Focus::Back | Focus::Confirm)
    }

    /// Returns the text field that has the focus.
    pub fn field(&mut self) -> Option<&mut Input> {
        match self.focus {
            Focus::Reason => Some(&mut self.reason),
            Focus::Typed => Some(&mut self.typed),
            Focus::Value => self.value.as_mut(),
            Focus::Back | Focus::Type | Focus::Operation | Focus::Confirm => None,
        }
    }

    /// Reports whether a text field has the focus.
    pub fn typing(&self) -> bool {
        matches!(self.focus, Focus::Reason | Focus::Typed | Focus::Value)
    }

    /// Chooses the next or the previous option, or moves the focus if there is nothing to choose.
    pub fn change_option(&mut self, forward: bool) {
        match (&mut self.pick, self.focus) {
            (Some(pick), Focus::Type) => pick.cycle_type(forward),
            (Some(pick), Focus::Operation) => pick.cycle_operation(forward),
            _ => self.move_focus(forward),
        }
    }

    /// Sets the focus to missing input.
    pub fn focus_missing(&mut self) {
        if self.expired.is_some() {
            return;
        }
        self.focus = match &self.pick {
            Some(pick) if pick.machine_type().is_none() => Focus::Type,
            Some(pick) if pick.chosen().is_none() => Focus::Operation,
            _ if self.value_error().is_some() => Focus::Value,
            _ if self.why == ReasonPolicy::Required && self.reason.value().trim().is_empty() => Focus::Reason,
            _ => Focus::Typed,
        };
    }

    /// Returns the input that is still missing.
    pub fn missing(&self) -> Option<String> {
        if let Some(expired) = &self.expired {
            return Some(expired.clone());
        }
        match &self.pick {
            Some(pick) if pick.machine_type().is_none() => {
                return Some(format!("choose the {} first", pick.labels().0));
            }
            Some(pick) if pick.chosen().is_none() => {
                return Some(format!("choose the {} first", pick.labels().1));
            }
            _ => {}
        }
        if let Some(wrong) = self.value_error() {
            return Some(wrong);
        }
        if self.why == ReasonPolicy::Required && self.reason.value().trim().is_empty() {
            return Some("a reason is needed: type it".to_owned());
        }
        match &self.expect {
            Some(expect) if self.typed.value().trim() != expect => {
                Some(format!("type {expect:?} into the field first"))
            }
            _ => None,
        }
    }

    /// Returns the error of the value that was typed for the chosen constraint.
    fn value_error(&self) -> Option<String> {
        let (value, pick) = (self.value.as_ref()?, self.pick.as_ref()?);
        constraint(pick.machine_type()?, value.value().trim()).err()
    }

    /// Reports whether the input that a message requested is there now.
    pub fn is_resolved(&self, message: &str) -> bool {
        self.missing().as_deref() != Some(message)
    }

    /// Returns the action with the reason that was typed.
    pub fn confirmed(&self) -> DialogAction {
        let reason = Some(self.reason.value().trim().to_owned()).filter(|r| !r.is_empty());
        match &self.action {
            DialogAction::Act(action) => {
                let chosen = self.pick.as_ref().and_then(Pick::chosen);
                let value = self.value.as_ref().map(Input::value);
                DialogAction::Act(action.clone().with_operation(chosen).with_value(value).with_reason(reason))
            }
            DialogAction::Quit => DialogAction::Quit,
            DialogAction::Lead { first } => DialogAction::Lead { first: *first },
        }
    }

    /// Expires the dialog if an object to which it is bound has changed.
    pub fn check(&mut self, seen: &Seen) {
        if self.expired.is_none()
            && let Some(why) = self.preconditions.iter().find_map(|preconditions| preconditions.violation(seen))
        {
            self.expire(why);
        }
    }

    /// Expires the dialog: it can no longer be confirmed.
    pub fn expire(&mut self, why: String) {
        self.expired = Some(why);
        self.focus = Focus::Back;
    }
}
