//! Power of machines: Redfish, and Metal3's reboot interface in both roles (docs/power.md; spec/metal3.md).
//!
//! | file | idea |
//! | --- | --- |
//! | `book` | which BMC a node's address has: the file |
//! | `networks` | the allow-list of networks that a login may go to |
//! | `reach` | how BMCs are spoken to: over the network or inside the sandbox; the BMC of a BareMetalHost |
//! | `controller` | Metal3's controller role, decided; the engine carries it out |
//! | `redfish/address` | where a BMC is: origin, host, system |
//! | `redfish/talk` | one BMC: requests, sign-in, redirects, what its errors mean |
//! | `redfish/system` | its computer system: discovery, power state, `ComputerSystem.Reset` |
//! | `redfish/switch` | off, on, cycle: deadlines, soft then hard, never a request again per poll |
//!
//! What may enter: HTTP and JSON of BMCs. What may not leave: a password; no `Debug`, error or log has one.

pub mod bmc_clients;
mod bmc_inventory;
pub mod controller;
mod networks;
pub mod redfish;

pub use bmc_clients::{BmcClients, Version};
pub use bmc_inventory::{BmcInventory, BookError, Found};
pub use networks::{Cidr, Networks};
