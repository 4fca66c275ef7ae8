//! Faults between an engine and the servers: seeded, counted, on the wire.
//!
//! Each engine (or console, or writer) of a simulation has its own [`Link`] to etcd and to Kubernetes. A link can be
//! cut, silent or slow. Single requests meet a [`Fate`]: lost before or after they were applied, delayed, or applied
//! twice. A fate can also end or pause the engine's process right before or after the request. The servers know nothing
//! of it.

mod body;
mod dice;
mod link;
mod status;

pub use dice::{Aim, Met};
pub use link::{Link, USER_HEADER};
pub use status::State;

use std::{collections::BTreeMap, time::Duration};

/// Fault that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
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
    Swallow,
    /// The request is applied twice, as by a proxy that retries. The caller gets the second response.
    Double,
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

impl Fate {
    /// Returns true if the fault affects the caller's process and not the request.
    pub fn of_the_process(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter | Self::PauseBefore(_) | Self::PauseAfter(_))
    }

    /// Returns the name in traces and counters.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::DelayRequest(_) => "delayed-request",
            Self::DelayReply(_) => "delayed-reply",
            Self::LoseRequest => "lost-request",
            Self::LoseReply => "lost-reply",
            Self::Swallow => "swallowed",
            Self::Double => "doubled",
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
    /// [`Fate::DelayRequest`], by up to two seconds.
    pub delay_request: u32,
    /// [`Fate::DelayReply`], by up to two seconds.
    pub delay_reply: u32,
    /// [`Fate::LoseRequest`].
    pub lose_request: u32,
    /// [`Fate::LoseReply`].
    pub lose_reply: u32,
    /// [`Fate::Swallow`].
    pub swallow: u32,
    /// [`Fate::Double`].
    pub double: u32,
    /// [`Fate::CrashBefore`]; writes only.
    pub crash_before: u32,
    /// [`Fate::CrashAfter`]; writes only.
    pub crash_after: u32,
    /// [`Fate::PauseBefore`], for up to 90 seconds; writes only.
    pub pause_before: u32,
    /// [`Fate::PauseAfter`], for up to 90 seconds; writes only.
    pub pause_after: u32,
}

impl Odds {
    /// Draws the fate of one request.
    pub fn draw(&self, dice: &mut fastrand::Rng, write: bool) -> Fate {
        let (mut at, late) = (dice.u32(0..1000), Duration::from_millis(dice.u64(5..2000)));
        let still = late * 45;
        let fates = [
            (self.delay_request, Fate::DelayRequest(late)),
            (self.delay_reply, Fate::DelayReply(late)),
            (self.lose_request, Fate::LoseRequest),
            (self.lose_reply, Fate::LoseReply),
            (self.swallow, Fate::Swallow),
            (self.double, Fate::Double),
            (self.crash_before, Fate::CrashBefore),
            (self.crash_after, Fate::CrashAfter),
            (self.pause_before, Fate::PauseBefore(still)),
            (self.pause_after, Fate::PauseAfter(still)),
        ];
        for (odds, fate) in fates {
            if at < odds {
                return if fate.of_the_process() && !write { Fate::Pass } else { fate };
            }
            at -= odds;
        }
        Fate::Pass
    }
}

/// Number of hits of each fate, by name.
pub type Hits = BTreeMap<&'static str, u32>;
