//! A record for the observers from real servers: etcd's revisions as they come, the audit log, and the machines' log.
//!
//! Kubernetes' history is read from etcd too (the API server must keep its objects there as JSON, `AS_JSON`). A watch
//! through the API server would have a gap after each of its restarts.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use etcd_client::{Client, EventType, WatchOptions};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::World;
use crate::observers::record::{ApiRequest, KeyChange, ObjectChange, Power, PowerEvent, Record};

/// Flag with which kube-apiserver keeps objects in a form that can be read here.
pub const AS_JSON: &str = "--storage-media-type=application/json";

/// Limit by which time stamps are set back. A change is stamped when the watch delivers it: milliseconds after the
/// write, or after a restart of etcd as much later as the watch needs to reconnect. A request that resulted from the
/// change may be older than the stamp.
///
/// So stamps are set back, by no more than this. A transaction with an audit record gets the time of the engine's
/// decision, by this host's clock. An attempt gets the time at which its command began. Anything earlier is a breach.
const WATCH_DELAY: SignedDuration = SignedDuration::from_millis(1500);

/// Listens from the first revision on.
pub struct Recorder {
    stop: Arc<AtomicBool>,
    keys: JoinHandle<Vec<KeyChange>>,
    objects: JoinHandle<Vec<KeyChange>>,
}

impl Recorder {
    /// Starts the recorder.
    pub fn start(world: &World) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let listen = |prefix: &'static str| {
            let (etcd, stop) = (world.etcd.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(listen(&etcd, prefix, &stop))
            })
        };
        let (keys, objects) = (listen("/cke/"), listen("/registry/"));
        Self { stop, keys, objects }
    }

    /// Returns the record so far. The test adds its own knowledge.
    pub fn finish(self, world: &World) -> Record {
        std::thread::sleep(Duration::from_secs(1)); // wait until the last writes have arrived
        let end = Timestamp::now();
        self.stop.store(true, Ordering::Relaxed);
        let power = power(world);
        let mut keys = self.keys.join().expect("the watch of keys ends");
        for key in &mut keys {
            key.key = key.key.trim_start_matches("/cke/").to_owned();
        }
        backdate(&mut keys, &power);
        let mut objects = self.objects.join().expect("the watch of objects ends");
        // both are in one etcd, so a change with a smaller revision is not newer
        for object in &mut objects {
            let later = keys.get(keys.partition_point(|k| k.revision <= object.revision));
            object.at = later.map_or(object.at, |key| object.at.min(key.at));
        }
        let objects = changed(objects);
        Record { keys, objects, api_requests: api_requests(world), power, end, ..Record::default() }
    }
}

async fn listen(etcd: &str, prefix: &str, stop: &AtomicBool) -> Vec<KeyChange> {
    let (mut all, mut next) = (Vec::new(), 1);
    while !stop.load(Ordering::Relaxed) {
        // etcd may be down: try again
        let options = WatchOptions::new().with_prefix().with_start_revision(next);
        let stream = async { Client::connect([etcd], None).await?.watch(prefix, Some(options)).await };
        let Ok(Ok(mut stream)) = tokio::time::timeout(Duration::from_secs(1), stream).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        loop {
            let answer = match tokio::time::timeout(Duration::from_millis(200), stream.message()).await {
                Err(_) if stop.load(Ordering::Relaxed) => break,
                Err(_) => continue,
                Ok(Ok(Some(answer))) if !answer.canceled() => answer,
                Ok(_) => break,
            };
            let at = Timestamp::now();
            for event in answer.events() {
                let Some(kv) = event.kv() else { continue };
                let (revision, key) = (kv.mod_revision(), String::from_utf8_lossy(kv.key()).into_owned());
                let value = (event.event_type() == EventType::Put).then(|| kv.value().to_vec());
                all.push(KeyChange { at, revision, key, value });
                next = revision + 1;
            }
        }
    }
    all
}

