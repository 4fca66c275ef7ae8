//! Off, on, cycle, with any driver. An accepted request is not proof: the power state counts, read twice in a row. A
//! request is repeated only after its deadline, because some BMCs restart their delay at a repeated one.

use std::time::Duration;

use cketerm_model::{host::Mode, power_state::PowerState};
use tokio::time::{Instant, sleep};

pub use super::driver::Report;
use super::driver::{Machine, PowerDriver, PowerError, PowerRequest};

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

/// Way in which a machine was rebooted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebooted {
    /// It was turned off and on, and is on.
    Cycled(Off),
    /// Its operating system took the order to reboot.
    Restarting,
}

/// Number of power-on requests. A machine between off and on must not stay off.
const ON_TRIES: u32 = 3;

/// Turns the machine off and waits until it is.
pub async fn off(
    driver: &dyn PowerDriver,
    mode: Mode,
    timeouts: &Timeouts,
    report: Report<'_>,
) -> Result<Off, PowerError> {
    off_and_then(driver, mode, timeouts, report, Next::StayOff).await
}

/// Use of a machine after a power-off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    StayOff,
    TurnOn,
}

async fn off_and_then(
    driver: &dyn PowerDriver,
    mode: Mode,
    timeouts: &Timeouts,
    report: Report<'_>,
    next: Next,
) -> Result<Off, PowerError> {
    let machine = driver.read().await?;
    if machine.power == PowerState::Off && is_stable(driver, &PowerState::Off, timeouts).await? {
        return Ok(Off::Already);
    }
    let (soft, hard) = (PowerRequest::Off(Mode::Soft), PowerRequest::Off(Mode::Hard));
    // Do not turn off a machine that cannot be turned on again.
    if next == Next::TurnOn {
        driver.ready_for(PowerRequest::On).await?;
    }
    if mode == Mode::Soft {
        if let Some(kind) = machine.requests.of(soft) {
            match driver.request(soft).await {
                Ok(kind) => {
                    report(&format!("{kind} sent; waiting up to {} s", timeouts.soft.as_secs()));
                    match wait(driver, &PowerState::Off, timeouts.soft, timeouts.poll).await {
                        Ok(()) => return Ok(Off::Graceful),
                        Err(state) => report(&format!("the machine is {state} after {kind}; forcing it off")),
                    }
                }
                Err(e @ PowerError::Unauthorized(_)) => return Err(e),
                // The hard request may be refused for the same reason. Then nothing is forced.
                Err(e @ PowerError::Refused(_)) if driver.ready_for(hard).await.is_err() => return Err(e),
                Err(e) => report(&format!("{kind} failed; forcing the machine off: {e}")),
            }
        } else {
            let (target, name) = (driver.target().kind, driver.usual_name(soft));
            report(&format!("the {target} offers no {name}; forcing the machine off"));
        }
    }
    if machine.requests.of(hard).is_none() {
        return Err(not_offered(driver, &machine, hard));
    }
    let mut last = None;
    for again in [true, false] {
        let kind = match driver.request(hard).await {
            Ok(kind) => kind,
            Err(e @ (PowerError::Unauthorized(_) | PowerError::Refused(_))) => return Err(e),
            Err(e) => {
                if again {
                    report(&e.to_string());
                }
                last = Some(e);
                // It may be about to shut down by itself, or be off already.
                if wait(driver, &PowerState::Off, timeouts.poll * 3, timeouts.poll).await.is_ok() {
                    return Ok(Off::Hard);
                }
                continue;
            }
        };
        report(&format!("{kind} sent; waiting up to {} s", timeouts.off.as_secs()));
        match wait(driver, &PowerState::Off, timeouts.off, timeouts.poll).await {
            Ok(()) => return Ok(Off::Hard),
            Err(state) => last = Some(late(driver, kind, PowerState::Off, timeouts.off, state)),
        }
    }
    Err(last.unwrap_or_else(|| not_offered(driver, &machine, hard)))
}

