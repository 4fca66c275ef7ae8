//! Off, on, cycle. An accepted request is not proof: the power state counts, read twice in a row. A request is repeated
//! only after its deadline, because some BMCs restart their delay at a repeated one.

use std::time::Duration;

use cketerm_model::{host::Mode, power_state::PowerState};
use tokio::time::{Instant, sleep};

use super::{
    client::{Bmc, BmcError},
    system::System,
};

/// Deadlines and the polling interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time for an operating system to shut down.
    pub soft: Duration,
    /// Time for a machine after a hard power-off. The request is repeated once.
    pub off: Duration,
    /// Time for a machine after a power-on. The request is repeated twice.
    pub on: Duration,
    /// Interval between two reads of the power state.
    pub poll: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { soft: seconds(120), off: seconds(60), on: seconds(60), poll: seconds(2) }
    }
}

/// Way in which a machine came to be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// It was off already.
    Already,
    /// Its operating system shut down.
    Graceful,
    /// Its power was cut.
    Hard,
}

/// Number of power-on requests. A machine between off and on must not stay off.
const ON_TRIES: u32 = 3;

impl Bmc {
    /// Turns the machine off and waits until it is. `report` gets a line for the operator at each step.
    pub async fn off(&self, mode: Mode, timeouts: &Timeouts, report: &(dyn Fn(&str) + Sync)) -> Result<Off, BmcError> {
        let system = self.system().await?;
        if system.power == PowerState::Off && self.is_stable(&system, &PowerState::Off, timeouts).await? {
            return Ok(Off::Already);
        }
        if mode == Mode::Soft {
            match system.first_offered(&["GracefulShutdown"]) {
                Some(kind) => match self.send_reset(&system, kind).await {
                    Ok(()) => {
                        report(&format!("{kind} sent; waiting up to {} s", timeouts.soft.as_secs()));
                        match self.wait(&system, &PowerState::Off, timeouts.soft, timeouts.poll).await {
                            Ok(()) => return Ok(Off::Graceful),
                            Err(state) => report(&format!("the machine is {state} after {kind}; forcing it off")),
                        }
                    }
                    Err(e @ BmcError::Unauthorized { .. }) => return Err(e),
                    Err(e) => report(&format!("{kind} failed; forcing the machine off: {e}")),
                },
                None => report("the BMC offers no GracefulShutdown; forcing the machine off"),
            }
        }
        let Some(kind) = system.first_offered(&["ForceOff"]) else {
            return Err(self.no_reset_type(&system, "turn off"));
        };
        let mut last = None;
        for _ in 0..2 {
            match self.send_reset(&system, kind).await {
                Ok(()) => report(&format!("{kind} sent; waiting up to {} s", timeouts.off.as_secs())),
                Err(e @ BmcError::Unauthorized { .. }) => return Err(e),
                Err(e) => {
                    report(&e.to_string());
                    last = Some(e);
                    // It may be about to shut down by itself, or be off already.
                    if self.wait(&system, &PowerState::Off, timeouts.poll * 3, timeouts.poll).await.is_ok() {
                        return Ok(Off::Hard);
                    }
                    continue;
                }
            }
            match self.wait(&system, &PowerState::Off, timeouts.off, timeouts.poll).await {
                Ok(()) => return Ok(Off::Hard),
                Err(state) => last = Some(self.late_error(kind, "off", timeouts.off, state)),
            }
        }
        Err(last.unwrap_or_else(|| self.no_reset_type(&system, "turn off")))
    }

    /// Turns the machine on and waits until it is. Returns `false` if it was on already.
    pub async fn on(&self, timeouts: &Timeouts, report: &(dyn Fn(&str) + Sync)) -> Result<bool, BmcError> {
        let system = self.system().await?;
        if system.power == PowerState::On && self.is_stable(&system, &PowerState::On, timeouts).await? {
            return Ok(false);
        }
        let Some(kind) = system.first_offered(&["On", "ForceOn"]) else {
            return Err(self.no_reset_type(&system, "turn on"));
        };
        let mut last = None;
        for _ in 0..ON_TRIES {
            let accepted = match self.send_reset(&system, kind).await {
                Ok(()) => {
                    report(&format!("{kind} sent; waiting up to {} s", timeouts.on.as_secs()));
                    true
                }
                Err(e @ BmcError::Unauthorized { .. }) => return Err(e),
                // Some BMCs refuse it for a moment after a power-off.
                Err(e) => {
                    report(&e.to_string());
                    last = Some(e);
                    false
                }
            };
            let timeout = if accepted { timeouts.on } else { timeouts.on / 4 };
            match self.wait(&system, &PowerState::On, timeout, timeouts.poll).await {
                Ok(()) => return Ok(true),
                Err(state) if accepted => last = Some(self.late_error(kind, "on", timeouts.on, state)),
                Err(_) => {}
            }
        }
        Err(last.unwrap_or_else(|| self.no_reset_type(&system, "turn on")))
    }

