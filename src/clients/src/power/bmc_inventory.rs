//! The BMC of each node's address, from the file that `power.bmcs` names (docs/power.md).
//!
//! Passwords are in that file or in files of their own. Neither may be readable by everyone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    path::Path,
};

use cketerm_model::names::Address;
use cketerm_runtime::host::is_world_readable;
use serde::Deserialize;

use super::{
    connector::Connector,
    drivers::{DRIVERS, registered},
    fault,
    login::Login,
    networks::{NetworkForm, Networks},
    redfish::named_elsewhere,
    registration::{Found, Need, Registration},
    settings::{Entry, FileSettings, InventoryError, RawSettings},
    text::shorten,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    networks: Vec<NetworkForm>,
    #[serde(default)]
    defaults: RawSettings,
    #[serde(default)]
    bmcs: BTreeMap<Address, RawSettings>,
    others: Option<RawSettings>,
}

/// Key of the entry for all machines that the file does not name.
const OTHERS: &str = "others";

/// The parsed file. The default is an empty file, which names no BMC.
#[derive(Default)]
pub struct BmcInventory {
    file: FileSettings,
    bmcs: BTreeMap<Address, RawSettings>,
    /// Entry for all machines that the file does not name.
    others: Option<RawSettings>,
}

impl fmt::Debug for BmcInventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("BmcInventory");
        shown.field("path", &self.file.path).field("bmcs", &self.bmcs.keys()).finish_non_exhaustive()
    }
}

impl BmcInventory {
    /// Reads the file. A file with a password that everyone can read is refused.
    pub fn read(path: &Path) -> Result<Self, InventoryError> {
        let wrong = |why: String| InventoryError::Wrong { file: path.to_owned(), why };
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        let mut inventory = Self::parse(&text).map_err(wrong)?;
        let secret = inventory.bmcs.values().chain([&inventory.file.defaults]).any(|raw| raw.password.is_some());
        if secret && is_world_readable(path) {
            return Err(wrong(format!("it holds a password and everyone can read it; chmod 600 {}", path.display())));
        }
        path.clone_into(&mut inventory.file.path);
        Ok(inventory)
    }

    /// Parses the text of such a file. The error shows none of its values.
    pub fn parse(text: &str) -> Result<Self, String> {
        // An error of the parser can contain the value that it stumbled on, so only its place is reported.
        let File { networks, defaults, bmcs, others } = serde_yaml::from_str(text).map_err(|e| fault::of_file(&e))?;
        if defaults.driver.is_some() || defaults.settings.is_some() {
            return Err("defaults: driver and settings belong to one BMC; the defaults have neither".to_owned());
        }
        if let Some(others) = &others {
            check_others(others)?;
        }
        let networks = Networks::read(networks).map_err(|why| format!("networks: {why}"))?;
        Ok(Self { file: FileSettings { networks, defaults, ..FileSettings::default() }, bmcs, others })
    }

    /// Returns the networks that the file allows.
    pub fn networks(&self) -> &Networks {
        &self.file.networks
    }

    /// Returns the addresses whose BMC the file names itself, if no networks are allowed. No other BMC gets a login.
    /// `None`: the file also describes all other machines.
    pub fn confined(&self) -> Option<BTreeSet<Address>> {
        let confined = self.file.networks.is_empty() && self.others.is_none();
        confined.then(|| self.bmcs.keys().cloned().collect())
    }

    /// Returns the addresses whose BMC the file names but whose power command would fail, with the reason. It applies
    /// the rules of `find`, except those about the content of other files, and looks at the programs on this host.
    pub fn refused(&self) -> BTreeMap<Address, String> {
        self.entries().filter_map(|entry| Some((Address::new(entry.name), refusal(&entry)?))).collect()
    }

