//! Writes for `MaintenanceRequest`s: the finalizer, the record, the entries, and the status.

use std::sync::Arc;

use cketerm_clients::{kubernetes::WriteError, store::StoreError};
use cketerm_model::{
    accepted_request::AcceptedRequest,
    batch::BatchId,
    boot_time::BootTime,
    cketerm_records::{Request, Who},
    entry::{EntryId, QueueKind, Stored},
    fault,
    maintenance::{MaintenanceEntry, Released},
    maintenance_request::{MAINTENANCE_REQUEST_USER, RequestReason, RequestRow, RequestStatus, RequestedAction},
    reboot::RebootEntry,
    stored::{
        transaction::{Change, Put},
        view::StoreView,
    },
    withdraw::Withdraw,
};
use cketerm_rules::{
    decide::{Guard, MaintenanceRequestEffect},
    maintenance_requests::is_busy,
    reboot_needed::queue::grown,
    snapshot::{EffectOutcome, StaleCause},
};

use super::{Actor, SHOWN_WITHIN, Stop};

impl Actor {
    pub(super) async fn maintenance_request(
        &self,
        guard: &Guard,
        decided: BootTime,
        what: MaintenanceRequestEffect,
    ) -> Result<EffectOutcome, Stop> {
        match what {
            MaintenanceRequestEffect::Hold { row, is_held } => self.hold_request(guard, decided, &row, is_held).await,
            MaintenanceRequestEffect::Report { row, status } => {
                self.report_request(guard, decided, &row, &status).await
            }
            MaintenanceRequestEffect::Accept { uid, record } => {
                self.accept_request(guard, decided, &uid, &record).await
            }
            MaintenanceRequestEffect::Queue { uid, record, nodes } => {
                self.queue_request(guard, decided, &uid, &record, &nodes).await
            }
            MaintenanceRequestEffect::Withdraw { uid, record, entry, cause } => {
                self.withdraw_for_request(guard, decided, &uid, &record, entry, cause).await
            }
            MaintenanceRequestEffect::End { uid, record, ended, cause } => {
                let permit = self.permit(guard, decided)?;
                let key = self.store.keys().maintenance_request(&uid);
                let compares = vec![(key.clone(), record.mod_revision)];
                let audit = self.audit("request end", &object(&ended), None, &end_text(cause));
                let change = Change { compares, puts: vec![Put::json(key, &ended), audit], deletes: Vec::new() };
                self.commit(&permit, change).await.map(|_| EffectOutcome::Done)
            }
            MaintenanceRequestEffect::Forget { uid, record } => {
                let permit = self.permit(guard, decided)?;
                let key = self.store.keys().maintenance_request(&uid);
                let compares = vec![(key.clone(), record.mod_revision)];
                let change = Change { compares, puts: Vec::new(), deletes: vec![key] };
                self.commit(&permit, change).await.map(|_| EffectOutcome::Done)
            }
        }
    }

    async fn hold_request(
        &self,
        guard: &Guard,
        decided: BootTime,
        row: &RequestRow,
        is_held: bool,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let written = self.kube.hold_request(&permit, row, is_held).await;
        self.request_written(row, written.map(|_| ()), "finalizer").await
    }

    async fn report_request(
        &self,
        guard: &Guard,
        decided: BootTime,
        row: &RequestRow,
        status: &RequestStatus,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let written = self.kube.set_request_status(&permit, row, status).await;
        // an older definition of the resource drops fields, and the leader would write them again and again
        if written.as_ref().is_ok_and(|stored| stored.status != *status) {
            return Ok(EffectOutcome::Failed(format!(
                "status of MaintenanceRequest {}: the API server stored another one; apply the definition of this version \
                 (docs/maintenance-request-crd.yaml)",
                row.name
            )));
        }
        self.request_written(row, written.map(|_| ()), "status").await
    }

