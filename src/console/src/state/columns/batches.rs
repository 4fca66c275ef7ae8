//! Columns of the batches: the entries of one enqueue each.

use cketerm_model::batch::{BatchState, Paused};

use super::{
    Table,
    Width::{Content, Fixed, Rest},
    values,
};
use crate::{
    state::{
        App,
        batches::{BatchRowId, BatchSummary},
        filter::Value,
        short_text, when,
    },
    table::Cell,
    theme::Severity,
};

/// The batches of a queue.
pub enum BatchTable {}

/// A batch; `None` once it is gone.
pub struct Row<'a> {
    app: &'a App,
    id: BatchRowId,
    found: Option<&'a BatchSummary>,
}

type Column = super::Column<BatchTable>;

impl Table for BatchTable {
    type Id = BatchRowId;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("batch", "BATCH", Fixed(8), "id of the batch; newer ones are greater")
            .value(|row| Value::text(row.id.0.to_string()))
            .cell(|row| Cell::plain(row.id.0.to_string())),
        Column::new("state", "STATE", Fixed(7), "running, paused or done")
            .value(|row| row.value(|b| Value::text(b.state().to_string())))
            .cell(|row| row.cell(state_cell)),
        Column::new("progress", "PROGRESS", Fixed(10), "done, in work and queued entries as a bar").cell(bar),
        Column::new("done", "DONE", Content(4, 9), "entries that reached their goal, of all to do")
            .value(|row| row.value(|b| values::count(b.totals.done())))
            .cell(|row| row.text(|b| format!("{}/{}", b.totals.done(), b.totals.all()))),
        Column::new("in-work", "WORK", Fixed(4), "entries in work")
            .value(|row| row.value(|b| values::count(b.totals.in_work)))
            .cell(|row| row.text(|b| number(b.totals.in_work))),
        Column::new("queued", "QUEUED", Fixed(6), "entries that wait for their turn")
            .value(|row| row.value(|b| values::count(b.totals.queued)))
            .cell(|row| row.text(|b| number(b.totals.queued))),
        Column::new("failed", "FAILED", Fixed(6), "repairs that failed")
            .shown_from_unless_filled(100)
            .value(|row| row.value(|b| values::count(b.totals.ends.failed)))
            .cell(failed_cell),
        Column::new("age", "AGE", Fixed(6), "time since the enqueue")
            .value(|row| row.value(|b| values::age(row.app, Some(b.batch.at))))
            .cell(|row| row.text(|b| when::age(b.batch.at, row.app.known()))),
        Column::new("by", "ASKED BY", Content(8, 20), "operator who asked for the entries")
            .value(|row| row.value(|b| values::who(&b.batch.who)))
            .cell(|row| row.text(|b| by(row.app, b))),
        Column::new("why", "CAUSE", Rest, "the operator's reason, and who paused the batch")
            .value(|row| row.value(|b| Value::text(cause(b))))
            .cell(|row| row.text(|b| short_text::safe(&cause(b)))),
        Column::hidden("withdrawn", "GONE", "entries that were cancelled, deleted or dequeued")
            .value(|row| row.value(|b| values::count(b.totals.ends.withdrawn))),
    ];

    fn row<'a>(app: &'a App, id: &'a BatchRowId) -> Row<'a> {
        Row { app, id: *id, found: app.knowledge.batches.get(id.0) }
    }
}

impl<'a> Row<'a> {
    fn value(&self, of: impl FnOnce(&'a BatchSummary) -> Value<'a>) -> Value<'a> {
        self.found.map_or(Value::None, of)
    }

    fn text(&self, of: impl FnOnce(&'a BatchSummary) -> String) -> Cell {
        Cell::plain(self.found.map(of).unwrap_or_default())
    }

    fn cell(&self, of: impl FnOnce(&App, &'a BatchSummary) -> Cell) -> Cell {
        self.found.map(|found| of(self.app, found)).unwrap_or_default()
    }
}

/// Returns a count, or nothing instead of 0, so that the other numbers stand out.
fn number(n: u64) -> String {
    if n == 0 { String::new() } else { n.to_string() }
}

fn state_cell(app: &App, batch: &BatchSummary) -> Cell {
    let severity = match batch.state() {
        BatchState::Running if batch.totals.in_work > 0 => Severity::Rebooting,
        BatchState::Running => Severity::Waiting,
        BatchState::Paused => Severity::Slow,
        BatchState::Done if batch.totals.ends.failed > 0 => Severity::Failed,
        BatchState::Done => Severity::Done,
    };
    Cell::styled(batch.state().to_string(), app.config.theme.severity(severity))
}

fn failed_cell(row: &Row<'_>) -> Cell {
    let style = row.app.config.theme.severity(Severity::Failed);
    row.found.map(|b| Cell::styled(number(b.totals.ends.failed), style)).unwrap_or_default()
}

/// Width of the bar.
const BAR: u64 = 10;

/// Returns the bar: done, in work, and the rest.
fn bar(row: &Row<'_>) -> Cell {
    let Some(found) = row.found else { return Cell::default() };
    let (done, in_work, failed, all) = found.parts();
    if all == 0 {
        return Cell::default();
    }
    let ended = done.saturating_add(failed);
    let until = |n: u64| n.saturating_mul(BAR) / all;
    let filled = until(ended);
    // neither the first nor the last machine of hundreds is invisible
    let worked = if in_work > 0 { until(ended.saturating_add(in_work)).max(filled + 1).min(BAR) } else { filled };
    let signs = (0..BAR).map(|at| match at {
        at if at < filled => '█',
        at if at < worked => '▓',
        _ => '░',
    });
    let severity = if found.state() == BatchState::Done { Severity::Done } else { Severity::Rebooting };
    Cell::styled(signs.collect::<String>(), row.app.config.theme.severity(severity))
}

fn by(app: &App, batch: &BatchSummary) -> String {
    let who = &batch.batch.who;
    if app.size.width < 100 { short_text::safe(&who.user) } else { short_text::safe(&who.to_string()) }
}

/// Returns the cause. What an operator should know comes first: a pause, and an enqueue that was interrupted.
fn cause(batch: &BatchSummary) -> String {
    let paused = batch.batch.paused.as_ref().filter(|_| batch.state() == BatchState::Paused).map(paused);
    let (added, asked) = (batch.batch.added, batch.batch.asked);
    let interrupted = (added < asked).then(|| format!("only {added} of {asked} added"));
    [paused, interrupted, batch.batch.reason.clone()].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn paused(paused: &Paused) -> String {
    let why = paused.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("paused by {}{why}", paused.who)
}