/// Turns the machine on and waits until it is. Returns `false` if it was on already.
pub async fn on(driver: &dyn PowerDriver, timeouts: &Timeouts, report: Report<'_>) -> Result<bool, PowerError> {
    let machine = driver.read().await?;
    if machine.power == PowerState::On && is_stable(driver, &PowerState::On, timeouts).await? {
        return Ok(false);
    }
    if machine.requests.of(PowerRequest::On).is_none() {
        return Err(not_offered(driver, &machine, PowerRequest::On));
    }
    let mut last = None;
    for tries_left in (0..ON_TRIES).rev() {
        let accepted = match driver.request(PowerRequest::On).await {
            Ok(kind) => {
                report(&format!("{kind} sent; waiting up to {} s", timeouts.on.as_secs()));
                Some(kind)
            }
            Err(e @ (PowerError::Unauthorized(_) | PowerError::Refused(_))) => return Err(e),
            // Some BMCs refuse it for a moment after a power-off.
            Err(e) => {
                let known = last.as_ref().is_some_and(|last: &PowerError| last.to_string() == e.to_string());
                if tries_left > 0 && !known {
                    report(&e.to_string());
                }
                last = Some(e);
                None
            }
        };
        let timeout = if accepted.is_some() { timeouts.on } else { timeouts.on / 4 };
        match (wait(driver, &PowerState::On, timeout, timeouts.poll).await, accepted) {
            (Ok(()), _) => return Ok(true),
            (Err(state), Some(kind)) => last = Some(late(driver, kind, PowerState::On, timeouts.on, state)),
            (Err(_), None) => {}
        }
    }
    Err(last.unwrap_or_else(|| not_offered(driver, &machine, PowerRequest::On)))
}

/// Turns the machine off, waits until it is off, and turns it on again. A machine that is off is only turned on, and one
/// that cannot be turned on again is not turned off. An error after the power-off says that the machine is off.
pub async fn cycle(
    driver: &dyn PowerDriver,
    mode: Mode,
    timeouts: &Timeouts,
    report: Report<'_>,
) -> Result<Off, PowerError> {
    let how = off_and_then(driver, mode, timeouts, report, Next::TurnOn).await?;
    report("the machine is off");
    on(driver, timeouts, report).await.map_err(|e| PowerError::StillOff(e.into()))?;
    Ok(how)
}

/// Reboots the machine in the driver's way: a power cycle, or a restart by its operating system, for which `mode` has no
/// meaning.
pub async fn reboot(
    driver: &dyn PowerDriver,
    mode: Mode,
    timeouts: &Timeouts,
    report: Report<'_>,
) -> Result<Rebooted, PowerError> {
    let Some(restart) = driver.as_restart() else {
        return cycle(driver, mode, timeouts, report).await.map(Rebooted::Cycled);
    };
    if mode == Mode::Hard {
        report(&format!("the {} reboots through its operating system; --hard has no effect", driver.target().kind));
    }
    restart.restart(report).await?;
    Ok(Rebooted::Restarting)
}

/// Reports whether a second read returns the same state.
async fn is_stable(driver: &dyn PowerDriver, wanted: &PowerState, timeouts: &Timeouts) -> Result<bool, PowerError> {
    sleep(timeouts.poll).await;
    Ok(driver.read_again().await?.power == *wanted)
}

/// Waits until two reads in a row return the wanted state. A read without an answer does not count. The error is the
/// last observed state.
async fn wait(driver: &dyn PowerDriver, wanted: &PowerState, timeout: Duration, poll: Duration) -> Result<(), String> {
    let until = Instant::now() + timeout;
    let mut seen = 0;
    loop {
        sleep(poll).await;
        let state = match driver.read_again().await {
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

fn late(driver: &dyn PowerDriver, asked: &str, wanted: PowerState, after: Duration, state: String) -> PowerError {
    let (target, asked) = (driver.target().clone(), asked.to_owned());
    PowerError::Late { target, asked, wanted, seconds: after.as_secs(), state }
}

fn not_offered(driver: &dyn PowerDriver, machine: &Machine, request: PowerRequest) -> PowerError {
    PowerError::NotOffered { target: driver.target().clone(), request, offered: machine.offered.clone() }
}
