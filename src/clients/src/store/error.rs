//! Errors of etcd as messages: what failed, on which object, and what to do.

use cketerm_model::stored::limits::{MAX_OPS, MAX_REQUEST_BYTES, MAX_VALUE_BYTES};

/// Error of this module. Every variant except [`StoreError::Unknown`] and [`StoreError::Partial`] means that nothing
/// was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No endpoint answers.
    #[error("etcd at {endpoints} does not answer: {cause}; {remedy}")]
    Unreachable {
        /// The endpoints that were queried.
        endpoints: String,
        /// Cause, as far as it is known.
        cause: String,
        /// Remedy.
        remedy: String,
    },
    /// Refused user, password, certificate or permission.
    #[error("etcd at {endpoints} denied access: {cause}; {remedy}")]
    Denied {
        /// The endpoints that were queried.
        endpoints: String,
        /// Message of etcd.
        cause: String,
        /// Remedy.
        remedy: String,
    },
    /// The settings cannot work.
    #[error("etcd settings: {0}")]
    Settings(String),
    /// etcd answered with an error.
    #[error("{what}: etcd at {endpoints} answered: {cause}")]
    Refused {
        /// The request.
        what: String,
        /// The endpoints that were queried.
        endpoints: String,
        /// Message of etcd, with the remedy if it is known.
        cause: String,
    },
    /// Larger than etcd's limits.
    #[error("{key} needs {operations} operations and {bytes} bytes in one request, {}", limit(*.operations, *.bytes))]
    TooLarge {
        /// The key or the transaction.
        key: String,
        /// Number of operations.
        operations: usize,
        /// Size in bytes.
        bytes: usize,
    },
    /// The object does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// The object.
        what: String,
    },
    /// The object has changed since it was read.
    #[error("{what} has changed meanwhile: check it, then repeat if still needed")]
    Conflict {
        /// The object.
        what: String,
    },
    /// Another program leads than the one that the write was meant for.
    #[error("the leader has changed meanwhile, nothing was written: check, then repeat if still needed")]
    LeaderChanged,
    /// The value of a key cannot be read.
    #[error("{key} cannot be read: {cause}; {remedy}")]
    Broken {
        /// The whole key.
        key: String,
        /// Cause.
        cause: String,
        /// Remedy.
        remedy: String,
    },
    /// The rules do not allow it.
    #[error("{0}")]
    NotAllowed(String),
    /// No answer to a write: it may or may not have been executed.
    #[error("{what}: no answer ({cause}); it may have succeeded: check before you repeat it")]
    Unknown {
        /// The request.
        what: String,
        /// Reason why there was no answer.
        cause: String,
    },
    /// A write in several transactions stopped half-way.
    #[error("{done} of {all} entries were written, then: {cause}")]
    Partial {
        /// Number of entries written.
        done: usize,
        /// Number of entries requested.
        all: usize,
        /// Reason why it stopped.
        cause: Box<StoreError>,
    },
    /// The lease or the key in `leader/` is gone.
    #[error("candidacy ended (lease {lease:x}): {cause}")]
    LeaseLost {
        /// The lease.
        lease: i64,
        /// Cause.
        cause: String,
    },
}
/// Returns whose limit a request of this size exceeds, and the remedy.
fn limit(operations: usize, bytes: usize) -> String {
    if operations > MAX_OPS || bytes > MAX_VALUE_BYTES {
        let most = format!("{MAX_OPS} operations and {MAX_REQUEST_BYTES} bytes");
        return format!("and cketerm sends at most {most}, whatever etcd's own limits are: make it smaller");
    }
    "and etcd refuses that: raise its --max-request-bytes (1.5 MiB by default) and --max-txn-ops (128)".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Advice to raise etcd's limit would not help with a request that cketerm itself never sends.
    #[test]
    fn a_request_above_our_limit_must_get_smaller_and_one_below_it_needs_a_higher_limit_of_etcd() {
        let remedy = |operations, bytes| {
            let error = StoreError::TooLarge { key: "/cke/x".to_owned(), operations, bytes }.to_string();
            assert!(error.starts_with(&format!("/cke/x needs {operations} operations and {bytes} bytes")), "{error}");
            match (error.contains("make it smaller"), error.contains("--max-txn-ops")) {
                (true, false) => "ours",
                (false, true) => "etcd's",
                both => unreachable!("{both:?}: {error}"),
            }
        };
        assert_eq!(remedy(MAX_OPS, MAX_VALUE_BYTES), "etcd's");
        assert_eq!(remedy(MAX_OPS + 1, 1), "ours");
        assert_eq!(remedy(1, MAX_VALUE_BYTES + 1), "ours");
    }
}
