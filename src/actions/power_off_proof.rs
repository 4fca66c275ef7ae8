//! The BMC's own word for a host that is held off: the proof of off where nothing will be seen to change any more,
//! because others hold it too. Every BMC that is known for the host is asked, and all have to say off.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    ActionError, Bmcs, Hosts,
    bmcs::Registered,
    host::{POLL, state},
};
use crate::{
    kubernetes::{Kube, KubeError},
    model::{
        host::{By, HostRow, Seen, Stretch, Watching},
        kube::KubeView,
    },
    power::{Found, redfish::Power},
};

/// The least time for which a BMC has to say off: one that was told to turn the machine on does so within seconds, and a
/// Node whose machine is off is not Ready after 50.
const LEAST: Duration = Duration::from_mins(1);
/// The least time between two questions.
const ASK: Duration = Duration::from_secs(2);

/// What the BMCs say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// All of them: off.
    Off,
    /// One of them says something else: what.
    Other(String),
    /// One of them gives no answer, or none is known: why.
    None(String),
}

/// The BMCs of one host, and what they said since its key was there.
#[derive(Debug)]
pub struct PowerOffProof {
    found: Vec<Found>,
    /// Known ones that cannot be asked, and why: what the others say proves nothing then.
    mute: Vec<String>,
    /// Why there are none.
    missing: Vec<String>,
    /// The host's Node, where it is known.
    node: Option<String>,
    heard: Mutex<(Stretch, Option<Word>)>,
    began: Instant,
}

impl PowerOffProof {
    /// Those that the file names for one of the addresses, and the host's own; the registry's where there is neither.
    pub async fn of(host: &HostRow, view: &KubeView, kube: &Kube, bmcs: Option<&Bmcs>) -> Self {
        let (mut found, mut mute, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        let node = host.node_in(view).map(|(node, _)| node);
        if let Some(bmcs) = bmcs {
            let node = node.map(|node| node.addresses.as_slice()).unwrap_or_default();
            let addresses: BTreeSet<&String> = host.addresses.iter().chain(node).collect();
            match bmcs.book() {
                Ok(book) => {
                    for address in &addresses {
                        match bmcs.in_file(address, &book) {
                            Ok(named) => found.extend(named),
                            Err(e) => mute.push(e.text),
                        }
                    }
                    match bmcs.of_host(kube, host).await {
                        Ok(own) => found.push(own),
                        Err(e) if host.bmc_address.is_empty() => missing.push(e.text),
                        Err(e) => mute.push(e.text),
                    }
                    for address in &addresses {
                        if !found.is_empty() || !mute.is_empty() {
                            break;
                        }
                        match bmcs.in_registry(address, &book).await {
                            Ok(Registered::Found(bmc, _)) => found.push(*bmc),
                            Ok(Registered::Missing(why)) => missing.push(why),
                            Err(e) => missing.push(e.text),
                        }
                    }
                }
                Err(e) => mute.push(e.text),
            }
        }
        let node = node.map(|node| node.name.clone());
        Self { found, mute, missing, node, heard: Mutex::default(), began: Instant::now() }
    }

    /// Asks again and again until it is dropped.
    pub async fn listen(&self) {
        if self.found.is_empty() {
            std::future::pending::<()>().await;
        }
        let poll = self.found.iter().map(|found| found.patience.poll).max().unwrap_or_default().max(ASK);
        loop {
            let word = self.ask().await;
            if let Ok(mut heard) = self.heard.lock() {
                heard.0.hear(word == Word::Off, self.began.elapsed());
                heard.1 = Some(word);
            }
            sleep(poll).await;
        }
    }

    /// Whether what they said since the beginning proves that the machine is off and nothing is under way that turns it
    /// on.
    pub fn proves(&self) -> bool {
        self.heard.lock().is_ok_and(|heard| heard.0.proves(self.long()))
    }

    /// How long they have to say off.
    fn long(&self) -> Duration {
        self.found.iter().map(|found| found.patience.on).max().unwrap_or_default().max(LEAST)
    }

    /// Asks all of them once.
    pub async fn ask(&self) -> Word {
        for found in &self.found {
            let origin = found.bmc.origin();
            match found.bmc.system().await.map(|system| system.power) {
                Ok(Power::Off) => {}
                Ok(Power::Unknown) => return Word::None(format!("BMC {origin} does not say whether it is off")),
                Ok(power) => return Word::Other(format!("BMC {origin} says that it is {power}")),
                Err(e) => return Word::None(e.to_string()),
            }
        }
        if self.found.is_empty() || !self.mute.is_empty() {
            return Word::None(self.none());
        }
        Word::Off
    }

    fn none(&self) -> String {
        if !self.mute.is_empty() {
            return format!("a BMC cannot be asked: {}", self.mute.join("; "));
        }
        let why = if self.missing.is_empty() { String::new() } else { format!(" ({})", self.missing.join("; ")) };
        format!("no BMC is known to ask{why}")
    }

    /// What a person is told when there is no proof.
    pub fn told(&self) -> String {
        match self.heard.lock().ok().and_then(|heard| heard.1.clone()) {
            Some(Word::Off) => format!("its BMC says off, not yet for {} s", self.long().as_secs()),
            Some(Word::Other(what) | Word::None(what)) => what,
            None if self.found.is_empty() => self.none(),
            None => "its BMC has not answered yet".to_owned(),
        }
    }

    /// Closes the sessions.
    pub async fn close(&self) {
        for found in &self.found {
            found.bmc.close().await;
        }
    }
}

impl Hosts {
    /// Waits until the host is proven to be off after our key was on it, and looks once more: what whoever fences by it
    /// needs. `asked` is the host right after the write.
    pub async fn until_off(&self, asked: &HostRow, key: &str, seconds: u64) -> Result<By, ActionError> {
        let proof = self.proof(asked).await;
        let answer = async {
            let by = self.watch(asked, key, seconds, &proof).await?;
            self.last_look(asked, proof.node.as_deref(), key, by, &proof).await.map(|()| by)
        };
        let answer = answer.await;
        proof.close().await;
        answer
    }

