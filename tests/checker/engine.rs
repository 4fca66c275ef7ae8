//! An engine: its passes by the real rules, and its leadership.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cketerm_model::{
    attempt::{Attempt, Outcome},
    boot_time::BootTime,
    clock::{Clock, TimeSource},
    entry::{EntryId, Stored},
    fence::{Fence, Life, Permit},
    kube::PodRow,
    names::{Address, NodeName},
    stored::transaction::Ranged,
};
use cketerm_rules::{
    decide::{Decision, Effect, Guard, Planned, decide},
    memory::observe,
    snapshot::{EffectOutcome, InFlight, Leading, Probe, Snapshot, StaleCause, UpkeepProgress, Work},
};
use jiff::Timestamp;

use crate::{
    canon::Canon,
    etcd::Refused,
    laws,
    world::{TTL, World, address, keys},
};

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Process {
    /// It runs.
    Runs,
    /// It stands still.
    Stalled,
    /// It is gone for good.
    Dead,
}

/// Progress of an effect.
#[derive(Clone, Debug)]
pub enum Stage {
    /// Nothing was done.
    Begin,
    /// It has its permit. What it does next, it does however late.
    Permitted,
    /// Its request, or the answer to it, is lost. This is the outcome once the engine waits no longer.
    Unanswered(EffectOutcome),
    /// The attempt is written at this revision, and the entry has the second one.
    Written(Box<Attempt>, i64, i64),
    /// The command runs.
    Running(Box<Attempt>, i64),
    /// The command has ended like this.
    Ended(Box<Attempt>, i64, Outcome),
}

/// An effect under way.
#[derive(Clone, Debug)]
pub struct Flight {
    /// The decision.
    pub planned: Arc<Planned>,
    /// Time of the decision.
    pub decided: BootTime,
    /// Its progress.
    pub stage: Stage,
}

/// An engine.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Its lease.
    pub lease: i64,
    /// Whether its process runs.
    pub life: Process,
    /// Whether anything has changed since its last pass.
    pub dirty: bool,
    /// Its leadership.
    pub leading: Option<Leading>,
    /// Its memory.
    pub work: BTreeMap<EntryId, Work>,
    /// Its effects, by key.
    pub in_flight: BTreeMap<String, InFlight>,
    /// The same effects, with their steps.
    pub flights: Vec<Flight>,
    /// Since when it has known owner records of other leases.
    pub foreign: BTreeMap<NodeName, (i64, BootTime)>,
    /// Boot time at which the next pass is due although nothing has changed.
    pub wake: Option<BootTime>,
    /// Keys that wait after a failed effect, and until when.
    pub paused: BTreeMap<String, BootTime>,
}

/// The time that a permit is judged by.
#[derive(Debug)]
struct At(BootTime, Timestamp);

impl TimeSource for At {
    fn boot(&self) -> BootTime {
        self.0
    }

    fn wall(&self) -> Timestamp {
        self.1
    }
}

impl Engine {
    /// Creates an engine that does not lead.
    pub fn new(place: usize) -> Self {
        Self {
            lease: 10 + i64::try_from(place).unwrap_or_default(),
            life: Process::Runs,
            dirty: true,
            leading: None,
            work: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            flights: Vec::new(),
            foreign: BTreeMap::new(),
            wake: None,
            paused: BTreeMap::new(),
        }
    }

    /// Adds its state to a canonical form.
    pub fn add_to(&self, canon: &mut Canon) {
        canon.add(&(self.life, self.dirty, &self.leading, &self.work, &self.in_flight, &self.foreign));
        canon.add(&(&self.wake, &self.paused));
        for flight in &self.flights {
            add_planned(canon, &flight.planned);
            canon.add(&flight.decided);
            match &flight.stage {
                Stage::Begin => canon.add(&0),
                Stage::Permitted => canon.add(&1),
                Stage::Unanswered(outcome) => canon.add(&(5, format!("{outcome:?}"))),
                Stage::Written(attempt, ..) => canon.add(&(2, &attempt.start)),
                Stage::Running(..) => canon.add(&3),
                Stage::Ended(_, _, outcome) => canon.add(&(4, &outcome.at, &outcome.end)),
            }
        }
    }

