//! Selection of nodes of the definition by attributes in place of addresses.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cluster::{Cluster, Node},
    labels::{Labels, attribute},
    names::{Address, NodeName},
    selector::Selector,
};

use super::{error::ActionError, operator::Operator};

/// Attributes, all of which must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSelection {
    /// Value of the label `…/role`. `api` and `control-plane` mean the API servers if no label has that value.
    pub role: Option<String>,
    /// Value of the label `…/rack`.
    pub rack: Option<u64>,
    /// Selector over any labels.
    pub selector: Option<Selector>,
}

impl NodeSelection {
    /// Returns true if no attribute is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reports whether the role means the API servers: it is `api` or `control-plane`, and no node has that value as
    /// its label. The console's ROLE column and `nodes list` use the same rule.
    fn means_api_servers(&self, all: &[(&Node, Labels)]) -> bool {
        let role = self.role.as_ref().filter(|role| matches!(role.as_str(), "api" | "control-plane"));
        role.is_some_and(|role| !all.iter().any(|(_, labels)| attribute(labels, "role") == Some(role)))
    }

    fn matches_node(&self, node: &Node, labels: &Labels, api: bool) -> bool {
        let rack = self.rack.map(|rack| rack.to_string());
        let role = |role: &String| if api { node.control_plane } else { attribute(labels, "role") == Some(role) };
        self.role.iter().all(role)
            && rack.iter().all(|rack| attribute(labels, "rack") == Some(rack))
            && self.selector.iter().all(|selector| selector.matches(labels))
    }
}

impl Operator {
    /// Returns the addresses of the members with these attributes, in the definition's order. It matches the
    /// definition's labels and, if Kubernetes is configured, those of the Nodes. It refuses if a configured Kubernetes
    /// does not answer, or if no node matches.
    pub async fn choose(&self, selection: &NodeSelection) -> Result<Vec<Address>, ActionError> {
        let cluster = self.definition().await?;
        let nodes = match &self.kube {
            None => BTreeMap::new(),
            Some(kube) => kube.node_labels().await.map_err(|e| {
                ActionError::failed(format!("no node was selected, their labels are unknown: {e}; give addresses"))
            })?,
        };
        matching_addresses(&cluster, &nodes, selection)
    }
}

/// Returns the addresses of the matching nodes. `nodes` are the labels of the Kubernetes Nodes by name; they override
/// the definition's labels.
fn matching_addresses(
    cluster: &Cluster,
    nodes: &BTreeMap<NodeName, Labels>,
    selection: &NodeSelection,
) -> Result<Vec<Address>, ActionError> {
    let labels = |node: &Node| -> Labels {
        let mut labels = node.labels.clone().unwrap_or_default();
        labels.extend(nodes.get(&node.node_name()).cloned().unwrap_or_default());
        labels
    };
    let all: Vec<(&Node, Labels)> = cluster.nodes.iter().map(|node| (node, labels(node))).collect();
    let api = selection.means_api_servers(&all);
    let selected = all
        .iter()
        .filter(|(node, labels)| selection.matches_node(node, labels, api))
        .map(|(node, _)| node.address.clone());
    let selected: Vec<Address> = selected.collect();
    if !selected.is_empty() {
        return Ok(selected);
    }
    let known = |name: &str| {
        let values: BTreeSet<&String> = all.iter().filter_map(|(_, labels)| attribute(labels, name)).collect();
        let values: Vec<&str> = values.into_iter().map(String::as_str).collect();
        if values.is_empty() { "none".to_owned() } else { values.join(", ") }
    };
    Err(ActionError::failed(format!(
        "none of the definition's {} nodes has these attributes (roles: {}; racks: {}); no entry was written",
        all.len(),
        known("role"),
        known("rack")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        let node = |n: u8, role: &str, rack: &str| {
            let labels = [("cke.cybozu.com/role", role), ("cke.cybozu.com/rack", rack)];
            let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
            Node { address: Address::new(format!("10.0.0.{n}")), labels: Some(labels), ..Node::default() }
        };
        let nodes = vec![node(1, "cs", "0"), node(2, "cs", "1"), node(3, "ss", "1")];
        Cluster { nodes, ..Cluster::default() }
    }

    fn select(nodes: &BTreeMap<NodeName, Labels>, selection: &NodeSelection) -> Result<Vec<Address>, ActionError> {
        matching_addresses(&cluster(), nodes, selection)
    }

    #[test]
    fn a_node_is_selected_only_if_all_attributes_match() {
        let none = BTreeMap::new();
        let role = NodeSelection { role: Some("cs".to_owned()), ..NodeSelection::default() };
        assert_eq!(select(&none, &role).unwrap(), ["10.0.0.1", "10.0.0.2"]);
        let both = NodeSelection { rack: Some(1), ..role.clone() };
        assert_eq!(select(&none, &both).unwrap(), ["10.0.0.2"]);
        let selector = Some("cke.cybozu.com/role notin (cs)".parse().unwrap());
        assert_eq!(select(&none, &NodeSelection { selector, ..NodeSelection::default() }).unwrap(), ["10.0.0.3"]);
        let nobody = NodeSelection { rack: Some(9), ..role };
        let why = select(&none, &nobody).unwrap_err().text;
        assert!(why.contains("3 nodes") && why.contains("roles: cs, ss; racks: 0, 1"), "{why}");
    }

    /// The console's ROLE column says `api`.
    #[test]
    fn role_names_of_api_servers_apply_unless_a_label_has_that_value() {
        let mut cluster = cluster();
        cluster.nodes[1].control_plane = true;
        let none = BTreeMap::new();
        let role = |role: &str| NodeSelection { role: Some(role.to_owned()), ..NodeSelection::default() };
        for name in ["api", "control-plane"] {
            assert_eq!(matching_addresses(&cluster, &none, &role(name)).unwrap(), ["10.0.0.2"], "{name}");
        }
        assert_eq!(matching_addresses(&cluster, &none, &role("ss")).unwrap(), ["10.0.0.3"]);
        // on a site with workers of this role, the label takes precedence over the API servers
        let label = ("cke.cybozu.com/role".to_owned(), "api".to_owned());
        cluster.nodes[2].labels = Some([label].into());
        assert_eq!(matching_addresses(&cluster, &none, &role("api")).unwrap(), ["10.0.0.3"]);
    }

    #[test]
    fn node_labels_override_labels_of_the_definition() {
        let moved = BTreeMap::from([("cke.cybozu.com/rack".to_owned(), "7".to_owned())]);
        let nodes = BTreeMap::from([(NodeName::new("10.0.0.2"), moved)]);
        let rack = |rack| NodeSelection { rack: Some(rack), ..NodeSelection::default() };
        assert_eq!(select(&nodes, &rack(7)).unwrap(), ["10.0.0.2"]);
        assert_eq!(select(&nodes, &rack(1)).unwrap(), ["10.0.0.3"]);
    }
}
