//! The Redfish driver.

mod address;
mod client;
mod driver;
mod entry;
mod error;
mod system;
#[cfg(test)]
mod tests;

pub use address::{Address, Host};
pub use client::{Bmc, SignIn};
pub use driver::RedfishDriver;
pub(super) use entry::{REGISTRATION, named_elsewhere};
pub use error::BmcError;

pub use super::login::Login;
