//! Everything that one question needs, indexed once: nodes, classes of pods, counters, and the pods that are bound.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use cketerm_model::{
    names::NodeName,
    placement::{Amount, HostPort, NodeRules, PlacementPod, PlacementView, Priority, ResourceName, Resources},
};
use foldhash::fast::FixedState;

use super::{
    answer::Doubt,
    class::{Blocked, Class, ClassKey, CounterId, VolumeRule, static_fit, volumes_and_doubt},
    counter::NodeId,
    counters::Counters,
    nodes::{Access, Nodes},
    obstacle::Obstacle,
};

/// Index of a class.
pub(super) type ClassId = usize;

/// Pod that is bound to a node.
pub(super) struct BoundPod<'a> {
    pub(super) pod: &'a PlacementPod,
    pub(super) node: NodeId,
    pub(super) requests: Rc<[i64]>,
    pub(super) raises: Rc<[CounterId]>,
}

/// Index of one question.
pub(super) struct Cluster<'a> {
    pub(super) nodes: Nodes<'a>,
    /// Resources that one of the classes requests, without the number of pods.
    pub(super) resources: Vec<&'a ResourceName>,
    pub(super) classes: Vec<Class<'a>>,
    pub(super) counters: Counters<'a>,
    pub(super) bound: Vec<BoundPod<'a>>,
    /// Host ports that one of the classes asks for.
    ports: BTreeSet<&'a HostPort>,
    /// Open nodes that take no pods because they, or a pod on them, cannot be understood.
    pub(super) unknown: BTreeMap<NodeId, Doubt>,
}

/// Pods that a question is about, with the class of each.
pub(super) struct Indexed<'a> {
    pub(super) cluster: Cluster<'a>,
    pub(super) class_of: Vec<ClassId>,
}

/// Indexes a view for a question about these pods.
pub(super) fn index<'a>(
    view: &'a PlacementView,
    actors: &[&'a PlacementPod],
    access: impl Fn(&NodeName) -> Access,
) -> Indexed<'a> {
    let nodes = Nodes::new(&view.nodes, access);
    let mut names: Vec<&ResourceName> = actors.iter().flat_map(|pod| requested(&pod.spec.requests)).collect();
    names.sort_unstable();
    names.dedup();
    let unknown = unknown_nodes(view, &nodes);
    let mut known: HashMap<ClassKey<'a>, ClassId, FixedState> = HashMap::default();
    let mut eligible = Eligibility { nodes: &nodes, unknown: &unknown, known: HashMap::default() };
    let (mut classes, mut class_of) = (Vec::new(), Vec::new());
    for pod in actors {
        let id = *known.entry(ClassKey::of(pod)).or_insert_with(|| {
            let (volumes, doubt) = volumes_and_doubt(view, pod);
            classes.push(Class {
                pod,
                requests: amounts(&names, &pod.spec.requests),
                eligible: eligible.of(pod, &volumes),
                volumes,
                doubt,
                affinity: Vec::new(),
                affine_to_itself: false,
                excludes: Vec::new(),
                excluded_by: Vec::new(),
                spread: Vec::new(),
                raises: Rc::new([]),
            });
            classes.len() - 1
        });
        class_of.push(id);
    }
    let mut counters = Counters::new(view);
    for class in &mut classes {
        counters.add_terms(&nodes, class);
    }
    let bound_pods = || view.pods.iter().filter(|pod| !pod.finished() && pod.node.is_some());
    for pod in bound_pods().chain(actors.iter().copied()) {
        counters.add_excluding(&nodes, &mut classes, pod);
    }
    for class in &mut classes {
        class.raises = counters.raised_by(class.pod);
    }
    let bound = bound_pods().filter_map(|pod| {
        let node = nodes.id(pod.node.as_ref()?)?;
        Some(BoundPod { pod, node, requests: amounts(&names, &pod.spec.requests), raises: counters.raised_by(pod) })
    });
    let bound = bound.collect();
    let ports = classes.iter().flat_map(|class| &class.pod.spec.host_ports).collect();
    Indexed { cluster: Cluster { nodes, resources: names, classes, counters, bound, ports, unknown }, class_of }
}

/// Returns the resources that are requested at all.
fn requested(requests: &Resources) -> impl Iterator<Item = &ResourceName> {
    requests.iter().filter(|(name, amount)| amount.0 > 0 && name.as_str() != ResourceName::PODS).map(|(name, _)| name)
}

