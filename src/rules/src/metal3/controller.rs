//! Metal3's controller role: the proposal's state machine (MET-35) as a pure function of the resource, the BMC's answer
//! and a little memory. Each step is one write or one request. After a crash, the next controller decides from the
//! resource alone and reaches the same state.
//!
//! `status.poweredOn` is the watermark. `false` is written when the machine was seen off, before anything turns it on
//! (MET-42). So a machine that is on again can be told from one that was never off.

use std::time::Duration;

use cketerm_model::{
    fault,
    host::{Hindrance, HostRow, Mode},
    power_state::PowerState,
};
use jiff::{SignedDuration, Timestamp};

/// Time for which another field manager's write of `status.poweredOn` keeps this controller from running (MET-30).
pub const FOREIGN_WRITE_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// cketerm's field manager.
pub const MANAGER: &str = "cketerm";

/// Time since each request that this controller sent to the BMC. It does not survive a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Time since the last soft power-off of this request.
    pub soft: Option<Duration>,
    /// Time since the last hard power-off.
    pub hard: Option<Duration>,
    /// Time since the last power-on.
    pub on: Option<Duration>,
}

/// Times to wait before a request is sent again, or sent hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For an operating system to shut down.
    pub soft: Duration,
    /// For a machine after a hard power-off.
    pub hard: Duration,
    /// For a machine after a power-on.
    pub on: Duration,
}

/// The single next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write `status.provisioning.state` of an externally provisioned host that has no state yet.
    Register,
    /// Write `status.provisioning.pendingRebootSince`.
    Pending(Timestamp),
    /// Write `status.poweredOn: false`: the machine was seen off.
    SeenOff,
    /// Write `status.poweredOn: true`, and `lastPoweredOn` if a time is given, in one patch.
    SeenOn(Option<Timestamp>),
    /// Ask the BMC to turn the machine off.
    Off(Mode),
    /// Ask the BMC to turn the machine on.
    On,
    /// Remove the basic annotation and no other.
    RemoveBase,
    /// Remove every annotation of the interface.
    RemoveAll,
    /// Do nothing, with the reason.
    Wait(Why),
}

/// Reason for doing nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// No request, and the machine is in the wanted state.
    #[error("nothing is requested")]
    Idle,
    /// Clients hold the machine off.
    #[error("held off by {}", .0.join(", "))]
    Held(Vec<String>),
    /// The machine is off and must stay off.
    #[error("off, because spec.online is false")]
    StaysOff,
    /// The BMC took a request, and its time has not passed.
    #[error("{0} requested; waiting for the machine")]
    Requested(&'static str),
    /// The BMC does not answer, or does not report a power state.
    #[error("the BMC reports no power state")]
    UnknownPower,
    /// This controller must leave the host alone now.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
}

