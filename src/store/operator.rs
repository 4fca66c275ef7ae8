//! How operators' writes are made: one transaction with its audit record, carried out once however often it must be
//! sent (I28, I38).

use std::{
    fmt::Write as _,
    hash::{BuildHasher, Hasher, RandomState},
    sync::OnceLock,
    sync::atomic::{AtomicU64, Ordering},
};

use etcd_client::{Compare, CompareOp, GetOptions, TxnOp, TxnOpResponse};
use jiff::Timestamp;

use super::{
    answer::{Failure, MOST_BYTES},
    commit::Put,
    connect::Store,
    error::StoreError,
};
use crate::model::cketerm_records::{Audit, Who};

/// What an operator's write says about itself.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// Who.
    pub who: &'a Who,
    /// What, as the audit record has it: `cluster set`.
    pub what: &'a str,
    /// On what.
    pub on: &'a str,
    /// Why.
    pub reason: Option<&'a str>,
}

/// What came of a compared write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// Done, at this revision.
    At(i64),
    /// Something compared has changed; nothing was written.
    Conflict,
}

/// How often a write is sent again when no answer came. All sendings are one write: see [`Store::write`].
const SENDINGS: u32 = 3;

impl Store {
    /// The id of a record below `cketerm/audit/` or `cketerm/history/`: ids sort by time, and no two are equal.
    pub fn record_id(&self, at: Timestamp) -> String {
        format!("{:020}-{:016x}", at.as_nanosecond().max(0), unique())
    }

    /// The key of a new audit record. Its author is told by its form ([`super::keys::Keys::audit_of_person`]): what engines did
    /// is never kept as what people did.
    fn audit_key(&self, audit: &Audit) -> String {
        let id = self.record_id(audit.at);
        self.keys().audit(&if audit.by_engine() { format!("{id}-engine") } else { id })
    }

    /// An audit record as the engine writes it, among its other puts.
    pub fn audit_put(&self, audit: &Audit) -> Put {
        Put { key: self.audit_key(audit), value: json(audit), leased: false }
    }

    /// Writes `ops` and an audit record if all `compares` hold. Sent again without an answer, it is still carried out
    /// at most once: the record's key is new and compared as absent, and a record that is there says that an earlier
    /// sending was carried out.
    pub(crate) async fn write(
        &self,
        note: Note<'_>,
        result: &str,
        compares: Vec<Compare>,
        ops: Vec<TxnOp>,
    ) -> Result<Wrote, StoreError> {
        Box::pin(self.write_and_see(note, result, compares, ops)).await.map(|(wrote, _)| wrote)
    }

    /// The same, with etcd's answers to `ops`; none where an earlier sending was carried out, whose answer was lost.
    pub(crate) async fn write_and_see(
        &self,
        note: Note<'_>,
        result: &str,
        compares: Vec<Compare>,
        ops: Vec<TxnOp>,
    ) -> Result<(Wrote, Vec<TxnOpResponse>), StoreError> {
        let at = self.clock().wall();
        let audit = Audit {
            at,
            who: note.who.clone(),
            what: note.what.to_owned(),
            on: note.on.to_owned(),
            reason: note.reason.map(str::to_owned),
            result: result.to_owned(),
            repeats: None,
        };
        let key = self.audit_key(&audit);
        let mut compares = compares;
        compares.push(Compare::create_revision(key.as_str(), CompareOp::Equal, 0));
        let mut ops = ops;
        ops.push(TxnOp::put(key.as_str(), json(&audit), None));
        let look = vec![TxnOp::get(key.as_str(), Some(GetOptions::new().with_keys_only()))];

        let what = || format!("{} {}", note.what, note.on);
        let mut sendings = 0;
        loop {
            sendings += 1;
            match self.transact(compares.clone(), ops.clone(), look.clone()).await {
                Ok(answer) if answer.succeeded() => {
                    let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
                    return Ok((Wrote::At(revision), answer.op_responses()));
                }
                Ok(answer) => {
                    let earlier = answer.op_responses().into_iter().find_map(|op| match op {
                        TxnOpResponse::Get(got) => got.kvs().first().map(etcd_client::KeyValue::mod_revision),
                        _ => None,
                    });
                    return Ok((earlier.map_or(Wrote::Conflict, Wrote::At), Vec::new()));
                }
                Err(Failure::NoAnswer { cause, sent: true }) => {
                    if sendings >= SENDINGS {
                        let cause = self.unreachable(cause).await.to_string();
                        return Err(StoreError::Unknown { what: what(), cause });
                    }
                }
                // a sending before this one may have been carried out
                Err(failure) if sendings > 1 => {
                    let cause = self.sentence(&what(), failure).await.to_string();
                    return Err(StoreError::Unknown { what: what(), cause });
                }
                Err(failure) => return Err(self.sentence(&what(), failure).await),
            }
        }
    }
}

/// A value that may not pass etcd's limit of a request.
pub(crate) fn fits(key: &str, value: &str) -> Result<(), StoreError> {
    let bytes = key.len() + value.len();
    let large = || StoreError::TooLarge { key: key.to_owned(), operations: 1, bytes };
    if bytes > MOST_BYTES { Err(large()) } else { Ok(()) }
}

/// JSON of our own types, which always can be written.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Indexes as people write them: `3, 5–9, 12`.
pub(crate) fn ranges(indexes: &[u64]) -> String {
    let mut text = String::new();
    let mut rest = indexes.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while let Some(next) = rest.next_if(|n| *n == last + 1) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = if first == last { write!(text, "{comma}{first}") } else { write!(text, "{comma}{first}–{last}") };
    }
    text
}

/// A number that no other process and no other call of this one makes: a random start, then counted.
fn unique() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(|| RandomState::new().build_hasher().finish());
    start.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_that_follow_each_other_are_written_as_ranges() {
        assert_eq!(ranges(&[3, 5, 6, 7, 12]), "3, 5–7, 12");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn no_two_record_ids_are_equal() {
        assert_ne!(unique(), unique());
    }
}
