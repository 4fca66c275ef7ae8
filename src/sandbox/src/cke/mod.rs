//! A CKE at the site: campaigns for the same lock, and processes the reboot queue as the recorded CKE does.
//!
//! It uses etcd and Kubernetes through their own clients and shares no rule with cketerm, so a test can compare what
//! cketerm says about CKE with what CKE does. Its flaws are CKE's: it reads an entry and writes it later without
//! comparing revisions, so a cancel in between is lost; it starts one new drain a pass; it runs commands within the pass.
//!
//! Not included: the repair queue, the operations on certificates, etcd and components, and SSH (a machine that does not
//! run is unreachable).

mod drain;
pub mod queue;
mod site;
mod store;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cketerm_model::{attempt::Ended, clock::Clock, names::Address, reboot::RebootEntry, stored::keys::Keys};
use etcd_client::{Client, Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use jiff::Timestamp;
use tokio::{sync::watch, time::sleep};

use self::{
    queue::{Operation, operations},
    site::Site,
};
use crate::machines::Machines;

/// Time to live of the lock's lease, in seconds, as CKE's by default.
const TTL_SECONDS: i64 = 60;

/// Settings of a CKE.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Host name: the value of its key in `leader/`.
    pub host: String,
    /// Time between two passes without an operation.
    pub interval: Duration,
    /// Time between the read of an entry and the write that overwrites it.
    pub write_delay: Duration,
    /// Seed of the random parts of backoffs.
    pub seed: u64,
}

/// Refusal that stopped a drain, as the API server or the Job's pod gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Time of the refusal.
    pub at: Timestamp,
    /// Index of the entry.
    pub entry: u64,
    /// `namespace/name` of the pod.
    pub pod: String,
    /// Cause of the refusal.
    pub cause: RefusalCause,
}

/// Cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// The API server refused the eviction with status 429.
    TooManyRequests,
    /// A protected pod of a Job runs.
    Job,
}

/// A CKE that can be told to stop. It ends at once when it is dropped with its task.
#[derive(Clone)]
pub struct Cke {
    settings: Settings,
    etcd: Client,
    keys: Keys,
    kube: kube::Client,
    machines: Machines,
    clock: Clock,
    stop: Arc<watch::Sender<bool>>,
    log: Arc<Mutex<Log>>,
}

/// Events that a test compares.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Refusals, in order of time.
    pub refusals: Vec<Refusal>,
    /// Indexes of entries whose cancel was overwritten.
    pub lost_cancels: Vec<u64>,
    /// Number of terms as leader.
    pub terms: u32,
    /// Number of passes that failed.
    pub failed_passes: u32,
    random: Option<fastrand::Rng>,
}

impl Cke {
    /// Makes a CKE that uses these servers. It does nothing before [`Cke::run`].
    pub fn new(settings: Settings, etcd: Client, kube: kube::Client, machines: Machines, clock: Clock) -> Self {
        let log = Log { random: Some(fastrand::Rng::with_seed(settings.seed)), ..Log::default() };
        let (keys, stop) = (Keys::new("/cke/"), Arc::new(watch::Sender::new(false)));
        Self { settings, etcd, keys, kube, machines, clock, stop, log: Arc::new(Mutex::new(log)) }
    }

