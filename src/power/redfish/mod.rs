//! The Redfish driver.

mod address;
mod switch;
mod system;
mod talk;
#[cfg(test)]
mod tests;

pub use address::{Address, Host};
pub use switch::{Off, Patience};
pub use system::{Power, System};
pub use talk::{Bmc, BmcError, Login, SignIn};
