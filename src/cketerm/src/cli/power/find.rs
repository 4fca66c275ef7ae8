//! Lookup of the BMC of a node's address: the file that `power.bmcs` names, then BareMetalHosts, then sabakan's
//! registry, each if it is configured. The first one that knows the address counts.

use cketerm_actions::{ActionError, BmcLookup, Hosts, Registered};
use cketerm_clients::{
    net::Http,
    power::{BmcClients, BmcInventory, Found},
    sabakan as client,
};
use cketerm_model::names::Address;

use crate::cli::Context;

/// Places without a result, and the reasons.
type Misses = Vec<String>;

/// Returns the BMC of a node's address; the refusal names the places that were searched.
pub(super) async fn find(address: &str, context: &Context) -> Result<Found, ActionError> {
    let address = &Address::new(address);
    let bmcs =
        BmcLookup::new(BmcClients::network(context.settings.bmcs.clone()).with_kube(context.settings.kube.clone()));
    let inventory = bmcs.inventory()?;
    let mut misses = Misses::new();
    let mut found = bmcs.in_file(address, &inventory)?;
    if let (Some(_), Some(file), Some(driver)) = (&found, &context.settings.bmcs, inventory.driver_name(address)) {
        context.print_verbose(&format!("using the entry {address} of {} (driver {driver})", file.display()));
    }
    if let (None, Some(file)) = (&found, &context.settings.bmcs) {
        let known = inventory.addresses().count();
        misses.push(format!("{} has no BMC for {address}; it has {known} others", file.display()));
    }
    if found.is_none() && !context.settings.kube.is_none() {
        found = among_hosts(address, &bmcs, context, &mut misses).await?;
    }
    // the registry has no passwords, so it is of no use without the file
    if found.is_none() && context.settings.bmcs.is_some() && context.settings.sources.contains_key("etcd") {
        found = Box::pin(in_registry(address, bmcs, &inventory, context, &mut misses)).await?;
    }
    let Some(found) = found else {
        if misses.is_empty() {
            return Err(ActionError::misused(
                "no source of BMCs is configured: set power.bmcs to a file, or configure Kubernetes with \
                 BareMetalHosts; see docs/power.md",
            ));
        }
        return Err(ActionError::misused(format!("no BMC is known for {address}: {}", misses.join("; "))));
    };
    if let Some(warning) = &found.warning {
        context.print_message(&format!("warning: {warning}"));
    }
    Ok(found)
}

async fn among_hosts(
    address: &Address,
    bmcs: &BmcLookup,
    context: &Context,
    misses: &mut Misses,
) -> Result<Option<Found>, ActionError> {
    let kube = context.kube("power").await?;
    let host = match Hosts::new(kube.clone()).at(address).await {
        Ok(host) => host,
        Err(e) => {
            misses.push(e.text);
            return Ok(None);
        }
    };
    let found = bmcs.of_host(&kube, &host).await?;
    context.print_verbose(&format!("using the BMC of BareMetalHost {}", host.full_name()));
    Ok(Some(found))
}

async fn in_registry(
    address: &Address,
    bmcs: BmcLookup,
    inventory: &BmcInventory,
    context: &Context,
    misses: &mut Misses,
) -> Result<Option<Found>, ActionError> {
    let http = Http::verified(client::TIMEOUT, client::MOST_BYTES);
    match bmcs.and_registry(context.store().await?, http).in_registry(address, inventory).await? {
        Registered::Found(found, serial) => {
            context.print_verbose(&format!("using the BMC of {serial} from sabakan"));
            Ok(Some(*found))
        }
        Registered::Missing(why) => {
            misses.push(why);
            Ok(None)
        }
    }
}
