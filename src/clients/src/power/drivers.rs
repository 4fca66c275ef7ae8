//! The table of power drivers. A further driver is a module of this folder and one line here.

use super::{agent, bare_metal_host, command, ipmi, redfish, registration::Registration, ssh};

/// All drivers, by the names that the file of BMCs uses.
pub(super) const DRIVERS: &[Registration] = &[
    redfish::REGISTRATION,
    ipmi::REGISTRATION,
    command::REGISTRATION,
    bare_metal_host::REGISTRATION,
    ssh::REGISTRATION,
    agent::REGISTRATION,
];

/// Returns the driver of this name; without a name it is Redfish's.
pub(super) fn registered(name: Option<&str>) -> Option<&'static Registration> {
    let name = name.unwrap_or(redfish::REGISTRATION.name);
    DRIVERS.iter().find(|driver| driver.name == name)
}
