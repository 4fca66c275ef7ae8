//! Once faults stop and people do nothing more than they must, everything ends. A cycle without progress is a breach.

use std::collections::HashSet;

use cketerm_model::{
    entry::{EntryId, Stored},
    reason::Reason,
    repair::RepairEntry,
};
use foldhash::fast::FixedState;

use crate::{
    engine::Process,
    laws::{self, Breach},
    steps::{Given, Step},
    world::{Budget, World},
};

/// Number of steps within which a world comes to rest.
const LIMIT: usize = 4000;

/// States that are known to come to rest.
#[derive(Debug, Default)]
pub struct Liveness(HashSet<u64, FixedState>);

impl Liveness {
    /// Adds states that are known to come to rest.
    pub fn learn(&mut self, states: Vec<u64>) {
        self.0.extend(states);
    }

    /// Follows the fair run from a state until it meets one that is known to come to rest. The error has the steps.
    pub fn check(&self, from: &World, fingerprint: u64, learned: &mut Vec<u64>) -> Result<(), (Breach, Vec<Step>)> {
        // the fair run depends on neither faults nor people that may still come
        let mut world = from.clone();
        world.budget = Budget::default();
        let mut path: HashSet<u64, FixedState> = HashSet::default();
        let mut steps = Vec::new();
        let mut at = fingerprint;
        let mut impatient = false;
        loop {
            at = if steps.is_empty() { world.fingerprint() } else { at };
            if self.0.contains(&at) {
                break;
            }
            let next = fair_step(&world, impatient);
            let Some(step) = next else {
                laws::at_rest(&world).map_err(|breach| (breach, steps.clone()))?;
                break;
            };
            let returned = !path.insert(at);
            if returned && !impatient {
                // nothing happens by itself any more: a person looks at what is left
                impatient = true;
                path.clear();
                continue;
            }
            if returned || path.len() > LIMIT {
                let what = format!("no progress after {} steps: {}", steps.len(), world.waiting());
                return Err((Breach::new("I33", what), steps));
            }
            if matches!(step, Step::Order(..)) {
                (world.budget.retries, world.budget.dones) = (1, 1);
            }
            steps.push(step);
            world.step(step).map_err(|breach| (breach, steps.clone()))?;
            world.budget = Budget::default();
            at = world.fingerprint();
        }
        learned.extend(path);
        Ok(())
    }
}

/// Returns the next step of the fair run; `None` once nothing is left to do.
fn fair_step(world: &World, impatient: bool) -> Option<Step> {
    let steps = world.steps();
    let rank = |step: &Step| match step {
        Step::Resume(_) => Some(0),
        Step::BlindWrite => Some(1),
        Step::Unhold(_) => Some(2),
        Step::Switch(true) => Some(3),
        Step::Run(..) => Some(4),
        Step::Pass(_) => Some(5),
        Step::CommandEnds(_, true) => Some(6),
        Step::PodGone(_) => Some(7),
        Step::Boot(_) => Some(8),
        Step::Expire(_) => Some(9),
        Step::Elect(_) => Some(10),
        Step::Tick
        | Step::LoseRequest(..)
        | Step::LoseAnswer(..)
        | Step::Kill(_)
        | Step::Stall(_)
        | Step::CommandEnds(_, false)
        | Step::Cancel(_)
        | Step::BlindRead(_)
        | Step::Order(..)
        | Step::Switch(false)
        | Step::Cordon(..)
        | Step::Keep(_)
        | Step::Rest => None,
    };
    let first = steps.iter().filter_map(|step| Some((rank(step)?, *step))).min_by_key(|(rank, _)| *rank);
    if let Some((_, step)) = first {
        return Some(step);
    }
    if world.is_done() && world.is_led() {
        return None;
    }
    world.needs_person(impatient).or_else(|| steps.contains(&Step::Tick).then_some(Step::Tick))
}

impl World {
    /// Reports whether every entry has ended and every Node is released.
    fn is_done(&self) -> bool {
        let view = &self.etcd.view;
        let repairs = view.repairs.entries.values().filter_map(Stored::get).any(RepairEntry::unfinished);
        let marked = (0..self.machines.len()).any(|place| self.node(place).is_some_and(|node| node.owner().is_some()));
        view.reboots.entries.is_empty() && !repairs && !marked
    }

    fn is_led(&self) -> bool {
        (0..self.engines.len()).any(|place| self.engines[place].life == Process::Runs && self.holds_lock(place))
    }

    /// Returns the order by which a person settles an entry that waits for one.
    fn needs_person(&self, impatient: bool) -> Option<Step> {
        let leader = (0..self.engines.len())
            .find(|place| self.holds_lock(*place) && self.engines[*place].life == Process::Runs)?;
        let decision = self.decision(leader).1;
        let waits = |id: &EntryId, reason: &Reason| {
            let for_person =
                matches!(reason, Reason::OutcomeUnknown { until: None, .. } | Reason::CommandFailed { .. });
            for_person && !self.etcd.view.orders.contains_key(id)
        };
        let entry = decision.reasons.iter().find(|(id, reason)| waits(id, reason)).map(|(id, _)| (*id, Given::Retry));
        let orphan = decision.orphans.iter().find_map(|(name, reason)| {
            let (id, place) = (self.kube.by_name.get(name)?.owner()?.entry, self.place(name.as_str())?);
            let asks = matches!(reason, Reason::OrphanedCordon { .. })
                && impatient
                && !self.machines[place].down
                && !self.counts.done.contains(&id);
            (asks && !self.etcd.view.orders.contains_key(&id)).then_some((id, Given::Uncordon))
        });
        let (id, given) = entry.or(orphan)?;
        Some(Step::Order(u8::try_from(id.index).ok()?, given))
    }

    /// Returns what each entry waits for.
    fn waiting(&self) -> String {
        let leader = (0..self.engines.len()).find(|place| self.holds_lock(*place));
        let Some(leader) = leader else { return "nobody leads".to_owned() };
        let decision = self.decision(leader).1;
        let orphans = decision.orphans.iter().map(|(node, reason)| format!("{node}: {reason}"));
        decision
            .reasons
            .iter()
            .map(|(id, reason)| format!("{id}: {reason}"))
            .chain(orphans)
            .collect::<Vec<_>>()
            .join("; ")
    }
}
