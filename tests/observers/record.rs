//! Record of a run as seen from outside. Of an engine's own statements it holds only what the engine wrote or reported.
//!
//! All times are of one true clock: the sandbox's, or this host's where the servers are real. Every list is in the
//! order of events.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

/// Full history of one run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Every change of a key in etcd, in the order of revisions.
    pub keys: Vec<KeyChange>,
    /// Every transaction that a known process sent to etcd and that was carried out (its `then` or its `else`), or
    /// refused because of its size. Empty where nothing could listen (real servers).
    pub txns: Vec<Txn>,
    /// Every change of an object in Kubernetes, in the order of resourceVersions.
    pub objects: Vec<ObjectChange>,
    /// Every request to the API server that was answered, or carried out although its answer was lost.
    pub api_requests: Vec<ApiRequest>,
    /// Events of the machines.
    pub power: Vec<Power>,
    /// Begins of health checks, oldest first, each with the IP address of the machine. None where they are not known.
    pub health_checks: Option<Vec<(Timestamp, String)>>,
    /// Initial state of every etcd member, and each change since. Empty where members could not be queried.
    pub members: Vec<EtcdMember>,
    /// Commands of people and other programs that were acknowledged to them.
    pub acknowledged: Vec<Acknowledged>,
    /// Reports of each engine about entries, once a second of true time. Empty where no engine was queried.
    pub reports: Vec<EngineReport>,
    /// Time since which nothing went wrong any more: faults ended, people stopped. None if the run was cut before.
    pub calm_since: Option<Timestamp>,
    /// TTL of the leaders' leases in seconds; 0 means 10.
    pub ttl_seconds: u32,
    /// Processes that were paused (SIGSTOP, a suspended host), each with start and end. Such a process decided before
    /// the pause what it sends afterwards, and its reports are old meanwhile.
    pub paused: Vec<(String, Timestamp, Timestamp)>,
    /// Processes whose main loop got stuck for good, and when. Everything else of such a process went on.
    pub stuck: Vec<(String, Timestamp)>,
    /// Notices that reached a receiver; empty where there is none.
    pub received: Vec<Received>,
    /// Addresses that were sent a BMC login; empty where nothing could listen (real servers).
    pub logins: Vec<Login>,
    /// Reboots that agents of the machines requested, as the machines saw them. None where no agent reboots a machine.
    pub agent_reboots: Option<Vec<AgentReboot>>,
    /// Queries that engines sent to Prometheus. None where nothing could listen.
    pub gate_queries: Option<Vec<GateQuery>>,
    /// Whether the hosts of the engines keep the results of commands until they are recorded.
    pub keeps_results: bool,
    /// End of the run.
    pub end: Timestamp,
}

/// Query that an engine sent to Prometheus.
#[derive(Clone, Debug)]
pub struct GateQuery {
    /// Time of the request.
    pub at: Timestamp,
    /// The engine.
    pub by: String,
    /// The expression.
    pub expression: String,
    /// Time of the answer; none = there is none.
    pub answered: Option<Timestamp>,
    /// Whether the answer is an empty result. Errors are not.
    pub empty: bool,
}

/// Reboot that an agent requested on its machine.
#[derive(Clone, Debug)]
pub struct AgentReboot {
    /// Time of the request.
    pub at: Timestamp,
    /// Node of the agent.
    pub node: String,
    /// Boot id of the machine.
    pub boot_id: String,
    /// Id of the order; empty if there was none.
    pub order_id: String,
    /// Attempt of the order.
    pub attempt: String,
    /// Whether the agent keeps the rules; others are liars.
    pub honest: bool,
    /// Seconds by which its clock is ahead.
    pub clock_error: i64,
}

/// First login that reached an address.
#[derive(Clone, Debug)]
pub struct Login {
    /// Time of the login.
    pub at: Timestamp,
    /// Address that it reached.
    pub to: IpAddr,
}

/// State of a member of the Kubernetes etcd from a moment on. It is down while its machine is.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent faults
pub struct EtcdMember {
    /// Time from which this state holds.
    pub at: Timestamp,
    /// Address of the machine.
    pub address: String,
    /// Whether it does not run.
    pub stopped: bool,
    /// Whether it applies nothing.
    pub behind: bool,
    /// Whether it has raised an alarm.
    pub alarm: bool,
    /// Whether it has no vote.
    pub learner: bool,
    /// It runs and votes; clients do not reach it.
    pub unreachable: bool,
}

/// A notice that reached a receiver.
#[derive(Clone, Debug)]
pub struct Received {
    /// Time of its arrival.
    pub at: Timestamp,
    /// Engine that sent it.
    pub by: String,
    /// The notice.
    pub notice: Value,
    /// Whether the receiver accepted it, whatever its sender learned of that.
    pub taken: bool,
}

