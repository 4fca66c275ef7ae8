//! A small data centre for the tests of this room.

use super::machine::{Date, Machine, State};

/// A healthy machine `SNnn` at 10.0.0.n in rack 0 of role cs, without a retire date.
pub(crate) fn machine(n: u8) -> Machine {
    Machine {
        serial: format!("SN{n:02}"),
        labels: Vec::new(),
        rack: 0,
        index_in_rack: i64::from(n),
        role: "cs".to_owned(),
        address: format!("10.0.0.{n}"),
        ipv4: vec![format!("10.0.0.{n}")],
        register_date: Date::parse("2026-01-01T00:00:00Z").unwrap(),
        retire_date: Date::parse("2026-06-01T00:00:00Z").unwrap(),
        bmc_type: "iDRAC-9".to_owned(),
        bmc_ipv4: String::new(),
        state: State::Healthy,
        since: None,
        duration: 1000.0,
    }
}
