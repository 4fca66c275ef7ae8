//! Redfish drivers from entries of the file of BMCs, BareMetalHosts and registries: the allow-list of networks, the
//! trust in certificates (SAF-38, SAF-39, I50).

use std::{net::IpAddr, path::Path, sync::Arc};

use cketerm_model::fault;

use super::{
    address::{Address, Host},
    client::{Bmc, SignIn},
    driver::RedfishDriver,
};
use crate::{
    net::{Allow, Trust},
    power::{
        connector::Connector,
        login::{self, Login},
        registration::{Found, Need, Registration},
        settings::{Entry, FileSettings, InventoryError, RawSettings, RawSignIn},
    },
};

/// Registration of the driver.
pub(in crate::power) const REGISTRATION: Registration =
    Registration { name: "redfish", for_many: None, check, needs, create };

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

/// Checks an entry of the file.
fn check(entry: &Entry<'_>) -> Result<Vec<String>, InventoryError> {
    let (place, _) = checked(entry)?;
    let (name, mut warnings) = (entry.name, Vec::new());
    if place.plain() {
        warnings.push(format!("{name}: its password goes over plain HTTP ({})", place.origin));
    }
    if entry.own.insecure == Some(true) {
        warnings.push(format!("{name}: its certificate is not verified (insecure)"));
    }
    Ok(warnings)
}

/// A BMC is asked only by the power command.
fn needs(_: &Entry<'_>) -> Vec<Need> {
    Vec::new()
}

/// Creates the driver of an entry of the file.
fn create(entry: &Entry<'_>, connector: &Connector) -> Result<Found, InventoryError> {
    let (place, allow) = checked(entry)?;
    connect(entry, place, None, &allow, connector)
}

/// Returns the driver of a BMC that a BareMetalHost or a registry names. It must be in an allowed network, whatever
/// login is used. Missing settings come from the defaults. `any_certificate` counts only where its network allows it;
/// there it takes precedence over the authorities. Elsewhere the certificate is verified.
pub(in crate::power) fn named_elsewhere(
    file: &FileSettings,
    name: &str,
    url: &str,
    login: Option<Login>,
    any_certificate: bool,
    connector: &Connector,
) -> Result<Found, InventoryError> {
    let own = RawSettings::default();
    let place = Address::parse(url).map_err(|e| Entry { name, own: &own, file }.wrong(e))?;
    let allowed = match place.host {
        Host::Ip(ip) => file.networks.allow_unverified(ip),
        // The certificate of a name can be verified, and the name's address is not known yet.
        Host::Name => false,
    };
    let own = RawSettings { insecure: (any_certificate && allowed).then_some(true), ..own };
    let entry = Entry { name, own: &own, file };
    let (place, allow) = self::place(&entry, url, NamedBy::Elsewhere)?;
    connect(&entry, place, login, &allow, connector)
}

/// Returns the address of an entry's BMC, and the filter of IP addresses that it may be reached at.
fn checked(entry: &Entry<'_>) -> Result<(Address, Allow), InventoryError> {
    if entry.own.registry_port.is_some() {
        return Err(entry.wrong("registry-port belongs in defaults; here, put the port in the url"));
    }
    if entry.own.settings.is_some() {
        return Err(entry.wrong("settings belongs to the other drivers; the settings of redfish are keys of the entry"));
    }
    let url = entry.own.url.as_ref().ok_or_else(|| entry.wrong("url is missing"))?;
    place(entry, url, NamedBy::File)
}

fn place(entry: &Entry<'_>, url: &str, by: NamedBy) -> Result<(Address, Allow), InventoryError> {
    let place = Address::parse(url).map_err(|e| entry.wrong(e))?;
    let insecure_tls = matches!(certificates(entry).map_err(|why| entry.wrong(why))?, Certificates::Any);
    let allow = guard(entry, &place, by, insecure_tls)?;
    Ok((place, allow))
}

/// Returns the filter of IP addresses that this BMC may be reached at: the one that the operator wrote, else those in
/// the networks. Host names are checked when they are resolved, for each connection (SAF-38).
fn guard(entry: &Entry<'_>, place: &Address, by: NamedBy, insecure: bool) -> Result<Allow, InventoryError> {
    fault!(AllowListForgotten => return Ok(Arc::new(|_| true)));
    let (bmc, name) = (place.origin.clone(), entry.name.to_owned());
    let plain = place.plain();
    let networks = entry.file.networks.clone();
    if networks.is_empty() {
        return match (by, place.host) {
            (NamedBy::Elsewhere, _) => Err(InventoryError::NoNetworks { name, bmc }),
            (NamedBy::File, Host::Ip(ip)) => Ok(Arc::new(move |to: IpAddr| to == ip)),
            (NamedBy::File, Host::Name) if plain || insecure => Err(entry.wrong(
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

fn connect(
    entry: &Entry<'_>,
    mut place: Address,
    login: Option<Login>,
    allow: &Allow,
    connector: &Connector,
) -> Result<Found, InventoryError> {
    let wrong = |why: String| entry.wrong(why);
    let (own, all) = (entry.own, &entry.file.defaults);
    if own.system.is_some() {
        place.system.clone_from(&own.system);
    }
    place.system = place.system.or_else(|| all.system.clone());
    let login = match login {
        Some(login) => Some(login),
        None => login::login(entry).map_err(wrong)?,
    };
    let trust = trust(entry).map_err(wrong)?;
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
    let http = connector.http(&trust, allow).map_err(|e| wrong(format!("ca-file: {e}")))?;
    let driver = RedfishDriver::new(Bmc::new(http, place, login, how));
    Ok(Found { driver: Box::new(driver), timeouts: entry.timeouts(), warning })
}

fn trust(entry: &Entry<'_>) -> Result<Trust, String> {
    match certificates(entry)? {
        Certificates::Any => Ok(Trust::Anybody),
        Certificates::Of(file) => {
            let file = entry.file.beside(file);
            let pem = std::fs::read(&file).map_err(|e| format!("ca-file {}: {e}", file.display()))?;
            Ok(Trust::Only(pem))
        }
        Certificates::HostRoots => Ok(Trust::Host),
    }
}

/// Returns the trust for an entry: its own setting, else that of the defaults.
fn certificates<'a>(entry: &Entry<'a>) -> Result<Certificates<'a>, String> {
    let (own, all) = (entry.own, &entry.file.defaults);
    let file = own.ca_file.as_ref().or(all.ca_file.as_ref().filter(|_| own.insecure != Some(true)));
    match (own.insecure.or(all.insecure).unwrap_or(false), file) {
        (true, None) => Ok(Certificates::Any),
        (true, Some(_)) => Err("insecure and ca-file are both set; give only one".to_owned()),
        (false, Some(file)) => Ok(Certificates::Of(file)),
        (false, None) => Ok(Certificates::HostRoots),
    }
}
