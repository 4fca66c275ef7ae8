//! `rq plan`, `repair-queue plan`: what would happen, without writing anywhere.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use super::{Context, args::Output};
use crate::{
    actions::{
        ActionError,
        plan::{Wave, waves},
        preview::Preview,
    },
    kubernetes::Kube,
    model::{
        cluster::Node, entry::QueueKind, kube::KubeView, policy::ApiServerOrder, reboot::RebootStatus, text::visible,
    },
    store::view::StoreView,
};

/// What would happen to one node.
#[derive(Debug, Serialize)]
struct Planned {
    wave: usize,
    address: String,
    name: String,
    api_server: bool,
    /// Its entry, where it is in the queue.
    entry: Option<u64>,
    /// None where Kubernetes has no such Node.
    drain: Option<Preview>,
}

/// `rq plan`: these nodes, or the queue as it is.
pub async fn reboots(addresses: &[String], context: &Context) -> Result<(), ActionError> {
    let kube = context.kube("rq plan").await?;
    let store = context.store().await?;
    let view = store.read_view().await?;
    let definition = view.definition().ok_or_else(|| ActionError::failed(no_definition(&view)))?;
    let (cluster, members) = (&definition.cluster, &definition.members);
    let asked: Wave =
        if addresses.is_empty() { queued(&view) } else { addresses.iter().map(|a| (a.clone(), None)).collect() };
    if let Some((address, _)) = asked.iter().find(|(a, _)| members.by_address(cluster, a).is_none()) {
        return Err(ActionError::failed(format!(
            "{address} is not in the cluster definition: see `cketerm cluster get`"
        )));
    }
    if asked.is_empty() {
        context.say("the reboot queue is empty: name addresses to see what would happen to them");
    }
    let api_first = view.policy().api_server_order == ApiServerOrder::First;
    let facts = kube.drain_facts().await.map_err(|e| ActionError::failed(format!("rq plan: {e}")))?;
    let mut planned = Vec::new();
    for (wave, nodes) in waves(asked, cluster, members, api_first).into_iter().enumerate() {
        for (address, entry) in nodes {
            let Some(member) = members.by_address(cluster, &address) else { continue };
            let drain = drain(&kube, member, cluster.reboot.eviction(), &facts).await?;
            planned.push(Planned {
                wave: wave + 1,
                name: member.node_name().to_owned(),
                api_server: member.control_plane,
                address,
                entry,
                drain,
            });
        }
    }
    if let Some(notice) = super::windows::notice(&view.policy(), QueueKind::Reboot, store.clock().wall()) {
        context.say(&notice);
    }
    match context.output(Output::Table) {
        Output::Table => context.out.text(&text(&planned)),
        form => context.out.value(&planned, form),
    }
}

/// The queue's machines: those in work first, then the queued ones by index.
fn queued(view: &StoreView) -> Wave {
    let mut entries: Vec<(bool, u64, String)> = view
        .reboots
        .entries
        .iter()
        .filter_map(|(index, stored)| Some((*index, stored.get()?)))
        .filter(|(_, e)| matches!(e.status, RebootStatus::Queued | RebootStatus::Draining))
        .map(|(index, e)| (e.status == RebootStatus::Queued, index, e.node.clone()))
        .collect();
    entries.sort();
    entries.into_iter().map(|(_, index, node)| (node, Some(index))).collect()
}

async fn drain(
    kube: &Kube,
    member: &Node,
    rules: crate::model::cluster::Eviction<'_>,
    facts: &KubeView,
) -> Result<Option<Preview>, ActionError> {
    let failed = |e| ActionError::failed(format!("plan: {e}"));
    let Some(row) = kube.node(member.node_name()).await.map_err(failed)? else { return Ok(None) };
    Preview::of(kube, &row, rules, facts).await.map(Some).map_err(failed)
}

