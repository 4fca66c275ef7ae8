//! Nodes whose labels, annotations or taints differ from the definition, kept from pass to pass, so that each pass costs
//! as much as has changed (SAB-75).

use std::sync::Arc;

use cketerm_model::{
    cluster::Node,
    kube::{KubeView, NodeRow},
    names::{Address, NodeName},
    stored::view::{Definition, StoreView},
};
use imbl::{OrdMap, OrdSet, ordmap::DiffItem};
use serde::{Deserialize, Serialize};

use super::{in_use, sync::description};

/// Names of Nodes that differ from the definition. A few more may be among them: those that share an address with a
/// member, but are not its Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Undescribed(pub OrdSet<NodeName>);

impl Undescribed {
    /// Compares all Nodes.
    pub fn of(store: &StoreView, kube: &KubeView) -> Self {
        let Some(definition) = store.definition().filter(|_| in_use(store)) else { return Self::default() };
        Self(kube.nodes.values().filter(|node| differs(definition, node)).map(|node| node.name.clone()).collect())
    }

    /// Reports whether no Node differs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the member whose Node this is: it has one of the Node's addresses, and its own Node, by name or else by
/// address, is this one. If there are several, the first one of the definition.
pub fn own_member<'a>(definition: &'a Definition, kube: &KubeView, node: &NodeRow) -> Option<&'a Node> {
    let cluster = &definition.cluster;
    let is_own = |address: &&Address| {
        let named = definition.members.by_address(cluster, address).and_then(|m| kube.by_name.get(m.node_name()));
        let own = named.map(|own| &own.name).or_else(|| kube.by_address.get(*address));
        own == Some(&node.name)
    };
    let positions = node.addresses.iter().filter(is_own).filter_map(|address| definition.members.index_of(address));
    positions.min().and_then(|i| cluster.nodes.get(i))
}

/// The last comparison.
#[derive(Clone, Debug, Default)]
pub struct DescriptionCache {
    /// The definition; none = the Nodes were not compared.
    definition: Option<Arc<Definition>>,
    nodes: OrdMap<NodeName, Arc<NodeRow>>,
    undescribed: Arc<Undescribed>,
}

impl DescriptionCache {
    /// Compares the Nodes that have changed, or all of them with a new definition.
    pub fn look(&mut self, store: &StoreView, kube: &KubeView) -> Arc<Undescribed> {
        let stored = store.cluster.as_ref().and_then(|stored| stored.value.as_ref().ok()).filter(|_| in_use(store));
        let is_same = match (&self.definition, stored) {
            (Some(known), Some(stored)) => Arc::ptr_eq(known, stored),
            (None, None) => return Arc::clone(&self.undescribed),
            (Some(_), None) | (None, Some(_)) => false,
        };
        match stored {
            Some(definition) if is_same => self.compare_changed(&Arc::clone(definition), kube),
            _ => self.undescribed = Arc::new(Undescribed::of(store, kube)),
        }
        self.definition = stored.cloned();
        self.nodes = if stored.is_some() { kube.nodes.clone() } else { OrdMap::default() };
        Arc::clone(&self.undescribed)
    }

    fn compare_changed(&mut self, definition: &Definition, kube: &KubeView) {
        if self.nodes.ptr_eq(&kube.nodes) {
            return;
        }
        for change in self.nodes.diff(&kube.nodes) {
            let (name, differs) = match change {
                DiffItem::Add(name, node) | DiffItem::Update { new: (name, node), .. } => {
                    (name, differs(definition, node))
                }
                DiffItem::Remove(name, _) => (name, false),
            };
            if self.undescribed.0.contains(name) != differs {
                let all = &mut Arc::make_mut(&mut self.undescribed).0;
                if differs {
                    all.insert(name.clone())
                } else {
                    all.remove(name)
                };
            }
        }
    }
}

/// Reports whether the Node differs from the member of one of its addresses.
fn differs(definition: &Definition, node: &NodeRow) -> bool {
    let members = node.addresses.iter().filter_map(|address| definition.members.index_of(address));
    members.filter_map(|i| definition.cluster.nodes.get(i)).any(|m| description(m, &node.described).is_some())
}

