//! Settings in the file of BMCs, and the reasons why an entry of it cannot be used.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};

use super::{networks::Networks, switch::Timeouts};

/// Reason why a BMC gets no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// The file cannot be used, or the address is invalid. Names file, entry and remedy.
    #[error("{0}")]
    Wrong(String),
    /// A source other than the file names the BMC, and the file allows no networks (SAF-39).
    #[error(
        "{name}: no login to BMC {bmc}, because no BMC network is allowed; list the BMC networks as `networks` in the \
         file of power.bmcs (docs/power.md, Networks)"
    )]
    NoNetworks {
        /// Name of the host or machine.
        name: String,
        /// Origin of its BMC.
        bmc: String,
    },
    /// The address is in none of the networks that the file allows.
    #[error(
        "{name}: no login to BMC {bmc}, because it is outside the networks that the file of power.bmcs allows; correct \
         the address, or add its network to `networks`"
    )]
    Outside {
        /// Name of the host or machine.
        name: String,
        /// Origin of its BMC.
        bmc: String,
    },
    /// The address is in an allowed network, where plain HTTP is not allowed.
    #[error(
        "{name}: BMC {bmc} uses plain HTTP, which the file of power.bmcs does not allow there; use https, or write \
         `{{cidr: …, http: true}}` in `networks`"
    )]
    PlainHttp {
        /// Name of the host or machine.
        name: String,
        /// Origin of its BMC.
        bmc: String,
    },
}

/// Settings of one BMC, or the defaults of all. No `Debug`, because it can hold a password.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct RawSettings {
    pub(super) url: Option<String>,
    pub(super) system: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) insecure: Option<bool>,
    pub(super) sign_in: Option<RawSignIn>,
    pub(super) soft_seconds: Option<u64>,
    pub(super) off_seconds: Option<u64>,
    pub(super) on_seconds: Option<u64>,
    pub(super) poll_seconds: Option<u64>,
    /// Only in `defaults`: the port of BMCs that a registry names, because a registry has no field for it.
    pub(super) registry_port: Option<u16>,
    /// Name of the power driver. `None`: Redfish.
    pub(super) driver: Option<String>,
    /// Settings of a driver other than Redfish, which reads them itself.
    pub(super) settings: Option<serde_yaml::Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawSignIn {
    Auto,
    Basic,
    Session,
}

/// Parts of the file that apply to all BMCs.
#[derive(Default)]
pub(super) struct FileSettings {
    /// Path of the file. Empty: the text is from no file.
    pub(super) path: PathBuf,
    pub(super) networks: Networks,
    pub(super) defaults: RawSettings,
}

impl FileSettings {
    /// Resolves a path of the file relative to the file's directory.
    pub(super) fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }
}

/// Settings of one machine: its own, and those of the file.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    /// Name in messages: the address of a node, or the name of a host.
    pub(super) name: &'a str,
    pub(super) own: &'a RawSettings,
    pub(super) file: &'a FileSettings,
}

impl Entry<'_> {
    /// Returns the file and the entry, as messages name them.
    pub(super) fn place(&self) -> String {
        let (path, name) = (&self.file.path, self.name);
        if path.as_os_str().is_empty() { name.to_owned() } else { format!("{}: {name}", path.display()) }
    }

    /// Returns an error that names the file and the entry.
    pub(super) fn wrong(&self, why: impl fmt::Display) -> InventoryError {
        InventoryError::Wrong(format!("{}: {why}", self.place()))
    }

    /// Returns the deadlines: the entry's own, else those of the defaults.
    pub(super) fn timeouts(&self) -> Timeouts {
        let (own, all, usual) = (self.own, &self.file.defaults, Timeouts::default());
        let seconds =
            |own: Option<u64>, all: Option<u64>, usual: Duration| own.or(all).map_or(usual, Duration::from_secs);
        Timeouts {
            soft: seconds(own.soft_seconds, all.soft_seconds, usual.soft),
            off: seconds(own.off_seconds, all.off_seconds, usual.off),
            on: seconds(own.on_seconds, all.on_seconds, usual.on),
            poll: seconds(own.poll_seconds, all.poll_seconds, usual.poll).max(Duration::from_millis(500)),
        }
    }

    /// Reads `settings` as those of a driver other than Redfish. Errors: there are none, they are of another form, or
    /// the entry has keys of the Redfish driver. No error shows a value.
    pub(super) fn driver_settings<T: DeserializeOwned>(&self) -> Result<T, InventoryError> {
        let driver = self.own.driver.as_deref().unwrap_or_default();
        if let Some(key) = self.own.redfish_key() {
            return Err(self.wrong(format_args!("{key} belongs to the driver redfish, and the entry's is {driver}")));
        }
        let Some(settings) = self.own.settings.clone() else {
            return Err(self.wrong(format_args!("settings is missing, which the driver {driver} needs")));
        };
        serde_yaml::from_value(settings).map_err(|e| self.wrong(settings_fault(&e, driver)))
    }
}

impl RawSettings {
    /// Returns a key of the Redfish driver that is set, if there is one.
    fn redfish_key(&self) -> Option<&'static str> {
        let keys = [
            ("url", self.url.is_some()),
            ("system", self.system.is_some()),
            ("username", self.username.is_some()),
            ("password", self.password.is_some()),
            ("password-file", self.password_file.is_some()),
            ("ca-file", self.ca_file.is_some()),
            ("insecure", self.insecure.is_some()),
            ("sign-in", self.sign_in.is_some()),
            ("registry-port", self.registry_port.is_some()),
        ];
        keys.into_iter().find_map(|(key, set)| set.then_some(key))
    }
}

/// Returns the parser's message without values of the file. An unknown field is named only if its name looks like one
/// of cketerm's. Otherwise it may be a value that a forgotten colon made a name.
pub(super) fn fault(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    let place = error.location().map(|l| format!("line {}", l.line())).unwrap_or_default();
    let named = text.split("unknown field `").nth(1).and_then(|t| t.split('`').next());
    match named {
        Some(name) if looks_like_key(name) => format!("not a BMC file: {text}"),
        _ if place.is_empty() => "not a BMC file: see docs/power.md".to_owned(),
        _ => format!("not a BMC file: error at {place}; see docs/power.md"),
    }
}

/// Returns the fault of a driver's settings without their values.
fn settings_fault(error: &serde_yaml::Error, driver: &str) -> String {
    let text = error.to_string();
    let field = |kind: &str| text.split(kind).nth(1).and_then(|t| t.split('`').next()).filter(|n| looks_like_key(n));
    match (field("missing field `"), field("unknown field `")) {
        (Some(name), _) => format!("settings of the driver {driver}: {name} is missing"),
        (None, Some(name)) => format!("settings of the driver {driver}: unknown field `{name}`"),
        (None, None) => format!("settings of the driver {driver} have another form; see docs/power.md"),
    }
}

/// Reports whether a name has the form of cketerm's keys. Another one may be a value that a forgotten colon made a name.
fn looks_like_key(name: &str) -> bool {
    name.len() < 20 && name.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c))
}