/// Decides the next step. `power` is the BMC's latest answer, `now` this controller's own clock. No time of a client is
/// ever read, "because we cannot trust any value from the user" (MET-47).
pub fn decide(host: &HostRow, power: &PowerState, sent: &Sent, limits: &Limits, now: Timestamp) -> Step {
    match &host.hindrance() {
        // Without upstream nobody else writes this state (MET-36).
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
        // `Error` is another controller's, or a past one of this controller. `online: false` is a wanted state, no
        // obstacle.
        Some(Hindrance::Error(_) | Hindrance::Offline) | None => {}
    }
    let pending = host.pending();
    // "there is one or more annotations with the prefix present, and the Status.PoweredOn field is true, and the value
    // of pendingRebootSince is empty or earlier than the lastPoweredOn time"
    if !host.asked.is_empty() && host.powered_on == Some(true) && !pending {
        return Step::Pending(after(now, host.last_powered_on));
    }
    let is_held = !host.asked.keys.is_empty();
    fault!(ForeignKeyIgnored => is_held = false);
    match power {
        PowerState::On if host.powered_on == Some(true) => {
            // "Whenever pendingRebootSince is later than the lastPoweredOn time, the Host controller will attempt to
            // power the host off regardless of the Spec.Online setting."
            if pending || !host.online { off(host, sent, limits, now) } else { Step::Wait(Why::Idle) }
        }
        // A power state that was never recorded comes first.
        PowerState::On if host.powered_on.is_none() => Step::SeenOn(None),
        // Seen off before, now on: the cycle is complete, whatever turned the machine on: a button, or a BMC that
        // reported a wrong state while a key was present. A request that is present, or came during the boot, begins
        // another cycle. The resource shows it before the BMC gets the power-off, so a later controller can finish it.
        PowerState::On => Step::SeenOn(Some(after(now, host.pending_reboot_since))),
        PowerState::Off if host.powered_on != Some(false) => Step::SeenOff,
        PowerState::Off if !host.online => Step::Wait(Why::StaysOff),
        // "then the controller should remove the suffixless annotation (if present)"
        PowerState::Off if host.asked.base.is_some() => Step::RemoveBase,
        // "the controller will wait for all annotations of the form {key} to be removed before powering on the Host"
        PowerState::Off if is_held => Step::Wait(Why::Held(host.asked.keys.keys().cloned().collect())),
        // "the existing logic for powering on the Host should execute"
        PowerState::Off => match sent.on {
            Some(ago) if ago < limits.on => Step::Wait(Why::Requested("On")),
            _ => Step::On,
        },
        PowerState::Other(_) | PowerState::Unknown => Step::Wait(Why::UnknownPower),
    }
}

/// Returns the reason not to run if another manager wrote `status.poweredOn` within ten minutes. Two controllers would
/// fight over the power.
pub fn foreign_writer(host: &HostRow, now: Timestamp) -> Option<String> {
    let fresh = |at: &Timestamp| now.duration_since(*at) < FOREIGN_WRITE_WINDOW;
    let other = host.power_writers.iter().find(|(manager, at)| manager != MANAGER && fresh(at))?;
    Some(format!("{}: {} wrote status.poweredOn at {}; stop the other controller", host.full_name(), other.0, other.1))
}

fn wait(why: &Hindrance) -> Step {
    Step::Wait(Why::Hindered(why.clone()))
}

/// Reports whether the host's image was removed. Hosts in the other states have an image or are getting one.
fn deprovisioned(host: &HostRow) -> bool {
    let states = ["deprovisioning", "available", "ready", "deleting", "powering off before delete"];
    states.contains(&host.provisioning.as_str())
}

/// Returns now in whole seconds, but at least one second after `other`. The resource has whole seconds only, and an
/// earlier controller's clock may have been ahead.
fn after(now: Timestamp, other: Option<Timestamp>) -> Timestamp {
    let whole_second = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap_or(at);
    let least = other.and_then(|t| whole_second(t).checked_add(SignedDuration::from_secs(1)).ok());
    least.map_or(whole_second(now), |least| least.max(whole_second(now)))
}

/// Decides the power-off: soft first, hard after the timeout or if any request is hard (MET-39).
fn off(host: &HostRow, sent: &Sent, limits: &Limits, now: Timestamp) -> Step {
    // A dead controller may have sent the soft request, so the age of the reboot request counts (MET-40).
    let age = host
        .pending_reboot_since
        .filter(|_| host.pending())
        .map_or(Duration::ZERO, |since| Duration::try_from(now.duration_since(since)).unwrap_or_default());
    let try_soft = match sent.soft {
        Some(ago) => ago < limits.soft,
        None => age < limits.soft,
    };
    if host.asked.mode() == Mode::Soft && try_soft && sent.hard.is_none() {
        return if sent.soft.is_some() {
            Step::Wait(Why::Requested("a soft power-off"))
        } else {
            Step::Off(Mode::Soft)
        };
    }
    match sent.hard {
        Some(ago) if ago < limits.hard => Step::Wait(Why::Requested("a hard power-off")),
        _ => Step::Off(Mode::Hard),
    }
}

#[cfg(test)]
mod tests;
