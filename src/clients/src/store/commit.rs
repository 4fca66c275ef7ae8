//! Transactions within etcd's limits, and the engine's writes: one transaction, fenced by its leader key and compared
//! with the decision's inputs (I23, STO-42).

use cketerm_model::{
    fault,
    fence::Permit,
    reason::TooLarge,
    stored::{
        limits::{MAX_OPS, MAX_REQUEST_BYTES},
        transaction::{Condition, Ranged},
    },
};
use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp, TxnResponse,
    proto::{PbTxnOpRequest, PbTxnRequest, PbTxnRequestOp},
};

use super::{
    answer::{MAX_TRIES, RETRY_DELAY, found_key},
    connect::Store,
    failure::Failure,
};

/// Messages of etcd and gRPC for a request beyond their limits.
const TOO_LARGE: [&str; 3] = ["request is too large", "too many operations", "larger than max"];

/// Transaction within etcd's limits. Its comparisons, operations and bytes are counted here, and [`Store::transact`]
/// sends nothing else (STO-47).
#[derive(Clone, Debug)]
pub(crate) struct BoundedTxn(Txn);

impl BoundedTxn {
    /// Creates the transaction; refuses one that exceeds etcd's default limits.
    pub(crate) fn new(compares: Vec<Compare>, then: Vec<TxnOp>, otherwise: Vec<TxnOp>) -> Result<Self, TooLarge> {
        let txn = Txn::new().when(compares).and_then(then).or_else(otherwise);
        let size = size(&PbTxnRequest::from(txn.clone()));
        let fits = size.operations <= MAX_OPS && size.bytes <= MAX_REQUEST_BYTES;
        fault!(TransactionUnbounded => fits = true);
        if fits { Ok(Self(txn)) } else { Err(size) }
    }

    /// Returns the transaction to send.
    pub(crate) fn txn(&self) -> Txn {
        self.0.clone()
    }

    /// Returns its size.
    pub(crate) fn size(&self) -> TooLarge {
        size(&PbTxnRequest::from(self.0.clone()))
    }
}

/// Returns the length of the longest of the three lists, which etcd counts separately, and the approximate bytes on the
/// wire.
fn size(request: &PbTxnRequest) -> TooLarge {
    const OP_OVERHEAD: usize = 24;
    let operations = request.compare.len().max(request.success.len()).max(request.failure.len());
    let compares: usize = request.compare.iter().map(|c| c.key.len() + c.range_end.len() + OP_OVERHEAD).sum();
    let bytes = |op: &PbTxnRequestOp| match &op.request {
        Some(PbTxnOpRequest::RequestPut(r)) => r.key.len() + r.value.len() + OP_OVERHEAD,
        Some(PbTxnOpRequest::RequestRange(r)) => r.key.len() + r.range_end.len() + OP_OVERHEAD,
        Some(PbTxnOpRequest::RequestDeleteRange(r)) => r.key.len() + r.range_end.len() + OP_OVERHEAD,
        Some(PbTxnOpRequest::RequestTxn(inner)) => size(inner).bytes + OP_OVERHEAD,
        None => 0,
    };
    let ops: usize = request.success.iter().chain(&request.failure).map(bytes).sum();
    TooLarge { operations, bytes: compares + ops }
}

impl Store {
    /// Runs several reads at one revision.
    pub(crate) async fn get_all(&self, reads: Vec<(String, GetOptions)>) -> Result<TxnResponse, Failure> {
        let ops: Vec<TxnOp> = reads.into_iter().map(|(key, options)| TxnOp::get(key, Some(options))).collect();
        let reads = BoundedTxn::new(Vec::new(), ops, Vec::new()).map_err(Failure::TooLarge)?;
        self.with_retries(|| {
            let (mut kv, txn) = (self.kv(), reads.txn());
            async move { kv.txn(txn).await }
        })
        .await
    }

    /// Sends a transaction; repeats it only while it has certainly not been sent.
    pub(crate) async fn transact(
        &self,
        compares: Vec<Compare>,
        ops: Vec<TxnOp>,
        otherwise: Vec<TxnOp>,
    ) -> Result<TxnResponse, Failure> {
        let txn = BoundedTxn::new(compares, ops, otherwise).map_err(Failure::TooLarge)?;
        let mut tries = 0_u32;
        loop {
            tries += 1;
            let (mut kv, sent) = (self.kv(), txn.txn());
            match self.with_timeout(async move { kv.txn(sent).await }).await {
                Err(Failure::Refused(text)) if TOO_LARGE.iter().any(|words| text.contains(words)) => {
                    return Err(Failure::TooLarge(txn.size()));
                }
                Err(Failure::NoAnswer { sent: false, .. }) if tries < MAX_TRIES => {
                    tokio::time::sleep(RETRY_DELAY * tries).await;
                }
                other => return other,
            }
        }
    }
}

