//! What the engine writes: one transaction, fenced by its leader key and compared with what it was decided from (I23).

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, TxnOp, TxnOpResponse};

use super::{
    answer::{Failure, MOST_BYTES, MOST_OPS},
    connect::Store,
};
use crate::{
    fence::Permit,
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
}

impl Store {
    /// Carries out `change` if we still lead and every compared key still has its revision. Returns the revision.
    pub async fn commit(&self, permit: &Permit, change: Change) -> Result<i64, CommitError> {
        within_limits(&change)?;
        let mut compares =
            vec![Compare::create_revision(&*permit.leader_key, CompareOp::Equal, permit.create_revision)];
        compares.extend(
            change
                .compares
                .iter()
                .filter(|(key, _)| !unchecked(key))
                .map(|(k, r)| Compare::mod_revision(k.as_str(), CompareOp::Equal, *r)),
        );
        if on(Mutation::UnfencedWrite) {
            compares.remove(0);
        }
        let leased = || Some(PutOptions::new().with_lease(permit.lease));
        let mut ops: Vec<TxnOp> = Vec::with_capacity(change.puts.len() + change.deletes.len());
        ops.extend(change.puts.into_iter().map(|p| TxnOp::put(p.key, p.value, p.leased.then(leased).flatten())));
        ops.extend(change.deletes.into_iter().map(|key| TxnOp::delete(key, None)));
        // what a failed comparison saw, read in the same transaction
        let look = |key: &str| TxnOp::get(key, Some(GetOptions::new().with_keys_only()));
        let mut looks = vec![look(&permit.leader_key)];
        looks.extend(change.compares.iter().map(|(key, _)| look(key)));

        let answer = self.transact(compares, ops, looks).await.map_err(|failure| match failure {
            Failure::NoAnswer { cause, sent: true } => CommitError::Unknown(cause),
            Failure::NoAnswer { cause, .. } | Failure::Denied(cause) | Failure::Refused(cause) => {
                CommitError::Refused(cause)
            }
            Failure::NoLease => CommitError::LostLeadership,
            Failure::Compacted => CommitError::Refused("compacted".to_owned()),
        })?;
        if answer.succeeded() {
            return Ok(answer.header().map_or(0, etcd_client::ResponseHeader::revision));
        }
        let mut seen = answer.op_responses().into_iter().map(|op| match op {
            TxnOpResponse::Get(got) => got.kvs().first().map_or((0, 0), |kv| (kv.create_revision(), kv.mod_revision())),
            _ => (0, 0),
        });
        if seen.next().is_none_or(|(created, _)| created != permit.create_revision) {
            return Err(CommitError::LostLeadership);
        }
        let changed = change.compares.into_iter().zip(seen).filter(|((_, wanted), (_, found))| wanted != found);
        Err(CommitError::Conflict { keys: changed.map(|((key, _), _)| key).collect() })
    }
}

/// Comparisons that are left out on purpose: see [`crate::mutation`].
fn unchecked(key: &str) -> bool {
    on(Mutation::CompareNothing) || (on(Mutation::CancelOverwritten) && key.contains("/reboots/data/"))
}

/// etcd's limits, said before it is asked: operations on either side of a transaction, and bytes.
fn within_limits(change: &Change) -> Result<(), CommitError> {
    let ops = (change.puts.len() + change.deletes.len()).max(change.compares.len() + 1);
    let bytes: usize = change.puts.iter().map(|p| p.key.len() + p.value.len() + 16).sum();
    if ops > MOST_OPS {
        return Err(CommitError::Refused(format!("{ops} operations in one transaction, etcd takes {MOST_OPS}")));
    }
    if bytes > MOST_BYTES {
        return Err(CommitError::Refused(format!("{bytes} bytes in one transaction, etcd takes {MOST_BYTES}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_beyond_the_limits_of_etcd_is_refused_with_its_numbers() {
        let put = |size: usize| Put { key: "k".to_owned(), value: "x".repeat(size), leased: false };
        let change = Change { puts: vec![put(1); 129], ..Change::default() };
        assert!(within_limits(&change).unwrap_err().to_string().contains("129"));
        let change = Change { puts: vec![put(2 << 20)], ..Change::default() };
        assert!(within_limits(&change).unwrap_err().to_string().contains("bytes"));
        assert_eq!(within_limits(&Change { puts: vec![put(1 << 20); 1], ..Change::default() }), Ok(()));
    }
}
