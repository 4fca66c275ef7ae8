//! What happened in a world, from outside: nothing in here comes from what an engine says of itself but what it wrote.
//!
//! All times are of one true clock: the sandbox's, or this host's where the servers are real. Every list is in the order
//! in which things happened.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

/// The whole history of one run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Every change of a key in etcd, in the order of revisions.
    pub keys: Vec<KeyChange>,
    /// Every transaction that a known process sent to etcd and that was carried out (its `then` or its `else`), or refused for its
    /// size; empty where nobody could listen (real servers).
    pub txns: Vec<Txn>,
    /// Every change of an object in Kubernetes, in the order of resourceVersions.
    pub objects: Vec<ObjectChange>,
    /// Every request to the API server that was answered (or carried out, though its answer was lost).
    pub asked: Vec<Asked>,
    /// What the machines saw.
    pub power: Vec<Power>,
    /// Every member of etcd as it was in the beginning, and each change since; empty where nobody could look.
    pub members: Vec<EtcdMember>,
    /// What people and other programs were told: a word that was acknowledged to them.
    pub acknowledged: Vec<Acknowledged>,
    /// What each engine said of entries, once a second of true time: empty where nobody asked.
    pub said: Vec<Said>,
    /// Since when nothing went wrong any more (faults ended, people went home); none = the run was cut before.
    pub calm_since: Option<Timestamp>,
    /// TTL of the leaders' leases in seconds; 0 = 10.
    pub ttl_seconds: u32,
    /// Which process stood still (SIGSTOP, a suspended host), from when to when: what it sends afterwards was decided
    /// before, and what is said of it meanwhile is old.
    pub frozen: Vec<(String, Timestamp, Timestamp)>,
    /// Whose main loop got stuck for good, and when: everything else of that process went on.
    pub stuck: Vec<(String, Timestamp)>,
    /// What a receiver of notices was brought; empty where there is none.
    pub received: Vec<Received>,
    /// Addresses that were sent a login of BMCs; empty where nobody could listen (real servers).
    pub logins: Vec<Login>,
    /// Whether the hosts of the engines keep the results of commands until they are recorded.
    pub keeps_results: bool,
    /// The end of the run.
    pub end: Timestamp,
}

/// The first login that came to an address.
#[derive(Clone, Debug)]
pub struct Login {
    /// When.
    pub at: Timestamp,
    /// Where.
    pub to: IpAddr,
}

/// A member of the etcd of Kubernetes, from a moment on; it is down while its machine is.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent faults
pub struct EtcdMember {
    /// When.
    pub at: Timestamp,
    /// The machine's address.
    pub address: String,
    /// It does not run.
    pub stopped: bool,
    /// It applies nothing.
    pub behind: bool,
    /// It has raised an alarm.
    pub alarm: bool,
    /// It has no vote.
    pub learner: bool,
}

/// A notice that came to a receiver.
#[derive(Clone, Debug)]
pub struct Received {
    /// When.
    pub at: Timestamp,
    /// Which engine brought it.
    pub by: String,
    /// What it brought.
    pub notice: Value,
    /// It was taken, whatever its sender learned of that.
    pub taken: bool,
}

/// One change of one key.
#[derive(Clone, Debug)]
pub struct KeyChange {
    /// When.
    pub at: Timestamp,
    /// At which revision; all changes of one transaction share it.
    pub revision: i64,
    /// The key below the prefix: `reboots/data/0000000000000003`, `cketerm/attempts/…`, `leader//…`.
    pub key: String,
    /// Its value from now on; none = deleted.
    pub value: Option<Vec<u8>>,
}

/// One transaction on the wire.
#[derive(Clone, Debug)]
pub struct Txn {
    /// When it was carried out.
    pub at: Timestamp,
    /// Which process sent it: `engine-0`, `console`, `ckecli`.
    pub by: String,
    /// Keys below the prefix that it compares, each with the compared field: `create`, `mod`, `version`, `value`, `lease`.
    pub compares: Vec<(String, &'static str)>,
    /// Keys that its `then` puts.
    pub puts: Vec<String>,
    /// Keys that its `then` deletes.
    pub deletes: Vec<String>,
    /// Its operations, or its comparisons where these are more.
    pub operations: usize,
    /// Its bytes.
    pub bytes: usize,
    /// Whether its compares held.
    pub succeeded: bool,
    /// The store's revision after it.
    pub revision: i64,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// When.
    pub at: Timestamp,
    /// Its resourceVersion.
    pub revision: u64,
    /// `nodes`, `pods`, `poddisruptionbudgets` …
    pub resource: String,
    /// Empty where the kind has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The object before; none = it is new.
    pub before: Option<Value>,
    /// The object after; none = it is gone.
    pub after: Option<Value>,
}

/// One request to the API server.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When it was carried out.
    pub at: Timestamp,
    /// Which process sent it: `engine-0`, `kubectl`; empty where it is not known.
    pub by: String,
    /// `GET`, `PATCH` …
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The query.
    pub query: String,
    /// Its body; null where it had none.
    pub body: Value,
    /// The answer's code.
    pub code: u16,
    /// The message of a refusal; empty where there was none.
    pub said: String,
}

/// What happened to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A power command began.
    Begin,
    /// It ended; without a code it was killed.
    End(Option<i32>),
    /// The machine lost power.
    Down,
    /// Its system runs again.
    Up,
}

/// One line of the machines' log.
#[derive(Clone, Debug)]
pub struct Power {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: What,
    /// Whose: an IP address.
    pub address: String,
    /// `CKETERM_ENTRY` of the command: `reboots/3`.
    pub entry: String,
    /// `CKETERM_ATTEMPT` of the command.
    pub attempt: String,
    /// Its command line.
    pub argv: Vec<String>,
}

/// A word that somebody was told is done.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// When it was asked for.
    pub asked: Timestamp,
    /// When it was acknowledged.
    pub at: Timestamp,
    /// By whom.
    pub by: String,
    /// What.
    pub word: Word,
}

/// What was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// `rq add`: these addresses, with the indexes that they were given.
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
    /// Something else.
    Other(String),
}

/// What one engine said of the queue at one moment.
#[derive(Clone, Debug)]
pub struct Said {
    /// When.
    pub at: Timestamp,
    /// Which engine.
    pub by: String,
    /// Whether it led.
    pub leads: bool,
    /// Revision of etcd that it had seen.
    pub revision: i64,
    /// By index: the reason that it named (JSON of `model::reason::Reason`), for entries that do not move.
    pub reasons: Arc<BTreeMap<u64, Value>>,
    /// Indexes of the entries that have an effect in flight.
    pub moving: Vec<u64>,
    /// The same of the repair queue: reasons, and what has an effect in flight.
    pub repairs: Arc<BTreeMap<u64, Value>>,
    /// Indexes of the repairs that have an effect in flight.
    pub moving_repairs: Vec<u64>,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The invariant's code: `I1`.
    pub code: &'static str,
    /// When.
    pub at: Timestamp,
    /// What was seen, naming the objects.
    pub what: String,
}