#[cfg(test)]
mod tests {
    use cketerm_model::{cluster::Cluster, entry::Stored, stored::view::Switch};

    use super::*;

    fn node(i: u8, role: &str) -> NodeRow {
        let mut row = NodeRow {
            name: NodeName::new(format!("w{i}")),
            addresses: vec![Address::new(format!("10.0.0.{i}"))],
            ..NodeRow::default()
        };
        row.described.labels = [("role".to_owned(), role.to_owned())].into_iter().collect();
        row
    }

    fn store(role: &str) -> StoreView {
        let member = |i: u8| Node {
            address: Address::new(format!("10.0.0.{i}")),
            labels: Some([("role".to_owned(), role.to_owned())].into()),
            ..Node::default()
        };
        let cluster = Cluster { nodes: (1..=3).map(member).collect(), ..Cluster::default() };
        let stored =
            |value: &str| Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value.to_owned())) };
        let definition = Arc::new(Definition::from(cluster));
        let cluster = Some(Stored { key: String::new(), mod_revision: 1, value: Ok(definition) });
        let mut store = StoreView { cluster, ..StoreView::default() };
        store.sabakan = Switch { raw: None, mod_revision: 0 };
        store.registry.template = Some(stored("template"));
        store
    }

    #[test]
    fn the_kept_comparison_is_always_that_of_all_nodes() {
        let mut cache = DescriptionCache::default();
        let mut kube = KubeView::default();
        let mut check = |store: &StoreView, kube: &KubeView, expected: &[&str]| {
            let kept = cache.look(store, kube);
            assert_eq!(*kept, Undescribed::of(store, kube));
            assert_eq!(kept.0.iter().map(NodeName::as_str).collect::<Vec<_>>(), expected);
        };
        let a = store("a");
        check(&a, &kube, &[]);
        (1..=4).for_each(|i| kube.put_node(node(i, if i == 1 { "a" } else { "b" })));
        check(&a, &kube, &["w2", "w3"]);
        check(&a, &kube, &["w2", "w3"]);
        kube.put_node(node(1, "c"));
        kube.put_node(node(2, "a"));
        check(&a, &kube, &["w1", "w3"]);
        kube.remove_node(&NodeName::new("w3".to_owned()));
        check(&a, &kube, &["w1"]);
        check(&store("c"), &kube, &["w2"]);
        let mut disabled = store("c");
        disabled.sabakan = Switch { raw: Some("true".to_owned()), mod_revision: 9 };
        check(&disabled, &kube, &[]);
        check(&disabled, &kube, &[]);
        kube.put_node(node(3, "a"));
        check(&store("a"), &kube, &["w1"]);
        // back to the definition from before the pause, after changes that nobody compared
        check(&a, &kube, &["w1"]);
        check(&disabled, &kube, &[]);
        kube.put_node(node(2, "b"));
        check(&a, &kube, &["w1", "w2"]);
        let mut elsewhere = node(2, "b");
        elsewhere.addresses = vec![Address::new("10.0.0.9".to_owned())];
        kube.put_node(elsewhere);
        check(&a, &kube, &["w1"]);
        let mut unreadable = store("a");
        unreadable.cluster = Some(Stored { key: String::new(), mod_revision: 2, value: Err("broken".to_owned()) });
        check(&unreadable, &kube, &[]);
    }

    #[test]
    fn a_node_is_described_as_the_first_member_whose_node_it_is() {
        let mut kube = KubeView::default();
        let mut both = node(1, "b");
        both.addresses = ["10.0.0.3", "10.0.0.2"].map(|a| Address::new(a.to_owned())).to_vec();
        kube.put_node(both.clone());
        let store = store("a");
        let definition = store.definition().unwrap();
        let own = |kube: &KubeView, row: &NodeRow| own_member(definition, kube, row).map(|m| m.address.to_string());
        assert_eq!(own(&kube, &both).as_deref(), Some("10.0.0.2"));
        let stranger = NodeRow { name: NodeName::new("stranger".to_owned()), ..both };
        assert_eq!(own(&kube, &stranger), None, "the members' Node is another one");
    }
}
