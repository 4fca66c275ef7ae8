//! `rq plan`, `repair-queue plan`: previews that write nothing.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_actions::{
    ActionError,
    estimate::{Basis, usual_times},
    landing::{self, MutualOutcome, NodeLanding},
    machine_address,
    plan::{explain, has_budgets, previews},
    preview::{Preview, idle_budget_lines},
    resolve,
};
use cketerm_clients::{
    kubernetes::{Kube, KubeError},
    store::Store,
};
use cketerm_model::{
    clock::Now,
    cluster::{Eviction, Member},
    entry::QueueKind,
    kube::KubeView,
    names::{Address, NodeName},
    placement::PlacementView,
    policy::WorkerOrder,
    secret,
    stored::view::StoreView,
};
use cketerm_rules::{
    eta::text::Detail,
    forecast::{Budgets, Forecast, MachineForecast, Place, Separation, forecast},
    start::{Bar, Start},
};
use serde::Serialize;
use serde_json::json;

use super::{
    Context,
    options::Output,
    output::Lines,
    restrictions::{moment, print_restrictions},
};

/// Preview of one node.
#[derive(Debug, Serialize)]
struct Planned {
    /// Number of its wave, counted from 1; `None` if it is in progress or waits.
    wave: Option<usize>,
    /// Address of the machine.
    address: Address,
    /// Name of its Node.
    name: String,
    /// Whether it is a control plane.
    api_server: bool,
    /// Index of its entry, if it is in the queue.
    entry: Option<u64>,
    /// Status of an entry in progress.
    in_work: Option<String>,
    /// Reason why it waits, beyond waiting for its turn.
    waits: Option<String>,
    /// Reason why the order by budgets puts it into a later wave than others.
    #[serde(skip_serializing_if = "Option::is_none")]
    apart: Option<Separation>,
    /// Preview of its drain; `None` if Kubernetes has no such Node or was not queried.
    drain: Option<Preview>,
    /// Landing check of its pods while the nodes of its wave are drained together; `None` if it was not checked.
    landing: Option<NodeLanding>,
    /// Reason why its pods were not read.
    unread: Option<String>,
}

/// `rq plan`: previews these nodes, by name or address, or the queue as it is.
pub async fn reboots<S: AsRef<str>>(nodes: &[S], context: &Context) -> Result<(), ActionError> {
    let kube = context.kube("rq plan").await?;
    let store = context.store().await?;
    let view = store.read_view().await?;
    let definition = view.definition().ok_or_else(|| ActionError::failed(no_definition(&view)))?;
    let (cluster, members) = (&definition.cluster, &definition.members);
    let addresses = resolve(cluster, members, nodes)?;
    let failed = |e| ActionError::failed(format!("rq plan: {e}"));
    let (kube_view, rows) = tokio::join!(kube.read_drain_objects(), kube.nodes());
    let mut kube_view = kube_view.map_err(failed)?;
    rows.map_err(failed)?.into_iter().for_each(|row| kube_view.put_node(row));
    let now = Now { boot: store.clock().boot(), wall: store.clock().wall() };
    let line = forecast(&view, &kube_view, &addresses, now).ok_or_else(|| ActionError::failed(no_definition(&view)))?;
    if line.placed.is_empty() {
        context.print_message("the reboot queue is empty: give addresses to preview them");
    }
    for note in &line.notes {
        context.print_message(&format!("note: {note}"));
    }
    let members = line.placed.iter().map(|p| &p.address);
    let start = Start::of(&view, &kube_view, false, QueueKind::Reboot, members, now.wall);
    print_restrictions(&view, QueueKind::Reboot, now.wall, context);
    // a bar without an end is among the forecast's notes, with its remedy
    if let Some(bar @ Bar::Before(..)) = start.bar {
        context.print_message(&format!("note: nothing starts {}", bar.described(|at| moment(&view.policy(), at))));
    }
    print_estimate(&store, (&view, &kube_view), &addresses, now, context).await;
    let is_checked = |p: &&MachineForecast| !matches!(&p.place, Place::InWork(status) if status == "rebooting");
    let names: BTreeSet<&str> = line.placed.iter().filter(is_checked).map(|p| p.name.as_str()).collect();
    let nodes: Vec<_> = names.iter().filter_map(|name| kube_view.nodes.get(*name).cloned()).collect();
    let previews = previews(&kube, &nodes, cluster.reboot.eviction(), &kube_view).await;
    if nodes.len() > previews.len() {
        context
            .print_message(&format!("note: the pods of {} more nodes were not checked", nodes.len() - previews.len()));
    }
    let mut previews: BTreeMap<NodeName, Result<Preview, KubeError>> = previews.into_iter().collect();
    let line = by_policy(line, &view, &kube_view, &previews);
    let placement = read_placement(&kube, &kube_view, context).await;
    let blocked = previews.values_mut().filter_map(|preview| preview.as_mut().ok());
    let unexplained = explain(&kube, blocked, &kube_view, placement.as_ref()).await;
    if unexplained > 0 {
        context.print_message(&unexplained_note(unexplained));
    }
    let mut landings = placement.map(|view| landings(&view, &line, &previews, context)).unwrap_or_default();
    let planned: Vec<Planned> =
        line.placed.into_iter().map(|placed| of(placed, &mut previews, &mut landings)).collect();
    match context.output(Output::Table) {
        Output::Table => context.out.text(text(&planned)),
        form => context.out.value(&planned, form),
    }
}

