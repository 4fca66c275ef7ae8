//! Rows and sums of the machine registry. They are recomputed only when sabakan answered or a plan was made, so that a
//! frame costs only the screen's size.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cketerm_model::{boot_time::Seconds, cluster::Node, names::Address};
use cketerm_rules::{
    registry::{Proposed, Registry},
    seen::Seen,
};
use cketerm_sabakan::{
    Machine, State,
    change::{Kind, NodeChange},
};

/// Identity of a machine: its serial.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial(pub String);

/// A row of the Diff: first what affects all nodes, then the most important changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// A field of the definition outside its nodes.
    Field(String),
    /// The same change of one field on many nodes.
    Fold(String),
    /// One node: the kind of change, and its address.
    Node(Kind, Address),
}

/// Sums over the machine registry.
#[derive(Clone, Debug, Default)]
pub struct RegistrySummary {
    of: Option<Arc<Registry>>,
    cluster: i64,
    /// Index of each machine by serial.
    pub machines: BTreeMap<Serial, usize>,
    by_address: HashMap<Address, usize>,
    choices: HashMap<Address, usize>,
    changes: HashMap<Address, usize>,
    /// Changes that are the same on many nodes, with these nodes.
    pub folds: Vec<(String, Vec<Address>)>,
    /// Rows of the Diff, sorted.
    pub rows: Vec<Row>,
    /// Members of the definition that do not answer, or report a fault.
    pub unhealthy: Vec<Address>,
    /// A line for each rack: counts by role and state.
    pub racks: Vec<String>,
}

impl RegistrySummary {
    /// Recomputes the sums if something has changed. Returns false if nothing has.
    pub fn refresh(&mut self, seen: &Seen) -> bool {
        let (registry, store) = (&seen.snapshot.registry, &seen.snapshot.store);
        let cluster = store.cluster.as_ref().map_or(0, |c| c.mod_revision);
        if self.cluster == cluster && self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, registry)) {
            return false;
        }
        *self = Self { of: Some(Arc::clone(registry)), cluster, ..Self::default() };
        // a definition that follows the Nodes has a proposal without machines
        let list = registry.members.good.as_ref().map_or(&[][..], |good| &good.machines.list);
        for (i, machine) in list.iter().enumerate() {
            self.machines.insert(Serial(machine.serial.clone()), i);
            self.by_address.insert(machine.address.clone(), i);
        }
        let members: HashMap<&str, &Node> =
            store.definition().into_iter().flat_map(|d| &d.cluster.nodes).map(|n| (n.address.as_str(), n)).collect();
        let is_bad = |m: &&Machine| {
            matches!(m.state, State::Unhealthy | State::Unreachable) && members.contains_key(m.address.as_str())
        };
        self.unhealthy = list.iter().filter(is_bad).map(|m| m.address.clone()).collect();
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

    /// Returns a machine by its serial.
    pub fn machine<'a>(&self, seen: &'a Seen, serial: &Serial) -> Option<&'a Machine> {
        list(seen).get(*self.machines.get(serial)?)
    }

    /// Returns a machine by its address.
    pub fn at<'a>(&self, seen: &'a Seen, address: &Address) -> Option<&'a Machine> {
        list(seen).get(*self.by_address.get(address)?)
    }

    /// Returns the plan's choice for an address.
    pub fn choice<'a>(&self, seen: &'a Seen, address: &Address) -> Option<&'a cketerm_sabakan::Choice> {
        proposed(seen)?.plan.nodes.get(*self.choices.get(address)?)
    }

    /// Returns the planned change at an address.
    pub fn change<'a>(&self, seen: &'a Seen, address: &Address) -> Option<&'a NodeChange> {
        proposed(seen)?.change.nodes.get(*self.changes.get(address)?)
    }

    /// Returns the number of nodes of a fold.
    pub fn folded(&self, what: &str) -> usize {
        self.folds.iter().find(|(w, _)| w == what).map_or(0, |(_, nodes)| nodes.len())
    }
}

fn list(seen: &Seen) -> &[Machine] {
    seen.snapshot.registry.members.good.as_ref().map_or(&[], |g| &g.machines.list)
}

/// Returns the plan, if there is one.
pub fn proposed(seen: &Seen) -> Option<&Proposed> {
    seen.snapshot.registry.proposal.as_ref()?.outcome.as_ref().ok()
}

/// Returns the role of a machine in the definition.
pub fn place(seen: &Seen, address: &Address) -> &'static str {
    let member = seen.snapshot.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
    match member {
        Some(node) if node.control_plane => "control plane",
        Some(_) => "worker",
        None => "-",
    }
}

/// Returns the seconds that a machine has been in its state by now.
pub fn seconds_in_state(seen: &Seen, machine: &Machine) -> Seconds {
    let good = seen.snapshot.registry.members.good.as_ref();
    machine.duration + good.map_or(Seconds::ZERO, |g| (seen.now.boot - g.at).max(Seconds::ZERO))
}

/// Returns a line for each rack, such as `rack 3   cs 10/12   ss 4/4   unhealthy 1`: for each role the machines in the
/// definition and all machines, then the unhealthy ones.
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
