//! BareMetalHosts of Metal3, and the annotations of its reboot interface (MET-1 to MET-12).

mod proof;

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::proof::{OffStreak, PowerObservation, PowerWatch, ProofSource};
use crate::names::{Address, NodeName};

/// Annotation that requests one power cycle. The controller removes it.
pub const REBOOT_ANNOTATION: &str = "reboot.metal3.io";
/// Prefix of annotations that hold a host off. The rest is the client's key.
pub const HOLD_PREFIX: &str = "reboot.metal3.io/";
/// Annotation that pauses the baremetal-operator's work on a host.
pub const PAUSED_ANNOTATION: &str = "baremetalhost.metal3.io/paused";
/// Annotation that detaches a host from the baremetal-operator.
pub const DETACHED_ANNOTATION: &str = "baremetalhost.metal3.io/detached";

/// Annotation in which cketerm's controller keeps the two timestamps if the server's resource definition drops them: a
/// JSON object with `pendingRebootSince` and `lastPoweredOn`.
pub const TIMES_ANNOTATION: &str = "cketerm.io/reboot-times";

/// Annotation with the name of the host's Node, for hosts whose addresses and host name do not show it.
pub const NODE_ANNOTATION: &str = "cketerm.io/node";

/// Key under which `cketerm hosts hold` holds a host off. `--as NAME` makes it `cketerm-NAME`.
pub const HOLD_KEY: &str = "cketerm";
/// Key under which `cketerm power off` holds a host off. `hosts release --as power` removes it too.
pub const POWER_KEY: &str = "cketerm-power";

/// Returns the text for a host that these clients hold off, with what releases it.
pub fn held_by(name: &str, keys: &[String]) -> String {
    let release = |key: &String| match key.strip_prefix(HOLD_KEY) {
        Some("") => format!("`cketerm hosts release {name}`"),
        Some(own) if own.starts_with('-') => format!("`cketerm hosts release {name} --as {}`", &own[1..]),
        Some(_) | None => format!("the owner of {key} removes the annotation {HOLD_PREFIX}{key}"),
    };
    let releases: Vec<String> = keys.iter().map(release).collect();
    format!("held off by {}: it stays off until {}", keys.join(", "), releases.join(" and "))
}

/// Ways to turn a host off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Ask the operating system to shut down first, then cut the power if that takes too long.
    #[default]
    Soft,
    /// Cut the power at once.
    Hard,
}

impl Mode {
    /// Returns the mode of an annotation's value. Only a JSON object with `"mode": "hard"` means hard. Every other
    /// value means soft, the default of the interface (MET-5).
    pub fn of(value: &str) -> Self {
        match serde_json::from_str::<Value>(value) {
            Ok(value) if value["mode"] == "hard" => Self::Hard,
            _ => Self::Soft,
        }
    }

    /// Returns `soft` or `hard`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The two timestamps of the reboot interface; none = before everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Times {
    /// "A time before which the Host was last requested to reboot."
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_reboot_since: Option<Timestamp>,
    /// "A time after which the Host was last booted using the current image."
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_powered_on: Option<Timestamp>,
}

/// Annotations of the reboot interface on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebootAnnotations {
    /// Value of the basic annotation.
    pub base: Option<String>,
    /// Values of the annotations that hold the host off, by the client's key.
    pub keys: BTreeMap<String, String>,
}

impl RebootAnnotations {
    /// Returns the annotations of the interface among a host's annotations.
    pub fn from_annotations<'a>(annotations: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let mut asked = Self::default();
        for (name, value) in annotations {
            if name == REBOOT_ANNOTATION {
                asked.base = Some(value.clone());
            } else if let Some(key) = name.strip_prefix(HOLD_PREFIX) {
                asked.keys.insert(key.to_owned(), value.clone());
            }
        }
        asked
    }

    /// Returns true if nothing is requested.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.keys.is_empty()
    }

    /// Returns the mode of the whole request. One hard mode makes it hard (MET-7).
    pub fn mode(&self) -> Mode {
        self.base.iter().chain(self.keys.values()).map(|value| Mode::of(value)).max().unwrap_or_default()
    }
}

