//! The registry's rows and sums: made anew only when sabakan answered or a plan was made, so that a frame costs the
//! screen's size.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    engine::{
        registry::{Proposed, Registry},
        snapshot::Seen,
    },
    model::cluster::Node,
    sabakan::{
        Machine, State,
        change::{Kind, NodeChange},
    },
};

/// A machine's identity: its serial.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(pub String);

/// A row of the Diff: what happens to everybody first, then what weighs most.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// A field of the definition beside its nodes.
    Field(String),
    /// The same change of a field on many nodes.
    Fold(String),
    /// One node: its weight, its address.
    Node(Kind, String),
}

/// Sums over the registry.
#[derive(Clone, Debug, Default)]
pub struct RegistrySummary {
    of: Option<Arc<Registry>>,
    cluster: i64,
    /// Machines by serial.
    pub machines: BTreeMap<Serial, usize>,
    by_address: HashMap<String, usize>,
    choices: HashMap<String, usize>,
    changes: HashMap<String, usize>,
    /// What happens to many nodes alike.
    pub folds: Vec<(String, Vec<String>)>,
    /// The rows of the Diff, sorted.
    pub rows: Vec<Row>,
    /// Racks as counts by role and state, a line each.
    pub racks: Vec<String>,
}

impl RegistrySummary {
    /// Makes them anew where something has changed; says whether it has.
    pub fn refresh(&mut self, seen: &Seen) -> bool {
        let (registry, store) = (&seen.snapshot.registry, &seen.snapshot.store);
        let cluster = store.cluster.as_ref().map_or(0, |c| c.mod_revision);
        if self.cluster == cluster && self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, registry)) {
            return false;
        }
        *self = Self { of: Some(Arc::clone(registry)), cluster, ..Self::default() };
        let Some(list) = registry.members.good.as_ref().map(|g| &g.machines.list) else { return true };
        for (i, machine) in list.iter().enumerate() {
            self.machines.insert(Serial(machine.serial.clone()), i);
            self.by_address.insert(machine.address.clone(), i);
        }
        let members: HashMap<&str, &Node> =
            store.definition().into_iter().flat_map(|d| &d.cluster.nodes).map(|n| (n.address.as_str(), n)).collect();
        self.racks = racks(list, &members);
        if let Some(proposed) = proposed(seen) {
            self.choices = proposed.plan.nodes.iter().enumerate().map(|(i, c)| (c.address.clone(), i)).collect();
            self.changes = proposed.change.nodes.iter().enumerate().map(|(i, n)| (n.address.clone(), i)).collect();
            self.folds = proposed.change.folded();
            let nodes = proposed
                .change
                .nodes
                .iter()
                .filter(|n| n.kind != Kind::Changed || proposed.change.own(n, &self.folds).next().is_some());
            let mut rows: Vec<Row> = nodes.map(|n| Row::Node(n.kind, n.address.clone())).collect();
            rows.extend(proposed.change.fields.iter().map(|f| Row::Field(f.clone())));
            rows.extend(self.folds.iter().map(|(what, _)| Row::Fold(what.clone())));
            rows.sort();
            self.rows = rows;
        }
        true
    }

    /// A machine by its serial.
    pub fn machine<'a>(&self, seen: &'a Seen, serial: &Serial) -> Option<&'a Machine> {
        list(seen).get(*self.machines.get(serial)?)
    }

    /// A machine by its address.
    pub fn at<'a>(&self, seen: &'a Seen, address: &str) -> Option<&'a Machine> {
        list(seen).get(*self.by_address.get(address)?)
    }

    /// What the plan says of an address.
    pub fn choice<'a>(&self, seen: &'a Seen, address: &str) -> Option<&'a crate::sabakan::Choice> {
        proposed(seen)?.plan.nodes.get(*self.choices.get(address)?)
    }

    /// What changes at an address.
    pub fn change<'a>(&self, seen: &'a Seen, address: &str) -> Option<&'a NodeChange> {
        proposed(seen)?.change.nodes.get(*self.changes.get(address)?)
    }

    /// How many nodes a fold is about.
    pub fn folded(&self, what: &str) -> usize {
        self.folds.iter().find(|(w, _)| w == what).map_or(0, |(_, nodes)| nodes.len())
    }
}

fn list(seen: &Seen) -> &[Machine] {
    seen.snapshot.registry.members.good.as_ref().map_or(&[], |g| &g.machines.list)
}

/// The plan, where there is one.
pub fn proposed(seen: &Seen) -> Option<&Proposed> {
    seen.snapshot.registry.proposal.as_ref()?.outcome.as_ref().ok()
}

/// Where a machine stands in the definition.
pub fn place(seen: &Seen, address: &str) -> &'static str {
    let member = seen.snapshot.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
    match member {
        Some(node) if node.control_plane => "control plane",
        Some(_) => "worker",
        None => "-",
    }
}

/// Seconds that a machine is in its state by now.
pub fn in_state(seen: &Seen, machine: &Machine) -> f64 {
    let good = seen.snapshot.registry.members.good.as_ref();
    machine.duration + good.map_or(0.0, |g| (seen.now.boot.as_secs_f64() - g.at).max(0.0))
}

/// `rack 3   cs 10/12   ss 4/4   unhealthy 1`: of each role those in the definition and all, then who is not healthy.
fn racks(list: &[Machine], members: &HashMap<&str, &Node>) -> Vec<String> {
    #[derive(Default)]
    struct Rack<'a> {
        roles: BTreeMap<&'a str, (usize, usize, usize)>,
        states: BTreeMap<State, usize>,
    }
    let mut racks: BTreeMap<i64, Rack<'_>> = BTreeMap::new();
    for machine in list {
        let rack = racks.entry(machine.rack).or_default();
        let (used, planes, all) = rack.roles.entry(&machine.role).or_default();
        *all += 1;
        if let Some(node) = members.get(machine.address.as_str()) {
            *used += 1;
            *planes += usize::from(node.control_plane);
        }
        if !machine.healthy() {
            *rack.states.entry(machine.state).or_default() += 1;
        }
    }
    let line = |(number, rack): (&i64, &Rack<'_>)| {
        let roles = rack.roles.iter().map(|(role, (used, planes, all))| {
            let planes = if *planes > 0 { format!(" (cp {planes})") } else { String::new() };
            format!("{:<16}", format!("{role} {used}/{all}{planes}"))
        });
        let states = rack.states.iter().map(|(state, n)| format!("{state} {n}"));
        format!("rack {number:<4} {} {}", roles.collect::<String>(), states.collect::<Vec<_>>().join("  "))
            .trim_end()
            .to_owned()
    };
    racks.iter().map(line).collect()
}
