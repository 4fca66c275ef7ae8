//! Requests and answers that get lost between an engine and its servers.

use std::collections::BTreeMap;

use cketerm_model::{
    boot_time::BootTime,
    drain::{Answer, Undecided, Verdict},
};
use cketerm_rules::{decide::Effect, snapshot::EffectOutcome};

use crate::{
    effects::{Done, Request},
    engine::{Flight, Stage},
    laws::Breach,
    world::World,
};

/// The server that an effect writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// In one transaction. Without an answer, the engine reads the audit record of the transaction, and so knows whether
    /// it went through.
    Etcd,
    /// Without an answer, the engine decides again from what it sees; for an eviction it remembers that no answer came.
    Kubernetes,
}

/// Returns the server that an effect writes to, if the effect ends with the answer.
fn written(effect: &Effect) -> Option<Target> {
    match effect {
        Effect::StartDrain { .. }
        | Effect::BackOff { .. }
        | Effect::Unwind { .. }
        | Effect::BeginMaintenance { .. }
        | Effect::Remove { .. }
        | Effect::Finish { .. }
        | Effect::Settle { .. }
        | Effect::TakeResult { .. } => Some(Target::Etcd),
        Effect::Stamp { .. } | Effect::Release { .. } | Effect::Evict { .. } => Some(Target::Kubernetes),
        // commands go on after their answer, the next ones only read, and the rest is not in these worlds
        Effect::Power { .. }
        | Effect::RunAgain { .. }
        | Effect::Preview { .. }
        | Effect::Explain { .. }
        | Effect::Recheck { .. }
        | Effect::BootCheck { .. }
        | Effect::HealthCheck { .. }
        | Effect::RunHook { .. }
        | Effect::EndHooks { .. }
        | Effect::MoveEtcdLeader { .. }
        | Effect::ReturnToService { .. }
        | Effect::Registry(_)
        | Effect::RebootNeeded(_)
        | Effect::MaintenanceRequest(_)
        | Effect::SetNodeSigns { .. }
        | Effect::SetEndpoints { .. } => None,
    }
}

impl World {
    /// Returns the effects of an engine that are about to send a request.
    fn about_to_send(&self, place: usize) -> impl Iterator<Item = (usize, &Flight)> {
        let begins = |flight: &Flight| matches!(flight.stage, Stage::Begin | Stage::Permitted);
        self.engines[place].flights.iter().enumerate().filter(move |(_, flight)| begins(flight))
    }

    /// Returns the effects of an engine whose request may be lost. Checks send none.
    pub fn may_lose_request(&self, place: usize) -> impl Iterator<Item = usize> {
        let is_check = |effect: &Effect| matches!(effect, Effect::BootCheck { .. } | Effect::HealthCheck { .. });
        self.about_to_send(place).filter(move |(_, flight)| !is_check(&flight.planned.effect)).map(|(number, _)| number)
    }

    /// Returns the effects of an engine whose answer may be lost although the request was carried out.
    pub fn may_lose_answer(&self, place: usize) -> impl Iterator<Item = usize> {
        self.about_to_send(place)
            .filter(|(_, flight)| written(&flight.planned.effect).is_some())
            .map(|(number, _)| number)
    }

    /// Loses the request of an effect: the engine waits for an answer, and tries again.
    pub fn lose_request(&mut self, place: usize, number: usize) {
        let boot = self.boot();
        let flight = &mut self.engines[place].flights[number];
        flight.stage = Stage::Unanswered(unanswered(&flight.planned.effect, boot));
    }

    /// Carries out the request of an effect, and loses the answer.
    pub fn lose_answer(&mut self, place: usize, number: usize) -> Result<(), Breach> {
        let Flight { planned, decided, stage } = self.engines[place].flights.remove(number);
        let request = Request { late: matches!(stage, Stage::Permitted), answered: false };
        match (self.act(place, &planned, decided, request)?, written(&planned.effect)) {
            (Done::With(outcome), target) if is_carried_out(&outcome) => {
                let lost = target == Some(Target::Kubernetes);
                let known = if lost { unanswered(&planned.effect, self.boot()) } else { outcome };
                self.engines[place]
                    .flights
                    .insert(number, Flight { planned, decided, stage: Stage::Unanswered(known) });
            }
            // nothing was sent, or the server refused it
            (Done::With(outcome), _) => self.complete(place, &planned, &outcome),
            (Done::Goes(stage), _) => self.engines[place].flights.insert(number, Flight { planned, decided, stage }),
        }
        Ok(())
    }
}

fn is_carried_out(outcome: &EffectOutcome) -> bool {
    matches!(outcome, EffectOutcome::Done | EffectOutcome::Answers(_))
}

/// Returns the outcome of an effect whose request was not answered.
fn unanswered(effect: &Effect, at: BootTime) -> EffectOutcome {
    let silence = || "no answer".to_owned();
    let Effect::Evict { evict, delete, .. } = effect else { return EffectOutcome::Failed(silence()) };
    let verdict = Verdict::Undecided { by: Undecided::Silence, answer: silence(), retry_after: None };
    let answer = Answer { verdict, at, budgets: BTreeMap::new(), undecided: 0 };
    let pods = evict.iter().map(|(pod, _)| pod).chain(delete);
    EffectOutcome::Answers(pods.map(|pod| (pod.uid.clone(), answer.clone())).collect())
}
