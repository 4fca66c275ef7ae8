//! Scenarios: a sandbox, a cluster definition, and a script of what people and fate do; as data, played by a director
//! who uses the same actions as everybody.

mod backends;
mod data;
mod hosts;
mod play;
mod registry;
mod repairs;

pub use backends::{Commands, Disk, Lines, SABAKAN, backends, bmcs, probes, registry};
pub use data::{DEFAULT, Scenario, Scene};
pub use play::{Options, Stage};
