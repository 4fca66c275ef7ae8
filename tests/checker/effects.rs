//! Effects of an engine, carried out step by step.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended, Outcome},
    boot_time::BootTime,
    drain::{Answer, EvictionAdmission, Verdict},
    entry::EntryId,
    kube::PodRow,
    names::NodeName,
    stored::transaction::Put,
};
use cketerm_rules::{
    decide::{Effect, Guard, Planned, preview_result},
    memory::remember,
    snapshot::{EffectOutcome, FreshRead, InFlight, StaleCause, UpkeepProgress},
    transition::{PreviousAttempts, Transition},
};

use crate::{
    engine::{Flight, Stage},
    laws::{self, Breach},
    world::{Command, World, keys, seconds},
};

impl World {
    /// Carries out the next step of an effect.
    pub fn run(&mut self, place: usize, number: usize) -> Result<(), Breach> {
        let Flight { planned, decided, stage } = self.engines[place].flights.remove(number);
        let result = match stage {
            Stage::Begin | Stage::Permitted => {
                let late = matches!(stage, Stage::Permitted);
                self.act(place, &planned, decided, Request { late, answered: true })?
            }
            Stage::Written(attempt, revision, entry_revision) => {
                self.start_command(place, &planned, attempt, revision, entry_revision)?
            }
            Stage::Unanswered(outcome) => Done::With(outcome),
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
    pub fn complete(&mut self, place: usize, planned: &Planned, outcome: &EffectOutcome) {
        let now = self.time();
        let engine = &mut self.engines[place];
        engine.dirty = true;
        engine.in_flight.remove(&planned.machine);
        if *outcome == EffectOutcome::Lost {
            self.give_up(place);
            return;
        }
        if let EffectOutcome::Failed(_) | EffectOutcome::Stale(_) = outcome {
            let failed = matches!(outcome, EffectOutcome::Failed(_));
            let waiting = InFlight {
                what: "waiting to retry".to_owned(),
                entry: planned.entry,
                starts: planned.effect.starts(),
                patches_node: false,
                upkeep: failed.then(|| planned.effect.upkeep()).flatten().map(UpkeepProgress::Failed),
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
    pub fn act(
        &mut self,
        place: usize,
        planned: &Planned,
        decided: BootTime,
        request: Request,
    ) -> Result<Done, Breach> {
        let guard = &planned.guard;
        let permit =
            |world: &Self| if request.late { world.late_permit(place) } else { world.permit(place, guard, decided) };
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
                let settled = (released && request.answered).then_some(*settle).flatten();
                let left = settled.and_then(|entry| transition.settle(entry, None));
                match (left, self.permit(place, &Guard::default(), self.boot())) {
                    (Some(ranged), Ok(permit)) => done(self.commit(&permit, ranged)),
                    (Some(_), Err(outcome)) => Done::With(outcome),
                    (None, _) => outcome,
                }
            }
            Effect::Preview { pods, unprotected } => {
                let answers = self.answers(pods.iter().map(|(pod, _)| pod));
                Done::With(EffectOutcome::Previewed(preview_result(
                    pods,
                    unprotected,
                    EvictionAdmission::EachPod,
                    &answers,
                )))
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
}

/// Fate of the request of an effect.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Whether it is sent however late, because the process stood still after it got the permit.
    pub late: bool,
    /// Whether its answer arrives.
    pub answered: bool,
}

/// Result of a step of an effect.
pub enum Done {
    /// The effect goes on with this step.
    Goes(Stage),
    /// The effect has ended.
    With(EffectOutcome),
}
