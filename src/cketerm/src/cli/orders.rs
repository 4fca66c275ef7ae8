//! Orders for the entries of either queue, and the end of their backoffs.

use cketerm_actions::ActionError;
use cketerm_model::{
    acceptance::OperatorCommand,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind, format_indexes},
};
use clap::Args;

use super::{Context, options::Reason};

/// An order for one entry.
#[derive(Args, Debug)]
pub struct Order {
    /// Index of the entry
    pub index: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reason: Reason,
}

/// Stores an order for an entry of either queue.
pub async fn order(entry: EntryId, verb: Verb, reason: &Reason, context: &Context) -> Result<(), ActionError> {
    // Holding back never queries Kubernetes; starting work does.
    let operator = match verb {
        Verb::Retry | Verb::Done | Verb::Force => context.operator_with_kube().await?,
        Verb::Hold | Verb::Unhold | Verb::Uncordon => context.operator().await?,
    };
    Box::pin(operator.order(entry, verb, None, reason.get())).await?;
    if let Some(note) = operator.acceptance_note(OperatorCommand::from(verb)).await {
        context.print_message(&note);
    }
    if verb == Verb::Done
        && let Some(note) = operator.not_ready(entry).await
    {
        context.print_message(&note);
    }
    Ok(())
}

/// Ends the backoff of one entry or of all entries of a queue, and prints their indexes.
pub async fn reset_backoff(
    queue: QueueKind,
    index: Option<u64>,
    reason: &Reason,
    context: &Context,
) -> Result<(), ActionError> {
    let reset = context.operator().await?.reset_backoff(queue, index, reason.get()).await?;
    let what = if reset.is_empty() { "none had a backoff".to_owned() } else { format_indexes(&reset) };
    context.print_message(&format!("backoff ended: {what}"));
    Ok(())
}
