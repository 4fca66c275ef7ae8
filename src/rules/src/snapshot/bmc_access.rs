//! Access to BMCs that this host's file gives to the commands of the definition (SAF-38, SAF-39).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    cketerm_records::MissingSetting,
    kube::{HOSTS_SOURCE, KubeView, NodeRow},
    names::Address,
};
use serde::{Deserialize, Serialize};

use crate::agent::report_fault;

/// BMCs that the commands of the definition may log in to, by this host's file (SAF-38, SAF-39).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BmcAccess {
    /// The BMCs in the file's networks and all that the file names; or the commands log in to no BMC themselves.
    #[default]
    Open,
    /// By the address of the machine.
    ByMachine {
        /// Machines whose BMC the file names, if the file allows no network; none = the file allows networks.
        only: Option<BTreeSet<Address>>,
        /// Machines whose BMC the file names and refuses, with the reason.
        refused: BTreeMap<Address, String>,
        /// Whether the file must allow networks for some machine of the definition.
        lacking: bool,
        /// Machines of the definition whose entries are refused.
        #[serde(default)]
        lacking_entries: BTreeSet<Address>,
        /// BareMetalHosts through which machines are turned off and on, as namespace and name.
        #[serde(default)]
        hosts: BTreeMap<Address, (String, String)>,
        /// Machines that the agents of their nodes reboot.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        agents: BTreeSet<Address>,
    },
    /// The file cannot be read. Holds the reason.
    Unreadable(String),
}

impl BmcAccess {
    /// Reports whether a command logs in to BMCs itself: `cketerm power …` with the engine's own configuration.
    pub fn concerns(argv: &[String]) -> bool {
        let Some((program, words)) = argv.split_first() else { return false };
        let is_cketerm = program.rsplit('/').next() == Some("cketerm");
        let own_file = words.iter().any(|word| word == "--config" || word.starts_with("--config="));
        is_cketerm && !own_file && words.iter().any(|word| word == "power")
    }

    /// Access that the file gives to the machines of a definition.
    pub fn by_machine<'a>(
        machines: impl IntoIterator<Item = &'a Address>,
        only: Option<BTreeSet<Address>>,
        refused: BTreeMap<Address, String>,
        hosts: BTreeMap<Address, (String, String)>,
    ) -> Self {
        if only.is_none() && refused.is_empty() && hosts.is_empty() {
            return Self::Open;
        }
        let (mut lacking, mut lacking_entries) = (false, BTreeSet::new());
        for address in machines {
            if refused.contains_key(address) {
                lacking_entries.insert(address.clone());
            } else if only.as_ref().is_some_and(|only| !only.contains(address)) {
                lacking = true;
            }
        }
        Self::ByMachine { only, refused, lacking, lacking_entries, hosts, agents: BTreeSet::new() }
    }

    /// Adds the machines that the agents of their nodes reboot.
    #[must_use]
    pub fn with_agents(self, agents: BTreeSet<Address>) -> Self {
        match self {
            all if agents.is_empty() => all,
            Self::Open => Self::ByMachine {
                only: None,
                refused: BTreeMap::new(),
                lacking: false,
                lacking_entries: BTreeSet::new(),
                hosts: BTreeMap::new(),
                agents,
            },
            Self::ByMachine { only, refused, lacking, lacking_entries, hosts, .. } => {
                Self::ByMachine { only, refused, lacking, lacking_entries, hosts, agents }
            }
            Self::Unreadable(why) => Self::Unreadable(why),
        }
    }

    /// Returns the reason why the power command of the machine with this address would fail, by the file and this host.
    pub fn refusal(&self, address: &Address) -> Option<BmcRefusal<'_>> {
        match self {
            Self::Open => None,
            Self::ByMachine { only, refused, .. } => match refused.get(address) {
                Some(why) => Some(BmcRefusal::Fault(why)),
                None => only.as_ref().filter(|only| !only.contains(address)).map(|_| BmcRefusal::NotNamed),
            },
            Self::Unreadable(why) => Some(BmcRefusal::Fault(why)),
        }
    }

    /// Returns the reason why the BareMetalHost of the machine with this address cannot be turned off and on, if one
    /// controls it. A host that is not known yet counts as missing.
    pub fn host_fault(&self, address: &Address, kube: &KubeView) -> Option<String> {
        let Self::ByMachine { hosts, .. } = self else { return None };
        let place = hosts.get(address)?;
        if let Some(host) = kube.hosts.get(place) {
            return host.cycle_obstacle();
        }
        let source = kube.sources.get(HOSTS_SOURCE);
        if source.is_some_and(|source| source.synced) {
            return Some(format!("BareMetalHost {}/{} not found; see `cketerm hosts list`", place.0, place.1));
        }
        let why = source.and_then(|source| source.error.as_deref()).unwrap_or("they were not listed yet");
        Some(format!("BareMetalHosts cannot be read: {why}"))
    }

    /// Returns the reason why the agent of the machine with this address would not reboot it, if an agent has to.
    /// `node` looks for the Node; it is only called if there is an agent.
    pub fn agent_fault<'n>(
        &self,
        address: &Address,
        node: impl FnOnce() -> Option<&'n Arc<NodeRow>>,
    ) -> Option<String> {
        let Self::ByMachine { agents, .. } = self else { return None };
        report_fault(agents.contains(address).then(node)??)
    }

    /// Returns what the machines of the definition need and the file does not give.
    pub fn missing_settings(&self) -> Vec<MissingSetting> {
        match self {
            Self::Open => Vec::new(),
            Self::ByMachine { lacking, lacking_entries, .. } => {
                let networks = lacking.then_some(MissingSetting::BmcNetworks);
                networks.into_iter().chain(MissingSetting::bmc_entries(lacking_entries)).collect()
            }
            Self::Unreadable(_) => vec![MissingSetting::BmcFile],
        }
    }
}

/// Reason why a BMC gets no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcRefusal<'a> {
    /// The file allows no network and does not name the BMC.
    NotNamed,
    /// The file cannot be read, or its entry for the BMC cannot be used. Holds the reason.
    Fault(&'a str),
}
