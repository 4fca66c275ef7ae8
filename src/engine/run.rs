//! The loop: observe, decide, act. Level-triggered: a pass looks at the state, not at the event that woke it; the
//! watches wake it at once and a tick is the safety net. A slow effect delays only its own machine (I36).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    act::Actor,
    command::Spawner,
    decide::{Decision, Effect, Planned, decide},
    lead::{LeadEvent, LeadOrder, Standing},
    memory, preflight,
    probe::{Prober, Targets, url},
    publish,
    snapshot::{Came, Engine, InFlight, Leading, Seen, Snapshot, secs},
};
use crate::{
    clock::{Clock, Now, Steady},
    fence::Fence,
    kubernetes::{Kube, Live as KubeLive},
    model::{
        entry::EntryId,
        kube::KubeView,
        ours::{EngineRegistration, Who},
        reason::Reason,
    },
    store::{Store, live::Live},
};

/// The safety net: a pass at least so often.
const TICK: Duration = Duration::from_secs(1);
/// An engine that lacks programs or good probes lets a complete one go first for so long.
const MODESTY: f64 = 60.0;
/// Between attempts to stand, propose an identity or create the schema.
const AGAIN: f64 = 3.0;
/// Between writes of progress.
const PUBLISH: f64 = 0.5;
/// How long a graceful end waits for commands (spec/safety.md, Losing the lock, or a graceful end).
const FAREWELL: Duration = Duration::from_secs(10);

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether it campaigns at all; `--observe` does not.
    pub campaign: bool,
    /// `daemon` or `console`.
    pub mode: &'static str,
    /// Address of its HTTP endpoint, for its registration.
    pub http: Option<String>,
    /// TTL of its lease.
    pub ttl: Duration,
    /// Host name: the value of its key in `leader/`.
    pub host: String,
    /// Runs the definition's commands.
    pub spawner: Spawner,
}

/// A running engine.
pub struct Handle {
    seen: watch::Receiver<Arc<Seen>>,
    stop: Option<mpsc::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Handle {
    /// What each pass saw and concluded.
    pub fn seen(&self) -> watch::Receiver<Arc<Seen>> {
        self.seen.clone()
    }

    /// Ends gracefully: nothing new starts, commands get 10 s, what ended is recorded, the lease is revoked.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        let _ = (&mut self.task).await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.stop.is_some() {
            self.task.abort();
        }
    }
}

/// Starts an engine. Without Kubernetes it only observes.
pub fn start(
    store: &Store,
    live: Arc<Live>,
    kube: Option<(Kube, KubeLive)>,
    options: Options,
) -> anyhow::Result<Handle> {
    let prober = Prober::start(store.clock())?;
    let (tell, seen) = watch::channel(Arc::new(Seen::default()));
    let (stop, stopped) = mpsc::channel(1);
    let steady = Steady::new(store.clock());
    let engine = Engine { host: options.host.clone(), ttl: options.ttl.as_secs(), ..Engine::default() };
    let looped = Loop {
        store: store.clone(),
        clock: store.clock().clone(),
        live,
        kube: kube.map(|(kube, live)| (kube, Arc::new(live))),
        prober,
        steady,
        snap: Snapshot { engine, ..Snapshot::default() },
        standing: None,
        leader: None,
        tasks: JoinSet::new(),
        effects: BTreeMap::new(),
        paused: BTreeMap::new(),
        tell,
        next_try: 0.0,
        next_publish: 0.0,
        incomplete_since: None,
        running: None,
        registered: None,
        programs_of: None,
        options,
    };
    let task = tokio::spawn(looped.run(stopped));
    Ok(Handle { seen, stop: Some(stop), task })
}

/// What one leadership has.
struct Leader {
    actor: Arc<Actor>,
    fence: Fence,
}

struct Loop {
    store: Store,
    clock: Clock,
    live: Arc<Live>,
    kube: Option<(Kube, Arc<KubeLive>)>,
    prober: Prober,
    steady: Steady,
    snap: Snapshot,
    standing: Option<Standing>,
    leader: Option<Leader>,
    tasks: JoinSet<(String, Came)>,
    /// What each machine's effect under way is.
    effects: BTreeMap<String, (Option<EntryId>, Effect)>,
    /// Machines that are let alone until then, after an effect failed (boot-time seconds).
    paused: BTreeMap<String, f64>,
    tell: watch::Sender<Arc<Seen>>,
    next_try: f64,
    next_publish: f64,
    incomplete_since: Option<f64>,
    /// What we last wrote under `reboots/running` in this leadership.
    running: Option<bool>,
    registered: Option<EngineRegistration>,
    programs_of: Option<i64>,
    options: Options,
}

