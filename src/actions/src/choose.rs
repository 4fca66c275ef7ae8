//! Selection of nodes of the definition by name or by attributes in place of addresses.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cluster::{Cluster, MemberNames, Members, NamingError, Node},
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

    /// Parses words such as `rack=3`, `role=cs` or `LABEL=VALUE`, all of which must match. Returns `None` if a word is
    /// a name or an address.
    pub fn parse(words: &[String]) -> Option<Result<Self, ActionError>> {
        if words.is_empty() || !words.iter().all(|word| word.contains('=')) {
            return None;
        }
        let mut selection = Self::default();
        let mut labels = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some(("rack", rack)) => match rack.parse() {
                    Ok(rack) => selection.rack = Some(rack),
                    Err(_) => return Some(Err(ActionError::misused(format!("{word}: a rack is a number")))),
                },
                Some(("role", role)) => selection.role = Some(role.to_owned()),
                Some(_) | None => labels.push(word.as_str()),
            }
        }
        if !labels.is_empty() {
            match labels.join(",").parse() {
                Ok(selector) => selection.selector = Some(selector),
                Err(why) => return Some(Err(ActionError::misused(format!("{}: {why}", labels.join(" "))))),
            }
        }
        Some(Ok(selection))
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

    /// Returns the addresses of the members that these words name: by address, by the name of the Node, or by the first
    /// part of that name. All of them must name exactly one member.
    pub async fn resolve<S: AsRef<str>>(&self, words: &[S]) -> Result<Vec<Address>, ActionError> {
        let cluster = self.definition().await?;
        resolve(&cluster, &Members::of(&cluster), words)
    }

    /// Returns the address of the machine that a word names. An IP address need not belong to a member.
    pub async fn resolve_machine(&self, word: &str) -> Result<Address, ActionError> {
        if let Some(address) = ip_address(word) {
            return Ok(address);
        }
        let cluster = self.definition().await?;
        machine_address(&cluster, &Members::of(&cluster), word)
    }
}

/// Returns the address of the machine that a word names. An IP address need not belong to a member.
pub fn machine_address(cluster: &Cluster, members: &Members, word: &str) -> Result<Address, ActionError> {
    if let Some(address) = ip_address(word) {
        return Ok(address);
    }
    match MemberNames::of(cluster, members).resolve(word) {
        Ok(member) => Ok(member.address().clone()),
        Err(NamingError::Unknown { near, .. }) => {
            let near = near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
            Err(ActionError::misused(format!(
                "{word:?} is not an IP address, nor the name of a machine of the definition{near}; no entry was written"
            )))
        }
        Err(why @ NamingError::Ambiguous { .. }) => Err(ActionError::failed(format!("{why}; give the address"))),
    }
}

fn ip_address(word: &str) -> Option<Address> {
    word.parse::<std::net::IpAddr>().is_ok().then(|| Address::new(word))
}

/// Returns the addresses of the members that these words name, in the order of the words.
pub fn resolve<S: AsRef<str>>(cluster: &Cluster, members: &Members, words: &[S]) -> Result<Vec<Address>, ActionError> {
    let names = MemberNames::of(cluster, members);
    let (mut addresses, mut unknown, mut ambiguous) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for word in words {
        match names.resolve(word.as_ref()) {
            Ok(member) => addresses.push(member.address().clone()),
            Err(why @ NamingError::Unknown { .. }) => drop(unknown.insert(why.to_string())),
            Err(why @ NamingError::Ambiguous { .. }) => drop(ambiguous.insert(why.to_string())),
        }
    }
    if unknown.is_empty() && ambiguous.is_empty() {
        return Ok(addresses);
    }
    let mut text = Vec::new();
    if !unknown.is_empty() {
        let shown = unknown.iter().take(MAX_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = unknown.len().saturating_sub(MAX_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text.push(format!("not in the cluster definition: {shown}{more}"));
    }
    if !ambiguous.is_empty() {
        let shown = ambiguous.iter().take(MAX_SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
        text.push(format!("{shown}; give the address"));
    }
    Err(ActionError::failed(format!("{}; nothing was written; see `cketerm cluster get`", text.join("; "))))
}

/// Most names that a message lists.
const MAX_SHOWN: usize = 5;

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

    #[test]
    fn words_with_an_equals_sign_are_attributes_and_never_mixed_with_names() {
        let parse = |words: &[&str]| NodeSelection::parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        let both = parse(&["rack=1", "role=cs"]).unwrap().unwrap();
        assert_eq!(select(&BTreeMap::new(), &both).unwrap(), ["10.0.0.2"]);
        let label = parse(&["cke.cybozu.com/role=ss"]).unwrap().unwrap();
        assert_eq!(select(&BTreeMap::new(), &label).unwrap(), ["10.0.0.3"]);
        assert!(parse(&["rack=one"]).unwrap().unwrap_err().text.contains("a rack is a number"));
        for names in [&["w01"][..], &["rack=1", "w01"], &[]] {
            assert!(parse(names).is_none(), "{names:?}");
        }
    }

    #[test]
    fn a_machine_is_an_ip_address_or_the_name_of_a_member() {
        let mut cluster = cluster();
        cluster.nodes[0].hostname = NodeName::new("w01");
        let members = Members::of(&cluster);
        assert_eq!(machine_address(&cluster, &members, "w01").unwrap(), "10.0.0.1");
        assert_eq!(machine_address(&cluster, &members, "10.9.9.9").unwrap(), "10.9.9.9", "not a member");
        let why = machine_address(&cluster, &members, "w02").unwrap_err();
        assert!(why.text.contains("\"w02\" is not an IP address") && why.text.contains("did you mean w01?"), "{why}");
        assert_eq!(why.kind.status(), 2);
    }

    #[test]
    fn names_resolve_to_addresses_and_an_error_names_every_word_that_does_not() {
        let mut cluster = cluster();
        for (node, name) in cluster.nodes.iter_mut().zip(["w01", "w02.a", "w02.b"]) {
            node.hostname = NodeName::new(name);
        }
        let members = Members::of(&cluster);
        let of = |words: &[&str]| resolve(&cluster, &members, words);
        assert_eq!(of(&["w01", "10.0.0.2", "w01"]).unwrap(), ["10.0.0.1", "10.0.0.2", "10.0.0.1"]);
        let why = of(&["w01", "w9", "w02", "10.0.0.9"]).unwrap_err().text;
        for part in
            ["not in the cluster definition: ", "w9", "10.0.0.9", "w02 is the name of 2 machines: w02.a (10.0.0.2)"]
        {
            assert!(why.contains(part), "{part}: {why}");
        }
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