/// Returns the note about budgets beyond the limit.
fn unexplained_note(budgets: usize) -> String {
    let budgets = if budgets == 1 { "1 more budget".to_owned() } else { format!("{budgets} more budgets") };
    format!("note: the cause behind {budgets} was not looked up: plan fewer nodes at once")
}

/// Nodes of a cluster whose pods are all read for the landing check, at most.
const MAX_READ_NODES: usize = 1_000;

/// Reads all pods, nodes and volumes for the landing check.
async fn read_placement(kube: &Kube, view: &KubeView, context: &Context) -> Option<PlacementView> {
    if view.nodes.len() > MAX_READ_NODES {
        let text = format!("note: where pods can land was not checked: the cluster has over {MAX_READ_NODES} Nodes");
        context.print_message(&text);
        return None;
    }
    let read = kube.read_placement().await;
    read.inspect_err(|why| context.print_message(&format!("note: where pods can land was not checked: {why}"))).ok()
}

/// Checks where the pods of each wave can land. Machines without a wave are checked alone.
fn landings(
    view: &PlacementView,
    line: &Forecast,
    previews: &BTreeMap<NodeName, Result<Preview, KubeError>>,
    context: &Context,
) -> BTreeMap<NodeName, NodeLanding> {
    // waves first: the number of checks is limited
    let mut sets: BTreeMap<(usize, usize), BTreeSet<NodeName>> = BTreeMap::new();
    for (i, placed) in line.placed.iter().enumerate() {
        let set = match &placed.place {
            Place::InWork(status) if status == "rebooting" => continue,
            Place::Wave(wave, _) => (*wave, 0),
            Place::InWork(_) | Place::Waits(_) => (usize::MAX, i),
        };
        sets.entry(set).or_default().insert(NodeName::new(placed.name.as_str()));
    }
    let found = landing::check(view, &sets.into_values().collect::<Vec<_>>());
    if found.unchecked > 0 {
        context
            .print_message(&format!("note: where the pods of {} more waves can land was not checked", found.unchecked));
    }
    for wave in &found.too_many {
        context.print_message(&format!("note: {wave}"));
    }
    for nodes in found.mutual_nodes(|node| previews.get(node).is_some_and(has_budgets)) {
        let how = match nodes.outcome {
            MutualOutcome::Deadlock => " (`cketerm rq hold`)",
            MutualOutcome::Pending => "",
        };
        context.print_message(&format!("note: {nodes}{how}"));
    }
    found.nodes
}

/// Moves machines into later waves if the policy respects budgets.
fn by_policy(
    forecast: Forecast,
    view: &StoreView,
    kube: &KubeView,
    previews: &BTreeMap<NodeName, Result<Preview, KubeError>>,
) -> Forecast {
    let policy = view.policy();
    if policy.worker_order != WorkerOrder::Budgets {
        return forecast;
    }
    let read = previews.iter().filter_map(|(name, preview)| Some((name.to_string(), preview.as_ref().ok()?)));
    let demand = read.map(|(name, preview)| (name, preview.budgets.clone())).collect();
    let allowed = kube.budgets.values().map(|budget| (budget.full_name(), budget.allowed)).collect();
    let max_overtakes = usize::try_from(policy.max_overtakes).unwrap_or(usize::MAX);
    forecast.by_budgets(&Budgets { demand, allowed, max_overtakes })
}