impl Loop {
    async fn run(mut self, mut stopped: mpsc::Receiver<()>) {
        let mut store_changed = self.live.subscribe();
        let mut kube_changed = self.kube.as_ref().map(|(_, live)| live.subscribe());
        loop {
            let wake = self.pass().await;
            tokio::select! {
                _ = stopped.recv() => break,
                changed = store_changed.changed() => if changed.is_err() { break },
                () = maybe_changed(kube_changed.as_mut()) => {}
                () = self.prober.changed() => {}
                Some(done) = self.tasks.join_next() => self.came(done),
                event = next_event(self.standing.as_mut()) => self.lead_event(event).await,
                () = tokio::time::sleep(wake) => {}
            }
            // Whatever else has happened meanwhile belongs to the same pass.
            while let Some(done) = self.tasks.try_join_next() {
                self.came(done);
            }
        }
        self.farewell().await;
    }

    /// One pass; returns how long to sleep at most.
    async fn pass(&mut self) -> Duration {
        let now = self.look();
        self.mind_leadership(now).await;
        memory::observe(&mut self.snap, now);
        let decision = decide(&self.snap, now);
        self.aim(&decision);
        if self.leader.is_some() {
            self.publish_progress(&decision, now).await;
        }
        let wake = decision.wake;
        let Decision { effects, reasons, orphans, .. } = decision;
        self.tell(reasons, orphans, now);
        self.begin(effects, now);
        let until_wake =
            wake.map_or(TICK, |at| Duration::try_from_secs_f64((at - secs(now.boot)).max(0.001)).unwrap_or(TICK));
        let until_pause = self
            .paused
            .values()
            .map(|at| Duration::try_from_secs_f64((at - secs(now.boot)).max(0.001)).unwrap_or(TICK))
            .min()
            .unwrap_or(TICK);
        until_wake.min(until_pause).min(TICK)
    }

    /// Takes the copies as they are now.
    fn look(&mut self) -> Now {
        if self.leader.is_none() {
            // Who does not lead has no deadlines of its own: the clock may be read afresh.
            self.steady = Steady::new(&self.clock);
        }
        let now = self.steady.now();
        self.snap.store = self.live.borrow();
        self.snap.kube = self.kube.as_ref().map_or_else(|| Arc::new(KubeView::default()), |(_, live)| live.borrow());
        self.snap.probes = self.prober.seen();
        let revision = self.snap.store.cluster.as_ref().map(|c| c.mod_revision);
        if revision != self.programs_of {
            self.programs_of = revision;
            let definition = self.snap.store.definition();
            self.snap.engine.missing_programs =
                definition.map_or_else(Vec::new, |d| preflight::missing_programs(&d.cluster, &self.options.spawner));
        }
        self.snap.engine.observing = preflight::faults(&self.snap, self.kube.is_some());
        let boot = secs(now.boot);
        let over: Vec<String> = self.paused.iter().filter(|(_, at)| **at <= boot).map(|(m, _)| m.clone()).collect();
        for machine in over {
            self.paused.remove(&machine);
            self.snap.in_flight.remove(&machine);
        }
        now
    }

    /// Watches what the decision needs to see.
    fn aim(&self, decision: &Decision) {
        let leads = self.leader.is_some();
        if let Some((_, live)) = &self.kube {
            live.watch_pods(if leads { decision.watch_pods.clone() } else { std::collections::BTreeSet::new() });
            live.watch_endpoints(leads);
        }
        let policy = self.snap.store.policy();
        let campaigns = self.options.campaign && preflight::may_campaign(&self.snap.store).is_ok();
        let mut targets = Targets { urls: BTreeMap::new(), often: leads && decision.probe_often };
        if let Some(definition) = self.snap.store.definition()
            && (leads || campaigns)
            && policy.control_plane_probe != "node"
        {
            targets.urls = definition
                .members
                .control_planes(&definition.cluster)
                .map(|n| (n.address.clone(), url(&policy.control_plane_probe, &n.address)))
                .collect();
        }
        self.prober.aim(targets);
    }

