//! Waves of workers under the policy `worker_order: budgets` (REB-68): no wave has two nodes of one budget that does not
//! allow the pods of both at once.

use std::collections::BTreeMap;

use super::{Forecast, MachineForecast, Place, number};

/// Number of pods to evict from a node, by budget (`namespace/name`).
pub type Demand = BTreeMap<String, i32>;

/// Slots of the reboot queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Most machines at once.
    pub limit: usize,
    /// Slots that are free now.
    pub free: usize,
    /// Whether API servers come before workers.
    pub api_first: bool,
}

/// Budgets of the nodes of a forecast.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    /// Demand of each node, by name.
    pub demand: BTreeMap<String, Demand>,
    /// Evictions that each budget allows now.
    pub allowed: BTreeMap<String, i32>,
    /// Policy `max_overtakes`.
    pub max_overtakes: usize,
}

impl Forecast {
    /// Moves workers into later waves so that each wave respects the budgets. It changes no other place.
    #[must_use]
    pub fn by_budgets(self, budgets: &Budgets) -> Self {
        let Self { notes, placed, slots } = self;
        let (in_work, rest): (Vec<_>, Vec<_>) = placed.into_iter().partition(|p| matches!(p.place, Place::InWork(_)));
        let (starts, waits): (Vec<_>, Vec<_>) = rest.into_iter().partition(|p| matches!(p.place, Place::Wave(..)));
        let (api_servers, mut workers): (Vec<_>, Vec<_>) = starts.into_iter().partition(|p| p.api_server);
        let (mut waves, mut slots_of_wave) = (Vec::new(), slots.free);
        let mut used: Vec<&Demand> = in_work.iter().filter_map(|p| budgets.demand.get(&p.name)).collect();
        while !workers.is_empty() {
            let wave;
            (wave, workers) = next_wave(workers, slots_of_wave.max(1), &used, budgets);
            // machines in progress that fill all budgets have ended before the next wave
            (used, slots_of_wave) = (Vec::new(), slots.limit.max(1));
            waves.push(wave);
        }
        waves.retain(|wave| !wave.is_empty());
        let alone = api_servers.into_iter().map(|server| vec![server]);
        let waves =
            if slots.api_first { alone.chain(waves).collect() } else { waves.into_iter().chain(alone).collect() };
        let placed = in_work.into_iter().chain(number(waves)).chain(waits).collect();
        Self { notes, placed, slots }
    }
}

/// Returns the workers of the next wave, and the others in their order.
fn next_wave(
    workers: Vec<MachineForecast>,
    slots: usize,
    used: &[&Demand],
    budgets: &Budgets,
) -> (Vec<MachineForecast>, Vec<MachineForecast>) {
    let mut in_use = Demand::new();
    for demand in used {
        add(&mut in_use, demand);
    }
    let (mut wave, mut left) = (Vec::new(), Vec::new());
    let mut first_held = None;
    for (position, worker) in workers.into_iter().enumerate() {
        let demand = budgets.demand.get(&worker.name);
        let behind = first_held.is_some_and(|first: usize| position > first.saturating_add(budgets.max_overtakes));
        if wave.len() >= slots || behind {
            left.push(worker);
        } else if demand.is_some_and(|demand| conflicts(demand, &in_use, budgets)) {
            first_held.get_or_insert(position);
            left.push(worker);
        } else {
            if let Some(demand) = demand {
                add(&mut in_use, demand);
            }
            wave.push(worker);
        }
    }
    (wave, left)
}

fn add(sum: &mut Demand, demand: &Demand) {
    for (budget, n) in demand {
        let known = sum.entry(budget.clone()).or_default();
        *known = known.saturating_add(*n);
    }
}

/// Reports whether some budget does not allow these pods beside those of the wave.
fn conflicts(demand: &Demand, in_use: &Demand, budgets: &Budgets) -> bool {
    demand.iter().any(|(budget, wanted)| {
        let beside = in_use.get(budget).copied().unwrap_or(0);
        beside > 0 && budgets.allowed.get(budget).copied().unwrap_or(0) < beside.saturating_add(*wanted)
    })
}

#[cfg(test)]
mod tests {
    use cketerm_model::names::Address;

    use super::*;

    fn forecast(names: &[&str], limit: usize) -> Forecast {
        let placed = |name: &&str| MachineForecast {
            address: Address::new(*name),
            name: (*name).to_owned(),
            api_server: name.starts_with("api"),
            entry: None,
            place: Place::Wave(1, None),
        };
        let slots = Slots { limit, free: limit, api_first: false };
        Forecast { notes: Vec::new(), placed: names.iter().map(placed).collect(), slots }
    }

    fn budgets(of: &[(&str, &str)], allowed: i32) -> Budgets {
        let demand = of.iter().map(|(node, budget)| ((*node).to_owned(), [((*budget).to_owned(), 1)].into()));
        let allowed = of.iter().map(|(_, budget)| ((*budget).to_owned(), allowed)).collect();
        Budgets { demand: demand.collect(), allowed, max_overtakes: 20 }
    }

    fn waves(forecast: &Forecast) -> Vec<Vec<&str>> {
        let mut waves: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for machine in &forecast.placed {
            let Place::Wave(wave, _) = machine.place else { panic!() };
            waves.entry(wave).or_default().push(&machine.name);
        }
        waves.into_values().collect()
    }

    #[test]
    fn a_wave_has_no_two_nodes_of_one_exhausted_budget() {
        let shared = budgets(&[("a", "x"), ("b", "x"), ("c", "y"), ("d", "x")], 1);
        let forecast = forecast(&["a", "b", "c", "d", "e", "api-1"], 2);
        assert_eq!(
            waves(&forecast.clone().by_budgets(&shared)),
            [vec!["a", "c"], vec!["b", "e"], vec!["d"], vec!["api-1"]]
        );
        let roomy = budgets(&[("a", "x"), ("b", "x")], 2);
        assert_eq!(waves(&forecast.by_budgets(&roomy))[0], ["a", "b"], "the budget allows both at once");
    }

    #[test]
    fn nobody_is_overtaken_more_often_than_the_policy_allows() {
        let shared = Budgets { max_overtakes: 1, ..budgets(&[("a", "x"), ("b", "x")], 1) };
        let forecast = forecast(&["a", "b", "c", "d", "e"], 4).by_budgets(&shared);
        assert_eq!(waves(&forecast), [vec!["a", "c"], vec!["b", "d", "e"]]);
    }
}
