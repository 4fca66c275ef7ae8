//! Free amounts and counted pods of all nodes at one moment of a trial, and the filters that depend on them.

use std::collections::BTreeMap;

use cketerm_model::placement::{HostPort, PlacementPod, ResourceName};

use super::{
    class::{Blocked, Class, CounterId},
    cluster::{BoundPod, ClassId, Cluster},
    counter::{Counts, NodeId},
    obstacle::Obstacle,
};

/// State of the cluster at one moment.
#[derive(Clone)]
pub(super) struct State<'a> {
    /// Free amounts, by node and resource.
    free: Vec<i64>,
    width: usize,
    free_pods: Vec<i64>,
    /// Taken ports that one of the classes asks for, too.
    ports: BTreeMap<NodeId, Vec<&'a HostPort>>,
    counts: Vec<Counts>,
}

impl<'a> State<'a> {
    /// Returns the state with these of the bound pods.
    pub(super) fn new(cluster: &Cluster<'a>, is_there: impl Fn(&PlacementPod) -> bool) -> Self {
        let width = cluster.resources.len();
        let nodes = &cluster.nodes.entries;
        let allocatable = |node: usize, name: &ResourceName| nodes[node].node.allocatable.get(name).0;
        let pods = ResourceName::new(ResourceName::PODS);
        let mut state = Self {
            free: (0..nodes.len())
                .flat_map(|node| cluster.resources.iter().map(move |name| allocatable(node, name)))
                .collect(),
            width,
            free_pods: (0..nodes.len()).map(|node| allocatable(node, &pods)).collect(),
            ports: BTreeMap::new(),
            counts: cluster.counters.all.iter().map(super::counters::Counter::empty).collect(),
        };
        for bound in cluster.bound.iter().filter(|bound| is_there(bound.pod)) {
            state.take(bound.node, &bound.requests);
            state.count(cluster, &bound.raises, bound.node, bound.pod.terminating, true);
            for port in bound.pod.spec.host_ports.iter().filter(|port| cluster.port_matters(port)) {
                state.ports.entry(bound.node).or_default().push(port);
            }
        }
        state
    }

    /// Returns the free amount of a resource.
    pub(super) fn free(&self, node: NodeId, resource: usize) -> i64 {
        self.free[node * self.width + resource]
    }

    fn take(&mut self, node: NodeId, requests: &[i64]) {
        for (resource, amount) in requests.iter().enumerate() {
            let free = &mut self.free[node * self.width + resource];
            *free = free.saturating_sub(*amount);
        }
        self.free_pods[node] -= 1;
    }

    fn count(&mut self, cluster: &Cluster<'_>, raised: &[CounterId], node: NodeId, terminating: bool, up: bool) {
        for id in raised {
            if let Some(domain) = cluster.counters.all[*id].domain(node, terminating) {
                if up { self.counts[*id].add(domain) } else { self.counts[*id].remove(domain) }
            }
        }
    }

    /// Places a pod of this class.
    pub(super) fn place(&mut self, cluster: &Cluster<'a>, class: ClassId, node: NodeId) {
        let class = &cluster.classes[class];
        self.take(node, &class.requests);
        self.count(cluster, &class.raises, node, false, true);
        self.ports.entry(node).or_default().extend(&class.pod.spec.host_ports);
    }

    /// Removes a bound pod from the counted ones. Its node takes no pods, so what it frees does not matter.
    pub(super) fn uncount(&mut self, cluster: &Cluster<'a>, bound: &BoundPod<'a>) {
        self.count(cluster, &bound.raises, bound.node, bound.pod.terminating, false);
    }

    /// Counts a bound pod again.
    pub(super) fn recount(&mut self, cluster: &Cluster<'a>, bound: &BoundPod<'a>) {
        self.count(cluster, &bound.raises, bound.node, bound.pod.terminating, true);
    }

