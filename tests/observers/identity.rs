//! Work in a cluster that is not etcd's (I76).

use jiff::Timestamp;
use serde_json::Value;

use super::{
    record::{ApiRequest, Breach},
    view::{View, is_engine},
};

/// Times from which the identity in etcd was that of another cluster, each with its end (none = until the end of the
/// record). The first identity that was written is taken for this cluster's own.
fn foreign_periods(view: &View<'_>) -> Vec<(Timestamp, Option<Timestamp>)> {
    let mut own: Option<String> = None;
    let mut periods: Vec<(Timestamp, Option<Timestamp>)> = Vec::new();
    for change in view.record.keys.iter().filter(|change| change.key == "cketerm/identity") {
        let value = change.value.as_deref().and_then(|value| serde_json::from_slice::<Value>(value).ok());
        let uid = value.and_then(|value| Some(value["uid"].as_str()?.to_owned()));
        let is_foreign = uid.is_some() && own.is_some() && uid != own;
        own = own.or(uid);
        match (periods.last_mut(), is_foreign) {
            (Some((_, None)), true) | (Some((_, Some(_))) | None, false) => {}
            (Some((_, end @ None)), false) => *end = Some(change.at),
            (Some((_, Some(_))) | None, true) => periods.push((change.at, None)),
        }
    }
    periods
}

/// I76: while etcd has belonged to another cluster for longer than a request may take, no engine uncordons a Node or
/// changes a Node's conditions. Neither is part of the work in progress, which is finished.
///
/// Not covered: rules of a newer version, taints, endpoints, hooks, Nodes out of service and BareMetalHosts.
pub fn i76(view: &View<'_>) -> Vec<Breach> {
    let periods = foreign_periods(view);
    if periods.is_empty() {
        return Vec::new();
    }
    let forbids = |request: &ApiRequest| {
        let from = view.back(&request.by, request.at, view.max_kube_delay());
        periods.iter().any(|(begin, end)| *begin < from && end.is_none_or(|end| request.at < end))
    };
    let breach = |request: &ApiRequest, what: String| Breach {
        code: "I76",
        at: request.at,
        what: format!("{} {what} although etcd belongs to another cluster", request.by),
    };
    let mut found = Vec::new();
    for write in view.node_writes.iter().filter(|write| write.engine && forbids(write.request)) {
        if write.before.unschedulable && !write.after.unschedulable {
            found.push(breach(write.request, format!("uncordons node {}", write.name)));
        }
    }
    let patches = view.record.api_requests.iter().filter(|request| {
        is_engine(&request.by) && request.method == "PATCH" && (200..300).contains(&request.code) && forbids(request)
    });
    for request in patches {
        if let Some(name) = request.path.strip_prefix("/api/v1/nodes/").and_then(|path| path.strip_suffix("/status")) {
            found.push(breach(request, format!("changes the conditions of node {name}")));
        }
    }
    found
}
