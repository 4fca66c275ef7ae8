//! A machine record of sabakan, and its lifecycle.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Lifecycle state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// Registered, but not set up.
    #[default]
    Uninitialized,
    /// Healthy.
    Healthy,
    /// Something is wrong with it.
    Unhealthy,
    /// It does not answer.
    Unreachable,
    /// Its operating system is being replaced.
    Updating,
    /// To be retired.
    Retiring,
    /// Retired.
    Retired,
}

const STATES: [(State, &str); 7] = [
    (State::Uninitialized, "UNINITIALIZED"),
    (State::Healthy, "HEALTHY"),
    (State::Unhealthy, "UNHEALTHY"),
    (State::Unreachable, "UNREACHABLE"),
    (State::Updating, "UPDATING"),
    (State::Retiring, "RETIRING"),
    (State::Retired, "RETIRED"),
];

impl State {
    /// Parses a state name in either case.
    pub fn from_name(name: &str) -> Option<Self> {
        STATES.iter().find(|(_, n)| n.eq_ignore_ascii_case(name)).map(|(state, _)| *state)
    }

    /// Returns the name in GraphQL.
    pub fn name(self) -> &'static str {
        STATES.iter().find(|(state, _)| *state == self).map_or("", |(_, name)| *name)
    }

    /// Returns the name in the REST API.
    pub fn lowercase_name(self) -> String {
        self.name().to_ascii_lowercase()
    }

    /// Reports whether sabakan allows the transition from this state to that one.
    pub fn can_become(self, next: Self) -> bool {
        if self == next {
            return true;
        }
        match self {
            Self::Uninitialized | Self::Healthy | Self::Unhealthy | Self::Unreachable => {
                !matches!(next, Self::Retired | Self::Uninitialized)
            }
            Self::Updating | Self::Retired => next == Self::Uninitialized,
            Self::Retiring => next == Self::Retired,
        }
    }
}

/// One machine. Dates are stored as they were written, so that a test can store invalid ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Serial number, its key in sabakan.
    pub serial: String,
    /// Label names and values.
    pub labels: Vec<(String, String)>,
    /// Rack number.
    pub rack: i64,
    /// Position in the rack.
    pub index_in_rack: i64,
    /// Role.
    pub role: String,
    /// IPv4 addresses.
    pub ipv4: Vec<String>,
    /// Registration date, RFC 3339.
    pub register_date: String,
    /// Retirement date, RFC 3339; the registration date if nobody set one.
    pub retire_date: String,
    /// BMC type.
    pub bmc_type: String,
    /// BMC address.
    pub bmc_ipv4: String,
    /// Lifecycle state.
    pub state: State,
    /// Returned instead of the state, to simulate an unknown state.
    pub odd_state: Option<String>,
    /// Time of the last state change.
    pub since: Timestamp,
}

impl Record {
    /// Returns the whole days until it retires, rounded toward zero.
    pub fn days(&self, now: Timestamp) -> i64 {
        let retires: Timestamp = self.retire_date.parse().unwrap_or(now);
        retires.duration_since(now).as_secs() / 86_400
    }

    /// Returns every field that a GraphQL query can select.
    pub fn answer(&self, now: Timestamp) -> Value {
        let labels: Vec<Value> = self.labels.iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
        let network: Vec<Value> = self.ipv4.iter().map(|a| nic_config(a, 26)).collect();
        json!({
            "spec": {
                "serial": self.serial,
                "labels": if labels.is_empty() { Value::Null } else { Value::Array(labels) },
                "rack": self.rack, "indexInRack": self.index_in_rack, "role": self.role,
                "ipv4": self.ipv4, "registerDate": self.register_date, "retireDate": self.retire_date,
                "bmc": {"bmcType": self.bmc_type, "ipv4": self.bmc_ipv4},
            },
            "status": {
                "state": self.odd_state.as_deref().unwrap_or(self.state.name()),
                "timestamp": self.since.to_string(),
                "duration": now.duration_since(self.since).as_secs_f64(),
            },
            "info": {"network": {"ipv4": network}, "bmc": {"ipv4": nic_config(&self.bmc_ipv4, 20)}},
        })
    }

    /// Returns the record as in the REST API.
    pub fn rest(&self, now: Timestamp) -> Value {
        let labels: serde_json::Map<String, Value> = self.labels.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
        let answer = self.answer(now);
        json!({
            "spec": {
                "serial": self.serial, "labels": labels, "rack": self.rack, "index-in-rack": self.index_in_rack,
                "role": self.role, "ipv4": self.ipv4, "ipv6": null, "register-date": self.register_date,
                "retire-date": self.retire_date, "bmc": {"ipv4": self.bmc_ipv4, "ipv6": "", "type": self.bmc_type},
            },
            "status": {
                "timestamp": answer["status"]["timestamp"], "duration": answer["status"]["duration"],
                "state": self.state.lowercase_name(),
            },
            "info": answer["info"],
        })
    }
}

/// Returns an address with its network.
fn nic_config(address: &str, bits: u32) -> Value {
    let number = address.parse::<std::net::Ipv4Addr>().map_or(0, u32::from);
    let mask = u32::MAX << (32 - bits);
    let text = |n: u32| std::net::Ipv4Addr::from(n).to_string();
    json!({"address": address, "netmask": text(mask), "maskbits": bits, "gateway": text((number & mask) + 1)})
}
