//! Start of an engine: its options, and the handle that its owner keeps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_clients::{
    kubernetes::{Kube, Live as KubeLive},
    net::Http,
    notices::Receiver,
    power::BmcClients,
    prometheus::Prometheus,
    store::{Store, live::Live, members::EtcdMembers},
};
use cketerm_model::{
    boot_time::BootTime,
    cketerm_records::{EngineMode, Who},
    clock::Steady,
    names::NodeName,
};
use cketerm_rules::{
    console_leads::LeadAnswer,
    metal3::Metal3,
    reboot_needed::signals::SignalCache,
    registry::descriptions::DescriptionCache,
    seen::Seen,
    snapshot::{Engine, Snapshot},
};
use cketerm_runtime::{heartbeat::Heartbeat, tasks::held};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{Loop, failures::Failures, host_programs::HostPrograms};
use crate::{
    cancels::CancelRepeater, command::Spawner, counters::Counters, etcd_members::Poller,
    inventory_poller::InventoryPoller, probe::Prober, results::Publisher, start_gates::GatePoller,
};

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the engine campaigns at all; with `--observe` it does not.
    pub campaign: bool,
    /// Answer of a console's operator to whether it may lead. `None` = this engine needs none: a daemon, a sandbox.
    pub answer: Option<watch::Receiver<LeadAnswer>>,
    /// `daemon` or `console`.
    pub mode: EngineMode,
    /// Address of the engine's HTTP endpoint, for its registration.
    pub http: Option<String>,
    /// Whether it repeats cancels that CKE's write has overwritten, leading or not.
    pub repeats_cancels: bool,
    /// Whether it queries API servers and etcd's members although it neither leads nor campaigns.
    pub examines: bool,
    /// TTL of the lease.
    pub ttl: Duration,
    /// Host name: the value of the engine's key in `leader/`.
    pub host: String,
    /// The Node on which the engine runs, if it runs in a pod that knows.
    pub node: Option<NodeName>,
    /// Process id, for the registration.
    pub pid: u32,
    /// Runs the definition's commands.
    pub spawner: Spawner,
    /// HTTP client for probes of the control planes.
    pub probes: Http,
    /// Client for the members of the Kubernetes etcd.
    pub etcd_members: EtcdMembers,
    /// HTTP client for sabakan.
    pub registry: Http,
    /// Clients for the BMCs of BareMetalHosts.
    pub bmcs: BmcClients,
    /// Receivers of notices.
    pub notices: Arc<Vec<Receiver>>,
    /// HTTP client for receivers that are webhooks.
    pub webhooks: Http,
    /// Client for the site's gates.
    pub prometheus: Prometheus,
}

/// A running engine.
pub struct Handle {
    seen: watch::Receiver<Arc<Seen>>,
    counters: Arc<Counters>,
    heartbeat: Heartbeat,
    stop: Option<mpsc::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Handle {
    /// Subscribes to the inputs and results of each pass.
    pub fn seen(&self) -> watch::Receiver<Arc<Seen>> {
        self.seen.clone()
    }

    /// Counters of the effects so far.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Heartbeat of the main loop. The engine's owner waits for [`Heartbeat::stuck`] and then ends the process.
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.clone()
    }

    /// Ends the engine gracefully, within [`LONGEST_END`](super::LONGEST_END). Nothing new starts, and commands get 10
    /// s. Without another engine, hosts between off and on get a minute. Then outcomes are recorded and the lease is
    /// revoked (SAF-7).
    pub async fn stop(mut self) {
        drop(self.stop.take());
        let _ = (&mut self.task).await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.stop.is_some() {
            self.task.abort();
            self.heartbeat.end();
        }
    }
}

/// Starts an engine. Without Kubernetes it only observes.
pub fn start(store: &Store, live: Arc<Live>, kube: Option<(Kube, KubeLive)>, options: Options) -> Handle {
    let prober = Prober::start(store.clock(), options.probes.clone(), kube.as_ref().map(|(kube, _)| kube.clone()));
    let etcd = Poller::start(store.clock(), options.etcd_members.clone(), kube.as_ref().map(|(kube, _)| kube.clone()));
    let start_gates = GatePoller::start(store.clock(), options.prometheus.clone());
    let kube = kube.map(|(kube, live)| (kube, Arc::new(live)));
    let kube_live = kube.as_ref().map(|(_, live)| Arc::clone(live));
    let inventory_poller =
        InventoryPoller::start(Arc::clone(&live), kube_live, options.registry.clone(), store.clock().clone());
    let (metal3, metal3_seen) = watch::channel(Arc::new(Metal3::default()));
    let (seen_sender, seen) = watch::channel(Arc::new(Seen::default()));
    let (stop, stopped) = mpsc::channel(1);
    let steady = Steady::new(store.clock());
    let (host, node) = (options.host.clone(), options.node.clone());
    let engine = Engine { host, node, ttl: options.ttl.as_secs(), ..Engine::default() };
    let counters = Arc::new(Counters::default());
    let heartbeat = Heartbeat::new(options.ttl);
    cketerm_runtime::tasks::spawn(heartbeat.clone().watch());
    let mut helpers = JoinSet::new();
    if options.campaign && options.spawner.keeps_results() {
        let who = Who { user: "engine".to_owned(), host: options.host.clone(), ssh_client: None };
        let (live, spawner) = (Arc::clone(&live), options.spawner.clone());
        helpers.spawn(held(Publisher { store: store.clone(), live, spawner, who }.run()));
    }
    if options.repeats_cancels {
        helpers.spawn(held(CancelRepeater { store: store.clone(), live: Arc::clone(&live) }.run()));
    }
    let looped = Loop {
        heartbeat: heartbeat.clone(),
        counters: Arc::clone(&counters),
        store: store.clone(),
        clock: store.clock().clone(),
        live,
        kube,
        prober,
        reboot_signals: SignalCache::default(),
        descriptions: DescriptionCache::default(),
        etcd,
        start_gates,
        inventory_poller,
        metal3: Arc::new(metal3),
        metal3_seen,
        notice_board: Arc::default(),
        steady,
        snap: Snapshot { engine, ..Snapshot::default() },
        running_campaign: None,
        won: None,
        giving_up: None,
        proposing: None,
        leader: None,
        tasks: JoinSet::new(),
        effects: BTreeMap::new(),
        paused: BTreeMap::new(),
        failures: Failures::default(),
        seen_sender,
        next_try: BootTime::ZERO,
        next_publish: BootTime::ZERO,
        next_prune: BootTime::ZERO,
        next_batch_upkeep: BootTime::ZERO,
        pass_lock_to: None,
        work_ended: false,
        follow_up_until: None,
        prune_progress: Arc::default(),
        incomplete_since: None,
        announced: None,
        registered: None,
        host_programs: HostPrograms::default(),
        barred: (Vec::new(), None),
        _helpers: helpers,
        options,
    };
    let task = cketerm_runtime::tasks::spawn_main(looped.run(stopped));
    Handle { seen, counters, heartbeat, stop: Some(stop), task }
}
