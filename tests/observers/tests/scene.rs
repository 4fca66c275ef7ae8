//! A small manual world: three API servers, five workers and one engine that leads. Every test changes one thing.

mod cluster;

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{
    View,
    record::{
        Acknowledged, AcknowledgedCommand, ApiRequest, Breach, EngineReport, KeyChange, Login, ObjectChange, Power,
        PowerEvent, Record, Txn,
    },
};

/// Lease of the engine.
pub const LEASE: i64 = 0x7a;

/// A record in the making, with the present state of the world.
#[derive(Clone)]
pub struct Scene {
    pub record: Record,
    pub now: Timestamp,
    keys: BTreeMap<String, Vec<u8>>,
    objects: BTreeMap<(String, String, String), Value>,
    revision: i64,
    version: u64,
    leases: BTreeMap<String, i64>,
    /// The engine's report of the repair queue.
    pub repair_reasons: BTreeMap<u64, Value>,
}

pub fn address(node: &str) -> String {
    let n: u32 = node.trim_start_matches(|c: char| c.is_alphabetic()).parse().unwrap();
    if node.starts_with("cp") { format!("10.0.0.{n}") } else { format!("10.0.1.{n}") }
}

pub fn definition() -> Value {
    let nodes = ["cp1", "cp2", "cp3", "w1", "w2", "w3", "w4", "w5"];
    let nodes = nodes
        .map(|n| json!({"address": address(n), "hostname": n, "user": "root", "control_plane": n.starts_with("cp")}));
    json!({"name": "c", "nodes": nodes, "reboot": {
        "reboot_command": ["power", "cycle"], "boot_check_command": ["booted"], "max_concurrent_reboots": 2,
        "eviction_timeout_seconds": 60, "command_timeout_seconds": 30, "command_retries": 1,
        "protected_namespaces": {"matchLabels": {"protected": "yes"}},
        "protected_job_pods": {"matchLabels": {"protected": "yes"}},
    }})
}

pub fn key(index: u64) -> String {
    format!("reboots/data/{index:016x}")
}

pub fn entry(index: u64, node: &str, status: &str) -> Value {
    json!({"index": index.to_string(), "node": address(node), "status": status,
        "last_transition_time": "0001-01-01T00:00:00Z", "drain_backoff_expire": "0001-01-01T00:00:00Z"})
}