/// Returns the amounts of these resources, in their order.
fn amounts(names: &[&ResourceName], resources: &Resources) -> Rc<[i64]> {
    names.iter().map(|name| resources.get(name).0).collect()
}

/// Finds the open nodes that are left out because they, or a pod on them, cannot be understood.
fn unknown_nodes(view: &PlacementView, nodes: &Nodes<'_>) -> BTreeMap<NodeId, Doubt> {
    let mut found: BTreeMap<NodeId, Doubt> = BTreeMap::new();
    for (id, entry) in nodes.entries.iter().enumerate() {
        if let Some(reason) = &entry.node.unreadable {
            let object = format!("Node {}", entry.node.name);
            found.insert(id, Doubt::Unreadable { object, reason: reason.clone() });
        }
    }
    for pod in view.pods.iter().filter(|pod| !pod.finished()) {
        if let (Some(reason), Some(id)) = (&pod.unreadable, pod.node.as_ref().and_then(|node| nodes.id(node))) {
            let object = format!("Pod {}", pod.full_name());
            found.entry(id).or_insert_with(|| Doubt::Unreadable { object, reason: reason.clone() });
        }
    }
    found.retain(|id, _| nodes.entries[*id].open());
    found
}

/// Static filters of all nodes, evaluated once for equal rules.
struct Eligibility<'n, 'a> {
    nodes: &'n Nodes<'a>,
    unknown: &'n BTreeMap<NodeId, Doubt>,
    known: HashMap<(&'a NodeRules, Vec<&'a str>), Rc<[NodeId]>, FixedState>,
}

impl<'a> Eligibility<'_, 'a> {
    fn of(&mut self, pod: &'a PlacementPod, volumes: &[VolumeRule<'a>]) -> Rc<[NodeId]> {
        let key = (&pod.spec.node_rules, volumes.iter().map(|volume| volume.name).collect::<Vec<_>>());
        if let Some(known) = self.known.get(&key) {
            return Rc::clone(known);
        }
        let entries = self.nodes.entries.iter().enumerate();
        let open = entries.filter(|(id, entry)| entry.open() && !self.unknown.contains_key(id));
        let fitting = open.filter(|(_, entry)| static_fit(pod, volumes, entry).is_ok()).map(|(id, _)| id);
        let eligible: Rc<[NodeId]> = fitting.collect();
        self.known.insert(key, Rc::clone(&eligible));
        eligible
    }
}

impl Cluster<'_> {
    /// Names an obstacle. `free`: the amount of the resource that is free on the node.
    pub(super) fn name(&self, class: ClassId, blocked: Blocked<'_>, free: i64) -> Obstacle {
        let key = |counter: CounterId| self.counters.all[counter].topology.key.clone();
        match blocked {
            Blocked::NotReady => Obstacle::NotReady,
            Blocked::Unschedulable => Obstacle::Unschedulable,
            Blocked::Taint(taint) => Obstacle::Taint(taint.clone()),
            Blocked::Selector => Obstacle::Selector,
            Blocked::NodeAffinity => Obstacle::NodeAffinity,
            Blocked::Volume { name, affinity } => {
                let mut having = self.nodes.entries.iter().map(|entry| entry.node);
                let mut having = having.by_ref().filter(|node| affinity.matches(&node.name, &node.labels));
                let only_on = having.next().filter(|_| having.next().is_none()).map(|node| node.name.clone());
                Obstacle::Volume { volume: name.to_owned(), only_on }
            }
            Blocked::PodLimit => Obstacle::PodLimit,
            Blocked::Resource(resource) => Obstacle::Resource {
                resource: self.resources[resource].clone(),
                needed: Amount(self.classes[class].requests[resource]),
                free: Amount(free),
            },
            Blocked::Port(port) => Obstacle::HostPort(port.clone()),
            Blocked::AntiAffinity(counter) => Obstacle::AntiAffinity { topology_key: key(counter) },
            Blocked::PodAffinity(counter) => Obstacle::PodAffinity { topology_key: key(counter) },
            Blocked::Spread(counter) => Obstacle::Spread { topology_key: key(counter) },
        }
    }

    /// Reports whether one of the classes asks for a port that this one takes.
    pub(super) fn port_matters(&self, port: &HostPort) -> bool {
        self.ports.iter().any(|asked| asked.conflicts_with(port))
    }

    /// Returns the lowest priority of a bound pod, or none without pods.
    pub(super) fn lowest_priority(&self) -> Option<Priority> {
        self.bound.iter().map(|bound| bound.pod.spec.priority).min()
    }
}
