//! The cluster definition that follows the Nodes of Kubernetes, if the policy `membership` is `nodes`. Pure; the engine,
//! the console and the commands use the same functions.
//!
//! - A Node that `node_selector` picks joins with its name and address.
//! - A member without such a Node leaves after `node_grace_seconds`, unless an entry works on its machine.
//! - A member is a control plane if [a signal](control_planes) shows it.
//!
//! Joins and promotions come first, in a change of their own, so that they never wait for the approval of a removal.

mod control_planes;
mod joins;
pub mod list;

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::Absences,
    cluster::{Cluster, Node, written},
    entry::Stored,
    fault,
    kube::{KubeView, NodeRow},
    names::Address,
    policy::NodeSelector,
    stored::view::{Definition, StoreView},
    time::after,
};
use cketerm_sabakan::{
    Plan,
    change::{self, Change, Kind, Missing},
    plan::{Action, Choice},
    why::Why,
};
use jiff::Timestamp;

pub use self::{control_planes::unclear, joins::NotJoined};
use crate::registry::{Basis, Proposal, Proposed, propose::busy};

/// Returns the proposal for the definition. Without a plan the present definition stays.
pub fn propose(store: &StoreView, kube: &KubeView, now: Timestamp) -> Proposal {
    Proposal { basis: Basis::of(store), asked: now, outcome: plan(store, kube, now) }
}

/// Reports whether `node_selector` picks a Node.
fn is_picked(selector: &NodeSelector, node: &NodeRow) -> bool {
    // most sites select all Nodes
    selector.as_str().is_empty()
        || selector.picks(&node.described.labels.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

/// Returns the Node of a member: of its name and its address, and picked by the selector.
fn node_of<'a>(kube: &'a KubeView, selector: &NodeSelector, member: &Node) -> Option<&'a NodeRow> {
    let node = kube.by_name.get(&member.node_name())?;
    (node.addresses.contains(&member.address) && is_picked(selector, node)).then_some(&**node)
}

/// Returns the members that have no Node, each with the time since which that is recorded, or `now`. Nothing is known
/// while a watch is not complete.
pub fn absences(store: &StoreView, kube: &KubeView, now: Timestamp) -> Option<Absences> {
    let cluster = &store.definition().filter(|_| kube.synced())?.cluster;
    let policy = store.policy();
    let recorded = store.registry.absent.as_ref().and_then(Stored::get);
    let absent = cluster.nodes.iter().filter(|member| node_of(kube, &policy.node_selector, member).is_none());
    let since = absent.map(|member| {
        let since = recorded.and_then(|recorded| recorded.since.get(&member.address).copied());
        // a time in the future was written by a host whose clock is ahead
        (member.address.clone(), since.map_or(now, |since| since.min(now)))
    });
    Some(Absences { since: since.collect() })
}

/// Returns the time at which the grace period of the next member without a Node ends.
pub fn next_leave(store: &StoreView, now: Timestamp) -> Option<Timestamp> {
    let absences = store.registry.absent.as_ref().and_then(Stored::get)?;
    absences.since.values().map(|since| leaves_at(store, *since)).filter(|end| *end > now).min()
}

/// Returns the time at which a member leaves that has had no Node since then.
pub fn leaves_at(store: &StoreView, since: Timestamp) -> Timestamp {
    after(since, i64::try_from(store.policy().node_grace_seconds).unwrap_or(i64::MAX))
}

fn readable(store: &StoreView) -> Result<&Definition, String> {
    match store.cluster.as_ref().map(|stored| &stored.value) {
        Some(Ok(definition)) => Ok(definition),
        Some(Err(why)) => Err(format!("the definition cannot be read, fix it first: {why}")),
        None => Err("no definition is stored: `cketerm cluster set FILE`".to_owned()),
    }
}

fn plan(store: &StoreView, kube: &KubeView, now: Timestamp) -> Result<Proposed, String> {
    let current = &readable(store)?.cluster;
    if let Some(Err(why)) = store.policy.as_ref().map(|stored| &stored.value) {
        return Err(format!("the policy cannot be read: {why}"));
    }
    if let Some((key, why)) =
        store.registry.absent.as_ref().and_then(|stored| Some((&stored.key, stored.value.as_ref().err()?)))
    {
        return Err(format!("{key} cannot be read: {why}; delete it, and the grace periods begin anew"));
    }
    let absences = absences(store, kube, now).ok_or("the Nodes are not known yet")?;
    let selector = &store.policy().node_selector;
    if !current.nodes.is_empty() && !kube.nodes.values().any(|node| is_picked(selector, node)) {
        let by = if selector.as_str().is_empty() { "Kubernetes has" } else { "node_selector picks" };
        return Err(format!("{by} no Node: all {} members stay", current.nodes.len()));
    }
    let joins = joins::joins(current, kube, selector);
    let promoted = control_planes::promoted(current, kube, selector);
    let (action, reason, next) = if joins.nodes.is_empty() && promoted.is_empty() {
        let demoted = control_planes::demoted(current, kube, selector);
        leaving(store, current, &due(store, &absences, now), &demoted)
    } else {
        let reason = joins::reason(&joins.nodes, &promoted);
        (Action::AddNodes, reason, joins::with(current, &joins.nodes, &promoted))
    };
    let refused = joins.refused.iter().map(ToString::to_string);
    let warnings = refused.chain(absence_warnings(store, current, &absences)).collect();
    proposed(store, current, absences.since.len(), Next { action, reason, cluster: next, warnings })
}

/// Maximum number of members without a Node that are named.
const MAX_NAMED: usize = 10;

