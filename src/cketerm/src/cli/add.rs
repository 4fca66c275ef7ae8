//! `rq add`: nodes by name or address, from a file, by their attributes, or from a file and by attributes.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::{collections::BTreeSet, path::Path};

use cketerm_actions::{ActionError, AddCheck, NodeSelection, Operator};
use cketerm_model::{entry::format_indexes, names::Address, selector::Selector};
use clap::Args;

use super::{
    Context,
    input_file::read,
    needed,
    options::{Output, Reason},
    queue_plan,
};

/// Nodes to add, and options of the entries.
#[derive(Args, Debug)]
pub struct AddArgs {
    /// Nodes by name or address, or rack=3, role=cs, LABEL=VALUE (all must match); or one file of them (- = standard
    /// input)
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Nodes of this role (label cke.cybozu.com/role)
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// Nodes in this rack (label cke.cybozu.com/rack)
    #[arg(long, value_name = "NUMBER")]
    pub rack: Option<u64>,
    /// Nodes with these labels, as kubectl writes them: a=1,b!=2,c in (x,y),d,!e
    #[arg(long, value_name = "LABELS")]
    pub selector: Option<Selector>,
    /// Nodes that need a reboot, as rq needed lists them, or those of one cause; one batch per cause
    #[arg(
        long,
        value_name = "CAUSE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["nodes", "role", "rack", "selector"]
    )]
    pub needed: Option<String>,
    /// Print what would be queued and how it would be drained; writes nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reason: Reason,
}

/// Queues the selected nodes.
pub async fn run(args: &AddArgs, context: &Context) -> Result<(), ActionError> {
    let operator = context.operator_with_kube().await?;
    if let Some(cause) = &args.needed {
        return Box::pin(add_needed(args, cause, &operator, context)).await;
    }
    let addresses = addresses(args, &operator).await?;
    let check = Box::pin(operator.reboot_warnings(&addresses)).await;
    check.lines.iter().for_each(|warning| context.print_message(warning));
    if args.dry_run {
        return Box::pin(dry_run(&addresses, &operator, context)).await;
    }
    add(&addresses, args.reason.get(), &check, &operator, context).await
}

/// Queues the machines that need a reboot, one batch per cause, which is the reason unless one is given.
async fn add_needed(args: &AddArgs, cause: &str, operator: &Operator, context: &Context) -> Result<(), ActionError> {
    let by_cause = needed::proposed(cause, operator).await?;
    let all: Vec<Address> = by_cause.values().flatten().cloned().collect();
    let check = Box::pin(operator.reboot_warnings(&all)).await;
    check.lines.iter().for_each(|warning| context.print_message(warning));
    if args.dry_run {
        return Box::pin(dry_run(&all, operator, context)).await;
    }
    for (cause, addresses) in &by_cause {
        context.print_message(&format!("{cause}: {}", addresses.join(", ")));
        add(addresses, args.reason.get().or(Some(cause.as_str())), &check, operator, context).await?;
    }
    Ok(())
}

async fn add(
    addresses: &[Address],
    reason: Option<&str>,
    check: &AddCheck,
    operator: &Operator,
    context: &Context,
) -> Result<(), ActionError> {
    let added = operator.add_checked_reboots(addresses, reason, check.uids.as_ref()).await?;
    for note in &added.notes {
        context.print_message(note);
    }
    let which =
        if added.indexes.is_empty() { "nothing: no node was given".to_owned() } else { format_indexes(&added.indexes) };
    context.print_message(&format!("added: {which}"));
    if let Some(batch) = added.batch {
        context.print_message(&format!("batch: {batch}"));
    }
    Ok(())
}

/// Returns the addresses of the named nodes, those with the attributes, or (with both) the addresses in both sets.
async fn addresses(args: &AddArgs, operator: &Operator) -> Result<Vec<Address>, ActionError> {
    let mut what = NodeSelection { role: args.role.clone(), rack: args.rack, selector: args.selector.clone() };
    let mut named = None;
    match NodeSelection::parse(&args.nodes) {
        Some(selection) if what.is_empty() => what = selection?,
        Some(_) => {
            return Err(ActionError::misused("rq add: give attributes as words or as options, not both"));
        }
        None if args.nodes.is_empty() => {}
        None => {
            // an address that belongs to no member is an error also where the attributes would leave it out
            named = Some(operator.resolve(&words(&args.nodes, operator).await?).await?);
        }
    }
    match named {
        Some(named) if what.is_empty() => Ok(named),
        None if what.is_empty() => Err(ActionError::misused(
            "rq add needs nodes: names, addresses, rack=3, a file of them (- = standard input), or --role, --rack, \
             --selector or --needed",
        )),
        None => operator.choose(&what).await,
        Some(named) => {
            let chosen: BTreeSet<Address> = operator.choose(&what).await?.into_iter().collect();
            Ok(named.into_iter().filter(|address| chosen.contains(address)).collect())
        }
    }
}

/// Returns the words of the file, if a single argument names one, or the arguments.
async fn words(nodes: &[String], operator: &Operator) -> Result<Vec<String>, ActionError> {
    if let Some(mixed) = nodes.iter().find(|word| word.contains('=') && !Path::new(word).exists()) {
        return Err(ActionError::misused(format!(
            "rq add {mixed}: give names and addresses, or attributes such as rack=3, not both"
        )));
    }
    let [single] = nodes else { return Ok(nodes.to_vec()) };
    let file = Path::new(single);
    if single != "-" && !single.contains('/') && !file.exists() {
        return Ok(nodes.to_vec());
    }
    if single != "-" && !single.contains('/') && operator.resolve(&[single]).await.is_ok() {
        return Err(ActionError::misused(format!(
            "{single} is a machine and a file in this folder: write ./{single} for the file, or the machine's address"
        )));
    }
    Ok(read(file)?.split_whitespace().map(str::to_owned).collect())
}

async fn dry_run(addresses: &[Address], operator: &Operator, context: &Context) -> Result<(), ActionError> {
    let (_, notes) = operator.check_reboots(addresses).await?;
    for note in &notes {
        context.print_message(note);
    }
    context.print_message(&format!("dry run: {} nodes would be queued, nothing was written", addresses.len()));
    if addresses.is_empty() {
        return Ok(());
    }
    if operator.kube.is_some() {
        return Box::pin(queue_plan::reboots(addresses, context)).await;
    }
    context.print_message("no preview of the drains: Kubernetes is not configured (--kubeconfig FILE)");
    match context.output(Output::Table) {
        Output::Table => addresses.iter().try_for_each(|address| context.out.line(address)),
        form => context.out.value(&addresses, form),
    }
}
