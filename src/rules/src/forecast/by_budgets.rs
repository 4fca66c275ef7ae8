//! Waves of workers under the policy `worker_order: budgets` (REB-68): no wave has two nodes of one budget that does not
//! allow the pods of both at once.

use std::collections::BTreeMap;

use super::{Forecast, MachineForecast, Place, Separation, number};

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
    /// Moves workers into later waves so that each wave respects the budgets, and notes what keeps them apart. It changes
    /// no other place.
    #[must_use]
    pub fn by_budgets(self, budgets: &Budgets) -> Self {
        let Self { notes, placed, slots } = self;
        let (in_work, rest): (Vec<_>, Vec<_>) = placed.into_iter().partition(|p| matches!(p.place, Place::InWork(_)));
        let (starts, waits): (Vec<_>, Vec<_>) = rest.into_iter().partition(|p| matches!(p.place, Place::Wave(..)));
        let (api_servers, mut workers): (Vec<_>, Vec<_>) = starts.into_iter().partition(|p| p.api_server);
        let (mut waves, mut slots_of_wave) = (Vec::new(), slots.free);
        let mut used: Vec<String> = in_work.iter().map(|p| p.name.clone()).collect();
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

/// Returns the workers of the next wave, and the others in their order. `used` are the nodes in progress.
fn next_wave(
    workers: Vec<MachineForecast>,
    slots: usize,
    used: &[String],
    budgets: &Budgets,
) -> (Vec<MachineForecast>, Vec<MachineForecast>) {
    let mut in_use = InUse::default();
    for name in used {
        in_use.add(name, budgets);
    }
    let (mut wave, mut left) = (Vec::new(), Vec::new());
    let mut first_held: Option<(usize, String)> = None;
    for (position, mut worker) in workers.into_iter().enumerate() {
        let is_behind = |(first, _): &&(usize, String)| position > first.saturating_add(budgets.max_overtakes);
        if wave.len() >= slots {
            left.push(worker);
        } else if let Some((_, node)) = first_held.as_ref().filter(is_behind) {
            worker.apart = Some(Separation::Overtakes { node: node.clone() });
            left.push(worker);
        } else if let Some(separation) = in_use.conflict(&worker.name, budgets) {
            first_held.get_or_insert_with(|| (position, worker.name.clone()));
            worker.apart = Some(separation);
            left.push(worker);
        } else {
            in_use.add(&worker.name, budgets);
            wave.push(worker);
        }
    }
    (wave, left)
}

/// Budgets that the nodes of a wave use.
#[derive(Default)]
struct InUse {
    /// Number of pods by budget.
    pods: Demand,
    /// The nodes.
    nodes: Vec<String>,
}

impl InUse {
    fn add(&mut self, name: &str, budgets: &Budgets) {
        let Some(demand) = budgets.demand.get(name) else { return };
        for (budget, n) in demand {
            let known = self.pods.entry(budget.clone()).or_default();
            *known = known.saturating_add(*n);
        }
        self.nodes.push(name.to_owned());
    }

    /// Returns the budget that does not allow the pods of this node beside those of the wave.
    fn conflict(&self, name: &str, budgets: &Budgets) -> Option<Separation> {
        budgets.demand.get(name)?.iter().find_map(|(budget, wanted)| {
            let beside = self.pods.get(budget).copied().unwrap_or(0);
            let allowed = budgets.allowed.get(budget).copied().unwrap_or(0);
            let fits = beside <= 0 || allowed >= beside.saturating_add(*wanted);
            let has_pods = |node: &&String| budgets.demand.get(*node).is_some_and(|demand| demand.contains_key(budget));
            (!fits).then(|| Separation::Budget {
                budget: budget.clone(),
                allowed: allowed.max(0),
                nodes: self.nodes.iter().filter(has_pods).cloned().collect(),
            })
        })
    }
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
            apart: None,
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

    /// Returns what keeps the machine of this name apart from others.
    fn apart(forecast: &Forecast, name: &str) -> Option<Separation> {
        forecast.placed.iter().find(|placed| placed.name == name)?.apart.clone()
    }

    /// The waves showed that two nodes do not go together, but not which budget keeps them apart.
    #[test]
    fn a_later_node_names_the_budget_and_the_nodes_that_it_waits_for() {
        let waits = |allowed, nodes: &[&str]| {
            let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
            Some(Separation::Budget { budget: "x".to_owned(), allowed, nodes })
        };
        let shared = budgets(&[("a", "x"), ("b", "x"), ("c", "y"), ("d", "x"), ("e", "y")], 1);
        let ordered = forecast(&["a", "b", "c", "d"], 2).by_budgets(&shared);
        assert_eq!(waves(&ordered), [vec!["a", "c"], vec!["b"], vec!["d"]]);
        assert_eq!((apart(&ordered, "a"), apart(&ordered, "c")), (None, None));
        assert_eq!((apart(&ordered, "b"), apart(&ordered, "d")), (waits(1, &["a"]), waits(1, &["b"])));
        let two = budgets(&[("a", "x"), ("b", "x"), ("c", "x")], 2);
        assert_eq!(apart(&forecast(&["a", "b", "c"], 3).by_budgets(&two), "c"), waits(2, &["a", "b"]));
        let full = forecast(&["c", "d", "e"], 2).by_budgets(&budgets(&[("c", "y")], 1));
        assert_eq!(apart(&full, "e"), None, "it waits for a slot, not for a budget");
        let mut busy = forecast(&["a", "b"], 2);
        busy.placed[0].place = Place::InWork("draining".to_owned());
        assert_eq!(apart(&busy.by_budgets(&shared), "b"), waits(1, &["a"]), "a node in progress counts");
        let bound = Budgets { max_overtakes: 1, ..budgets(&[("a", "x"), ("b", "x")], 1) };
        let bound = forecast(&["a", "b", "c", "d"], 4).by_budgets(&bound);
        assert_eq!(apart(&bound, "d"), Some(Separation::Overtakes { node: "b".to_owned() }));
    }
}
