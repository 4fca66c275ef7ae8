//! Proof by the BMC that a held host is off (MET-23, MET-24). It is needed if the host shows no further change of
//! power, because other clients hold it too. Every known BMC of the host is queried, and all have to report off.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use cketerm_clients::{
    kubernetes::{Kube, KubeError},
    power::{Evidence, Found},
};
use cketerm_model::{
    host::{HostRow, OffStreak, PowerObservation, PowerWatch, ProofSource},
    kube::KubeView,
    names::{Address, NodeName},
    power_state::PowerState,
};
use tokio::time::{Instant, sleep};

use super::{
    bmcs::{BmcLookup, Registered},
    error::ActionError,
    host::{Hosts, POLL, state},
};

/// Least time for which a BMC has to report off. A BMC that was asked to turn the machine on does so within seconds,
/// and the Node of a machine that is off is no longer Ready after 50 s.
const MIN_OFF_TIME: Duration = Duration::from_mins(1);
/// Least interval between two queries.
const MIN_QUERY_INTERVAL: Duration = Duration::from_secs(2);

/// Combined answer of the BMCs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerReport {
    /// All of them report off.
    Off,
    /// One of them reports another power state, which is named.
    Other(String),
    /// One of them gives no answer, or none is known; the reason.
    None(String),
}

/// BMCs of one host, and their answers since cketerm's key was set.
#[derive(Debug)]
pub struct PowerOffProof {
    found: Vec<Found>,
    /// Known BMCs that cannot be queried, and why. While there are any, the answers of the others prove nothing.
    unusable: Vec<String>,
    /// Reasons why no BMC was found.
    missing: Vec<String>,
    /// Name of the host's Node, if it is known.
    node: Option<NodeName>,
    reports: Mutex<(OffStreak, Option<PowerReport>)>,
    began: Instant,
}

