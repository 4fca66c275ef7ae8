//! The main loop: observe, decide, act. It is level-triggered: a pass looks at the state, not at the event that caused
//! it. Changes of the watched state start a pass at once; a tick is the safety net. A slow effect delays only its own
//! machine (I36).

mod failures;
mod gather;
mod handle;
mod host_programs;
mod leadership;
mod upkeep;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_clients::{
    kubernetes::{Kube, Live as KubeLive},
    store::{Store, folders::FolderCursor, live::Live},
};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    cketerm_records::{EngineMode, EngineRegistration},
    clock::{Clock, Now, Steady},
    entry::EntryId,
    fence::Fence,
    kube::KubeView,
    policy::Membership,
};
use cketerm_rules::{
    beside_cke::{self, Reading},
    console_leads::LeadAnswer,
    decide::{Decision, Effect, HEALTH_CHECK_PREFIX, Planned, RegistryEffect},
    memory,
    metal3::Metal3,
    preflight_fault::PreflightFault,
    publish,
    reboot_needed::signals::SignalCache,
    registry::descriptions::DescriptionCache,
    seen::Seen,
    snapshot::{EffectOutcome, InFlight, Snapshot, UpkeepProgress},
};
use cketerm_runtime::{heartbeat::Heartbeat, tasks::held};
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
};

use self::{
    failures::Failures,
    gather::{Burst, GATHER, gather_time},
    host_programs::HostPrograms,
};
pub use self::{
    handle::{Handle, Options, start},
    upkeep::LONGEST_END,
};
use super::{
    act::Actor,
    counters::Counters,
    etcd_members::{self, Poller},
    lead::{Campaign, CandidacyEvent},
    metal3::{Board, Controller},
    notices::{self, NotificationWorkers},
    preflight,
    probe::{Prober, Targets, url},
    start_gates::{self, GatePoller},
};
use crate::inventory_poller::{InventoryPoller, Plans};

/// Longest time between two passes.
const TICK: Duration = Duration::from_secs(1);
/// State of one leadership.
struct Leader {
    actor: Arc<Actor>,
    fence: Fence,
    metal3: Controller,
    _workers: NotificationWorkers,
}

/// An effect under way.
struct RunningEffect {
    entry: Option<EntryId>,
    effect: Effect,
    /// Set if it is a check. A graceful end does not wait for checks.
    check: Option<AbortHandle>,
}

struct Loop {
    /// Heartbeat, which beats once a turn. The loop never awaits a server: every request runs in a task (SAF-6).
    heartbeat: Heartbeat,
    counters: Arc<Counters>,
    store: Store,
    clock: Clock,
    live: Arc<Live>,
    kube: Option<(Kube, Arc<KubeLive>)>,
    prober: Prober,
    /// Signals of a needed reboot, as of the last pass.
    reboot_signals: SignalCache,
    /// Nodes that differ from the definition, as of the last pass.
    descriptions: DescriptionCache,
    etcd: Poller,
    start_gates: GatePoller,
    inventory_poller: InventoryPoller,
    metal3: Board,
    metal3_seen: watch::Receiver<Arc<Metal3>>,
    /// State of the receivers of notices.
    notice_board: notices::Board,
    steady: Steady,
    snap: Snapshot,
    running_campaign: Option<Campaign>,
    /// Set after the win. The live copy of etcd must show the leader key before this boot time (SAF-3).
    won: Option<(Fence, BootTime)>,
    /// Set while the engine resigns. The candidacy is dropped at this boot time at the latest.
    giving_up: Option<BootTime>,
    /// Task that writes the schema or the identity, which must exist before any engine can lead.
    proposing: Option<tokio::task::JoinHandle<()>>,
    leader: Option<Leader>,
    tasks: JoinSet<(String, EffectOutcome)>,
    /// The effect under way on each machine.
    effects: BTreeMap<String, RunningEffect>,
    /// Machines without new effects after a failed one, with the boot time at which the pause ends.
    paused: BTreeMap<String, BootTime>,
    failures: Failures,
    seen_sender: watch::Sender<Arc<Seen>>,
    next_try: BootTime,
    next_publish: BootTime,
    next_prune: BootTime,
    /// Boot time of the next look at the batches.
    next_batch_upkeep: BootTime,
    /// Host of the engine that takes the lock, by the last pass.
    pass_lock_to: Option<String>,
    /// Whether the leader retires and its work has ended, by the snapshot of the present pass.
    work_ended: bool,
    /// Boot time until which a leader without work waits with its resignation for what follows from the work.
    follow_up_until: Option<BootTime>,
    /// Progress of the searches for old records, by folder.
    prune_progress: Arc<tokio::sync::Mutex<BTreeMap<String, FolderCursor>>>,
    incomplete_since: Option<BootTime>,
    /// Held while the engine's registration says that it stands back.
    announced: Option<tokio::sync::oneshot::Sender<()>>,
    registered: Option<EngineRegistration>,
    host_programs: HostPrograms,
    /// Kinds of faults, and why this engine stands back (without digits), as logged last.
    barred: (Vec<std::mem::Discriminant<PreflightFault>>, Option<String>),
    /// Tasks that need no leadership: results of commands whose leader is gone, and lost cancels.
    _helpers: JoinSet<()>,
    options: Options,
}

