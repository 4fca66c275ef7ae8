//! Conduct of agents: honest ones, some of which crash or have a wrong clock, and liars.

use fastrand::Rng;

/// Conduct of the agents of a machine, for some minutes of one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// Keeps all rules. Crashes and lost requests may come in between.
    Honest,
    /// Keeps all rules by a clock that is ahead by this many seconds.
    WrongClock(i64),
    /// Keeps no record.
    Forgets,
    /// Answers that it obeys, and never reboots.
    Lies,
    /// Reports another boot id than the kernel's.
    WrongBootId,
    /// Answers after the deadline, also if the order is gone, and then reboots.
    Late,
    /// Answers with another boot id, and reboots or not.
    AnswersForAnotherBoot,
    /// Answers with another attempt or order, and reboots or not.
    AnswersAnother,
    /// Obeys an order of any boot, so it reboots again after the boot.
    Twice,
    /// Reboots without an order.
    Unordered,
}

impl Conduct {
    /// Draws the conduct for a boot: honest in two of three.
    pub fn draw(rng: &mut Rng) -> Self {
        match rng.u32(0..32) {
            0..16 => Self::Honest,
            16..20 => Self::WrongClock([-600, -150, -40, 40, 150, 600][rng.usize(..6)]),
            20 => Self::Forgets,
            21 | 22 => Self::Lies,
            23 => Self::WrongBootId,
            24 => Self::Late,
            25 => Self::AnswersForAnotherBoot,
            26 | 27 => Self::AnswersAnother,
            28 => Self::Twice,
            _ => Self::Unordered,
        }
    }

    /// Reports whether it keeps the rules of an agent by its own clock.
    pub fn is_honest(self) -> bool {
        match self {
            Self::Honest | Self::WrongClock(_) => true,
            Self::Forgets
            | Self::Lies
            | Self::WrongBootId
            | Self::Late
            | Self::AnswersForAnotherBoot
            | Self::AnswersAnother
            | Self::Twice
            | Self::Unordered => false,
        }
    }

    /// Returns the number of seconds by which its clock is ahead.
    pub fn clock_error(self) -> i64 {
        match self {
            Self::WrongClock(error) => error,
            Self::Honest
            | Self::Forgets
            | Self::Lies
            | Self::WrongBootId
            | Self::Late
            | Self::AnswersForAnotherBoot
            | Self::AnswersAnother
            | Self::Twice
            | Self::Unordered => 0,
        }
    }
}
