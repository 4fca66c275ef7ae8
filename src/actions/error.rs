//! Why an action was not done, and which exit status that is (spec/cli.md).

use crate::store::StoreError;

/// The ways not to be done, or not wholly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something broke: exit 1.
    Failed,
    /// It was asked for wrongly: exit 2.
    Misused,
    /// The rules or the moment do not allow it: exit 3.
    Refused,
    /// It was done, but for what in etcd cannot be read: exit 5 (4 is `status` without one, as in `ckecli`).
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

/// Why an action was not done: what failed, on which object, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ActionError {
    /// Which way.
    pub kind: Kind,
    /// The sentence.
    pub text: String,
}

impl ActionError {
    /// Something broke.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, text: text.into() }
    }

    /// It was asked for wrongly.
    pub fn misused(text: impl Into<String>) -> Self {
        Self { kind: Kind::Misused, text: text.into() }
    }

    /// It was done, but for what in etcd cannot be read.
    pub fn unreadable(text: impl Into<String>) -> Self {
        Self { kind: Kind::Unreadable, text: text.into() }
    }

    /// The rules or the moment do not allow it.
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