/// Prints when these machines are done, after what is queued, or the queue without machines. Too few ended entries give
/// no line.
pub(super) async fn print_estimate(
    store: &Store,
    (view, kube): (&StoreView, &KubeView),
    addresses: &[Address],
    now: Now,
    context: &Context,
) {
    let usual = match usual_times(store, view).await {
        Ok(usual) => usual,
        Err(why) => return context.print_message(&format!("note: no estimate: {why}")),
    };
    let basis = Basis { view, kube, usual: &usual, now: now.wall };
    let answers = basis.answers(QueueKind::Reboot, addresses, 1, &|_| None);
    let answer = if addresses.is_empty() { answers.last() } else { answers.first() };
    if let Some(Ok(estimate)) = answer {
        let end = estimate.described(Detail::Full, |at| moment(&view.policy(), at));
        context.print_message(&format!("note: {end}, like the last {} reboots", estimate.samples));
    }
}

/// Moves a machine's drain preview into the first row that names the machine.
fn of(
    placed: MachineForecast,
    previews: &mut BTreeMap<NodeName, Result<Preview, KubeError>>,
    landings: &mut BTreeMap<NodeName, NodeLanding>,
) -> Planned {
    let landing = landings.remove(placed.name.as_str());
    let (wave, in_work, waits) = match placed.place {
        Place::InWork(status) => (None, Some(status), None),
        Place::Wave(wave, waits) => (Some(wave), None, waits),
        Place::Waits(waits) => (None, None, Some(waits)),
    };
    let (drain, unread) = match previews.remove(placed.name.as_str()) {
        None => (None, None),
        Some(Ok(drain)) => (Some(drain), None),
        Some(Err(why)) => (None, Some(why.to_string())),
    };
    Planned {
        wave,
        address: placed.address,
        name: placed.name,
        api_server: placed.api_server,
        entry: placed.entry,
        in_work,
        waits,
        apart: placed.apart,
        drain,
        landing,
        unread,
    }
}

fn text(planned: &[Planned]) -> String {
    let mut out = Lines::default();
    let mut last = None;
    for node in planned {
        let part = (node.wave, node.in_work.is_some());
        if last != Some(part) {
            last = Some(part);
            match part {
                (_, true) => out.line("in work:"),
                (None, _) => out.line("waiting:"),
                (Some(wave), _) if node.api_server => out.line(format_args!("wave {wave}: API server, alone")),
                (Some(wave), _) => {
                    let n = planned.iter().filter(|n| n.wave == Some(wave)).count();
                    out.line(format_args!("wave {wave}: {n} at once"));
                }
            }
        }
        let entry = node.entry.map(|i| format!("  #{i}")).unwrap_or_default();
        let described = [
            node.in_work.clone(),
            node.waits.clone(),
            node.apart.as_ref().map(ToString::to_string),
            node.drain.as_ref().map(Preview::summary),
            node.landing.as_ref().map(NodeLanding::summary),
            node.unread.as_ref().map(|why| format!("pods not read: {why}")),
        ];
        let described: Vec<String> = described.into_iter().flatten().collect();
        out.line(format_args!("  {} {}{entry}: {}", node.name, node.address, described.join("; ")));
        let landing = node.landing.iter().flat_map(NodeLanding::lines);
        for line in node.drain.iter().flat_map(Preview::lines).chain(landing) {
            out.line(format_args!("    {line}"));
        }
    }
    for line in idle_budget_lines(planned.iter().filter_map(|node| node.drain.as_ref())) {
        out.line(line);
    }
    out.done()
}

/// Previews the drain of this member; `None` if Kubernetes has no such Node.
async fn drain(
    kube: &Kube,
    member: Member<'_>,
    rules: Eviction<'_>,
    kube_view: &KubeView,
) -> Result<Option<Preview>, ActionError> {
    let failed = |e| ActionError::failed(format!("repair-queue plan: {e}"));
    let Some(row) = kube.node(member.node_name()).await.map_err(failed)? else { return Ok(None) };
    Preview::of(kube, &row, rules, kube_view).await.map(Some).map_err(failed)
}

