//! Batches of either queue: `batches`, `pause`, `resume`, and the cancel of a whole batch.

use cketerm_actions::{ActionError, BatchRow};
use cketerm_model::{
    acceptance::OperatorCommand,
    batch::{BatchId, BatchState, Paused},
    cketerm_records::Who,
    entry::QueueKind,
};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::{
    Context,
    options::{Output, Reason},
    output::{columns, join},
};

/// A batch, and the reason of what is done to it.
#[derive(Args, Debug)]
pub struct BatchArgs {
    /// Id of the batch, as `batches` prints it
    pub batch: BatchId,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reason: Reason,
}

const COLUMNS: [&str; 9] = ["Batch", "State", "Done", "InWork", "Queued", "Failed", "At", "Who", "Cause"];

/// A batch as `-o json` prints it.
#[derive(Serialize)]
struct Shown<'a> {
    id: BatchId,
    state: BatchState,
    who: &'a Who,
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    asked: u64,
    added: u64,
    queued: u64,
    in_work: u64,
    done: u64,
    failed: u64,
    withdrawn: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<&'a Paused>,
}

impl<'a> From<&'a BatchRow> for Shown<'a> {
    fn from(row: &'a BatchRow) -> Self {
        let (batch, totals) = (&row.batch, &row.totals);
        Self {
            id: row.id,
            state: row.state(),
            who: &batch.who,
            at: batch.at,
            reason: batch.reason.as_deref(),
            asked: batch.asked,
            added: batch.added,
            queued: totals.queued,
            in_work: totals.in_work,
            done: totals.done(),
            failed: totals.ends.failed,
            withdrawn: totals.ends.withdrawn,
            paused: batch.paused.as_ref(),
        }
    }
}

/// Returns the cells of a batch.
fn cells(row: &BatchRow) -> Vec<String> {
    let (batch, totals) = (&row.batch, &row.totals);
    let interrupted = (batch.added < batch.asked).then(|| format!("only {} of {} added", batch.added, batch.asked));
    let paused = batch.paused.as_ref().filter(|_| row.state() == BatchState::Paused).map(|paused| {
        let why = paused.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("paused by {}{why}", paused.who)
    });
    let cause = [batch.reason.clone(), interrupted, paused].into_iter().flatten().collect::<Vec<_>>().join("; ");
    vec![
        row.id.to_string(),
        row.state().to_string(),
        format!("{}/{}", totals.done(), totals.all()),
        totals.in_work.to_string(),
        totals.queued.to_string(),
        totals.ends.failed.to_string(),
        cketerm_model::time::whole_seconds(batch.at).to_string(),
        batch.who.to_string(),
        cause,
    ]
}

/// Prints the batches of a queue, newest first.
pub async fn list(queue: QueueKind, context: &Context) -> Result<(), ActionError> {
    let view = context.store().await?.read_view().await?;
    let rows = BatchRow::all(&view, queue);
    match context.output(Output::Table) {
        Output::Table => context.out.text(columns(&COLUMNS, &rows.iter().map(cells).collect::<Vec<_>>()))?,
        form => context.out.value(&rows.iter().map(Shown::from).collect::<Vec<_>>(), form)?,
    }
    let broken: Vec<&str> =
        view.batches.values().filter_map(|stored| stored.value.as_ref().err()).map(String::as_str).collect();
    if broken.is_empty() { Ok(()) } else { Err(ActionError::unreadable(broken.join("\n"))) }
}

/// Pauses a batch.
pub async fn pause(queue: QueueKind, args: &BatchArgs, context: &Context) -> Result<(), ActionError> {
    let operator = context.operator().await?;
    Box::pin(operator.pause_batch(queue, args.batch, args.reason.get())).await?;
    if let Some(note) = operator.acceptance_note(OperatorCommand::PauseBatch).await {
        context.print_message(&note);
    }
    context.print_message(&format!("paused: {}; entries in work finish", args.batch));
    Ok(())
}

/// Ends the pause of a batch.
pub async fn resume(queue: QueueKind, args: &BatchArgs, context: &Context) -> Result<(), ActionError> {
    Box::pin(context.operator().await?.resume_batch(queue, args.batch, args.reason.get())).await?;
    context.print_message(&format!("resumed: {}", args.batch));
    Ok(())
}

/// Cancels the unfinished entries of a batch.
pub async fn cancel(queue: QueueKind, id: BatchId, reason: &Reason, context: &Context) -> Result<(), ActionError> {
    let cancelled = Box::pin(context.operator().await?.cancel_batch(queue, id, reason.get())).await?;
    let which = if cancelled.is_empty() { format!("nothing: batch {id} has no open entry") } else { join(&cancelled) };
    let done = match queue {
        QueueKind::Reboot => "cancelled",
        QueueKind::Repair => "deleted",
    };
    context.print_message(&format!("{done}: {which}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use cketerm_model::batch::{Batch, BatchEnds, BatchTotals};

    use super::*;

    #[test]
    fn a_row_shows_progress_cause_an_interrupted_enqueue_and_the_pause() {
        let at: Timestamp = "2026-11-24T10:00:00.5Z".parse().unwrap();
        let who = Who { user: "alice".to_owned(), host: "ops1".to_owned(), ssh_client: None };
        let reason = Some("kernel 6.6.74".to_owned());
        let batch = Batch { added: 60, ..Batch::new(QueueKind::Reboot, who.clone(), at, reason, 62) };
        let totals = BatchTotals {
            queued: 20,
            in_work: 4,
            ends: BatchEnds { done: 34, failed: 0, withdrawn: 2 },
            unrecorded: 0,
        };
        let mut row = BatchRow { id: BatchId::at(at), batch, totals };
        let shown = cells(&row).join(" | ");
        assert!(shown.ends_with("| running | 34/58 | 4 | 20 | 0 | 2026-11-24T10:00:00Z | alice@ops1 | kernel 6.6.74; only 60 of 62 added"), "{shown}");
        row.batch.paused = Some(Paused { who, at, reason: Some("budget".to_owned()) });
        let shown = cells(&row);
        assert_eq!(
            (shown[1].as_str(), shown[8].ends_with("paused by alice@ops1: budget")),
            ("paused", true),
            "{shown:?}"
        );
        row.totals = BatchTotals { queued: 0, in_work: 0, ..row.totals };
        assert_eq!(cells(&row)[1], "done");
    }
}
