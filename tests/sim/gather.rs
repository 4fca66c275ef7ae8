//! Builds a record for the observers from the logs of the sandbox's servers and machines.

use cketerm_sandbox::{
    Sandbox,
    kubernetes::Verb,
    machines::{self, Power},
    members::MemberFaults,
};
use etcd_client::proto::{PbTxnOpRequest, PbTxnRequest, PbTxnRequestOp};
use jiff::Timestamp;

use crate::observers::record::{
    self, ApiRequest, EtcdMember, GateQuery, KeyChange, Login, ObjectChange, PowerEvent, Record, Txn,
};

const PREFIX: &str = "/cke/";

/// Everything that the servers logged.
pub fn record(sandbox: &Sandbox) -> Record {
    Record {
        keys: keys(sandbox),
        txns: txns(sandbox),
        objects: objects(sandbox),
        api_requests: api_requests(sandbox),
        power: sandbox.machines.power_log().into_iter().map(power).collect(),
        health_checks: health_checks(sandbox),
        members: members(sandbox),
        acknowledged: Vec::new(),
        reports: Vec::new(),
        calm_since: None,
        ttl_seconds: 0,
        paused: Vec::new(),
        stuck: Vec::new(),
        received: Vec::new(),
        logins: sandbox.machines.logins().into_iter().map(|(to, at)| Login { at, to }).collect(),
        agent_reboots: None,
        gate_queries: Some(sandbox.prometheus.queries().into_iter().map(gate_query).collect()),
        keeps_results: true,
        end: sandbox.objects.clock().wall(),
    }
}

fn health_checks(sandbox: &Sandbox) -> Option<Vec<(Timestamp, String)>> {
    Some(sandbox.machines.health_checks()?.into_iter().map(|check| (check.at, check.address)).collect())
}

fn gate_query(query: cketerm_sandbox::prometheus::Query) -> GateQuery {
    let cketerm_sandbox::prometheus::Query { at, by, expression, answered, empty } = query;
    GateQuery { at, by, expression, answered, empty }
}

/// Etcd members with their changes; all are healthy in the beginning.
fn members(sandbox: &Sandbox) -> Vec<EtcdMember> {
    let began = Timestamp::UNIX_EPOCH;
    let well = sandbox.members.list().into_iter().map(|member| (began, member.address, MemberFaults::default()));
    let changes = sandbox.members.log().into_iter().map(|change| (change.at, change.address, change.trouble));
    let all = well.chain(changes).map(|(at, address, trouble)| {
        let MemberFaults { stopped, behind, alarm, learner, unreachable } = trouble;
        EtcdMember { at, address, stopped, behind, alarm, learner, unreachable }
    });
    all.collect()
}

fn without_prefix(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key);
    key.strip_prefix(PREFIX).unwrap_or(&key).to_owned()
}

fn keys(sandbox: &Sandbox) -> Vec<KeyChange> {
    let change = |w: cketerm_sandbox::etcd::KeyChange| KeyChange {
        at: w.at,
        revision: w.revision,
        key: without_prefix(&w.key),
        value: w.value.map(|v| v.to_vec()),
    };
    sandbox.etcd.history().into_iter().map(change).collect()
}

fn txns(sandbox: &Sandbox) -> Vec<Txn> {
    let field = |target: i32| ["version", "create", "mod", "value", "lease"][usize::try_from(target).unwrap()];
    let writes = |ops: &[PbTxnRequestOp], put: bool| -> Vec<String> {
        ops.iter()
            .filter_map(|op| match op.request.as_ref()? {
                PbTxnOpRequest::RequestPut(r) if put => Some(without_prefix(&r.key)),
                PbTxnOpRequest::RequestDeleteRange(r) if !put => Some(without_prefix(&r.key)),
                _ => None,
            })
            .collect()
    };
    let txn = |sent: cketerm_sandbox::etcd::RecordedTxn| Txn {
        at: sent.at,
        by: sent.by,
        compares: sent.request.compare.iter().map(|c| (without_prefix(&c.key), field(c.target))).collect(),
        puts: writes(&sent.request.success, true),
        deletes: writes(&sent.request.success, false),
        operations: sent.request.compare.len().max(sent.request.success.len()).max(sent.request.failure.len()),
        bytes: bytes(&sent.request),
        succeeded: sent.succeeded,
        revision: sent.revision,
    };
    sandbox.etcd.sent().into_iter().map(txn).collect()
}

/// Size of a request's keys and values in bytes.
fn bytes(request: &PbTxnRequest) -> usize {
    let compares: usize = request.compare.iter().map(|c| c.key.len() + c.range_end.len()).sum();
    let ops = request.success.iter().chain(&request.failure).map(|op| match &op.request {
        Some(PbTxnOpRequest::RequestPut(r)) => r.key.len() + r.value.len(),
        Some(PbTxnOpRequest::RequestDeleteRange(r)) => r.key.len() + r.range_end.len(),
        Some(PbTxnOpRequest::RequestRange(r)) => r.key.len() + r.range_end.len(),
        _ => 0,
    });
    compares + ops.sum::<usize>()
}

fn objects(sandbox: &Sandbox) -> Vec<ObjectChange> {
    let change = |c: cketerm_sandbox::kubernetes::Change| ObjectChange {
        at: c.at,
        revision: c.revision,
        resource: c.resource.plural.to_owned(),
        namespace: c.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
        name: c.object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        before: c.before.as_deref().cloned(),
        after: (c.verb != Verb::Deleted).then(|| serde_json::Value::clone(&c.object)),
    };
    sandbox.objects.history().into_iter().map(change).collect()
}

fn api_requests(sandbox: &Sandbox) -> Vec<ApiRequest> {
    let method = |verb: &str| match verb {
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    };
    let one = |a: cketerm_sandbox::kubernetes::api::ApiRequest| {
        let (path, query) = a.path.split_once('?').unwrap_or((&a.path, ""));
        ApiRequest {
            at: a.at,
            by: a.user.clone(),
            method: method(a.verb).to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            body: serde_json::from_slice(&a.body).unwrap_or_default(),
            code: a.code,
            message: a.message,
        }
    };
    sandbox.api.audit().into_iter().map(one).collect()
}

fn power(p: Power) -> record::Power {
    let what = match p.what {
        machines::PowerEvent::Begin => PowerEvent::Begin,
        machines::PowerEvent::End(code) => PowerEvent::End(code),
        machines::PowerEvent::Down => PowerEvent::Down,
        machines::PowerEvent::Up => PowerEvent::Up,
    };
    record::Power { at: p.at, what, address: p.address, entry: p.entry, attempt: p.attempt, argv: p.argv }
}
