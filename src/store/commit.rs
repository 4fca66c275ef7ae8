//! What the engine writes: one transaction, fenced by its leader key and compared with what it was decided from (I23).

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
    proto::{PbTxnOpRequest, PbTxnRequest, PbTxnRequestOp},
};

use super::{
    answer::{Failure, MOST_OPS, MOST_REQUEST},
    connect::Store,
};
use crate::{
    fence::Permit,
    model::reason::TooLarge,
    mutation::{Mutation, on},
};

/// One transaction of the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Keys and the ModRevision each must still have; 0 = the key must be absent.
    pub compares: Vec<(String, i64)>,
    /// What is written.
    pub puts: Vec<Put>,
    /// Keys that are deleted.
    pub deletes: Vec<String>,
}

/// Keys from the first up to, but without, the last: one comparison or deletion in etcd, however many they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first key.
    pub from: String,
    /// The first key behind them.
    pub to: Vec<u8>,
}

/// One transaction of the engine that also speaks of ranges of keys, so that its size does not depend on how many lie there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranged {
    /// What it compares, writes and deletes key by key.
    pub change: Change,
    /// Ranges of which no key may have been written after this revision. (A key that was deleted since is not noticed.)
    pub unwritten: Vec<(Span, i64)>,
    /// Ranges that are deleted; none of `puts` may lie in them.
    pub cleared: Vec<Span>,
}

impl From<Change> for Ranged {
    fn from(change: Change) -> Self {
        Self { change, ..Self::default() }
    }
}

/// A transaction that etcd takes: its comparisons, operations and bytes are counted here, and nothing else is sent
/// ([`Store::transact`]).
#[derive(Clone, Debug)]
pub(crate) struct Bounded(Txn);

impl Bounded {
    /// Refuses what is more than etcd takes by default.
    pub(crate) fn new(compares: Vec<Compare>, then: Vec<TxnOp>, otherwise: Vec<TxnOp>) -> Result<Self, TooLarge> {
        let txn = Txn::new().when(compares).and_then(then).or_else(otherwise);
        let size = size(&PbTxnRequest::from(txn.clone()));
        let fits = size.operations <= MOST_OPS && size.bytes <= MOST_REQUEST;
        if fits || on(Mutation::TransactionUnbounded) { Ok(Self(txn)) } else { Err(size) }
    }

    /// As it is sent.
    pub(crate) fn txn(&self) -> Txn {
        self.0.clone()
    }

    /// What it comes to.
    pub(crate) fn size(&self) -> TooLarge {
        size(&PbTxnRequest::from(self.0.clone()))
    }
}

/// The longest of the three lists, which etcd counts each for itself, and about the bytes on the wire.
fn size(request: &PbTxnRequest) -> TooLarge {
    const FRAME: usize = 24;
    let operations = request.compare.len().max(request.success.len()).max(request.failure.len());
    let compares: usize = request.compare.iter().map(|c| c.key.len() + c.range_end.len() + FRAME).sum();
    let bytes = |op: &PbTxnRequestOp| match &op.request {
        Some(PbTxnOpRequest::RequestPut(r)) => r.key.len() + r.value.len() + FRAME,
        Some(PbTxnOpRequest::RequestRange(r)) => r.key.len() + r.range_end.len() + FRAME,
        Some(PbTxnOpRequest::RequestDeleteRange(r)) => r.key.len() + r.range_end.len() + FRAME,
        Some(PbTxnOpRequest::RequestTxn(inner)) => size(inner).bytes + FRAME,
        None => 0,
    };
    let ops: usize = request.success.iter().chain(&request.failure).map(bytes).sum();
    TooLarge { operations, bytes: compares + ops }
}

/// One value to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    /// The whole key.
    pub key: String,
    /// The value.
    pub value: String,
    /// Under the leader's lease: it vanishes with the leader.
    pub leased: bool,
}

impl Put {
    /// A value as JSON that does not hang on the lease.
    pub fn json(key: String, value: &impl serde::Serialize) -> Self {
        Self { key, value: serde_json::to_string(value).unwrap_or_default(), leased: false }
    }
}

/// Why a transaction of the engine was not, or may not have been, carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Our key in `leader/` is gone or another's: stop acting at once.
    #[error("leadership is lost: our key in leader/ is gone")]
    LostLeadership,
    /// What it was decided from has changed: decide again.
    #[error("changed meanwhile: {}", keys.join(", "))]
    Conflict {
        /// The keys that have changed.
        keys: Vec<String>,
    },
    /// No answer: it may have been carried out. Read again before anything else.
    #[error("no answer from etcd, the write may have happened: {0}")]
    Unknown(String),
    /// etcd refused it; nothing was written.
    #[error("etcd refused the write: {0}")]
    Refused(String),
    /// More than etcd takes in one transaction; nothing was written, and the same will not be taken later either.
    #[error("too large for etcd: {0}")]
    TooLarge(TooLarge),
}

