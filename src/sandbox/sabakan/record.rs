//! A machine as sabakan has it, and the life it leads.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where it stands in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// Registered, not set up.
    #[default]
    Uninitialized,
    /// Good.
    Healthy,
    /// Something is wrong with it.
    Unhealthy,
    /// It does not answer.
    Unreachable,
    /// Its system is being exchanged.
    Updating,
    /// It is to leave.
    Retiring,
    /// It has left.
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
    /// By its name in either case.
    pub fn named(name: &str) -> Option<Self> {
        STATES.iter().find(|(_, n)| n.eq_ignore_ascii_case(name)).map(|(state, _)| *state)
    }

    /// As GraphQL spells it.
    pub fn name(self) -> &'static str {
        STATES.iter().find(|(state, _)| *state == self).map_or("", |(_, name)| *name)
    }

    /// As the REST API spells it.
    pub fn word(self) -> String {
        self.name().to_ascii_lowercase()
    }

    /// Whether sabakan lets a machine go from this state to that one.
    pub fn may_become(self, next: Self) -> bool {
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

/// One machine. Dates are kept as they were written, so that data can be bad.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// Its name in sabakan.
    pub serial: String,
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// The rack it stands in.
    pub rack: i64,
    /// Where in it.
    pub index_in_rack: i64,
    /// What it is for.
    pub role: String,
    /// Its addresses.
    pub ipv4: Vec<String>,
    /// RFC 3339.
    pub register_date: String,
    /// RFC 3339; that of the registration where nobody set one.
    pub retire_date: String,
    /// Type of its BMC.
    pub bmc_type: String,
    /// Address of its BMC.
    pub bmc_ipv4: String,
    /// Its state.
    pub state: State,
    /// Answered instead of the state, so that it can be one that nobody knows.
    pub odd_state: Option<String>,
    /// Since when.
    pub since: Timestamp,
}

impl Record {
    /// Whole days until it retires, toward zero.
    pub fn days(&self, now: Timestamp) -> i64 {
        let retires: Timestamp = self.retire_date.parse().unwrap_or(now);
        retires.duration_since(now).as_secs() / 86_400
    }

    /// Everything that can be asked of it.
    pub fn answer(&self, now: Timestamp) -> Value {
        let labels: Vec<Value> = self.labels.iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
        let network: Vec<Value> = self.ipv4.iter().map(|a| place(a, 26)).collect();
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
            "info": {"network": {"ipv4": network}, "bmc": {"ipv4": place(&self.bmc_ipv4, 20)}},
        })
    }

    /// As the REST API lists it.
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
                "state": self.state.word(),
            },
            "info": answer["info"],
        })
    }
}

/// An address in its network.
fn place(address: &str, bits: u32) -> Value {
    let number = address.parse::<std::net::Ipv4Addr>().map_or(0, u32::from);
    let mask = u32::MAX << (32 - bits);
    let text = |n: u32| std::net::Ipv4Addr::from(n).to_string();
    json!({"address": address, "netmask": text(mask), "maskbits": bits, "gateway": text((number & mask) + 1)})
}
