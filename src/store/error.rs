//! What goes wrong with etcd, each as a sentence: what failed, on which object, what to do.

use super::answer::{MOST_OPS, MOST_REQUEST};

/// The errors of this room. Every one but [`StoreError::Unknown`] and [`StoreError::Partial`] means that nothing was
/// written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer from any endpoint.
    #[error("etcd at {endpoints} does not answer: {cause}; {remedy}")]
    Unreachable {
        /// The endpoints that were asked.
        endpoints: String,
        /// Why, as far as it is known.
        cause: String,
        /// What to check.
        remedy: String,
    },
    /// User, password, certificate or permission.
    #[error("etcd at {endpoints} refuses us: {cause}; {remedy}")]
    Denied {
        /// The endpoints that were asked.
        endpoints: String,
        /// etcd's words.
        cause: String,
        /// What to check.
        remedy: String,
    },
    /// The settings cannot work.
    #[error("etcd settings: {0}")]
    Settings(String),
    /// etcd answered with an error.
    #[error("{what}: etcd at {endpoints} answered: {cause}")]
    Refused {
        /// What was asked for.
        what: String,
        /// The endpoints that were asked.
        endpoints: String,
        /// etcd's words, and what to do where that is known.
        cause: String,
    },
    /// Larger than etcd takes.
    #[error(
        "{key} would take {operations} operations and {bytes} bytes in one request, etcd takes {MOST_OPS} and {MOST_REQUEST}: \
         make it smaller, or raise etcd's --max-request-bytes and --max-txn-ops (CKE's client has limits of its own)"
    )]
    TooLarge {
        /// The key or the transaction.
        key: String,
        /// Its operations.
        operations: usize,
        /// Its size.
        bytes: usize,
    },
    /// There is no such thing.
    #[error("{what} does not exist")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// It has changed since it was read.
    #[error("{what} has changed meanwhile: look again, then repeat what you still want")]
    Conflict {
        /// What has changed.
        what: String,
    },
    /// Another program leads than the one that the write was meant for.
    #[error("who leads has changed meanwhile: nothing was written; look again, then repeat what you still want")]
    LeaderChanged,
    /// What lies under a key cannot be read.
    #[error("{key} cannot be read: {cause}; {remedy}")]
    Broken {
        /// The whole key.
        key: String,
        /// Why.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// The rules do not allow it.
    #[error("{0}")]
    NotAllowed(String),
    /// No answer to a write: it may or may not have happened.
    #[error("{what}: no answer ({cause}); it may have happened all the same: look before you repeat it")]
    Unknown {
        /// What was asked for.
        what: String,
        /// Why there was no answer.
        cause: String,
    },
    /// A write in several transactions stopped half-way.
    #[error("{done} of {all} entries were written, then: {cause}")]
    Partial {
        /// Entries written.
        done: usize,
        /// Entries asked for.
        all: usize,
        /// Why it stopped.
        cause: Box<StoreError>,
    },
    /// Our lease or our key in `leader/` is gone.
    #[error("our candidacy (lease {lease:x}) is over: {cause}")]
    LeaseLost {
        /// The lease.
        lease: i64,
        /// Why.
        cause: String,
    },
}
