//! Address of a BMC, as files, BareMetalHosts and operators write it.

use std::net::IpAddr;

use super::error::BmcError;
use crate::power::text::shown;

/// Service root, the only path that Redfish fixes.
pub(super) const ROOT: &str = "/redfish/v1/";

/// Origin of a BMC, and the path of a system if the address names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Scheme, host and port: `https://10.1.0.5`.
    pub origin: String,
    /// Kind of the host in the address.
    pub host: Host,
    /// Path of the system, for example `/redfish/v1/Systems/1`.
    pub system: Option<String>,
}

/// Host of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A name to be resolved.
    Name,
}

impl Address {
    /// Returns true for HTTP without TLS.
    pub fn plain(&self) -> bool {
        self.origin.starts_with("http://")
    }

    /// Parses a URL, a host alone, or the address of a BareMetalHost (`redfish-virtualmedia+https://…/Systems/1`).
    pub fn parse(text: &str) -> Result<Self, BmcError> {
        let wrong = |why| BmcError::Address(shown(text), why);
        let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
        let (kind, transport) = match scheme.split_once('+') {
            Some((kind, transport)) => (kind, transport),
            None if scheme == "http" => ("redfish", "http"),
            None if scheme == "https" => ("redfish", "https"),
            None => (scheme, "https"),
        };
        if !["redfish", "idrac-redfish", "ilo5-redfish"].contains(&kind) && !kind.ends_with("-virtualmedia") {
            return Err(wrong("only Redfish is supported"));
        }
        if !["http", "https"].contains(&transport) {
            return Err(wrong("only http and https are supported"));
        }
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if host.contains('@') {
            return Err(wrong("it must not contain a user name or password"));
        }
        let origin = format!("{transport}://{host}");
        let whole = origin.parse::<http::Uri>().ok().filter(|uri| uri.authority().is_some_and(|a| a == host));
        let Some(written) = whole.as_ref().and_then(http::Uri::host).filter(|h| !h.is_empty()) else {
            return Err(wrong("it has no host"));
        };
        // The HTTP client also accepts `0x7f.1` and `2130706433` as addresses. The checked address must be the one that
        // it connects to.
        let read = reqwest::Url::parse(&origin).map_err(|_| wrong("it has no host"))?;
        let ip = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let host = match (ip(written), read.host_str().and_then(ip)) {
            (Some(ip), Some(same)) if ip == same => Host::Ip(ip),
            (None, None) => Host::Name,
            _ => return Err(wrong("its IP address is written in an unusual way")),
        };
        let path = path.trim_end_matches('/');
        let root = ROOT.trim_end_matches('/');
        let system = (!["", "/redfish", root].contains(&path)).then(|| path.to_owned());
        Ok(Self { origin, host, system })
    }
}
