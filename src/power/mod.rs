//! Power of machines: Redfish, and Metal3's reboot interface in both roles (docs/power.md; spec/metal3.md).
//!
//! | file | idea |
//! | --- | --- |
//! | `book` | which BMC a node's address has: the file |
//! | `controller` | Metal3's controller role, decided; nothing carries it out yet |
//! | `redfish/talk` | one BMC: requests, sign-in, redirects, what its errors mean |
//! | `redfish/system` | its computer system: discovery, power state, `ComputerSystem.Reset` |
//! | `redfish/switch` | off, on, cycle: deadlines, soft then hard, never a request again per poll |
//!
//! What may enter: HTTP and JSON of BMCs. What may not leave: a password; no `Debug`, error or log has one.

mod book;
pub mod controller;
pub mod redfish;

pub use book::{Book, BookError, Found};
