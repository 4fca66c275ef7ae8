//! Confirmations. A dialog is data: the action that is to be confirmed, bound to the objects and revisions that were
//! shown. When one of them changes, the dialog expires and nothing can be confirmed any more.
//!
//! One file per dialog opens it; this one holds what they share: focus, text fields, tiers, expiry.

pub mod add;
pub mod backoff;
pub mod cancel;
pub mod draw;
pub mod hold;
pub mod host;
pub mod order;
pub mod pick;
pub mod plan;
pub mod quit;
pub mod registry;
pub mod repair;
pub mod switch;

use tui_input::Input;

use self::{pick::Pick, plan::Plan};
use super::{app::HostId, event::Action, facts};
use crate::{
    actions::{constraint, repair_state},
    engine::{decide::Applying, snapshot::Seen},
    model::entry::{EntryId, QueueKind},
};

/// From so many entries on, the cluster's name and the count must be typed.
pub const LARGE: usize = 10;

/// What pressing the button does.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    /// Carry out an action.
    Act(Action),
    /// Leave the console.
    Quit,
}

/// Whether a reason can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// None is asked.
    Never,
    /// It may be given.
    Optional,
    /// It must be given.
    Required,
}

/// What has the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// The button that does nothing.
    Cancel,
    /// The choice of a machine type.
    Type,
    /// The choice of an operation.
    Operation,
    /// The value of what was chosen.
    Value,
    /// The reason.
    Reason,
    /// What has to be typed.
    Typed,
    /// The button that does it.
    Confirm,
}

/// Something that must not have changed since it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// An entry at its `ModRevision`.
    Entry(EntryId, i64),
    /// A Node with its UID (empty = no such Node).
    Node(String, String),
    /// A queue's switch at its `ModRevision`.
    Switch(QueueKind, i64),
    /// The integration's switch at its `ModRevision`.
    Integration(i64),
    /// Automatic repair's switch at its `ModRevision`.
    AutoRepair(i64),
    /// The constraints, and those of ours beside them, at their `ModRevision`s.
    Constraints(i64, i64),
    /// The change that waits at the gate.
    Digest(String),
    /// A host, and what was shown of it.
    Host(HostId, String),
}

/// An open dialog.
#[derive(Clone, Debug)]
pub struct Dialog {
    /// What is asked.
    pub title: String,
    /// What it is about: objects, numbers, warnings (those begin with `!`).
    pub lines: Vec<String>,
    /// How many of the lines are scrolled away.
    pub scroll: usize,
    /// The word on the button that does it.
    pub verb: &'static str,
    /// What it does.
    pub deed: Deed,
    /// The operation that is to be chosen, in the dialog of a repair.
    pub pick: Option<Pick>,
    /// The value of what is chosen, where one has to be typed.
    pub value: Option<Input>,
    /// Whether a reason can be given.
    pub why: Why,
    /// The reason so far.
    pub reason: Input,
    /// What has to be typed; none = `y` is enough.
    pub expect: Option<String>,
    /// What was typed so far.
    pub typed: Input,
    /// What has the focus.
    pub focus: Focus,
    /// What it is bound to.
    pub bound: Vec<Bound>,
    /// What it would meet: asked of Kubernetes while the dialog stands.
    pub plan: Option<Plan>,
    /// Why it can no longer be confirmed.
    pub expired: Option<String>,
    /// It expired while somebody typed: what comes now was meant for the field, and presses no keys.
    swallows: bool,
}

impl Dialog {
    /// A dialog with the focus on Cancel.
    pub fn new(title: impl Into<String>, verb: &'static str, deed: Deed) -> Self {
        Self {
            title: title.into(),
            lines: Vec::new(),
            scroll: 0,
            verb,
            deed,
            pick: None,
            value: None,
            why: Why::Optional,
            reason: Input::default(),
            expect: None,
            typed: Input::default(),
            focus: Focus::Cancel,
            bound: Vec::new(),
            plan: None,
            expired: None,
            swallows: false,
        }
    }

    /// The fields and buttons in their order.
    pub fn stops(&self) -> Vec<Focus> {
        let mut stops = vec![Focus::Cancel];
        if self.expired.is_some() {
            return stops;
        }
        if let Some(pick) = &self.pick {
            stops.push(Focus::Type);
            stops.extend(pick.has_second().then_some(Focus::Operation));
        }
        stops.extend(self.value.as_ref().map(|_| Focus::Value));
        if self.why != Why::Never {
            stops.push(Focus::Reason);
        }
        if self.expect.is_some() {
            stops.push(Focus::Typed);
        }
        stops.push(Focus::Confirm);
        stops
    }

    /// Moves the focus.
    pub fn turn(&mut self, forward: bool) {
        let stops = self.stops();
        let at = stops.iter().position(|f| *f == self.focus).unwrap_or(0);
        let next = if forward { at + 1 } else { at + stops.len() - 1 };
        self.focus = stops.get(next % stops.len()).copied().unwrap_or(Focus::Cancel);
    }

    /// The text field that has the focus.
    pub fn field(&mut self) -> Option<&mut Input> {
        match self.focus {
            Focus::Reason => Some(&mut self.reason),
            Focus::Typed => Some(&mut self.typed),
            Focus::Value => self.value.as_mut(),
            Focus::Cancel | Focus::Type | Focus::Operation | Focus::Confirm => None,
        }
    }

