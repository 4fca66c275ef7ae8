//! Transactions of the engine as data.

use crate::{fault, fence::Permit};

/// One transaction of the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Keys and the ModRevision that each must still have; 0 = the key must be absent.
    pub compares: Vec<(String, i64)>,
    /// Values to write.
    pub puts: Vec<Put>,
    /// Keys to delete.
    pub deletes: Vec<String>,
}

/// Range of keys from the first up to, but excluding, the last. It is one comparison or deletion in etcd, however many
/// keys it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// First key.
    pub from: String,
    /// First key after the range.
    pub to: Vec<u8>,
}

/// Transaction of the engine that may also contain ranges of keys, so that its size does not depend on their number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranged {
    /// Comparisons, writes and deletions of single keys.
    pub change: Change,
    /// Ranges in which no key may have been written after this revision. A deletion since then is not noticed.
    pub unwritten: Vec<(Span, i64)>,
    /// Ranges to delete; none of `puts` may lie in them.
    pub cleared: Vec<Span>,
}

/// One comparison of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// The key has this CreateRevision.
    Created(&'a str, i64),
    /// The key has this ModRevision; 0 = there is no such key.
    Modified(&'a str, i64),
    /// No key of the range was written after this revision.
    Unwritten(&'a Span, i64),
}

impl Ranged {
    /// Returns what must hold for the transaction to go through. First comes the fence: the leader's key.
    pub fn conditions<'a>(&'a self, permit: &'a Permit) -> Vec<Condition<'a>> {
        let mut all = vec![Condition::Created(permit.leader_key(), permit.create_revision())];
        all.extend(self.change.compares.iter().map(|(key, revision)| Condition::Modified(key, *revision)));
        all.extend(self.unwritten.iter().map(|(span, since)| Condition::Unwritten(span, *since)));
        fault!(CancelOverwritten => {
            all.retain(|condition| !matches!(condition, Condition::Modified(key, _) if key.contains("/reboots/data/")));
        });
        fault!(CompareNothing => all.truncate(1));
        fault!(UnfencedWrite => {
            all.remove(0);
        });
        all
    }
}

impl From<Change> for Ranged {
    fn from(change: Change) -> Self {
        Self { change, ..Self::default() }
    }
}

/// One value to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    /// The whole key.
    pub key: String,
    /// The value.
    pub value: String,
    /// Whether the key is attached to the leader's lease and disappears with it.
    pub leased: bool,
}

impl Put {
    /// Returns a value as JSON, without the lease.
    pub fn json(key: String, value: &impl serde::Serialize) -> Self {
        Self { key, value: serde_json::to_string(value).unwrap_or_default(), leased: false }
    }
}
