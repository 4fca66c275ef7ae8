//! Writes of operators: one transaction with its audit record, executed once however often it must be sent (I28, I38;
//! STO-45).

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::OnceLock,
    sync::atomic::{AtomicU64, Ordering},
};

use cketerm_model::{
    cketerm_records::{Audit, Who},
    fence::Person,
    stored::transaction::Put,
};
use etcd_client::{Compare, CompareOp, GetOptions, TxnOp, TxnOpResponse};
use jiff::Timestamp;

use super::{answer::found_key, connect::Store, error::StoreError, failure::Failure};

/// Description of a write, for its audit record. Outside the store only an operator's request makes one.
#[derive(Clone, Copy, Debug)]
pub struct AuditNote<'a> {
    /// Author.
    pub(super) who: &'a Who,
    /// Action, as in the audit record: `cluster set`.
    pub(super) what: &'a str,
    /// Object.
    pub(super) on: &'a str,
    /// Reason.
    pub(super) reason: Option<&'a str>,
}

impl<'a> AuditNote<'a> {
    /// Describes what an operator does to an object.
    pub fn new(person: &'a Person, what: &'a str, on: &'a str, reason: Option<&'a str>) -> Self {
        Self { who: person.who(), what, on, reason }
    }
}

/// Result of an operator's action, for its audit record.
#[derive(Clone, Copy, Debug)]
pub enum AuditResult<'a> {
    /// It was done, begun, or done in part.
    Done(&'a str),
    /// It failed or was refused, and why.
    Failed(&'a str),
}

impl AuditResult<'_> {
    /// Returns the text.
    pub fn text(&self) -> &str {
        match self {
            Self::Done(text) | Self::Failed(text) => text,
        }
    }

    fn failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

impl<'a> From<&'a str> for AuditResult<'a> {
    fn from(text: &'a str) -> Self {
        Self::Done(text)
    }
}

impl<'a> From<&'a String> for AuditResult<'a> {
    fn from(text: &'a String) -> Self {
        Self::Done(text)
    }
}

/// Result of a compared write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Done, at this revision.
    At(i64),
    /// A compared key has changed; nothing was written.
    Conflict,
}

/// Number of times that a write is sent if no answer comes. All of them are one write: see [`Store::write`].
const MAX_SENDS: u32 = 3;

impl Store {
    /// Returns the id of a record below `cketerm/audit/` or `cketerm/history/`. Ids sort by time, and no two are equal.
    pub fn record_id(&self, at: Timestamp) -> String {
        format!("{:020}-{:016x}", at.as_nanosecond().max(0), unique_id())
    }

    /// Returns the key of a new audit record. Its form shows the kind of author
    /// ([`cketerm_model::stored::keys::Keys::is_person_audit`]), so that engines' records are never kept as operators' records.
    fn audit_key(&self, audit: &Audit) -> String {
        let id = self.record_id(audit.at);
        self.keys().audit(&if audit.by_engine() { format!("{id}-engine") } else { id })
    }

    /// Returns an audit record as a put of the engine's transaction.
    pub fn audit_put(&self, audit: &Audit) -> Put {
        Put { key: self.audit_key(audit), value: json(audit), leased: false }
    }

    /// Writes `ops` and an audit record if all `compares` hold. A write that is sent again without an answer is
    /// executed at most once: the record's key is new and compared as absent. If the record exists, an earlier sending
    /// was executed.
    pub async fn write(
        &self,
        note: AuditNote<'_>,
        result: impl Into<AuditResult<'_>>,
        compares: Vec<Compare>,
        ops: Vec<TxnOp>,
    ) -> Result<WriteOutcome, StoreError> {
        Box::pin(self.write_with_responses(note, result.into(), compares, ops)).await.map(|(wrote, _)| wrote)
    }

    /// Writes the same and returns etcd's answers to `ops`; none if an earlier sending was executed, whose answer was
    /// lost.
    pub(crate) async fn write_with_responses(
        &self,
        note: AuditNote<'_>,
        result: AuditResult<'_>,
        compares: Vec<Compare>,
        ops: Vec<TxnOp>,
    ) -> Result<(WriteOutcome, Vec<TxnOpResponse>), StoreError> {
        let at = self.clock().wall();
        let audit = Audit {
            at,
            who: note.who.clone(),
            what: note.what.to_owned(),
            on: note.on.to_owned(),
            reason: note.reason.map(str::to_owned),
            result: result.text().to_owned(),
            failed: result.failed(),
            entry: None,
            repeats: None,
        };
        let key = self.audit_key(&audit);
        let mut compares = compares;
        compares.push(Compare::create_revision(key.as_str(), CompareOp::Equal, 0));
        let mut ops = ops;
        ops.push(TxnOp::put(key.as_str(), json(&audit), None));
        let reads = vec![TxnOp::get(key.as_str(), Some(GetOptions::new().with_keys_only()))];

        let what = || format!("{} {}", note.what, note.on);
        let mut sends = 0;
        loop {
            sends += 1;
            match self.transact(compares.clone(), ops.clone(), reads.clone()).await {
                Ok(answer) if answer.succeeded() => {
                    let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
                    return Ok((WriteOutcome::At(revision), answer.op_responses()));
                }
                Ok(answer) => {
                    let earlier = answer.op_responses().into_iter().find_map(found_key);
                    let outcome =
                        earlier.map_or(WriteOutcome::Conflict, |audit| WriteOutcome::At(audit.mod_revision()));
                    return Ok((outcome, Vec::new()));
                }
                Err(Failure::NoAnswer { cause, sent: true }) => {
                    if sends >= MAX_SENDS {
                        let cause = self.unreachable(cause).await.to_string();
                        return Err(StoreError::Unknown { what: what(), cause });
                    }
                }
                // An earlier sending may have been executed.
                Err(failure) if sends > 1 => {
                    let cause = self.store_error(&what(), failure).await.to_string();
                    return Err(StoreError::Unknown { what: what(), cause });
                }
                Err(failure) => return Err(self.store_error(&what(), failure).await),
            }
        }
    }
}

/// Returns the JSON of cketerm's own types, which can always be serialized.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns a number that no other process and no other call of this one makes: a random start, then counted.
fn unique_id() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(|| RandomState::new().build_hasher().finish());
    start.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_ids_are_unique() {
        assert_ne!(unique_id(), unique_id());
    }
}