/// One change of one key.
#[derive(Clone, Debug)]
pub struct KeyChange {
    /// Time of the change.
    pub at: Timestamp,
    /// Revision of the change. All changes of one transaction share it.
    pub revision: i64,
    /// Key below the prefix: `reboots/data/0000000000000003`, `cketerm/attempts/…`, `leader//…`.
    pub key: String,
    /// Value from now on; none if deleted.
    pub value: Option<Vec<u8>>,
}

/// One transaction on the wire.
#[derive(Clone, Debug)]
pub struct Txn {
    /// Time at which it was carried out.
    pub at: Timestamp,
    /// Process that sent it: `engine-0`, `console`, `ckecli`.
    pub by: String,
    /// Keys below the prefix that it compares, each with the compared field: `create`, `mod`, `version`, `value`,
    /// `lease`.
    pub compares: Vec<(String, &'static str)>,
    /// Keys that its `then` puts.
    pub puts: Vec<String>,
    /// Keys that its `then` deletes.
    pub deletes: Vec<String>,
    /// Number of its operations, or of its comparisons if there are more of them.
    pub operations: usize,
    /// Size in bytes.
    pub bytes: usize,
    /// Whether its comparisons held.
    pub succeeded: bool,
    /// Revision of the store after it.
    pub revision: i64,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// Time of the change.
    pub at: Timestamp,
    /// The object's resourceVersion.
    pub revision: u64,
    /// Resource: `nodes`, `pods`, `poddisruptionbudgets` …
    pub resource: String,
    /// Namespace; empty for kinds without one.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The object before; none if it is new.
    pub before: Option<Value>,
    /// The object after; none if it is gone.
    pub after: Option<Value>,
}

/// One request to the API server.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// Time at which it was carried out.
    pub at: Timestamp,
    /// Process that sent it: `engine-0`, `kubectl`. Empty where it is not known.
    pub by: String,
    /// Method: `GET`, `PATCH` …
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Query of the URL.
    pub query: String,
    /// Body of the request; null if it had none.
    pub body: Value,
    /// Status code of the answer.
    pub code: u16,
    /// Message of a refusal; empty if there was none.
    pub message: String,
}

/// Event of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent {
    /// A power command began.
    Begin,
    /// The command ended; without a code it was killed.
    End(Option<i32>),
    /// The machine lost power.
    Down,
    /// The machine's system runs again.
    Up,
}

/// One line of the machines' log.
#[derive(Clone, Debug)]
pub struct Power {
    /// Time of the event.
    pub at: Timestamp,
    /// The event.
    pub what: PowerEvent,
    /// IP address of the machine.
    pub address: String,
    /// `CKETERM_ENTRY` of the command: `reboots/3`.
    pub entry: String,
    /// `CKETERM_ATTEMPT` of the command.
    pub attempt: String,
    /// Command line.
    pub argv: Vec<String>,
}

/// A command that was acknowledged to its author.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// Time of the request.
    pub requested: Timestamp,
    /// Time of the acknowledgement.
    pub at: Timestamp,
    /// Author of the command.
    pub by: String,
    /// The command.
    pub command: AcknowledgedCommand,
}

/// Kind of an acknowledged command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcknowledgedCommand {
    /// `rq add`: these addresses, with the indexes that they got.
    Add(Vec<(u64, String)>),
    /// `rq cancel` of one entry.
    Cancel(u64),
    /// `rq cancel-all`.
    CancelAll(Vec<u64>),
    /// `rq reset-backoff` of these entries.
    ResetBackoff(Vec<u64>),
    /// `rq enable` or `rq disable`.
    Switch(bool),
    /// `rq retry`, `rq done`, `rq force`, `hold` …
    Order(u64, String),
    /// Any other command.
    Other(String),
}

/// Report of one engine about the queue at one moment.
#[derive(Clone, Debug)]
pub struct EngineReport {
    /// Time of the report.
    pub at: Timestamp,
    /// The engine.
    pub by: String,
    /// Whether it led.
    pub leads: bool,
    /// Revision of etcd that it had seen.
    pub revision: i64,
    /// Reasons by index (JSON of `model::reason::Reason`), for entries that do not move.
    pub reasons: Arc<BTreeMap<u64, Value>>,
    /// Indexes of the entries that have an effect in flight.
    pub moving: Vec<u64>,
    /// Reasons of the repair queue, by index.
    pub repairs: Arc<BTreeMap<u64, Value>>,
    /// Indexes of the repairs that have an effect in flight.
    pub moving_repairs: Vec<u64>,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Code of the invariant: `I1`.
    pub code: &'static str,
    /// Time of the breach.
    pub at: Timestamp,
    /// Observation that shows the breach, with the names of the objects.
    pub what: String,
}
