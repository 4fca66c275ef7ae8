//! Score of a machine. Its terms are kept apart so that a choice can be explained (SAB-26 to SAB-30).

use std::fmt;

use cketerm_model::policy::Strategy;
use jiff::Timestamp;

use super::machine::Machine;

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A node with an API server and etcd.
    ControlPlane,
    /// Any other node.
    Worker,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ControlPlane => "control plane",
            Self::Worker => "worker",
        })
    }
}

/// Rule of a score.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The strategy.
    pub strategy: Strategy,
    /// The kind of nodes that count in a rack.
    pub kind: Kind,
    /// Whether health counts: if a node leaves or is promoted. New machines are healthy anyway.
    pub health: bool,
}

/// A score and its terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// The sum, which is compared.
    pub total: i64,
    /// Whole days until the machine retires.
    pub days: i64,
    /// The term for its lifetime.
    pub lifetime: i64,
    /// The term for its health. 0 if health does not count.
    pub health: i64,
    /// The term for its rack.
    pub spread: i64,
    /// The rack.
    pub rack: i64,
    /// Nodes of that kind in the rack.
    pub in_rack: u32,
    /// The kind of the counted nodes.
    pub kind: Kind,
}

impl Rule {
    /// Returns the part of the score that does not depend on the other nodes.
    pub fn base(self, machine: &Machine, now: Timestamp) -> i64 {
        self.lifetime(machine, now) + self.health(machine)
    }

    fn lifetime(self, machine: &Machine, now: Timestamp) -> i64 {
        let weight = match self.strategy {
            Strategy::Weighted => 10,
            Strategy::AllHealthy => 1,
        };
        machine.lifetime_steps(now) * weight
    }

    fn health(self, machine: &Machine) -> i64 {
        match (self.health, machine.healthy(), self.strategy) {
            (true, false, Strategy::Weighted) => -30,
            (true, true, Strategy::AllHealthy) => 1000,
            _ => 0,
        }
    }

    /// Returns the term for a rack with this number of nodes.
    pub fn spread(self, in_rack: u32) -> i64 {
        match self.strategy {
            Strategy::Weighted => -i64::from(in_rack.min(10)),
            Strategy::AllHealthy => (100 - i64::from(in_rack)) * 10,
        }
    }

    /// Returns the whole score.
    pub fn score(self, machine: &Machine, in_rack: u32, now: Timestamp) -> Score {
        let (lifetime, health, spread) = (self.lifetime(machine, now), self.health(machine), self.spread(in_rack));
        Score {
            total: lifetime + health + spread,
            days: machine.lifetime_days(now),
            lifetime,
            health,
            spread,
            rack: machine.rack,
            in_rack,
            kind: self.kind,
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.in_rack == 1 { "" } else { "s" };
        write!(
            f,
            "score {} ({:+} for {} days of lifetime, {:+} for {} {}{plural} in rack {}",
            self.total, self.lifetime, self.days, self.spread, self.in_rack, self.kind, self.rack
        )?;
        match self.health {
            0 => f.write_str(")"),
            n if n < 0 => write!(f, ", {n:+} for not being healthy)"),
            n => write!(f, ", {n:+} for being healthy)"),
        }
    }
}
