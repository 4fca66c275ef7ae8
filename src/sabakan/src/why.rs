//! Reason for a machine's place. It is kept in parts and formatted only where it is shown, because most of 20,000 nodes
//! simply stay.

use std::fmt;

use super::score::Score;

/// Reason for a machine's place in a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// It was in the definition, and nothing speaks against it.
    Stays,
    /// It was compared with others.
    Chosen(Box<Chosen>),
    /// A sentence.
    Because(String),
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The effect on it with its cause: "becomes a worker: 2 of at least 3 are healthy".
    pub what: String,
    /// Its score.
    pub score: Score,
    /// Whether it has the lowest score instead of the highest, so it leaves.
    pub lowest: bool,
    /// Number of machines that were compared, including this one.
    pub among: usize,
    /// Common property of these machines: "unused healthy machines of role cs".
    pub of: String,
    /// Serial and score of the next candidate.
    pub next: Option<(String, i64)>,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stays => f.write_str("stays as it is"),
            Self::Because(text) => f.write_str(text),
            Self::Chosen(chosen) => chosen.fmt(f),
        }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.lowest { "lowest" } else { "highest" };
        write!(f, "{}; {}, the {order} of {} {}", self.what, self.score, self.among, self.of)?;
        match &self.next {
            None => Ok(()),
            Some((serial, score)) if *score == self.score.total => {
                let place = if self.lowest { "before" } else { "after" };
                write!(f, "; {serial} has the same score and comes {place} it by rack, index in rack and serial")
            }
            Some((serial, score)) => write!(f, "; next is {serial} with {score}"),
        }
    }
}
