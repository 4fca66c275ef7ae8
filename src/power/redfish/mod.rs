//! The Redfish driver.

mod switch;
mod system;
mod talk;
#[cfg(test)]
mod tests;

pub use switch::{Off, Patience};
pub use system::{Power, System};
pub use talk::{Address, Bmc, BmcError, Host, Login, SignIn};
