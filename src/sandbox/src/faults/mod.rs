//! Faults between an engine and the servers: seeded, counted, on the wire.
//!
//! Each engine (or console, or writer) of a simulation has its own [`Link`] to etcd and to Kubernetes. A link can be
//! cut, silent or slow. Single requests meet a [`RequestFault`]: lost before or after they were applied, delayed, or
//! applied twice. A fate can also end or pause the engine's process right before or after the request. The servers know
//! nothing of it.

mod body;
mod dice;
mod link;
mod reset;
mod status;

use std::{collections::BTreeMap, time::Duration};

pub use dice::{FaultHit, FaultTarget};
pub use link::{Link, USER_HEADER};
pub use status::State;

/// Fault that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestFault {
    /// None: the request passes normally.
    Pass,
    /// The request reaches the server late.
    DelayRequest(Duration),
    /// The request is applied at once, but its response arrives late.
    DelayReply(Duration),
    /// The request never reaches the server. The caller sees a broken connection.
    LoseRequest,
    /// The request is applied. The caller sees a broken connection.
    LoseReply,
    /// The request is applied. The caller gets no response at all.
    DropReply,
    /// The request is applied twice, as by a proxy that retries. The caller gets the second response.
    Duplicate,
    /// The caller's process ends before the request is sent.
    CrashBefore,
    /// The request is applied, and the caller's process ends before it gets the response.
    CrashAfter,
    /// The caller's process is frozen for this time before the request is sent. The sender may no longer be the leader
    /// then.
    PauseBefore(Duration),
    /// The request is applied, and the caller's process is frozen for this time before it gets the response.
    PauseAfter(Duration),
}

impl RequestFault {
    /// Returns true if the fault affects the caller's process and not the request.
    pub fn affects_process(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter | Self::PauseBefore(_) | Self::PauseAfter(_))
    }

    /// Returns the name in traces and counters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::DelayRequest(_) => "delayed-request",
            Self::DelayReply(_) => "delayed-reply",
            Self::LoseRequest => "lost-request",
            Self::LoseReply => "lost-reply",
            Self::DropReply => "swallowed",
            Self::Duplicate => "doubled",
            Self::CrashBefore => "crash-before",
            Self::CrashAfter => "crash-after",
            Self::PauseBefore(_) => "pause-before",
            Self::PauseAfter(_) => "pause-after",
        }
    }
}

/// Probability of each fate, in requests per thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odds {
    /// [`RequestFault::DelayRequest`], by up to two seconds.
    pub delay_request: u32,
    /// [`RequestFault::DelayReply`], by up to two seconds.
    pub delay_reply: u32,
    /// [`RequestFault::LoseRequest`].
    pub lose_request: u32,
    /// [`RequestFault::LoseReply`].
    pub lose_reply: u32,
    /// [`RequestFault::DropReply`].
    pub swallow: u32,
    /// [`RequestFault::Duplicate`].
    pub double: u32,
    /// [`RequestFault::CrashBefore`]; writes only.
    pub crash_before: u32,
    /// [`RequestFault::CrashAfter`]; writes only.
    pub crash_after: u32,
    /// [`RequestFault::PauseBefore`], for up to 90 seconds; writes only.
    pub pause_before: u32,
    /// [`RequestFault::PauseAfter`], for up to 90 seconds; writes only.
    pub pause_after: u32,
}

impl Odds {
    /// Draws the fate of one request.
    pub fn draw(&self, dice: &mut fastrand::Rng, write: bool) -> RequestFault {
        let (mut at, delay) = (dice.u32(0..1000), Duration::from_millis(dice.u64(5..2000)));
        let pause = delay * 45;
        let fates = [
            (self.delay_request, RequestFault::DelayRequest(delay)),
            (self.delay_reply, RequestFault::DelayReply(delay)),
            (self.lose_request, RequestFault::LoseRequest),
            (self.lose_reply, RequestFault::LoseReply),
            (self.swallow, RequestFault::DropReply),
            (self.double, RequestFault::Duplicate),
            (self.crash_before, RequestFault::CrashBefore),
            (self.crash_after, RequestFault::CrashAfter),
            (self.pause_before, RequestFault::PauseBefore(pause)),
            (self.pause_after, RequestFault::PauseAfter(pause)),
        ];
        for (odds, request_fault) in fates {
            if at < odds {
                return if request_fault.affects_process() && !write { RequestFault::Pass } else { request_fault };
            }
            at -= odds;
        }
        RequestFault::Pass
    }
}

/// Number of hits of each fate, by name.
pub type FaultCounts = BTreeMap<&'static str, u32>;
