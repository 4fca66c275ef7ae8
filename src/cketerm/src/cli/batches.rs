//! Batches of either queue: `batches`, `pause`, `resume`, and the cancel of a whole batch.

use std::collections::BTreeMap;

use cketerm_actions::{
    ActionError, BatchRow, Operator,
    estimate::{Basis, usual_times},
};
use cketerm_clients::store::Store;
use cketerm_model::{
    acceptance::OperatorCommand,
    batch::{BatchId, BatchState, Cancelled, Paused},
    cketerm_records::Who,
    entry::{QueueKind, format_indexes},
    kube::KubeView,
    stored::view::StoreView,
};
use cketerm_rules::{
    batch_state::ShownState,
    eta::{Answer, Estimate, Interval, text::Detail},
};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::{
    Context,
    options::{Output, Reason},
    output::columns,
    restrictions::moment,
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

const COLUMNS: [&str; 10] = ["Batch", "State", "Done", "InWork", "Queued", "Failed", "End", "At", "Who", "Cause"];

/// Estimated ends of open batches.
type Ends = BTreeMap<BatchId, Answer>;

/// An estimated end as `-o json` prints it: nine of ten times it is later than `low`, and as often earlier than `high`.
#[derive(Serialize)]
struct ShownEstimate {
    /// Early end.
    low: Timestamp,
    /// Middle of the estimate.
    likely: Timestamp,
    /// Late end.
    high: Timestamp,
    /// The same if no machine gets stuck from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    if_none_sticks: Option<ShownInterval>,
}

/// Times without stuck machines.
#[derive(Serialize)]
struct ShownInterval {
    /// Early end.
    low: Timestamp,
    /// Middle of the estimate.
    likely: Timestamp,
    /// Late end.
    high: Timestamp,
}

impl From<&Estimate> for ShownEstimate {
    fn from(e: &Estimate) -> Self {
        let interval = |i: Interval| ShownInterval { low: i.low, likely: i.likely, high: i.high };
        Self { low: e.low, likely: e.likely, high: e.high, if_none_sticks: e.steady.map(interval) }
    }
}

/// A batch as `-o json` prints it.
#[derive(Serialize)]
struct Shown<'a> {
    /// Id of the batch.
    id: BatchId,
    /// State; `held_by` names what holds a running one.
    state: BatchState,
    /// Condition that keeps the queued entries of an open batch from starting, other than a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<String>,
    /// Operator who added it, or the engine.
    who: &'a Who,
    /// Time at which it was added.
    at: Timestamp,
    /// Reason that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Number of entries that were asked for.
    asked: u64,
    /// Number of entries that were added; fewer than `asked` if the command was interrupted.
    added: u64,
    /// Number of entries that have not started.
    queued: u64,
    /// Number of entries in work.
    in_work: u64,
    /// Number of entries that reached their goal.
    done: u64,
    /// Number of entries that ended under a leader that records no ends: CKE.
    unrecorded: u64,
    /// Number of entries that failed.
    failed: u64,
    /// Number of entries that were cancelled, deleted or dequeued.
    withdrawn: u64,
    /// The pause, if it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<&'a Paused>,
    /// The cancellation, if it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<&'a Cancelled>,
    /// Expected end of a running batch, if enough entries have ended before.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<ShownEstimate>,
}

impl<'a> Shown<'a> {
    fn of(row: &'a BatchRow, state: ShownState, ends: &Ends) -> Self {
        let (batch, totals) = (&row.batch, &row.totals);
        let estimate = end_of(row, ends).map(ShownEstimate::from);
        Self {
            id: row.id,
            state: row.state(),
            held_by: state.is_held().then(|| state.to_string()),
            who: &batch.who,
            at: batch.at,
            reason: batch.reason.as_deref(),
            asked: batch.asked,
            added: batch.added,
            queued: totals.queued,
            in_work: totals.in_work,
            done: totals.ends.done,
            unrecorded: totals.unrecorded,
            failed: totals.ends.failed,
            withdrawn: totals.ends.withdrawn,
            paused: batch.paused.as_ref(),
            cancelled: batch.cancelled.as_ref(),
            estimate,
        }
    }
}

/// Returns the estimated end of a batch, unless it is paused or done.
fn end_of<'a>(row: &BatchRow, ends: &'a Ends) -> Option<&'a Estimate> {
    ends.get(&row.id).filter(|_| row.state() == BatchState::Running)?.as_ref().ok()
}

/// Returns the state of a batch by the rule of the console: what holds it comes before *running*.
fn shown_state(view: &StoreView, row: &BatchRow, now: Timestamp) -> ShownState {
    ShownState::of(view, &row.batch, &row.totals, view.leader().is_some(), now)
}

