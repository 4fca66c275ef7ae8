//! What one thing was, when.

use jiff::Timestamp;

/// One state, from a moment on.
#[derive(Clone, Debug)]
pub struct Step<T> {
    /// Since when.
    pub at: Timestamp,
    /// etcd's revision, or the object's resourceVersion.
    pub revision: i64,
    /// The state; none = it was not there.
    pub value: Option<T>,
}

/// The states of one thing in their order; before the first it was not there.
#[derive(Clone, Debug)]
pub struct Timeline<T>(Vec<Step<T>>);

impl<T> Default for Timeline<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Timeline<T> {
    /// The next state.
    pub fn push(&mut self, at: Timestamp, revision: i64, value: Option<T>) {
        self.0.push(Step { at, revision, value });
    }

    /// All states.
    pub fn steps(&self) -> &[Step<T>] {
        &self.0
    }

    /// The state at the end.
    pub fn last(&self) -> Option<&T> {
        self.0.last()?.value.as_ref()
    }

    /// The step in force at this revision.
    pub fn step(&self, revision: i64) -> Option<&Step<T>> {
        self.0[..self.0.partition_point(|s| s.revision <= revision)].last()
    }

    /// The state at this revision.
    pub fn get(&self, revision: i64) -> Option<&T> {
        self.step(revision)?.value.as_ref()
    }

    /// The state right before this revision.
    pub fn before(&self, revision: i64) -> Option<&T> {
        self.get(revision - 1)
    }

    /// The state at this time, everything of that instant included.
    pub fn at(&self, at: Timestamp) -> Option<&T> {
        self.0[..self.0.partition_point(|s| s.at <= at)].last()?.value.as_ref()
    }

    /// Whether it was so from right before `from` up to and with `to`, without a break. Of things that happen in one
    /// instant nobody knows the order, so either end counts with what was there before it.
    pub fn throughout(&self, from: Timestamp, to: Timestamp, so: impl Fn(Option<&T>) -> bool) -> bool {
        let first = self.0.partition_point(|s| s.at < from);
        let end = self.0.partition_point(|s| s.at <= to);
        let before = first.checked_sub(1).and_then(|i| self.0[i].value.as_ref());
        so(before) && self.0[first..end.max(first)].iter().all(|s| so(s.value.as_ref()))
    }

    /// Whether it was so at any moment from right before `from` up to and with `to`.
    pub fn sometime(&self, from: Timestamp, to: Timestamp, so: impl Fn(Option<&T>) -> bool) -> bool {
        !self.throughout(from, to, |state| !so(state))
    }
}
