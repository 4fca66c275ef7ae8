//! `rq add`: addresses from a file, nodes by their attributes, or both.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::{collections::BTreeSet, path::PathBuf};

use cketerm_actions::{ActionError, NodeSelection, Operator};
use cketerm_model::{names::Address, selector::Selector};
use clap::Args;

use super::{
    Context,
    input_file::read,
    options::{Output, Reason},
    output::join,
    queue_plan,
};

/// Nodes to add, and options of the entries.
#[derive(Args, Debug)]
pub struct AddArgs {
    /// File of node addresses (- = standard input); with selectors, only those that match
    pub file: Option<PathBuf>,
    /// Nodes of this role (label cke.cybozu.com/role)
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// Nodes in this rack (label cke.cybozu.com/rack)
    #[arg(long, value_name = "NUMBER")]
    pub rack: Option<u64>,
    /// Nodes with these labels, as kubectl writes them: a=1,b!=2,c in (x,y),d,!e
    #[arg(long, value_name = "LABELS")]
    pub selector: Option<Selector>,
    /// Print what would be queued and how it would be drained; writes nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reason: Reason,
}

/// Queues the selected nodes.
pub async fn run(args: &AddArgs, context: &Context) -> Result<(), ActionError> {
    let listed = args.file.as_deref().map(read).transpose()?;
    let listed: Option<Vec<Address>> = listed.map(|text| text.split_whitespace().map(Address::new).collect());
    let operator = context.operator_with_kube().await?;
    let addresses = addresses(args, listed, &operator).await?;
    if args.dry_run {
        return Box::pin(dry_run(&addresses, &operator, context)).await;
    }
    let added = operator.add_reboots(&addresses, args.reason.get()).await?;
    for note in &added.notes {
        context.print_message(note);
    }
    let which =
        if added.indexes.is_empty() { "nothing: no address was given".to_owned() } else { join(&added.indexes) };
    context.print_message(&format!("added: {which}"));
    Ok(())
}

/// Returns the addresses of the file, those with the attributes, or (with both) the addresses in both sets.
async fn addresses(
    args: &AddArgs,
    listed: Option<Vec<Address>>,
    operator: &Operator,
) -> Result<Vec<Address>, ActionError> {
    let what = NodeSelection { role: args.role.clone(), rack: args.rack, selector: args.selector.clone() };
    match listed {
        Some(listed) if what.is_empty() => Ok(listed),
        None if what.is_empty() => Err(ActionError::misused(
            "rq add needs a file of addresses (- = standard input), or --role, --rack or --selector",
        )),
        None => operator.choose(&what).await,
        Some(listed) => {
            // an address that belongs to no member is an error here too
            operator.check_reboots(&listed).await?;
            let chosen: BTreeSet<Address> = operator.choose(&what).await?.into_iter().collect();
            Ok(listed.into_iter().filter(|address| chosen.contains(address)).collect())
        }
    }
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
