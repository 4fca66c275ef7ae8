//! Actions on BareMetalHosts, as a client of Metal3's reboot interface: request a reboot, hold a host off, release it
//! (MET-13 to MET-21). Only cketerm's own keys are added and removed (I44, MET-16).

use std::{net::IpAddr, time::Duration};

use cketerm_clients::kubernetes::{Kube, WriteError};
use cketerm_model::{
    cketerm_records::Who,
    clock::Clock,
    host::{HOLD_KEY, HostRow, Mode},
    kube::KubeView,
    names::{Address, NodeName},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{bmcs::BmcLookup, error::ActionError, who};

/// Number of attempts of a write. Metal3's operator writes hosts frequently.
pub(super) const TRIES: u32 = 8;
/// Interval between two reads of a host.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// Client that acts on hosts with the rights of the kubeconfig.
#[derive(Debug)]
pub struct Hosts {
    pub(super) kube: Kube,
    pub(super) bmcs: Option<BmcLookup>,
    who: Who,
    why: Option<String>,
    pub(super) clock: Clock,
}

/// Result of a request.
#[derive(Debug)]
pub struct HostRequest {
    /// The host right after it got cketerm's annotation.
    pub host: HostRow,
    /// Value of the annotation if the host had it before.
    pub already: Option<String>,
}

/// Returns cketerm's key, with or without this name.
pub fn own_key(name: Option<&str>) -> Result<String, ActionError> {
    let Some(name) = name else { return Ok(HOLD_KEY.to_owned()) };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let valid = name.chars().all(plain) && name.ends_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= 40;
    if valid {
        return Ok(format!("{HOLD_KEY}-{name}"));
    }
    Err(ActionError::misused(format!(
        "{name:?} is not a key: use up to 40 letters, digits, - _ ., the last a letter or digit"
    )))
}

impl Hosts {
    /// Creates a client for the user who runs this process.
    pub fn new(kube: Kube) -> Self {
        Self { kube, bmcs: None, who: who::current_user(), why: None, clock: Clock::host() }
    }

    /// Sets who acts, and their clock.
    #[must_use]
    pub fn by(mut self, who: &Who, clock: &Clock) -> Self {
        (self.who, self.clock) = (who.clone(), clock.clone());
        self
    }

    /// Sets the BMCs to query if a proof of off is needed and the host alone does not give it.
    #[must_use]
    pub fn with_bmcs(mut self, bmcs: Option<BmcLookup>) -> Self {
        self.bmcs = bmcs;
        self
    }

    /// Sets the reason that goes into the annotation's value.
    #[must_use]
    pub fn because(mut self, why: Option<&str>) -> Self {
        self.why = why.map(str::to_owned);
        self
    }

    /// Returns the user who acts.
    pub(super) fn author(&self) -> &Who {
        &self.who
    }

    /// Lists all hosts.
    pub async fn list(&self) -> Result<Vec<HostRow>, ActionError> {
        self.kube.hosts().await.map_err(|e| ActionError::failed(e.to_string()))
    }

    /// Returns the host with this address, or whose Node has it (MET-12). Commands of a cluster definition are given an
    /// address.
    pub async fn at(&self, address: &Address) -> Result<HostRow, ActionError> {
        let (hosts, nodes) = tokio::join!(self.list(), self.kube.nodes());
        let mut view = KubeView::default();
        for node in nodes.map_err(|e| ActionError::failed(e.to_string()))? {
            view.put_node(node);
        }
        single_host(address, hosts?, &view).map_err(ActionError::failed)
    }

    /// Returns the host with this name or `namespace/name`, or the one of the Node with this name or address.
    pub async fn find(&self, name: &str) -> Result<HostRow, ActionError> {
        if name.parse::<IpAddr>().is_ok() {
            return self.at(&Address::new(name)).await;
        }
        let missing = || ActionError::failed(format!("BareMetalHost {name} not found; see `hosts list`"));
        if let Some((namespace, name)) = name.split_once('/') {
            let host = self.kube.host(namespace, name).await.map_err(|e| ActionError::failed(e.to_string()))?;
            return host.ok_or_else(missing);
        }
        let mut found: Vec<HostRow> = self.list().await?.into_iter().filter(|h| h.name == name).collect();
        match (found.pop(), found.len()) {
            (Some(host), 0) => Ok(host),
            (Some(host), more) => Err(ActionError::misused(format!(
                "{name} exists in {} namespaces, such as {}; write NAMESPACE/{name}",
                more + 1,
                host.namespace
            ))),
            (None, _) => match self.address_of_node(name).await {
                Some(address) => self.at(&address).await,
                None => Err(missing()),
            },
        }
    }

    /// Returns the IP address of the Node with this name. `None` also if Kubernetes does not tell.
    async fn address_of_node(&self, name: &str) -> Option<Address> {
        let row = self.kube.node(&NodeName::new(name)).await.ok()??;
        row.addresses.iter().find(|address| address.parse::<IpAddr>().is_ok()).cloned()
    }

    /// Requests one power cycle and does not wait for it: the controller turns the host off and on again and removes
    /// the annotation. An annotation that is there already belongs to another client and is left as it is (MET-13).
    pub async fn reboot(&self, name: &str, mode: Mode) -> Result<HostRequest, ActionError> {
        for _ in 0..TRIES {
            let host = self.ready(name, "rebooted").await?;
            if let Some(value) = host.asked.base.clone() {
                let present = Mode::of(&value);
                if present < mode {
                    return Err(ActionError::refused(format!(
                        "{}: a {present} reboot is already requested and is left as it is; for a hard one use \
                         `hosts hold --hard`, then `hosts release`",
                        host.full_name()
                    )));
                }
                return Ok(HostRequest { host, already: Some(value) });
            }
            match self.kube.request_reboot(&host, &self.value(mode)).await {
                Ok(host) => return Ok(HostRequest { host, already: None }),
                Err(e) => retry_on_conflict(&host, e)?,
            }
        }
        Err(keeps_changing(name))
    }

    /// Holds the host off under cketerm's key until it is released. A soft hold of cketerm becomes hard if `mode` is
    /// hard.
    pub async fn hold(&self, name: &str, key: &str, mode: Mode) -> Result<HostRequest, ActionError> {
        for _ in 0..TRIES {
            let host = self.ready(name, "held off").await?;
            let present = host.asked.keys.get(key).cloned();
            if let Some(value) = present.clone().filter(|value| Mode::of(value) >= mode) {
                return Ok(HostRequest { host, already: Some(value) });
            }
            match self.kube.hold_host(&host, key, &self.value(mode)).await {
                Ok(host) => return Ok(HostRequest { host, already: None }),
                Err(e) => retry_on_conflict(&host, e)?,
            }
        }
        Err(keeps_changing(name))
    }

    /// Removes cketerm's key and returns the updated host, which keys of other clients may still hold off. Works on
    /// every host.
    pub async fn release(&self, name: &str, key: &str) -> Result<HostRow, ActionError> {
        for _ in 0..TRIES {
            let host = self.find(name).await?;
            if !host.asked.keys.contains_key(key) {
                let others: Vec<&str> = host.asked.keys.keys().map(String::as_str).collect();
                let others = if others.is_empty() { String::new() } else { format!("; held by {}", others.join(", ")) };
                return Err(ActionError::refused(format!(
                    "{} is not held under the key {key}{others}",
                    host.full_name()
                )));
            }
            match self.kube.release_host(&host, key).await {
                Ok(host) => return Ok(host),
                Err(e) => retry_on_conflict(&host, e)?,
            }
        }
        Err(keeps_changing(name))
    }

    /// Waits until the host was seen off and on again after the request (MET-19). A removed annotation alone proves
    /// nothing.
    pub async fn wait_until_rebooted(&self, requested_host: &HostRow, seconds: u64) -> Result<(), ActionError> {
        let until = Instant::now() + Duration::from_secs(seconds);
        let (mut host, mut on, mut off) = (requested_host.clone(), false, false);
        loop {
            match host.powered_on {
                Some(true) if off => return Ok(()),
                Some(true) => on = true,
                Some(false) => off |= on,
                None => {}
            }
            if Instant::now() >= until {
                let what = if off { "went off and is not on again" } else { "was not seen off" };
                let name = requested_host.full_name();
                return Err(ActionError::failed(format!("{name} {what} after {seconds} s{}", state(&host))));
            }
            sleep(POLL).await;
            if let Ok(now) = self.find(&requested_host.full_name()).await {
                host = now;
            }
        }
    }

    /// Returns the host, or an error if a known condition keeps a request from being carried out (MET-17). `done`: the
    /// request for the message, such as `held off`.
    pub(super) async fn ready(&self, name: &str, done: &str) -> Result<HostRow, ActionError> {
        let host = self.find(name).await?;
        match host.hindrance() {
            None => Ok(host),
            Some(why) => Err(ActionError::refused(format!("{} cannot be {done}: {why}", host.full_name()))),
        }
    }

    /// Returns the annotation's value, which names the requester. Metal3's proposal: "whatever placed the annotation
    /// can have a way of tracing it back to its source".
    fn value(&self, mode: Mode) -> String {
        let by = format!("{}@{}", self.who.user, self.who.host);
        let since = self.clock.wall().round(jiff::Unit::Second).unwrap_or_default();
        let mut value = json!({"mode": mode, "by": by, "since": since});
        if let Some(why) = &self.why {
            value["why"] = json!(why);
        }
        value.to_string()
    }
}

/// Returns the host's error as a suffix for a message, or an empty text.
pub(super) fn state(host: &HostRow) -> String {
    match host.hindrance() {
        Some(why) => format!(": {why}"),
        None if host.error.is_empty() => String::new(),
        None => format!(": {}", host.error),
    }
}

pub(super) fn retry_on_conflict(host: &HostRow, e: WriteError) -> Result<(), ActionError> {
    match e {
        // Metal3's operator wrote the host in between, or the answer was lost: read the host again first.
        WriteError::Conflict | WriteError::NoAnswer(_) => Ok(()),
        e => Err(ActionError::failed(format!("{}: {e}", host.full_name()))),
    }
}

pub(super) fn keeps_changing(name: &str) -> ActionError {
    ActionError::failed(format!("{name} kept changing or did not answer; check `hosts list`, then try again"))
}

/// Returns the only host that has this address, or whose Node has it.
fn single_host(address: &Address, hosts: Vec<HostRow>, view: &KubeView) -> Result<HostRow, String> {
    let has = |addresses: &[Address]| addresses.iter().any(|a| a == address);
    let is_match =
        |host: &HostRow| has(&host.addresses) || view.node_of_host(host).is_some_and(|(n, _)| has(&n.addresses));
    let all = hosts.len();
    let mut found: Vec<HostRow> = hosts.into_iter().filter(is_match).collect();
    match (found.pop(), found.len()) {
        (Some(host), 0) => Ok(host),
        (Some(host), more) => Err(format!("{} and {more} more BareMetalHosts have {address}", host.full_name())),
        (None, _) => Err(format!("none of {all} BareMetalHosts has {address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::kube::NodeRow;
    use cketerm_model::names::NodeName;

    #[test]
    fn a_host_is_found_by_its_address_or_its_nodes_and_two_matches_are_an_error() {
        let host = |name: &str, address: &Address| HostRow {
            name: name.to_owned(),
            namespace: "m".to_owned(),
            addresses: if address.is_empty() { vec![] } else { vec![address.to_owned()] },
            ..HostRow::default()
        };
        let mut view = KubeView::default();
        view.put_node(NodeRow {
            name: NodeName::new("w1"),
            addresses: vec![Address::new("10.0.0.1"), Address::new("w1")],
            ..NodeRow::default()
        });
        let hosts = || vec![host("w1", &Address::new("")), host("w2", &Address::new("10.0.0.2"))];
        assert_eq!(single_host(&Address::new("10.0.0.1"), hosts(), &view).unwrap().name, "w1");
        assert_eq!(single_host(&Address::new("10.0.0.2"), hosts(), &view).unwrap().name, "w2");
        assert!(single_host(&Address::new("10.0.0.3"), hosts(), &view).unwrap_err().contains("none of 2"));
        let twice = vec![host("a", &Address::new("10.0.0.2")), host("b", &Address::new("10.0.0.2"))];
        assert!(single_host(&Address::new("10.0.0.2"), twice, &view).unwrap_err().contains("m/b and 1 more"));
    }
}