    /// The BMCs of this host. Where Nodes may not be listed only the host's own addresses are looked for.
    pub(super) async fn proof(&self, host: &HostRow) -> PowerOffProof {
        let mut view = KubeView::default();
        let nodes = self.kube.nodes().await;
        let unread =
            nodes.as_ref().err().filter(|e| !matches!(e, KubeError::Forbidden { .. })).map(ToString::to_string);
        for node in nodes.unwrap_or_default() {
            view.put_node(node);
        }
        let mut proof = PowerOffProof::of(host, &view, &self.kube, self.bmcs.as_ref()).await;
        proof.mute.extend(unread.map(|why| format!("which Node it is cannot be seen: {why}")));
        proof
    }

    /// Watches the host, and listens to its BMC meanwhile.
    pub(super) async fn watch(
        &self,
        asked: &HostRow,
        key: &str,
        seconds: u64,
        proof: &PowerOffProof,
    ) -> Result<By, ActionError> {
        tokio::select! {
            biased;
            answer = self.watch_host(asked, key, seconds, proof) => answer,
            () = proof.listen() => Err(ActionError::failed("the BMC is not listened to any more")),
        }
    }

    async fn watch_host(
        &self,
        asked: &HostRow,
        key: &str,
        seconds: u64,
        proof: &PowerOffProof,
    ) -> Result<By, ActionError> {
        let until = Instant::now() + Duration::from_secs(seconds);
        let name = asked.full_name();
        let mut watching = Watching::default();
        let mut host = asked.clone();
        loop {
            match watching.look(&host, key, proof.proves()) {
                Seen::Off(by) => return Ok(by),
                Seen::KeyGone => return Err(gone(&name, key)),
                Seen::Waiting => {}
            }
            if Instant::now() >= until {
                return Err(ActionError::failed(format!(
                    "{name} is not known to be off after {seconds} s{}; {}",
                    state(&host),
                    proof.told()
                )));
            }
            sleep(POLL).await;
            // Silence is no sign.
            if let Ok(now) = self.find(&name).await {
                host = now;
            }
        }
    }

    /// Right before the effect that needs a machine that is off: its BMC, the Node, then the host, once more. A BMC that
    /// does not answer spoils only the proof that was its own; and where a BMC alone says off for a minute, a Node that is
    /// Ready says that it lies.
    pub(super) async fn last_look(
        &self,
        asked: &HostRow,
        node: Option<&str>,
        key: &str,
        by: By,
        proof: &PowerOffProof,
    ) -> Result<(), ActionError> {
        let name = asked.full_name();
        match proof.ask().await {
            Word::Off => {}
            Word::None(_) if by == By::Change => {}
            Word::Other(why) | Word::None(why) => return Err(ActionError::failed(format!("{name}: {why}"))),
        }
        if let (By::Bmc, Some(node)) = (by, node) {
            let node = self.kube.node(node).await.map_err(|e| ActionError::failed(e.to_string()))?;
            if node.is_some_and(|node| node.ready) {
                let why = format!("the BMC of {name} says off, and the Node is Ready: is it another machine's BMC?");
                return Err(ActionError::failed(why));
            }
        }
        let host = self.find(&name).await?;
        if host.uid != asked.uid || !host.asked.keys.contains_key(key) {
            return Err(gone(&name, key));
        }
        if host.powered_on != Some(false) {
            return Err(ActionError::failed(format!("{name} was off and is said to be on again")));
        }
        Ok(())
    }
}

fn gone(name: &str, key: &str) -> ActionError {
    ActionError::failed(format!("{name}: somebody took the key {key} off: the host may be on at any moment"))
}
