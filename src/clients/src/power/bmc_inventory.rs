//! The BMC of each node's address, from the file that `power.bmcs` names (docs/power.md).
//!
//! Passwords are in that file or in files of their own. Neither may be readable by everyone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cketerm_model::fault;
use serde::Deserialize;

use super::{
    bmc_clients::BmcClients,
    networks::{NetworkForm, Networks},
    redfish::{Address, Bmc, Host, Login, SignIn, Timeouts},
};
use crate::net::{Allow, Trust};

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
struct RawSettings {
    url: Option<String>,
    system: Option<String>,
    username: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    insecure: Option<bool>,
    sign_in: Option<RawSignIn>,
    soft_seconds: Option<u64>,
    off_seconds: Option<u64>,
    on_seconds: Option<u64>,
    poll_seconds: Option<u64>,
    /// Only in `defaults`: the port of BMCs that a registry names, because a registry has no field for it.
    registry_port: Option<u16>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawSignIn {
    Auto,
    Basic,
    Session,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    networks: Vec<NetworkForm>,
    #[serde(default)]
    defaults: RawSettings,
    #[serde(default)]
    bmcs: BTreeMap<String, RawSettings>,
}

/// The parsed file. The default is an empty file, which names no BMC.
#[derive(Default)]
pub struct BmcInventory {
    path: PathBuf,
    networks: Networks,
    defaults: RawSettings,
    bmcs: BTreeMap<String, RawSettings>,
}

impl fmt::Debug for BmcInventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").field("path", &self.path).field("bmcs", &self.bmcs.keys()).finish_non_exhaustive()
    }
}

/// A BMC with its deadlines.
#[derive(Debug)]
pub struct Found {
    /// The BMC.
    pub bmc: Bmc,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Warning for the operator: plain HTTP, or a certificate that is not verified.
    pub warning: Option<String>,
}

/// Source of a BMC's address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    /// The operator, in the file itself.
    File,
    /// A BareMetalHost or a registry: any user who may write there.
    Elsewhere,
}

/// Trust in certificates.
enum Certificates<'a> {
    /// Any certificate.
    Any,
    /// Certificates of the authorities in this file.
    Of(&'a Path),
    /// Certificates of the authorities that this host trusts.
    HostRoots,
}