/// Returns the cells of a batch. `clock` formats the times of its end.
fn cells(row: &BatchRow, state: ShownState, ends: &Ends, clock: impl Fn(Timestamp) -> String) -> Vec<String> {
    let (batch, totals) = (&row.batch, &row.totals);
    let interrupted = (batch.added < batch.asked).then(|| format!("only {} of {} added", batch.added, batch.asked));
    let paused = batch.paused.as_ref().filter(|_| row.state() == BatchState::Paused).map(|paused| {
        let why = paused.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("paused by {}{why}", paused.who)
    });
    let cancelled = batch.cancelled.as_ref().map(|cancelled| {
        let why = cancelled.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("cancelled by {}{why}", cancelled.who)
    });
    let unrecorded = (totals.unrecorded > 0)
        .then(|| format!("{} of them ended under a leader that records no ends, such as CKE", totals.unrecorded));
    let cause = [batch.reason.clone(), interrupted, paused, cancelled, unrecorded]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("; ");
    vec![
        row.id.to_string(),
        state.to_string(),
        format!("{}/{}", totals.ends.done, totals.all()),
        totals.in_work.to_string(),
        totals.queued.to_string(),
        totals.ends.failed.to_string(),
        end_of(row, ends).map(|estimate| estimate.interval(Detail::Full, clock)).unwrap_or_default(),
        cketerm_model::time::whole_seconds(batch.at).to_string(),
        batch.who.to_string(),
        cause,
    ]
}

/// Prints the batches of a queue, newest first.
pub async fn list(queue: QueueKind, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    let view = store.read_view().await?;
    let rows = BatchRow::all(&view, queue);
    let ends = ends(&store, &view, (queue, &rows), context).await;
    let clock = |at| moment(&view.policy(), at);
    let now = Timestamp::now();
    let state = |row: &BatchRow| shown_state(&view, row, now);
    match context.output(Output::Table) {
        Output::Table => {
            let lines: Vec<Vec<String>> = rows.iter().map(|row| cells(row, state(row), &ends, clock)).collect();
            context.out.text(columns(&COLUMNS, &lines))?;
        }
        form => {
            context.out.value(&rows.iter().map(|row| Shown::of(row, state(row), &ends)).collect::<Vec<_>>(), form)?;
        }
    }
    let broken: Vec<&str> =
        view.batches.values().filter_map(|stored| stored.value.as_ref().err()).map(String::as_str).collect();
    if broken.is_empty() { Ok(()) } else { Err(ActionError::unreadable(broken.join("\n"))) }
}

/// Estimates the ends of the running batches. The history is read only if one is running.
async fn ends(store: &Store, view: &StoreView, (queue, rows): (QueueKind, &[BatchRow]), context: &Context) -> Ends {
    let mut running: Vec<BatchId> =
        rows.iter().filter(|row| row.state() == BatchState::Running).map(|row| row.id).collect();
    running.sort_unstable();
    if running.is_empty() {
        return Ends::new();
    }
    let usual = match usual_times(store, view).await {
        Ok(usual) => usual,
        Err(why) => {
            context.print_message(&format!("note: no estimates: {why}"));
            return Ends::new();
        }
    };
    // labels of machines come from the definition: batches are listed without Kubernetes
    let basis = Basis { view, kube: &KubeView::default(), usual: &usual, now: Timestamp::now() };
    let answers = basis.answers(queue, &[], running.len(), &|entry| {
        view.batch_of(entry).and_then(|batch| running.binary_search(&batch).ok())
    });
    running.into_iter().zip(answers).collect()
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
    Box::pin(context.operator().await?.resume_batch(queue, args.batch, None, args.reason.get())).await?;
    context.print_message(&format!("resumed: {}", args.batch));
    Ok(())
}

/// Cancels the unfinished entries of a batch, and returns their indexes.
pub async fn cancel(
    queue: QueueKind,
    id: BatchId,
    reason: &Reason,
    operator: &Operator,
    context: &Context,
) -> Result<Vec<u64>, ActionError> {
    let cancelled = Box::pin(operator.cancel_batch(queue, id, None, reason.get())).await?;
    let done = match queue {
        QueueKind::Reboot => "cancelled",
        QueueKind::Repair => "deleted",
        QueueKind::Maintenance => "released",
    };
    if cancelled.is_empty() {
        context.print_message(&format!("nothing was {done}: batch {id} has no open entry"));
        return Ok(cancelled);
    }
    context.print_message(&format!("{done}: {}", format_indexes(&cancelled)));
    Ok(cancelled)
}