impl Loop {
    async fn run(mut self, mut stopped: mpsc::Receiver<()>) {
        let mut store_changed = self.live.subscribe();
        let mut kube_changed = self.kube.as_ref().map(|(_, live)| live.subscribe());
        let mut burst = Burst::default();
        loop {
            self.heartbeat.beat();
            let began = tokio::time::Instant::now();
            let wake = self.pass();
            let after_slow_pass = gather_time(began.elapsed());
            let mut gather = None;
            tokio::select! {
                // The order is fixed, so that frequent changes starve no branch and a simulation is reproducible.
                biased;
                _ = stopped.recv() => break,
                event = next_event(self.running_campaign.as_mut()) => self.lead_event(event),
                Some(done) = self.tasks.join_next() => {
                    let health = done.as_ref().is_ok_and(|(place, _)| place.starts_with(HEALTH_CHECK_PREFIX));
                    self.effect_completed(done);
                    // A thousand health checks may end at once. A pass for each of them would be most of the work.
                    let gathers = !health && burst.gathers(tokio::time::Instant::now());
                    gather = after_slow_pass.filter(|_| gathers).or(health.then_some(GATHER));
                }
                changed = store_changed.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let gathers = burst.gathers(tokio::time::Instant::now());
                    gather = after_slow_pass.filter(|_| gathers);
                }
                () = maybe_changed(kube_changed.as_mut(), &self.snap.kube) => gather = after_slow_pass,
                () = self.prober.changed() => {}
                () = self.etcd.changed() => {}
                () = self.start_gates.changed() => {}
                () = self.inventory_poller.changed() => {}
                _ = self.metal3_seen.changed() => {}
                () = answered(self.options.answer.as_mut()) => {}
                () = tokio::time::sleep(wake) => {}
            }
            if let Some(time) = gather {
                tokio::time::sleep(time).await;
            }
            // Everything else that has ended meanwhile belongs to the same pass.
            while let Some(done) = self.tasks.try_join_next() {
                self.effect_completed(done);
            }
        }
        let heartbeat = self.heartbeat.clone();
        Box::pin(self.shut_down()).await;
        heartbeat.end();
    }

    /// Runs one pass; returns the longest time to sleep.
    fn pass(&mut self) -> Duration {
        self.confirm_win();
        let now = self.look();
        self.update_leadership(now);
        memory::observe(&mut self.snap, now);
        beside_cke::observe(&mut self.snap, now);
        let began = self.clock.boot();
        let (mut decision, reading) = beside_cke::decision(&self.snap, now);
        self.counters.pass(self.clock.boot().saturating_duration_since(began));
        self.aim(&decision);
        self.pass_lock_to.clone_from(&decision.pass_lock);
        if self.leader.is_some() {
            self.publish_progress(&decision, now);
            self.prune(now);
            self.keep_batches(now);
        }
        let wake = decision.wake;
        let effects = std::mem::take(&mut decision.effects);
        self.resign_after_work(&effects);
        self.publish_seen(decision, reading.as_ref(), now);
        self.begin(effects, now);
        let next = wake.into_iter().chain(self.paused.values().copied()).min();
        next.map_or(TICK, |at| Duration::from((at - now.boot).max(Seconds::new(0.001))).min(TICK))
    }

    /// Takes the current live copies into the snapshot.
    fn look(&mut self) -> Now {
        if self.leader.is_none() {
            // An engine that does not lead has no deadlines of its own, so it may read the wall clock again.
            self.steady = Steady::new(&self.clock);
        }
        let now = self.steady.now();
        if let (Some(leading), Some(leader)) = (&mut self.snap.engine.leading, &self.leader) {
            leading.acknowledged = leader.fence.life().acknowledged();
        }
        self.snap.store = self.live.borrow();
        self.snap.kube = self.kube.as_ref().map_or_else(|| Arc::new(KubeView::default()), |(_, live)| live.borrow());
        self.snap.reboot_signals = self.reboot_signals.look(&self.snap.store.policy(), &self.snap.kube);
        self.snap.undescribed = self.descriptions.look(&self.snap.store, &self.snap.kube);
        self.snap.probes = self.prober.seen();
        self.snap.etcd = self.etcd.seen();
        self.snap.start_gates = self.start_gates.seen();
        self.snap.registry = self.inventory_poller.seen();
        self.snap.metal3 = Arc::clone(&self.metal3_seen.borrow_and_update());
        let (engine, store, options) = (&mut self.snap.engine, &self.snap.store, &self.options);
        self.host_programs.look(engine, store, &options.bmcs, &options.spawner, now.boot);
        self.snap.engine.unable = self.options.spawner.unable();
        self.snap.engine.observing = preflight::faults(&self.snap, self.kube.is_some());
        // The leader counts from its win, when the clock was right.
        if self.leader.is_none() {
            self.snap.engine.observing.extend(preflight::clock_was_set(&self.snap.kube, now));
        }
        let boot = now.boot;
        let over: Vec<String> = self.paused.iter().filter(|(_, at)| **at <= boot).map(|(m, _)| m.clone()).collect();
        for machine in over {
            self.paused.remove(&machine);
            self.snap.in_flight.remove(&machine);
        }
        now
    }

    /// Sets the targets of watches, probes and pollers that the decision needs.
    fn aim(&self, decision: &Decision) {
        let leads = self.leader.is_some();
        if let Some((_, live)) = &self.kube {
            let watches = leads || beside_cke::applies(&self.snap.store);
            live.watch_pods(if watches { decision.watch_pods.clone() } else { std::collections::BTreeSet::new() });
            // a console shows the plan of a definition that follows the Nodes
            let follows_nodes = self.snap.store.policy().membership == Membership::Nodes
                && (leads || self.options.mode == EngineMode::Console);
            live.watch_endpoints(leads || follows_nodes);
            live.watch_control_plane_pods(follows_nodes);
            if leads && decision.prove_watches {
                live.require_fresh_proof();
            }
            // Hosts are watched whatever the policies are. Only the BareMetalHosts show a power cycle under way, a host
            // that is held off, and a machine that does not boot.
            live.watch_hosts(leads || self.options.mode == EngineMode::Console);
            live.watch_maintenance_requests(leads && self.snap.store.policy().maintenance_requests);
        }
        let policy = self.snap.store.policy();
        let campaigns = self.options.campaign
            && preflight::may_campaign(&self.snap.store).is_ok()
            && self.not_campaigning().is_none();
        let mut targets = Targets { urls: BTreeMap::new(), often: leads && decision.probe_often };
        if let Some(definition) = self.snap.store.definition()
            && (leads || campaigns || self.options.examines)
            && let Some(probe_url) = policy.control_plane_probe.url()
        {
            targets.urls = definition
                .members
                .control_planes(&definition.cluster)
                .map(|n| (n.address.clone(), url(probe_url, &n.address)))
                .collect();
        }
        self.prober.aim(targets);
        self.etcd.aim(etcd_members::targets(
            &self.snap,
            leads || self.options.examines,
            campaigns,
            decision.ask_etcd || self.options.examines,
        ));
        let leading = self.snap.engine.leading.as_ref().filter(|_| leads && decision.ask_start_gates);
        self.start_gates.aim(
            leading
                .zip(policy.start_gates.clone())
                .map(|(leading, settings)| start_gates::Target { settings: *settings, leading_since: leading.since }),
        );
        // The leader queries sabakan. A console does so too, for display.
        let (console, again) = (self.options.mode == EngineMode::Console, leads && decision.auto_repair.asks_again);
        let follows_nodes = policy.membership == Membership::Nodes;
        let plans = match (leads && (follows_nodes || self.snap.store.sabakan.enabled()), console) {
            (true, _) => Plans::Applied,
            (false, true) => Plans::Shown,
            (false, false) => Plans::None,
        };
        self.inventory_poller.want(leads || console, plans, again.then(|| self.steady.now().boot));
    }

    fn publish_seen(&self, decision: Decision, reading: Option<&Reading>, now: Now) {
        let reasons = publish::merged(&self.snap, decision.reasons);
        let mut snapshot = self.snap.clone();
        if let Some(reading) = reading {
            snapshot.store = beside_cke::with_progress(&snapshot.store, reading);
        }
        self.seen_sender.send_replace(Arc::new(Seen {
            snapshot,
            now,
            reasons: Arc::new(reasons),
            orphans: Arc::new(decision.orphans),
            applying: Arc::new(decision.registry),
            auto_repair: Arc::new(decision.auto_repair),
            notices: Arc::clone(&self.notice_board.borrow()),
        }));
    }

    /// Starts each effect in a task of its own.
    fn begin(&mut self, effects: Vec<Planned>, now: Now) {
        let Some(leader) = &self.leader else { return };
        for planned in effects {
            let machine = planned.machine.clone();
            let attempt = planned.effect.run_id();
            let in_flight = InFlight {
                what: planned.effect.as_str().to_owned(),
                entry: planned.entry,
                starts: planned.effect.starts(),
                patches_node: planned.effect.patches_node(),
                upkeep: planned.effect.upkeep().map(UpkeepProgress::UnderWay),
                evictions: planned.effect.evictions(),
                attempt,
                since: now.boot,
            };
            self.snap.in_flight.insert(machine.clone(), in_flight);
            let (entry, effect) = (planned.entry, planned.effect.clone());
            let (actor, decided) = (Arc::clone(&leader.actor), now.boot);
            let is_check = matches!(planned.effect, Effect::BootCheck { .. } | Effect::HealthCheck { .. });
            let place = machine.clone();
            let task =
                self.tasks.spawn(held(async move { (machine, Box::pin(actor.execute(planned, decided)).await) }));
            self.effects.insert(place, RunningEffect { entry, effect, check: is_check.then_some(task) });
        }
    }

    /// Records the outcome of an effect in the memory.
    fn effect_completed(&mut self, done: Result<(String, EffectOutcome), tokio::task::JoinError>) {
        let (machine, outcome) = match done {
            Ok(done) => done,
            // The task was aborted when leadership was lost; the maps were cleared then.
            Err(e) if e.is_cancelled() => return,
            Err(e) => {
                // A task panicked, so its progress is unknown. The engine resigns; the next leadership decides from
                // what is stored.
                tracing::error!(error = %e, "an effect ended abnormally; resigning");
                self.give_up("an effect ended abnormally");
                return;
            }
        };
        self.snap.in_flight.remove(&machine);
        let Some(RunningEffect { entry, effect, .. }) = self.effects.remove(&machine) else { return };
        self.counters.ended(effect.as_str(), &outcome);
        let now = self.steady.now();
        let pause = self.failures.pause_after(&machine, &effect, &outcome);
        match &outcome {
            EffectOutcome::Lost => {
                self.lose_leadership("a fenced write was refused");
                return;
            }
            EffectOutcome::Failed(why) => {
                tracing::warn!(machine, what = effect.as_str(), why, "effect failed; retrying");
            }
            EffectOutcome::Stale(cause) => {
                let pause_seconds = pause.map(Seconds::get);
                let what = effect.as_str();
                tracing::debug!(machine, what, %cause, pause_seconds, "effect is outdated; deciding again");
            }
            EffectOutcome::TooLarge(size) => {
                tracing::error!(machine, what = effect.as_str(), %size, "too large for etcd; nothing was written");
                if let Effect::Registry(RegistryEffect::Apply(apply)) = &effect {
                    self.snap.registry_refused = Some((apply.digest.clone(), apply.too_large(*size)));
                }
            }
            EffectOutcome::Done => self.note_progress(entry, &effect),
            EffectOutcome::Rechecked(_)
            | EffectOutcome::Previewed(_)
            | EffectOutcome::Explained(_)
            | EffectOutcome::Answers(_)
            | EffectOutcome::Check(_)
            | EffectOutcome::Command(_) => {}
        }
        if let Some(span) = pause {
            let at = now.boot;
            let failed = matches!(outcome, EffectOutcome::Failed(_));
            let waiting = InFlight {
                what: "waiting to retry".to_owned(),
                entry,
                starts: effect.starts(),
                patches_node: false,
                upkeep: failed.then(|| effect.upkeep()).flatten().map(UpkeepProgress::Failed),
                evictions: std::collections::BTreeMap::new(),
                attempt: None,
                since: at,
            };
            self.snap.in_flight.insert(machine.clone(), waiting);
            self.paused.insert(machine, at + span);
        }
        if let Some(id) = entry {
            memory::remember(&mut self.snap.work, id, &effect, &outcome, now);
        }
    }

    fn clear(&mut self) {
        self.tasks.abort_all();
        self.tasks = JoinSet::new();
        self.effects.clear();
        self.paused.clear();
        self.failures.clear();
        self.snap.in_flight.clear();
        self.snap.work.clear();
    }
}

async fn next_event(running_campaign: Option<&mut Campaign>) -> Option<CandidacyEvent> {
    match running_campaign {
        Some(running_campaign) => running_campaign.events.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits until the operator of the console answers whether it may lead.
async fn answered(answer: Option<&mut watch::Receiver<LeadAnswer>>) {
    let changed = match answer {
        Some(answer) => answer.changed().await.is_ok(),
        None => false,
    };
    // a console that is gone answers nothing more
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// Waits until the view differs from this one. A pass may take a view before its change is signalled.
async fn maybe_changed(changed: Option<&mut watch::Receiver<Arc<KubeView>>>, seen: &Arc<KubeView>) {
    let Some(changed) = changed else { return std::future::pending().await };
    loop {
        if changed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if !Arc::ptr_eq(&changed.borrow(), seen) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
