//! Counters of pods: one for each term that a class depends on, shared by equal terms.

use std::{collections::HashMap, rc::Rc};

use cketerm_model::{
    labels::Labels,
    placement::{PlacementPod, PlacementView, PodTerm, SpreadPolicy},
    selector::Selector,
};
use foldhash::fast::FixedState;

use super::{
    class::{Class, CounterId, SpreadRule},
    counter::{Counts, NodeId, Topology},
    nodes::Nodes,
};

/// Pods that a counter counts.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Counted<'a> {
    /// Pods that match all of these terms.
    Matching(Vec<&'a PodTerm>),
    /// Pods that have this anti-affinity term.
    Having(&'a PodTerm),
    /// Pods of a namespace that a spread constraint selects.
    Spread(&'a str, Selector),
}

/// Counter of pods by the domains of one label.
pub(super) struct Counter<'a> {
    counted: Counted<'a>,
    pub(super) topology: Rc<Topology>,
    /// Nodes whose pods count, and whose domains exist, for a spread constraint.
    eligible: Option<Rc<[bool]>>,
}

impl Counter<'_> {
    /// Returns the domain that a pod on this node raises.
    pub(super) fn domain(&self, node: NodeId, terminating: bool) -> Option<u32> {
        let eligible = match &self.eligible {
            Some(eligible) => !terminating && eligible.get(node) == Some(&true),
            None => true,
        };
        if eligible { self.topology.domains.get(node).copied().flatten() } else { None }
    }

    /// Returns counts without any pod.
    pub(super) fn empty(&self) -> Counts {
        let mut exists = vec![false; self.topology.count];
        for (node, eligible) in self.eligible.iter().flat_map(|eligible| eligible.iter().enumerate()) {
            if let Some(domain) = self.topology.domains[node].filter(|_| *eligible) {
                exists[domain as usize] = true;
            }
        }
        Counts::new(exists.into())
    }
}

/// All counters of a question.
pub(super) struct Counters<'a> {
    view: &'a PlacementView,
    pub(super) all: Vec<Counter<'a>>,
    shared: HashMap<(String, Counted<'a>), CounterId, FixedState>,
    by_namespace: HashMap<&'a str, Vec<CounterId>, FixedState>,
    in_any_namespace: Vec<CounterId>,
    /// Counter of each anti-affinity term that excludes a class.
    having: HashMap<&'a PodTerm, Option<CounterId>, FixedState>,
    matching: HashMap<(&'a str, &'a Labels), Rc<[CounterId]>, FixedState>,
}

impl<'a> Counters<'a> {
    pub(super) fn new(view: &'a PlacementView) -> Self {
        Self {
            view,
            all: Vec::new(),
            shared: HashMap::default(),
            by_namespace: HashMap::default(),
            in_any_namespace: Vec::new(),
            having: HashMap::default(),
            matching: HashMap::default(),
        }
    }

    fn term_matches(&self, term: &PodTerm, pod: &PlacementPod) -> bool {
        term.matches(&pod.namespace, self.view.namespaces.get(&pod.namespace), &pod.labels)
    }

    /// Adds the counters of the terms of a class itself.
    pub(super) fn add_terms(&mut self, nodes: &Nodes<'a>, class: &mut Class<'a>) {
        let pod = class.pod;
        let all_terms = || Counted::Matching(pod.spec.affinity.iter().collect());
        for term in &pod.spec.affinity {
            class.affinity.push(self.shared(nodes, &term.topology_key, all_terms()));
        }
        class.affine_to_itself = pod.spec.affinity.iter().all(|term| self.term_matches(term, pod));
        for term in &pod.spec.anti_affinity {
            class.excludes.push(self.shared(nodes, &term.topology_key, Counted::Matching(vec![term])));
        }
        self.add_spread(nodes, class);
    }

