//! `nodes`.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::collections::{BTreeMap, BTreeSet};

use cketerm_actions::{ActionError, Operator, Turned};
use cketerm_model::{
    kube::NodeRow,
    names::{Address, NodeName},
    reason::{PodHold, Reason as Why},
    stored::view::{Definition, StoreView},
};
use cketerm_rules::manual_drain::Progress;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::{
    Context,
    cordoned_by::{CordonedBy, cordoned_by},
    node_row::{control_plane, internal_address},
    options::{Output, Reason},
    output::{Lines, columns},
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum NodesCommand {
    /// List the nodes of the definition and of Kubernetes
    List,
    /// Cordon a node until you uncordon it; refused while an entry works on it
    Cordon(NodeArgs),
    /// Uncordon a node and remove all cordon marks; refused while an entry works on it
    Uncordon(NodeArgs),
    /// Cordon and drain a node by the rules of the queues; Ctrl-C leaves it cordoned
    Drain(NodeArgs),
    /// Keep the cordon of an entry after the entry ends
    KeepCordoned {
        #[command(flatten)]
        #[allow(missing_docs)]
        node: NodeArgs,
        /// Undo it: the engine uncordons the node when the entry ends
        #[arg(long)]
        give_back: bool,
    },
}

/// One node by hand.
#[derive(Args, Debug)]
pub struct NodeArgs {
    /// Name or address of the Node
    pub name: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reason: Reason,
}

/// A node in the form that is listed.
#[derive(Debug, Serialize)]
struct Listed {
    /// Name of the Node, or of the member.
    name: NodeName,
    /// Address of the member, else of the Node.
    address: Address,
    /// Whether it is a control plane of the definition.
    control_plane: bool,
    /// Whether the definition contains it.
    member: bool,
    /// Ready condition that Kubernetes reports; `None` = no such Node.
    ready: Option<bool>,
    /// Whether it is not cordoned; `None` = no such Node.
    schedulable: Option<bool>,
    /// Author of the cordon, if it is cordoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    cordoned_by: Option<CordonedBy>,
    /// Version of its kubelet.
    kubelet: Option<String>,
    /// Entries of both queues for this machine.
    entries: Vec<String>,
}

/// Runs one of the subcommands.
pub async fn run(word: NodesCommand, context: &Context) -> Result<(), ActionError> {
    match word {
        NodesCommand::List => print(context).await,
        NodesCommand::Cordon(node) => set_cordon(&node, true, context).await,
        NodesCommand::Uncordon(node) => set_cordon(&node, false, context).await,
        NodesCommand::Drain(node) => drain(&node, context).await,
        NodesCommand::KeepCordoned { node, give_back } => {
            let operator = operator_with_nodes(context).await?;
            let name = operator.keep_cordon_of(&node.name, !give_back, node.reason.get()).await?;
            let whose =
                if give_back { "the engine's again, if it set it" } else { "yours: it stays after the entry ends" };
            context.print_message(&format!("the cordon of {name} is {whose}"));
            Ok(())
        }
    }
}

/// Returns the operator with Kubernetes, which every manual action needs.
async fn operator_with_nodes(context: &Context) -> Result<Operator, ActionError> {
    let kube = context.kube("this command").await?;
    Ok(Operator::new(context.store().await?, Some(kube)))
}

async fn set_cordon(node: &NodeArgs, cordon: bool, context: &Context) -> Result<(), ActionError> {
    let operator = operator_with_nodes(context).await?;
    let (turned, word) = if cordon {
        (operator.cordon_node(&node.name, node.reason.get()).await?, "cordoned")
    } else {
        (operator.uncordon_node(&node.name, node.reason.get()).await?, "uncordoned")
    };
    let before = if turned == Turned::Already { " already" } else { "" };
    context.print_message(&format!("{} is {word}{before}", node.name));
    Ok(())
}

async fn drain(node: &NodeArgs, context: &Context) -> Result<(), ActionError> {
    let operator = operator_with_nodes(context).await?;
    let table = context.output(Output::Table) == Output::Table;
    let (mut last, mut named) = (String::new(), BTreeSet::new());
    let print_progress = |progress: &Progress| {
        // the decision to run the command only means that the drain is over
        let reason = progress.reason.as_ref().filter(|r| !matches!(r, Why::Working { .. }));
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let line = format!("{}/{} pods gone{reason}", progress.pods_gone, progress.pods_at_start);
        let blocked = progress.blockers.iter().filter(|b| b.why != PodHold::Leaving);
        let blocked: BTreeSet<String> = blocked.map(|b| format!("  {}: {}", b.pod, b.why)).collect();
        // each pod is printed once, and again if its blocker changes
        let new: Vec<&String> = blocked.difference(&named).collect();
        if table && (line != last || !new.is_empty()) {
            let at = jiff::Timestamp::now().strftime("%H:%M:%S");
            let mut lines = Lines::default();
            lines.line(format_args!("{at} {line}"));
            for line in &new {
                lines.line(line);
            }
            let _ = context.out.text(lines);
        }
        (last, named) = (line, blocked);
    };
    let draining = operator.drain_node(&node.name, node.reason.get(), print_progress);
    let progress = tokio::select! {
        ended = Box::pin(draining) => ended?,
        _ = tokio::signal::ctrl_c() => {
            return Err(ActionError::failed(format!(
                "interrupted: {0} stays cordoned, evicted pods are gone; undo with `cketerm nodes uncordon {0}`",
                node.name
            )));
        }
    };
    if !table {
        return context.out.value(&progress, context.output(Output::Json));
    }
    context.out.line(&format!("{} is drained and stays cordoned", node.name))
}

async fn print(context: &Context) -> Result<(), ActionError> {
    let kube = context.kube("nodes list").await?;
    let store = context.store().await?;
    let (view, rows) = tokio::join!(store.read_view(), kube.nodes());
    let rows = rows.map_err(|e| ActionError::failed(format!("nodes list: {e}")))?;
    let cordons = cordoned_by(&kube, &rows).await;
    let listed = list(&view?, rows.into_iter().zip(cordons).collect());
    match context.output(Output::Table) {
        Output::Table => {
            let word = |flag: Option<bool>, yes: &str, no: &str| match flag {
                Some(true) => yes.to_owned(),
                Some(false) => no.to_owned(),
                None => "-".to_owned(),
            };
            let rows: Vec<Vec<String>> = listed
                .into_iter()
                .map(|n| {
                    let role = if n.control_plane { "control-plane" } else { "worker" };
                    vec![
                        n.name.to_string(),
                        n.address.to_string(),
                        if n.member { role.to_owned() } else { "not a member".to_owned() },
                        word(n.ready, "Ready", "NotReady"),
                        word(n.schedulable, "yes", "cordoned"),
                        n.cordoned_by.map_or_else(|| "-".to_owned(), |by| shown(&by)),
                        n.kubelet.unwrap_or_else(|| "-".to_owned()),
                        n.entries.join(","),
                    ]
                })
                .collect();
            let header = ["Name", "Address", "Role", "Ready", "Schedulable", "Cordoned by", "Kubelet", "Entries"];
            context.out.text(columns(&header, &rows))
        }
        form => context.out.value(&listed, form),
    }
}

/// A Node with the author of its cordon.
type Row = (NodeRow, Option<CordonedBy>);

fn shown(cordon: &CordonedBy) -> String {
    match cordon.since {
        Some(since) => format!("{} since {}", cordon.by, since.strftime("%F %H:%M")),
        None => cordon.by.clone(),
    }
}

fn list(view: &StoreView, rows: Vec<Row>) -> Vec<Listed> {
    let empty = Definition::default();
    let cluster = &view.definition().unwrap_or(&empty).cluster;
    let mut entries: BTreeMap<Address, Vec<String>> = BTreeMap::new();
    for (index, entry) in &view.reboots.entries {
        if let Some(entry) = entry.get() {
            entries.entry(entry.node.clone()).or_default().push(format!("reboots/{index}"));
        }
    }
    for (index, entry) in &view.repairs.entries {
        if let Some(entry) = entry.get().filter(|e| e.unfinished()) {
            entries.entry(entry.address.clone()).or_default().push(format!("repairs/{index}"));
        }
    }
    for (index, entry) in &view.maintenance.entries {
        if let Some(entry) = entry.get() {
            entries.entry(entry.node.clone()).or_default().push(format!("maintenance/{index}"));
        }
    }
    let mut rows: BTreeMap<NodeName, Row> = rows.into_iter().map(|row| (row.0.name.clone(), row)).collect();
    let one = |name: NodeName, address: Address, plane: bool, member: bool, row: Option<Row>| {
        let (row, cordoned_by) = row.unzip();
        Listed {
            entries: entries.get(&address).cloned().unwrap_or_default(),
            name,
            address,
            control_plane: plane,
            member,
            ready: row.as_ref().map(|r| r.ready),
            schedulable: row.as_ref().map(|r| !r.unschedulable),
            cordoned_by: cordoned_by.flatten(),
            kubelet: row.map(|r| r.kubelet),
        }
    };
    let mut listed: Vec<Listed> = Vec::new();
    let mut named = BTreeSet::new();
    for node in &cluster.nodes {
        let name = node.node_name();
        let row = rows.remove(&name);
        named.insert(name.clone());
        listed.push(one(name, node.address.clone(), node.control_plane, true, row));
    }
    for (name, row) in rows {
        let address = internal_address(&row.0);
        let plane = control_plane(&row.0);
        listed.push(one(name, address, plane, false, Some(row)));
    }
    listed
}