impl BmcInventory {
    /// Reads the file. A file with a password that everyone can read is refused.
    pub fn read(path: &Path) -> Result<Self, InventoryError> {
        let wrong = |why: String| InventoryError::Wrong(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        let mut inventory = Self::parse(&text).map_err(wrong)?;
        let secret = inventory.bmcs.values().chain([&inventory.defaults]).any(|raw| raw.password.is_some());
        if secret && is_world_readable(path) {
            return Err(wrong(format!("it holds a password and everyone can read it; chmod 600 {}", path.display())));
        }
        path.clone_into(&mut inventory.path);
        Ok(inventory)
    }

    /// Parses the text of such a file. The error shows none of its values.
    pub fn parse(text: &str) -> Result<Self, String> {
        // An error of the parser can contain the value that it stumbled on, so only its place is reported.
        let file: File = serde_yaml::from_str(text).map_err(|e| fault(&e))?;
        let networks = Networks::read(file.networks).map_err(|why| format!("networks: {why}"))?;
        Ok(Self { path: PathBuf::new(), networks, defaults: file.defaults, bmcs: file.bmcs })
    }

    /// Returns the networks that the file allows.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// Returns the addresses whose BMC the file names itself, if no networks are allowed. No other BMC gets a login.
    pub fn confined(&self) -> Option<BTreeSet<String>> {
        self.networks.is_empty().then(|| self.bmcs.keys().cloned().collect())
    }

    /// Returns the addresses whose BMC the file names but that get no login, with the reason. It applies the rules of
    /// `find`, except those about the content of other files.
    pub fn refused(&self) -> BTreeMap<String, String> {
        let checked = self.bmcs.iter().map(|(address, own)| (address, self.checked(address, own)));
        checked.filter_map(|(address, checked)| Some((address.clone(), checked.err()?.to_string()))).collect()
    }

    /// Returns warnings for the operator: a default login that is never used, a list that excludes nothing, entries
    /// outside the list.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.networks.is_empty() && self.defaults.username.is_some() {
            all.push(
                "no `networks`: no login to BMCs that BareMetalHosts or the registry name, and reboots that need them \
                 do not start (docs/power.md, Networks)"
                    .to_owned(),
            );
        }
        all.extend(self.networks.unbounded().map(|cidr| format!("networks: {cidr} allows every address")));
        if self.defaults.insecure == Some(true) {
            all.push("defaults: certificates are not verified (insecure); others can read the passwords".to_owned());
        }
        for (name, own) in &self.bmcs {
            let place = match self.checked(name, own) {
                Ok((place, _)) => place,
                Err(e) => {
                    all.push(e.to_string());
                    continue;
                }
            };
            if place.plain() {
                all.push(format!("{name}: its password goes over plain HTTP ({})", place.origin));
            }
            if own.insecure == Some(true) {
                all.push(format!("{name}: its certificate is not verified (insecure)"));
            }
        }
        all
    }

    /// Returns the addresses that the file names, in order.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.bmcs.keys().map(String::as_str)
    }

    /// Returns the BMC of a node's address, or none if the file does not name it.
    pub fn find(&self, address: &str, clients: &BmcClients) -> Result<Option<Found>, InventoryError> {
        let Some(own) = self.bmcs.get(address) else { return Ok(None) };
        let (place, allow) = self.checked(address, own)?;
        self.connect(address, own, place, None, &allow, clients).map(Some)
    }

    /// Returns the address of an entry's BMC, and the filter of IP addresses that it may be reached at.
    fn checked(&self, address: &str, own: &RawSettings) -> Result<(Address, Allow), InventoryError> {
        if own.registry_port.is_some() {
            return Err(self.wrong(address, "registry-port belongs in defaults; here, put the port in the url"));
        }
        let url = own.url.as_ref().ok_or_else(|| self.wrong(address, "url is missing"))?;
        self.place(address, own, url, NamedBy::File)
    }

    fn place(&self, name: &str, own: &RawSettings, url: &str, by: NamedBy) -> Result<(Address, Allow), InventoryError> {
        let place = Address::parse(url).map_err(|e| self.wrong(name, e))?;
        let insecure_tls = matches!(self.certificates(own).map_err(|why| self.wrong(name, why))?, Certificates::Any);
        let allow = self.guard(name, &place, by, insecure_tls)?;
        Ok((place, allow))
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
        clients: &BmcClients,
    ) -> Result<Found, InventoryError> {
        let place = Address::parse(url).map_err(|e| self.wrong(name, e))?;
        let allowed = match place.host {
            Host::Ip(ip) => self.networks.allow_unverified(ip),
            // The certificate of a name can be verified, and the name's address is not known yet.
            Host::Name => false,
        };
        let own = RawSettings { insecure: (any_certificate && allowed).then_some(true), ..RawSettings::default() };
        let (place, allow) = self.place(name, &own, url, NamedBy::Elsewhere)?;
        self.connect(name, &own, place, login, &allow, clients)
    }

    /// Returns the filter of IP addresses that this BMC may be reached at: the one that the operator wrote, else those
    /// in the networks. Host names are checked when they are resolved, for each connection (SAF-38).
    fn guard(&self, name: &str, place: &Address, by: NamedBy, insecure: bool) -> Result<Allow, InventoryError> {
        fault!(AllowListForgotten => return Ok(Arc::new(|_| true)));
        let (bmc, name) = (place.origin.clone(), name.to_owned());
        let plain = place.plain();
        let networks = self.networks.clone();
        if networks.is_empty() {
            return match (by, place.host) {
                (NamedBy::Elsewhere, _) => Err(InventoryError::NoNetworks { name, bmc }),
                (NamedBy::File, Host::Ip(ip)) => Ok(Arc::new(move |to: IpAddr| to == ip)),
                (NamedBy::File, Host::Name) if plain || insecure => Err(self.wrong(
                    &name,
                    "a host name without a verified certificate needs `networks`; list its network, or give its IP",
                )),
                // the server there must present a certificate for that name
                (NamedBy::File, Host::Name) => Ok(Arc::new(|_| true)),
            };
        }
        // the operator's own `http://` is sufficient permission
        let plain = plain && by == NamedBy::Elsewhere;
        if let Host::Ip(ip) = place.host
            && !networks.allow(ip, plain)
        {
            let known = networks.allow(ip, false);
            return Err(if known {
                InventoryError::PlainHttp { name, bmc }
            } else {
                InventoryError::Outside { name, bmc }
            });
        }
        Ok(Arc::new(move |to: IpAddr| networks.allow(to, plain)))
    }

    /// Returns the port of BMCs that a registry names. `None`: the port of https.
    pub fn registry_port(&self) -> Option<u16> {
        self.defaults.registry_port
    }

    fn wrong(&self, name: &str, why: impl fmt::Display) -> InventoryError {
        if self.path.as_os_str().is_empty() {
            return InventoryError::Wrong(format!("{name}: {why}"));
        }
        InventoryError::Wrong(format!("{}: {name}: {why}", self.path.display()))
    }

    fn connect(
        &self,
        name: &str,
        own: &RawSettings,
        mut place: Address,
        login: Option<Login>,
        allow: &Allow,
        clients: &BmcClients,
    ) -> Result<Found, InventoryError> {
        let wrong = |why: String| self.wrong(name, why);
        let all = &self.defaults;
        if own.system.is_some() {
            place.system.clone_from(&own.system);
        }
        place.system = place.system.or_else(|| all.system.clone());
        let login = match login {
            Some(login) => Some(login),
            None => self.login(own).map_err(wrong)?,
        };
        let trust = self.trust(own).map_err(wrong)?;
        let origin = &place.origin;
        let warning = match (&login, place.plain(), &trust) {
            (Some(_), true, _) => Some(format!("the password for {origin} goes over plain HTTP")),
            (Some(_), false, Trust::Anybody) => {
                Some(format!("the certificate of {origin} is not verified; others can read the password"))
            }
            _ => None,
        };
        let how = match own.sign_in.or(all.sign_in) {
            None | Some(RawSignIn::Auto) => SignIn::Auto,
            Some(RawSignIn::Basic) => SignIn::Basic,
            Some(RawSignIn::Session) => SignIn::Session,
        };
        let http = clients.http(&trust, allow).map_err(|e| wrong(format!("ca-file: {e}")))?;
        let default_timeouts = Timeouts::default();
        let seconds = |own: Option<u64>, all: Option<u64>, default_timeouts| {
            own.or(all).map_or(default_timeouts, Duration::from_secs)
        };
        let timeouts = Timeouts {
            soft: seconds(own.soft_seconds, all.soft_seconds, default_timeouts.soft),
            off: seconds(own.off_seconds, all.off_seconds, default_timeouts.off),
            on: seconds(own.on_seconds, all.on_seconds, default_timeouts.on),
            poll: seconds(own.poll_seconds, all.poll_seconds, default_timeouts.poll).max(Duration::from_millis(500)),
        };
        Ok(Found { bmc: Bmc::new(http, place, login, how), timeouts, warning })
    }

    fn login(&self, own: &RawSettings) -> Result<Option<Login>, String> {
        let username = own.username.clone().or_else(|| self.defaults.username.clone());
        let password = match self.password(own)? {
            Some(own) => Some(own),
            None => self.password(&self.defaults)?,
        };
        match (username, password) {
            (Some(username), Some(password)) => Ok(Some(Login { username, password })),
            (None, None) => Ok(None),
            (Some(_), None) => Err("a username without a password or password-file".to_owned()),
            (None, Some(_)) => Err("a password without a username".to_owned()),
        }
    }

    fn trust(&self, own: &RawSettings) -> Result<Trust, String> {
        match self.certificates(own)? {
            Certificates::Any => Ok(Trust::Anybody),
            Certificates::Of(file) => {
                let file = self.beside(file);
                let pem = std::fs::read(&file).map_err(|e| format!("ca-file {}: {e}", file.display()))?;
                Ok(Trust::Only(pem))
            }
            Certificates::HostRoots => Ok(Trust::Host),
        }
    }

    /// Returns the trust for an entry: its own setting, else that of the defaults.
    fn certificates<'a>(&'a self, own: &'a RawSettings) -> Result<Certificates<'a>, String> {
        let all = &self.defaults;
        let file = own.ca_file.as_ref().or(all.ca_file.as_ref().filter(|_| own.insecure != Some(true)));
        match (own.insecure.or(all.insecure).unwrap_or(false), file) {
            (true, None) => Ok(Certificates::Any),
            (true, Some(_)) => Err("insecure and ca-file are both set; give only one".to_owned()),
            (false, Some(file)) => Ok(Certificates::Of(file)),
            (false, None) => Ok(Certificates::HostRoots),
        }
    }

    fn password(&self, raw: &RawSettings) -> Result<Option<String>, String> {
        match (&raw.password, &raw.password_file) {
            (Some(_), Some(_)) => Err("password and password-file are both set; give only one".to_owned()),
            (Some(password), None) => Ok(Some(password.clone())),
            (None, Some(file)) => {
                let file = self.beside(file);
                let shown = file.display();
                if is_world_readable(&file) {
                    return Err(format!("password-file {shown} can be read by everyone; chmod 600 {shown}"));
                }
                let text = std::fs::read_to_string(&file).map_err(|e| format!("password-file {shown}: {e}"))?;
                let password = text.trim_end_matches(['\n', '\r']);
                if password.is_empty() {
                    return Err(format!("password-file {shown} is empty"));
                }
                Ok(Some(password.to_owned()))
            }
            (None, None) => Ok(None),
        }
    }

    /// Resolves a path of the file relative to the file's directory.
    fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }
}

/// Returns the parser's message without values of the file. An unknown field is named only if its name looks like one
/// of cketerm's. Otherwise it may be a value that a forgotten colon made a name.
fn fault(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    let place = error.location().map(|l| format!("line {}", l.line())).unwrap_or_default();
    let named = text.split("unknown field `").nth(1).and_then(|t| t.split('`').next());
    let looks_like_key =
        |name: &str| name.len() < 20 && name.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c));
    match named {
        Some(name) if looks_like_key(name) => format!("not a BMC file: {text}"),
        _ if place.is_empty() => "not a BMC file: see docs/power.md".to_owned(),
        _ => format!("not a BMC file: error at {place}; see docs/power.md"),
    }
}

fn is_world_readable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests;
