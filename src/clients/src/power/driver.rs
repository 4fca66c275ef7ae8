//! Interface of a power driver: one way to read and change the power of one machine.
//!
//! A driver sends single requests and reads states. It never waits for a machine: `switch` does that, by the same rules
//! for every driver. `drivers` has the table of all drivers.

use std::{error::Error, fmt, time::Duration};

use cketerm_model::{host::Mode, power_state::PowerState};
use futures::future::{BoxFuture, FutureExt};

use super::text::shorten;

/// A change of power that a driver can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerRequest {
    /// Soft: ask the operating system to shut down. Hard: cut the power.
    Off(Mode),
    /// Turn the machine on.
    On,
}

impl PowerRequest {
    /// Returns the change as messages name it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Off(_) => "turn off",
            Self::On => "turn on",
        }
    }
}

/// Object that a driver talks to, as messages name it: `BMC https://10.1.0.5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kind of the object: `BMC`.
    pub kind: &'static str,
    /// Its name, without any login.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// The driver's names of the requests that it can send to a machine. `None`: it cannot send the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestNames {
    /// Name of [`PowerRequest::Off`], soft.
    pub soft_off: Option<&'static str>,
    /// Name of [`PowerRequest::Off`], hard.
    pub hard_off: Option<&'static str>,
    /// Name of [`PowerRequest::On`].
    pub on: Option<&'static str>,
}

impl RequestNames {
    /// Returns the name of this request, or `None` if it cannot be sent.
    pub fn of(&self, request: PowerRequest) -> Option<&'static str> {
        match request {
            PowerRequest::Off(Mode::Soft) => self.soft_off,
            PowerRequest::Off(Mode::Hard) => self.hard_off,
            PowerRequest::On => self.on,
        }
    }
}

/// Facts about a machine, from one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its identifier at the target. Redfish: the path of its system, `/redfish/v1/Systems/1`.
    pub id: String,
    /// Its name. Empty: none.
    pub name: String,
    /// Its power state.
    pub power: PowerState,
    /// Time since its last reset, by the target's clock alone. `None`: the target does not report it.
    pub reset_age: Option<Duration>,
    /// Requests that can be sent to it.
    pub requests: RequestNames,
    /// Reset types that the target lists. Empty: it lists none.
    pub offered: Vec<String>,
}

impl Machine {
    /// Creates a machine in this state to which nothing can be sent, for tests of what is made from it.
    pub fn seen(power: PowerState, reset_age: Option<Duration>) -> Self {
        let (id, name, requests) = (String::new(), String::new(), RequestNames::default());
        Self { id, name, power, reset_age, requests, offered: Vec::new() }
    }
}

/// Weight of a driver's report that a machine is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The machine's own BMC reports it. Several reports over time can prove that the machine is off (MET-23).
    Bmc,
    /// A program or a controller reports it. That is enough to end a power command, and never a proof for fencing.
    Reported,
}

/// Cause of a failure, in the driver's own type. Its text names the target and contains no password.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Failure of a power command.
#[derive(Debug, thiserror::Error)]
pub enum PowerError {
    /// The target refused the login. It is never repeated, because BMCs lock accounts.
    #[error("{0}")]
    Unauthorized(#[source] Cause),
    /// The state could not be read, or a request was not taken.
    #[error("{0}")]
    Failed(#[source] Cause),
    /// The request was refused before anything was sent. It would be refused again, so it is not repeated.
    #[error("{0}")]
    Refused(#[source] Cause),
    /// A machine that was turned off for a power cycle was not turned on again. Holds the reason.
    #[error("the machine is off; power-on failed: {0}")]
    StillOff(#[source] Box<PowerError>),
    /// The target offers no reset type for the wanted change.
    #[error("{target} offers no reset type to {} the machine; it offers: {}", .request.verb(), shorten(&.offered.join(", ")))]
    NotOffered {
        /// The target.
        target: Target,
        /// The wanted change.
        request: PowerRequest,
        /// The reset types that it offers.
        offered: Vec<String>,
    },
    /// The target took the request, but the machine did not reach the wanted state in time.
    #[error("{target}: the machine is {state} {seconds} s after {asked}, expected {wanted}")]
    Late {
        /// The target.
        target: Target,
        /// The driver's name of the request.
        asked: String,
        /// The expected power state.
        wanted: PowerState,
        /// The time that was waited, in seconds.
        seconds: u64,
        /// The last power state, or the reason why it is unknown.
        state: String,
    },
}

/// Receiver of a line for the operator at each step.
pub type Report<'a> = &'a (dyn Fn(&str) + Sync);

/// Restart of a machine in one request, for drivers that cannot turn it off: its operating system reboots itself.
pub trait Restart: Sync {
    /// Checks that a restart could be requested now, without requesting it; returns how it would be done.
    fn ready(&self) -> BoxFuture<'_, Result<String, PowerError>>;

    /// Requests the restart once, and returns when it was taken. The boot check proves that the machine booted. An
    /// error says whether the machine may be restarting nevertheless.
    fn restart<'a>(&'a self, report: Report<'a>) -> BoxFuture<'a, Result<(), PowerError>>;
}

/// Name of the one request of drivers that only restart machines.
const RESTART: &str = "reboot";

impl PowerError {
    /// Returns the refusal of a driver that only restarts machines.
    pub fn only_restarts(target: &Target, request: PowerRequest) -> Self {
        Self::NotOffered { target: target.clone(), request, offered: vec![RESTART.to_owned()] }
    }
}

/// One way to read and change the power of one machine. Each method sends what it says once and returns without waiting
/// for the machine. The driver bounds the time of each call itself.
pub trait PowerDriver: fmt::Debug + Send + Sync {
    /// Returns the object that the driver talks to.
    fn target(&self) -> &Target;

    /// Returns the weight of a report that the machine is off.
    fn evidence(&self) -> Evidence {
        Evidence::Reported
    }

    /// Returns the usual name of a request, for messages about a request that the machine does not offer.
    fn usual_name(&self, request: PowerRequest) -> &'static str;

    /// Reads the machine. It relies on nothing that an earlier call found out. A missing answer is an error, never a
    /// state.
    fn read(&self) -> BoxFuture<'_, Result<Machine, PowerError>>;

    /// Reads the power state again. The driver may keep what does not change, such as the path of the machine. The
    /// first call is a [`PowerDriver::read`].
    fn read_again(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        self.read()
    }

    /// Returns the boot id of the operating system in what was read, if the driver can see it.
    fn boot_id<'a>(&self, _: &'a Machine) -> Option<&'a str> {
        None
    }

    /// Checks that a request could be sent now, without sending it. A power cycle asks for the power-on before it turns
    /// the machine off. The first call on the driver is a [`PowerDriver::read`]. Errors: those of
    /// [`PowerDriver::request`], as far as they can be known before.
    fn ready_for(&self, request: PowerRequest) -> BoxFuture<'_, Result<(), PowerError>>;

    /// Sends a request once; returns the driver's name of it. A request without an answer may have been taken, so it
    /// counts as sent and the power state decides. Errors: the machine offers no such request, or it was not taken.
    fn request(&self, request: PowerRequest) -> BoxFuture<'_, Result<&'static str, PowerError>>;

    /// Returns the way to restart the machine, if the driver cannot turn it off and on.
    fn as_restart(&self) -> Option<&dyn Restart> {
        None
    }

    /// Releases what the driver holds at the target, such as a session. A later call acquires it again.
    fn close(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}
