//! What an operator can do to BareMetalHosts as a client of Metal3's reboot interface: ask for a reboot, hold a host
//! off, release it (spec/metal3.md, Roles). Only ever our own keys are added and removed (I44).

use std::{net::IpAddr, time::Duration};

use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{ActionError, Bmcs, who};
use crate::{
    kubernetes::{Kube, WriteError},
    model::{
        cketerm_records::Who,
        host::{HostRow, Mode},
        kube::KubeView,
    },
};

/// Our key; `--as NAME` makes it `cketerm-NAME`.
const KEY: &str = "cketerm";
/// How often a write is decided anew: the operator writes hosts all the time.
pub(super) const TRIES: u32 = 8;
/// Between two looks.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// A person who asks for something of a host, with the rights of the kubeconfig.
#[derive(Debug)]
pub struct Hosts {
    pub(super) kube: Kube,
    pub(super) bmcs: Option<Bmcs>,
    who: Who,
    why: Option<String>,
}

/// What came of asking.
#[derive(Debug)]
pub struct Asking {
    /// The host right after our annotation was on it.
    pub host: HostRow,
    /// It was on it already, with this value.
    pub already: Option<String>,
}

/// Our key, with this name or without one.
pub fn own_key(name: Option<&str>) -> Result<String, ActionError> {
    let Some(name) = name else { return Ok(KEY.to_owned()) };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let whole = name.chars().all(plain) && name.ends_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= 40;
    if whole {
        return Ok(format!("{KEY}-{name}"));
    }
    Err(ActionError::misused(format!(
        "{name:?} is no key: up to 40 letters, digits, - _ ., the last a letter or digit"
    )))
}

impl Hosts {
    /// The person who runs this process.
    pub fn new(kube: Kube) -> Self {
        Self { kube, bmcs: None, who: who::here(), why: None }
    }

    /// Asks these BMCs where the proof of off is wanted and the host alone does not give it.
    #[must_use]
    pub fn with_bmcs(mut self, bmcs: Option<Bmcs>) -> Self {
        self.bmcs = bmcs;
        self
    }

    /// The reason that goes into the annotation's value.
    #[must_use]
    pub fn because(mut self, why: Option<&str>) -> Self {
        self.why = why.map(str::to_owned);
        self
    }

    /// All hosts.
    pub async fn list(&self) -> Result<Vec<HostRow>, ActionError> {
        self.kube.hosts().await.map_err(|e| ActionError::failed(e.to_string()))
    }

    /// The host whose address, or whose Node's, this is: what commands of a cluster definition are given.
    pub async fn at(&self, address: &str) -> Result<HostRow, ActionError> {
        let (hosts, nodes) = tokio::join!(self.list(), self.kube.nodes());
        let mut view = KubeView::default();
        for node in nodes.map_err(|e| ActionError::failed(e.to_string()))? {
            view.put_node(node);
        }
        only(address, hosts?, &view).map_err(ActionError::failed)
    }

    /// The host with this name or `namespace/name`, or the one at this address.
    pub async fn find(&self, name: &str) -> Result<HostRow, ActionError> {
        if name.parse::<IpAddr>().is_ok() {
            return self.at(name).await;
        }
        let missing = || ActionError::failed(format!("there is no BareMetalHost {name}; see `hosts list`"));
        if let Some((namespace, name)) = name.split_once('/') {
            let host = self.kube.host(namespace, name).await.map_err(|e| ActionError::failed(e.to_string()))?;
            return host.ok_or_else(missing);
        }
        let mut found: Vec<HostRow> = self.list().await?.into_iter().filter(|h| h.name == name).collect();
        match (found.pop(), found.len()) {
            (Some(host), 0) => Ok(host),
            (Some(host), more) => Err(ActionError::misused(format!(
                "{name} is in {} namespaces ({} among them); write NAMESPACE/{name}",
                more + 1,
                host.namespace
            ))),
            (None, _) => Err(missing()),
        }
    }

    /// Fire and forget: the host is turned off and on again, and the controller takes the annotation off. One that is
    /// there already is somebody's: it is left as it is.
    pub async fn reboot(&self, name: &str, mode: Mode) -> Result<Asking, ActionError> {
        for _ in 0..TRIES {
            let host = self.ready(name).await?;
            if let Some(value) = host.asked.base.clone() {
                let there = Mode::of(&value);
                if there < mode {
                    return Err(ActionError::refused(format!(
                        "{}: a {there} reboot is asked for already, and that request is not ours to change; \
                         `hosts hold --hard` and `hosts release` make it hard",
                        host.full_name()
                    )));
                }
                return Ok(Asking { host, already: Some(value) });
            }
            match self.kube.ask_reboot(&host, &self.value(mode)).await {
                Ok(host) => return Ok(Asking { host, already: None }),
                Err(e) => again(&host, e)?,
            }
        }
        Err(busy(name))
    }