    fn tell(&self, reasons: BTreeMap<EntryId, Reason>, orphans: BTreeMap<String, Reason>, now: Now) {
        let reasons = publish::merged(&self.snap, reasons);
        self.tell.send_replace(Arc::new(Seen {
            snapshot: self.snap.clone(),
            now,
            reasons: Arc::new(reasons),
            orphans: Arc::new(orphans),
        }));
    }

    /// Starts the effects, a task each.
    fn begin(&mut self, effects: Vec<Planned>, now: Now) {
        let Some(leader) = &self.leader else { return };
        for planned in effects {
            let machine = planned.machine.clone();
            let attempt = match &planned.effect {
                Effect::Power { attempt, .. } | Effect::RunAgain { attempt, .. } => Some(attempt.id.clone()),
                _ => None,
            };
            let in_flight = InFlight {
                what: planned.effect.word().to_owned(),
                entry: planned.entry,
                starts: planned.effect.starts(),
                attempt,
                since: secs(now.boot),
            };
            self.snap.in_flight.insert(machine.clone(), in_flight);
            self.effects.insert(machine.clone(), (planned.entry, planned.effect.clone()));
            let (actor, decided) = (Arc::clone(&leader.actor), now.boot);
            self.tasks.spawn(async move { (machine, actor.carry_out(planned, decided).await) });
        }
    }

    /// Puts what came of an effect into the memory.
    fn came(&mut self, done: Result<(String, Came), tokio::task::JoinError>) {
        let (machine, came) = match done {
            Ok(done) => done,
            // Aborted with a lost leadership: the maps were cleared then.
            Err(e) if e.is_cancelled() => return,
            Err(e) => {
                // A task of ours died and nobody knows how far it came: another leadership decides from what is stored.
                tracing::error!(error = %e, "an effect ended abnormally: resigns");
                self.ask(LeadOrder::Resign);
                self.lose("an effect ended abnormally");
                return;
            }
        };
        self.snap.in_flight.remove(&machine);
        let Some((entry, effect)) = self.effects.remove(&machine) else { return };
        let now = self.steady.now();
        let pause = match &came {
            Came::Lost => {
                self.lose("a fenced write was refused");
                return;
            }
            Came::Failed(why) => {
                tracing::warn!(machine, what = effect.word(), why, "effect failed, is tried again");
                Some(memory::PAUSE)
            }
            Came::Stale => Some(0.1),
            _ => None,
        };
        if let Some(seconds) = pause {
            let at = secs(now.boot);
            let waiting =
                InFlight { what: "waits to try again".to_owned(), entry, starts: false, attempt: None, since: at };
            self.snap.in_flight.insert(machine.clone(), waiting);
            self.paused.insert(machine, at + seconds);
        }
        if let Some(id) = entry {
            memory::remember(&mut self.snap.work, id, &effect, &came, now);
        }
    }

    async fn publish_progress(&mut self, decision: &Decision, now: Now) {
        let at = secs(now.boot);
        let Some(leader) = &self.leader else { return };
        if at < self.next_publish {
            return;
        }
        let Some(change) = publish::changes(&self.store, &self.snap, decision, &mut self.running, now) else { return };
        self.next_publish = at + PUBLISH;
        let Ok(permit) = leader.fence.permit_record() else { return };
        let store = self.store.clone();
        // Never in the way of the pass: progress is for people.
        tokio::spawn(async move {
            if let Err(e) = store.commit(&permit, change).await {
                tracing::debug!(error = %e, "progress not written");
            }
        });
    }

