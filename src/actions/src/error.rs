//! Errors of actions, and the exit status of each kind (CLI-1).

use cketerm_clients::store::StoreError;

/// Ways in which an action can fail, or be done only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An operation failed: exit status 1.
    Failed,
    /// The action was requested with wrong arguments: exit status 2.
    Misused,
    /// A rule or the current state does not allow the action: exit status 3.
    Refused,
    /// The action was done except for unreadable entries: exit status 5. (4 is `status` without an entry, as in
    /// `ckecli`.)
    Unreadable,
}

impl Kind {
    /// The exit status.
    pub fn status(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Misused => 2,
            Self::Refused => 3,
            Self::Unreadable => 5,
        }
    }
}

/// Reason why an action was not done: what failed, on which object, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ActionError {
    /// Kind of the error.
    pub kind: Kind,
    /// Message for the operator.
    pub text: String,
}

impl ActionError {
    /// Creates an error of the kind [`Kind::Failed`].
    pub fn failed(text: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, text: text.into() }
    }

    /// Creates an error of the kind [`Kind::Misused`].
    pub fn misused(text: impl Into<String>) -> Self {
        Self { kind: Kind::Misused, text: text.into() }
    }

    /// Creates an error of the kind [`Kind::Unreadable`].
    pub fn unreadable(text: impl Into<String>) -> Self {
        Self { kind: Kind::Unreadable, text: text.into() }
    }

    /// Creates an error of the kind [`Kind::Refused`].
    pub fn refused(text: impl Into<String>) -> Self {
        Self { kind: Kind::Refused, text: text.into() }
    }
}

impl From<StoreError> for ActionError {
    fn from(e: StoreError) -> Self {
        let kind = match &e {
            StoreError::Conflict { .. } | StoreError::LeaderChanged | StoreError::NotAllowed(_) => Kind::Refused,
            _ => Kind::Failed,
        };
        Self { kind, text: e.to_string() }
    }
}
