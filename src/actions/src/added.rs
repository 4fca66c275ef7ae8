//! Result of adding entries to a queue.

use cketerm_model::batch::BatchId;

/// Result of adding entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Indexes of the new entries, in the order of the addresses.
    pub indexes: Vec<u64>,
    /// Their batch; none if nothing was added.
    pub batch: Option<BatchId>,
    /// Notes for the operator: duplicates, a disabled queue.
    pub notes: Vec<String>,
}
