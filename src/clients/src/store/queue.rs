//! Operators' writes to the queues: compare-and-swap, each with its audit record in the same transaction (STO-41,
//! STO-44, STO-45; I27, I28, I29).

use cketerm_model::{
    cketerm_records::Who,
    entry::{EntryId, QueueKind, format_indexes},
    fault,
    fence::Person,
    maintenance::MaintenanceEntry,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, StepStatus},
    stored::{
        keys::{KeyKind, SwitchName},
        leadership::LeaderGuard,
        limits::MAX_OPS,
        view::Switch,
    },
};
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, TxnOp, TxnOpResponse};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    connect::Store,
    error::StoreError,
    leadership::compare,
    operator::{AuditNote, WriteOutcome, json},
};

/// Number of retries after a lost race before the operator must look.
pub(crate) const MAX_CONFLICTS: u32 = 50;

impl Store {
    /// Changes one entry, compared, if `change` returns a new value, with a further operation in the transaction.
    /// `expect` is the ModRevision that the operator saw. `(what, who, why)` go into the audit, with the text that
    /// `describe` makes of the entry. With `under`, it is written only while this leader leads.
    pub(super) async fn change_entry_with<E: DeserializeOwned + Serialize>(
        &self,
        id: EntryId,
        expect: Option<i64>,
        (what, who, reason): (&str, &Who, Option<&str>),
        under: Option<LeaderGuard>,
        change: impl Fn(&KeyValue, &E) -> Option<EntryChange<E>>,
        describe: impl Fn(&E) -> String,
    ) -> Result<(), StoreError> {
        for _ in 0..MAX_CONFLICTS {
            let (entry, kv) = self.entry::<E>(id).await?;
            if expect.is_some_and(|seen| seen != kv.mod_revision()) {
                return Err(StoreError::Conflict { what: id.to_string() });
            }
            let Some(changed) = change(&kv, &entry) else { return Ok(()) };
            let note = AuditNote { who, what, on: &id.to_string(), reason };
            let key = self.keys().entry(id);
            let mut compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, kv.mod_revision())];
            compares.extend(under.as_ref().map(|under| compare(under, self.keys())));
            let ops = changed.ops(key).collect();
            if let WriteOutcome::At(_) = self.write(note, &describe(&entry), compares, ops).await? {
                return Ok(());
            }
            self.check_same_leader(under.as_ref()).await?;
        }
        Err(StoreError::Conflict { what: id.to_string() })
    }

    /// Clears the backoff of one entry, or of all; returns the indexes that had one.
    pub async fn reset_backoff(
        &self,
        queue: QueueKind,
        only: Option<u64>,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<Vec<u64>, StoreError> {
        let who = person.who();
        if let Some(index) = only {
            self.stored_entry(EntryId { queue, index }).await?;
        }
        match queue {
            QueueKind::Reboot => {
                self.change_entries(queue, only, ("reboot reset-backoff", who, reason), without_backoff).await
            }
            QueueKind::Repair => {
                self.change_entries(queue, only, ("repair reset-backoff", who, reason), repair_without_backoff).await
            }
            QueueKind::Maintenance => {
                let what = ("maintenance reset-backoff", who, reason);
                self.change_entries(queue, only, what, maintenance_without_backoff).await
            }
        }
    }

    /// Changes the entries for which `change` returns a new value, in few transactions, each compared. Entries that
    /// changed meanwhile are read and evaluated again. `(what, who, why)` go into the audit.
    pub(super) async fn change_entries<E: DeserializeOwned + Serialize>(
        &self,
        queue: QueueKind,
        only: Option<u64>,
        note: (&str, &Who, Option<&str>),
        change: impl Fn(&E) -> Option<E>,
    ) -> Result<Vec<u64>, StoreError> {
        let mut changed: Vec<u64> = Vec::new();
        let change = |_: &KeyValue, entry: &E| change(entry).map(EntryChange::from);
        self.change_entries_with(queue, only, note, None, &mut changed, change).await?;
        changed.sort_unstable();
        changed.dedup();
        Ok(changed)
    }

    /// Changes entries in the same way, each with a further operation in its transaction, and adds their indexes to
    /// `changed`. With `under`, they are written only while this leader leads.
    pub(super) async fn change_entries_with<E: DeserializeOwned + Serialize>(
        &self,
        queue: QueueKind,
        only: Option<u64>,
        (what, who, reason): (&str, &Who, Option<&str>),
        under: Option<LeaderGuard>,
        changed: &mut Vec<u64>,
        change: impl Fn(&KeyValue, &E) -> Option<EntryChange<E>>,
    ) -> Result<(), StoreError> {
        // the audit record is one operation and one comparison, the leader is another comparison
        let (mut conflicts, mut batch) = (0, MAX_OPS - 1 - usize::from(under.is_some()));
        // entries of the last round that are not written
        let mut rest = 0;
        loop {
            let all = self.entries_of(queue, only).await.map_err(|cause| stopped(changed.len(), rest, cause))?;
            let matching: Vec<(u64, i64, EntryChange<E>)> = all
                .iter()
                .filter_map(|kv| match self.keys().parse(kv.key()) {
                    Some(KeyKind::Entry(_, Ok(index))) => Some((index, kv)),
                    _ => None,
                })
                .filter_map(|(index, kv)| {
                    let entry: E = serde_json::from_slice(kv.value()).ok()?;
                    Some((index, kv.mod_revision(), change(kv, &entry)?))
                })
                .collect();
            let mut conflicted = false;
            rest = matching.len();
            if matching.iter().any(|(.., change)| change.beside.is_some()) {
                batch = batch.min((MAX_OPS - 1) / 2);
            }
            for part in matching.chunks(batch) {
                let indexes: Vec<u64> = part.iter().map(|(index, ..)| *index).collect();
                let key = |index: u64| self.keys().entry(EntryId { queue, index });
                let revisions = part.iter().map(|(i, r, _)| Compare::mod_revision(key(*i), CompareOp::Equal, *r));
                let compares = revisions.chain(under.as_ref().map(|under| compare(under, self.keys()))).collect();
                let ops = part.iter().flat_map(|(i, _, change)| change.ops(key(*i))).collect();
                let on = format!("{} {}", queue.folder(), format_indexes(&indexes));
                match self.write(AuditNote { who, what, on: &on, reason }, "done", compares, ops).await {
                    Ok(WriteOutcome::At(_)) => {
                        changed.extend(indexes);
                        rest -= part.len();
                    }
                    Ok(WriteOutcome::Conflict) => conflicted = true,
                    // Huge entries: the next transaction contains fewer of them.
                    Err(StoreError::TooLarge { .. }) if part.len() > 1 => conflicted = true,
                    Err(cause) => return Err(stopped(changed.len(), rest, cause)),
                }
            }
            if !conflicted {
                return Ok(());
            }
            match self.check_same_leader(under.as_ref()).await {
                Ok(()) => {}
                // the caller goes on under the new leader
                Err(StoreError::LeaderChanged) => return Err(StoreError::LeaderChanged),
                Err(cause) => return Err(stopped(changed.len(), rest, cause)),
            }
            conflicts += 1;
            // One entry that keeps changing must not hold up the others.
            batch = (batch / 2).max(1);
            if conflicts > MAX_CONFLICTS {
                let conflict = StoreError::Conflict { what: format!("the {queue} queue") };
                return Err(stopped(changed.len(), rest, conflict));
            }
        }
    }

    /// Reads all entries of a queue, or one, in stored form.
    pub(super) async fn entries_of(&self, queue: QueueKind, only: Option<u64>) -> Result<Vec<KeyValue>, StoreError> {
        if let Some(index) = only {
            return match self.stored_entry(EntryId { queue, index }).await {
                Ok(kv) => Ok(vec![kv]),
                Err(StoreError::NotFound { .. }) => Ok(Vec::new()),
                Err(other) => Err(other),
            };
        }
        let from = self.keys().entries_prefix(queue).into_bytes();
        match self.read_range(&from, &cketerm_model::stored::keys::prefix_end(&from), 0).await {
            Ok((_, kvs)) => Ok(kvs),
            Err(failure) => Err(self.store_error(&format!("read the {queue} queue"), failure).await),
        }
    }

    /// Reads one entry; an error if it does not exist.
    pub async fn stored_entry(&self, id: EntryId) -> Result<KeyValue, StoreError> {
        let key = self.keys().entry(id);
        match self.get(key, GetOptions::new()).await {
            Ok(mut got) => got.take_kvs().pop().ok_or_else(|| StoreError::NotFound { what: id.to_string() }),
            Err(failure) => Err(self.store_error(&format!("read {id}"), failure).await),
        }
    }

    /// Reads one entry, or `None` if it does not exist.
    pub(super) async fn entry_if_there<E: DeserializeOwned>(
        &self,
        id: EntryId,
    ) -> Result<Option<(E, KeyValue)>, StoreError> {
        match self.entry(id).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }

    pub(super) async fn entry<E: DeserializeOwned>(&self, id: EntryId) -> Result<(E, KeyValue), StoreError> {
        let kv = self.stored_entry(id).await?;
        let key = self.keys().entry(id);
        let broken = |cause| StoreError::Broken { key, cause, remedy: "fix it with etcdctl, or remove it".to_owned() };
        match (cketerm_model::stored::row::unreadable(id, kv.value()), serde_json::from_slice(kv.value())) {
            (None, Ok(entry)) => Ok((entry, kv)),
            (Some(why), _) => Err(broken(why)),
            (None, Err(e)) => Err(broken(e.to_string())),
        }
    }

    /// Reads one of the four switches.
    pub async fn switch(&self, name: SwitchName) -> Result<Switch, StoreError> {
        let raw = self.raw(&self.keys().switch(name)).await?;
        Ok(raw.map_or_else(Switch::default, |r| Switch { mod_revision: r.mod_revision, raw: Some(r.text) }))
    }

    /// Sets one of the four switches.
    pub async fn set_switch(
        &self,
        name: SwitchName,
        enabled: bool,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<SwitchChange, StoreError> {
        let who = person.who();
        let what = if enabled { "enable" } else { "disable" };
        let note = AuditNote { who, what, on: name.title(), reason };
        let value = if enabled { "false" } else { "true" };
        let put = TxnOp::put(self.keys().switch(name), value, Some(PutOptions::new().with_prev_key()));
        let (wrote, answers) = Box::pin(self.write_with_responses(note, "done".into(), Vec::new(), vec![put])).await?;
        let WriteOutcome::At(revision) = wrote else {
            return Err(StoreError::Conflict { what: name.title().to_owned() });
        };
        let before = answers.first().and_then(|answer| match answer {
            TxnOpResponse::Put(put) => Some(put.prev_key().map_or_else(Switch::default, |kv| Switch {
                raw: Some(String::from_utf8_lossy(kv.value()).into_owned()),
                mod_revision: kv.mod_revision(),
            })),
            _ => None,
        });
        Ok(SwitchChange { revision, before })
    }
}

/// Result of setting a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchChange {
    /// Revision of the write.
    pub revision: i64,
    /// The replaced switch, from the write's own transaction; none if etcd's answer was lost.
    pub before: Option<Switch>,
}

