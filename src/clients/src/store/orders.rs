//! Orders that operators leave for the leader: `cketerm/orders/<queue>/<index>` (REB-48, STO-31).

use cketerm_model::{
    cketerm_records::{Order, Verb},
    entry::EntryId,
    fence::Person,
    stored::leadership::LeaderGuard,
};
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, TxnOp};

use super::{
    answer::found_key,
    connect::Store,
    error::StoreError,
    leadership::compare,
    operator::{AuditNote, WriteOutcome, json},
    queue::MAX_CONFLICTS,
};

impl Store {
    /// Stores an order for the leader; `expect` is the entry's ModRevision that the operator saw, if any. It replaces
    /// an order that waits for this entry. Only `uncordon` is allowed for an entry that is gone; `unhold` removes a
    /// `hold`. With `under`, the order is written only while this leader leads.
    pub async fn put_order(
        &self,
        entry: EntryId,
        verb: Verb,
        expect: Option<i64>,
        person: &Person,
        reason: Option<&str>,
        under: Option<&LeaderGuard>,
    ) -> Result<(), StoreError> {
        let who = person.who();
        let (key, order_key, on) = (self.keys().entry(entry), self.keys().order(entry), entry.to_string());
        let what = format!("{} {verb}", entry.queue);
        for _ in 0..MAX_CONFLICTS {
            let (found, waiting) = self.entry_with_order(entry).await?;
            let entry_revision = match found {
                Some(kv) => kv.mod_revision(),
                None if verb == Verb::Uncordon => 0,
                None => return Err(StoreError::NotFound { what: on }),
            };
            if expect.is_some_and(|seen| seen != entry_revision) {
                return Err(StoreError::Conflict { what: on });
            }
            let mut compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, entry_revision)];
            let op = if verb == Verb::Unhold {
                let is_hold =
                    |kv: &KeyValue| serde_json::from_slice(kv.value()).is_ok_and(|o: Order| o.verb == Verb::Hold);
                let held = waiting.filter(is_hold);
                let held = held.ok_or_else(|| StoreError::NotAllowed(format!("{on} is not on hold")))?;
                compares.push(Compare::mod_revision(order_key.as_str(), CompareOp::Equal, held.mod_revision()));
                TxnOp::delete(order_key.as_str(), None)
            } else {
                let at = self.clock().wall();
                let order = Order { verb, who: who.clone(), at, reason: reason.map(str::to_owned), entry_revision };
                TxnOp::put(order_key.as_str(), json(&order), None)
            };
            compares.extend(under.map(|under| compare(under, self.keys())));
            let note = AuditNote { who, what: &what, on: &on, reason };
            if let WriteOutcome::At(_) = self.write(note, "ordered", compares, vec![op]).await? {
                return Ok(());
            }
            self.check_same_leader(under).await?;
        }
        Err(StoreError::Conflict { what: on })
    }

    /// Reads an entry and the order that waits for it at one revision: both may go in between two reads, and an answer
    /// made of two states was never true.
    async fn entry_with_order(&self, entry: EntryId) -> Result<(Option<KeyValue>, Option<KeyValue>), StoreError> {
        let keys = [self.keys().entry(entry), self.keys().order(entry)];
        let answer = match self.get_all(keys.map(|key| (key, GetOptions::new())).into()).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.store_error(&format!("read {entry}"), failure).await),
        };
        let mut found = answer.op_responses().into_iter().map(found_key);
        Ok((found.next().flatten(), found.next().flatten()))
    }
}
