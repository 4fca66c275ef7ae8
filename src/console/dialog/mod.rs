//! Confirmations. A dialog is data: the action that is to be confirmed, bound to the objects and revisions that were
//! shown. When one of them changes, the dialog expires and nothing can be confirmed any more.
//!
//! One file per dialog opens it; this one holds what they share: focus, text fields, tiers, expiry.

pub mod add;
pub mod backoff;
pub mod cancel;
pub mod draw;
pub mod order;
pub mod quit;
pub mod switch;

use tui_input::Input;

use super::{event::Action, facts};
use crate::{engine::snapshot::Seen, model::entry::EntryId};

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
    /// The reboot queue's switch at its `ModRevision`.
    Switch(i64),
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
    /// Why it can no longer be confirmed.
    pub expired: Option<String>,
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
            why: Why::Optional,
            reason: Input::default(),
            expect: None,
            typed: Input::default(),
            focus: Focus::Cancel,
            bound: Vec::new(),
            expired: None,
        }
    }

    /// The fields and buttons in their order.
    pub fn stops(&self) -> Vec<Focus> {
        let mut stops = vec![Focus::Cancel];
        if self.expired.is_some() {
            return stops;
        }
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
            Focus::Cancel | Focus::Confirm => None,
        }
    }

    /// What is still missing before it may be done.
    pub fn missing(&self) -> Option<String> {
        if let Some(expired) = &self.expired {
            return Some(expired.clone());
        }
        if self.why == Why::Required && self.reason.value().trim().is_empty() {
            return Some("a reason is needed: press r and type it".to_owned());
        }
        match &self.expect {
            Some(expect) if self.typed.value().trim() != expect => {
                Some(format!("type {expect:?} first: press Tab to get to the field"))
            }
            _ => None,
        }
    }

    /// The deed with the reason that was typed.
    pub fn confirmed(&self) -> Deed {
        let reason = Some(self.reason.value().trim().to_owned()).filter(|r| !r.is_empty());
        match &self.deed {
            Deed::Act(action) => Deed::Act(action.clone().with_reason(reason)),
            Deed::Quit => Deed::Quit,
        }
    }

    /// Expires it when something that it is bound to has changed.
    pub fn check(&mut self, seen: &Seen) {
        if self.expired.is_none() {
            self.expired = self.bound.iter().find_map(|bound| bound.broken(seen));
            if self.expired.is_some() {
                self.focus = Focus::Cancel;
            }
        }
    }
}

impl Bound {
    /// What changed, in words.
    fn broken(&self, seen: &Seen) -> Option<String> {
        match self {
            Self::Entry(id, revision) => match facts::stored(seen, *id) {
                None => Some(format!("{id} is gone meanwhile: nothing was done")),
                Some(s) if s.mod_revision != *revision => {
                    let now = s.get().map_or_else(String::new, |e| format!(" (now {})", e.status));
                    Some(format!("{id} changed meanwhile{now}: nothing was done, look again"))
                }
                Some(_) => None,
            },
            Self::Node(name, uid) => {
                let found = facts::node(seen, name).map_or("", |n| n.uid.as_str());
                (found != uid).then(|| format!("node {name} is another one meanwhile: nothing was done, look again"))
            }
            Self::Switch(revision) => (seen.snapshot.store.reboots.switch.mod_revision != *revision)
                .then(|| "somebody turned the queue's switch meanwhile: nothing was done".to_owned()),
        }
    }
}
