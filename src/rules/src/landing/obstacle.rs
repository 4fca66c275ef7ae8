//! Reasons why a node does not take a pod.

use std::fmt;

use cketerm_model::{
    names::NodeName,
    placement::{Amount, HostPort, NodeTaint, ResourceName},
};

/// Reason why one node does not take one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The node's labels do not match the pod's node selector.
    Selector,
    /// The node does not match the pod's node affinity.
    NodeAffinity,
    /// A volume of the pod is not on the node.
    Volume {
        /// Name of the volume.
        volume: String,
        /// The only node that has it, if there is only one.
        only_on: Option<NodeName>,
    },
    /// The node is cordoned.
    Unschedulable,
    /// The node is not Ready.
    NotReady,
    /// The pod does not tolerate this taint.
    Taint(NodeTaint),
    /// The node has the largest number of pods that it allows.
    PodLimit,
    /// Too little of a resource is free.
    Resource {
        /// Name of the resource.
        resource: ResourceName,
        /// Amount that the pod requests.
        needed: Amount,
        /// Free amount of the node; of several nodes the largest.
        free: Amount,
    },
    /// Another pod of the node has this port.
    HostPort(HostPort),
    /// A pod in the same domain excludes it, or is excluded by it.
    AntiAffinity {
        /// Label of nodes whose values are the domains.
        topology_key: String,
    },
    /// The pods that it has to be beside are not in this domain.
    PodAffinity {
        /// Label of nodes whose values are the domains.
        topology_key: String,
    },
    /// The domain would get too many more pods than another one, or the node lacks the label.
    Spread {
        /// Label of nodes whose values are the domains.
        topology_key: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selector => f.write_str("node selector does not match"),
            Self::NodeAffinity => f.write_str("node affinity does not match"),
            Self::Volume { volume, only_on: Some(node) } => write!(f, "volume {volume} is only on {node}"),
            Self::Volume { volume, only_on: None } => write!(f, "volume {volume} is on other nodes"),
            Self::Unschedulable => f.write_str("node is cordoned"),
            Self::NotReady => f.write_str("node is not Ready"),
            Self::Taint(taint) => write!(f, "taint {taint}"),
            Self::PodLimit => f.write_str("node has its maximum number of pods"),
            Self::Resource { resource, needed, free } => {
                write!(f, "needs {}, at most {} free", resource.show(*needed), resource.show_number(*free))
            }
            Self::HostPort(port) => write!(f, "host port {port} is taken"),
            Self::AntiAffinity { topology_key } => write!(f, "pod anti-affinity by {topology_key}"),
            Self::PodAffinity { topology_key } => write!(f, "pod affinity by {topology_key}"),
            Self::Spread { topology_key } => write!(f, "topology spread by {topology_key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacles_name_their_object() {
        let resource = |name, needed, free| Obstacle::Resource {
            resource: ResourceName::new(name),
            needed: Amount(needed),
            free: Amount(free),
        };
        for (obstacle, expected) in [
            (resource("cpu", 8_000, 3_500), "needs 8 CPU, at most 3.5 free"),
            (resource("memory", 2 << 30, 1 << 20), "needs 2Gi memory, at most 1Mi free"),
            (
                Obstacle::Volume { volume: "pvc-1".to_owned(), only_on: Some(NodeName::new("node-3")) },
                "volume pvc-1 is only on node-3",
            ),
            (Obstacle::Taint(NodeTaint::no_schedule("dedicated")), "taint dedicated:NoSchedule"),
        ] {
            assert_eq!(obstacle.to_string(), expected);
        }
    }
}