    /// Holds the host off under our key until it is released. A hold of ours that is softer becomes hard.
    pub async fn hold(&self, name: &str, key: &str, mode: Mode) -> Result<Asking, ActionError> {
        for _ in 0..TRIES {
            let host = self.ready(name).await?;
            let there = host.asked.keys.get(key).cloned();
            if let Some(value) = there.clone().filter(|value| Mode::of(value) >= mode) {
                return Ok(Asking { host, already: Some(value) });
            }
            match self.kube.hold_host(&host, key, &self.value(mode)).await {
                Ok(host) => return Ok(Asking { host, already: None }),
                Err(e) => again(&host, e)?,
            }
        }
        Err(busy(name))
    }

    /// Takes our key off. The answer is the host afterwards: others' keys still hold it. Works on every host.
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
                Err(e) => again(&host, e)?,
            }
        }
        Err(busy(name))
    }

    /// Waits until the host was seen off and on again after the request. That the annotation goes proves nothing.
    pub async fn until_rebooted(&self, asked: &HostRow, seconds: u64) -> Result<(), ActionError> {
        let until = Instant::now() + Duration::from_secs(seconds);
        let (mut host, mut on, mut off) = (asked.clone(), false, false);
        loop {
            match host.powered_on {
                Some(true) if off => return Ok(()),
                Some(true) => on = true,
                Some(false) => off |= on,
                None => {}
            }
            if Instant::now() >= until {
                let what = if off { "was off and is not on again" } else { "was not seen off" };
                let name = asked.full_name();
                return Err(ActionError::failed(format!("{name} {what} after {seconds} s{}", state(&host))));
            }
            sleep(POLL).await;
            if let Ok(now) = self.find(&asked.full_name()).await {
                host = now;
            }
        }
    }

    /// The host, unless something is known that keeps a request from being carried out.
    pub(super) async fn ready(&self, name: &str) -> Result<HostRow, ActionError> {
        let host = self.find(name).await?;
        match host.hindrance() {
            None => Ok(host),
            Some(why) => Err(ActionError::refused(format!("{}: {why}", host.full_name()))),
        }
    }

    /// What the annotation holds: "whatever placed the annotation can have a way of tracing it back to its source".
    fn value(&self, mode: Mode) -> String {
        let by = format!("{}@{}", self.who.user, self.who.host);
        let since = Timestamp::now().round(jiff::Unit::Second).unwrap_or_default();
        let mut value = json!({"mode": mode, "by": by, "since": since});
        if let Some(why) = &self.why {
            value["why"] = json!(why);
        }
        value.to_string()
    }
}

/// The host's error, where it has one.
pub(super) fn state(host: &HostRow) -> String {
    match host.hindrance() {
        Some(why) => format!(": {why}"),
        None if host.error.is_empty() => String::new(),
        None => format!(": {}", host.error),
    }
}

pub(super) fn again(host: &HostRow, e: WriteError) -> Result<(), ActionError> {
    match e {
        // The operator wrote it in between, or the answer was lost: read again before anything else.
        WriteError::Conflict | WriteError::NoAnswer(_) => Ok(()),
        e => Err(ActionError::failed(format!("{}: {e}", host.full_name()))),
    }
}

pub(super) fn busy(name: &str) -> ActionError {
    ActionError::failed(format!("{name} changes all the time or does not answer: try again"))
}

/// The only host with this address, or whose Node has it.
fn only(address: &str, hosts: Vec<HostRow>, view: &KubeView) -> Result<HostRow, String> {
    let has = |addresses: &[String]| addresses.iter().any(|a| a == address);
    let is_it = |host: &HostRow| has(&host.addresses) || host.node_in(view).is_some_and(|(n, _)| has(&n.addresses));
    let all = hosts.len();
    let mut found: Vec<HostRow> = hosts.into_iter().filter(is_it).collect();
    match (found.pop(), found.len()) {
        (Some(host), 0) => Ok(host),
        (Some(host), more) => Err(format!("{} and {more} more BareMetalHosts are {address}", host.full_name())),
        (None, _) => Err(format!("none of {all} BareMetalHosts is {address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kube::NodeRow;

    #[test]
    fn a_host_is_known_by_its_own_address_or_its_nodes_and_two_are_none() {
        let host = |name: &str, address: &str| HostRow {
            name: name.to_owned(),
            namespace: "m".to_owned(),
            addresses: if address.is_empty() { vec![] } else { vec![address.to_owned()] },
            ..HostRow::default()
        };
        let mut view = KubeView::default();
        view.put_node(NodeRow {
            name: "w1".into(),
            addresses: vec!["10.0.0.1".into(), "w1".into()],
            ..NodeRow::default()
        });
        let hosts = || vec![host("w1", ""), host("w2", "10.0.0.2")];
        assert_eq!(only("10.0.0.1", hosts(), &view).unwrap().name, "w1");
        assert_eq!(only("10.0.0.2", hosts(), &view).unwrap().name, "w2");
        assert!(only("10.0.0.3", hosts(), &view).unwrap_err().contains("none of 2"));
        let twice = vec![host("a", "10.0.0.2"), host("b", "10.0.0.2")];
        assert!(only("10.0.0.2", twice, &view).unwrap_err().contains("m/b and 1 more"));
    }
}
