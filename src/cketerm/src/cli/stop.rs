//! `stop`, `resume`: disable and enable both queues at once, under every leader.

use cketerm_actions::{ActionError, resumed, stopped};

use super::{Context, options::Reason};

/// Disables both queues.
pub async fn stop(reason: &Reason, context: &Context) -> Result<(), ActionError> {
    let done = context.operator().await?.stop(reason.get()).await?;
    context.print_message(&stopped(&done, "cketerm resume"));
    Ok(())
}

/// Enables what the last stop disabled.
pub async fn resume(reason: &Reason, context: &Context) -> Result<(), ActionError> {
    let done = context.operator_with_kube().await?.resume(reason.get()).await?;
    context.print_message(&resumed(done.as_ref()));
    Ok(())
}
