//! Signals that a Node is a control plane: its label, the endpoints of the service `kubernetes`, and static Pods of an
//! API server or etcd.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CONTROL_PLANE_PODS, KubeView, NodeRow};

/// Labels of a control plane; the second is the old one.
const LABELS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Signals of each source. None: the source is not known, or the cluster has no such endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlaneSignals {
    /// A label of a control plane.
    pub label: bool,
    /// An address among the endpoints of the service `kubernetes`.
    pub endpoint: Option<bool>,
    /// A static Pod of an API server or etcd.
    pub static_pod: Option<bool>,
}

impl ControlPlaneSignals {
    /// Reports whether any source shows a control plane.
    pub fn any(self) -> bool {
        self.label || self.endpoint == Some(true) || self.static_pod == Some(true)
    }

    /// Reports whether every source is known and none shows a control plane.
    pub fn none(self) -> bool {
        !self.label && self.endpoint == Some(false) && self.static_pod == Some(false)
    }

    /// Reports whether the sources contradict each other: no label although another source shows a control plane, or a
    /// label although no other source does.
    pub fn disagree(self) -> bool {
        let others = self.endpoint == Some(true) || self.static_pod == Some(true);
        let neither = self.endpoint == Some(false) && self.static_pod == Some(false);
        (others && !self.label) || (neither && self.label)
    }
}

impl fmt::Display for ControlPlaneSignals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |seen: Option<bool>| match seen {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        let Self { label, endpoint, static_pod } = *self;
        write!(
            f,
            "label {}, endpoint of the service kubernetes {}, static Pod of an API server or etcd {}",
            word(Some(label)),
            word(endpoint),
            word(static_pod)
        )
    }
}

impl KubeView {
    fn is_read(&self, source: &str) -> bool {
        self.sources.get(source).is_some_and(|state| state.synced)
    }

    /// Reports whether every source of the signals was read, so that what they do not show is not there.
    pub fn control_plane_sources_read(&self) -> bool {
        self.synced() && self.is_read("endpoints") && self.is_read(CONTROL_PLANE_PODS)
    }

    /// Returns the signals of a Node.
    pub fn control_plane_signals(&self, node: &NodeRow) -> ControlPlaneSignals {
        let service = self.endpoints.iter().filter(|row| row.namespace == "default" && row.name == "kubernetes");
        let has_endpoint = || service.clone().flat_map(|row| &row.addresses).any(|a| node.addresses.contains(a));
        ControlPlaneSignals {
            label: LABELS.iter().any(|label| node.described.labels.get(label).is_some()),
            endpoint: (self.is_read("endpoints") && service.clone().next().is_some()).then(has_endpoint),
            static_pod: self
                .is_read(CONTROL_PLANE_PODS)
                .then(|| self.control_plane_pods.values().any(|name| *name == node.name)),
        }
    }
}
