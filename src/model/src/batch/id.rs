//! Identifier of a batch.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Digits of an id: Crockford's base 32, which has no letters that are easily confused.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Number of digits of an id.
const LENGTH: usize = 8;
/// Largest number that an id can hold.
const MAX: u64 = (1 << (5 * LENGTH)) - 1;
/// 2020-01-01T00:00:00Z in milliseconds since the epoch: the time of the id 0. The last id is of the year 2054.
const ORIGIN: i64 = 1_577_836_800_000;

/// Identifier of a batch: eight digits that sort by the time of the enqueue. It is the number of milliseconds since
/// 2020 unless another batch of the same millisecond has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(u64);

impl BatchId {
    /// Returns the id of a batch that is made at this time.
    pub fn at(time: Timestamp) -> Self {
        let since = time.as_millisecond().saturating_sub(ORIGIN).max(0);
        Self(u64::try_from(since).unwrap_or(0).min(MAX))
    }

    /// Returns the id after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1).min(MAX))
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |place: usize| {
            let digit = usize::try_from(self.0 >> (5 * place) & 31).unwrap_or(0);
            DIGITS.get(digit).copied().unwrap_or(b'0')
        };
        let text: String = (0..LENGTH).rev().map(|place| char::from(digit(place))).collect();
        f.pad(&text)
    }
}

impl FromStr for BatchId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digit = |byte: u8| DIGITS.iter().position(|digit| *digit == byte).and_then(|at| u64::try_from(at).ok());
        let number = text.bytes().try_fold(0_u64, |number, byte| Some(number.checked_mul(32)? | digit(byte)?));
        let id = number.filter(|_| text.len() == LENGTH).map(Self);
        id.ok_or_else(|| format!("{text:?} is not a batch id of {LENGTH} digits"))
    }
}

impl Serialize for BatchId {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BatchId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn ids_sort_by_time_and_are_read_as_they_are_written() {
        let first = BatchId::at(time("2026-11-24T10:00:00.001Z"));
        let ids =
            [first, first.next(), BatchId::at(time("2026-11-24T10:00:01Z")), BatchId::at(time("2053-01-01T00:00:00Z"))];
        let texts = ids.map(|id| id.to_string());
        assert!(texts.is_sorted() && texts.iter().all(|text| text.len() == LENGTH), "{texts:?}");
        assert_eq!(texts.clone().map(|text| text.parse()), ids.map(Ok));
        assert_eq!(BatchId::at(time("1999-01-01T00:00:00Z")).to_string(), "00000000");
        for bad in ["", "0000000", "000000000", "0000000i", "0000000A", "0000000 "] {
            assert!(bad.parse::<BatchId>().unwrap_err().contains("batch id"), "{bad}");
        }
    }
}