    /// Turns the machine off, waits until it is off, and turns it on again. A machine that is off is only turned on.
    pub async fn cycle(
        &self,
        mode: Mode,
        timeouts: &Timeouts,
        report: &(dyn Fn(&str) + Sync),
    ) -> Result<Off, BmcError> {
        // Do not turn off a machine that cannot be turned on again.
        let system = self.system().await?;
        if system.first_offered(&["On", "ForceOn"]).is_none() {
            return Err(self.no_reset_type(&system, "turn on"));
        }
        let how = self.off(mode, timeouts, report).await?;
        report("the machine is off");
        self.on(timeouts, report).await?;
        Ok(how)
    }

    /// Requests a power-off once, without waiting for it. Returns the reset type that was sent. It fails if the BMC
    /// does not offer a soft one, and for every error except a missing answer, which counts as sent.
    pub async fn request_off(&self, system: &System, mode: Mode) -> Result<&'static str, BmcError> {
        let kind = match mode {
            Mode::Soft => "GracefulShutdown",
            Mode::Hard => "ForceOff",
        };
        let kind = system.first_offered(&[kind]).ok_or_else(|| self.no_reset_type(system, "turn off"))?;
        self.send_reset(system, kind).await.map(|()| kind)
    }

    /// Requests a power-on once, without waiting for it. Returns the reset type that was sent.
    pub async fn request_on(&self, system: &System) -> Result<&'static str, BmcError> {
        let kind = system.first_offered(&["On", "ForceOn"]).ok_or_else(|| self.no_reset_type(system, "turn on"))?;
        self.send_reset(system, kind).await.map(|()| kind)
    }

    /// Sends a reset. A request without an answer may have been taken, so it counts as sent and the power state
    /// decides.
    async fn send_reset(&self, system: &System, kind: &str) -> Result<(), BmcError> {
        match self.reset(system, kind).await {
            Err(BmcError::Silent { .. }) => Ok(()),
            answer => answer,
        }
    }

    /// Reports whether a second read returns the same state.
    async fn is_stable(&self, system: &System, wanted: &PowerState, timeouts: &Timeouts) -> Result<bool, BmcError> {
        sleep(timeouts.poll).await;
        Ok(self.again(system).await?.power == *wanted)
    }

    /// Waits until two reads in a row return the wanted state. A read without an answer does not count. The error is
    /// the last observed state.
    async fn wait(
        &self,
        system: &System,
        wanted: &PowerState,
        timeout: Duration,
        poll: Duration,
    ) -> Result<(), String> {
        let until = Instant::now() + timeout;
        let mut seen = 0;
        loop {
            sleep(poll).await;
            let state = match self.again(system).await {
                Ok(now) if now.power == *wanted => {
                    seen += 1;
                    if seen == 2 {
                        return Ok(());
                    }
                    now.power.to_string()
                }
                Ok(now) => {
                    seen = 0;
                    now.power.to_string()
                }
                Err(e) => format!("unknown ({e})"),
            };
            // The second of two reads may come after the deadline.
            if seen == 0 && Instant::now() >= until {
                return Err(state);
            }
        }
    }

    fn late_error(&self, asked: &str, wanted: &'static str, after: Duration, state: String) -> BmcError {
        let (bmc, asked) = (self.origin.clone(), asked.to_owned());
        BmcError::Late { bmc, asked, wanted, seconds: after.as_secs(), state }
    }

    fn no_reset_type(&self, system: &System, wanted: &'static str) -> BmcError {
        BmcError::NoResetType { bmc: self.origin.clone(), wanted, offered: system.offered().to_vec() }
    }
}