    /// Ends its leadership: its effects are aborted and its memory is dropped.
    pub fn stop_leading(&mut self) {
        self.leading = None;
        self.work.clear();
        self.in_flight.clear();
        self.flights.clear();
        self.paused.clear();
        self.wake = None;
        self.dirty = false;
    }
}

/// Adds what distinguishes one planned effect from another: the guard has the revisions that it was decided from.
fn add_planned(canon: &mut Canon, planned: &Planned) {
    canon.add(&(&planned.machine, planned.entry, &planned.guard, planned.effect.as_str()));
    match &planned.effect {
        Effect::Stamp { node, owner, cordon, mark } => canon.add(&(&node.resource_version, owner, cordon, mark)),
        Effect::Release { node, uncordon, drop_keep, settle } => {
            canon.add(&(&node.resource_version, uncordon, drop_keep, settle));
        }
        Effect::Evict { evict, delete, .. } => {
            let uid = |pod: &Arc<PodRow>| pod.uid.clone();
            let all: Vec<String> = evict.iter().map(|(pod, _)| uid(pod)).chain(delete.iter().map(uid)).collect();
            canon.add(&all);
        }
        Effect::Power { attempt, force, .. } => canon.add(&(attempt, force)),
        Effect::RunAgain { attempt, before, folded, order, .. } => canon.add(&(attempt, before, folded, order)),
        other => canon.add(other),
    }
}

impl World {
    /// Returns the leader's key of an engine.
    pub fn leader_key(&self, place: usize) -> String {
        keys().leader(self.engines[place].lease)
    }

    /// Makes an engine the leader.
    pub fn elect(&mut self, place: usize) {
        let (key, boot) = (self.leader_key(place), self.boot());
        let create_revision = self.etcd.put(keys(), &key, "host");
        let engine = &mut self.engines[place];
        engine.stop_leading();
        engine.foreign.clear();
        engine.leading = Some(Leading { key, create_revision, since: boot, acknowledged: boot });
        self.changed();
    }

    /// Ends the leadership of an engine that runs. It revokes its lease.
    pub fn give_up(&mut self, place: usize) {
        let key = self.leader_key(place);
        self.etcd.delete(keys(), &key);
        self.engines[place].stop_leading();
        self.changed();
        self.engines[place].dirty = false;
    }

    fn snapshot(&self, place: usize) -> Snapshot {
        let engine = &self.engines[place];
        let mut snap =
            Snapshot { store: Arc::clone(&self.etcd.view), kube: Arc::clone(&self.kube), ..Snapshot::default() };
        snap.engine.host = format!("host-{place}");
        snap.engine.lease = engine.lease;
        snap.engine.leading.clone_from(&engine.leading);
        snap.engine.ttl = TTL.unsigned_abs();
        snap.work.clone_from(&engine.work);
        snap.in_flight.clone_from(&engine.in_flight);
        snap.foreign.clone_from(&engine.foreign);
        for server in 0..self.api_servers {
            let down = self.machines[server].down;
            let probe = Probe {
                last_good: Some(self.boot()).filter(|_| !down),
                good_since: Some(BootTime::ZERO).filter(|_| !down),
                error: down.then(|| "refused".to_owned()),
                not_known: None,
                url: "https://server".to_owned(),
            };
            snap.probes.insert(address(server), probe);
        }
        snap
    }

    /// Returns what the leader would decide now. Its memory is brought up to date first.
    pub fn decision(&self, place: usize) -> (Snapshot, Decision) {
        let mut snap = self.snapshot(place);
        observe(&mut snap, self.time());
        let decision = decide(&snap, self.time());
        (snap, decision)
    }

