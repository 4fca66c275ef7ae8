//! Orders that an operator gives for one entry of a queue.

use serde::{Deserialize, Serialize};

/// Orders that an operator may give for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Keep the entry from starting.
    Hold,
    /// Let the entry start again.
    Unhold,
    /// Run the command once more.
    Retry,
    /// Treat the machine as booted or healthy.
    Done,
    /// Skip pods and volumes.
    Force,
    /// Release an orphaned cordon.
    Uncordon,
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Hold => "hold",
            Self::Unhold => "unhold",
            Self::Retry => "retry",
            Self::Done => "done",
            Self::Force => "force",
            Self::Uncordon => "uncordon",
        })
    }
}
