//! What befalls single requests over one line.

use std::time::Duration;

use tokio::time::Instant;

use super::{Fate, Hits, Odds};

/// What befalls the requests of one line.
pub(super) struct Dice {
    pub(super) rng: fastrand::Rng,
    pub(super) odds: Odds,
    /// Crashes and pauses that there may still be.
    pub(super) crashes_left: u32,
    pub(super) hits: Hits,
    pub(super) met: Vec<Met>,
    pub(super) forced: Option<(String, Fate)>,
    pub(super) aimed: Vec<(Aim, Fate)>,
    /// Every request takes so long, by dice of its own: shortest and longest.
    pub(super) slow: Option<(Duration, Duration, fastrand::Rng)>,
    /// Streams so far.
    pub(super) streams: u64,
}

/// The request that a fate waits for: the first with this in its path and this in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// What such a request is for.
    pub what: &'static str,
    /// A part of its path, behind its method where one is named: `PATCH /api/v1/nodes/`.
    pub path: &'static str,
    /// A part of its body; empty = any.
    pub body: &'static str,
}

impl Aim {
    pub(super) fn meets(&self, parts: &http::request::Parts, body: &[u8]) -> bool {
        let (method, path) = self.path.split_once(' ').unwrap_or(("", self.path));
        (method.is_empty() || parts.method == method)
            && parts.uri.path().contains(path)
            && (self.body.is_empty() || body.windows(self.body.len()).any(|w| w == self.body.as_bytes()))
    }
}

/// One fate that a request met.
#[derive(Clone, Copy, Debug)]
pub struct Met {
    /// When, by tokio's time.
    pub at: Instant,
    /// Which.
    pub fate: Fate,
    /// What it was aimed at, if it was.
    pub aim: Option<&'static str>,
}

impl Dice {
    pub(super) fn count(&mut self, fate: Fate, aim: Option<&'static str>) {
        *self.hits.entry(fate.word()).or_default() += 1;
        self.met.push(Met { at: Instant::now(), fate, aim });
    }
}