    /// Stands, resigns, proposes: whatever the policy, the preflight and the others ask for.
    async fn mind_leadership(&mut self, now: Now) {
        let at = secs(now.boot);
        if self.leader.is_some() {
            self.mind_resigning();
            return;
        }
        if !self.options.campaign || !self.snap.store.synced || at < self.next_try {
            return;
        }
        let who = self.who();
        if self.snap.store.schema.is_none() {
            self.next_try = at + AGAIN;
            if let Err(e) = self.store.ensure_schema(&who).await {
                tracing::warn!(error = %e, "cketerm/schema could not be created");
            }
            return;
        }
        if self.snap.store.identity.is_none()
            && let Some(uid) = self.snap.kube.cluster_uid.clone()
        {
            self.next_try = at + AGAIN;
            if let Err(e) = self.store.propose_identity(&uid, &who).await {
                tracing::warn!(error = %e, "cketerm/identity could not be proposed");
            }
            return;
        }
        let fit = self.snap.engine.observing.is_empty() && preflight::may_campaign(&self.snap.store).is_ok();
        let registration = self.registration();
        if self.standing.is_some() {
            if !fit {
                self.ask(LeadOrder::Resign);
            } else if self.registered.as_ref() != Some(&registration) {
                self.registered = Some(registration.clone());
                self.ask(LeadOrder::Register(registration));
            }
            return;
        }
        self.snap.engine.standing_back = self.stands_back(at, &registration);
        if !fit || self.snap.engine.standing_back.is_some() {
            return;
        }
        self.next_try = at + AGAIN;
        self.registered = Some(registration.clone());
        self.standing = Some(Standing::begin(&self.store, self.options.ttl, &self.options.host, registration));
    }

    /// Why we do not campaign now: the policy, or a complete engine that may come first. An incomplete engine campaigns
    /// only when no complete one has been registered for 60 s.
    fn stands_back(&mut self, at: f64, registration: &EngineRegistration) -> Option<String> {
        if let Err(why) = preflight::may_campaign(&self.snap.store) {
            return Some(why);
        }
        if registration.complete() {
            return None;
        }
        let lacks = if registration.missing_programs.is_empty() {
            "it has not seen every control plane's probe good".to_owned()
        } else {
            format!("its host lacks {}", registration.missing_programs.join(", "))
        };
        let ours = (self.snap.engine.lease != 0).then_some(self.snap.engine.lease);
        if preflight::complete_one_is_there(&self.snap.store, ours) {
            self.incomplete_since = None;
            return Some(format!("this engine lets a complete one lead: {lacks}"));
        }
        let left = MODESTY - (at - *self.incomplete_since.get_or_insert(at));
        (left > 0.0).then(|| format!("this engine campaigns in {left:.0} s unless a complete one comes: {lacks}"))
    }

    /// While we lead: a CKE behind us, a changed policy or a fault of the preflight make us finish and resign.
    fn mind_resigning(&mut self) {
        let store = &self.snap.store;
        let lease = self.snap.engine.lease;
        let why = match store.policy().engine {
            crate::model::policy::EngineChoice::Cke => {
                Some("policy engine is `cke`: finishes, then resigns".to_owned())
            }
            crate::model::policy::EngineChoice::Cketerm => preflight::cke_candidate(store, Some(lease))
                .map(|host| format!("a CKE on {host} waits for the lock: finishes, then resigns")),
            crate::model::policy::EngineChoice::Always => None,
        };
        // Stale copies are no fault: nothing new starts while they last, and that is enough.
        let mismatch = self.snap.engine.observing.iter().find(|f| f.contains("MISMATCH") || f.contains("newer"));
        self.snap.engine.resigning = why.or_else(|| mismatch.cloned());
        let in_work = store.reboots.entries.values().filter_map(crate::model::entry::Stored::get).any(|e| {
            use crate::model::reboot::RebootStatus::{Draining, Rebooting};
            matches!(e.status, Draining | Rebooting)
        });
        if self.snap.engine.resigning.is_some() && !in_work && self.tasks.is_empty() {
            self.ask(LeadOrder::Resign);
            self.leader = None;
            self.snap.engine.leading = None;
        }
    }

    fn ask(&self, order: LeadOrder) {
        if let Some(standing) = &self.standing {
            standing.ask(order);
        }
    }

    async fn lead_event(&mut self, event: Option<LeadEvent>) {
        match event {
            Some(LeadEvent::Standing(lease)) => self.snap.engine.lease = lease,
            Some(LeadEvent::Won(fence)) => self.win(fence).await,
            Some(LeadEvent::Lost) => self.lose("the lease or our key in leader/ is gone"),
            Some(LeadEvent::Failed(why)) => {
                tracing::warn!(why, "could not stand for election");
                self.lose("could not stand");
            }
            Some(LeadEvent::Resigned) | None => self.lose("resigned"),
        }
    }