/// `repair-queue plan`: prints the steps of an operation and the preview of its drains.
pub async fn repair(operation: &str, machine_type: &str, machine: &str, context: &Context) -> Result<(), ActionError> {
    let view = context.store().await?.read_view().await?;
    let definition = view.definition().ok_or_else(|| ActionError::failed(no_definition(&view)))?;
    let cluster = &definition.cluster;
    // the address of a machine that has left the cluster is allowed, as for a repair
    let address = &machine_address(cluster, &definition.members, machine)?;
    let found = cluster.repair.operation(machine_type, operation).map_err(ActionError::refused)?;
    let member = definition.members.by_address(cluster, address);
    let drains = found.steps().iter().any(|s| s.need_drain.unwrap_or(false));
    // Kubernetes is queried only for the drain's preview
    let drain = match member.filter(|_| drains) {
        Some(member) if !context.settings.kube.is_none() => {
            let kube = context.kube("repair-queue plan").await?;
            let failed = |e| ActionError::failed(format!("repair-queue plan: {e}"));
            let kube_view = kube.read_drain_objects().await.map_err(failed)?;
            drain(&kube, member, cluster.repair.eviction(), &kube_view).await?
        }
        Some(_) => {
            context.print_message("no preview of the drain: Kubernetes is not configured (--kubeconfig FILE)");
            None
        }
        None => None,
    };
    let steps = cketerm_model::cluster::describe_steps(found.steps(), address);
    if context.output(Output::Table) != Output::Table {
        let mut described = json!({
            "operation": operation, "machine_type": machine_type, "address": address,
            "member": member.map(Member::node_name), "api_server": member.is_some_and(|m| m.control_plane),
            "steps": found.repair_steps, "health_check_command": found.health_check_command,
            "success_command": found.success_command, "drain": drain,
        });
        cketerm_model::secret::mask(&mut described);
        return context.out.value(&described, context.output(Output::Table));
    }
    let who = match member {
        Some(m) if m.control_plane => format!("{} (API server: one at a time)", m.node_name()),
        Some(m) => m.node_name().to_string(),
        None => "not a member of the cluster: nothing is drained".to_owned(),
    };
    let mut out = Lines::default();
    out.line(format_args!("{operation} of {machine_type} {address}: {who}"));
    for step in steps {
        out.line(format_args!("  {step}"));
    }
    let argv = |argv: &Option<Vec<String>>| secret::argv(argv.as_deref().unwrap_or_default());
    out.line(format_args!("  healthy once `{} {address}` prints true", argv(&found.health_check_command)));
    if found.success_command.as_ref().is_some_and(|argv| !argv.is_empty()) {
        out.line(format_args!("  then {} {address}", argv(&found.success_command)));
    }
    if let Some(drain) = &drain {
        out.line(format_args!("drain now: {}", drain.summary()));
        for line in drain.lines().into_iter().chain(idle_budget_lines([drain].into_iter())) {
            out.line(format_args!("  {line}"));
        }
    }
    for (index, entry) in &view.repairs.entries {
        if let Some(entry) = entry.get().filter(|e| e.address == *address && e.unfinished()) {
            out.line(format_args!("ahead of it: repairs/{index} ({})", cketerm_actions::repair_state(entry)));
        }
    }
    context.out.text(out)
}

fn no_definition(view: &StoreView) -> String {
    match view.cluster.as_ref().map(|c| &c.value) {
        Some(Err(why)) => format!("the cluster definition cannot be read: {why}"),
        _ => "no cluster definition is stored: set one with `cketerm cluster set FILE`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(name: &str, wave: usize, apart: Option<Separation>) -> Planned {
        Planned {
            wave: Some(wave),
            address: Address::new("10.0.0.1"),
            name: name.to_owned(),
            api_server: false,
            entry: None,
            in_work: None,
            waits: None,
            apart,
            drain: None,
            landing: None,
            unread: None,
        }
    }

    /// The waves showed that two nodes do not go together, but not which budget keeps them apart.
    #[test]
    fn the_budget_that_keeps_two_nodes_apart_is_named() {
        let nodes = vec!["n1".to_owned()];
        let apart = Separation::Budget { budget: "shop/web".to_owned(), allowed: 1, nodes };
        let text = text(&[planned("n1", 1, None), planned("n3", 2, Some(apart))]);
        let row = "  n3 10.0.0.1: waits for n1: both have pods of pdb shop/web, which allows 1 disruption\n";
        assert!(text.ends_with(row), "{text}");
    }

    /// A budget that selects no pod was named for each node with a pod of its namespace.
    #[test]
    fn a_budget_without_pods_is_named_once_at_the_end() {
        let drain = || Some(Preview { idle_budgets: ["shop/old".to_owned()].into(), ..Preview::default() });
        let node = |name: &str| Planned { drain: drain(), ..planned(name, 1, None) };
        let text = text(&[node("n1"), node("n2")]);
        assert_eq!(text.matches("selects no pod").count(), 1, "{text}");
        assert!(text.ends_with("\n~ pdb shop/old selects no pod: it protects nothing\n"), "{text}");
    }
}
