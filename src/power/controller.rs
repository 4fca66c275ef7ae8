//! Metal3's controller role: the proposal's state machine as a pure function of the resource, the BMC's word and a
//! little memory (seed metal3-reboot-interface.md; spec/metal3.md, State machine). Each step is one write or one
//! request; whoever comes after a crash decides from the resource alone and comes to the same place.
//!
//! `status.poweredOn` is the watermark: `false` is written when the machine was seen off, before anything turns it on,
//! so that a machine that is on again is told from one that was never off.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::redfish::Power;
use crate::{
    model::host::{Hindrance, HostRow, Mode},
    mutation::{Mutation, on},
};

/// How long another field manager's write of `status.poweredOn` keeps us from running (spec/safety.md, Metal3).
pub const FOREIGN: SignedDuration = SignedDuration::from_mins(10);
/// Our field manager.
pub const MANAGER: &str = "cketerm";

/// What this controller asked of the BMC since it took the host over, and how long ago. None of it survives a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The last soft power-off of this request.
    pub soft: Option<Duration>,
    /// The last hard one.
    pub hard: Option<Duration>,
    /// The last power-on.
    pub on: Option<Duration>,
}

/// How long is waited before a request is sent again, or harder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For an operating system to end.
    pub soft: Duration,
    /// For a machine that was cut off.
    pub hard: Duration,
    /// For a machine that was turned on.
    pub on: Duration,
}

/// The one next thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write `status.provisioning.state`: an externally provisioned host that nobody has registered yet.
    Register,
    /// Write `status.provisioning.pendingRebootSince`.
    Pending(Timestamp),
    /// Write `status.poweredOn: false`: the machine was seen off.
    SeenOff,
    /// Write `status.poweredOn: true`, and `lastPoweredOn` where a time is given, in one patch.
    SeenOn(Option<Timestamp>),
    /// Ask the BMC to turn the machine off.
    Off(Mode),
    /// Ask the BMC to turn the machine on.
    On,
    /// Take the basic annotation off, and no other.
    RemoveBase,
    /// Take every annotation of the interface off.
    RemoveAll,
    /// Nothing, and why.
    Wait(Why),
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Nothing is asked for, and the machine is as it is to be.
    #[error("nothing is asked for")]
    Idle,
    /// Clients hold it off.
    #[error("held off by {}", .0.join(", "))]
    Held(Vec<String>),
    /// It is off and is to stay off.
    #[error("off, as spec.online says")]
    StaysOff,
    /// The BMC was asked, and the machine has time.
    #[error("{0} was asked for; the machine has time for it")]
    Asked(&'static str),
    /// The BMC does not answer, or does not say.
    #[error("the BMC does not say whether the machine is on")]
    NoWord,
    /// The host is none of ours now.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
}

