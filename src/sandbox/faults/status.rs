//! How a line and the streams over it are.

use std::sync::Arc;

/// How a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It works.
    #[default]
    Open,
    /// Requests fail at once; what was open has ended.
    Cut,
    /// Nothing comes through either way, and nobody says so.
    Silent,
}

/// A line's state, and how often it has been cut: what was open before then has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) state: State,
    pub(super) epoch: u64,
    /// Streams that are silent while all else works.
    pub(super) muted: Option<Muted>,
}

/// Streams whose path has this part, and that were opened until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Muted {
    pub(super) part: &'static str,
    pub(super) until: u64,
}

/// One stream over a line.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) path: Arc<str>,
    pub(super) number: u64,
}

impl Status {
    /// Whether nothing comes through this stream, and nobody says so.
    pub(super) fn silences(&self, stream: Option<&Stream>) -> bool {
        let muted = self.muted.zip(stream).is_some_and(|(m, s)| s.number <= m.until && s.path.contains(m.part));
        self.state == State::Silent || muted
    }
}
