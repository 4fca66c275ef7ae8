//! Reset of the breaker by an operator: one record, with its audit record in the same transaction (STO-74).

use cketerm_model::{entry::EntryId, fence::Person, outcomes::BreakerReset};
use etcd_client::{Compare, CompareOp, TxnOp};

use super::{
    connect::Store,
    error::StoreError,
    operator::{AuditNote, WriteOutcome, json},
    queue::MAX_CONFLICTS,
};

impl Store {
    /// Records a reset of the breaker: what ended before it does not count, nor do the `forgiven` entries.
    pub async fn reset_breaker(&self, forgiven: &[EntryId], person: &Person, reason: &str) -> Result<(), StoreError> {
        let (key, at) = (self.keys().breaker_reset(), self.clock().wall());
        let reset = BreakerReset {
            who: person.who().clone(),
            at,
            reason: Some(reason.to_owned()),
            forgiven: forgiven.to_vec(),
        };
        for _ in 0..MAX_CONFLICTS {
            let known = self.raw(&key).await?.map_or(0, |raw| raw.mod_revision);
            let compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, known)];
            let ops = vec![TxnOp::put(key.as_str(), json(&reset), None)];
            let note = AuditNote { who: person.who(), what: "breaker reset", on: "reboot queue", reason: Some(reason) };
            if let WriteOutcome::At(_) = self.write(note, "reset", compares, ops).await? {
                return Ok(());
            }
        }
        Err(StoreError::Conflict { what: "the breaker".to_owned() })
    }
}
