//! `MaintenanceRequest`s (SAF-43): accepted once, queued once for each Node, withdrawn when they are deleted. Their
//! entries go their way by the rules of all entries.

use std::{collections::BTreeSet, sync::Arc};

use cketerm_model::{
    accepted_request::AcceptedRequest,
    entry::{EntryId, QueueKind, Stored},
    fault,
    maintenance_request::{MAINTENANCE_REQUESTS_SOURCE, RequestReason, RequestRow, RequestSpec, RequestStatus},
    time::whole_seconds,
};
use serde::Serialize;

use super::{Effect, Guard, Pass, effect::StartRevisions};
use crate::maintenance_requests::{
    Refusal, RequestAnswer, choose, end_of, ended, has_entries, next_nodes, status, to_withdraw,
};

/// Action for a `MaintenanceRequest`.
#[derive(Clone, Debug, Serialize)]
pub enum MaintenanceRequestEffect {
    /// Sets the leader's finalizer on the object, or removes it.
    Hold {
        /// The object before the patch.
        row: Arc<RequestRow>,
        /// Whether it is set.
        is_held: bool,
    },
    /// Writes the record of an accepted request.
    Accept {
        /// UID of the object.
        uid: String,
        /// The record.
        record: AcceptedRequest,
    },
    /// Adds entries for these Nodes of a request.
    Queue {
        /// UID of the object.
        uid: String,
        /// The record before.
        record: Stored<AcceptedRequest>,
        /// Places of the Nodes in the record.
        nodes: Vec<usize>,
    },
    /// Withdraws one entry of a request that ends.
    Withdraw {
        /// UID of the object.
        uid: String,
        /// The record.
        record: Stored<AcceptedRequest>,
        /// The entry and its ModRevision.
        entry: (EntryId, i64),
        /// The cause.
        cause: RequestReason,
    },
    /// Records the end of a request, none of whose entries is left to withdraw.
    End {
        /// UID of the object.
        uid: String,
        /// The record before.
        record: Stored<AcceptedRequest>,
        /// The record after.
        ended: AcceptedRequest,
        /// The cause.
        cause: RequestReason,
    },
    /// Deletes the record of a request whose object is gone.
    Forget {
        /// UID of the object.
        uid: String,
        /// The record.
        record: Stored<AcceptedRequest>,
    },
    /// Writes the status of the object.
    Report {
        /// The object before the patch.
        row: Arc<RequestRow>,
        /// The status.
        status: RequestStatus,
    },
}

impl MaintenanceRequestEffect {
    /// Returns the name of the effect for screens, logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Hold { .. } => "holding a request",
            Self::Accept { .. } => "accepting a request",
            Self::Queue { .. } => "queueing for a request",
            Self::Withdraw { .. } => "withdrawing an entry",
            Self::End { .. } => "ending a request",
            Self::Forget { .. } => "forgetting a request",
            Self::Report { .. } => "reporting a request",
        }
    }
}

