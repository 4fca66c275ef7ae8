//! I50: destinations of BMC logins, as their receivers recorded them.

use std::net::IpAddr;

use super::{
    record::{Breach, Login},
    view::View,
};

/// Networks of the sandbox's BMCs, which its file allows: 172.0.0.0/8 and `fd72::/16`.
fn allowed(to: IpAddr) -> bool {
    match to.to_canonical() {
        IpAddr::V4(ip) => ip.octets()[0] == 172,
        IpAddr::V6(ip) => ip.segments()[0] == 0xfd72,
    }
}

/// I50: no password and no token goes to an address outside the allowed networks, whatever names the address.
pub fn i50(view: &View<'_>) -> Vec<Breach> {
    let outside = view.record.logins.iter().filter(|Login { to, .. }| !allowed(*to));
    outside.map(|Login { at, to }| Breach { code: "I50", at: *at, what: format!("a login was sent to {to}") }).collect()
}