impl PowerOffProof {
    /// Collects the BMCs that the file names for one of the addresses, and the host's own. If there is neither, it uses
    /// the registry's.
    pub async fn of(host: &HostRow, view: &KubeView, kube: &Kube, bmcs: Option<&BmcLookup>) -> Self {
        let (mut found, mut unusable, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        let node = view.node_of_host(host).map(|(node, _)| node);
        if let Some(bmcs) = bmcs {
            let node = node.map(|node| node.addresses.as_slice()).unwrap_or_default();
            let addresses: BTreeSet<&Address> = host.addresses.iter().chain(node).collect();
            match bmcs.inventory() {
                Ok(inventory) => {
                    for address in &addresses {
                        match bmcs.in_file(address, &inventory) {
                            Ok(Some(named)) => match evident(named) {
                                Ok(bmc) => found.push(bmc),
                                Err(why) => unusable.push(why),
                            },
                            Ok(None) => {}
                            Err(e) => unusable.push(e.text),
                        }
                    }
                    match bmcs.of_host(kube, host).await {
                        Ok(own) => found.push(own),
                        Err(e) if host.bmc_address.is_empty() => missing.push(e.text),
                        Err(e) => unusable.push(e.text),
                    }
                    for address in &addresses {
                        if !found.is_empty() || !unusable.is_empty() {
                            break;
                        }
                        match bmcs.in_registry(address, &inventory).await {
                            Ok(Registered::Found(bmc, _)) => found.push(*bmc),
                            Ok(Registered::Missing(why)) => missing.push(why),
                            Err(e) => missing.push(e.text),
                        }
                    }
                }
                Err(e) => unusable.push(e.text),
            }
        }
        let node = node.map(|node| node.name.clone());
        Self { found, unusable, missing, node, reports: Mutex::default(), began: Instant::now() }
    }

    /// Queries the BMCs again and again until the future is dropped.
    pub async fn poll_until_dropped(&self) {
        if self.found.is_empty() {
            std::future::pending::<()>().await;
        }
        let poll = self.found.iter().map(|found| found.timeouts.poll).max().unwrap_or_default().max(MIN_QUERY_INTERVAL);
        loop {
            let report = self.query().await;
            if let Ok(mut reports) = self.reports.lock() {
                reports.0.observe(report == PowerReport::Off, self.began.elapsed());
                reports.1 = Some(report);
            }
            sleep(poll).await;
        }
    }

    /// Reports whether the answers since the beginning prove that the machine is off and nothing is about to turn it
    /// on.
    pub fn proves(&self) -> bool {
        self.reports.lock().is_ok_and(|reports| reports.0.proves(self.required_off_time()))
    }

    /// Returns the time for which the BMCs have to report off.
    fn required_off_time(&self) -> Duration {
        self.found.iter().map(|found| found.timeouts.on).max().unwrap_or_default().max(MIN_OFF_TIME)
    }

    /// Queries all BMCs once.
    pub async fn query(&self) -> PowerReport {
        for found in &self.found {
            let target = found.driver.target();
            match found.driver.read().await.map(|machine| machine.power) {
                Ok(PowerState::Off) => {}
                Ok(PowerState::Unknown) => return PowerReport::None(format!("{target} reports no power state")),
                Ok(power) => return PowerReport::Other(format!("{target} reports {power}")),
                Err(e) => return PowerReport::None(e.to_string()),
            }
        }
        if self.found.is_empty() || !self.unusable.is_empty() {
            return PowerReport::None(self.no_bmc_reason());
        }
        PowerReport::Off
    }

    fn no_bmc_reason(&self) -> String {
        if !self.unusable.is_empty() {
            return format!("cannot query a BMC: {}", self.unusable.join("; "));
        }
        let why = if self.missing.is_empty() { String::new() } else { format!(" ({})", self.missing.join("; ")) };
        format!("no BMC is known{why}")
    }

    /// Returns the text for the operator if there is no proof.
    pub fn missing_proof_reason(&self) -> String {
        match self.reports.lock().ok().and_then(|reports| reports.1.clone()) {
            Some(PowerReport::Off) => {
                format!("its BMC has reported off for less than {} s", self.required_off_time().as_secs())
            }
            Some(PowerReport::Other(what) | PowerReport::None(what)) => what,
            None if self.found.is_empty() => self.no_bmc_reason(),
            None => "its BMC has not answered yet".to_owned(),
        }
    }

    /// Closes the sessions.
    pub async fn close(&self) {
        for found in &self.found {
            found.driver.close().await;
        }
    }
}

impl Hosts {
    /// Waits until the host is proven to be off while cketerm's key is on it, and then checks once more (MET-25), as
    /// fencing needs it. `requested_host` is the host right after the write.
    pub async fn wait_until_off(
        &self,
        requested_host: &HostRow,
        key: &str,
        seconds: u64,
    ) -> Result<ProofSource, ActionError> {
        let proof = self.proof(requested_host).await;
        let answer = async {
            let by = self.watch(requested_host, key, seconds, &proof).await?;
            self.final_check(requested_host, proof.node.as_ref(), key, by, &proof).await.map(|()| by)
        };
        let answer = answer.await;
        proof.close().await;
        answer
    }

    /// Returns the BMCs of this host. If listing Nodes is forbidden, only the host's own addresses are looked up.
    pub(super) async fn proof(&self, host: &HostRow) -> PowerOffProof {
        let mut view = KubeView::default();
        let nodes = self.kube.nodes().await;
        let unread =
            nodes.as_ref().err().filter(|e| !matches!(e, KubeError::Forbidden { .. })).map(ToString::to_string);
        for node in nodes.unwrap_or_default() {
            view.put_node(node);
        }
        let mut proof = PowerOffProof::of(host, &view, &self.kube, self.bmcs.as_ref()).await;
        proof.unusable.extend(unread.map(|why| format!("cannot determine the host's Node: {why}")));
        proof
    }

    /// Watches the host, and queries its BMC meanwhile.
    pub(super) async fn watch(
        &self,
        requested_host: &HostRow,
        key: &str,
        seconds: u64,
        proof: &PowerOffProof,
    ) -> Result<ProofSource, ActionError> {
        tokio::select! {
            biased;
            answer = self.watch_host(requested_host, key, seconds, proof) => answer,
            () = proof.poll_until_dropped() => Err(ActionError::failed("the BMC is no longer queried; try again")),
        }
    }

