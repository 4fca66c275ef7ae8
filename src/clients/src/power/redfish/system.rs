//! The computer system behind a BMC: discovery, power state, `ComputerSystem.Reset`.

use std::time::Duration;

use cketerm_model::power_state::PowerState;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    client::{Bmc, link},
    error::BmcError,
};

/// Usual path of the systems. The service root has the actual one.
const SYSTEMS: &str = "/redfish/v1/Systems";

/// Facts about a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct System {
    /// Its path: `/redfish/v1/Systems/1`.
    pub(super) path: String,
    /// Its name. Empty: none.
    pub(super) name: String,
    /// `PowerState`.
    pub(super) power: PowerState,
    /// Time since `LastResetTime`, by the BMC's clock alone, so its absolute error does not matter. Few BMCs report it.
    pub(super) reset_age: Option<Duration>,
    /// Path to which a reset is posted. `None`: it cannot be reset.
    target: Option<String>,
    /// Reset types on offer. `None`: the BMC does not list them.
    offered: Option<Vec<String>>,
}

impl System {
    /// Returns the reset types on offer. Empty: the BMC does not list them.
    pub(super) fn offered(&self) -> &[String] {
        self.offered.as_deref().unwrap_or_default()
    }

    /// Returns the first of these reset types that is on offer. Types that are not on offer are never tried.
    pub(super) fn first_offered(&self, types: &[&'static str]) -> Option<&'static str> {
        self.target.as_ref()?;
        let offered = |t: &&&str| self.offered.as_ref().is_none_or(|all| all.iter().any(|o| o == *t));
        types.iter().find(offered).copied()
    }
}

impl Bmc {
    /// Reads the machine's system: the one that was named, else the only one.
    pub(super) async fn system(&self) -> Result<System, BmcError> {
        let root = self.open().await?;
        let systems = link(&root["Systems"]).unwrap_or(SYSTEMS).trim_end_matches('/').to_owned();
        let path = match &self.system {
            Some(path) if path.starts_with('/') => path.clone(),
            Some(id) => format!("{systems}/{id}"),
            None => self.only_system(&systems).await?,
        };
        let (value, now) = self.get_with_date(&path).await?;
        self.read_system(path, &value, now).await
    }

    /// Reads the same system again without discovery.
    pub(super) async fn again(&self, known: &System) -> Result<System, BmcError> {
        let (value, now) = self.get_with_date(&known.path).await?;
        let power = self.power_of(&known.path, &value)?;
        Ok(System { power, reset_age: age(&value, now), ..known.clone() })
    }

    async fn only_system(&self, systems: &str) -> Result<String, BmcError> {
        let value = self.get(systems).await?;
        let Some(members) = value["Members"].as_array() else {
            return Err(self.not_redfish(&format!("GET {systems}"), "a collection without Members"));
        };
        let mut found: Vec<String> = members.iter().filter_map(link).map(str::to_owned).collect();
        match found.pop() {
            Some(only_system) if found.is_empty() && members.len() == 1 => Ok(only_system),
            last => {
                found.extend(last);
                Err(BmcError::Systems { bmc: self.origin.clone(), found })
            }
        }
    }

    fn power_of(&self, path: &str, value: &Value) -> Result<PowerState, BmcError> {
        if value.is_object() {
            return Ok(PowerState::read(value["PowerState"].as_str()));
        }
        Err(self.not_redfish(&format!("GET {path}"), "a system that is not an object"))
    }

    async fn read_system(&self, path: String, value: &Value, now: Option<Timestamp>) -> Result<System, BmcError> {
        let power = self.power_of(&path, value)?;
        let action = &value["Actions"]["#ComputerSystem.Reset"];
        let offered = match &action["ResetType@Redfish.AllowableValues"] {
            Value::Array(values) => Some(strings(values)),
            // Newer services report it in a resource of its own.
            _ => match action["@Redfish.ActionInfo"].as_str() {
                Some(info) => self.get(info).await.ok().as_ref().and_then(reset_types_of),
                None => None,
            },
        };
        Ok(System {
            power,
            name: value["Name"].as_str().unwrap_or_default().to_owned(),
            reset_age: age(value, now),
            target: action["target"].as_str().map(str::to_owned),
            offered,
            path,
        })
    }

    /// Requests one reset. A missing answer is an error like any other; the caller must read the power state
    /// afterwards.
    pub(super) async fn reset(&self, system: &System, kind: &str) -> Result<(), BmcError> {
        let Some(target) = &system.target else {
            return Err(
                self.not_redfish(&format!("GET {}", system.path), "the system has no action ComputerSystem.Reset")
            );
        };
        tracing::info!(bmc = self.origin, system = system.path, reset = kind, "requesting a reset");
        self.post(target, &json!({"ResetType": kind})).await.map(drop)
    }
}

/// A reset time in the future counts as none.
fn age(value: &Value, now: Option<Timestamp>) -> Option<Duration> {
    let at: Timestamp = value["LastResetTime"].as_str()?.parse().ok()?;
    Duration::try_from(now?.duration_since(at)).ok()
}

fn strings(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn reset_types_of(info: &Value) -> Option<Vec<String>> {
    let parameters = info["Parameters"].as_array()?;
    let kind = parameters.iter().find(|p| p["Name"] == "ResetType")?;
    kind["AllowableValues"].as_array().map(|values| strings(values))
}
