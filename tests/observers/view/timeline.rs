//! States of one object or key over time.

use jiff::Timestamp;

/// One state, from a moment on.
#[derive(Clone, Debug)]
pub struct Step<T> {
    /// Beginning of the state.
    pub at: Timestamp,
    /// Revision of etcd, or resourceVersion of the object.
    pub revision: i64,
    /// The state; none if it did not exist.
    pub value: Option<T>,
}

/// States of one object or key in their order. Before the first it did not exist.
#[derive(Clone, Debug)]
pub struct Timeline<T>(Vec<Step<T>>);

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Timeline<T> {
    /// Appends the next state.
    pub fn push(&mut self, at: Timestamp, revision: i64, value: Option<T>) {
        self.0.push(Step { at, revision, value });
    }

    /// All states.
    pub fn steps(&self) -> &[Step<T>] {
        &self.0
    }

    /// States in which it was created. An object that was deleted may be created again.
    pub fn created(&self) -> impl Iterator<Item = &Step<T>> {
        let absent = |i: usize| i.checked_sub(1).is_none_or(|before| self.0[before].value.is_none());
        self.0.iter().enumerate().filter(move |(i, step)| step.value.is_some() && absent(*i)).map(|(_, step)| step)
    }

    /// State at the end.
    pub fn last(&self) -> Option<&T> {
        self.0.last()?.value.as_ref()
    }

    /// Step in force at this revision.
    pub fn step(&self, revision: i64) -> Option<&Step<T>> {
        self.0[..self.0.partition_point(|s| s.revision <= revision)].last()
    }

    /// State at this revision.
    pub fn get(&self, revision: i64) -> Option<&T> {
        self.step(revision)?.value.as_ref()
    }

    /// State right before this revision.
    pub fn before(&self, revision: i64) -> Option<&T> {
        self.get(revision - 1)
    }

    /// State at this time, including all changes of that instant.
    pub fn at(&self, at: Timestamp) -> Option<&T> {
        self.0[..self.0.partition_point(|s| s.at <= at)].last()?.value.as_ref()
    }

    /// Reports whether a condition held from right before `from` until `to` (inclusive), without a break. The order of
    /// events in one instant is unknown, so the state right before either end counts too.
    pub fn throughout(&self, from: Timestamp, to: Timestamp, condition: impl Fn(Option<&T>) -> bool) -> bool {
        let first = self.0.partition_point(|s| s.at < from);
        let end = self.0.partition_point(|s| s.at <= to);
        let before = first.checked_sub(1).and_then(|i| self.0[i].value.as_ref());
        condition(before) && self.0[first..end.max(first)].iter().all(|s| condition(s.value.as_ref()))
    }

    /// Reports whether a condition held at any moment from right before `from` until `to` (inclusive).
    pub fn sometime(&self, from: Timestamp, to: Timestamp, condition: impl Fn(Option<&T>) -> bool) -> bool {
        !self.throughout(from, to, |state| !condition(state))
    }
}
