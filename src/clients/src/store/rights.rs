//! Check of the etcd user's write permission without writing. etcd checks the permissions of both branches of a
//! transaction before it evaluates the comparison, and this comparison never holds.

use etcd_client::{Compare, CompareOp, TxnOp};

use super::{connect::Store, error::StoreError, failure::Failure};

impl Store {
    /// Reports whether all of these keys may be written. The inner `Err` holds etcd's message if they may not; the
    /// outer one means no answer. Nothing is written, and no revision is used up.
    pub async fn may_write(&self, keys: &[String]) -> Result<Result<(), String>, StoreError> {
        let Some(first) = keys.first() else { return Ok(Ok(())) };
        // No key was ever created at a negative revision.
        let never_true = Compare::create_revision(first.as_str(), CompareOp::Equal, -1);
        let puts = keys.iter().map(|key| TxnOp::put(key.as_str(), "", None)).collect();
        match self.transact(vec![never_true], puts, Vec::new()).await {
            Ok(_) => Ok(Ok(())),
            Err(Failure::Denied(cause)) if cause.contains("permission") => Ok(Err(cause)),
            Err(failure) => Err(self.store_error("check write permissions", failure).await),
        }
    }
}
