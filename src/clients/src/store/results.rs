//! Results of commands whose leader is gone, published by an engine of the host that ran them (SAF-20).

use cketerm_model::{attempt::Attempt, cketerm_records::Who, entry::Stored, result::CommandResult};
use etcd_client::{Compare, CompareOp, TxnOp};

use super::{
    connect::Store,
    error::StoreError,
    operator::{AuditNote, WriteOutcome, json},
};

impl Store {
    /// Creates `cketerm/results/<attempt>`, with an audit record, if the attempt is unchanged and no result exists yet.
    /// Only the leader takes the result over. Returns whether it was written.
    pub async fn publish_result(
        &self,
        attempt: &Stored<Attempt>,
        result: &CommandResult,
        who: &Who,
    ) -> Result<bool, StoreError> {
        let key = self.keys().result(&result.label.attempt);
        let compares = vec![
            Compare::mod_revision(key.as_str(), CompareOp::Equal, 0),
            Compare::mod_revision(attempt.key.as_str(), CompareOp::Equal, attempt.mod_revision),
        ];
        let note = AuditNote { who, what: "report result", on: &result.label.attempt, reason: None };
        let ops = vec![TxnOp::put(key, json(result), None)];
        let wrote = self.write(note, &result.outcome.end.to_string(), compares, ops).await?;
        Ok(matches!(wrote, WriteOutcome::At(_)))
    }
}
