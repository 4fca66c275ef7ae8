//! State of a link and of the streams over it.

use std::sync::Arc;

/// State of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The link works.
    #[default]
    Open,
    /// Requests fail at once, and open streams and requests have ended.
    Cut,
    /// Nothing passes in either direction, and neither side gets an error.
    Silent,
}

/// State of a link, and the number of cuts. Streams and requests opened before a cut have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) state: State,
    pub(super) epoch: u64,
    /// Streams that are silent while everything else works.
    pub(super) muted: Option<Muted>,
}

/// Selects the streams whose path contains `part` and whose number is at most `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Muted {
    pub(super) part: &'static str,
    pub(super) until: u64,
}

/// One stream over a link.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) path: Arc<str>,
    pub(super) number: u64,
}

impl Status {
    /// Reports whether this stream is silent.
    pub(super) fn is_silent(&self, stream: Option<&Stream>) -> bool {
        let muted = self.muted.zip(stream).is_some_and(|(m, s)| s.number <= m.until && s.path.contains(m.part));
        self.state == State::Silent || muted
    }
}
