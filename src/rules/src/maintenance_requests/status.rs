//! The status of a request: what the queues show of it, and nothing else.

use cketerm_model::{
    accepted_request::{AcceptedNode, AcceptedRequest},
    entry::{EntryId, Stored},
    maintenance::MaintenanceStatus,
    maintenance_request::{
        ConditionStatus, RequestCondition, RequestConditionType, RequestReason, RequestRow, RequestStatus,
        RequestedAction, RequestedNodeState, RequestedNodeStatus,
    },
    reboot::RebootStatus,
    stored::view::StoreView,
    time::whole_seconds,
};
use jiff::Timestamp;

use super::choice::Refusal;

/// Content of a status.
#[derive(Clone, Copy, Debug)]
pub enum RequestAnswer<'a> {
    /// The request is not accepted yet.
    Refused(&'a Refusal),
    /// It ended before it was accepted.
    Missed,
    /// It is accepted.
    Accepted(&'a AcceptedRequest),
}

/// Returns the new status of a request. The time of a condition changes only with its status, so an unchanged state gives
/// an unchanged status.
pub fn status(store: &StoreView, row: &RequestRow, answer: RequestAnswer<'_>, now: Timestamp) -> RequestStatus {
    let condition = |of, holds, reason, message: String| {
        let (before, status) = (row.status.condition(of), ConditionStatus::from(holds));
        let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time);
        RequestCondition {
            condition_type: of,
            status,
            reason,
            message,
            last_transition_time: since.unwrap_or_else(|| whole_seconds(now)),
            observed_generation: row.generation,
        }
    };
    let (accepted, complete) = (RequestConditionType::Accepted, RequestConditionType::Complete);
    match answer {
        RequestAnswer::Refused(refusal) => RequestStatus {
            conditions: vec![condition(accepted, false, refusal.reason, refusal.message.clone())],
            ..RequestStatus::default()
        },
        RequestAnswer::Missed => {
            let message = "its window ended before it could be accepted".to_owned();
            RequestStatus {
                conditions: vec![
                    condition(accepted, false, RequestReason::WindowEnded, message.clone()),
                    condition(complete, true, RequestReason::WindowEnded, message),
                ],
                ..RequestStatus::default()
            }
        }
        RequestAnswer::Accepted(record) => {
            let nodes: Vec<_> = record.nodes.iter().map(|node| node_status(store, record, node)).collect();
            let open = nodes.iter().filter(|node| node.state != RequestedNodeState::Ended).count();
            let reason = match (open, record.ended) {
                (0, Some(end)) => end.cause,
                (0, None) => RequestReason::Ended,
                _ => RequestReason::InProgress,
            };
            RequestStatus {
                conditions: vec![
                    condition(accepted, true, RequestReason::Queued, format!("{} nodes", nodes.len())),
                    condition(complete, open == 0, reason, summary(record.action, &nodes)),
                ],
                nodes,
                batch: record.batch.map(|id| id.to_string()),
            }
        }
    }
}

fn node_status(store: &StoreView, record: &AcceptedRequest, node: &AcceptedNode) -> RequestedNodeStatus {
    let entry = node.index.map(|index| EntryId { queue: record.action.queue(), index });
    let state = match entry {
        None if record.ended.is_some() => RequestedNodeState::Ended,
        None => RequestedNodeState::Waiting,
        Some(id) => entry_state(store, record.action, id),
    };
    RequestedNodeStatus { name: node.name.clone(), state, entry }
}

fn entry_state(store: &StoreView, action: RequestedAction, id: EntryId) -> RequestedNodeState {
    match action {
        RequestedAction::Keep => match store.maintenance.entries.get(&id.index).map(Stored::get) {
            None => RequestedNodeState::Ended,
            Some(Some(entry)) => match entry.status {
                MaintenanceStatus::Queued => RequestedNodeState::Queued,
                MaintenanceStatus::Draining => RequestedNodeState::Draining,
                MaintenanceStatus::InMaintenance => RequestedNodeState::InMaintenance,
            },
            // unreadable: its Node is kept
            Some(None) => RequestedNodeState::InMaintenance,
        },
        RequestedAction::Reboot => match store.reboots.entries.get(&id.index).map(Stored::get) {
            None => RequestedNodeState::Ended,
            Some(Some(entry)) => match entry.status {
                RebootStatus::Queued => RequestedNodeState::Queued,
                RebootStatus::Draining => RequestedNodeState::Draining,
                RebootStatus::Rebooting => RequestedNodeState::Rebooting,
                RebootStatus::Cancelled => RequestedNodeState::Ended,
            },
            Some(None) => RequestedNodeState::Queued,
        },
    }
}

/// Returns the counts of the states for people: `2 queued, 1 in maintenance`.
fn summary(action: RequestedAction, nodes: &[RequestedNodeStatus]) -> String {
    let states = [
        (RequestedNodeState::Waiting, "wait for another entry of the machine"),
        (RequestedNodeState::Queued, "queued"),
        (RequestedNodeState::Draining, "draining"),
        (RequestedNodeState::Rebooting, "rebooting"),
        (RequestedNodeState::InMaintenance, "in maintenance"),
        (RequestedNodeState::Ended, "ended"),
    ];
    let counts = states.iter().filter_map(|(state, text)| {
        let count = nodes.iter().filter(|node| node.state == *state).count();
        (count > 0).then(|| format!("{count} {text}"))
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    let is_over = nodes.iter().all(|node| node.state == RequestedNodeState::Ended);
    match action {
        RequestedAction::Keep | RequestedAction::Reboot if is_over => counts,
        RequestedAction::Keep => format!("{counts}; see `cketerm maintenance list`"),
        RequestedAction::Reboot => format!("{counts}; see `cketerm rq list`"),
    }
}
