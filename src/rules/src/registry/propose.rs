//! Proposals from stored settings and sabakan's answer: the plan, its changes, and its inputs. Pure; the engine, the
//! console and the commands use the same functions.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    cluster::{Taint, written},
    entry::Stored,
    names::{Address, NodeName},
    policy::Strategy,
    reboot::RebootStatus,
    stored::{keys::Keys, view::StoreView},
};
use cketerm_sabakan as sabakan;
use cketerm_sabakan::{
    Input, Machines, Plan, Template,
    change::{self, Change, Gate, Missing},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::GoodAnswer;

/// Inputs of a proposal: revisions (0 = no such key) and machines in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// `sabakan/url`, `sabakan/query-variables`.
    pub question: (i64, i64),
    /// `sabakan/template`.
    pub template: i64,
    /// `cluster-revision`.
    pub cluster_revision: i64,
    /// `cluster`.
    pub cluster: i64,
    /// `constraints`.
    pub constraints: i64,
    /// `cketerm/constraints`.
    pub our_constraints: i64,
    /// `cketerm/policy`.
    pub policy: i64,
    /// Addresses of machines that an entry works on.
    pub busy: BTreeSet<Address>,
}

fn revision<T>(stored: Option<&Stored<T>>) -> i64 {
    stored.map_or(0, |s| s.mod_revision)
}

impl Basis {
    /// Returns the inputs in the live copy.
    pub fn of(store: &StoreView) -> Self {
        let settings = &store.registry;
        Self {
            question: (revision(settings.url.as_ref()), revision(settings.variables.as_ref())),
            template: revision(settings.template.as_ref()),
            cluster_revision: revision(settings.cluster_revision.as_ref()),
            cluster: revision(store.cluster.as_ref()),
            constraints: revision(store.constraints.as_ref()),
            our_constraints: revision(store.our_constraints.as_ref()),
            policy: revision(store.policy.as_ref()),
            busy: busy(store),
        }
    }

    /// Reports whether the two differ by the machines in progress at most.
    pub fn equals_ignoring_busy(&self, other: &Self) -> bool {
        let idle = |of: &Self| Self { busy: BTreeSet::new(), ..of.clone() };
        idle(self) == idle(other)
    }

    /// Returns the keys and revisions that the applying transaction compares.
    pub fn compares(&self, keys: &Keys) -> Vec<(String, i64)> {
        vec![
            (keys.sabakan("url"), self.question.0),
            (keys.sabakan("query-variables"), self.question.1),
            (keys.sabakan("template"), self.template),
            (keys.cluster_revision(), self.cluster_revision),
            (keys.cluster(), self.cluster),
            (keys.constraints(), self.constraints),
            (keys.our_constraints(), self.our_constraints),
            (keys.policy(), self.policy),
        ]
    }
}

/// Returns the addresses of machines that an entry of either queue, or a maintenance, works on.
pub fn busy(store: &StoreView) -> BTreeSet<Address> {
    let reboots = store.reboots.entries.values().filter_map(Stored::get);
    let reboots = reboots.filter(|e| matches!(e.status, RebootStatus::Draining | RebootStatus::Rebooting));
    let repairs = store.repairs.entries.values().filter_map(Stored::get).filter(|e| e.claims_machine());
    let maintenance = store.maintenance.entries.values().filter_map(Stored::get).filter(|e| e.claims_machine());
    let queues = reboots.map(|e| e.node.clone()).chain(repairs.map(|e| e.address.clone()));
    queues.chain(maintenance.map(|e| e.node.clone())).collect()
}

/// A plan with its consequences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposed {
    /// The plan.
    pub plan: Plan,
    /// Changes that the plan makes.
    pub change: Change,
    /// Whether an operator must approve it.
    pub gate: Gate,
    /// Digest that an approval names.
    pub digest: String,
    /// The new definition as it is written; empty if nothing changes.
    pub json: String,
}

/// Result of planning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// Inputs of the plan.
    pub basis: Basis,
    /// Time of the request whose answer was used.
    pub asked: Timestamp,
    /// The plan, or the reason why there is none. Without a plan the current definition stays.
    pub outcome: Result<Proposed, String>,
}

/// Plans from a good answer. `taints` are those of the Nodes by name, if Kubernetes is known.
pub fn propose(
    store: &StoreView,
    good: &GoodAnswer,
    taints: Option<&BTreeMap<NodeName, Vec<Taint>>>,
    now: Timestamp,
) -> Proposal {
    let basis = Basis::of(store);
    let outcome = plan(store, &good.machines, taints, now);
    Proposal { basis, asked: good.asked, outcome }
}

/// Passes the inputs of a plan to `use_it`, or returns the reason why there is nothing to plan from.
pub fn with_input<T>(
    store: &StoreView,
    machines: &Machines,
    taints: Option<&BTreeMap<NodeName, Vec<Taint>>>,
    now: Timestamp,
    use_it: impl FnOnce(&Input<'_>) -> T,
) -> Result<T, String> {
    let text = store.registry.template.as_ref().and_then(Stored::get);
    let text = text.ok_or("no template is stored: set one with `cketerm sabakan set-template FILE`")?;
    let template = Template::stored(text).map_err(|e| e.to_string())?;
    let current = match store.cluster.as_ref().map(|c| &c.value) {
        None => None,
        Some(Ok(definition)) => Some(&definition.cluster),
        // An unreadable definition is not replaced by an initial one.
        Some(Err(why)) => {
            return Err(format!("the definition in force cannot be read, fix or remove it first: {why}"));
        }
    };
    if let Some(Err(why)) = store.constraints.as_ref().map(|c| &c.value) {
        return Err(format!("the constraints cannot be read: {why}"));
    }
    if let Some(Err(why)) = store.policy.as_ref().map(|c| &c.value) {
        return Err(format!("the policy cannot be read: {why}"));
    }
    let (policy, constraints) = (store.policy(), store.constraints());
    if policy.strategy == Strategy::AllHealthy && taints.is_none() {
        return Err("no Nodes read yet: control planes are chosen by their taints".to_owned());
    }
    let busy = busy(store);
    Ok(use_it(&Input {
        machines: &machines.list,
        template: &template,
        constraints: &constraints,
        current,
        kubernetes_nodes: taints.filter(|_| policy.strategy == Strategy::AllHealthy),
        rebooting: &busy,
        template_changed: store.registry.template_changed(),
        wait_seconds: policy.removal_wait_seconds,
        strategy: policy.strategy,
        now,
    }))
}

fn plan(
    store: &StoreView,
    machines: &Machines,
    taints: Option<&BTreeMap<NodeName, Vec<Taint>>>,
    now: Timestamp,
) -> Result<Proposed, String> {
    let plan = with_input(store, machines, taints, now, sabakan::plan)?.map_err(|e| e.to_string())?;
    let current = store.definition().map(|d| &d.cluster);
    let text = store.registry.template.as_ref().and_then(Stored::get).map_or("", String::as_str);
    let (change, json) = match &plan.cluster {
        Some(next) if plan.changed => {
            let value = serde_json::to_value(next).map_err(|e| format!("the definition cannot be serialized: {e}"))?;
            (change::diff(current, next), written(&value).to_string())
        }
        _ => (Change::default(), String::new()),
    };
    let missing = Missing::from_list(current, &machines.list);
    let gate = change.gate(current, missing, store.policy().gate_percent);
    let digest = change::digest(&json, text, &machines.list);
    Ok(Proposed { plan, change, gate, digest, json })
}
