//! Automatic repair: chooses the unhealthy machines of sabakan's answer that enter the repair queue (REP-44 to REP-55,
//! I42).

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    boot_time::Seconds,
    cluster::{Cluster, Node},
    constraints::Constraints,
    fault,
    names::Address,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairEntry, RepairStatus, StepStatus},
};
use serde::Serialize;

use super::machine::{Machine, State};

/// Everything that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct RepairInput<'a> {
    /// Sabakan's answer to the query of automatic repair. By default all unhealthy and unreachable machines.
    pub machines: &'a [Machine],
    /// The constraints in force.
    pub constraints: &'a Constraints,
    /// All entries of the repair queue, including finished and deleted ones.
    pub repairs: &'a [RepairEntry],
    /// All entries of the reboot queue.
    pub reboots: &'a [RebootEntry],
    /// The current definition. `None`: no machine is a member.
    pub current: Option<&'a Cluster>,
    /// Machines that are off or in transition for a reason that sabakan does not know, by address, with the reason. A
    /// repair could power on a machine that a client holds off (REP-47, I44).
    pub excluded: &'a BTreeMap<Address, String>,
    /// The index of the first new entry.
    pub next_index: u64,
}

/// A machine that is not added to the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its address.
    pub address: Address,
    /// Its serial.
    pub serial: String,
    /// Its state, in lower case.
    pub state: State,
    /// The reason.
    pub why: String,
}

/// Result of automatic repair: the output of `auto-repair plan -o json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RepairPlan {
    /// The entries to add, in the order of the machines' serials.
    pub entries: Vec<RepairEntry>,
    /// The other machines with their reasons, in the same order.
    pub skipped: Vec<Skipped>,
    /// Reason why nothing is added although machines need repair: the queue would exceed its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capped: Option<String>,
}

/// Chooses the entries. Pure. If the limit would be exceeded it adds none, as CKE does (REP-52).
pub fn plan_repairs(input: &RepairInput<'_>) -> RepairPlan {
    let queued: BTreeMap<&Address, &RepairEntry> = input.repairs.iter().rev().map(|e| (&e.address, e)).collect();
    let rebooting: BTreeSet<&Address> =
        input.reboots.iter().filter(|entry| entry.status == RebootStatus::Rebooting).map(|entry| &entry.node).collect();
    let members: BTreeMap<&Address, &Node> =
        input.current.iter().flat_map(|c| &c.nodes).map(|n| (&n.address, n)).collect();
    let mut machines: Vec<&Machine> = input.machines.iter().collect();
    machines.sort_by(|a, b| a.serial.cmp(&b.serial));
    let mut plan = RepairPlan::default();
    let mut chosen: Vec<&Machine> = Vec::new();
    for machine in machines {
        let address = &machine.address;
        let reason = queued
            .get(address)
            .map(|e| held_reason(e))
            .or_else(|| input.excluded.get(address).cloned())
            .or_else(|| skip_if_young(machine, input, &rebooting, &members));
        match reason {
            Some(why) => plan.skipped.push(skip(machine, why)),
            None => chosen.push(machine),
        }
    }
    let cap = usize::try_from(input.constraints.maximum_repair_queue_entries).unwrap_or(0);
    fault!(RepairLimitIgnored => cap = usize::MAX);
    let total = input.repairs.len() + chosen.len();
    if total > cap && !chosen.is_empty() {
        let why = format!(
            "{} entries and {} new ones exceed maximum-repair-queue-entries {cap}; none is added",
            input.repairs.len(),
            chosen.len()
        );
        plan.skipped.extend(chosen.iter().map(|m| skip(m, why.clone())));
        plan.skipped.sort_by(|a, b| a.serial.cmp(&b.serial));
        plan.capped = Some(why);
        return plan;
    }
    let entry = |(machine, index): (&Machine, u64)| entry(machine, index, members.get(&machine.address).copied());
    plan.entries = chosen.into_iter().zip(input.next_index..).map(entry).collect();
    plan
}

fn skip(machine: &Machine, why: String) -> Skipped {
    Skipped { address: machine.address.clone(), serial: machine.serial.clone(), state: machine.state, why }
}

/// REP-46: a machine with any repair entry is skipped.
fn held_reason(entry: &RepairEntry) -> String {
    let deleted = if entry.deleted { ", marked as deleted" } else { "" };
    format!("it already has the repair entry {} ({}{deleted})", entry.index, entry.status)
}

/// REP-48 to REP-50: skips an `UNREACHABLE` machine that has been so for less than `wait-seconds-to-repair-rebooting`,
/// if any of its reboot entries is `rebooting` or it is not a member. CKE looks at the first entry only.
fn skip_if_young(
    machine: &Machine,
    input: &RepairInput<'_>,
    rebooting: &BTreeSet<&Address>,
    members: &BTreeMap<&Address, &Node>,
) -> Option<String> {
    if !is_too_young(machine, input) {
        return None;
    }
    let wait = input.constraints.wait_seconds_to_repair_rebooting;
    let cause = if rebooting.contains(&machine.address) {
        "it is being rebooted"
    } else if members.contains_key(&machine.address) {
        return None;
    } else {
        "it is not a member of the cluster"
    };
    Some(format!("{cause}; unreachable for only {:.0} of wait-seconds-to-repair-rebooting {wait}", machine.duration))
}

fn is_too_young(machine: &Machine, input: &RepairInput<'_>) -> bool {
    let wait = Seconds::from(input.constraints.wait_seconds_to_repair_rebooting);
    machine.state == State::Unreachable && machine.duration < wait
}

fn entry(machine: &Machine, index: u64, member: Option<&Node>) -> RepairEntry {
    RepairEntry {
        index,
        address: machine.address.clone(),
        nodename: member.map(Node::node_name).unwrap_or_default(),
        serial: Some(machine.serial.clone()),
        machine_type: machine.bmc_type.clone(),
        operation: machine.state.as_str().to_owned(),
        status: RepairStatus::Queued,
        step: 0,
        step_status: StepStatus::Waiting,
        deleted: false,
        last_transition_time: None,
        drain_backoff_count: 0,
        drain_backoff_expire: None,
        unknown: serde_json::Map::new(),
    }
}

#[cfg(test)]
#[path = "tests/repair.rs"]
mod tests;
