//! Power of machines: Redfish, and both roles of Metal3's reboot interface (docs/power.md, docs/spec/metal3.md).
//!
//! | file | content |
//! | --- | --- |
//! | `bmc_inventory` | the file that maps a node's address to its BMC |
//! | `networks` | the allow-list of networks that a login may reach |
//! | `bmc_clients` | clients for BMCs, over the network or inside the sandbox; the BMC of a BareMetalHost |
//! | `controller` | decisions of Metal3's controller role; the engine carries them out |
//! | `redfish/address` | address of a BMC: origin, host, system |
//! | `redfish/talk` | one BMC: requests, sign-in, redirects, the meaning of its errors |
//! | `redfish/system` | its computer system: discovery, power state, `ComputerSystem.Reset` |
//! | `redfish/switch` | off, on, cycle: deadlines, soft then hard, never a request again per poll |
//!
//! HTTP and JSON of BMCs come in. A password never goes out: no `Debug`, error or log contains one.

pub mod bmc_clients;
mod bmc_inventory;
mod networks;
pub mod redfish;

pub use bmc_clients::{BmcClients, Version};
pub use bmc_inventory::{BmcInventory, Found, InventoryError};
pub use networks::{Cidr, Networks};