    /// Asks it to end its term: it finishes the pass, revokes its lease and campaigns no more.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns its events so far.
    pub fn log(&self) -> Log {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws a number of seconds below `limit`, for a backoff.
    fn draw(&self, limit: i64) -> i64 {
        self.locked().random.as_mut().map_or(0, |random| random.i64(0..limit))
    }

    /// Campaigns, leads, and campaigns again after a lost lease, until it is told to stop.
    pub async fn run(self) {
        while !*self.stop.borrow() {
            if let Err(error) = Box::pin(self.term()).await {
                tracing::debug!(host = self.settings.host, %error, "CKE lost its lock or a server");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Campaigns once and leads until it is told to stop, or until it fails.
    async fn term(&self) -> Result<(), Fault> {
        let mut etcd = self.etcd.clone();
        let lease = etcd.lease_grant(TTL_SECONDS, None).await?.id();
        let key = self.keys.leader(lease);
        let put = TxnOp::put(key.clone(), self.settings.host.clone(), Some(PutOptions::new().with_lease(lease)));
        let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        etcd.txn(Txn::new().when([absent]).and_then([put])).await?;
        let ended = {
            let kept = self.keep_alive(lease);
            let led = async {
                if !self.wait_for_lock(&key).await? {
                    return Ok(());
                }
                self.locked().terms += 1;
                self.lead(lease).await
            };
            tokio::select! {
                ended = kept => ended,
                ended = led => ended,
            }
        };
        etcd.lease_revoke(lease).await?;
        ended
    }

    async fn keep_alive(&self, lease: i64) -> Result<(), Fault> {
        let mut etcd = self.etcd.clone();
        let (mut keeper, mut answers) = etcd.lease_keep_alive(lease).await?;
        loop {
            keeper.keep_alive().await?;
            match answers.message().await? {
                Some(answer) if answer.ttl() > 0 => {}
                _ => return Err(Fault::Term("the lease has expired".to_owned())),
            }
            sleep(Duration::from_secs(TTL_SECONDS.unsigned_abs() / 3)).await;
        }
    }

    /// Waits until its key is the oldest one of the election. Returns whether it leads: not if it is told to stop first.
    async fn wait_for_lock(&self, key: &str) -> Result<bool, Fault> {
        loop {
            if *self.stop.borrow() {
                return Ok(false);
            }
            let oldest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
            let answer = self.etcd.clone().get(self.keys.leader_prefix(), Some(oldest)).await?;
            match answer.kvs().first() {
                Some(first) if first.key() == key.as_bytes() => return Ok(true),
                Some(_) => sleep(Duration::from_millis(500)).await,
                None => return Err(Fault::Term("its key in leader/ was deleted".to_owned())),
            }
        }
    }

    /// Passes until it is told to stop. A pass with an operation is followed by the next one at once. A pass that fails
    /// is tried again, and the lock is kept: so an entry that cannot be read stops the queues, not CKE.
    async fn lead(&self, lease: i64) -> Result<(), Fault> {
        self.cancel_running_records().await?;
        let mut stop = self.stop.subscribe();
        while !*stop.borrow_and_update() {
            let worked = match self.pass(lease).await {
                Ok(worked) => worked,
                Err(Fault::Pass(error)) => {
                    tracing::debug!(host = self.settings.host, error, "CKE's pass failed");
                    self.locked().failed_passes += 1;
                    false
                }
                Err(lost @ Fault::Term(_)) => return Err(lost),
            };
            let pause = if worked { Duration::from_millis(100) } else { self.settings.interval };
            tokio::select! {
                () = sleep(pause) => {}
                _ = stop.changed() => {}
            }
        }
        Ok(())
    }

    /// Does one pass. Returns whether it had an operation.
    async fn pass(&self, lease: i64) -> Result<bool, Fault> {
        let Some(seen) = self.look().await? else { return Ok(false) };
        let (phase, operations) = operations(&seen.facts(self.clock.wall()));
        self.publish(lease, phase, &seen).await?;
        let worked = !operations.is_empty();
        for operation in operations {
            self.carry_out(operation, &seen).await?;
        }
        Ok(worked)
    }

    /// Carries one operation out, between the two writes of its record.
    async fn carry_out(&self, operation: Operation, seen: &Site) -> Result<(), Fault> {
        let targets = operation.targets(seen);
        if matches!(operation, Operation::Reboot(_)) {
            let record = self.begin("reboot-delete-daemonset-pod", "rebootDeleteDaemonSetPodCommand", &targets).await?;
            self.end(record, Ok(String::new())).await?;
        }
        let (name, command) = operation.names();
        let record = self.begin(name, command, &targets).await?;
        let ended = self.work(operation, seen).await;
        self.end(record, ended).await
    }

    /// Does the work of an operation. Returns the `info` of its record: the machines on which it failed.
    async fn work(&self, operation: Operation, seen: &Site) -> Result<String, Fault> {
        match operation {
            Operation::Uncordon(nodes) => {
                for address in &nodes {
                    self.uncordon(seen, address).await?;
                }
                Ok(String::new())
            }
            Operation::Cancel(entries) | Operation::Dequeue(entries) => {
                for index in entries {
                    self.etcd.clone().delete(self.keys.reboot(index), None).await?;
                }
                Ok(String::new())
            }
            Operation::Reboot(entries) => self.reboot(seen, &entries).await,
            Operation::DrainTimeout(entries) => {
                for index in entries {
                    self.back_off(index).await?;
                }
                Ok(String::new())
            }
            Operation::DrainStart(index) => self.start_drain(seen, index).await,
        }
    }

    /// Marks the entries as rebooting and runs their commands, one after the other. A machine whose command failed is
    /// named in the record; its entry stays `rebooting`.
    async fn reboot(&self, seen: &Site, entries: &[u64]) -> Result<String, Fault> {
        let mut failed = Vec::new();
        for index in entries {
            let Some(entry) = self.overwrite(*index, RebootEntry::starts_reboot).await? else { continue };
            let reboot = &seen.cluster.reboot;
            let mut argv = reboot.reboot_command.clone().unwrap_or_default();
            argv.push(entry.node.to_string());
            let bound = Duration::from_secs(reboot.command_bound(3600));
            let mut rebooted = false;
            for _ in 0..reboot.tries() {
                let (ended, _, _) = self.machines.command_within(&argv, &[], Some(bound), None).await;
                rebooted = matches!(ended, Ended::Exit(0));
                if rebooted {
                    break;
                }
                sleep(Duration::from_secs(reboot.command_interval.unwrap_or(0).unsigned_abs())).await;
            }
            if !rebooted {
                failed.push(entry.node);
            }
        }
        Ok(failed_nodes("reboot", &failed))
    }
}

/// Returns the `info` of a record in CKE's words; empty if nothing failed.
fn failed_nodes(verb: &str, failed: &[Address]) -> String {
    if failed.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = failed.iter().map(Address::as_str).collect();
    format!("failed to {verb} some nodes: [{}]", names.join(" "))
}

/// Transitions as CKE writes them.
trait Transition {
    fn starts_reboot(self, now: Timestamp) -> Self;
    fn starts_drain(self, now: Timestamp) -> Self;
}

impl Transition for RebootEntry {
    fn starts_reboot(self, now: Timestamp) -> Self {
        self.moved_to(cketerm_model::reboot::RebootStatus::Rebooting, now)
    }

    fn starts_drain(self, now: Timestamp) -> Self {
        self.moved_to(cketerm_model::reboot::RebootStatus::Draining, now)
    }
}

/// Failure of CKE.
#[derive(Debug)]
enum Fault {
    /// etcd or the lease failed: CKE's term ends, and it campaigns anew.
    Term(String),
    /// Anything else, such as an entry that cannot be read: the pass ends. CKE keeps its lock and tries again.
    Pass(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Term(text) | Self::Pass(text) => f.write_str(text),
        }
    }
}

impl From<etcd_client::Error> for Fault {
    fn from(error: etcd_client::Error) -> Self {
        Self::Term(format!("etcd: {error}"))
    }
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        Self::Pass(format!("Kubernetes: {error}"))
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self::Pass(format!("JSON: {error}"))
    }
}