/// Decides the next step. `power` is what the BMC said just now, `now` this controller's own clock: no time of a client
/// is ever looked at, "because we cannot trust any value from the user".
pub fn decide(host: &HostRow, power: &Power, sent: &Sent, limits: &Limits, now: Timestamp) -> Step {
    match &host.hindrance() {
        // Nobody else is there to say so.
        Some(Hindrance::NotProvisioned(state)) if state.is_empty() && host.externally_provisioned => {
            return Step::Register;
        }
        // "The controller automatically removes all annotations with the prefix if the Host is deprovisioned."
        Some(Hindrance::NotProvisioned(_)) if deprovisioned(host) && !host.asked.is_empty() => return Step::RemoveAll,
        Some(
            why @ (Hindrance::Deleting
            | Hindrance::Paused
            | Hindrance::Detached
            | Hindrance::NotProvisioned(_)
            | Hindrance::PowerOffDisabled),
        ) => return wait(why),
        // Another controller's error, or one of ours that has passed; and `online: false` is a state, not an obstacle.
        Some(Hindrance::Error(_) | Hindrance::Offline) | None => {}
    }
    let pending = host.pending();
    // "there is one or more annotations with the prefix present, and the Status.PoweredOn field is true, and the value
    // of pendingRebootSince is empty or earlier than the lastPoweredOn time"
    if !host.asked.is_empty() && host.powered_on == Some(true) && !pending {
        return Step::Pending(after(now, host.last_powered_on));
    }
    match power {
        Power::On if host.powered_on == Some(true) => {
            // "Whenever pendingRebootSince is later than the lastPoweredOn time, the Host controller will attempt to
            // power the host off regardless of the Spec.Online setting."
            if pending || !host.online { off(host, sent, limits, now) } else { Step::Wait(Why::Idle) }
        }
        // First what was never written down.
        Power::On if host.powered_on.is_none() => Step::SeenOn(None),
        // Seen off before, now on: the cycle is complete, also where a button or a BMC that lied did it while somebody's key is
        // there. What is asked for, or came while it booted, begins another, which the resource shows before it is told to
        // go off: whoever comes after us finishes it.
        Power::On => Step::SeenOn(Some(after(now, host.pending_reboot_since))),
        Power::Off if host.powered_on != Some(false) => Step::SeenOff,
        Power::Off if !host.online => Step::Wait(Why::StaysOff),
        // "then the controller should remove the suffixless annotation (if present)"
        Power::Off if host.asked.base.is_some() => Step::RemoveBase,
        // "the controller will wait for all annotations of the form {key} to be removed before powering on the Host"
        Power::Off if !host.asked.keys.is_empty() && !on(Mutation::KeyOfOthers) => {
            Step::Wait(Why::Held(host.asked.keys.keys().cloned().collect()))
        }
        // "the existing logic for powering on the Host should execute"
        Power::Off => match sent.on {
            Some(ago) if ago < limits.on => Step::Wait(Why::Asked("On")),
            _ => Step::On,
        },
        Power::Other(_) | Power::Unknown => Step::Wait(Why::NoWord),
    }
}

/// Another manager that wrote `status.poweredOn` within ten minutes: two controllers would fight, so we do not run.
pub fn beside(host: &HostRow, now: Timestamp) -> Option<String> {
    let fresh = |at: &Timestamp| now.duration_since(*at) < FOREIGN;
    let other = host.power_writers.iter().find(|(manager, at)| manager != MANAGER && fresh(at))?;
    Some(format!(
        "{}: {} wrote status.poweredOn at {}: is another controller running?",
        host.full_name(),
        other.0,
        other.1
    ))
}

fn wait(why: &Hindrance) -> Step {
    Step::Wait(Why::Hindered(why.clone()))
}

/// States of a host whose image was taken from it; the others are on their way to having one.
fn deprovisioned(host: &HostRow) -> bool {
    let states = ["deprovisioning", "available", "ready", "deleting", "powering off before delete"];
    states.contains(&host.provisioning.as_str())
}

/// Now in whole seconds, and at least a second after `other`: the resource has no finer times, and an older controller's
/// clock may have been ahead.
fn after(now: Timestamp, other: Option<Timestamp>) -> Timestamp {
    let whole = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap_or(at);
    let least = other.and_then(|t| whole(t).checked_add(SignedDuration::from_secs(1)).ok());
    least.map_or(whole(now), |least| least.max(whole(now)))
}

/// Off: softly first, hard when that took too long or anybody asks for it.
fn off(host: &HostRow, sent: &Sent, limits: &Limits, now: Timestamp) -> Step {
    // A controller that died may have asked before us: the request's own age tells.
    let age = host
        .pending_reboot_since
        .filter(|_| host.pending())
        .map_or(Duration::ZERO, |since| Duration::try_from(now.duration_since(since)).unwrap_or_default());
    let softly = match sent.soft {
        Some(ago) => ago < limits.soft,
        None => age < limits.soft,
    };
    if host.asked.mode() == Mode::Soft && softly && sent.hard.is_none() {
        return if sent.soft.is_some() { Step::Wait(Why::Asked("a soft power-off")) } else { Step::Off(Mode::Soft) };
    }
    match sent.hard {
        Some(ago) if ago < limits.hard => Step::Wait(Why::Asked("a hard power-off")),
        _ => Step::Off(Mode::Hard),
    }
}

#[cfg(test)]
mod tests;
