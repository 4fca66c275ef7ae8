//! Reasons for the machines that a plan leaves unused.

use std::collections::{HashMap, HashSet};

use cketerm_model::names::Address;
use serde::Serialize;

use super::{
    machine::{Machine, State},
    plan::{Input, Plan},
    score::{Kind, Rule},
};

/// A machine that is not in the definition after a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unused {
    /// Its address.
    pub address: Address,
    /// Its serial.
    pub serial: String,
    /// Its role in sabakan.
    pub role: String,
    /// Its state.
    pub state: State,
    /// Its score as the next worker, if it could be one.
    pub score: Option<i64>,
    /// The reason.
    pub why: String,
}

/// Returns the machines that a plan leaves unused, ordered by rack, index in rack and serial.
pub fn unused(input: &Input<'_>, plan: &Plan) -> Vec<Unused> {
    let used: HashSet<&str> =
        plan.nodes.iter().filter(|c| c.control_plane.is_some()).map(|c| c.address.as_str()).collect();
    let leaving: HashSet<&str> =
        plan.nodes.iter().filter(|c| c.control_plane.is_none()).map(|c| c.address.as_str()).collect();
    let by_address: HashMap<&str, &Machine> = input.machines.iter().map(|m| (m.address.as_str(), m)).collect();
    // the last machine taken of each role: it separates those that were taken from the others
    let mut racks: HashMap<i64, u32> = HashMap::new();
    let mut lowest: HashMap<&str, (i64, &str)> = HashMap::new();
    for choice in plan.nodes.iter().filter(|c| c.control_plane == Some(false)) {
        let Some(machine) = by_address.get(choice.address.as_str()) else { continue };
        *racks.entry(machine.rack).or_default() += 1;
        if let (None, Some(score)) = (choice.was_control_plane, choice.score) {
            let entry = lowest.entry(&machine.role).or_insert((score, &machine.serial));
            if score < entry.0 {
                *entry = (score, &machine.serial);
            }
        }
    }
    let rule = Rule { strategy: input.strategy, kind: Kind::Worker, health: false };
    let mut remaining: Vec<&Machine> = input.machines.iter().filter(|m| !used.contains(m.address.as_str())).collect();
    remaining.sort_by(|a, b| a.place().cmp(&b.place()));
    let each = remaining.into_iter().map(|m| {
        let templated =
            input.template.worker_kind(&m.role).is_some_and(|k| input.template.workers[k].accepts_role(&m.role));
        let is_candidate = m.healthy() && templated;
        let score = is_candidate.then(|| rule.score(m, racks.get(&m.rack).copied().unwrap_or(0), input.now));
        let why = if leaving.contains(m.address.as_str()) {
            "it leaves with this plan".to_owned()
        } else if input.rebooting.contains(&m.address) {
            "it is being rebooted".to_owned()
        } else if !m.healthy() {
            format!("it is {}", m.state)
        } else if !templated && !input.template.control_plane.accepts_role(&m.role) {
            format!("no template has role {}", m.role)
        } else {
            match (score, lowest.get(m.role.as_str())) {
                (Some(score), Some((last, serial))) => {
                    format!("not needed: others were preferred, the last {serial} with {last}; if added next: {score}")
                }
                (Some(score), None) => format!("healthy and not needed; if added next: {score}"),
                (None, _) => "healthy and not needed".to_owned(),
            }
        };
        Unused {
            address: m.address.clone(),
            serial: m.serial.clone(),
            role: m.role.clone(),
            state: m.state,
            score: score.map(|s| s.total),
            why,
        }
    });
    each.collect()
}
