//! Confirmation of cancels and deletions while CKE leads: `--wait` of `rq cancel`, `rq cancel-all` and the deletions of
//! `repair-queue`.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use cketerm_actions::{ActionError, CONFIRM_TIMEOUT, Operator};
use cketerm_model::entry::{QueueKind, format_indexes};
use clap::{ArgAction, Args};

use super::{Context, options::Reason};

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

/// Waits until CKE has removed these cancelled or deleted entries. Under another leader there is nothing to wait for. Returns an
/// error that names the entries that it has not removed in time.
pub async fn confirm(
    operator: &Operator,
    queue: QueueKind,
    indexes: &[u64],
    wait: Wait,
    reason: &Reason,
    context: &Context,
) -> Result<(), ActionError> {
    if indexes.is_empty() {
        return Ok(());
    }
    let Some(leader) = operator.leader_that_loses_cancels().await? else { return Ok(()) };
    let (command, noun, done) = match queue {
        QueueKind::Reboot => ("rq", "cancel", "cancelled"),
        QueueKind::Repair => ("repair-queue", "deletion", "deleted"),
        QueueKind::Maintenance => ("maintenance", "release", "released"),
    };
    if !wait.wait {
        context.print_message(&format!(
            "note: {leader}: not confirmed; `cketerm {command} list` shows a {done} entry until CKE has removed it"
        ));
        return Ok(());
    }
    let seconds = CONFIRM_TIMEOUT.as_secs();
    context.print_message(&format!("note: {leader}: waiting up to {seconds} s until it has removed the entries"));
    let confirmation = Box::pin(operator.confirm_cancels(queue, indexes, reason.get())).await?;
    if confirmation.repeated > 0 {
        context.print_message(&format!("note: repeated the {noun}: CKE's write had lost it"));
    }
    if confirmation.unconfirmed.is_empty() {
        context.print_message(&format!("confirmed: CKE has removed {}", format_indexes(indexes)));
        return Ok(());
    }
    Err(ActionError::failed(format!(
        "unconfirmed: {}: the {noun} is stored, but after {seconds} s the entries are still there ({leader}); check \
         CKE with `cketerm leader` and the entries with `cketerm {command} list`. A running console or daemon of \
         cketerm repeats the {noun} if CKE's write loses it; without one, run the command again",
        format_indexes(&confirmation.unconfirmed)
    )))
}