/// Fields of a BareMetalHost that cketerm reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools)] // the fields of the resource
pub struct HostRow {
    /// Namespace of the host.
    pub namespace: String,
    /// Name of the host.
    pub name: String,
    /// UID of the host.
    pub uid: String,
    /// Its resourceVersion, which every patch of cketerm carries.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `spec.online`: whether it should be on.
    pub online: bool,
    /// `spec.externallyProvisioned`: another program installed its image.
    pub externally_provisioned: bool,
    /// `spec.disablePowerOff`.
    pub disable_power_off: bool,
    /// `spec.bmc.address`.
    pub bmc_address: String,
    /// `spec.bmc.credentialsName`: a Secret of the same namespace.
    pub credentials: String,
    /// `spec.bmc.disableCertificateVerification`.
    pub any_certificate: bool,
    /// `spec.consumerRef.name`.
    pub consumer: String,
    /// Annotation `baremetalhost.metal3.io/paused`.
    pub paused: bool,
    /// Annotation `baremetalhost.metal3.io/detached`.
    pub detached: bool,
    /// `status.poweredOn`; none = never written.
    pub powered_on: Option<bool>,
    /// `status.provisioning.state`.
    pub provisioning: String,
    /// `status.provisioning.lastPoweredOn`, which few resource definitions have, else the value of cketerm's
    /// annotation.
    pub last_powered_on: Option<Timestamp>,
    /// `status.provisioning.pendingRebootSince`, else the value of cketerm's annotation.
    pub pending_reboot_since: Option<Timestamp>,
    /// `status.errorType`.
    pub error_type: String,
    /// `status.errorMessage`. It is cleared at each try, so an empty value proves no recovery.
    pub error: String,
    /// Annotation `cketerm.io/node`; empty = none.
    pub node: NodeName,
    /// `status.hardware.hostname`.
    pub hostname: String,
    /// `status.hardware.nics[].ip`.
    pub addresses: Vec<Address>,
    /// Field managers that wrote `status.poweredOn`, according to `managedFields`, with the times.
    #[serde(skip)]
    pub power_writers: Vec<(String, Timestamp)>,
    /// Annotations of the reboot interface.
    pub asked: RebootAnnotations,
}

/// Returns the provisioning state for messages. A host without a state is not registered.
fn provisioning(state: &str) -> &str {
    if state.is_empty() { "not registered" } else { state }
}

/// Reason why a request to a host would be refused, delayed or lost (MET-17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Hindrance {
    /// The host is being deleted.
    #[error("the host is being deleted")]
    Deleting,
    /// The baremetal-operator ignores the host for now. It would keep the request and act on it later.
    #[error("the host is paused and would act on the request later; remove {PAUSED_ANNOTATION}")]
    Paused,
    /// The host is detached from the baremetal-operator.
    #[error("the host is detached and would act on the request later; remove {DETACHED_ANNOTATION}")]
    Detached,
    /// The interface is for provisioned and externally provisioned hosts.
    #[error("the host is {}; only provisioned hosts can be turned off and on", provisioning(.0))]
    NotProvisioned(String),
    /// The host should be off, and stays off whatever is requested.
    #[error("the host must be off (spec.online is false)")]
    Offline,
    /// A key on such a host restarts it every few seconds without end.
    #[error("power-off is disabled (spec.disablePowerOff): a key that holds it off would restart it endlessly")]
    PowerOffDisabled,
    /// The baremetal-operator cannot reach or command the BMC.
    #[error("the host has an error ({0}): fix it first")]
    Error(String),
}

impl HostRow {
    /// Returns the reason why a reboot or hold would not be carried out now, or `None` if none is known.
    pub fn hindrance(&self) -> Option<Hindrance> {
        if self.deleting {
            return Some(Hindrance::Deleting);
        }
        if self.paused {
            return Some(Hindrance::Paused);
        }
        if self.detached {
            return Some(Hindrance::Detached);
        }
        if !self.provisioned() {
            return Some(Hindrance::NotProvisioned(self.provisioning.clone()));
        }
        if self.disable_power_off {
            return Some(Hindrance::PowerOffDisabled);
        }
        if !self.online {
            return Some(Hindrance::Offline);
        }
        // `errorType` holds a past error only until the baremetal-operator has recovered from it.
        let power = matches!(self.error_type.as_str(), "power management error" | "registration error");
        power
            .then(|| Hindrance::Error(if self.error.is_empty() { self.error_type.clone() } else { self.error.clone() }))
    }

    /// Returns the keys of clients other than `cketerm power` that hold the host off.
    pub fn other_holders(&self) -> Vec<String> {
        self.asked.keys.keys().filter(|key| *key != POWER_KEY).cloned().collect()
    }

    /// Returns the reason why `cketerm power cycle` would fail on this host, with its name. `None`: none is known, or
    /// an earlier cycle holds the host off and has yet to release it.
    pub fn cycle_obstacle(&self) -> Option<String> {
        let name = self.full_name();
        if self.asked.keys.contains_key(POWER_KEY) {
            return None;
        }
        if let Some(why) = self.hindrance() {
            return Some(format!("BareMetalHost {name}: {why}"));
        }
        let keys = self.other_holders();
        (!keys.is_empty()).then(|| format!("BareMetalHost {name} is {}", held_by(&name, &keys)))
    }

    /// Returns true if the host is provisioned or externally provisioned.
    pub fn provisioned(&self) -> bool {
        matches!(self.provisioning.as_str(), "provisioned" | "externally provisioned")
    }

    /// Returns its two timestamps.
    pub fn times(&self) -> Times {
        Times { pending_reboot_since: self.pending_reboot_since, last_powered_on: self.last_powered_on }
    }

    /// Returns true while a requested reboot is not over: `pendingRebootSince` is later than `lastPoweredOn` (MET-38).
    pub fn pending(&self) -> bool {
        self.pending_reboot_since.is_some_and(|since| self.last_powered_on.is_none_or(|last| since > last))
    }

    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests;
