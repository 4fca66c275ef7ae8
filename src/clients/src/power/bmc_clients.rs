//! Clients for BMCs, over the network or inside the sandbox, and the BMC of a BareMetalHost.

use std::{net::IpAddr, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc};

use cketerm_model::host::HostRow;

use super::{
    bmc_inventory::BmcInventory, connector::Connector, login::Login, registration::Found, settings::InventoryError,
};
use crate::{kubernetes::KubeSettings, net::Http};

/// Version of the file. It differs after every write or replacement of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

/// Source of the inventory.
#[derive(Clone, Debug)]
enum Source {
    /// A file on this host, read at each use. `None`: no file is configured.
    File(Option<PathBuf>),
    /// An inventory in this process: the sandbox's.
    InMemory(Arc<BmcInventory>),
}

/// Clients for BMCs, with the inventory file that names them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BmcClients {
    source: Source,
    connector: Connector,
}

impl BmcClients {
    /// Creates clients that use the network and the file that `power.bmcs` names.
    pub fn network(file: Option<PathBuf>) -> Self {
        Self { source: Source::File(file), connector: Connector::network() }
    }

    /// Creates clients of the sandbox: `http` answers, `text` is the inventory file, and `resolve` gives the addresses
    /// of names. An invalid text allows nothing.
    pub fn in_process(http: Http, text: &str, resolve: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self {
            source: Source::InMemory(Arc::new(BmcInventory::parse(text).unwrap_or_default())),
            connector: Connector::in_process(http, resolve),
        }
    }

    /// Sets the Kubernetes of the BareMetalHosts that the file names. Without it their drivers fail.
    #[must_use]
    pub fn with_kube(mut self, kube: KubeSettings) -> Self {
        self.connector.kube = kube;
        self
    }

    /// Returns the connections for drivers.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Returns the file's present content. Without a configured file the inventory is empty and allows nothing.
    pub fn inventory(&self) -> Result<Arc<BmcInventory>, InventoryError> {
        match &self.source {
            Source::File(None) => Ok(Arc::default()),
            Source::File(Some(path)) => BmcInventory::read(path).map(Arc::new),
            Source::InMemory(inventory) => Ok(Arc::clone(inventory)),
        }
    }

    /// Returns the version of the file. After a change, callers that keep a BMC must look it up again, because its
    /// network may no longer be allowed.
    pub fn version(&self) -> Option<Version> {
        let Source::File(Some(path)) = &self.source else { return None };
        let file = std::fs::metadata(path).ok()?;
        Some(Version { inode: file.ino(), seconds: file.mtime(), nanoseconds: file.mtime_nsec() })
    }

    /// Returns the BMC of a BareMetalHost: `spec.bmc.address` with this login. The file's defaults supply the rest:
    /// authorities, deadlines, and a login if the host names no Secret.
    pub fn of_host(&self, host: &HostRow, login: Option<Login>) -> Result<Found, InventoryError> {
        let name = host.full_name();
        if host.bmc_address.is_empty() {
            let why = format!("{name}: spec.bmc.address is not set");
            return Err(InventoryError::Wrong { file: PathBuf::new(), why });
        }
        self.inventory()?.other(&name, &host.bmc_address, login, host.any_certificate, &self.connector)
    }
}
