//! A line of *Needs you*: an object that waits for a person, the others with the same cause, and the keys that act on them.

use jiff::Timestamp;
use unicode_width::UnicodeWidthStr;

use crate::{
    keys::Command,
    state::{App, View, available, object::Object, short_text},
    theme::Severity,
};

/// Most names of objects with one cause that are kept.
const MAX_NAMES: usize = 6;

/// Importance of a line, the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Nothing moves, or nothing is known.
    Everything,
    /// Something failed, or is stuck until a person acts.
    Stuck,
    /// Something waits for a decision, or may still end by itself.
    Waits,
}

/// A line: an object that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedsYou {
    /// The object. Of several with one cause: the one that has waited longest.
    pub object: Object,
    /// Its name.
    pub name: String,
    /// Number of objects with the same cause.
    pub count: usize,
    /// All objects with the same cause, this one first: the keys of the line act on all of them.
    pub objects: Vec<Object>,
    /// Names of the first of these objects, this one first.
    pub(super) names: Vec<String>,
    /// Views of the other reasons for which the same machine waits.
    pub more_reasons: Vec<View>,
    /// Description of the fault.
    pub what: String,
    /// Shorter forms of it, the longest first.
    pub shorter: Vec<String>,
    /// Time since which it has waited.
    pub since: Option<Timestamp>,
    /// Its importance.
    pub urgency: Urgency,
    /// Commands that end it, the usual one first.
    pub(super) remedies: Vec<Command>,
}

impl NeedsYou {
    pub(super) fn new(object: Object, name: impl Into<String>, what: impl Into<String>, urgency: Urgency) -> Self {
        let (name, what) = (short_text::safe(&name.into()), short_text::safe(&what.into()));
        let names = vec![name.clone()];
        Self {
            objects: vec![object.clone()],
            object,
            name,
            count: 1,
            names,
            more_reasons: Vec::new(),
            what,
            shorter: Vec::new(),
            since: None,
            urgency,
            remedies: Vec::new(),
        }
    }

    pub(super) fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    pub(super) fn shorter(self, shorter: Vec<String>) -> Self {
        Self { shorter, ..self }
    }

    /// Adds an object with the same cause. The line is about the one that has waited longest.
    pub(super) fn add(&mut self, other: Self) {
        if self.names.contains(&other.name) {
            // one machine in both queues
            self.more_reasons.push(other.object.view());
            return;
        }
        let count = self.count + 1;
        let mut objects = std::mem::take(&mut self.objects);
        objects.push(other.object.clone());
        let mut names = std::mem::take(&mut self.names);
        names.extend(other.names.first().cloned().filter(|_| names.len() < MAX_NAMES));
        if self.since.is_none_or(|at| other.since.is_some_and(|since| since < at)) && other.since.is_some() {
            *self = other;
        }
        names.retain(|name| *name != self.name);
        names.insert(0, self.name.clone());
        objects.retain(|object| *object != self.object);
        objects.insert(0, self.object.clone());
        (self.count, self.names, self.objects) = (count, names, objects);
    }

    /// Sets the other objects with the same cause.
    pub(super) fn others<'a>(mut self, all: impl ExactSizeIterator<Item = (&'a str, Object)>) -> Self {
        self.count = all.len();
        for (name, object) in all.filter(|(_, object)| *object != self.object).collect::<Vec<_>>() {
            if self.names.len() < MAX_NAMES {
                self.names.push(short_text::safe(name));
            }
            self.objects.push(object);
        }
        self
    }

    pub(super) fn remedies(self, remedies: &[Command]) -> Self {
        Self { remedies: remedies.to_vec(), ..self }
    }

    /// Returns the severity that colours the line.
    pub fn severity(&self) -> Severity {
        match self.urgency {
            Urgency::Everything | Urgency::Stuck => Severity::Failed,
            Urgency::Waits => Severity::Slow,
        }
    }

    /// Returns the commands that work on the object here and now, the usual one first.
    pub fn keys(&self, app: &App) -> Vec<Command> {
        let works = |command: &Command| available::on(app, *command, &self.object);
        let mut keys: Vec<Command> = self.remedies.iter().copied().filter(works).collect();
        let is_for_one = |command: &Command| available::is_for_one(*command, &self.object);
        if self.objects.len() > 1 && keys.iter().any(is_for_one) {
            // nobody could tell on which of them such a key would act
            keys.retain(|command| !is_for_one(command) && *command != Command::Open);
            keys.insert(0, Command::Open);
        }
        keys
    }

    /// Returns that the line is about several objects, with the names of the others: `1 of 3 with this cause; also w03, w04`.
    pub fn others_named(&self) -> String {
        let others = self.names.get(1..).unwrap_or_default().join(", ");
        let more = if self.count > self.names.len() { " and more" } else { "" };
        format!("{}: 1 of {} with this cause; also {others}{more}", self.name, self.count)
    }

    /// Returns the name, with the number of the others that have the same cause: `w02 +3`.
    pub fn title(&self) -> String {
        self.title_within(0)
    }

    /// Returns the names that fit into this width, at least one, and the number of the others: `w02, w03 +2`.
    pub fn title_within(&self, width: usize) -> String {
        let with_rest = |shown: usize| {
            let names = self.names.get(..shown).unwrap_or_default().join(", ");
            if self.count > shown { format!("{names} +{}", self.count - shown) } else { names }
        };
        let fits = (2..=self.names.len()).rev().map(with_rest).find(|text| text.width() <= width);
        fits.unwrap_or_else(|| with_rest(1))
    }

    /// Reports whether something of this view waits.
    pub fn is_of(&self, view: View) -> bool {
        self.object.view() == view || self.more_reasons.contains(&view)
    }

    /// Returns the name of the machine, if the line is about one.
    pub(super) fn machine(&self) -> Option<&str> {
        match &self.object {
            Object::Entry(_) | Object::Node(_) | Object::Machine(_) if self.count == 1 => Some(&self.name),
            Object::Entry(_)
            | Object::Node(_)
            | Object::Machine(_)
            | Object::Source(_)
            | Object::Leadership
            | Object::Queue(_)
            | Object::Definition
            | Object::Batch(..)
            | Object::Host(_) => None,
        }
    }
}