    /// Applies all filters that depend on other pods.
    pub(super) fn fit(&self, cluster: &Cluster<'a>, class: &Class<'a>, node: NodeId) -> Result<(), Blocked<'a>> {
        self.room(class, node)?;
        self.exclusion(cluster, class, node)?;
        self.company(cluster, class, node)
    }

    /// Applies the filters of the free amounts, which other pods only shrink.
    pub(super) fn room(&self, class: &Class<'a>, node: NodeId) -> Result<(), Blocked<'a>> {
        if self.free_pods[node] < 1 {
            return Err(Blocked::PodLimit);
        }
        let free = &self.free[node * self.width..][..self.width];
        let lacking = class.requests.iter().zip(free).position(|(needed, free)| *needed > 0 && needed > free);
        if let Some(resource) = lacking {
            return Err(Blocked::Resource(resource));
        }
        if class.pod.spec.host_ports.is_empty() {
            return Ok(());
        }
        let taken = self.ports.get(&node).into_iter().flatten();
        let conflict = |port: &&&HostPort| class.pod.spec.host_ports.iter().any(|own| own.conflicts_with(port));
        match taken.clone().find(conflict) {
            Some(port) => Err(Blocked::Port(port)),
            None => Ok(()),
        }
    }

    /// Applies the anti-affinity of the class, and that of others against it.
    pub(super) fn exclusion(&self, cluster: &Cluster<'a>, class: &Class<'a>, node: NodeId) -> Result<(), Blocked<'a>> {
        for id in class.excludes.iter().chain(&class.excluded_by) {
            let domain = cluster.counters.all[*id].topology.domains[node];
            if domain.is_some_and(|domain| self.counts[*id].get(domain) > 0) {
                return Err(Blocked::AntiAffinity(*id));
            }
        }
        Ok(())
    }

    /// Applies affinity and spread, which other pods can make easier.
    fn company(&self, cluster: &Cluster<'a>, class: &Class<'a>, node: NodeId) -> Result<(), Blocked<'a>> {
        for rule in &class.spread {
            let counts = &self.counts[rule.counter];
            let Some(domain) = cluster.counters.all[rule.counter].topology.domains[node] else {
                return Err(Blocked::Spread(rule.counter));
            };
            let Some(least) = counts.least() else { continue };
            let least = if counts.domains() < rule.min_domains { 0 } else { least };
            let after = i64::from(counts.get(domain)) + i64::from(rule.counts_itself);
            if after - i64::from(least) > i64::from(rule.max_skew) {
                return Err(Blocked::Spread(rule.counter));
            }
        }
        let mut missing = None;
        for id in &class.affinity {
            let Some(domain) = cluster.counters.all[*id].topology.domains[node] else {
                return Err(Blocked::PodAffinity(*id));
            };
            if self.counts[*id].get(domain) == 0 {
                missing = missing.or(Some(*id));
            }
        }
        match missing {
            // the first pod of a group that has affinity to itself
            Some(_) if class.affine_to_itself && class.affinity.iter().all(|id| self.counts[*id].total() == 0) => {
                Ok(())
            }
            Some(id) => Err(Blocked::PodAffinity(id)),
            None => Ok(()),
        }
    }

    /// Names an obstacle of a node.
    pub(super) fn name(&self, cluster: &Cluster<'a>, class: ClassId, node: NodeId, blocked: Blocked<'_>) -> Obstacle {
        let free = match blocked {
            Blocked::Resource(resource) => self.free(node, resource),
            Blocked::NotReady
            | Blocked::Unschedulable
            | Blocked::Taint(_)
            | Blocked::Selector
            | Blocked::NodeAffinity
            | Blocked::Volume { .. }
            | Blocked::PodLimit
            | Blocked::Port(_)
            | Blocked::AntiAffinity(_)
            | Blocked::PodAffinity(_)
            | Blocked::Spread(_) => 0,
        };
        cluster.name(class, blocked, free)
    }
}
