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

/// A thing outside the file that an entry needs, and whose lack is known before the power command runs.
pub(super) enum Need {
    /// A program of this host.
    Program {
        /// Reason why it cannot be run now.
        fault: Option<InventoryError>,
        /// Whether a power cycle fails without it.
        essential: bool,
    },
    /// A BareMetalHost.
    Host {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The agent of the node.
    Agent,
}

/// Check of the settings of an entry for many machines.
pub(super) type ForMany = fn(Option<&serde_yaml::Value>) -> Result<(), String>;

/// One power driver.
pub(super) struct Registration {
    /// Name in the file: `redfish`.
    pub(super) name: &'static str,
    /// Check of an entry that describes many machines (`others` in the file): each must lead to its own machine. `None`: no
    /// entry can.
    pub(super) for_many: Option<ForMany>,
    /// Checks an entry without reading other files, and returns warnings for the operator. An entry that it refuses
    /// blocks its machine before any drain.
    pub(super) check: fn(&Entry<'_>) -> Result<Vec<String>, InventoryError>,
    /// Returns the needs of an entry that `check` accepts. It looks at programs on this host, and sends nothing.
    pub(super) needs: fn(&Entry<'_>) -> Vec<Need>,
    /// Creates the driver of an entry. It applies the rules of `check` too. Nothing is sent yet.
    pub(super) create: fn(&Entry<'_>, &Connector) -> Result<Found, InventoryError>,
}