/// Returns a sentence about each member without a Node.
fn absence_warnings(store: &StoreView, current: &Cluster, absences: &Absences) -> Vec<String> {
    let absent = || current.nodes.iter().filter_map(|m| Some((m, absences.since.get(&m.address)?)));
    let sentence = |(member, since): (&Node, &Timestamp)| {
        let (name, address) = (member.node_name(), &member.address);
        format!(
            "{name} ({address}) has no Node: it leaves at {}, unless its entry is in work",
            leaves_at(store, *since)
        )
    };
    let more = absent().count().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!("{more} more members have no Node"));
    absent().take(MAX_NAMED).map(sentence).chain(more).collect()
}

/// Result of one step.
struct Next {
    action: Action,
    reason: String,
    cluster: Cluster,
    warnings: Vec<String>,
}

/// Returns the members without a Node whose grace period is over and on whose machines no entry works. A grace period
/// begins when it is recorded.
fn due(store: &StoreView, absences: &Absences, now: Timestamp) -> BTreeSet<Address> {
    let (busy, recorded) = (busy(store), store.registry.absent.as_ref().and_then(Stored::get));
    let is_due = |(address, since): &(&Address, &Timestamp)| {
        let is_recorded = recorded.is_some_and(|recorded| recorded.since.contains_key(*address));
        let (is_over, is_busy) = (leaves_at(store, **since) <= now, busy.contains(*address));
        fault!(NodeGraceIgnored => is_over = true);
        fault!(MemberInWorkLeaves => is_busy = false);
        is_recorded && is_over && !is_busy
    };
    absences.since.iter().filter(is_due).map(|(address, _)| address.clone()).collect()
}

/// Returns the definition without the members that are due, and with demoted control planes.
fn leaving(
    store: &StoreView,
    current: &Cluster,
    due: &BTreeSet<Address>,
    demoted: &BTreeSet<Address>,
) -> (Action, String, Cluster) {
    let grace = Seconds::from(store.policy().node_grace_seconds);
    let gone: Vec<&Node> = current.nodes.iter().filter(|member| due.contains(&member.address)).collect();
    if gone.is_empty() && demoted.is_empty() {
        return (Action::None, "nothing joins or leaves now".to_owned(), current.clone());
    }
    let mut next = current.clone();
    next.nodes.retain(|member| !due.contains(&member.address));
    for member in next.nodes.iter_mut().filter(|member| demoted.contains(&member.address)) {
        member.control_plane = false;
    }
    let mut parts = Vec::new();
    if !gone.is_empty() {
        let names: Vec<String> = gone.iter().map(|member| member.node_name().to_string()).collect();
        parts.push(format!("no Node for {grace:.0} or longer: {}", names.join(", ")));
    }
    if !demoted.is_empty() {
        let list: Vec<&str> = demoted.iter().map(Address::as_str).collect();
        parts.push(format!("nothing shows a control plane any more: {}", list.join(", ")));
    }
    (Action::RemoveNodes, parts.join("; "), next)
}

fn proposed(store: &StoreView, current: &Cluster, absent: usize, next: Next) -> Result<Proposed, String> {
    let changed = next.cluster != *current;
    let (change, json) = if changed {
        let value =
            serde_json::to_value(&next.cluster).map_err(|e| format!("the definition cannot be written: {e}"))?;
        (change::diff(Some(current), &next.cluster), written(&value).to_string())
    } else {
        (Change::default(), String::new())
    };
    // All members without a Node count, not only those whose grace is over: Nodes that are deleted one by one must not
    // pass one by one.
    let missing = Missing::Nodes(absent);
    let gate = change.gate(Some(current), missing, store.policy().gate_percent);
    let digest = change::digest(&json, "nodes", &[]);
    let nodes = if changed { choices(current, &next.cluster) } else { Vec::new() };
    let plan = Plan {
        action: next.action,
        reason: next.reason,
        changed,
        cluster: changed.then_some(next.cluster),
        nodes,
        warnings: next.warnings,
    };
    Ok(Proposed { plan, change, gate, digest, json })
}

/// Returns a member that a change removes although it has its Node again.
pub fn returned(change: &Change, store: &StoreView, kube: &KubeView) -> Option<Address> {
    let definition = store.definition()?;
    let policy = store.policy();
    let removed = change.nodes.iter().filter(|node| node.kind == Kind::Removed);
    let has_node = |address: &Address| {
        let member = definition.cluster.nodes.iter().find(|member| member.address == *address);
        member.is_some_and(|member| node_of(kube, &policy.node_selector, member).is_some())
    };
    removed.map(|node| &node.address).find(|address| has_node(address)).cloned()
}

/// Returns the members after the plan, then those that leave.
fn choices(current: &Cluster, next: &Cluster) -> Vec<Choice> {
    let was: BTreeMap<&Address, bool> = current.nodes.iter().map(|m| (&m.address, m.control_plane)).collect();
    let remain: BTreeSet<&Address> = next.nodes.iter().map(|m| &m.address).collect();
    let choice = |member: &Node, control_plane: Option<bool>, why: &str| Choice {
        address: member.address.clone(),
        serial: None,
        role: String::new(),
        control_plane,
        was_control_plane: was.get(&member.address).copied(),
        score: None,
        why: Why::Because(why.to_owned()),
    };
    let stays = next.nodes.iter().map(|member| {
        let why = if was.contains_key(&member.address) { "it has its Node" } else { "its Node is new" };
        choice(member, Some(member.control_plane), why)
    });
    let leaves = current.nodes.iter().filter(|member| !remain.contains(&member.address));
    stays.chain(leaves.map(|member| choice(member, None, "it has no Node any more"))).collect()
}
