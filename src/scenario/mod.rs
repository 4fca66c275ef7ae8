//! Scenarios: a sandbox, a cluster definition, and a script of what people and fate do; as data, played by a director
//! who uses the same actions as everybody.

mod data;
mod ground;
mod hosts;
mod play;
mod registry;
mod repairs;

pub use data::{DEFAULT, Scenario, Scene};
pub use ground::{Commands, Disk, Lines, SABAKAN, bmcs, ground, probes, registry};
pub use play::{Options, Stage};
