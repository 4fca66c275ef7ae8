//! Which BMC a node's address has: the file that `power.bmcs` names, then BareMetalHosts, then sabakan's registry – each
//! where it is configured. The first that knows it counts.

use serde_json::Map;

use crate::{
    actions::{ActionError, Hosts},
    cli::Context,
    net::Http,
    power::{Book, Found, Reach, redfish::Login},
    sabakan::client::{self, Question},
};

/// Where it was looked for in vain, and why.
type Misses = Vec<String>;

/// The BMC of a node's address; a refusal says where it was looked for.
pub(super) async fn find(address: &str, context: &Context) -> Result<Found, ActionError> {
    let reach = Reach::network(context.settings.bmcs.clone());
    let book = reach.book().map_err(|e| ActionError::misused(e.to_string()))?;
    let mut misses = Misses::new();
    let mut found = in_file(address, &book, &reach, context, &mut misses)?;
    if found.is_none() && !context.settings.kube.is_none() {
        found = among_hosts(address, &reach, context, &mut misses).await?;
    }
    // a registry has no passwords: without the file nobody could sign in
    if found.is_none() && context.settings.bmcs.is_some() && context.settings.sources.contains_key("etcd") {
        found = Box::pin(in_registry(address, &book, &reach, context, &mut misses)).await?;
    }
    let Some(found) = found else {
        if misses.is_empty() {
            return Err(ActionError::misused(
                "power needs to know the machines' BMCs: name a file in the configuration (power.bmcs), or Kubernetes with \
                 BareMetalHosts; see docs/power.md",
            ));
        }
        return Err(ActionError::misused(format!("no BMC is known for {address}: {}", misses.join("; "))));
    };
    if let Some(warning) = &found.warning {
        context.say(&format!("warning: {warning}"));
    }
    Ok(found)
}

fn in_file(
    address: &str,
    book: &Book,
    reach: &Reach,
    context: &Context,
    misses: &mut Misses,
) -> Result<Option<Found>, ActionError> {
    let found = book.find(address, reach).map_err(|e| ActionError::misused(e.to_string()))?;
    if let (None, Some(file)) = (&found, &context.settings.bmcs) {
        let known = book.addresses().count();
        misses.push(format!("{} names no BMC for {address}; it names {known} others", file.display()));
    }
    Ok(found)
}

async fn among_hosts(
    address: &str,
    reach: &Reach,
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
    let name = host.full_name();
    let login = if host.credentials.is_empty() {
        None
    } else {
        let (space, secret) = (&host.namespace, &host.credentials);
        let found = kube.credentials(space, secret).await;
        let found = found.map_err(|e| ActionError::failed(format!("{name}: Secret {space}/{secret}: {e}")))?;
        let missing = || ActionError::failed(format!("{name}: Secret {space}/{secret} lacks its username or password"));
        let found = found.ok_or_else(missing)?;
        Some(Login { username: found.username, password: found.password })
    };
    context.say_more(&format!("the BMC is that of the BareMetalHost {name}"));
    reach.of_host(&host, login).map(Some).map_err(|e| ActionError::misused(e.to_string()))
}

async fn in_registry(
    address: &str,
    book: &Book,
    reach: &Reach,
    context: &Context,
    misses: &mut Misses,
) -> Result<Option<Found>, ActionError> {
    let url = context.store().await?.read_view().await?.registry.url.and_then(|url| url.get().cloned());
    let Some(url) = url else {
        misses.push("no registry is set up (`cketerm sabakan set-url URL`)".to_owned());
        return Ok(None);
    };
    let http = Http::verified(client::PATIENCE, client::MOST_BYTES)
        .map_err(|e| ActionError::failed(format!("no HTTP client can be made: {e}")))?;
    let machines = client::ask(&http, &url, Question::Members, &Map::new()).await;
    let machines = machines.map_err(|e| ActionError::failed(e.to_string()))?;
    let Some(machine) = machines.list.iter().find(|m| m.address == address) else {
        misses.push(format!("none of sabakan's {} machines has that address", machines.list.len()));
        return Ok(None);
    };
    match bmc_url(&machine.bmc_type, &machine.bmc_ipv4) {
        Ok(bmc) => {
            context.say_more(&format!("the BMC is the one that sabakan has for {}", machine.serial));
            let found = book.other(address, &bmc, None, false, reach);
            found.map(Some).map_err(|e| ActionError::misused(e.to_string()))
        }
        Err(why) => {
            misses.push(format!("sabakan: machine {}: {why}", machine.serial));
            Ok(None)
        }
    }
}

/// Where the BMC of a machine of the registry is. Redfish is spoken alone.
fn bmc_url(kind: &str, ip: &str) -> Result<String, String> {
    if kind.to_ascii_uppercase().starts_with("IPMI") {
        return Err(format!("its BMC is of the type {kind}, and only Redfish is spoken"));
    }
    match ip.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(ip)) => Ok(format!("https://{ip}")),
        Ok(std::net::IpAddr::V6(ip)) => Ok(format!("https://[{ip}]")),
        Err(_) => Err(format!("{ip:?} is no address of a BMC")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registrys_bmcs_are_spoken_to_by_redfish_alone() {
        assert_eq!(bmc_url("iDRAC-9", "10.1.0.5").unwrap(), "https://10.1.0.5");
        assert_eq!(bmc_url("Redfish", "fd00::5").unwrap(), "https://[fd00::5]");
        assert!(bmc_url("IPMI-2.0", "10.1.0.5").unwrap_err().contains("only Redfish"));
        assert!(bmc_url("", "").unwrap_err().contains("no address"));
    }
}
