//! Parser of sabakan's answer. An answer that cannot be read completely is unusable.

use std::{collections::HashMap, net::IpAddr};

use cketerm_model::{boot_time::Seconds, names::Address};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Date, Machine, MachineError, Machines, State};

/// Reads sabakan's answer to `searchMachines`, its `data`, or the bare list of machines.
pub fn read(text: &str) -> Result<Machines, MachineError> {
    let shape = |e: serde_json::Error| MachineError::Shape(e.to_string());
    let raw = match serde_json::from_str::<Answer>(text) {
        Ok(answer) => answer.machines()?,
        // Slow second parse, only to name the machine with the fault.
        Err(_) => parse_with_names(serde_json::from_str::<Value>(text).map_err(shape)?)?,
    };
    validate(raw)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    List(Vec<RawMachine>),
    Object {
        #[serde(default)]
        data: Option<Data>,
        #[serde(default, rename = "searchMachines")]
        machines: Option<Vec<RawMachine>>,
        #[serde(default)]
        errors: Option<Vec<Value>>,
    },
}

#[derive(Deserialize)]
struct Data {
    #[serde(default, rename = "searchMachines")]
    machines: Option<Vec<RawMachine>>,
}

impl Answer {
    fn machines(self) -> Result<Vec<RawMachine>, MachineError> {
        match self {
            Self::List(list) => Ok(list),
            Self::Object { errors: Some(errors), .. } if !errors.is_empty() => {
                let messages: Vec<String> = errors.iter().map(message).collect();
                Err(MachineError::Answered(messages.join("; ")))
            }
            Self::Object { data, machines, .. } => data
                .and_then(|d| d.machines)
                .or(machines)
                .ok_or_else(|| MachineError::Shape("it has no data.searchMachines".to_owned())),
        }
    }
}

fn message(error: &Value) -> String {
    error.get("message").and_then(Value::as_str).map_or_else(|| error.to_string(), str::to_owned)
}

/// Parses each machine by itself, so that an error can name it.
fn parse_with_names(value: Value) -> Result<Vec<RawMachine>, MachineError> {
    let errors = value.get("errors").and_then(Value::as_array).filter(|list| !list.is_empty());
    if let Some(errors) = errors {
        return Err(MachineError::Answered(errors.iter().map(message).collect::<Vec<_>>().join("; ")));
    }
    let list = match value {
        Value::Array(list) => list,
        other => {
            let found = other.pointer("/data/searchMachines").or_else(|| other.get("searchMachines"));
            let list = found.and_then(Value::as_array).cloned();
            list.ok_or_else(|| MachineError::Shape("it has no list data.searchMachines".to_owned()))?
        }
    };
    let each = list.into_iter().enumerate().map(|(i, item)| {
        let serial = item.pointer("/spec/serial").and_then(Value::as_str).map(str::to_owned);
        serde_json::from_value(item).map_err(|e| MachineError::Machine {
            machine: serial.unwrap_or_else(|| format!("[{i}] of the list")),
            why: e.to_string(),
        })
    });
    each.collect()
}

#[derive(Deserialize)]
struct RawMachine {
    spec: RawSpec,
    status: RawStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    serial: String,
    #[serde(default, deserialize_with = "none_is_empty")]
    labels: Vec<RawLabel>,
    rack: i64,
    index_in_rack: i64,
    role: String,
    #[serde(default, deserialize_with = "none_is_empty")]
    ipv4: Vec<String>,
    register_date: Option<String>,
    retire_date: Option<String>,
    #[serde(default)]
    bmc: Option<RawBmc>,
}

#[derive(Deserialize)]
struct RawLabel {
    name: String,
    value: String,
}

#[derive(Default, Deserialize)]
struct RawBmc {
    #[serde(default, rename = "bmcType")]
    kind: Option<String>,
    #[serde(default)]
    ipv4: Option<String>,
}

#[derive(Deserialize)]
struct RawStatus {
    state: String,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    duration: Option<Seconds>,
}

fn none_is_empty<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn validate(raw: Vec<RawMachine>) -> Result<Machines, MachineError> {
    let mut out = Machines { list: Vec::with_capacity(raw.len()), warnings: Vec::new() };
    for (i, machine) in raw.into_iter().enumerate() {
        let serial = machine.spec.serial.clone();
        let name = || if serial.is_empty() { format!("[{i}] of the list") } else { serial.clone() };
        match parse_machine(machine) {
            Ok(Some(machine)) => out.list.push(machine),
            Ok(None) => out.warnings.push(format!("machine {} has no IPv4 address and is ignored", name())),
            Err(why) => return Err(MachineError::Machine { machine: name(), why }),
        }
    }
    let mut seen: HashMap<&str, &str> = HashMap::with_capacity(out.list.len());
    for machine in &out.list {
        if let Some(first) = seen.insert(&machine.address, &machine.serial) {
            return Err(MachineError::SameAddress {
                first: first.to_owned(),
                second: machine.serial.clone(),
                address: machine.address.clone(),
            });
        }
    }
    Ok(out)
}

fn parse_machine(raw: RawMachine) -> Result<Option<Machine>, String> {
    let (spec, status) = (raw.spec, raw.status);
    let Some(address) = spec.ipv4.iter().find(|a| !a.is_empty()) else { return Ok(None) };
    // in canonical form, so that it compares equal to the definition's
    let address: IpAddr = address.parse().map_err(|_| format!("ipv4: {address:?} is not an IP address"))?;
    let state = State::from_graphql(&status.state).ok_or_else(|| {
        let known = State::ALL.map(State::graphql).join(", ");
        format!("state: {:?} is not known; known: {known}", status.state)
    })?;
    let date = |field: &str, text: Option<String>| {
        let text = text.ok_or_else(|| format!("{field} is missing"))?;
        Date::parse(&text).map_err(|e| format!("{field}: {e}"))
    };
    let since = match status.timestamp.filter(|t| !t.is_empty()) {
        Some(text) => Some(Date::parse(&text).map_err(|e| format!("status.timestamp: {e}"))?.at),
        None => None,
    };
    let mut labels: Vec<(String, String)> = spec.labels.into_iter().map(|l| (l.name, l.value)).collect();
    labels.sort();
    let bmc = spec.bmc.unwrap_or_default();
    Ok(Some(Machine {
        serial: spec.serial,
        labels,
        rack: spec.rack,
        index_in_rack: spec.index_in_rack,
        role: spec.role,
        address: Address::new(address.to_string()),
        ipv4: spec.ipv4,
        register_date: date("registerDate", spec.register_date)?,
        retire_date: date("retireDate", spec.retire_date)?,
        bmc_type: bmc.kind.unwrap_or_default(),
        bmc_ipv4: bmc.ipv4.unwrap_or_default(),
        state,
        since,
        duration: status.duration.unwrap_or_default(),
    }))
}
