//! The Redfish driver.

mod address;
mod client;
mod switch;
mod system;
#[cfg(test)]
mod tests;

pub use address::{Address, Host};
pub use client::{Bmc, BmcError, Login, SignIn};
pub use switch::{Off, Timeouts};
pub use system::System;
