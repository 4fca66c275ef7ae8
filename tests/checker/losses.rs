//! Requests and answers that get lost between an engine and its servers.

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
    /// Without an answer, the engine knows nothing and decides again from what it sees.
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

    /// The request does not arrive. The engine waits for its answer, and tries again.
    pub fn lose_request(&mut self, place: usize, number: usize) {
        let flight = &mut self.engines[place].flights[number];
        flight.stage = Stage::Unanswered(no_answer());
    }

    /// The request is carried out, and the engine waits for its answer.
    pub fn lose_answer(&mut self, place: usize, number: usize) -> Result<(), Breach> {
        let Flight { planned, decided, stage } = self.engines[place].flights.remove(number);
        let request = Request { late: matches!(stage, Stage::Permitted), answered: false };
        match (self.act(place, &planned, decided, request)?, written(&planned.effect)) {
            (Done::With(outcome), target) if is_carried_out(&outcome) => {
                let known = if target == Some(Target::Kubernetes) { no_answer() } else { outcome };
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

fn no_answer() -> EffectOutcome {
    EffectOutcome::Failed("no answer".to_owned())
}
