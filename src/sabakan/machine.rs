//! A machine as sabakan answers it, and how its answer is read (spec/sabakan.md, Query).
//!
//! Sabakan's real answers have labels that are `null`, durations with fractions, dates with nanoseconds and any zone.
//! An answer that cannot be read completely is no answer: a machine that is missed would look vanished.

mod answer;

use std::fmt;

use jiff::{Timestamp, civil, tz::Offset};
use serde::{Deserialize, Serialize};

pub use self::answer::read;

/// Where a machine stands in sabakan's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Registered, not yet set up.
    Uninitialized,
    /// Good.
    Healthy,
    /// Answers and says that something is wrong.
    Unhealthy,
    /// Does not answer.
    Unreachable,
    /// Its operating system is being exchanged.
    Updating,
    /// Is to leave; its disks are being erased.
    Retiring,
    /// Has left.
    Retired,
}

impl State {
    /// All of them, in the order of sabakan's schema.
    pub const ALL: [Self; 7] = [
        Self::Uninitialized,
        Self::Healthy,
        Self::Unhealthy,
        Self::Unreachable,
        Self::Updating,
        Self::Retiring,
        Self::Retired,
    ];

    /// In lower case: the value of the state taint, and the operation of an automatic repair.
    pub fn word(self) -> &'static str {
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

    /// In upper case, as GraphQL names it.
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

    /// The state with this name of GraphQL.
    pub fn from_graphql(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.graphql() == name)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A date of sabakan: a moment, and how it was written. CKE writes it in the zone of the answer, so ours does too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Date {
    /// The moment.
    pub at: Timestamp,
    /// The zone in which it was written.
    #[serde(with = "seconds_east")]
    pub offset: Offset,
}

impl Date {
    /// Reads RFC 3339 with or without a fraction and with any offset.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not an RFC 3339 time such as 2026-06-01T00:00:00Z");
        let at: Timestamp = text.parse().map_err(|_| bad())?;
        Ok(Self { at, offset: offset(text).ok_or_else(bad)? })
    }

    /// This moment in UTC.
    pub fn utc(at: Timestamp) -> Self {
        Self { at, offset: Offset::UTC }
    }

    /// Date and time of day where it was written.
    pub fn civil(&self) -> civil::DateTime {
        self.offset.to_datetime(self.at)
    }

    /// Year and month, `2026-06`, where it was written.
    pub fn month(&self) -> String {
        let date = self.civil();
        format!("{:04}-{:02}", date.year(), date.month())
    }

    /// The year where it was written.
    pub fn year(&self) -> String {
        format!("{:04}", self.civil().year())
    }
}

impl fmt::Display for Date {
    /// RFC 3339 in whole seconds, as Go writes it.
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

/// A zone as seconds east of UTC, for snapshots that are written down.
mod seconds_east {
    use serde::Deserializer;

    use super::{Deserialize, Offset, Serialize};

    #[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
    pub(super) fn serialize<S: serde::Serializer>(zone: &Offset, out: S) -> Result<S::Ok, S::Error> {
        zone.seconds().serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Offset, D::Error> {
        Offset::from_seconds(i32::deserialize(from)?).map_err(serde::de::Error::custom)
    }
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
    /// The first of `ipv4`: what names the machine in a cluster definition.
    pub address: String,
    /// `spec.ipv4`.
    pub ipv4: Vec<String>,
    /// `spec.registerDate`.
    pub register_date: Date,
    /// `spec.retireDate`; equal to `register_date` where nobody set one.
    pub retire_date: Date,
    /// `spec.bmc.bmcType`: the machine type of a repair.
    pub bmc_type: String,
    /// `spec.bmc.ipv4`.
    pub bmc_ipv4: String,
    /// `status.state`.
    pub state: State,
    /// `status.timestamp`, where it was asked for.
    pub since: Option<Timestamp>,
    /// `status.duration`: seconds in this state when sabakan answered.
    pub duration: f64,
}

impl Machine {
    /// Good.
    pub fn healthy(&self) -> bool {
        self.state == State::Healthy
    }

    /// Whole days until it retires, cut toward zero; negative once that has passed.
    pub fn lifetime_days(&self, now: Timestamp) -> i64 {
        self.retire_date.at.duration_since(now).as_secs() / 86_400
    }

    /// How many of 250, 500, 1,000 days its lifetime exceeds, or falls below negative: 3 to -3.
    pub fn lifetime_steps(&self, now: Timestamp) -> i64 {
        let days = self.lifetime_days(now);
        [250, 500, 1000].into_iter().map(|step| i64::from(days > step) - i64::from(days < -step)).sum()
    }

    /// The order in which equal machines are taken: rack, place in it, serial.
    pub fn place(&self) -> (i64, i64, &str) {
        (self.rack, self.index_in_rack, &self.serial)
    }
}

/// What an answer holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machines {
    /// Machines with an address, in the answer's order.
    pub list: Vec<Machine>,
    /// What a person should know: machines that had to be left out.
    pub warnings: Vec<String>,
}

/// Why an answer is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// Not JSON, or not the shape of an answer.
    #[error("the machines are not sabakan's answer: {0}")]
    Shape(String),
    /// Sabakan answered with errors: what it says.
    #[error("sabakan answered with an error: {0}")]
    Answered(String),
    /// One machine cannot be understood.
    #[error("machine {machine}: {why}")]
    Machine {
        /// Its serial, or its place in the list.
        machine: String,
        /// What is wrong.
        why: String,
    },
    /// Two machines have the same first address.
    #[error(
        "machines {first} and {second} both have the address {address}: one of them must be corrected in sabakan (`sabactl machines`)"
    )]
    SameAddress {
        /// The serial of one.
        first: String,
        /// The serial of the other.
        second: String,
        /// The address.
        address: String,
    },
}

#[cfg(test)]
#[path = "tests/machine.rs"]
mod tests;
