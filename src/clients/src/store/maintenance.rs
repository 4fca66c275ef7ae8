//! Requests of maintenance and their release: `cketerm/maintenance/` (STO-75).

use std::collections::BTreeMap;

use cketerm_model::{
    cketerm_records::Request,
    entry::{EntryId, QueueKind},
    fence::Person,
    maintenance::{MaintenanceEntry, Released},
    names::Address,
    stored::leadership::LeaderGuard,
};
use etcd_client::{Compare, CompareOp, TxnOp};
use jiff::Timestamp;

use super::{
    connect::Store,
    enqueue::Note,
    error::StoreError,
    leadership::compare,
    operator::{AuditNote, WriteOutcome, json},
    queue::MAX_CONFLICTS,
};

/// Request of maintenance: of these machines, until this time.
#[derive(Clone, Copy, Debug)]
pub struct NewMaintenance<'a> {
    /// The machines.
    pub addresses: &'a [Address],
    /// UIDs of their Nodes by address, if Kubernetes was queried.
    pub uids: &'a BTreeMap<Address, String>,
    /// Its end.
    pub until: Timestamp,
}

impl Store {
    /// Requests maintenance of these machines and returns the indexes. It is written only while this leader leads, all
    /// or nothing.
    pub async fn add_maintenance(
        &self,
        person: &Person,
        wanted: NewMaintenance<'_>,
        request: &Request,
        under: &LeaderGuard,
    ) -> Result<Vec<u64>, StoreError> {
        let note = Note { person, what: "maintenance add", on: wanted.addresses.join(" ") };
        let most = Self::entries_at_once();
        if wanted.addresses.len() > most {
            let count = wanted.addresses.len();
            return Err(StoreError::NotAllowed(format!("{count} machines at once; at most {most} may be given")));
        }
        for _ in 0..=MAX_CONFLICTS {
            let entries = wanted.addresses.iter().map(|address| {
                let request = Request { node_uid: wanted.uids.get(address).cloned(), ..request.clone() };
                (move |index| MaintenanceEntry::queued(index, address, wanted.until), request)
            });
            let leader = vec![compare(under, self.keys())];
            if let Some(indexes) =
                self.add_without_batch(QueueKind::Maintenance, &note, entries.collect(), leader).await?
            {
                return Ok(indexes);
            }
            self.check_same_leader(Some(under)).await?;
        }
        Err(StoreError::Conflict { what: self.keys().write_index(QueueKind::Maintenance) })
    }

    /// Marks a maintenance as ended by an operator; the leader removes it and uncordons the Node. One that is marked
    /// already stays as it is.
    pub async fn release_maintenance(
        &self,
        index: u64,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let (who, at) = (person.who().clone(), self.clock().wall());
        let released = Released { who, at, reason: reason.map(str::to_owned) };
        let what = ("maintenance release", "released", reason);
        self.change_maintenance(index, person, what, |entry| match entry.released {
            Some(_) => None,
            None => Some(MaintenanceEntry { released: Some(released.clone()), ..entry }),
        })
        .await
    }

    /// Moves the end of a maintenance. It is refused for one that somebody has ended.
    pub async fn extend_maintenance(
        &self,
        index: u64,
        until: Timestamp,
        person: &Person,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let result = format!("until {until}");
        let what = ("maintenance extend", result.as_str(), reason);
        let mut is_over = false;
        self.change_maintenance(index, person, what, |entry| {
            is_over = entry.released.is_some();
            (!is_over).then_some(MaintenanceEntry { until, ..entry })
        })
        .await?;
        if is_over {
            return Err(StoreError::NotAllowed(format!("{} was ended meanwhile", EntryId::maintenance(index))));
        }
        Ok(())
    }

    /// Writes what `change` makes of a maintenance, compared, with its audit record (`(what, result, reason)`); nothing if
    /// it makes nothing of it.
    async fn change_maintenance(
        &self,
        index: u64,
        person: &Person,
        (what, result, reason): (&str, &str, Option<&str>),
        mut change: impl FnMut(MaintenanceEntry) -> Option<MaintenanceEntry>,
    ) -> Result<(), StoreError> {
        let id = EntryId::maintenance(index);
        let (key, on) = (self.keys().entry(id), id.to_string());
        for _ in 0..MAX_CONFLICTS {
            let kv = self.stored_entry(id).await?;
            let entry: MaintenanceEntry = serde_json::from_slice(kv.value()).map_err(|e| StoreError::Broken {
                key: key.clone(),
                cause: e.to_string(),
                remedy: format!(
                    "fix it, or cordon the Node with `cketerm nodes cordon NODE` and remove the key: etcdctl del {key}; \
                     without the key the leader uncordons the Node once it is Ready"
                ),
            })?;
            let Some(entry) = change(entry) else { return Ok(()) };
            let compares = vec![Compare::mod_revision(key.as_str(), CompareOp::Equal, kv.mod_revision())];
            let ops = vec![TxnOp::put(key.as_str(), json(&entry), None)];
            let note = AuditNote { who: person.who(), what, on: &on, reason };
            if let WriteOutcome::At(_) = self.write(note, result, compares, ops).await? {
                return Ok(());
            }
        }
        Err(StoreError::Conflict { what: on })
    }
}
