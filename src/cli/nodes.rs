//! `nodes`.

use std::collections::{BTreeMap, BTreeSet};

use clap::Subcommand;
use serde::Serialize;

use super::{Context, args::Output, output::columns};
use crate::{
    actions::ActionError,
    model::kube::NodeRow,
    store::view::{Definition, StoreView},
};

/// The words.
#[derive(Debug, Subcommand)]
pub enum NodesWord {
    /// Print the definition's nodes and Kubernetes' Nodes
    List,
}

/// A node as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    address: String,
    control_plane: bool,
    /// Whether the definition names it.
    member: bool,
    /// Kubernetes' word: `None` = no such Node.
    ready: Option<bool>,
    schedulable: Option<bool>,
    kubelet: Option<String>,
    /// The entries of both queues that name it.
    entries: Vec<String>,
}

/// Runs one of them.
pub async fn run(word: NodesWord, context: &Context) -> Result<(), ActionError> {
    let NodesWord::List = word;
    let kube = context.kube("nodes list").await?;
    let store = context.store().await?;
    let (view, rows) = tokio::join!(store.read_view(), kube.nodes());
    let rows = rows.map_err(|e| ActionError::failed(format!("nodes list: {e}")))?;
    let listed = list(&view?, rows);
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
                        n.name,
                        n.address,
                        if n.member { role.to_owned() } else { "not a member".to_owned() },
                        word(n.ready, "Ready", "NotReady"),
                        word(n.schedulable, "yes", "cordoned"),
                        n.kubelet.unwrap_or_else(|| "-".to_owned()),
                        n.entries.join(","),
                    ]
                })
                .collect();
            let header = ["Name", "Address", "Role", "Ready", "Schedulable", "Kubelet", "Entries"];
            context.out.text(&columns(&header, &rows))
        }
        form => context.out.value(&listed, form),
    }
}

fn list(view: &StoreView, rows: Vec<NodeRow>) -> Vec<Listed> {
    let empty = Definition::default();
    let cluster = &view.definition().unwrap_or(&empty).cluster;
    let mut entries: BTreeMap<String, Vec<String>> = BTreeMap::new();
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
    let mut rows: BTreeMap<String, NodeRow> = rows.into_iter().map(|r| (r.name.clone(), r)).collect();
    let one = |name: String, address: String, plane: bool, member: bool, row: Option<NodeRow>| Listed {
        entries: entries.get(&address).cloned().unwrap_or_default(),
        name,
        address,
        control_plane: plane,
        member,
        ready: row.as_ref().map(|r| r.ready),
        schedulable: row.as_ref().map(|r| !r.unschedulable),
        kubelet: row.map(|r| r.kubelet),
    };
    let mut listed: Vec<Listed> = Vec::new();
    let mut named = BTreeSet::new();
    for node in &cluster.nodes {
        let name = node.node_name().to_owned();
        let row = rows.remove(&name);
        named.insert(name.clone());
        listed.push(one(name, node.address.clone(), node.control_plane, true, row));
    }
    for (name, row) in rows {
        let address = internal_address(&row);
        let plane = control_plane(&row);
        listed.push(one(name, address, plane, false, Some(row)));
    }
    listed
}

/// The first address that is an IP address.
pub(super) fn internal_address(row: &NodeRow) -> String {
    row.addresses.iter().find(|a| a.parse::<std::net::IpAddr>().is_ok()).cloned().unwrap_or_default()
}

/// Whether the Node's role label says so.
pub(super) fn control_plane(row: &NodeRow) -> bool {
    let role = |key: &str| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned);
    row.shown_labels.iter().filter_map(|(key, _)| role(key)).any(|r| matches!(r.as_str(), "control-plane" | "master"))
}
