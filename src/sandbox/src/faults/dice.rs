//! Random faults of single requests over one link.

use std::time::Duration;

use tokio::time::Instant;

use super::{FaultCounts, Odds, RequestFault};

/// Random state and fault settings of one link.
pub(super) struct Dice {
    pub(super) rng: fastrand::Rng,
    pub(super) odds: Odds,
    /// Crashes and pauses that may still occur.
    pub(super) crashes_left: u32,
    pub(super) hits: FaultCounts,
    pub(super) met: Vec<FaultHit>,
    pub(super) forced: Option<(String, RequestFault)>,
    pub(super) aimed: Vec<(FaultTarget, RequestFault)>,
    /// Shortest and longest delay of every request, with a random generator of its own.
    pub(super) slow: Option<(Duration, Duration, fastrand::Rng)>,
    /// Number of streams opened so far.
    pub(super) streams: u64,
}

/// Description of the request that meets a fate: the first one with this path and this body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultTarget {
    /// Purpose of such a request.
    pub what: &'static str,
    /// Part of the path, optionally after a method: `PATCH /api/v1/nodes/`.
    pub path: &'static str,
    /// Part of the body; empty matches any body.
    pub body: &'static str,
}

impl FaultTarget {
    pub(super) fn meets(&self, parts: &http::request::Parts, body: &[u8]) -> bool {
        let (method, path) = self.path.split_once(' ').unwrap_or(("", self.path));
        (method.is_empty() || parts.method == method)
            && parts.uri.path().contains(path)
            && (self.body.is_empty() || body.windows(self.body.len()).any(|w| w == self.body.as_bytes()))
    }
}

/// One fate that a request met.
#[derive(Clone, Copy, Debug)]
pub struct FaultHit {
    /// Time, by tokio's clock.
    pub at: Instant,
    /// The fate.
    pub request_fault: RequestFault,
    /// Purpose of the aim, if the fate was aimed.
    pub aim: Option<&'static str>,
}

impl Dice {
    pub(super) fn count(&mut self, request_fault: RequestFault, aim: Option<&'static str>) {
        *self.hits.entry(request_fault.as_str()).or_default() += 1;
        self.met.push(FaultHit { at: Instant::now(), request_fault, aim });
    }
}
