//! Power of machines: the drivers that read and change it, and the file that maps a node's address to one
//! (docs/power.md, docs/spec/metal3.md).
//!
//! | module | content |
//! | --- | --- |
//! | `driver` | [`PowerDriver`], the interface of all drivers, and its errors |
//! | `switch` | off, on, cycle with any driver: deadlines, soft then hard, never a request again per poll |
//! | `booted` | evidence that a machine has booted |
//! | `test` | checks of a driver that change nothing |
//! | `drivers` | the table of drivers; a further one is a module and one line there |
//! | `registration` | one line of that table: how an entry of the file becomes a driver |
//! | `redfish` | BMCs over Redfish: requests, sign-in, discovery, resets, the allow-list |
//! | `command` | programs of the site that read and change the power |
//! | `ipmi` | BMCs over IPMI, through `ipmitool` |
//! | `login` | the user name and password of a BMC |
//! | `agent` | reboots by the agent of a node, ordered through an annotation |
//! | `ssh` | reboots by a command of the operating system, over SSH |
//! | `program` | one run of a program for a driver |
//! | `bare_metal_host` | BareMetalHosts, through the annotations of Metal3's reboot interface |
//! | `bmc_inventory` | the file that maps a node's address to its driver |
//! | `settings` | the settings in that file, and the reasons why an entry cannot be used |
//! | `fault` | faults that the parser finds in that file, in words and without values |
//! | `networks` | the allow-list of networks that a login may reach |
//! | `connector` | connections for drivers, over the network or inside the sandbox |
//! | `bmc_clients` | the file and the connections together; the BMC of a BareMetalHost |
//!
//! HTTP and JSON of BMCs, and output of programs, come in. A password never goes out: no `Debug`, error or log contains
//! one.

mod agent;
mod bare_metal_host;
pub mod bmc_clients;
mod bmc_inventory;
pub mod booted;
mod command;
mod connector;
mod driver;
mod drivers;
mod fault;
mod ipmi;
mod login;
mod networks;
mod program;
pub mod redfish;
mod registration;
mod settings;
mod ssh;
pub mod switch;
pub mod test;
mod text;

pub use agent::AgentOrder;
pub use bmc_clients::{BmcClients, Version};
pub use bmc_inventory::BmcInventory;
pub use connector::Connector;
pub use driver::{Cause, Evidence, Machine, PowerDriver, PowerError, PowerRequest, RequestNames, Restart, Target};
pub use networks::{Cidr, Networks};
pub use registration::Found;
pub use settings::InventoryError;
pub use switch::{Off, Rebooted, Timeouts};
