//! An engine: passes by the real rules, and effects carried out step by step.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended, Outcome},
    boot_time::BootTime,
    clock::{Clock, TimeSource},
    drain::{Answer, Verdict},
    entry::{EntryId, Stored},
    fence::{Fence, Life, Permit},
    kube::PodRow,
    names::{Address, NodeName},
    stored::transaction::{Put, Ranged},
};
use cketerm_rules::{
    decide::{Decision, Effect, Guard, Planned, decide, preview_result},
    memory::{observe, remember},
    snapshot::{EffectOutcome, FreshRead, InFlight, Leading, Probe, Snapshot, StaleCause, Work},
    transition::{PreviousAttempts, Transition},
};
use jiff::Timestamp;

use crate::{
    canon::Canon,
    etcd::Refused,
    laws::{self, Breach},
    world::{Command, TTL, World, address, keys, seconds},
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
    fn give_up(&mut self, place: usize) {
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

    fn fence(&self, place: usize) -> Option<Fence> {
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
    fn late_permit(&self, place: usize) -> Result<Permit, EffectOutcome> {
        let leading = self.engines[place].leading.as_ref().ok_or(EffectOutcome::Lost)?;
        let clock = Clock::new(At(BootTime::ZERO, self.wall()));
        let life = Life::new(clock, Duration::from_secs(TTL.unsigned_abs()), BootTime::ZERO);
        let fence = Fence::new(&leading.key, leading.create_revision, self.engines[place].lease, life);
        fence.permit(BootTime::ZERO).map_err(|_| EffectOutcome::Lost)
    }

    fn commit(&mut self, permit: &Permit, ranged: impl Into<Ranged>) -> Result<i64, EffectOutcome> {
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

    /// Carries out the next step of an effect.
    pub fn run(&mut self, place: usize, number: usize) -> Result<(), Breach> {
        let Flight { planned, decided, stage } = self.engines[place].flights.remove(number);
        let result = match stage {
            Stage::Begin | Stage::Permitted => {
                let late = matches!(stage, Stage::Permitted);
                self.act(place, &planned, decided, late)?
            }
            Stage::Written(attempt, revision, entry_revision) => {
                self.start_command(place, &planned, attempt, revision, entry_revision)?
            }
            Stage::Running(..) => return Ok(()),
            Stage::Ended(attempt, revision, outcome) => Done::With(self.record(place, *attempt, revision, outcome)),
        };
        match result {
            Done::Goes(stage) => {
                let flights = &mut self.engines[place].flights;
                flights.insert(number, Flight { planned, decided, stage });
            }
            Done::With(outcome) => self.complete(place, &planned, &outcome),
        }
        Ok(())
    }

    /// Records the outcome of an effect, as the engine's loop does.
    fn complete(&mut self, place: usize, planned: &Planned, outcome: &EffectOutcome) {
        let now = self.time();
        let engine = &mut self.engines[place];
        engine.dirty = true;
        engine.in_flight.remove(&planned.machine);
        if *outcome == EffectOutcome::Lost {
            self.give_up(place);
            return;
        }
        if let EffectOutcome::Failed(_) | EffectOutcome::Stale(_) = outcome {
            let waiting = InFlight {
                what: "waiting to retry".to_owned(),
                entry: planned.entry,
                starts: planned.effect.starts(),
                patches_node: false,
                evictions: BTreeMap::new(),
                attempt: None,
                since: now.boot,
            };
            engine.in_flight.insert(planned.machine.clone(), waiting);
            engine.paused.insert(planned.machine.clone(), now.boot + seconds(2));
        }
        if let Some(id) = planned.entry {
            remember(&mut engine.work, id, &planned.effect, outcome, now);
        }
    }

    /// Carries out the first step of an effect.
    fn act(&mut self, place: usize, planned: &Planned, decided: BootTime, late: bool) -> Result<Done, Breach> {
        let guard = &planned.guard;
        let permit = |world: &Self| if late { world.late_permit(place) } else { world.permit(place, guard, decided) };
        let permit = match permit(self) {
            Ok(permit) => permit,
            Err(outcome) => return Ok(Done::With(outcome)),
        };
        let view = Arc::clone(&self.etcd.view);
        let transition = Transition { keys: keys(), view: &view, now: self.wall() };
        let node_place = self.place(&planned.machine);
        let done = |result: Result<i64, EffectOutcome>| Done::With(result.map_or_else(|e| e, |_| EffectOutcome::Done));
        Ok(match &planned.effect {
            Effect::StartDrain { entry, node_uid, hooks } => {
                let change = transition.start_drain(guard, entry, node_uid.clone(), hooks.as_ref());
                let before = self.clone();
                let result = self.commit(&permit, change);
                if result.is_ok() {
                    laws::drain_started(&before, entry)?;
                }
                done(result)
            }
            Effect::BackOff { entry, .. } => done(self.commit(&permit, transition.back_off(guard, entry, 0).change)),
            Effect::Unwind { entry, never_began, .. } => {
                done(self.commit(&permit, transition.unwind(guard, entry, never_began).ranged))
            }
            Effect::BeginMaintenance { entry } => {
                done(self.commit(&permit, transition.begin_maintenance(guard, entry)))
            }
            Effect::Remove { end, ready, running } => {
                let fresh = ready.as_ref().and_then(|name| self.kube.by_name.get(name));
                if ready.is_some() && !fresh.is_some_and(|node| node.ready) {
                    return Ok(Done::With(EffectOutcome::Failed("not Ready".to_owned())));
                }
                let entry = guard.entry.map(|(id, _)| id);
                let cordoned = fresh.is_some_and(|node| node.owner().is_some_and(|o| Some(o.entry) == entry));
                let Some(ended) = transition.remove(guard, end, cordoned, *running) else {
                    return Ok(Done::With(EffectOutcome::Stale(StaleCause::Changed("gone".to_owned()))));
                };
                laws::entry_ends(self, &ended.ending)?;
                done(self.commit(&permit, ended.ranged))
            }
            Effect::Finish { entry, end, running } => {
                done(self.commit(&permit, transition.finish_repair(guard, entry, end, *running).0))
            }
            Effect::Settle { entry } => match transition.settle(*entry, None) {
                Some(ranged) => done(self.commit(&permit, ranged)),
                None => Done::With(EffectOutcome::Done),
            },
            Effect::TakeResult { result, attempt } => {
                done(self.commit(&permit, transition.take_result(result, attempt.as_ref()).0))
            }
            Effect::Stamp { node, owner, cordon, mark } => self.patch(node_place, &node.resource_version, |row| {
                row.owner = Some(Ok(owner.clone()));
                row.unschedulable |= *cordon;
                row.cke_mark = *mark;
            }),
            Effect::Release { node, uncordon, drop_keep, settle } => {
                let current = node_place.and_then(|place| self.node(place));
                if *uncordon && current.is_some_and(|row| row.resource_version == node.resource_version) {
                    laws::uncordoned(self, node_place)?;
                }
                let outcome = self.patch(node_place, &node.resource_version, |row| {
                    (row.owner, row.cke_mark) = (None, false);
                    row.keep_cordoned &= !*drop_keep;
                    row.unschedulable &= !*uncordon;
                });
                let released = matches!(outcome, Done::With(EffectOutcome::Done));
                if let (true, true, Some(machine)) = (released, *drop_keep, node_place) {
                    // from now on the cordon, if there is one, is the administrator's
                    self.machines[machine].cordoned_by_admin = node.unschedulable;
                }
                let settled = released.then_some(*settle).flatten();
                let left = settled.and_then(|entry| transition.settle(entry, None));
                match (left, self.permit(place, &Guard::default(), self.boot())) {
                    (Some(ranged), Ok(permit)) => done(self.commit(&permit, ranged)),
                    (Some(_), Err(outcome)) => Done::With(outcome),
                    (None, _) => outcome,
                }
            }
            Effect::Preview { pods, unprotected } => {
                let answers = self.answers(pods.iter().map(|(pod, _)| pod));
                Done::With(EffectOutcome::Previewed(preview_result(pods, unprotected, &answers)))
            }
            Effect::Evict { evict, delete, .. } => {
                let all: Vec<Arc<PodRow>> = evict.iter().map(|(pod, _)| pod).chain(delete).cloned().collect();
                let answers = self.answers(all.iter());
                for pod in &all {
                    self.terminate(pod);
                }
                Done::With(EffectOutcome::Answers(answers))
            }
            Effect::Recheck { node, pods, .. } => {
                let pods = pods.then(|| self.pods_of(node));
                let node = self.kube.by_name.get(node).cloned();
                Done::With(EffectOutcome::Rechecked(FreshRead { at: self.boot(), node, pods }))
            }
            Effect::Power { entry, force, attempt, .. } => {
                let attempt = Attempt { start: self.wall(), ..attempt.clone() };
                let Some(change) = transition.command(guard, entry, force.as_ref(), &attempt) else {
                    return Ok(Done::With(EffectOutcome::Stale(StaleCause::Changed("held".to_owned()))));
                };
                match self.commit(&permit, change) {
                    Ok(revision) => Done::Goes(Stage::Written(Box::new(attempt), revision, revision)),
                    Err(outcome) => Done::With(outcome),
                }
            }
            Effect::RunAgain { entry, before, folded, order, attempt, .. } => {
                let attempt = Attempt { start: self.wall(), ..attempt.clone() };
                let previous = PreviousAttempts { before: before.as_ref(), folded };
                let change = transition.command_again(guard, entry, previous, order.as_ref(), &attempt);
                match self.commit(&permit, change) {
                    Ok(revision) => {
                        let unchanged = guard.entry.filter(|_| order.is_none()).map(|(_, unchanged)| unchanged);
                        Done::Goes(Stage::Written(Box::new(attempt), revision, unchanged.unwrap_or(revision)))
                    }
                    Err(outcome) => Done::With(outcome),
                }
            }
            Effect::BootCheck { .. } | Effect::HealthCheck { .. } => {
                let up =
                    guard.entry.and_then(|(id, _)| self.machine_of(id)).is_some_and(|place| !self.machines[place].down);
                let answer = if up { CheckAnswer::Yes } else { CheckAnswer::No("false".to_owned()) };
                Done::With(EffectOutcome::Check(answer))
            }
            other => return Err(Breach::new("effect", format!("{} is carried out nowhere", other.as_str()))),
        })
    }

    /// Returns the machine of an entry.
    pub fn machine_of(&self, id: EntryId) -> Option<usize> {
        let entry = self.etcd.view.entry(id)?;
        self.place(entry.address().as_str())
    }

    fn pods_of(&self, node: &NodeName) -> Vec<Arc<PodRow>> {
        self.kube.pods.get(node).map(|pods| pods.pods.values().cloned().collect()).unwrap_or_default()
    }

    fn answers<'a>(&self, pods: impl Iterator<Item = &'a Arc<PodRow>>) -> BTreeMap<String, Answer> {
        let exists = |pod: &PodRow| self.kube.pods.get(&pod.node).is_some_and(|p| p.pods.contains_key(&pod.uid));
        let answer = |pod: &PodRow| {
            let verdict = if exists(pod) { Verdict::Accepted } else { Verdict::Gone };
            Answer { verdict, at: self.boot(), budgets: BTreeMap::new(), undecided: 0 }
        };
        pods.map(|pod| (pod.uid.clone(), answer(pod))).collect()
    }

    fn terminate(&mut self, pod: &PodRow) {
        let at = self.wall();
        let kube = Arc::make_mut(&mut self.kube);
        if let Some(row) = kube.pods.get_mut(&pod.node).and_then(|pods| pods.pods.get_mut(&pod.uid)) {
            Arc::make_mut(row).terminating_since.get_or_insert(at);
            self.changed();
        }
    }

    fn patch(
        &mut self,
        place: Option<usize>,
        version: &str,
        change: impl FnOnce(&mut cketerm_model::kube::NodeRow),
    ) -> Done {
        let known = place.and_then(|place| Some((place, self.node(place)?.resource_version == version)));
        let Some((place, true)) = known else {
            return Done::With(EffectOutcome::Stale(StaleCause::Object("node".to_owned())));
        };
        self.change_node(place, change);
        self.changed();
        Done::With(EffectOutcome::Done)
    }

    /// Starts the command of a written attempt, unless something forbids it at the last moment.
    fn start_command(
        &mut self,
        place: usize,
        planned: &Planned,
        attempt: Box<Attempt>,
        revision: i64,
        entry_revision: i64,
    ) -> Result<Done, Breach> {
        let allowed = Guard { start: planned.guard.start, until: planned.guard.until, ..Guard::default() };
        let unchanged = self.etcd.mod_revision(&keys().entry(attempt.entry)) == entry_revision;
        // a decision of this moment: it may not be late any more
        let permit = self.permit(place, &allowed, self.boot());
        let withheld = if !unchanged {
            Some("the entry has changed meanwhile".to_owned())
        } else if let Err(EffectOutcome::Stale(cause)) = &permit {
            Some(cause.to_string())
        } else {
            permit.err().map(|outcome| format!("{outcome:?}"))
        };
        if let Some(why) = withheld {
            let outcome =
                Outcome { end: Ended::Withheld(why), at: self.wall(), stdout: String::new(), stderr: String::new() };
            return Ok(Done::Goes(Stage::Ended(attempt, revision, outcome)));
        }
        let machine = self.place(attempt.address.as_str()).unwrap_or_default();
        laws::command_begins(self, place, &attempt, machine)?;
        *self.counts.begun.entry(attempt.entry).or_default() += 1;
        let (id, began) = (attempt.id.clone(), self.boot());
        self.commands.push(Command { engine: place, attempt: id, entry: attempt.entry, machine, began });
        Ok(Done::Goes(Stage::Running(attempt, revision)))
    }

    /// Records how a command ended.
    fn record(&mut self, place: usize, attempt: Attempt, revision: i64, outcome: Outcome) -> EffectOutcome {
        let key = keys().attempt(attempt.entry, attempt.number);
        let recorded = Attempt { outcome: Some(outcome.clone()), ..attempt };
        let change = cketerm_model::stored::transaction::Change {
            compares: vec![(key.clone(), revision)],
            puts: vec![Put::json(key, &recorded)],
            deletes: Vec::new(),
        };
        let permit = self.fence(place).ok_or(EffectOutcome::Lost);
        let Ok(permit) = permit.and_then(|fence| fence.permit_record().map_err(|_| EffectOutcome::Lost)) else {
            return EffectOutcome::Lost;
        };
        match self.commit(&permit, change) {
            Err(EffectOutcome::Lost) => EffectOutcome::Lost,
            // another writer settled the attempt
            Ok(_) | Err(_) => EffectOutcome::Command(outcome),
        }
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

/// Result of a step of an effect.
enum Done {
    /// The effect goes on with this step.
    Goes(Stage),
    /// The effect has ended.
    With(EffectOutcome),
}
