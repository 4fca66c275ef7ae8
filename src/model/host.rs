//! A BareMetalHost of Metal3, and the annotations of its reboot interface (spec/metal3.md, seed
//! metal3-reboot-interface.md).

mod proof;

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::proof::{By, Seen, Stretch, Watching};
use super::kube::{KubeView, NodeRow};

/// The annotation that asks for one power cycle; what removes it is the controller.
pub const REBOOT_ANNOTATION: &str = "reboot.metal3.io";
/// What the annotations that hold a host off begin with; the rest is the client's key.
pub const HOLD_PREFIX: &str = "reboot.metal3.io/";
/// Stops the operator's work on a host.
pub const PAUSED_ANNOTATION: &str = "baremetalhost.metal3.io/paused";
/// Takes a host out of the operator's hands.
pub const DETACHED_ANNOTATION: &str = "baremetalhost.metal3.io/detached";

/// Where our controller role keeps the two timestamps on servers whose resource definition drops them: a JSON object
/// with `pendingRebootSince` and `lastPoweredOn`.
pub const TIMES_ANNOTATION: &str = "cketerm.io/reboot-times";

/// Which Node a host is, where neither its addresses nor its host name say so: the Node's name.
pub const NODE_ANNOTATION: &str = "cketerm.io/node";

/// How a host is turned off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The operating system is asked first, and cut off when it does not end in time.
    #[default]
    Soft,
    /// At once.
    Hard,
}

impl Mode {
    /// The mode that an annotation's value asks for: only a JSON object that says `hard` is hard. "The default reboot
    /// mode is 'soft'"; garbage and unknown modes mean that too.
    pub fn of(value: &str) -> Self {
        match serde_json::from_str::<Value>(value) {
            Ok(value) if value["mode"] == "hard" => Self::Hard,
            _ => Self::Soft,
        }
    }

    /// `soft` or `hard`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
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

/// The annotations of the reboot interface on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The value of the basic annotation.
    pub base: Option<String>,
    /// The values of those that hold the host off, by the client's key.
    pub keys: BTreeMap<String, String>,
}

impl Asked {
    /// Those among a host's annotations.
    pub fn among<'a>(annotations: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
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

    /// Nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.keys.is_empty()
    }

    /// "A hard shutdown request takes priority over a soft shutdown request."
    pub fn mode(&self) -> Mode {
        self.base.iter().chain(self.keys.values()).map(|value| Mode::of(value)).max().unwrap_or_default()
    }
}

/// What is read of a BareMetalHost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools)] // the fields of the resource
pub struct HostRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion, which every patch of ours carries.
    pub resource_version: String,
    /// It is being deleted.
    pub deleting: bool,
    /// `spec.online`: whether it is to be on.
    pub online: bool,
    /// `spec.externallyProvisioned`: somebody else put its image on it.
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
    /// `status.provisioning.lastPoweredOn`, which few resource definitions have, else what our annotation says.
    pub last_powered_on: Option<Timestamp>,
    /// `status.provisioning.pendingRebootSince`, the same.
    pub pending_reboot_since: Option<Timestamp>,
    /// `status.errorType`.
    pub error_type: String,
    /// `status.errorMessage`: it clears at each try and proves no recovery.
    pub error: String,
    /// Annotation `cketerm.io/node`; empty = none.
    pub node: String,
    /// `status.hardware.hostname`.
    pub hostname: String,
    /// `status.hardware.nics[].ip`.
    pub addresses: Vec<String>,
    /// Who wrote `status.poweredOn`, by `managedFields`, and when.
    #[serde(skip)]
    pub power_writers: Vec<(String, Timestamp)>,
    /// The annotations of the reboot interface.
    pub asked: Asked,
}

/// The state of a host's provisioning in words; one that nobody has registered has none.
fn provisioning(state: &str) -> &str {
    if state.is_empty() { "not registered" } else { state }
}

/// Why a request to a host would be refused, kept for later or lost: a reason, not a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Hindrance {
    /// It is being deleted.
    #[error("the host is being deleted")]
    Deleting,
    /// The operator does not look at it, keeps the request and acts on it later.
    #[error("the host is paused: the request would be acted on when it is not any more; remove {PAUSED_ANNOTATION}")]
    Paused,
    /// It was taken out of the operator's hands.
    #[error("the host is detached: the request would be acted on when it is attached; remove {DETACHED_ANNOTATION}")]
    Detached,
    /// The interface is for provisioned and externally provisioned hosts.
    #[error("the host is {}, and only provisioned and externally provisioned hosts are rebooted", provisioning(.0))]
    NotProvisioned(String),
    /// It is to be off: it stays off whatever is asked.
    #[error("the host is to be off (spec.online is false)")]
    Offline,
    /// A key on such a host restarts it every few seconds for ever.
    #[error("the host's power-off is disabled (spec.disablePowerOff): a key would restart it again and again")]
    PowerOffDisabled,
    /// The operator cannot reach or command the BMC.
    #[error("the host has an error ({0}): mend it first")]
    Error(String),
}

impl HostRow {
    /// What keeps a reboot or a hold from being carried out now; none = nothing known.
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
        // Errors of the past stay in `errorType` only as long as the operator has not got over them.
        let power = matches!(self.error_type.as_str(), "power management error" | "registration error");
        power
            .then(|| Hindrance::Error(if self.error.is_empty() { self.error_type.clone() } else { self.error.clone() }))
    }

    /// Provisioned or externally provisioned.
    pub fn provisioned(&self) -> bool {
        matches!(self.provisioning.as_str(), "provisioned" | "externally provisioned")
    }

    /// Its two timestamps.
    pub fn times(&self) -> Times {
        Times { pending_reboot_since: self.pending_reboot_since, last_powered_on: self.last_powered_on }
    }

    /// A reboot was asked for and is not over: `pendingRebootSince` is later than `lastPoweredOn`.
    pub fn pending(&self) -> bool {
        self.pending_reboot_since.is_some_and(|since| self.last_powered_on.is_none_or(|last| since > last))
    }

    /// Its Node, and by what it is known: our annotation, an address, the host name, or – for hosts that were never
    /// inspected – the same name.
    pub fn node_in<'a>(&self, kube: &'a KubeView) -> Option<(&'a Arc<NodeRow>, &'static str)> {
        if !self.node.is_empty() {
            return Some((kube.by_name.get(&self.node)?, "its annotation"));
        }
        let by_address = self.addresses.iter().find_map(|address| kube.by_name.get(kube.by_address.get(address)?));
        let by_host_name = || kube.by_name.get(&self.hostname).filter(|_| !self.hostname.is_empty());
        let known = !self.addresses.is_empty() || !self.hostname.is_empty();
        by_address
            .map(|node| (node, "its address"))
            .or_else(|| by_host_name().map(|node| (node, "its host name")))
            .or_else(|| kube.by_name.get(&self.name).filter(|_| !known).map(|node| (node, "its own name alone")))
    }

    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests;
