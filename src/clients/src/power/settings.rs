//! Settings in the file of BMCs, and the reasons why an entry of it cannot be used.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};

use super::{
    fault::{self, Key},
    networks::Networks,
    switch::Timeouts,
};

/// Reason why a BMC gets no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// The file cannot be used, or the address is invalid.
    #[error("{}{why}", prefix(.file))]
    Wrong {
        /// The file. Empty: the settings are from no file.
        file: PathBuf,
        /// The entry, the fault and the remedy.
        why: String,
    },
    /// The file names programs, and everyone can write it.
    #[error("{}{name}: {}", prefix(.file), writable(.file))]
    Writable {
        /// The file.
        file: PathBuf,
        /// The entry with the programs.
        name: String,
    },
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

impl InventoryError {
    /// Returns the text without the path of the file, for messages that name the file themselves. A fault of the whole
    /// file has the same text for each entry.
    pub(super) fn within_file(&self) -> String {
        match self {
            Self::Wrong { why, .. } => why.clone(),
            Self::Writable { file, .. } => writable(file),
            Self::NoNetworks { .. } | Self::Outside { .. } | Self::PlainHttp { .. } => self.to_string(),
        }
    }
}

/// Returns the file as the beginning of a message.
pub(super) fn prefix(file: &Path) -> String {
    if file.as_os_str().is_empty() { String::new() } else { format!("{}: ", file.display()) }
}

fn writable(file: &Path) -> String {
    format!("the file names programs and everyone can write it; chmod o-w {}", file.display())
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
    /// Returns an error that names the file and the entry.
    pub(super) fn wrong(&self, why: impl fmt::Display) -> InventoryError {
        InventoryError::Wrong { file: self.file.path.clone(), why: format!("{}: {why}", self.name) }
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
    /// the entry has keys of the Redfish driver. `keys`: all keys of the settings. No error shows a value.
    pub(super) fn driver_settings<T: DeserializeOwned>(&self, keys: &[Key]) -> Result<T, InventoryError> {
        self.settings_beside(&[], keys)
    }

    /// Reads `settings` like `driver_settings`, for a driver whose keys all have defaults.
    pub(super) fn optional_settings<T: DeserializeOwned + Default>(&self, keys: &[Key]) -> Result<T, InventoryError> {
        if self.own.settings.is_none() && self.own.redfish_key(&[]).is_none() {
            return Ok(T::default());
        }
        self.driver_settings(keys)
    }

    /// Reads `settings` like `driver_settings`, for a driver that also has these keys of the Redfish driver.
    pub(super) fn settings_beside<T: DeserializeOwned>(
        &self,
        own_keys: &[&str],
        keys: &[Key],
    ) -> Result<T, InventoryError> {
        let driver = self.own.driver.as_deref().unwrap_or_default();
        if let Some(key) = self.own.redfish_key(own_keys) {
            return Err(self.wrong(format_args!("{key} belongs to the driver redfish, and the entry's is {driver}")));
        }
        let Some(settings) = &self.own.settings else {
            return Err(self.wrong(format_args!("settings is missing, which the driver {driver} needs")));
        };
        serde_yaml::from_value(settings.clone()).map_err(|e| {
            // Errors about a text name the place, and those about a value do not.
            let text = serde_yaml::to_string(settings).unwrap_or_default();
            let e = serde_yaml::from_str::<T>(&text).err().unwrap_or(e);
            self.wrong(fault::of_settings(settings, &e, keys))
        })
    }
}

impl RawSettings {
    /// Returns a key of the Redfish driver that is set and not among `but`, if there is one.
    fn redfish_key(&self, but: &[&str]) -> Option<&'static str> {
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
        keys.into_iter().find_map(|(key, set)| (set && !but.contains(&key)).then_some(key))
    }
}