    /// Whether letters are text now, and no keys.
    pub fn typing(&self) -> bool {
        self.swallows || matches!(self.focus, Focus::Reason | Focus::Typed | Focus::Value)
    }

    /// Chooses the next or the previous option, or moves the focus where there is nothing to choose.
    pub fn option(&mut self, forward: bool) {
        match (&mut self.pick, self.focus) {
            (Some(pick), Focus::Type) => pick.turn_type(forward),
            (Some(pick), Focus::Operation) => pick.turn_operation(forward),
            _ => self.turn(forward),
        }
    }

    /// Puts the focus where something is missing.
    pub fn go_to_missing(&mut self) {
        if self.expired.is_some() {
            return;
        }
        self.focus = match &self.pick {
            Some(pick) if pick.machine_type().is_none() => Focus::Type,
            Some(pick) if pick.chosen().is_none() => Focus::Operation,
            _ if self.wrong_value().is_some() => Focus::Value,
            _ if self.why == Why::Required && self.reason.value().trim().is_empty() => Focus::Reason,
            _ => Focus::Typed,
        };
    }

    /// What is still missing before it may be done.
    pub fn missing(&self) -> Option<String> {
        if let Some(expired) = &self.expired {
            return Some(expired.clone());
        }
        match &self.pick {
            Some(pick) if pick.machine_type().is_none() => {
                return Some(format!("choose the {} first: Right, Left", pick.labels().0));
            }
            Some(pick) if pick.chosen().is_none() => {
                return Some(format!("choose the {} first: Right, Left", pick.labels().1));
            }
            _ => {}
        }
        if let Some(wrong) = self.wrong_value() {
            return Some(wrong);
        }
        if self.why == Why::Required && self.reason.value().trim().is_empty() {
            return Some("a reason is needed: type it".to_owned());
        }
        match &self.expect {
            Some(expect) if self.typed.value().trim() != expect => {
                Some(format!("type {expect:?} into the field first"))
            }
            _ => None,
        }
    }

    /// What is wrong with the value that was typed for the constraint that was chosen.
    fn wrong_value(&self) -> Option<String> {
        let (value, pick) = (self.value.as_ref()?, self.pick.as_ref()?);
        constraint(pick.machine_type()?, value.value().trim()).err()
    }

    /// The deed with the reason that was typed.
    pub fn confirmed(&self) -> Deed {
        let reason = Some(self.reason.value().trim().to_owned()).filter(|r| !r.is_empty());
        match &self.deed {
            Deed::Act(action) => {
                let chosen = self.pick.as_ref().and_then(Pick::chosen);
                let value = self.value.as_ref().map(Input::value);
                Deed::Act(action.clone().with_operation(chosen).with_value(value).with_reason(reason))
            }
            Deed::Quit => Deed::Quit,
        }
    }

    /// Expires it when something that it is bound to has changed.
    pub fn check(&mut self, seen: &Seen) {
        if self.expired.is_none() {
            self.expired = self.bound.iter().find_map(|bound| bound.broken(seen));
            if self.expired.is_some() {
                self.swallows = self.typing();
                self.focus = Focus::Cancel;
            }
        }
    }
}

impl Bound {
    /// What changed, in words.
    fn broken(&self, seen: &Seen) -> Option<String> {
        match self {
            Self::Entry(id, revision) => match facts::lies(seen, *id) {
                None => Some(format!("{id} is gone meanwhile: nothing was done")),
                Some((_, found)) if found != *revision => {
                    let reboot = facts::entry(seen, *id).map(|e| e.status.to_string());
                    let repair = facts::repair(seen, *id).map(repair_state);
                    let now = reboot.or(repair).map(|s| format!(" (now {s})")).unwrap_or_default();
                    Some(format!("{id} changed meanwhile{now}: nothing was done, look again"))
                }
                Some(_) => None,
            },
            Self::Node(name, uid) => {
                let found = facts::node(seen, name).map_or("", |n| n.uid.as_str());
                (found != uid).then(|| format!("node {name} is another one meanwhile: nothing was done, look again"))
            }
            Self::Integration(revision) => (seen.snapshot.store.sabakan.mod_revision != *revision)
                .then(|| "somebody turned the integration's switch meanwhile: nothing was done".to_owned()),
            Self::AutoRepair(revision) => (seen.snapshot.store.auto_repair.mod_revision != *revision)
                .then(|| "somebody turned automatic repair's switch meanwhile: nothing was done".to_owned()),
            Self::Constraints(theirs, ours) => (registry::constraint_revisions(seen) != (*theirs, *ours))
                .then(|| "somebody set a constraint meanwhile: nothing was done, look again".to_owned()),
            Self::Host(id, shown) => {
                let found = facts::host(seen, id).map(|h| host::shown(h));
                (found.as_ref() != Some(shown))
                    .then(|| format!("host {}/{} changed meanwhile: nothing was done, look again", id.0, id.1))
            }
            Self::Digest(digest) => {
                let waits = matches!(&*seen.applying, Applying::Approval(d, _) if d == digest);
                (!waits).then(|| format!("{digest} does not wait any more: nothing was done, look again"))
            }
            Self::Switch(queue, revision) => {
                let store = &seen.snapshot.store;
                let found = match queue {
                    QueueKind::Reboot => store.reboots.switch.mod_revision,
                    QueueKind::Repair => store.repairs.switch.mod_revision,
                };
                (found != *revision)
                    .then(|| "somebody turned the queue's switch meanwhile: nothing was done".to_owned())
            }
        }
    }
}
