//! Pauses of machines after effects that were not carried out.

use std::collections::BTreeMap;

use cketerm_model::boot_time::Seconds;
use cketerm_rules::{
    decide::{Effect, RegistryEffect},
    memory,
    snapshot::EffectOutcome,
};

/// Number of effects in a row that were stale, or that failed and are upkeep of Nodes, by machine.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<String, u32>);

impl Failures {
    /// Records an outcome; returns the time without new effects on the machine.
    pub(super) fn pause_after(&mut self, machine: &str, effect: &Effect, outcome: &EffectOutcome) -> Option<Seconds> {
        match outcome {
            EffectOutcome::Stale(_) => Some(memory::stale_pause(self.count(machine))),
            // No entry waits for it, so it is tried again after growing pauses.
            EffectOutcome::Failed(_) if effect.upkeep().is_some() => {
                Some(memory::failed_upkeep_pause(self.count(machine)))
            }
            // The effect that needs this read may be stale again.
            EffectOutcome::Rechecked(_) => None,
            EffectOutcome::Failed(_) => self.end_row(machine, Some(memory::PAUSE)),
            // The same definition is not decided again.
            EffectOutcome::TooLarge(_) if matches!(effect, Effect::Registry(RegistryEffect::Apply(_))) => {
                self.end_row(machine, None)
            }
            EffectOutcome::TooLarge(_) => self.end_row(machine, Some(memory::REFUSED)),
            EffectOutcome::Lost
            | EffectOutcome::Done
            | EffectOutcome::Previewed(_)
            | EffectOutcome::Explained(_)
            | EffectOutcome::Answers(_)
            | EffectOutcome::Check(_)
            | EffectOutcome::Command(_) => self.end_row(machine, None),
        }
    }

    /// Forgets all machines.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts one more; returns their number in a row.
    fn count(&mut self, machine: &str) -> u32 {
        let count = self.0.entry(machine.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Begins to count from 0, because something else happened; returns the pause.
    fn end_row(&mut self, machine: &str, pause: Option<Seconds>) -> Option<Seconds> {
        self.0.remove(machine);
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use cketerm_model::{
        attempt::CheckAnswer,
        boot_time::BootTime,
        kube::{MetadataPatch, NodeRow},
    };
    use cketerm_rules::snapshot::{FreshRead, StaleCause};

    use super::*;

    const EFFECT: Effect = Effect::Explain { budgets: Vec::new() };

    fn stale() -> EffectOutcome {
        EffectOutcome::Stale(StaleCause::Changed("x".to_owned()))
    }

    fn failed() -> EffectOutcome {
        EffectOutcome::Failed("x".to_owned())
    }

    fn seconds(pause: Option<Seconds>) -> Option<f64> {
        pause.map(Seconds::get)
    }

    #[test]
    fn stale_effects_in_a_row_pause_a_machine_ever_longer_until_one_succeeds() {
        let mut failures = Failures::default();
        let mut after = |machine: &str, outcome| seconds(failures.pause_after(machine, &EFFECT, &outcome));
        assert_eq!([stale(), stale(), stale()].map(|outcome| after("a", outcome)), [Some(0.1), Some(0.2), Some(0.4)]);
        assert_eq!(after("b", stale()), Some(0.1), "each machine has its own row");
        let fresh = FreshRead { at: BootTime::ZERO, node: None, pods: None };
        assert_eq!(after("a", EffectOutcome::Rechecked(fresh)), None);
        assert_eq!(after("a", stale()), Some(0.8), "a fresh read alone does not end the row");
        for ends in
            [EffectOutcome::Done, EffectOutcome::Check(CheckAnswer::Yes), EffectOutcome::Explained(BTreeMap::new())]
        {
            assert_eq!(after("a", ends), None);
            assert_eq!(after("a", stale()), Some(0.1), "it succeeded in between");
        }
        assert_eq!(after("a", failed()), Some(2.0));
        assert_eq!(after("a", stale()), Some(0.1), "it failed for another reason in between");
        failures.clear();
        assert_eq!(seconds(failures.pause_after("b", &EFFECT, &stale())), Some(0.1));
    }

    #[test]
    fn upkeep_that_fails_is_tried_ever_more_seldom_other_effects_every_two_seconds() {
        let node = Arc::new(NodeRow::default());
        let signs = Effect::SetNodeSigns { node: Arc::clone(&node), conditions: Vec::new(), taint: None };
        let description = Effect::Registry(RegistryEffect::Describe { node, description: MetadataPatch::default() });
        let mut failures = Failures::default();
        let mut after = |effect: &Effect| seconds(failures.pause_after("a", effect, &failed()));
        assert_eq!([&signs, &signs, &signs].map(&mut after), [Some(2.0), Some(4.0), Some(8.0)]);
        assert_eq!([&EFFECT, &EFFECT].map(&mut after), [Some(2.0), Some(2.0)]);
        assert_eq!([&description, &description].map(&mut after), [Some(2.0), Some(4.0)]);
    }
}