impl Pass<'_> {
    /// Plans at most one action for each request.
    pub(super) fn plan_maintenance_requests(&mut self) {
        if !self.policy.maintenance_requests || !self.leading() || self.leadership_blocker().is_some() {
            return;
        }
        let snap = self.snap;
        let is_listed = snap.kube.sources.get(MAINTENANCE_REQUESTS_SOURCE).is_some_and(|source| source.synced);
        if !is_listed || !self.etcd_copy_is_fresh() || !self.kube_synced {
            return;
        }
        for row in snap.kube.maintenance_requests.values() {
            if let Some(effect) = self.for_request(row) {
                self.plan_for_request(&row.uid, effect);
            }
        }
        let present: BTreeSet<&str> = snap.kube.maintenance_requests.values().map(|row| row.uid.as_str()).collect();
        for (uid, stored) in &snap.store.maintenance_requests {
            let is_gone = !present.contains(uid.as_str());
            // An object that was lost, not deleted, ends nothing: its entries go on.
            let is_over = stored.get().is_some_and(|record| !has_entries(&snap.store, record));
            if is_gone && is_over {
                let effect = MaintenanceRequestEffect::Forget { uid: uid.clone(), record: stored.clone() };
                self.plan_for_request(uid, effect);
            }
        }
    }

    fn plan_for_request(&mut self, uid: &str, effect: MaintenanceRequestEffect) {
        // a change of the switch, the definition or the policy is decided on again
        let start = Some(StartRevisions::of(QueueKind::Reboot, &self.snap.store));
        let guard = match &effect {
            MaintenanceRequestEffect::Accept { .. } | MaintenanceRequestEffect::Queue { .. } => {
                Guard { start, ..Guard::default() }
            }
            MaintenanceRequestEffect::Hold { .. }
            | MaintenanceRequestEffect::Withdraw { .. }
            | MaintenanceRequestEffect::End { .. }
            | MaintenanceRequestEffect::Forget { .. }
            | MaintenanceRequestEffect::Report { .. } => Guard::default(),
        };
        self.plan(&format!("maintenance request {uid}"), None, guard, Effect::MaintenanceRequest(effect));
    }

    fn for_request(&mut self, row: &Arc<RequestRow>) -> Option<MaintenanceRequestEffect> {
        let stored = self.snap.store.maintenance_requests.get(&row.uid);
        match (stored, row.deleting) {
            (None, true) => row.is_held().then(|| hold(row, false)),
            (None, false) => self.for_new_request(row),
            (Some(stored), _) => {
                let Some(record) = stored.get() else {
                    let message = format!("the key {} cannot be read: fix it with etcdctl", stored.key);
                    return self.report(row, RequestAnswer::Refused(&refusal(RequestReason::InvalidRecord, message)));
                };
                self.for_accepted_request(row, stored, record)
            }
        }
    }

    /// Accepts a request: first the finalizer, so that no deletion is missed, then the record.
    fn for_new_request(&mut self, row: &Arc<RequestRow>) -> Option<MaintenanceRequestEffect> {
        let now = self.now.wall;
        let spec = match &row.spec {
            Ok(spec) => spec,
            Err(why) => {
                return self.report(row, RequestAnswer::Refused(&refusal(RequestReason::InvalidSpec, why.clone())));
            }
        };
        if spec.window.end.is_some_and(|end| end <= now) {
            return self.report(row, RequestAnswer::Missed);
        }
        if let Some(end) = spec.window.end {
            self.wake_at_wall(end);
        }
        if let Some(start) = spec.window.start.filter(|start| *start > now) {
            self.wake_at_wall(start);
            let message = format!("its window begins at {start}");
            return self.report(row, RequestAnswer::Refused(&refusal(RequestReason::BeforeWindow, message)));
        }
        let nodes = match choose(&self.snap.store, &self.snap.kube, spec, now) {
            Ok(nodes) => nodes,
            Err(refusal) => return self.report(row, RequestAnswer::Refused(&refusal)),
        };
        if !row.is_held() {
            return Some(hold(row, true));
        }
        let RequestSpec { reason, action, window, .. } = spec.clone();
        let record = AcceptedRequest {
            name: row.name.clone(),
            reason,
            action,
            end: window.end,
            at: whole_seconds(now),
            nodes,
            batch: None,
            ended: None,
            unknown: serde_json::Map::new(),
        };
        Some(MaintenanceRequestEffect::Accept { uid: row.uid.clone(), record })
    }

    fn for_accepted_request(
        &mut self,
        row: &Arc<RequestRow>,
        stored: &Stored<AcceptedRequest>,
        record: &AcceptedRequest,
    ) -> Option<MaintenanceRequestEffect> {
        let (store, now) = (&self.snap.store, self.now.wall);
        let end = end_of(store, record, row.deleting, now);
        if let Some(cause) = end.filter(|cause| is_news(record, *cause)) {
            let ids = to_withdraw(store, record, cause);
            fault!(DeletedRequestKept => ids = Vec::new());
            let (uid, before) = (row.uid.clone(), stored.clone());
            let first = ids.first().and_then(|id| Some((*id, store.stored_entry(*id)?.mod_revision)));
            return Some(if let Some(entry) = first {
                MaintenanceRequestEffect::Withdraw { uid, record: before, entry, cause }
            } else {
                let ended = ended(record, cause, whole_seconds(now));
                MaintenanceRequestEffect::End { uid, record: before, ended, cause }
            });
        }
        if row.deleting {
            return row.is_held().then(|| hold(row, false));
        }
        if record.ended.is_none() {
            if let Some(end) = record.end {
                self.wake_at_wall(end);
            }
            let next = next_nodes(&self.snap.store, record);
            let place = |node: &&cketerm_model::accepted_request::AcceptedNode| {
                record.nodes.iter().position(|other| other.name == node.name)
            };
            let nodes: Vec<usize> = next.iter().filter_map(place).collect();
            if !nodes.is_empty() {
                let (uid, record) = (row.uid.clone(), stored.clone());
                return Some(MaintenanceRequestEffect::Queue { uid, record, nodes });
            }
        }
        self.report(row, RequestAnswer::Accepted(record))
    }

    fn report(&self, row: &Arc<RequestRow>, answer: RequestAnswer<'_>) -> Option<MaintenanceRequestEffect> {
        let status = status(&self.snap.store, row, answer, self.now.wall);
        (status != row.status).then(|| MaintenanceRequestEffect::Report { row: Arc::clone(row), status })
    }
}

fn hold(row: &Arc<RequestRow>, is_held: bool) -> MaintenanceRequestEffect {
    MaintenanceRequestEffect::Hold { row: Arc::clone(row), is_held }
}

fn refusal(reason: RequestReason, message: String) -> Refusal {
    Refusal { reason, message }
}

/// Reports whether the record does not have this end yet. A request that has ended may still be deleted, which releases
/// what has begun.
fn is_news(record: &AcceptedRequest, cause: RequestReason) -> bool {
    record.ended.is_none_or(|end| cause == RequestReason::Deleted && end.cause != RequestReason::Deleted)
}
