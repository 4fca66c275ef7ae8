//! Key ranges as in requests: one key, `[key, end)`, or every key from a key on.

use std::ops::Bound;

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyRange {
    /// One key.
    One(Vec<u8>),
    /// Keys from the first one up to the second one, exclusive.
    Until(Vec<u8>, Vec<u8>),
    /// Every key from this one on (`range_end` is `"\0"`).
    From(Vec<u8>),
}

impl KeyRange {
    /// Creates a range from the two fields of a request.
    pub fn new(key: &[u8], end: &[u8]) -> Self {
        match end {
            [] => Self::One(key.to_vec()),
            [0] => Self::From(key.to_vec()),
            _ => Self::Until(key.to_vec(), end.to_vec()),
        }
    }

    /// Returns true if the range contains no key, because its end is not after its start.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Until(from, to) if from >= to)
    }

    /// Returns true if the range contains the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Until(from, to) => from.as_slice() <= key && key < to.as_slice(),
            Self::From(from) => from.as_slice() <= key,
        }
    }

    /// Returns the first key that the range may contain.
    pub fn start(&self) -> &[u8] {
        match self {
            Self::One(key) | Self::Until(key, _) | Self::From(key) => key,
        }
    }

    /// Returns the first key after the range; `None` for an open range.
    pub fn stop(&self) -> Option<Vec<u8>> {
        match self {
            Self::One(key) => Some([key.as_slice(), &[0]].concat()),
            Self::Until(_, to) => Some(to.clone()),
            Self::From(_) => None,
        }
    }

    /// Returns bounds for a `BTreeMap`. The range must not be empty.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        match self {
            Self::One(key) => (Bound::Included(key), Bound::Included(key)),
            Self::Until(from, to) => (Bound::Included(from), Bound::Excluded(to)),
            Self::From(from) => (Bound::Included(from), Bound::Unbounded),
        }
    }
}
