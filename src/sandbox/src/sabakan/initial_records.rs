//! The machines in the registry of a population.

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};

use super::record::{Record, State};
use crate::workload::Population;

/// Service life of a machine in days.
const SERVICE_LIFE_DAYS: i64 = 5 * 365;

/// Returns the nodes and the spares; empty without a registry. Some machines are almost new, some are about to retire.
pub fn initial_records(population: &Population, now: Timestamp, seed: u64) -> Vec<Record> {
    let Some(registry) = &population.registry else { return Vec::new() };
    let mut rng = Rng::with_seed(seed ^ 0x7361_6261);
    let role = |number: usize| registry.roles.get(number % registry.roles.len().max(1)).cloned().unwrap_or_default();
    let mut records = Vec::new();
    let mut add = |number: u32, serial: String, role: String| {
        let (rack, slot, address) = population.place(number);
        let age = SignedDuration::from_hours(24 * rng.i64(30..4 * 365));
        let registered = now.checked_sub(age).unwrap_or(now);
        let retires = registered.checked_add(SignedDuration::from_hours(24 * SERVICE_LIFE_DAYS)).unwrap_or(now);
        records.push(Record {
            serial,
            labels: vec![("product".to_owned(), if age.as_hours() > 24 * 700 { "r640" } else { "r650" }.to_owned())],
            rack: i64::from(rack),
            index_in_rack: i64::from(slot),
            role,
            bmc_ipv4: address.replacen("10.", "172.", 1),
            ipv4: vec![address],
            register_date: registered.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            retire_date: retires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            bmc_type: "IPMI-2.0".to_owned(),
            state: State::Healthy,
            odd_state: None,
            since: now,
        });
    };
    let machines = population.machines();
    for (number, machine) in (0..).zip(&machines) {
        let worker = machines[..number as usize].iter().filter(|m| !m.control_plane).count();
        add(number, machine.name.clone(), role(if machine.control_plane { 0 } else { worker }));
    }
    let digits = registry.spares.to_string().len();
    for spare in 0..registry.spares {
        let number = population.nodes + spare;
        let (rack, slot, _) = population.place(number);
        // Every rack has machines of every role.
        add(number, format!("s{:0digits$}", spare + 1), role((rack + slot) as usize));
    }
    records
}
