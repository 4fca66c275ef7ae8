//! What operators write to the queues: compare-and-swap, each with its audit record in the same transaction
//! (spec/etcd.md, Rules; I27, I28, I29).

use std::collections::BTreeMap;

use super::{connect::Store, error::StoreError, keys::SwitchName, view::Switch};
use crate::model::{
    entry::{EntryId, QueueKind},
    ours::{Request, Verb, Who},
};

impl Store {
    /// Queues one reboot for each address, in this order, and returns their indexes. `uids` holds the Node's UID by
    /// address, where Kubernetes was asked. Writes nothing for no address. [`StoreError::Partial`] when it had to
    /// stop between two transactions.
    pub async fn add_reboots(
        &self,
        addresses: &[String],
        request: &Request,
        uids: &BTreeMap<String, String>,
    ) -> Result<Vec<u64>, StoreError> {
        let _ = (addresses, request, uids);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Cancels one reboot; `expect` is the ModRevision that the person saw, if any.
    pub async fn cancel_reboot(
        &self,
        index: u64,
        expect: Option<i64>,
        who: &Who,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let _ = (index, expect, who, reason);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Cancels every reboot that is there and returns the indexes it cancelled.
    pub async fn cancel_all_reboots(&self, who: &Who, reason: Option<&str>) -> Result<Vec<u64>, StoreError> {
        let _ = (who, reason);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Sets the backoff of one entry, or of all, to nothing; returns the indexes that had one.
    pub async fn reset_backoff(
        &self,
        queue: QueueKind,
        only: Option<u64>,
        who: &Who,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, StoreError> {
        let _ = (queue, only, who, reason);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// One of the four switches.
    pub async fn switch(&self, name: SwitchName) -> Result<Switch, StoreError> {
        let _ = name;
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Turns one of the four switches.
    pub async fn set_switch(
        &self,
        name: SwitchName,
        enabled: bool,
        who: &Who,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let _ = (name, enabled, who, reason);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Leaves an order for whoever leads; `expect` is the entry's ModRevision that the person saw, if any. Only
    /// `uncordon` may be given for an entry that is gone.
    pub async fn give_order(
        &self,
        entry: EntryId,
        verb: Verb,
        expect: Option<i64>,
        who: &Who,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let _ = (entry, verb, expect, who, reason);
        Err(StoreError::Settings("not yet".to_owned()))
    }
}