    /// Returns what `refused` returns, and those of these machines that only the entry for all others describes.
    pub fn refused_among<'a>(&self, machines: impl IntoIterator<Item = &'a Address>) -> BTreeMap<Address, String> {
        let mut refused = self.refused();
        let Some(own) = &self.others else { return refused };
        let other = machines.into_iter().filter(|address| !self.bmcs.contains_key(*address));
        let refusal =
            |address: &Address| Some((address.clone(), refusal(&Entry { name: address, own, file: &self.file })?));
        refused.extend(other.filter_map(refusal));
        refused
    }

    /// Returns the BareMetalHosts that control machines, as namespace and name, by the machine's address.
    pub fn hosts(&self) -> BTreeMap<Address, (String, String)> {
        let host = |need| match need {
            Need::Host { namespace, name } => Some((namespace, name)),
            Need::Program { .. } | Need::Agent => None,
        };
        let named = |entry: Entry<'_>| Some((Address::new(entry.name), needs(&entry).into_iter().find_map(host)?));
        self.entries().filter_map(named).collect()
    }

    /// Returns those of these machines that the agents of their nodes reboot.
    pub fn agents_among<'a>(&self, machines: impl IntoIterator<Item = &'a Address>) -> BTreeSet<Address> {
        let has_agent = |address: &&Address| {
            let own = self.own(address);
            let entry = own.map(|own| Entry { name: address, own, file: &self.file });
            entry.is_some_and(|entry| needs(&entry).iter().any(|need| matches!(need, Need::Agent)))
        };
        machines.into_iter().filter(has_agent).cloned().collect()
    }

    /// Reports whether the file names programs. What it refuses then depends on this host's files too.
    pub fn names_programs(&self) -> bool {
        self.all().flat_map(|entry| needs(&entry)).any(|need| matches!(need, Need::Program { .. }))
    }

    /// Returns the entries that can never work as they are, without the path of the file. A fault of the whole file
    /// appears once.
    pub fn errors(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for why in self.all().filter_map(|entry| Some(check(&entry).err()?.within_file())) {
            if !all.contains(&why) {
                all.push(why);
            }
        }
        all
    }

    /// Returns warnings for the operator, without the path of the file: a default login that is never used, a list that
    /// excludes nothing, keys that are no address, programs that cannot be run on this host.
    pub fn warnings(&self) -> Vec<String> {
        let FileSettings { networks, defaults, .. } = &self.file;
        let mut all = Vec::new();
        if networks.is_empty() && defaults.username.is_some() {
            all.push(
                "no `networks`: no login to BMCs that BareMetalHosts or the registry name, and reboots that need them \
                 do not start (docs/power.md, Networks)"
                    .to_owned(),
            );
        }
        all.extend(networks.unbounded().map(|cidr| format!("networks: {cidr} allows every address")));
        if defaults.insecure == Some(true) {
            all.push("defaults: certificates are not verified (insecure); others can read the passwords".to_owned());
        }
        for entry in self.all() {
            if entry.name != OTHERS && entry.name.parse::<IpAddr>().is_err() {
                let name = shorten(entry.name);
                all.push(format!("bmcs: {name:?} is no IP address, so no machine has it; write the node's address"));
            }
            all.extend(check(&entry).unwrap_or_default());
            all.extend(needs(&entry).into_iter().filter_map(|need| match need {
                Need::Program { fault, .. } => Some(fault?.within_file()),
                Need::Host { .. } | Need::Agent => None,
            }));
        }
        all
    }

    /// Returns the addresses that the file names, in order.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.bmcs.keys()
    }

    /// Returns the name of the driver of a node's address, or none if the file does not name the address or the driver.
    pub fn driver_name(&self, address: &str) -> Option<&'static str> {
        registered(self.own(address)?.driver.as_deref()).map(|driver| driver.name)
    }

    /// Returns the BMC of a node's address, or none if the file does not name it.
    pub fn find(&self, address: &Address, connector: &Connector) -> Result<Option<Found>, InventoryError> {
        let Some(own) = self.own(address) else { return Ok(None) };
        let entry = Entry { name: address, own, file: &self.file };
        (driver_of(&entry)?.create)(&entry, connector).map(Some)
    }

    /// Returns a BMC that a BareMetalHost or a registry names. It must be in an allowed network, whatever login is
    /// used. Missing settings come from the defaults. `any_certificate` counts only where its network allows it; there
    /// it takes precedence over the authorities. Elsewhere the certificate is verified.
    pub fn other(
        &self,
        name: &str,
        url: &str,
        login: Option<Login>,
        any_certificate: bool,
        connector: &Connector,
    ) -> Result<Found, InventoryError> {
        named_elsewhere(&self.file, name, url, login, any_certificate, connector)
    }

    /// Returns the port of BMCs that a registry names. `None`: the port of https.
    pub fn registry_port(&self) -> Option<u16> {
        self.file.defaults.registry_port
    }

    /// Returns the entry of an address, else that of all others.
    fn own(&self, address: &str) -> Option<&RawSettings> {
        self.bmcs.get(address).or(self.others.as_ref())
    }

    /// Returns the entries of addresses, and that of all others.
    fn all(&self) -> impl Iterator<Item = Entry<'_>> {
        let others = self.others.as_ref().map(|own| Entry { name: OTHERS, own, file: &self.file });
        self.entries().chain(others)
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.bmcs.iter().map(|(name, own)| Entry { name, own, file: &self.file })
    }
}

/// Checks that the entry for all other machines has a driver that can reach many.
fn check_others(others: &RawSettings) -> Result<(), String> {
    if let Some(for_many) = registered(others.driver.as_deref()).and_then(|driver| driver.for_many) {
        return for_many(others.settings.as_ref()).map_err(|why| format!("{OTHERS}: {why}"));
    }
    let names: Vec<&str> =
        DRIVERS.iter().filter(|driver| driver.for_many.is_some()).map(|driver| driver.name).collect();
    Err(format!("{OTHERS}: its driver must reach many machines: choose one of {}", names.join(", ")))
}

/// Returns the reason why the power command of an entry's machine would fail, as far as this host can know.
fn refusal(entry: &Entry<'_>) -> Option<String> {
    let why = match check(entry) {
        Err(why) => Some(why),
        Ok(_) => needs(entry).into_iter().find_map(|need| match need {
            Need::Program { fault, essential } => fault.filter(|_| essential),
            Need::Host { .. } | Need::Agent => None,
        }),
    };
    why.map(|why| why.to_string())
}

/// Checks an entry without reading other files; returns warnings for the operator.
fn check(entry: &Entry<'_>) -> Result<Vec<String>, InventoryError> {
    (driver_of(entry)?.check)(entry)
}

/// Returns the needs of an entry. One that is refused has none.
fn needs(entry: &Entry<'_>) -> Vec<Need> {
    driver_of(entry).map(|driver| (driver.needs)(entry)).unwrap_or_default()
}

/// Returns the driver that an entry names. The error does not show a name that may be another value.
fn driver_of(entry: &Entry<'_>) -> Result<&'static Registration, InventoryError> {
    registered(entry.own.driver.as_deref()).ok_or_else(|| {
        let names: Vec<&str> = DRIVERS.iter().map(|driver| driver.name).collect();
        entry.wrong(format_args!("unknown driver; choose one of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests;
