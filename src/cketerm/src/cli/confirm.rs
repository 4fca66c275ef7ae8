//! Confirmation of cancels while CKE leads: `--wait` of `rq cancel` and `rq cancel-all`.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use cketerm_actions::{ActionError, CONFIRM_TIMEOUT, Operator};
use clap::{ArgAction, Args};

use super::{Context, options::Reason, output::join};

/// Whether to wait.
#[derive(Args, Clone, Copy, Debug)]
pub struct Wait {
    /// While CKE leads, wait up to 30 s until it has removed the entries; exit 1 if it has not
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    wait: bool,
}

/// Waits until CKE has removed these cancelled entries. Under another leader there is nothing to wait for. Returns an
/// error that names the entries that it has not removed in time.
pub async fn confirm(
    operator: &Operator,
    indexes: &[u64],
    wait: Wait,
    reason: &Reason,
    context: &Context,
) -> Result<(), ActionError> {
    if indexes.is_empty() {
        return Ok(());
    }
    let Some(leader) = operator.leader_that_loses_cancels().await? else { return Ok(()) };
    if !wait.wait {
        context.print_message(&format!(
            "note: {leader}: not confirmed; `cketerm rq list` shows a cancelled entry until CKE has removed it"
        ));
        return Ok(());
    }
    let seconds = CONFIRM_TIMEOUT.as_secs();
    context.print_message(&format!("note: {leader}: waiting up to {seconds} s until it has removed the entries"));
    let confirmation = Box::pin(operator.confirm_cancels(indexes, reason.get())).await?;
    if confirmation.repeated > 0 {
        context.print_message("note: repeated the cancel: CKE's write had lost it");
    }
    if confirmation.unconfirmed.is_empty() {
        context.print_message(&format!("confirmed: CKE has removed {}", join(indexes)));
        return Ok(());
    }
    Err(ActionError::failed(format!(
        "unconfirmed: {}: the cancel is stored, but after {seconds} s the entries are still there ({leader}); check CKE \
         with `cketerm leader` and the entries with `cketerm rq list`. A running console or daemon of cketerm repeats \
         the cancel if CKE's write loses it; without one, run the command again",
        join(&confirmation.unconfirmed)
    )))
}
