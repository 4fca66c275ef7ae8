//! Why a machine is where it is. Kept as parts and written out only where somebody reads it: most of 20,000 nodes
//! simply stay.

use std::fmt;

use super::score::Score;

/// Why a machine is where it is in a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// It was in the definition and nothing is said against it.
    Stays,
    /// It was compared with others.
    Chosen(Box<Chosen>),
    /// A sentence.
    Because(String),
}

/// How it came out of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// What happens to it, and for what reason: "becomes a worker: 2 of at least 3 are healthy".
    pub what: String,
    /// Its score.
    pub score: Score,
    /// It has the lowest score and not the highest: it goes.
    pub lowest: bool,
    /// Machines that were compared, this one included.
    pub among: usize,
    /// What these machines have in common: "unused healthy machines of role cs".
    pub of: String,
    /// Serial and score of the next.
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