    /// Makes a pass of the leader, and starts its effects.
    pub fn pass(&mut self, place: usize) {
        if !self.holds_lock(place) {
            self.give_up(place);
            return;
        }
        let boot = self.boot();
        let waiting = &mut self.engines[place];
        let over: Vec<String> =
            waiting.paused.iter().filter(|(_, at)| **at <= boot).map(|(key, _)| key.clone()).collect();
        for key in over {
            waiting.paused.remove(&key);
            waiting.in_flight.remove(&key);
        }
        let (snap, decision) = self.decision(place);
        if let Err(breach) = laws::all_have_reasons(&snap, &decision) {
            self.breach.get_or_insert(breach);
        }
        let engine = &mut self.engines[place];
        (engine.work, engine.foreign, engine.dirty, engine.wake) = (snap.work, snap.foreign, false, decision.wake);
        for planned in decision.effects {
            let flight = InFlight {
                what: planned.effect.as_str().to_owned(),
                entry: planned.entry,
                starts: planned.effect.starts(),
                patches_node: planned.effect.patches_node(),
                upkeep: planned.effect.upkeep().map(UpkeepProgress::UnderWay),
                evictions: planned.effect.evictions(),
                attempt: planned.effect.run_id(),
                since: boot,
            };
            engine.in_flight.insert(planned.machine.clone(), flight);
            engine.flights.push(Flight { planned: Arc::new(planned), decided: boot, stage: Stage::Begin });
        }
        engine.flights.sort_by(|a, b| a.planned.machine.cmp(&b.planned.machine));
    }

    /// Reports whether the leader's key of an engine exists.
    pub fn holds_lock(&self, place: usize) -> bool {
        self.engines[place].leading.as_ref().is_some_and(|leading| self.etcd.mod_revision(&leading.key) != 0)
    }

    pub fn fence(&self, place: usize) -> Option<Fence> {
        let leading = self.engines[place].leading.as_ref()?;
        let clock = Clock::new(At(self.boot(), self.wall()));
        let life = Life::new(clock, Duration::from_secs(TTL.unsigned_abs()), leading.acknowledged);
        Some(Fence::new(&leading.key, leading.create_revision, self.engines[place].lease, life))
    }

    /// Returns a permit for an effect under this guard, or the outcome of the effect.
    pub fn permit(&self, place: usize, guard: &Guard, decided: BootTime) -> Result<Permit, EffectOutcome> {
        if let Some(what) = guard.changed(&self.etcd.view) {
            return Err(EffectOutcome::Stale(StaleCause::Changed(what.to_owned())));
        }
        let fence = self.fence(place).ok_or(EffectOutcome::Lost)?;
        fence.permit(decided).map_err(|no| EffectOutcome::Failed(no.to_string()))
    }

    /// Returns a permit whatever the time is, as a process has it that stood still after it got one.
    pub fn late_permit(&self, place: usize) -> Result<Permit, EffectOutcome> {
        let leading = self.engines[place].leading.as_ref().ok_or(EffectOutcome::Lost)?;
        let clock = Clock::new(At(BootTime::ZERO, self.wall()));
        let life = Life::new(clock, Duration::from_secs(TTL.unsigned_abs()), BootTime::ZERO);
        let fence = Fence::new(&leading.key, leading.create_revision, self.engines[place].lease, life);
        fence.permit(BootTime::ZERO).map_err(|_| EffectOutcome::Lost)
    }

    pub fn commit(&mut self, permit: &Permit, ranged: impl Into<Ranged>) -> Result<i64, EffectOutcome> {
        let before = Arc::clone(&self.etcd.view);
        let leads = self.etcd.mod_revision(permit.leader_key()) != 0;
        let revision = self.etcd.commit(keys(), permit, &ranged.into()).map_err(|refused| match refused {
            Refused::Fence => EffectOutcome::Lost,
            Refused::Conflict => EffectOutcome::Stale(StaleCause::Conflict { keys: Vec::new() }),
        })?;
        if let Err(breach) = laws::committed(&before, &self.etcd.view, leads) {
            self.breach.get_or_insert(breach);
        }
        self.changed();
        Ok(revision)
    }

    /// Returns the flights of an engine that can go on.
    pub fn runnable(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        let flights = self.engines[place].flights.iter().enumerate();
        flights.filter(|(_, flight)| !matches!(flight.stage, Stage::Running(..))).map(|(number, _)| number)
    }

    /// Returns the entries that are in progress, with their machines.
    pub fn in_progress(&self) -> BTreeSet<(EntryId, Address)> {
        let view = &self.etcd.view;
        let reboots = view.reboots.entries.values().filter_map(Stored::get).filter(|e| e.claims_machine());
        let repairs = view.repairs.entries.values().filter_map(Stored::get).filter(|e| e.claims_machine());
        let reboots = reboots.map(|e| (EntryId::reboot(e.index), e.node.clone()));
        reboots.chain(repairs.map(|e| (EntryId::repair(e.index), e.address.clone()))).collect()
    }
}