    async fn watch_host(
        &self,
        requested_host: &HostRow,
        key: &str,
        seconds: u64,
        proof: &PowerOffProof,
    ) -> Result<ProofSource, ActionError> {
        let until = Instant::now() + Duration::from_secs(seconds);
        let name = requested_host.full_name();
        let mut watching = PowerWatch::default();
        let mut host = requested_host.clone();
        loop {
            match watching.look(&host, key, proof.proves()) {
                PowerObservation::Off(by) => return Ok(by),
                PowerObservation::KeyGone => return Err(key_removed(&name, key)),
                PowerObservation::Waiting => {}
            }
            if Instant::now() >= until {
                return Err(ActionError::failed(format!(
                    "{name} is not proven off after {seconds} s{}; {}",
                    state(&host),
                    proof.missing_proof_reason()
                )));
            }
            sleep(POLL).await;
            // A failed read proves nothing.
            if let Ok(now) = self.find(&name).await {
                host = now;
            }
        }
    }

    /// Last check right before the effect that needs a machine that is off: its BMC, the Node, and then the host. A BMC
    /// that does not answer invalidates only a proof that came from the BMC. If the proof came from the BMC and the
    /// Node is Ready, the BMC's answer is wrong.
    pub(super) async fn final_check(
        &self,
        requested_host: &HostRow,
        node: Option<&NodeName>,
        key: &str,
        by: ProofSource,
        proof: &PowerOffProof,
    ) -> Result<(), ActionError> {
        let name = requested_host.full_name();
        match proof.query().await {
            PowerReport::Off => {}
            PowerReport::None(_) if by == ProofSource::Change => {}
            PowerReport::Other(why) | PowerReport::None(why) => {
                return Err(ActionError::failed(format!("{name}: {why}")));
            }
        }
        if let (ProofSource::Bmc, Some(node)) = (by, node) {
            let node = self.kube.node(node).await.map_err(|e| ActionError::failed(e.to_string()))?;
            if node.is_some_and(|node| node.ready) {
                let why = format!("the BMC of {name} reports off, but the Node is Ready; check that BMC's address");
                return Err(ActionError::failed(why));
            }
        }
        let host = self.find(&name).await?;
        if host.uid != requested_host.uid || !host.asked.keys.contains_key(key) {
            return Err(key_removed(&name, key));
        }
        if host.powered_on != Some(false) {
            return Err(ActionError::failed(format!("{name} was off and is reported on again; try again")));
        }
        Ok(())
    }
}

/// Returns the driver that the file names if it is a BMC's, or why it gives no proof.
fn evident(named: Found) -> Result<Found, String> {
    match named.driver.evidence() {
        Evidence::Bmc => Ok(named),
        Evidence::Reported => {
            Err(format!("{} is no BMC, and only BMCs prove that a machine is off", named.driver.target()))
        }
    }
}

fn key_removed(name: &str, key: &str) -> ActionError {
    ActionError::failed(format!("{name}: somebody removed the key {key}; the host may turn on at any moment"))
}

#[cfg(test)]
mod tests {
    use cketerm_clients::power::{BmcClients, BmcInventory};

    use super::*;

    /// A program or a status may say off while the machine is on. Fencing then must not begin.
    #[test]
    fn i44_only_bmcs_are_evidence_that_a_machine_is_off() {
        let text = "bmcs:\n  10.0.0.1: {url: 'https://10.1.0.1'}\n  \
                    10.0.0.2: {driver: command, settings: {on: [/on], off: [/off], state: [/state]}}\n  \
                    10.0.0.3: {driver: bare-metal-host, settings: {host: m/w3}}\n";
        let inventory = BmcInventory::parse(text).unwrap();
        let named =
            |address: &Address| inventory.find(address, BmcClients::network(None).connector()).unwrap().unwrap();
        assert!(evident(named(&Address::new("10.0.0.1"))).is_ok());
        let why = evident(named(&Address::new("10.0.0.2"))).unwrap_err();
        assert_eq!(why, "power command /state (10.0.0.2) is no BMC, and only BMCs prove that a machine is off");
        let why = evident(named(&Address::new("10.0.0.3"))).unwrap_err();
        assert_eq!(why, "BareMetalHost m/w3 is no BMC, and only BMCs prove that a machine is off");
    }
}
