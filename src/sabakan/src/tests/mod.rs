//! A small data centre for the tests of this module. Quotations in its tests are from CKE's document of its sabakan
//! integration.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    boot_time::Seconds,
    cluster::{Cluster, Taint},
    constraints::Constraints,
    names::{Address, NodeName},
    policy::Strategy,
};
use jiff::Timestamp;

use super::{
    Choice, Plan, PlanError, Template,
    machine::{Date, Machine, State},
    plan::{Action, Input},
    planner::plan,
};

mod all_healthy;
mod examples;
mod must;
mod properties;
mod weighted;

/// A healthy machine `SNnn` at 10.0.0.n in rack 0 with role cs, without a retire date.
pub(crate) fn machine(n: u8) -> Machine {
    Machine {
        serial: format!("SN{n:02}"),
        labels: Vec::new(),
        rack: 0,
        index_in_rack: i64::from(n),
        role: "cs".to_owned(),
        address: Address::new(format!("10.0.0.{n}")),
        ipv4: vec![format!("10.0.0.{n}")],
        register_date: Date::parse("2026-01-01T00:00:00Z").unwrap(),
        retire_date: Date::parse("2026-06-01T00:00:00Z").unwrap(),
        bmc_type: "iDRAC-9".to_owned(),
        bmc_ipv4: String::new(),
        state: State::Healthy,
        since: None,
        duration: Seconds::new(1000.0),
    }
}

pub(crate) fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

impl Machine {
    fn rack(mut self, rack: i64) -> Self {
        self.rack = rack;
        self
    }

    fn role(mut self, role: &str) -> Self {
        role.clone_into(&mut self.role);
        self
    }

    fn is(mut self, state: State) -> Self {
        self.state = state;
        self
    }

    fn since(mut self, seconds: f64) -> Self {
        self.duration = Seconds::new(seconds);
        self
    }

    /// Sets the days until it retires.
    fn days(mut self, days: i64) -> Self {
        self.retire_date = Date::utc(now().checked_add(jiff::SignedDuration::from_hours(24 * days)).unwrap());
        self
    }
}

/// Node templates as `role:weight`. The first is for control planes. An empty role means none.
#[allow(clippy::format_push_string)] // short texts of tests
fn template(kinds: &[&str]) -> Template {
    let mut text = "name: x\nnodes:\n".to_owned();
    for (i, kind) in kinds.iter().enumerate() {
        let (role, weight) = kind.split_once(':').unwrap_or((kind, ""));
        let mut labels = Vec::new();
        for (key, value) in [("role", role), ("weight", weight)] {
            if !value.is_empty() {
                labels.push(format!("cke.cybozu.com/{key}: \"{value}\""));
            }
        }
        text += &format!("- {{user: u, control_plane: {}, labels: {{{}}}}}\n", i == 0, labels.join(", "));
    }
    Template::read(&text).unwrap()
}

/// The input of a plan.
#[derive(Clone, Debug)]
struct Scene {
    machines: Vec<Machine>,
    template: Template,
    constraints: Constraints,
    current: Option<Cluster>,
    nodes: Option<BTreeMap<NodeName, Vec<Taint>>>,
    rebooting: BTreeSet<Address>,
    template_changed: bool,
    strategy: Strategy,
}

impl Scene {
    /// Without a definition.
    fn new(kinds: &[&str], planes: i64, workers: (i64, i64), machines: Vec<Machine>) -> Self {
        let constraints = Constraints {
            control_plane_count: planes,
            minimum_workers: Some(workers.0),
            maximum_workers: Some(workers.1),
            ..Constraints::default()
        };
        Self {
            machines,
            template: template(kinds),
            constraints,
            current: None,
            nodes: None,
            rebooting: BTreeSet::new(),
            template_changed: false,
            strategy: Strategy::Weighted,
        }
    }

    /// Adds a current definition with these control planes and workers, by the last number of the address, as cketerm
    /// would write it.
    fn with(mut self, planes: &[u8], workers: &[u8]) -> Self {
        let mut nodes = Vec::new();
        for (list, plane) in [(planes, true), (workers, false)] {
            for n in list {
                let address = Address::new(format!("10.0.0.{n}"));
                let machine = self.machines.iter().find(|m| m.address == address);
                let mut gone = machine_gone(*n, plane);
                if let Some(m) = machine {
                    let kind = if plane {
                        &self.template.control_plane
                    } else {
                        &self.template.workers[self.template.worker_kind(&m.role).unwrap_or(0)]
                    };
                    let taint = super::state_taint::state_taint(m.state, self.strategy);
                    gone = super::node::node(m, kind, taint, self.strategy, &mut Vec::new()).unwrap();
                }
                nodes.push(gone);
            }
        }
        self.current = Some(Cluster { nodes, ..self.template.cluster.clone() });
        self
    }

    fn rebooting(mut self, list: &[u8]) -> Self {
        self.rebooting = list.iter().map(|n| Address::new(format!("10.0.0.{n}"))).collect();
        self
    }

    fn all_healthy(mut self) -> Self {
        self.strategy = Strategy::AllHealthy;
        self
    }

    fn plan(&self) -> Result<Plan, PlanError> {
        plan(&Input {
            machines: &self.machines,
            template: &self.template,
            constraints: &self.constraints,
            current: self.current.as_ref(),
            kubernetes_nodes: self.nodes.as_ref(),
            rebooting: &self.rebooting,
            template_changed: self.template_changed,
            wait_seconds: 300,
            strategy: self.strategy,
            now: now(),
        })
    }

    /// Asserts the plan's action, and the last numbers of control planes and workers after it.
    #[track_caller]
    fn gives(&self, action: Action, planes: &[u8], workers: &[u8]) -> Plan {
        let plan = self.plan().unwrap();
        let found = |wanted: bool| -> Vec<u8> {
            plan.nodes.iter().filter(|c| c.control_plane == Some(wanted)).map(|c| last(&c.address)).collect()
        };
        assert_eq!(
            (plan.action, found(true), found(false)),
            (action, planes.to_vec(), workers.to_vec()),
            "{}",
            plan.reason
        );
        assert_eq!(plan.changed, action != Action::None);
        plan
    }

    #[track_caller]
    fn fails(&self, words: &[&str]) {
        let text = self.plan().unwrap_err().to_string();
        assert!(words.iter().all(|w| text.contains(w)), "{words:?}: {text}");
    }
}

fn machine_gone(n: u8, plane: bool) -> cketerm_model::cluster::Node {
    cketerm_model::cluster::Node {
        address: Address::new(format!("10.0.0.{n}")),
        user: "u".to_owned(),
        control_plane: plane,
        ..Default::default()
    }
}

fn last(address: &str) -> u8 {
    address.rsplit('.').next().unwrap().parse().unwrap()
}

fn of(plan: &Plan, n: u8) -> &Choice {
    plan.nodes.iter().find(|c| last(&c.address) == n).unwrap()
}

/// Returns `value:effect` of the state taint of a node in the new definition.
fn taint(plan: &Plan, n: u8) -> String {
    let node = plan.cluster.as_ref().unwrap().nodes.iter().find(|x| last(&x.address) == n).unwrap();
    super::state_taint::state_taints(node).map(|t| [&*t.value, ":", &*t.effect].concat()).collect()
}
