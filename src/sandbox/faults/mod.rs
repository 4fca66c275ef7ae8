//! What goes wrong between an engine and the servers: seeded, counted, on the wire.
//!
//! Each engine (or console, or writer) of a simulation has a [`Link`] of its own to etcd and to Kubernetes. A line can be
//! cut, silent or slow, and single requests meet a [`Fate`]: lost before or after they were applied, delayed, applied
//! twice, or the end of the engine's process right before or after them. The servers themselves know nothing of it.

mod body;
mod dice;
mod link;
mod status;

pub use dice::{Aim, Met};
pub use link::{Link, USER_HEADER};
pub use status::State;

use std::{collections::BTreeMap, time::Duration};

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Nothing special.
    Pass,
    /// It reaches the server late.
    DelayRequest(Duration),
    /// It is applied at once, its answer comes late.
    DelayReply(Duration),
    /// It never reaches the server; the caller hears that the connection broke.
    LoseRequest,
    /// It is applied; the caller hears that the connection broke.
    LoseReply,
    /// It is applied; the caller hears nothing at all.
    Swallow,
    /// It is applied twice, as by a proxy that tries again; the second answer comes back.
    Double,
    /// The caller's process ends before it is sent.
    CrashBefore,
    /// It is applied, and the caller's process ends before it hears of it.
    CrashAfter,
    /// The caller's process stands still for so long, then it is sent: by a leader that may lead no longer.
    PauseBefore(Duration),
    /// It is applied, and the caller's process stands still for so long before it hears of it.
    PauseAfter(Duration),
}

impl Fate {
    /// It befalls the caller's process, not the request.
    pub fn of_the_process(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter | Self::PauseBefore(_) | Self::PauseAfter(_))
    }

    /// Its name in traces and counts.
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

/// How often each fate meets a request, in a thousand; and how many crashes there may be at all.
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
    /// [`Fate::PauseBefore`], for up to a minute and a half; writes only.
    pub pause_before: u32,
    /// [`Fate::PauseAfter`], likewise.
    pub pause_after: u32,
}

impl Odds {
    /// Throws the dice for one request.
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

/// How often what was met, by name.
pub type Hits = BTreeMap<&'static str, u32>;
