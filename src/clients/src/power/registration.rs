//! Registration of a power driver: its name, and how an entry of the file of BMCs becomes a driver.

use super::{
    connector::Connector,
    driver::PowerDriver,
    settings::{Entry, InventoryError},
    switch::Timeouts,
};

/// A driver of one machine, with its deadlines.
#[derive(Debug)]
pub struct Found {
    /// The driver.
    pub driver: Box<dyn PowerDriver>,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Warning for the operator: plain HTTP, or a certificate that is not verified.
    pub warning: Option<String>,
}

/// One power driver.
pub(super) struct Registration {
    /// Name in the file: `redfish`.
    pub(super) name: &'static str,
    /// Checks an entry without reading other files, and returns warnings for the operator. An entry that it refuses
    /// blocks its machine before any drain.
    pub(super) check: fn(&Entry<'_>) -> Result<Vec<String>, InventoryError>,
    /// Creates the driver of an entry. It applies the rules of `check` too. Nothing is sent yet.
    pub(super) create: fn(&Entry<'_>, &Connector) -> Result<Found, InventoryError>,
}