impl Store {
    /// Carries out `change` if we still lead, every compared key still has its revision and no range was written to.
    /// Returns the revision.
    pub async fn commit(&self, permit: &Permit, change: impl Into<Ranged>) -> Result<i64, CommitError> {
        let Ranged { change, unwritten, cleared } = change.into();
        let mut compares =
            vec![Compare::create_revision(&*permit.leader_key, CompareOp::Equal, permit.create_revision)];
        compares.extend(
            change
                .compares
                .iter()
                .filter(|(key, _)| !unchecked(key))
                .map(|(k, r)| Compare::mod_revision(k.as_str(), CompareOp::Equal, *r)),
        );
        compares.extend(unwritten.iter().filter(|(span, _)| !unchecked(&span.from)).map(|(span, since)| {
            Compare::mod_revision(span.from.as_str(), CompareOp::Less, since + 1).with_range(span.to.clone())
        }));
        if on(Mutation::UnfencedWrite) {
            compares.remove(0);
        }
        let leased = || Some(PutOptions::new().with_lease(permit.lease));
        let mut ops: Vec<TxnOp> = Vec::with_capacity(change.puts.len() + change.deletes.len() + cleared.len());
        ops.extend(change.puts.into_iter().map(|p| TxnOp::put(p.key, p.value, p.leased.then(leased).flatten())));
        ops.extend(change.deletes.into_iter().map(|key| TxnOp::delete(key, None)));
        ops.extend(cleared.into_iter().map(|span| {
            let range = DeleteOptions::new().with_range(span.to);
            TxnOp::delete(span.from, Some(range))
        }));
        // what a failed comparison saw, read in the same transaction
        let look = |key: &str| TxnOp::get(key, Some(GetOptions::new().with_keys_only()));
        let mut looks = vec![look(&permit.leader_key)];
        looks.extend(change.compares.iter().map(|(key, _)| look(key)));
        // of a range, one of the keys that were written since
        looks.extend(unwritten.iter().map(|(span, since)| {
            let newer = GetOptions::new().with_range(span.to.clone()).with_min_mod_revision(since + 1);
            TxnOp::get(span.from.as_str(), Some(newer.with_keys_only().with_limit(1)))
        }));

        let answer = self.transact(compares, ops, looks).await.map_err(|failure| match failure {
            Failure::NoAnswer { cause, sent: true } => CommitError::Unknown(cause),
            Failure::NoAnswer { cause, .. } | Failure::Denied(cause) | Failure::Refused(cause) => {
                CommitError::Refused(cause)
            }
            Failure::TooLarge(size) => CommitError::TooLarge(size),
            Failure::NoLease => CommitError::LostLeadership,
            Failure::Compacted => CommitError::Refused("compacted".to_owned()),
        })?;
        if answer.succeeded() {
            return Ok(answer.header().map_or(0, etcd_client::ResponseHeader::revision));
        }
        let mut seen = answer.op_responses().into_iter().map(|op| match op {
            TxnOpResponse::Get(got) => got
                .kvs()
                .first()
                .map(|kv| (String::from_utf8_lossy(kv.key()).into_owned(), kv.create_revision(), kv.mod_revision())),
            _ => None,
        });
        if seen.next().flatten().is_none_or(|(_, created, _)| created != permit.create_revision) {
            return Err(CommitError::LostLeadership);
        }
        let mut keys = Vec::new();
        for ((key, wanted), found) in change.compares.into_iter().zip(seen.by_ref()) {
            if wanted != found.map_or(0, |(.., revision)| revision) {
                keys.push(key);
            }
        }
        keys.extend(seen.flatten().map(|(key, ..)| key));
        Err(CommitError::Conflict { keys })
    }
}

/// Comparisons that are left out on purpose: see [`crate::mutation`].
fn unchecked(key: &str) -> bool {
    on(Mutation::CompareNothing) || (on(Mutation::CancelOverwritten) && key.contains("/reboots/data/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(puts: usize, size: usize) -> Result<(), TooLarge> {
        let ops = (0..puts).map(|i| TxnOp::put(format!("k{i}"), "x".repeat(size), None)).collect();
        Bounded::new(Vec::new(), ops, Vec::new()).map(drop)
    }

    #[test]
    fn i49_no_transaction_is_made_that_is_larger_than_etcd_takes() {
        assert_eq!(bounded(128, 1), Ok(()));
        assert_eq!(bounded(129, 1).unwrap_err().operations, 129);
        assert_eq!(bounded(1, 1 << 20), Ok(()));
        assert!(bounded(1, 2 << 20).unwrap_err().bytes > 2 << 20);
        assert!(bounded(100, 16 << 10).unwrap_err().to_string().contains("bytes"));
        let compares = |n: usize| (0..n).map(|i| Compare::mod_revision(format!("k{i}"), CompareOp::Equal, 1)).collect();
        assert_eq!(Bounded::new(compares(129), Vec::new(), Vec::new()).map(drop).unwrap_err().operations, 129);
        let looks = (0..129).map(|i| TxnOp::get(format!("k{i}"), None)).collect();
        assert_eq!(Bounded::new(Vec::new(), Vec::new(), looks).map(drop).unwrap_err().operations, 129);
    }
}