fn text(planned: &[Planned]) -> String {
    let mut out = String::new();
    let mut wave = 0;
    for node in planned {
        if node.wave != wave {
            wave = node.wave;
            let all = planned.iter().filter(|n| n.wave == wave);
            let (n, api) = (all.clone().count(), all.filter(|n| n.api_server).count());
            let what = if api > 0 { "API server, alone".to_owned() } else { format!("{n} at once") };
            let _ = writeln!(out, "wave {wave}: {what}");
        }
        let entry = node.entry.map(|i| format!("  #{i}")).unwrap_or_default();
        let summary = node.drain.as_ref().map_or_else(|| "no such Node in Kubernetes".to_owned(), Preview::summary);
        out.push_str(&visible(&format!("  {} {}{entry}: {summary}", node.name, node.address), false));
        out.push('\n');
        for line in node.drain.iter().flat_map(Preview::lines) {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

/// `repair-queue plan`: the steps of an operation, and what its drains would meet now.
pub async fn repair(operation: &str, machine_type: &str, address: &str, context: &Context) -> Result<(), ActionError> {
    if address.parse::<std::net::IpAddr>().is_err() {
        return Err(ActionError::misused(format!("{address:?} is not an IP address")));
    }
    let view = context.store().await?.read_view().await?;
    let definition = view.definition().ok_or_else(|| ActionError::failed(no_definition(&view)))?;
    let cluster = &definition.cluster;
    let found = cluster.repair.operation(machine_type, operation).map_err(ActionError::refused)?;
    let member = definition.members.by_address(cluster, address);
    let drains = found.steps().iter().any(|s| s.need_drain.unwrap_or(false));
    // Kubernetes is asked only for what a drain would meet
    let drain = match member.filter(|_| drains) {
        Some(member) if !context.settings.kube.is_none() => {
            let kube = context.kube("repair-queue plan").await?;
            let failed = |e| ActionError::failed(format!("repair-queue plan: {e}"));
            let facts = kube.drain_facts().await.map_err(failed)?;
            drain(&kube, member, cluster.repair.eviction(), &facts).await?
        }
        Some(_) => {
            context.say("no Kubernetes is configured: what the drain would meet is not shown");
            None
        }
        None => None,
    };
    let steps = crate::model::cluster::steps_in_words(found.steps(), address);
    if context.output(Output::Table) != Output::Table {
        let said = json!({
            "operation": operation, "machine_type": machine_type, "address": address,
            "member": member.map(Node::node_name), "api_server": member.is_some_and(|m| m.control_plane),
            "steps": found.repair_steps, "health_check_command": found.health_check_command,
            "success_command": found.success_command, "drain": drain,
        });
        return context.out.value(&said, context.output(Output::Table));
    }
    let who = match member {
        Some(m) if m.control_plane => format!("{} (API server: one at a time)", m.node_name()),
        Some(m) => m.node_name().to_owned(),
        None => "not a member of the cluster: nothing is drained".to_owned(),
    };
    let mut out = format!("{operation} of {machine_type} {address}: {who}\n");
    for step in steps {
        let _ = writeln!(out, "  {step}");
    }
    let argv = |argv: &Option<Vec<String>>| argv.as_deref().unwrap_or_default().join(" ");
    let _ = writeln!(out, "  healthy once `{} {address}` prints true", argv(&found.health_check_command));
    if found.success_command.as_ref().is_some_and(|argv| !argv.is_empty()) {
        let _ = writeln!(out, "  then {} {address}", argv(&found.success_command));
    }
    if let Some(drain) = &drain {
        let _ = writeln!(out, "drain now: {}", drain.summary());
        for line in drain.lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    for (index, entry) in &view.repairs.entries {
        if let Some(entry) = entry.get().filter(|e| e.address == address && e.unfinished()) {
            let _ = writeln!(out, "before it: repairs/{index} ({})", crate::actions::repair_state(entry));
        }
    }
    context.out.text(&out)
}

fn no_definition(view: &StoreView) -> String {
    match view.cluster.as_ref().map(|c| &c.value) {
        Some(Err(why)) => format!("the cluster definition cannot be read: {why}"),
        _ => "no cluster definition is stored: set one with `cketerm cluster set FILE`".to_owned(),
    }
}