    fn add_spread(&mut self, nodes: &Nodes<'a>, class: &mut Class<'a>) {
        let pod = class.pod;
        let topologies: Vec<Rc<Topology>> =
            pod.spec.spread.iter().map(|constraint| nodes.topology(&constraint.topology_key)).collect();
        for (constraint, topology) in pod.spec.spread.iter().zip(&topologies) {
            let rules = &pod.spec.node_rules;
            let eligible = nodes.entries.iter().enumerate().map(|(id, entry)| {
                let by_rules = match constraint.node_affinity {
                    SpreadPolicy::Honor => rules.accept(&entry.node.name, &entry.node.labels),
                    SpreadPolicy::Ignore => true,
                };
                let by_taints = match constraint.node_taints {
                    SpreadPolicy::Honor => rules.untolerated(&entry.taints).is_none(),
                    SpreadPolicy::Ignore => true,
                };
                by_rules && by_taints && topologies.iter().all(|topology| topology.domains[id].is_some())
            });
            let selector = constraint.selector_for(&pod.labels);
            let counts_itself = selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels));
            let counter = Counter {
                eligible: Some(eligible.collect()),
                topology: Rc::clone(topology),
                counted: match selector {
                    Some(selector) => Counted::Spread(&pod.namespace, selector),
                    None => Counted::Matching(Vec::new()),
                },
            };
            let counter = self.push(counter);
            let (max_skew, min_domains) = (constraint.max_skew, constraint.min_domains);
            class.spread.push(SpreadRule { counter, max_skew, min_domains, counts_itself });
        }
    }

    /// Adds counters for the anti-affinity terms of a pod that exclude one of these classes.
    pub(super) fn add_excluding(&mut self, nodes: &Nodes<'a>, classes: &mut [Class<'a>], pod: &'a PlacementPod) {
        for term in &pod.spec.anti_affinity {
            if self.having.contains_key(term) {
                continue;
            }
            let excluded = classes.iter_mut().filter(|class| self.term_matches(term, class.pod));
            let mut excluded: Vec<&mut Class<'a>> = excluded.collect();
            let counter = if excluded.is_empty() {
                None
            } else {
                Some(self.shared(nodes, &term.topology_key, Counted::Having(term)))
            };
            for (class, counter) in excluded.iter_mut().zip(counter.into_iter().cycle()) {
                class.excluded_by.push(counter);
            }
            self.having.insert(term, counter);
        }
    }

    fn shared(&mut self, nodes: &Nodes<'a>, key: &str, counted: Counted<'a>) -> CounterId {
        let shared_by = (key.to_owned(), counted.clone());
        if let Some(known) = self.shared.get(&shared_by) {
            return *known;
        }
        let id = self.push(Counter { counted, topology: nodes.topology(key), eligible: None });
        self.shared.insert(shared_by, id);
        id
    }

    fn push(&mut self, counter: Counter<'a>) -> CounterId {
        let id = self.all.len();
        let namespaces: Option<Vec<&'a str>> = match &counter.counted {
            Counted::Matching(terms) => terms.first().map_or(Some(Vec::new()), |term| match term.namespace_selector {
                Some(_) => None,
                None => Some(term.namespaces.iter().map(String::as_str).collect()),
            }),
            Counted::Having(_) => Some(Vec::new()),
            Counted::Spread(namespace, _) => Some(vec![namespace]),
        };
        match namespaces {
            Some(namespaces) => {
                for namespace in namespaces {
                    self.by_namespace.entry(namespace).or_default().push(id);
                }
            }
            None => self.in_any_namespace.push(id),
        }
        self.all.push(counter);
        id
    }

    /// Returns the counters that a pod raises. Call it after all counters were added.
    pub(super) fn raised_by(&mut self, pod: &'a PlacementPod) -> Rc<[CounterId]> {
        let key = (pod.namespace.as_str(), &*pod.labels);
        let by_labels = if let Some(known) = self.matching.get(&key) {
            Rc::clone(known)
        } else {
            let found: Rc<[CounterId]> = self.matched_by_labels(pod).into();
            self.matching.insert(key, Rc::clone(&found));
            found
        };
        let having = pod.spec.anti_affinity.iter().filter_map(|term| self.having.get(term).copied().flatten());
        let mut having: Vec<CounterId> = having.collect();
        if having.is_empty() {
            return by_labels;
        }
        having.sort_unstable();
        having.dedup();
        by_labels.iter().copied().chain(having).collect()
    }

    fn matched_by_labels(&self, pod: &PlacementPod) -> Vec<CounterId> {
        let here = self.by_namespace.get(pod.namespace.as_str()).into_iter().flatten();
        let found = here.chain(&self.in_any_namespace).copied().filter(|id| match &self.all[*id].counted {
            Counted::Matching(terms) => terms.iter().all(|term| self.term_matches(term, pod)),
            Counted::Having(_) => false,
            Counted::Spread(_, selector) => selector.matches(&pod.labels),
        });
        let mut found: Vec<CounterId> = found.collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