/// Change of one entry, with a further operation of its transaction.
#[derive(Debug)]
pub(super) struct EntryChange<E> {
    /// The new value.
    pub(super) entry: E,
    /// The further operation.
    pub(super) beside: Option<TxnOp>,
}

impl<E> From<E> for EntryChange<E> {
    fn from(entry: E) -> Self {
        Self { entry, beside: None }
    }
}

impl<E: Serialize> EntryChange<E> {
    fn ops(&self, key: String) -> impl Iterator<Item = TxnOp> {
        std::iter::once(TxnOp::put(key, json(&self.entry), None)).chain(self.beside.clone())
    }
}

/// Returns the error of a write of several transactions that stops: the cause alone would say that nothing was written.
fn stopped(done: usize, rest: usize, cause: StoreError) -> StoreError {
    if done == 0 { cause } else { StoreError::Partial { done, all: done + rest, cause: Box::new(cause) } }
}

fn without_backoff(entry: &RebootEntry) -> Option<RebootEntry> {
    // The last write of a cancelled entry says who cancelled it. After the command nothing backs off, and a write would
    // void an operator's order that waits.
    let can_back_off = matches!(entry.status, RebootStatus::Queued | RebootStatus::Draining);
    let backs_off = can_back_off && (entry.drain_backoff_count != 0 || entry.drain_backoff_expire.is_some());
    fault!(ResetIgnored => return backs_off.then(|| RebootEntry { drain_backoff_count: 0, ..entry.clone() }));
    backs_off.then(|| RebootEntry { drain_backoff_count: 0, drain_backoff_expire: None, ..entry.clone() })
}

fn repair_without_backoff(entry: &RepairEntry) -> Option<RepairEntry> {
    let backs_off = entry.drain_backoff_count != 0 || entry.drain_backoff_expire.is_some();
    let commanded = entry.claims_machine() && entry.step_status == StepStatus::Watching;
    (backs_off && !entry.deleted && !commanded).then(|| RepairEntry {
        drain_backoff_count: 0,
        drain_backoff_expire: None,
        ..entry.clone()
    })
}

fn maintenance_without_backoff(entry: &MaintenanceEntry) -> Option<MaintenanceEntry> {
    let backs_off = entry.drain_backoff_count != 0 || entry.drain_backoff_expire.is_some();
    (backs_off && entry.released.is_none()).then(|| MaintenanceEntry {
        drain_backoff_count: 0,
        drain_backoff_expire: None,
        ..entry.clone()
    })
}
