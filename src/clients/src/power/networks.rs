//! Networks of BMCs: the allow-list in the file that `power.bmcs` names. A login leaves this host for these networks
//! only (SAF-38, I50).

use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

use cketerm_model::fault;
use serde::Deserialize;

/// One network, and its permissions beside HTTPS with a verified certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    cidr: Cidr,
    /// Whether plain HTTP is allowed, which exposes a password to eavesdroppers.
    pub http: bool,
    /// Whether unverified certificates are allowed if a BareMetalHost requests it.
    pub insecure: bool,
}

/// Address and prefix length: `10.1.0.0/16`, `fd00:1::/64`. An address alone is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    prefix: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?} is not a network: {why}; write it as 10.1.0.0/16 or fd00:1::/64");
        let (base, prefix) = text.split_once('/').map_or((text, None), |(base, prefix)| (base, Some(prefix)));
        let base: IpAddr = base.parse().map_err(|_| wrong("it has no IP address"))?;
        let max_prefix = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => max_prefix,
            Some(prefix) => {
                prefix.parse().ok().filter(|p| *p <= max_prefix).ok_or_else(|| wrong("wrong prefix length"))?
            }
        };
        if base != base.to_canonical() {
            return Err(wrong("write an IPv4 network in IPv4 form"));
        }
        if ip_bits(base) & !mask(prefix, max_prefix) != 0 {
            return Err(wrong("address bits after the prefix are set"));
        }
        Ok(Self { base, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl Cidr {
    /// Reports whether the address is in the network. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn contains(self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let max_prefix = if self.base.is_ipv4() { 32 } else { 128 };
        ip.is_ipv4() == self.base.is_ipv4() && ip_bits(ip) & mask(self.prefix, max_prefix) == ip_bits(self.base)
    }
}

fn ip_bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn mask(prefix: u8, max_prefix: u8) -> u128 {
    let ones = if max_prefix == 32 { u128::from(u32::MAX) } else { u128::MAX };
    ones.checked_shl(u32::from(max_prefix - prefix)).unwrap_or(0) & ones
}

/// Form of one network in the file: text, or text with permissions.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum NetworkForm {
    Plain(String),
    With(NetworkFields),
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkFields {
    cidr: String,
    #[serde(default)]
    http: bool,
    #[serde(default)]
    insecure: bool,
}

/// The allow-list. Cheap to clone; the default allows nothing.
#[derive(Clone, Debug, Default)]
pub struct Networks(Arc<[Network]>);

impl Networks {
    pub(super) fn read(forms: Vec<NetworkForm>) -> Result<Self, String> {
        let one = |form: NetworkForm| {
            let network_fields = match form {
                NetworkForm::Plain(cidr) => NetworkFields { cidr, http: false, insecure: false },
                NetworkForm::With(fields) => fields,
            };
            Ok(Network {
                cidr: network_fields.cidr.parse()?,
                http: network_fields.http,
                insecure: network_fields.insecure,
            })
        };
        forms.into_iter().map(one).collect::<Result<Vec<_>, String>>().map(|all| Self(all.into()))
    }

    /// Returns true if the file has no list.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the networks that contain every address of a family. A list with one of them excludes nothing.
    pub fn unbounded(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.0.iter().map(|network| network.cidr).filter(|cidr| cidr.prefix == 0)
    }

    /// Reports whether an address is allowed. With `plain` it must be allowed over plain HTTP.
    pub fn allow(&self, ip: IpAddr, plain: bool) -> bool {
        fault!(AllowListForgotten => return true);
        let mut matching = self.0.iter().filter(|network| network.cidr.contains(ip));
        matching.any(|network| !plain || network.http)
    }

    /// Reports whether certificates at this address may stay unverified if a BareMetalHost requests it.
    pub fn allow_unverified(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.cidr.contains(ip) && network.insecure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        for (cidr, inside, outside) in [
            (
                "10.1.0.0/16",
                &["10.1.0.0", "10.1.255.255", "::ffff:10.1.2.3"][..],
                &["10.2.0.0", "10.0.255.255", "::1"][..],
            ),
            ("10.1.2.3", &["10.1.2.3"], &["10.1.2.2", "10.1.2.4"]),
            ("10.1.2.128/25", &["10.1.2.128", "10.1.2.255"], &["10.1.2.127"]),
            ("0.0.0.0/0", &["203.0.113.7"], &["2001:db8::1"]),
            ("fd00:1::/64", &["fd00:1::5"], &["fd00:2::5", "10.1.2.3", "::ffff:10.1.2.3"]),
            ("::/0", &["2001:db8::1"], &["10.0.0.1"]),
        ] {
            let cidr: Cidr = cidr.parse().unwrap();
            let holds = |ip: &&str| cidr.contains(ip.parse().unwrap());
            assert!(inside.iter().all(holds) && !outside.iter().any(holds), "{cidr}");
        }
    }

    #[test]
    fn an_invalid_network_is_rejected_with_its_reason() {
        for (text, expected) in [
            ("bmc.example", "no IP address"),
            ("10.1.0.0/33", "prefix length"),
            ("10.1.0.0/-1", "prefix length"),
            ("10.1.0.5/16", "bits after the prefix"),
            ("::ffff:10.1.0.0/112", "IPv4 network in IPv4 form"),
            ("", "no IP address"),
        ] {
            let why = text.parse::<Cidr>().unwrap_err();
            assert!(why.contains(expected) && why.contains("10.1.0.0/16"), "{text}: {why}");
        }
    }
}