impl Scene {
    /// Creates 60 s without faults, with an engine that leads.
    pub fn new() -> Self {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut scene = Self {
            record: Record::default(),
            now,
            keys: BTreeMap::new(),
            objects: BTreeMap::new(),
            revision: 1,
            version: 100,
            leases: BTreeMap::new(),
            repair_reasons: BTreeMap::new(),
        };
        scene.write("console", &[("cluster", definition()), ("reboots/write-index", json!(0))], &[]);
        for name in ["cp1", "cp2", "cp3", "w1", "w2", "w3", "w4", "w5"] {
            let node = json!({
                "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"zone": "a"}, "annotations": {"theirs": "1"}},
                "spec": {},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": address(name)}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"bootID": format!("boot-{name}")},
                },
            });
            scene.object("nodes", "", name, Some(node));
        }
        for (name, labels) in [("safe", json!({"protected": "yes"})), ("free", json!({}))] {
            scene.object("namespaces", "", name, Some(json!({"metadata": {"name": name, "labels": labels}})));
        }
        scene.lead(0, LEASE);
        scene.advance(60.0);
        scene
    }

    pub fn advance(&mut self, seconds: f64) {
        self.now += SignedDuration::from_secs_f64(seconds);
        self.record.end = self.now;
    }

    /// Lets an engine campaign.
    pub fn lead(&mut self, engine: u32, lease: i64) {
        self.leases.insert(format!("engine-{engine}"), lease);
        let (leader, registration) = (format!("leader//{lease:x}"), format!("cketerm/engines/{lease:x}"));
        self.txn(
            &format!("engine-{engine}"),
            vec![(leader.clone(), "create")],
            &[(&leader, json!("host")), (&registration, json!({}))],
            &[],
        );
    }

    /// Records a BMC login that was sent to this address.
    pub fn login(&mut self, to: &str) {
        self.record.logins.push(Login { at: self.now, to: to.parse().unwrap() });
    }

    /// Changes a key without a known transaction: manually, or by a lease's end.
    pub fn set_key(&mut self, key: &str, value: Option<&[u8]>) {
        self.revision += 1;
        self.set(key, value.map(<[u8]>::to_vec));
    }

    fn set(&mut self, key: &str, value: Option<Vec<u8>>) {
        match &value {
            Some(value) => self.keys.insert(key.to_owned(), value.clone()),
            None => self.keys.remove(key),
        };
        let (at, revision) = (self.now, self.revision);
        self.record.keys.push(KeyChange { at, revision, key: key.to_owned(), value });
    }

    /// Present value of a key.
    pub fn get(&self, key: &str) -> Value {
        self.keys.get(key).map(|v| serde_json::from_slice(v).unwrap()).unwrap_or_default()
    }

    pub fn txn(&mut self, by: &str, compares: Vec<(String, &'static str)>, puts: &[(&str, Value)], deletes: &[&str]) {
        self.revision += 1;
        for (key, value) in puts {
            let bytes = match value {
                Value::String(raw) => raw.clone().into_bytes(),
                other => other.to_string().into_bytes(),
            };
            self.set(key, Some(bytes));
        }
        for key in deletes {
            self.set(key, None);
        }
        self.record.txns.push(Txn {
            at: self.now,
            by: by.to_owned(),
            compares,
            puts: puts.iter().map(|(k, _)| (*k).to_owned()).collect(),
            deletes: deletes.iter().map(|k| (*k).to_owned()).collect(),
            operations: 1,
            bytes: 1,
            succeeded: true,
            revision: self.revision,
        });
    }

    /// Applies a transaction of a person or another program.
    pub fn write(&mut self, by: &str, puts: &[(&str, Value)], deletes: &[&str]) {
        self.txn(by, Vec::new(), puts, deletes);
    }

    /// Applies a transaction of the leading engine, with every comparison and its audit record.
    pub fn engine(&mut self, what: &str, puts: &[(&str, Value)], deletes: &[&str]) {
        let mut compares = vec![(format!("leader//{LEASE:x}"), "create")];
        compares.extend(puts.iter().map(|(k, _)| ((*k).to_owned(), "mod")));
        compares.extend(deletes.iter().map(|k| ((*k).to_owned(), "mod")));
        for start in ["reboots/disabled", "repairs/disabled", "cluster", "constraints", "cketerm/policy"] {
            compares.push((start.to_owned(), "mod"));
        }
        let on = puts.iter().chain(&[]).map(|(k, _)| *k).chain(deletes.iter().copied()).find_map(|k| {
            let (queue, hex) = k.split_once("/data/")?;
            Some(format!("{queue}/{}", u64::from_str_radix(hex, 16).ok()?))
        });
        let on = on.or_else(|| {
            let (key, _) = puts.iter().find(|(k, _)| k.starts_with("cketerm/attempts/"))?;
            Some(key.strip_prefix("cketerm/attempts/")?.rsplit_once('/')?.0.to_owned())
        });
        let audit = format!("cketerm/audit/{:020}-{LEASE:x}-{}", self.now.as_nanosecond(), self.revision);
        let audit_record = json!({"at": self.now.to_string(), "who": {"user": "engine", "host": "h"}, "what": what,
            "on": on.unwrap_or_default(), "result": "r"});
        let mut puts = puts.to_vec();
        puts.push((&audit, audit_record));
        self.txn("engine-0", compares, &puts, deletes);
    }

    /// Queues a reboot and acknowledges it.
    pub fn add(&mut self, index: u64, node: &str) {
        let requested = self.now;
        self.write(
            "console",
            &[(&key(index), entry(index, node, "queued")), ("reboots/write-index", json!(index + 1))],
            &[],
        );
        let command = AcknowledgedCommand::Add(vec![(index, address(node))]);
        self.record.acknowledged.push(Acknowledged { requested, at: self.now, by: "console".to_owned(), command });
    }

    pub fn acknowledged(&mut self, command: AcknowledgedCommand) {
        let requested = self.now;
        self.record.acknowledged.push(Acknowledged { requested, at: self.now, by: "console".to_owned(), command });
    }

    /// Moves an entry, by the engine.
    pub fn moves(&mut self, index: u64, to: &str) {
        let mut value = self.get(&key(index));
        value["status"] = json!(to);
        value["last_transition_time"] = json!(self.whole_second());
        let back = value["drain_backoff_count"].as_i64().unwrap_or(0) + 1;
        if to == "queued" {
            value["drain_backoff_count"] = json!(back);
            let least = (300_i64 << (back - 1).min(8)).min(1200);
            value["drain_backoff_expire"] = json!(self.whole_second_after(least + 10));
        }
        let what = if to == "draining" { "drain" } else { "back off" };
        self.engine(what, &[(&key(index), value)], &[]);
    }

    pub fn whole_second(&self) -> String {
        Timestamp::from_second(self.now.as_second()).unwrap().to_string()
    }

    pub fn whole_second_after(&self, seconds: i64) -> String {
        Timestamp::from_second(self.now.as_second() + seconds).unwrap().to_string()
    }

    /// Cancels an entry as `ckecli` does.
    pub fn cancel(&mut self, index: u64) {
        let mut value = self.get(&key(index));
        value["status"] = json!("cancelled");
        self.write("console", &[(&key(index), value)], &[]);
        self.acknowledged(AcknowledgedCommand::Cancel(index));
    }

    pub fn attempt(&self, index: u64, n: u32, node: &str) -> Value {
        let object = &self.objects[&("nodes".to_owned(), String::new(), node.to_owned())];
        json!({"id": format!("reboots-{index}-{n}"), "entry": format!("reboots/{index}"), "number": n,
            "address": address(node), "node": node, "control_plane": node.starts_with("cp"), "lease": LEASE,
            "host": "h", "argv": ["power", "cycle", address(node)], "bound_seconds": 30,
            "boot_id": object["status"]["nodeInfo"]["bootID"], "node_uid": object["metadata"]["uid"],
            "start": self.now.to_string()})
    }

    pub fn ended(attempt: &Value, code: i32, at: Timestamp) -> Value {
        let mut closed = attempt.clone();
        closed["outcome"] = json!({"end": {"exit": code}, "at": at.to_string(), "stdout": "", "stderr": ""});
        closed
    }

    /// Takes an entry from a drained Node to its first command, by the engine.
    pub fn powers(&mut self, index: u64, node: &str) -> Value {
        let attempt = self.attempt(index, 1, node);
        let mut value = self.get(&key(index));
        value["status"] = json!("rebooting");
        value["last_transition_time"] = json!(self.whole_second());
        let attempt_key = format!("cketerm/attempts/reboots/{index}/1");
        self.engine("power", &[(&key(index), value), (&attempt_key, attempt.clone())], &[]);
        self.power(PowerEvent::Begin, index, 1, node);
        attempt
    }

    pub fn power(&mut self, what: PowerEvent, index: u64, n: u32, node: &str) {
        let argv = vec!["power".to_owned(), "cycle".to_owned(), address(node)];
        self.record.power.push(Power {
            at: self.now,
            what,
            address: address(node),
            entry: format!("reboots/{index}"),
            attempt: format!("reboots-{index}-{n}"),
            argv,
        });
    }

    /// Makes one more attempt, by the engine.
    pub fn retries(&mut self, index: u64, n: u32, node: &str) {
        let attempt = self.attempt(index, n, node);
        let attempt_key = format!("cketerm/attempts/reboots/{index}/{n}");
        self.engine("power", &[(&attempt_key, attempt)], &[]);
        self.power(PowerEvent::Begin, index, n, node);
    }

    /// Records the outcome of an attempt.
    pub fn ends(&mut self, index: u64, n: u32, node: &str, code: i32) {
        self.power(PowerEvent::End(Some(code)), index, n, node);
        let attempt_key = format!("cketerm/attempts/reboots/{index}/{n}");
        let closed = Self::ended(&self.get(&attempt_key), code, self.now);
        self.engine("power", &[(&attempt_key, closed)], &[]);
    }

    /// Takes the machine down and up again, and its Node with it.
    pub fn boots(&mut self, index: u64, node: &str) {
        self.power(PowerEvent::Down, index, 1, node);
        self.advance(20.0);
        self.power(PowerEvent::Up, index, 1, node);
        self.node(node, |n| n["status"]["nodeInfo"]["bootID"] = json!(format!("boot-{node}-new")));
        self.advance(1.0);
    }

    /// Removes an entry and writes its history record, by the engine.
    pub fn removes(&mut self, index: u64, outcome: &str) {
        let (attempt_key, history) =
            (format!("cketerm/attempts/reboots/{index}/1"), format!("cketerm/history/reboots-{index:016x}"));
        let attempt = self.get(&attempt_key);
        let mut attempts = Vec::new();
        if !attempt.is_null() {
            let closed =
                if attempt["outcome"].is_null() { Self::ended(&attempt, 0, self.now) } else { attempt.clone() };
            attempts.push(closed);
        }
        let end = if outcome.starts_with("booted") { "booted" } else { "unrecorded" };
        let ending = json!({"entry": format!("reboots/{index}"), "address": self.get(&key(index))["node"], "end": end,
            "outcome": outcome, "at": self.now.to_string(), "last": self.get(&key(index)), "attempts": attempts});
        let key = key(index);
        let mut deletes = vec![key.as_str()];
        if outcome.starts_with("booted") && !attempt.is_null() {
            deletes.push(&attempt_key);
        }
        self.engine("end", &[(&history, ending)], &deletes);
    }

    /// Records the leading engine's reports for this many seconds.
    pub fn reports(&mut self, seconds: u32, reasons: &[(u64, Value)], moving: &[u64]) {
        for _ in 0..seconds {
            self.advance(1.0);
            self.record.reports.push(EngineReport {
                at: self.now,
                by: "engine-0".to_owned(),
                leads: true,
                revision: self.revision,
                reasons: Arc::new(reasons.iter().cloned().collect()),
                moving: moving.to_vec(),
                repairs: Arc::new(self.repair_reasons.clone()),
                moving_repairs: Vec::new(),
            });
        }
    }

    /// Runs a complete, correct reboot of a worker or an API server, until its machine is back.
    pub fn reboot(&mut self, index: u64, node: &str) {
        self.moves(index, "draining");
        self.advance(0.5);
        self.cordon(index, node);
        self.advance(2.0);
        self.powers(index, node);
        self.advance(1.0);
        self.ends(index, 1, node, 0);
        self.boots(index, node);
    }

    /// Codes that all observers report, each once.
    pub fn codes(&self) -> Vec<&'static str> {
        let mut codes: Vec<_> = self.breaches().into_iter().map(|b| b.code).collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// Breaches that the observers of invariants report. The oracle has tests of its own.
    pub fn breaches(&self) -> Vec<Breach> {
        self.found(|code| code != super::super::oracle::CODE)
    }

    /// Breaches that the oracle reports.
    pub fn refusals(&self) -> Vec<Breach> {
        self.found(|code| code == super::super::oracle::CODE)
    }

    fn found(&self, is_asked: impl Fn(&str) -> bool) -> Vec<Breach> {
        let view = View::of(&self.record);
        let all = super::super::ALL.iter().filter(|(code, _)| is_asked(code));
        all.flat_map(|(_, observer)| observer(&view)).collect()
    }
}