    /// Waits until the live copy shows a write to an object, so that nothing is decided from the one before.
    async fn request_written(
        &self,
        row: &RequestRow,
        written: Result<(), WriteError>,
        what: &str,
    ) -> Result<EffectOutcome, Stop> {
        let changed = |view: &Arc<cketerm_model::kube::KubeView>| {
            let now = view.maintenance_requests.get(&row.name);
            now.is_none_or(|now| now.resource_version != row.resource_version)
        };
        match written {
            Ok(()) => {
                self.kube_live.wait_for_view(SHOWN_WITHIN, changed).await;
                Ok(EffectOutcome::Done)
            }
            Err(WriteError::Conflict | WriteError::NotFound) => {
                let object = format!("MaintenanceRequest {}", row.name);
                Ok(EffectOutcome::Stale(StaleCause::Object(object)))
            }
            Err(e) => Ok(EffectOutcome::Failed(format!("{what} of MaintenanceRequest {}: {e}", row.name))),
        }
    }

    async fn accept_request(
        &self,
        guard: &Guard,
        decided: BootTime,
        uid: &str,
        record: &AcceptedRequest,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let key = self.store.keys().maintenance_request(uid);
        let mut compares = self.compares(guard);
        compares.push((key.clone(), 0));
        let result = format!("{} nodes", record.nodes.len());
        let audit = self.audit("request accept", &object(record), Some(record.reason.clone()), &result);
        let change = Change { compares, puts: vec![Put::json(key, record), audit], deletes: Vec::new() };
        self.commit(&permit, change).await?;
        tracing::info!(request = record.name, result, "maintenance request accepted");
        Ok(EffectOutcome::Done)
    }

    /// Adds the entries of these Nodes and notes them in the record, all or none. The write indexes of the queues are read
    /// first, so any entry that is added later makes the transaction fail.
    async fn queue_request(
        &self,
        guard: &Guard,
        decided: BootTime,
        uid: &str,
        stored: &Stored<AcceptedRequest>,
        places: &[usize],
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let failed = |e: StoreError| Stop(EffectOutcome::Failed(e.to_string()));
        let keys = self.store.keys();
        let Some(record) = stored.get() else { return Ok(changed()) };
        let queue = record.action.queue();
        let key = keys.write_index(queue);
        let revision = self.store.raw(&key).await.map_err(failed)?.map_or(0, |raw| raw.mod_revision);
        let mut compares = self.compares(guard);
        compares.push((key.clone(), revision));
        compares.push((keys.maintenance_request(uid), stored.mod_revision));
        let view = self.store.read_view().await.map_err(failed)?;
        let Some(first) = first_index(&view, queue) else { return Ok(changed()) };
        let (mut after, now) = (record.clone(), self.steady.now().wall);
        let count = places.len() as u64;
        let who = self.who_requests(record);
        let mut puts = vec![Put { key, value: first.saturating_add(count).to_string(), leased: false }];
        if record.action == RequestedAction::Reboot {
            let id = record.batch.unwrap_or_else(|| BatchId::at(now));
            let joined = view.batches.get(&id);
            compares.push((keys.batch(id), joined.map_or(0, |stored| stored.mod_revision)));
            puts.push(Put::json(
                keys.batch(id),
                &grown(joined.and_then(Stored::get), &who, &record.reason, count, now),
            ));
            after.batch = Some(id);
        }
        for (index, place) in (first..).zip(places) {
            let Some(node) = after.nodes.get_mut(*place) else { return Ok(changed()) };
            if node.index.is_some() || is_busy(&view, record.action, &node.address) {
                return Ok(changed());
            }
            let id = EntryId { queue, index };
            compares.push((keys.entry(id), 0));
            puts.push(match (record.action, record.end) {
                (RequestedAction::Reboot, _) => Put::json(keys.entry(id), &RebootEntry::queued(index, &node.address)),
                (RequestedAction::Keep, Some(end)) => {
                    Put::json(keys.entry(id), &MaintenanceEntry::queued(index, &node.address, end))
                }
                (RequestedAction::Keep, None) => return Ok(changed()),
            });
            let request = Request {
                who: who.clone(),
                at: now,
                reason: Some(record.reason.clone()),
                node_uid: Some(node.uid.clone()),
                batch: after.batch,
            };
            puts.push(Put::json(keys.request(id), &request));
            node.index = Some(index);
            fault!(RequestQueuedTwice => node.index = None);
        }
        puts.push(Put::json(keys.maintenance_request(uid), &after));
        let result = if count == 1 {
            format!("entry {}", EntryId { queue, index: first })
        } else {
            format!("entries {}-{}", EntryId { queue, index: first }, first + count - 1)
        };
        puts.push(self.audit("request queue", &object(record), Some(record.reason.clone()), &result));
        self.commit(&permit, Change { compares, puts, deletes: Vec::new() }).await?;
        tracing::info!(request = record.name, result, "maintenance request queued");
        Ok(EffectOutcome::Done)
    }