/// Sets stamps back, see `WATCH_DELAY`.
fn backdate(keys: &mut [KeyChange], power: &[Power]) {
    let mut earlier: BTreeMap<i64, Timestamp> = BTreeMap::new();
    for key in keys.iter() {
        let Some(value) = key.value.as_deref().and_then(|v| serde_json::from_slice::<Value>(v).ok()) else { continue };
        let proof = if key.key.starts_with("cketerm/audit/") {
            // for several attempts, use the last one
            let at = value["last"].as_str().or(value["at"].as_str());
            at.and_then(|at| at.parse().ok()).map(|at: Timestamp| at.max(key.at - WATCH_DELAY))
        } else if key.key.starts_with("cketerm/attempts/") {
            let begin = power.iter().find(|p| p.what == PowerEvent::Begin && value["id"] == *p.attempt);
            begin.map(|p| p.at).filter(|at| key.at.duration_since(*at) <= WATCH_DELAY)
        } else {
            None
        };
        if let Some(at) = proof.filter(|at| *at < key.at) {
            let first = earlier.entry(key.revision).or_insert(at);
            *first = at.min(*first);
        }
    }
    // an earlier change in etcd cannot have a later time
    let mut next = Timestamp::MAX;
    for key in keys.iter_mut().rev() {
        let at = earlier.get(&key.revision).copied().unwrap_or(key.at);
        (key.at, next) = (at.min(key.at).min(next), at.min(next));
    }
}

fn changed(changes: Vec<KeyChange>) -> Vec<ObjectChange> {
    let mut known_objects: BTreeMap<String, Value> = BTreeMap::new();
    let one = |change: KeyChange| {
        let (kind, name) = change.key.strip_prefix("/registry/")?.split_once('/')?;
        let resource = match kind {
            "minions" => "nodes",
            "pods" | "poddisruptionbudgets" | "namespaces" | "daemonsets" => kind,
            _ => return None,
        };
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let after = change.value.map(|v| {
            let mut object: Value = serde_json::from_slice(&v).expect("an object as JSON");
            object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
            object
        });
        let before = match &after {
            Some(after) => known_objects.insert(change.key.clone(), after.clone()),
            None => known_objects.remove(&change.key),
        };
        Some(ObjectChange {
            at: change.at,
            revision: u64::try_from(change.revision).expect("a revision"),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            before,
            after,
        })
    };
    changes.into_iter().filter_map(one).collect()
}

/// The audit log. The engines share the user `bench`, so they are one process here. Commands of the same user write
/// nothing to Kubernetes.
fn api_requests(world: &World) -> Vec<ApiRequest> {
    let one = |e: &Value| {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let uri = text(&e["requestURI"]);
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        let method = match e["verb"].as_str()? {
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" | "deletecollection" => "DELETE",
            _ => "GET",
        };
        let user = text(&e["user"]["username"]);
        Some(ApiRequest {
            at: e["requestReceivedTimestamp"].as_str()?.parse().ok()?,
            by: if user == "bench" { "engine-0".to_owned() } else { user },
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            body: e["requestObject"].clone(),
            code: e["responseStatus"]["code"].as_u64().and_then(|c| c.try_into().ok()).unwrap_or(0),
            message: text(&e["responseStatus"]["message"]),
        })
    };
    let mut all: Vec<ApiRequest> = world.audit().iter().filter_map(one).collect();
    all.sort_by_key(|a| a.at);
    all
}

fn power(world: &World) -> Vec<Power> {
    let text = std::fs::read_to_string(world.dir().join("reboots.log")).unwrap_or_default();
    let one = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, what, address, entry, attempt, argv @ ..] = words.as_slice() else { return None };
        let at = SignedDuration::try_from_secs_f64(at.parse().ok()?).ok()?;
        Some(Power {
            at: Timestamp::from_duration(at).ok()?,
            what: if *what == "begin" { PowerEvent::Begin } else { PowerEvent::End(Some(0)) },
            address: (*address).to_owned(),
            entry: (*entry).to_owned(),
            attempt: (*attempt).to_owned(),
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
        })
    };
    let mut all: Vec<Power> = text.lines().filter_map(one).collect();
    all.sort_by_key(|p| p.at);
    all
}