    /// The first snapshot after winning is read linearizably: the live copy is waited for until it is not older than
    /// this moment.
    async fn win(&mut self, fence: Fence) {
        let mut live = self.live.subscribe();
        let caught_up = async {
            let view = self.store.read_view_from(fence.create_revision()).await.ok()?;
            live.wait_for(|copy| copy.revision >= view.revision).await.ok().map(|_| ())
        };
        if !matches!(tokio::time::timeout(self.options.ttl / 2, caught_up).await, Ok(Some(()))) {
            tracing::warn!("won, but etcd could not be read up to that moment: resigns");
            self.ask(LeadOrder::Resign);
            return;
        }
        let Some((kube, kube_live)) = self.kube.clone() else { return };
        self.steady = Steady::new(&self.clock);
        let lease = fence.lease();
        let seed = lease.unsigned_abs() ^ u64::from(std::process::id());
        self.snap.engine.lease = lease;
        self.snap.engine.seed = seed;
        self.snap.engine.resigning = None;
        self.snap.engine.leading = Some(Leading {
            key: fence.key().to_owned(),
            create_revision: fence.create_revision(),
            since: secs(self.clock.boot()),
        });
        self.clear();
        let actor = Actor {
            store: self.store.clone(),
            live: Arc::clone(&self.live),
            kube,
            kube_live,
            fence: fence.clone(),
            steady: self.steady.clone(),
            spawner: self.options.spawner.clone(),
            who: self.who(),
            seed,
            recording: Arc::default(),
        };
        self.leader = Some(Leader { actor: Arc::new(actor), fence });
        tracing::info!(lease = format!("{lease:x}"), "leads");
    }

    /// Nothing goes on that we may no longer do. Commands of power run to their end by themselves; checks end.
    fn lose(&mut self, why: &str) {
        if self.leader.take().is_some() {
            tracing::warn!(why, "leads no longer");
        }
        self.snap.engine.leading = None;
        self.snap.engine.lease = 0;
        self.snap.engine.resigning = None;
        self.standing = None;
        self.registered = None;
        self.next_try = secs(self.clock.boot()) + 0.5;
        self.clear();
    }

    fn clear(&mut self) {
        self.tasks.abort_all();
        self.tasks = JoinSet::new();
        self.effects.clear();
        self.paused.clear();
        self.snap.in_flight.clear();
        self.snap.work.clear();
        self.running = None;
    }

    fn who(&self) -> Who {
        Who { user: "engine".to_owned(), host: self.options.host.clone(), ssh_client: None }
    }

    fn registration(&self) -> EngineRegistration {
        let control_planes = self.snap.store.definition().map_or(0, |d| d.members.control_planes(&d.cluster).count());
        let good = self.snap.probes.values().filter(|p| p.last_good.is_some()).count();
        let by_node = self.snap.store.policy().control_plane_probe == "node";
        EngineRegistration {
            host: self.options.host.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: self.options.mode.to_owned(),
            http: self.options.http.clone(),
            missing_programs: self.snap.engine.missing_programs.clone(),
            probes_seen: by_node || good >= control_planes,
        }
    }

    /// A graceful end: nothing new starts; commands get 10 s; what ended is recorded; the lease is revoked.
    async fn farewell(mut self) {
        if self.leader.is_some() {
            let deadline = tokio::time::sleep(FAREWELL);
            tokio::pin!(deadline);
            loop {
                tokio::select! {
                    () = &mut deadline => break,
                    done = self.tasks.join_next() => match done {
                        Some(done) => self.came(done),
                        None => break,
                    },
                }
            }
        }
        if let Some(mut standing) = self.standing.take() {
            standing.ask(LeadOrder::Resign);
            let ended = async { while standing.events.recv().await.is_some() {} };
            let _ = tokio::time::timeout(Duration::from_secs(3), ended).await;
        }
    }
}

async fn next_event(standing: Option<&mut Standing>) -> Option<LeadEvent> {
    match standing {
        Some(standing) => standing.events.recv().await,
        None => std::future::pending().await,
    }
}

async fn maybe_changed(changed: Option<&mut watch::Receiver<Arc<KubeView>>>) {
    match changed {
        Some(changed) => {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}
