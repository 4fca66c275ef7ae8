//! The engines of a simulation. Each is a process that can crash, freeze, lose its connections, and restart.

use std::sync::{Arc, Mutex};

use cketerm_engine::{command::Spawner, run::Handle};
use cketerm_model::{
    cketerm_records::EngineMode,
    clock::{Clock, SkewedClock},
};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::faults::{FaultCounts, FaultHit};
use cketerm_scenario::{Commands, Links, ResultStore, Stage, backends};
use fastrand::Rng;
use jiff::SignedDuration;
use tokio::time::Instant;

use crate::webhook_receiver::WebhookReceiver;

/// Seconds that a reboot command may take where hosts keep results. Without its result the outcome of a dead leader's
/// command would be unknown for longer than I47 allows.
pub const LONG_COMMAND_TIMEOUT: u64 = 90;

/// Reports whether the hosts of a seed's engines keep results of commands, which then may take long. True for two seeds
/// of nine, so that the other seeds, and those in the file `regressions`, do not change.
pub fn hosts_keep_results(seed: u64) -> bool {
    matches!(seed % 9, 0 | 6)
}

/// Place of one engine: one process at a time, restarted again and again.
pub struct Slot {
    pub name: String,
    pub gate: Gate,
    pub links: Links,
    pub clock: SkewedClock,
    pub handle: Option<Handle>,
    /// Number of starts, and the time of each.
    pub start_count: u32,
    pub start_times: Vec<Instant>,
    rng: Rng,
    ttl: u64,
    hits: FaultCounts,
    met: Vec<FaultHit>,
    webhook_receiver: Option<WebhookReceiver>,
    /// The host's store for results of commands; it outlives every process.
    disk: Option<ResultStore>,
    /// Runs its commands, if not the machines do.
    spawner: Option<MakeSpawner>,
}

/// Makes the spawner of an engine with this clock.
pub type MakeSpawner = Arc<dyn Fn(Clock) -> Spawner + Send + Sync>;

/// All engines, shared with the code that disturbs them.
pub type Engines = Arc<Mutex<Vec<Slot>>>;

impl Slot {
    pub fn new(name: &str, true_time: &Clock, ttl: u64, rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        // within the 5 s that the preflight allows
        let clock = SkewedClock::new(true_time, SignedDuration::from_millis(rng.i64(-1500..1500)));
        let gate = Gate::default();
        let links = Links::new(name, &gate, rng.u64(..));
        Self {
            name: name.to_owned(),
            gate,
            links,
            clock,
            handle: None,
            start_count: 0,
            start_times: Vec::new(),
            rng,
            ttl,
            hits: FaultCounts::new(),
            met: Vec::new(),
            webhook_receiver: None,
            disk: None,
            spawner: None,
        }
    }

    /// Sets what runs its commands, if not the machines do.
    pub fn with_spawner(self, spawner: Option<MakeSpawner>) -> Self {
        Self { spawner, ..self }
    }

    /// Lets its engine send notices to a webhook.
    pub fn with_hook(self, webhook_receiver: &WebhookReceiver) -> Self {
        Self { webhook_receiver: Some(webhook_receiver.clone()), ..self }
    }

    /// Sets whether its host keeps results of commands.
    pub fn with_disk(self, keeps: bool) -> Self {
        Self { disk: keeps.then(ResultStore::default), ..self }
    }

    /// Starts a process, after the previous one has died.
    pub async fn start(slots: &Engines, at: usize, stage: &Stage) {
        let (gate, backends) = {
            let mut slots = slots.lock().unwrap();
            let slot = &mut slots[at];
            slot.keep_hits();
            slot.start_count += 1;
            slot.start_times.push(Instant::now());
            slot.gate = Gate::default();
            slot.links = Links::new(&slot.name, &slot.gate, slot.rng.u64(..));
            let mut backends = backends(&stage.sandbox, &slot.name, Clock::new(slot.clock.clone()), &slot.links);
            if let Some(webhook_receiver) = &slot.webhook_receiver {
                (backends.notices, backends.webhooks) =
                    (WebhookReceiver::receivers(), webhook_receiver.http(&slot.name));
            }
            if let Some(disk) = slot.disk.clone() {
                let (machines, clock) = (stage.sandbox.machines.clone(), Clock::new(slot.clock.clone()));
                backends.spawner = Spawner::elsewhere(Commands { machines, clock, disk: Some(disk) });
            }
            if let Some(spawner) = &slot.spawner {
                backends.spawner = spawner(Clock::new(slot.clock.clone()));
            }
            backends.ttl = std::time::Duration::from_secs(slot.ttl);
            backends.pid = u32::try_from(at).unwrap() * 100 + slot.start_count;
            (slot.gate.clone(), backends)
        };
        let handle = gate.hold(async move { backends.start(EngineMode::Daemon, true, None) }).await;
        // a stuck main loop ends the process, as `daemon::run` does
        let stuck = handle.heartbeat().stuck();
        tokio::spawn(async move {
            stuck.await;
            gate.kill();
        });
        slots.lock().unwrap()[at].handle = Some(handle);
    }

    fn keep_hits(&mut self) {
        for link in [&self.links.etcd, &self.links.kubernetes] {
            for (name, count) in link.hits() {
                *self.hits.entry(name).or_default() += count;
            }
            self.met.extend(link.met());
        }
    }

    pub fn all_hits(&mut self) -> FaultCounts {
        self.keep_hits();
        self.links = Links::new(&self.name, &self.gate, 0);
        self.hits.clone()
    }

    /// Individual faults; [`Self::all_hits`] returns their counts.
    pub fn met(&self) -> &[FaultHit] {
        &self.met
    }
}
