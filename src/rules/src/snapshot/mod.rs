//! All inputs of a decision as one value that can be cloned, compared and serialized.

mod bmc_access;
mod effect;
mod engine;
mod observed;
mod probe;
mod work;

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    boot_time::BootTime,
    entry::EntryId,
    etcd::EtcdView,
    kube::{KubeView, NodeRow},
    names::{Address, NodeName},
    start_gates::StartGateView,
    stored::view::StoreView,
};
use serde::{Deserialize, Serialize};

pub use self::{
    bmc_access::{BmcAccess, BmcRefusal},
    effect::{EffectOutcome, InFlight, NodeUpkeep, StaleCause, UpkeepProgress},
    engine::{Engine, Leading},
    observed::Observed,
    probe::Probe,
    work::{DrainWork, FreshRead, KnownCause, Retries, UndecidedPreview, Work},
};
use super::{
    metal3::Metal3,
    reboot_needed::signals::ShownSignals,
    registry::{Registry, descriptions::Undescribed},
};

/// State known to the engine, or to an observing console, at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Live copy of etcd.
    pub store: Arc<StoreView>,
    /// Live copy of Kubernetes.
    pub kube: Arc<KubeView>,
    /// Identity of this engine and its leadership.
    pub engine: Engine,
    /// Results of the control planes' probes, by address.
    pub probes: BTreeMap<Address, Probe>,
    /// Members of the Kubernetes etcd.
    #[serde(default)]
    pub etcd: Arc<EtcdView>,
    /// Last answers of Prometheus about the site's gates for new reboots.
    #[serde(default)]
    pub start_gates: Arc<StartGateView>,
    /// Memory of entries in progress. It is a cache of observations: a new leader begins with none.
    pub work: BTreeMap<EntryId, Work>,
    /// Observations of CKE's work, while CKE leads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub observed: BTreeMap<EntryId, Observed>,
    /// Effects under way, at most one for each key: a machine (Node name, else address), or for example a health check.
    pub in_flight: BTreeMap<String, InFlight>,
    /// Owner records of other leases, by Node name: the lease, and the boot time at which this engine first saw it
    /// there.
    pub foreign: BTreeMap<NodeName, (i64, BootTime)>,
    /// Sabakan's answers and the plan made from them.
    pub registry: Arc<Registry>,
    /// Nodes that differ from the definition, while sabakan is in use.
    #[serde(default, skip_serializing_if = "Undescribed::is_empty")]
    pub undescribed: Arc<Undescribed>,
    /// Signals of Nodes that need a reboot.
    #[serde(default, skip_serializing_if = "ShownSignals::is_empty")]
    pub reboot_signals: Arc<ShownSignals>,
    /// State of this engine's Metal3 controller.
    pub metal3: Arc<Metal3>,
    /// Digest of a plan whose definition etcd refused for its size, and the message. The plan is not tried again.
    pub registry_refused: Option<(String, String)>,
}

impl Snapshot {
    /// Returns the Node of a machine: by the definition's name, else by address.
    pub fn node_of(&self, address: &Address) -> Option<&Arc<NodeRow>> {
        let by_name = self.store.definition().and_then(|d| {
            let member = d.members.by_address(&d.cluster, address)?;
            self.kube.by_name.get(member.node_name())
        });
        by_name.or_else(|| self.kube.by_address.get(address).and_then(|name| self.kube.by_name.get(name)))
    }

    /// Returns the name under which a machine's effects are kept apart: its Node's name, else the address.
    pub fn machine(&self, address: &Address) -> String {
        self.machine_ref(address).to_owned()
    }

    /// Returns the same name without a copy.
    pub(crate) fn machine_ref<'a>(&'a self, address: &'a Address) -> &'a str {
        let member = self.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
        let node = || self.kube.by_address.get(address).map(NodeName::as_str);
        member.map(|m| m.node_name().as_str()).or_else(node).unwrap_or_else(|| address.as_str())
    }
}
