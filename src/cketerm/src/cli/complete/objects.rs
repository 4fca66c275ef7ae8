//! Names of live objects for completions: entries, batches and nodes of etcd, hosts of Kubernetes. A completion must not
//! wait, and has no place for messages: a server that does not answer at once has no objects.

use std::{collections::BTreeSet, time::Duration};

use cketerm_actions::{CONSTRAINTS, DOCUMENTS};
use cketerm_clients::{kubernetes::Kube, store::Store};
use cketerm_model::{clock::Clock, entry::QueueKind, policy::Policy, stored::view::StoreView};
use tokio::time::timeout;

use crate::config::{Overrides, Settings};

/// Longest wait for the servers.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Kind of objects that an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Indexes of the entries of a queue.
    Entries(QueueKind),
    /// Batches with open entries.
    Batches,
    /// Members of the definition.
    Nodes,
    /// BareMetalHosts.
    Hosts,
    /// Settings of the policy.
    PolicyFields,
    /// Constraints.
    Constraints,
}

impl Kind {
    /// Returns the kind of an argument by the top-level subcommand and the name of its value in the help.
    pub(super) fn of(subcommand: &str, value: &str) -> Option<Self> {
        match (subcommand, value) {
            ("reboot-queue", "INDEX") => Some(Self::Entries(QueueKind::Reboot)),
            ("repair-queue", "INDEX") => Some(Self::Entries(QueueKind::Repair)),
            ("maintenance", "INDEX") => Some(Self::Entries(QueueKind::Maintenance)),
            ("reboot-queue" | "repair-queue", "BATCH") => Some(Self::Batches),
            ("reboot-queue" | "maintenance" | "history" | "hosts" | "power", "NODE")
            | ("power", "ADDRESS")
            | ("nodes", "NAME")
            | ("repair-queue", "MACHINE") => Some(Self::Nodes),
            ("hosts", "NAME") => Some(Self::Hosts),
            ("policy", "NAME") => Some(Self::PolicyFields),
            ("constraints", "NAME") => Some(Self::Constraints),
            _ => None,
        }
    }

    /// Returns the names of these objects with the servers of these settings.
    pub(super) async fn names(self, overrides: &Overrides) -> Vec<String> {
        match self {
            Self::PolicyFields => return policy_fields(),
            Self::Constraints => return CONSTRAINTS.map(str::to_owned).to_vec(),
            Self::Entries(_) | Self::Batches | Self::Nodes | Self::Hosts => {}
        }
        let Ok(settings) = Settings::load(overrides) else { return Vec::new() };
        timeout(TIMEOUT, Box::pin(self.read(&settings))).await.unwrap_or_default()
    }

    async fn read(self, settings: &Settings) -> Vec<String> {
        if self == Self::Hosts {
            let Ok(kube) = Kube::connect(&settings.kube, Clock::host()).await else { return Vec::new() };
            let hosts = kube.hosts_if_served().await.unwrap_or_default();
            return hosts.into_iter().map(|host| host.name).collect();
        }
        let Ok(store) = Store::connect(&settings.etcd, Clock::host()).await else { return Vec::new() };
        store.read_view().await.map(|view| self.of_view(&view)).unwrap_or_default()
    }

    /// Returns the names that a copy of etcd holds.
    fn of_view(self, view: &StoreView) -> Vec<String> {
        let indexes = |indexes: &mut dyn Iterator<Item = &u64>| indexes.map(u64::to_string).collect();
        match self {
            Self::Entries(QueueKind::Reboot) => indexes(&mut view.reboots.entries.keys()),
            Self::Entries(QueueKind::Repair) => indexes(&mut view.repairs.entries.keys()),
            Self::Entries(QueueKind::Maintenance) => indexes(&mut view.maintenance.entries.keys()),
            Self::Batches => view.batches.keys().map(ToString::to_string).collect(),
            Self::Nodes => {
                let nodes = view.definition().into_iter().flat_map(|definition| &definition.cluster.nodes);
                nodes.map(|node| node.node_name().to_string()).collect()
            }
            Self::Hosts | Self::PolicyFields | Self::Constraints => Vec::new(),
        }
    }
}

fn policy_fields() -> Vec<String> {
    let written = serde_json::to_value(Policy::default()).unwrap_or_default();
    let fields = written.as_object().into_iter().flat_map(|fields| fields.keys().cloned());
    let all: BTreeSet<String> = fields.chain(DOCUMENTS.map(str::to_owned)).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cketerm_model::entry::Stored;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_of_etcd_has_entries_and_nodes_also_unreadable_ones() {
        let mut view = StoreView::default();
        let broken = |key: &str| Stored { key: key.to_owned(), mod_revision: 1, value: Err("odd".to_owned()) };
        view.reboots.entries.insert(3, broken("a"));
        view.reboots.entries.insert(11, broken("b"));
        let definition = json!({"nodes": [{"address": "10.0.0.12"}, {"address": "10.0.0.13", "hostname": "worker13"}]});
        let value = Ok(Arc::new(serde_json::from_value(definition).unwrap()));
        view.cluster = Some(Stored { key: "c".to_owned(), mod_revision: 1, value });
        assert_eq!(Kind::Entries(QueueKind::Reboot).of_view(&view), ["3", "11"]);
        assert!(Kind::Entries(QueueKind::Repair).of_view(&view).is_empty());
        assert_eq!(Kind::Nodes.of_view(&view), ["10.0.0.12", "worker13"]);
    }

    #[tokio::test]
    async fn settings_of_the_policy_need_no_server_and_silent_servers_have_no_objects() {
        let overrides = Overrides { etcd_endpoints: Some("http://127.0.0.1:1".to_owned()), ..Overrides::default() };
        let fields = Kind::PolicyFields.names(&overrides).await;
        assert!(fields.iter().any(|name| name == "hooks") && fields.iter().any(|name| name == "settle_seconds"));
        assert!(Kind::Constraints.names(&overrides).await.iter().any(|name| name == "control-plane-count"));
        for kind in [Kind::Entries(QueueKind::Reboot), Kind::Batches, Kind::Nodes] {
            assert!(kind.names(&overrides).await.is_empty(), "{kind:?}");
        }
        let overrides = Overrides { config: Some("/no/such/file".into()), ..Overrides::default() };
        assert!(Kind::Nodes.names(&overrides).await.is_empty());
    }
}
