//! Lookup of a machine's BMC from an operator's process: the file, a BareMetalHost, sabakan's registry (docs/power.md,
//! Which BMC).

use std::{net::IpAddr, sync::Arc};

use cketerm_clients::{
    kubernetes::Kube,
    net::Http,
    power::{BmcClients, BmcInventory, Found, redfish::Login},
    sabakan as client,
    sabakan::Question,
    store::Store,
};
use cketerm_model::{host::HostRow, names::Address};
use serde_json::Map;

use super::error::ActionError;

/// Sources in which BMCs are looked up. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BmcLookup {
    clients: BmcClients,
    /// Store that holds sabakan's URL, and the HTTP client for its queries.
    registry: Option<Arc<(Store, Http)>>,
}

/// Result of a registry lookup for an address.
#[derive(Debug)]
pub enum Registered {
    /// The BMC, and the serial of its machine.
    Found(Box<Found>, String),
    /// No usable BMC; the reason.
    Missing(String),
}

impl BmcLookup {
    /// Creates a lookup in the file of `power.bmcs` and in the hosts themselves.
    pub fn new(clients: BmcClients) -> Self {
        Self { clients, registry: None }
    }

    /// Adds the registry whose URL is in this store.
    #[must_use]
    pub fn and_registry(mut self, store: Store, http: Http) -> Self {
        self.registry = Some(Arc::new((store, http)));
        self
    }

    /// Returns the current content of the file.
    pub fn inventory(&self) -> Result<Arc<BmcInventory>, ActionError> {
        self.clients.inventory().map_err(|e| ActionError::misused(e.to_string()))
    }

    /// Returns the BMC that the file names for an address.
    pub fn in_file(&self, address: &Address, inventory: &BmcInventory) -> Result<Option<Found>, ActionError> {
        inventory.find(address, self.clients.connector()).map_err(|e| ActionError::misused(e.to_string()))
    }

    /// Returns the BMC that a BareMetalHost names, with the login of its Secret.
    pub async fn of_host(&self, kube: &Kube, host: &HostRow) -> Result<Found, ActionError> {
        let name = host.full_name();
        let login = if host.credentials.is_empty() {
            None
        } else {
            let (space, secret) = (&host.namespace, &host.credentials);
            let found = kube.credentials(space, secret).await;
            let found = found.map_err(|e| ActionError::failed(format!("{name}: Secret {space}/{secret}: {e}")))?;
            let missing =
                || ActionError::failed(format!("{name}: Secret {space}/{secret} lacks its username or password"));
            let found = found.ok_or_else(missing)?;
            Some(Login { username: found.username, password: found.password })
        };
        self.clients.of_host(host, login).map_err(|e| ActionError::misused(e.to_string()))
    }

    /// Returns the BMC that sabakan has for an address.
    pub async fn in_registry(&self, address: &Address, inventory: &BmcInventory) -> Result<Registered, ActionError> {
        let missing = |why: String| Ok(Registered::Missing(why));
        let Some((store, http)) = self.registry.as_deref() else {
            return missing("sabakan is not configured".to_owned());
        };
        let view = Box::pin(store.read_view()).await?;
        let Some(url) = view.registry.url.and_then(|url| url.get().cloned()) else {
            return missing("sabakan's URL is not set (`cketerm sabakan set-url URL`)".to_owned());
        };
        let machines = client::ask(http, &url, Question::Members, &Map::new()).await;
        let machines = machines.map_err(|e| ActionError::failed(e.to_string()))?;
        let Some(machine) = machines.list.iter().find(|m| m.address == *address) else {
            return missing(format!("none of sabakan's {} machines has that address", machines.list.len()));
        };
        match bmc_url(&machine.bmc_type, &machine.bmc_ipv4, inventory.registry_port()) {
            Ok(bmc) => {
                let found = inventory.other(address, &bmc, None, false, self.clients.connector());
                let found = found.map_err(|e| ActionError::misused(e.to_string()))?;
                Ok(Registered::Found(Box::new(found), machine.serial.clone()))
            }
            Err(why) => missing(format!("sabakan: machine {}: {why}", machine.serial)),
        }
    }
}

/// Returns the BMC URL of a registered machine. cketerm supports only Redfish.
fn bmc_url(kind: &str, ip: &str, port: Option<u16>) -> Result<String, String> {
    if kind.to_ascii_uppercase().starts_with("IPMI") {
        return Err(format!("its BMC is of type {kind}; only Redfish is supported"));
    }
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    match ip.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => Ok(format!("https://{ip}{port}")),
        Ok(IpAddr::V6(ip)) => Ok(format!("https://[{ip}]{port}")),
        Err(_) => Err(format!("{ip:?} is not a BMC address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_redfish_bmcs_of_the_registry_are_supported() {
        assert_eq!(bmc_url("iDRAC-9", "10.1.0.5", None).unwrap(), "https://10.1.0.5");
        assert_eq!(bmc_url("Redfish", "fd00::5", Some(8443)).unwrap(), "https://[fd00::5]:8443");
        assert!(bmc_url("IPMI-2.0", "10.1.0.5", None).unwrap_err().contains("only Redfish"));
        assert!(bmc_url("", "", None).unwrap_err().contains("not a BMC address"));
    }
}
