//! A machine in sabakan's answer, and the parser of the answer (SAB-8 to SAB-12).
//!
//! Real answers of sabakan have labels that are `null`, durations with fractions, and dates with nanoseconds and any
//! zone. An answer that cannot be read completely is unusable, because a machine that is missed would look removed.

mod answer;
mod seconds_east;

use std::fmt;

use cketerm_model::{boot_time::Seconds, names::Address};
use jiff::{Timestamp, civil, tz::Offset};
use serde::{Deserialize, Serialize};

pub use self::answer::read;

/// State of a machine in sabakan's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Registered, not yet set up.
    Uninitialized,
    /// Healthy.
    Healthy,
    /// Answers, and reports a fault.
    Unhealthy,
    /// Does not answer.
    Unreachable,
    /// Its operating system is being updated.
    Updating,
    /// About to leave. Its disks are being erased.
    Retiring,
    /// Retired.
    Retired,
}

impl State {
    /// All states, in the order of sabakan's schema.
    pub const ALL: [Self; 7] = [
        Self::Uninitialized,
        Self::Healthy,
        Self::Unhealthy,
        Self::Unreachable,
        Self::Updating,
        Self::Retiring,
        Self::Retired,
    ];

    /// Returns the name in lower case: the value of the state taint, and the operation of an automatic repair.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uninitialized => "uninitialized",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::Unreachable => "unreachable",
            Self::Updating => "updating",
            Self::Retiring => "retiring",
            Self::Retired => "retired",
        }
    }

    /// Returns the name in upper case, as in GraphQL.
    pub fn graphql(self) -> &'static str {
        match self {
            Self::Uninitialized => "UNINITIALIZED",
            Self::Healthy => "HEALTHY",
            Self::Unhealthy => "UNHEALTHY",
            Self::Unreachable => "UNREACHABLE",
            Self::Updating => "UPDATING",
            Self::Retiring => "RETIRING",
            Self::Retired => "RETIRED",
        }
    }

    /// Returns the state with this name in GraphQL.
    pub fn from_graphql(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.graphql() == name)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A date of sabakan with its zone. CKE writes it in the zone of the answer, and so does cketerm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Date {
    /// The moment.
    pub at: Timestamp,
    /// The zone of the answer.
    #[serde(with = "seconds_east")]
    pub offset: Offset,
}

impl Date {
    /// Parses RFC 3339 with or without a fraction and with any offset.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not an RFC 3339 time such as 2026-06-01T00:00:00Z");
        let at: Timestamp = text.parse().map_err(|_| bad())?;
        Ok(Self { at, offset: offset(text).ok_or_else(bad)? })
    }

    /// Creates a date in UTC.
    pub fn utc(at: Timestamp) -> Self {
        Self { at, offset: Offset::UTC }
    }

    /// Returns date and time of day in the date's own zone.
    pub fn civil(&self) -> civil::DateTime {
        self.offset.to_datetime(self.at)
    }

    /// Returns year and month in the date's own zone, for example `2026-06`.
    pub fn month(&self) -> String {
        let date = self.civil();
        format!("{:04}-{:02}", date.year(), date.month())
    }

    /// Returns the year in the date's own zone.
    pub fn year(&self) -> String {
        format!("{:04}", self.civil().year())
    }
}

impl fmt::Display for Date {
    /// Writes RFC 3339 in whole seconds, as Go does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.civil();
        let (date, time) = (d.date(), d.time());
        write!(f, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day())?;
        write!(f, "T{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())?;
        match self.offset.seconds() {
            0 => f.write_str("Z"),
            seconds => {
                let sign = if seconds < 0 { '-' } else { '+' };
                let minutes = seconds.unsigned_abs() / 60;
                write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
        }
    }
}

fn offset(text: &str) -> Option<Offset> {
    if text.ends_with(['Z', 'z']) {
        return Some(Offset::UTC);
    }
    let zone = text.get(text.len().checked_sub(6)?..)?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Offset::from_seconds(sign * (hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60)).ok()
}

/// A machine that has an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `spec.serial`: its name in sabakan.
    pub serial: String,
    /// `spec.labels`, by name.
    pub labels: Vec<(String, String)>,
    /// `spec.rack`.
    pub rack: i64,
    /// `spec.indexInRack`.
    pub index_in_rack: i64,
    /// `spec.role`.
    pub role: String,
    /// First address of `ipv4`. It identifies the machine in a cluster definition.
    pub address: Address,
    /// `spec.ipv4`.
    pub ipv4: Vec<String>,
    /// `spec.registerDate`.
    pub register_date: Date,
    /// `spec.retireDate`. Equal to `register_date` if nobody set one.
    pub retire_date: Date,
    /// `spec.bmc.bmcType`: the machine type of a repair.
    pub bmc_type: String,
    /// `spec.bmc.ipv4`.
    pub bmc_ipv4: String,
    /// `status.state`.
    pub state: State,
    /// `status.timestamp`, if the query asked for it.
    pub since: Option<Timestamp>,
    /// `status.duration`: time in this state when sabakan answered.
    pub duration: Seconds,
}

impl Machine {
    /// Returns true if the state is healthy.
    pub fn healthy(&self) -> bool {
        self.state == State::Healthy
    }

    /// Returns the whole days until it retires, truncated toward zero. Negative after that date.
    pub fn lifetime_days(&self, now: Timestamp) -> i64 {
        self.retire_date.at.duration_since(now).as_secs() / 86_400
    }

    /// Returns the steps of SAB-26, from −3 to 3: +1 for each of 250, 500 and 1,000 days that the lifetime exceeds, −1
    /// for each of −250, −500 and −1,000 that it falls below.
    pub fn lifetime_steps(&self, now: Timestamp) -> i64 {
        let days = self.lifetime_days(now);
        [250, 500, 1000].into_iter().map(|step| i64::from(days > step) - i64::from(days < -step)).sum()
    }

    /// Returns the order in which machines with equal scores are taken: rack, index in rack, serial.
    pub fn place(&self) -> (i64, i64, &str) {
        (self.rack, self.index_in_rack, &self.serial)
    }
}

/// Content of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machines {
    /// Machines with an address, in the answer's order.
    pub list: Vec<Machine>,
    /// Warnings for the operator: machines that were ignored.
    pub warnings: Vec<String>,
}

/// Reason why an answer is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Not JSON, or not the shape of an answer.
    #[error("the machines are not a valid answer of sabakan: {0}")]
    Shape(String),
    /// Sabakan answered with errors, with their text.
    #[error("sabakan answered with an error: {0}")]
    Answered(String),
    /// One machine cannot be read.
    #[error("machine {machine}: {why}")]
    Machine {
        /// Its serial, or its place in the list.
        machine: String,
        /// The problem.
        why: String,
    },
    /// Two machines have the same first address.
    #[error("machines {first} and {second} both have the address {address}; correct one of them (`sabactl machines`)")]
    SameAddress {
        /// The serial of one.
        first: String,
        /// The serial of the other.
        second: String,
        /// The address.
        address: Address,
    },
}

#[cfg(test)]
#[path = "tests/machine.rs"]
mod tests;
