//! `maintenance`: Nodes that are drained and kept, without a reboot.

use cketerm_actions::{ActionError, Operator};
use cketerm_model::{
    acceptance::OperatorCommand,
    clock::Clock,
    cluster::Member,
    entry::{EntryId, Stored, format_indexes},
    maintenance::MaintenanceEntry,
    names::{Address, NodeName},
    reason::Reason as WaitReason,
    stored::view::StoreView,
    time::ahead_in,
};
use clap::{Args, Subcommand};
use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;

use super::{
    Context,
    options::{Output, Reason},
    output::columns,
    why,
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum MaintenanceCommand {
    /// Drain nodes and keep them cordoned, without a reboot, until they are released or the time is over
    Add(AddArgs),
    /// List the nodes in maintenance, and those that wait for it
    List,
    /// Move the end of maintenances
    Extend(AddArgs),
    /// End the maintenance of nodes: they are uncordoned once they are Ready
    Release {
        /// Nodes by name or address, or maintenance/INDEX
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
        #[command(flatten)]
        #[allow(missing_docs)]
        reason: Reason,
    },
    /// Print why a maintenance waits
    Why {
        /// Index of the maintenance
        index: u64,
    },
}

/// Arguments of `maintenance add` and `extend`.
#[derive(Args, Debug)]
pub struct AddArgs {
    /// Nodes by name or address; with extend also maintenance/INDEX
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// End: 90m, 12h, 7d; 2026-11-28T10:00:00Z, with any offset; or "tomorrow 08:00" in the windows' time zone
    #[arg(long, value_name = "TIME")]
    until: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    reason: Reason,
}

/// Runs one of the subcommands.
pub async fn run(command: MaintenanceCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        MaintenanceCommand::Add(args) => Box::pin(add(&args, context)).await,
        MaintenanceCommand::Extend(args) => Box::pin(extend(&args, context)).await,
        MaintenanceCommand::List => list(context).await,
        MaintenanceCommand::Release { nodes, reason } => Box::pin(release(&nodes, &reason, context)).await,
        MaintenanceCommand::Why { index } => why::run(EntryId::maintenance(index), context).await,
    }
}

async fn add(args: &AddArgs, context: &Context) -> Result<(), ActionError> {
    let operator = context.operator_with_kube().await?;
    let until = end(args, &operator).await?;
    let addresses = operator.resolve(&args.nodes).await?;
    let added = Box::pin(operator.add_maintenance(&addresses, until, args.reason.get())).await?;
    for note in &added.notes {
        context.print_message(note);
    }
    context.print_message(&format!("maintenance {}: until {until}", format_indexes(&added.indexes)));
    print_acceptance(&operator, OperatorCommand::Maintain, context).await;
    Ok(())
}

async fn end(args: &AddArgs, operator: &Operator) -> Result<Timestamp, ActionError> {
    let view = operator.store.read_view().await?;
    let zone = view.policy().time_zone().unwrap_or(TimeZone::UTC);
    let until = ahead_in(&args.until, operator.store.clock().wall(), &zone);
    until.map_err(|why| ActionError::misused(format!("--until {why}")))
}

async fn extend(args: &AddArgs, context: &Context) -> Result<(), ActionError> {
    let operator = context.operator().await?;
    let until = end(args, &operator).await?;
    let extended = operator.extend_maintenance(&args.nodes, until, args.reason.get()).await?;
    context.print_message(&format!("maintenance {}: until {until}", format_indexes(&extended)));
    Ok(())
}

async fn release(nodes: &[String], reason: &Reason, context: &Context) -> Result<(), ActionError> {
    let operator = context.operator().await?;
    let released = operator.release_maintenance(nodes, reason.get()).await?;
    let which = format!("maintenance {} released ({})", format_indexes(&released), nodes.join(", "));
    match operator.release_note().await {
        Some(note) => context.print_message(&format!("{which}; {note}")),
        None => context.print_message(&format!("{which}: the leader uncordons each node once it is Ready")),
    }
    Ok(())
}

async fn print_acceptance(operator: &Operator, command: OperatorCommand, context: &Context) {
    if let Some(note) = operator.acceptance_note(command).await {
        context.print_message(&note);
    }
}

/// One row of the list.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    entry: &'a MaintenanceEntry,
    /// Name of the Node, if the definition has the machine.
    name: Option<&'a NodeName>,
    /// Operator who asked for it.
    who: Option<String>,
    /// Reason that was given.
    reason: Option<&'a str>,
    /// The reason for its wait, or its fault.
    waits: Option<String>,
}

async fn list(context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let entries = view.maintenance.entries.values().filter_map(Stored::get);
    let rows: Vec<Row<'_>> = entries.map(|entry| row(entry, &view, store.clock())).collect();
    match context.output(Output::Table) {
        Output::Table => {
            let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
            let titles = ["Index", "Node", "Name", "Status", "Until", "Who", "Reason", "Waits for"];
            context.out.text(columns(&titles, &cells))?;
        }
        form => context.out.value(&rows, form)?,
    }
    let broken: Vec<String> = view
        .maintenance
        .entries
        .iter()
        .filter_map(|(index, stored)| {
            let (id, why) = (EntryId::maintenance(*index), stored.value.as_ref().err()?);
            Some(format!("{id} cannot be read: {why}; fix {} with etcdctl, or remove it", stored.key))
        })
        .collect();
    if broken.is_empty() { Ok(()) } else { Err(ActionError::unreadable(broken.join("\n"))) }
}

fn row<'a>(entry: &'a MaintenanceEntry, view: &'a StoreView, clock: &Clock) -> Row<'a> {
    let id = EntryId::maintenance(entry.index);
    let request = view.requests.get(&id).and_then(Stored::get);
    Row {
        entry,
        name: name_of(view, &entry.node),
        who: request.map(|request| request.who.to_string()),
        reason: request.and_then(|request| request.reason.as_deref()),
        waits: Some(why::reason(view, id, clock))
            .filter(|why| !matches!(why, WaitReason::InMaintenance { .. }))
            .map(|why| why.to_string()),
    }
}

fn name_of<'a>(view: &'a StoreView, address: &Address) -> Option<&'a NodeName> {
    let definition = view.definition()?;
    definition.members.by_address(&definition.cluster, address).map(Member::node_name)
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let status = if row.entry.released.is_some() { "released".to_owned() } else { row.entry.status.to_string() };
    vec![
        row.entry.index.to_string(),
        row.entry.node.to_string(),
        row.name.map(ToString::to_string).unwrap_or_default(),
        status,
        shown(row.entry.until),
        row.who.clone().unwrap_or_default(),
        row.reason.unwrap_or_default().to_owned(),
        row.waits.clone().unwrap_or_default(),
    ]
}

fn shown(at: Timestamp) -> String {
    cketerm_model::time::whole_seconds(at).to_string()
}
