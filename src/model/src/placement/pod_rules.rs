//! Conditions of a pod on the pods beside it: affinity, anti-affinity, topology spread, host ports.

use std::fmt;

use crate::{
    labels::Labels,
    selector::{Operator, Requirement, Selector},
};

/// Term of a required pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodTerm {
    /// Label of nodes whose values are the domains.
    pub topology_key: String,
    /// Pods that it means; none without a selector.
    pub selector: Option<Selector>,
    /// Names of namespaces, with the pod's own namespace if the manifest names none.
    pub namespaces: Vec<String>,
    /// Further namespaces, by their labels. The empty selector means all namespaces.
    pub namespace_selector: Option<Selector>,
}

impl PodTerm {
    /// Reports whether it means a pod. `namespace_labels`: the labels of that pod's namespace, if they are known.
    pub fn matches(&self, namespace: &str, namespace_labels: Option<&Labels>, labels: &Labels) -> bool {
        let none = Labels::new();
        let in_selected = || {
            let selector = self.namespace_selector.as_ref();
            selector.is_some_and(|selector| selector.matches(namespace_labels.unwrap_or(&none)))
        };
        (self.namespaces.iter().any(|name| name == namespace) || in_selected())
            && self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// Treatment of a kind of node by a spread constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpreadPolicy {
    /// Nodes that the pod cannot use are no domains.
    Honor,
    /// Nodes that the pod cannot use are domains too.
    Ignore,
}

/// Topology spread constraint with `whenUnsatisfiable: DoNotSchedule`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    /// Label of nodes whose values are the domains.
    pub topology_key: String,
    /// Largest difference to the domain with the fewest pods.
    pub max_skew: u32,
    /// Number of domains below which the fewest count as none.
    pub min_domains: u32,
    /// Pods that count; none without a selector.
    pub selector: Option<Selector>,
    /// Treatment of nodes that selector or affinity exclude.
    pub node_affinity: SpreadPolicy,
    /// Treatment of nodes with taints that the pod does not tolerate.
    pub node_taints: SpreadPolicy,
    /// Labels whose values must equal the pod's own.
    pub match_label_keys: Vec<String>,
}

impl SpreadConstraint {
    /// Returns the selector with the pod's own values of `matchLabelKeys`.
    pub fn selector_for(&self, labels: &Labels) -> Option<Selector> {
        let mut selector = self.selector.clone()?;
        let own = self.match_label_keys.iter().filter_map(|key| {
            let values = Some(vec![labels.get(key)?.clone()]);
            Some(Requirement { key: key.clone(), operator: Operator::In, values })
        });
        let own: Vec<Requirement> = own.collect();
        if !own.is_empty() {
            selector.match_expressions.get_or_insert_default().extend(own);
        }
        Some(selector)
    }
}

/// Transport protocol of a host port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, the default.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Port of a node that a container takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Number of the port.
    pub port: u16,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// Address on which it listens; `None` means all.
    pub address: Option<Box<str>>,
}

impl HostPort {
    /// Reports whether both cannot be on one node.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let same_address = match (&self.address, &other.address) {
            (Some(one), Some(another)) => one == another,
            (None, _) | (_, None) => true,
        };
        (self.port, self.protocol) == (other.port, other.protocol) && same_address
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        };
        write!(f, "{}/{protocol}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn terms_mean_pods_by_labels_and_namespaces() {
        let term = |selector: Option<&str>, namespaces: &[&str], by_labels: Option<Selector>| PodTerm {
            topology_key: "zone".to_owned(),
            selector: selector.map(|s| if s.is_empty() { Selector::default() } else { s.parse().unwrap() }),
            namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
            namespace_selector: by_labels,
        };
        let (pod, of_namespace) = (labels(&[("app", "web")]), labels(&[("team", "a")]));
        for (term, expected) in [
            (term(Some("app=web"), &["shop"], None), true),
            (term(Some(""), &["shop"], None), true),
            (term(None, &["shop"], None), false),
            (term(Some("app=web"), &["other"], None), false),
            (term(Some("app=web"), &[], Some(Selector::default())), true),
            (term(Some("app=web"), &["other"], Some("team=a".parse().unwrap())), true),
            (term(Some("app=web"), &[], Some("team=b".parse().unwrap())), false),
            (term(Some("app=db"), &["shop"], None), false),
        ] {
            assert_eq!(term.matches("shop", Some(&of_namespace), &pod), expected, "{term:?}");
        }
    }

    #[test]
    fn match_label_keys_add_the_pods_own_values() {
        let constraint = |selector: Option<Selector>| SpreadConstraint {
            topology_key: "zone".to_owned(),
            max_skew: 1,
            min_domains: 1,
            selector,
            node_affinity: SpreadPolicy::Honor,
            node_taints: SpreadPolicy::Ignore,
            match_label_keys: vec!["hash".to_owned(), "absent".to_owned()],
        };
        let own = labels(&[("app", "web"), ("hash", "1")]);
        let selector = constraint(Some("app=web".parse().unwrap())).selector_for(&own).unwrap();
        assert!(selector.matches(&own));
        assert!(!selector.matches(&labels(&[("app", "web"), ("hash", "2")])));
        assert_eq!(constraint(None).selector_for(&own), None);
    }

    #[test]
    fn host_ports_conflict_on_the_same_address() {
        let port =
            |port, protocol, address: Option<&str>| HostPort { port, protocol, address: address.map(Into::into) };
        let base = port(80, Protocol::Tcp, Some("10.0.0.1"));
        for (other, expected) in [
            (port(80, Protocol::Tcp, None), true),
            (port(80, Protocol::Tcp, Some("10.0.0.1")), true),
            (port(80, Protocol::Tcp, Some("10.0.0.2")), false),
            (port(80, Protocol::Udp, None), false),
            (port(81, Protocol::Tcp, None), false),
        ] {
            assert_eq!((base.conflicts_with(&other), other.conflicts_with(&base)), (expected, expected), "{other}");
        }
    }
}