/// Reason why a transaction of the engine was not, or may not have been, executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// This engine's key in `leader/` is gone or belongs to another candidate: the engine stops acting at once.
    #[error("leadership lost: the key in leader/ is gone")]
    LostLeadership,
    /// The decision's inputs have changed; the next pass decides again.
    #[error("changed meanwhile: {}", keys.join(", "))]
    Conflict {
        /// The keys that have changed.
        keys: Vec<String>,
    },
    /// No answer: the transaction may have been executed. The engine must read again before anything else.
    #[error("no answer from etcd; the write may or may not have happened: {0}")]
    Unknown(String),
    /// etcd refused it; nothing was written.
    #[error("etcd refused the write: {0}")]
    Refused(String),
    /// It exceeds etcd's limits; nothing was written, and a repetition would fail too.
    #[error("too large for etcd: {0}")]
    TooLarge(TooLarge),
}

impl Store {
    /// Executes `change` if this engine still leads, every compared key still has its revision, and no range was
    /// written to. Returns the revision.
    pub async fn commit(&self, permit: &Permit, change: impl Into<Ranged>) -> Result<i64, CommitError> {
        let ranged: Ranged = change.into();
        let compare = |condition| match condition {
            Condition::Created(key, revision) => Compare::create_revision(key, CompareOp::Equal, revision),
            Condition::Modified(key, revision) => Compare::mod_revision(key, CompareOp::Equal, revision),
            Condition::Unwritten(span, since) => {
                Compare::mod_revision(span.from.as_str(), CompareOp::Less, since + 1).with_range(span.to.clone())
            }
        };
        let compares: Vec<Compare> = ranged.conditions(permit).into_iter().map(compare).collect();
        let Ranged { change, unwritten, cleared } = ranged;
        let leased = || Some(PutOptions::new().with_lease(permit.lease()));
        let mut ops: Vec<TxnOp> = Vec::with_capacity(change.puts.len() + change.deletes.len() + cleared.len());
        ops.extend(change.puts.into_iter().map(|p| TxnOp::put(p.key, p.value, p.leased.then(leased).flatten())));
        ops.extend(change.deletes.into_iter().map(|key| TxnOp::delete(key, None)));
        ops.extend(cleared.into_iter().map(|span| {
            let range = DeleteOptions::new().with_range(span.to);
            TxnOp::delete(span.from, Some(range))
        }));
        // State of the compared keys, read in the same transaction if a comparison fails.
        let read_key = |key: &str| TxnOp::get(key, Some(GetOptions::new().with_keys_only()));
        let mut reads = vec![read_key(permit.leader_key())];
        reads.extend(change.compares.iter().map(|(key, _)| read_key(key)));
        // For a range: one of the keys written since.
        reads.extend(unwritten.iter().map(|(span, since)| {
            let newer = GetOptions::new().with_range(span.to.clone()).with_min_mod_revision(since + 1);
            TxnOp::get(span.from.as_str(), Some(newer.with_keys_only().with_limit(1)))
        }));

        let answer = self.transact(compares, ops, reads).await.map_err(|failure| match failure {
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
        let mut seen = answer.op_responses().into_iter().map(found_key);
        if seen.next().flatten().is_none_or(|leader| leader.create_revision() != permit.create_revision()) {
            return Err(CommitError::LostLeadership);
        }
        let mut keys = Vec::new();
        for ((key, expected), found) in change.compares.into_iter().zip(seen.by_ref()) {
            if expected != found.map_or(0, |kv| kv.mod_revision()) {
                keys.push(key);
            }
        }
        keys.extend(seen.flatten().map(|written| String::from_utf8_lossy(written.key()).into_owned()));
        Err(CommitError::Conflict { keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(puts: usize, size: usize) -> Result<(), TooLarge> {
        let ops = (0..puts).map(|i| TxnOp::put(format!("k{i}"), "x".repeat(size), None)).collect();
        BoundedTxn::new(Vec::new(), ops, Vec::new()).map(drop)
    }

    #[test]
    fn i49_a_transaction_above_etcds_limits_is_rejected() {
        assert_eq!(bounded(128, 1), Ok(()));
        assert_eq!(bounded(129, 1).unwrap_err().operations, 129);
        assert_eq!(bounded(1, 1 << 20), Ok(()));
        assert!(bounded(1, 2 << 20).unwrap_err().bytes > 2 << 20);
        assert!(bounded(100, 16 << 10).unwrap_err().to_string().contains("bytes"));
        let compares = |n: usize| (0..n).map(|i| Compare::mod_revision(format!("k{i}"), CompareOp::Equal, 1)).collect();
        assert_eq!(BoundedTxn::new(compares(129), Vec::new(), Vec::new()).map(drop).unwrap_err().operations, 129);
        let reads = (0..129).map(|i| TxnOp::get(format!("k{i}"), None)).collect();
        assert_eq!(BoundedTxn::new(Vec::new(), Vec::new(), reads).map(drop).unwrap_err().operations, 129);
    }
}
