//! Ranges of keys as requests name them: one key, `[key, end)`, or everything from a key on.

use std::ops::Bound;

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    /// One key.
    One(Vec<u8>),
    /// From the first key up to, and without, the second.
    Until(Vec<u8>, Vec<u8>),
    /// Every key from this one on (`range_end` is `"\0"`).
    From(Vec<u8>),
}

impl Span {
    /// From the two fields of a request.
    pub fn new(key: &[u8], end: &[u8]) -> Self {
        match end {
            [] => Self::One(key.to_vec()),
            [0] => Self::From(key.to_vec()),
            _ => Self::Until(key.to_vec(), end.to_vec()),
        }
    }

    /// Holds no key, because its end comes before its beginning.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Until(from, to) if from >= to)
    }

    /// Whether the key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Until(from, to) => from.as_slice() <= key && key < to.as_slice(),
            Self::From(from) => from.as_slice() <= key,
        }
    }

    /// The first key it may hold.
    pub fn start(&self) -> &[u8] {
        match self {
            Self::One(key) | Self::Until(key, _) | Self::From(key) => key,
        }
    }

    /// The first key behind it; nothing is behind an open one.
    pub fn stop(&self) -> Option<Vec<u8>> {
        match self {
            Self::One(key) => Some([key.as_slice(), &[0]].concat()),
            Self::Until(_, to) => Some(to.clone()),
            Self::From(_) => None,
        }
    }

    /// For a `BTreeMap`, which must not be asked for an empty range.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        match self {
            Self::One(key) => (Bound::Included(key), Bound::Included(key)),
            Self::Until(from, to) => (Bound::Included(from), Bound::Excluded(to)),
            Self::From(from) => (Bound::Included(from), Bound::Unbounded),
        }
    }
}