#[cfg(test)]
mod tests {
    use cketerm_model::{
        batch::{Batch, BatchEnds, BatchTotals},
        cketerm_records::EngineRegistration,
        entry::Stored,
        freeze::Freeze,
        policy::Policy,
        stored::view::{Candidate, Switch},
    };

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
        let after = |minutes: i64| at + jiff::SignedDuration::from_mins(minutes);
        let estimate = Estimate { at, low: after(55), likely: after(60), high: after(65), steady: None, samples: 20 };
        let ends = Ends::from([(row.id, Ok(estimate))]);
        let clock = |at: Timestamp| at.strftime("%H:%MZ").to_string();
        let mut view = StoreView::default();
        let lead = Candidate { key: "/cke/leader/1".to_owned(), lease: 1, host: "ops1".to_owned(), create_revision: 1 };
        view.candidates.insert(1, lead);
        view.engines.insert(1, registered());
        let state = |view: &StoreView, row: &BatchRow| shown_state(view, row, at);
        let shown = cells(&row, state(&view, &row), &ends, clock).join(" | ");
        assert!(shown.ends_with("| running | 34/58 | 4 | 20 | 0 | 11:00Z ± 5m | 2026-11-24T10:00:00Z | alice@ops1 | kernel 6.6.74; only 60 of 62 added"), "{shown}");
        row.batch.paused = Some(Paused { who, at, reason: Some("budget".to_owned()) });
        let shown = cells(&row, state(&view, &row), &ends, clock);
        assert_eq!(
            (shown[1].as_str(), shown[6].as_str(), shown[9].ends_with("paused by alice@ops1: budget")),
            ("paused", "", true),
            "{shown:?}"
        );
        row.totals = BatchTotals { queued: 0, in_work: 0, ..row.totals };
        assert_eq!(cells(&row, state(&view, &row), &ends, clock)[1], "ended", "two entries were withdrawn");
        row.totals.ends.withdrawn = 0;
        assert_eq!(cells(&row, state(&view, &row), &ends, clock)[1], "done");
    }

    /// A registration of a cketerm engine, so that the leader is not taken for CKE.
    fn registered() -> Stored<EngineRegistration> {
        let value = serde_json::json!({"host": "ops1", "pid": 1, "version": "0.2.0", "mode": "daemon"});
        let value = serde_json::from_value(value).map(std::sync::Arc::new).map_err(|why| why.to_string());
        Stored { key: "/cke/cketerm/engines/1".to_owned(), mod_revision: 1, value }
    }

    /// The command line said `running` of batches that the console called frozen, disabled or without a leader.
    #[test]
    fn a_batch_that_starts_nothing_is_not_called_running() {
        let at: Timestamp = "2026-11-24T10:00:00Z".parse().unwrap();
        let who = Who { user: "alice".to_owned(), host: "ops1".to_owned(), ssh_client: None };
        let batch = Batch { added: 5, ..Batch::new(QueueKind::Reboot, who.clone(), at, None, 5) };
        let totals = BatchTotals { queued: 3, in_work: 2, ends: BatchEnds::default(), unrecorded: 0 };
        let row = BatchRow { id: BatchId::at(at), batch, totals };
        let in_work = BatchRow { totals: BatchTotals { queued: 0, ..totals }, ..row.clone() };
        let mut led = StoreView::default();
        let candidate =
            Candidate { key: "/cke/leader/1".to_owned(), lease: 1, host: "ops1".to_owned(), create_revision: 1 };
        led.candidates.insert(1, candidate);
        led.engines.insert(1, registered());
        let until = at + jiff::SignedDuration::from_hours(1);
        let freeze = Freeze { until, reason: "night".to_owned(), who, unknown: serde_json::Map::new() };
        let policy = Policy { freeze: Some(freeze), ..Policy::default() };
        let stored = Stored { key: "p".to_owned(), mod_revision: 1, value: Ok(std::sync::Arc::new(policy)) };
        let frozen = StoreView { policy: Some(stored), ..led.clone() };
        let mut disabled = led.clone();
        disabled.reboots.switch = Switch { raw: Some("true".to_owned()), mod_revision: 5 };
        // CKE leads: a candidate without a registration. It knows no freeze.
        let cke = StoreView { engines: StoreView::default().engines, ..frozen.clone() };
        let table = [
            (&led, "running", "running"),
            (&frozen, "frozen", "running"),
            (&disabled, "disabled", "running"),
            (&StoreView::default(), "waits for a leader", "waits for a leader"),
            (&cke, "running", "running"),
        ];
        for (view, queued, finishing) in table {
            let clock = |at: Timestamp| at.to_string();
            let cell = |row: &BatchRow| cells(row, shown_state(view, row, at), &Ends::new(), clock)[1].clone();
            assert_eq!((cell(&row).as_str(), cell(&in_work).as_str()), (queued, finishing));
            let shown = serde_json::to_value(Shown::of(&row, shown_state(view, &row, at), &Ends::new())).unwrap();
            assert_eq!(shown["state"], "running", "scripts read the stored state");
            let held_by = (queued != "running").then_some(queued);
            assert_eq!(shown.get("held_by").and_then(serde_json::Value::as_str), held_by);
        }
    }
}