    /// Withdraws an entry as an operator would: a reboot is cancelled, a maintenance released.
    async fn withdraw_for_request(
        &self,
        guard: &Guard,
        decided: BootTime,
        uid: &str,
        stored: &Stored<AcceptedRequest>,
        (id, revision): (EntryId, i64),
        cause: RequestReason,
    ) -> Result<EffectOutcome, Stop> {
        let permit = self.permit(guard, decided)?;
        let keys = self.store.keys();
        let Some(record) = stored.get() else { return Ok(changed()) };
        let view = self.live.borrow();
        let reason = Some(format!("{}: {}", object(record), end_text(cause)));
        let (what, put) = match record.action {
            RequestedAction::Keep => {
                let found = view.maintenance.entries.get(&id.index).and_then(Stored::get);
                let Some(entry) = found else { return Ok(changed()) };
                let released =
                    Released { who: self.who_requests(record), at: self.steady.now().wall, reason: reason.clone() };
                let released = MaintenanceEntry { released: Some(released), ..entry.clone() };
                ("maintenance release", Put::json(keys.entry(id), &released))
            }
            RequestedAction::Reboot => {
                let found = view.reboots.entries.get(&id.index).and_then(Stored::get);
                let Some(entry) = found else { return Ok(changed()) };
                ("reboot cancel", Put::json(keys.entry(id), &entry.withdrawn()))
            }
        };
        drop(view);
        let change = Change {
            compares: vec![(keys.maintenance_request(uid), stored.mod_revision), (keys.entry(id), revision)],
            puts: vec![put, self.audit(what, &id.to_string(), reason, "withdrawn")],
            deletes: Vec::new(),
        };
        self.commit(&permit, change).await?;
        tracing::info!(request = record.name, entry = %id, "entry of a maintenance request withdrawn");
        Ok(EffectOutcome::Done)
    }

    /// Returns the user in whose name the entries of a request are queued and withdrawn.
    fn who_requests(&self, record: &AcceptedRequest) -> Who {
        Who { user: object(record), ..self.who.clone() }
    }
}

/// Returns the cause of an end for people.
fn end_text(cause: RequestReason) -> String {
    match cause {
        RequestReason::Deleted => "the MaintenanceRequest was deleted".to_owned(),
        cause => format!("the MaintenanceRequest ended: {cause}"),
    }
}

/// Returns the request as the audit names it.
fn object(record: &AcceptedRequest) -> String {
    format!("{MAINTENANCE_REQUEST_USER}{}", record.name)
}

/// Returns the first free index of a queue; none if its write index cannot be read.
fn first_index(view: &StoreView, queue: QueueKind) -> Option<u64> {
    let (index, last) = match queue {
        QueueKind::Reboot => (&view.reboots.write_index, view.reboots.entries.keys().next_back()),
        QueueKind::Repair => (&view.repairs.write_index, view.repairs.entries.keys().next_back()),
        QueueKind::Maintenance => (&view.maintenance.write_index, view.maintenance.entries.keys().next_back()),
    };
    let after_last = last.map_or(0, |last| last.saturating_add(1));
    index.as_ref().ok().map(|index| (*index).max(after_last))
}

/// Returns the outcome for inputs that changed after the decision.
fn changed() -> EffectOutcome {
    EffectOutcome::Stale(StaleCause::Changed("the queue or the machines have changed meanwhile".to_owned()))
}
