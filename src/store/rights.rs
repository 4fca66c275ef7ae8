//! Whether etcd's user may write, without writing: etcd checks the rights of both branches of a transaction before it
//! evaluates the comparison, and ours can never hold.

use etcd_client::{Compare, CompareOp, TxnOp};

use super::{answer::Failure, connect::Store, error::StoreError};

impl Store {
    /// Whether all of these keys may be written; `Err` = etcd's own words where they may not, or no answer. Nothing is
    /// written, and no revision is spent.
    pub async fn may_write(&self, keys: &[String]) -> Result<Result<(), String>, StoreError> {
        let Some(first) = keys.first() else { return Ok(Ok(())) };
        // no key was ever created at a negative revision
        let never = Compare::create_revision(first.as_str(), CompareOp::Equal, -1);
        let puts = keys.iter().map(|key| TxnOp::put(key.as_str(), "", None)).collect();
        match self.transact(vec![never], puts, Vec::new()).await {
            Ok(_) => Ok(Ok(())),
            Err(Failure::Denied(cause)) if cause.contains("permission") => Ok(Err(cause)),
            Err(failure) => Err(self.sentence("ask what may be written", failure).await),
        }
    }
}
