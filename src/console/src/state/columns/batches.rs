//! Columns of the batches: the entries of one enqueue each.

use cketerm_model::batch::{BatchState, Paused};
use cketerm_rules::{batch_state::ShownState, eta::text::Detail};

use super::{
    Table,
    Width::{Content, Fixed, Rest},
    values,
};
use crate::{
    state::{
        App,
        batches::{BatchRowId, BatchSummary},
        calendar,
        filter::Value,
        leaders,
        queries::Leader,
        short_text, sources, when,
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
        Column::new("state", "STATE", Content(7, 18), "running, what holds it, done, failed or ended")
            .value(|row| row.value(|b| Value::text(state(row.app, b).0)))
            .cell(|row| row.cell(state_cell)),
        Column::new("progress", "PROGRESS", Fixed(10), "done, in work and queued entries as a bar").cell(bar),
        Column::new("done", "DONE", Content(4, 9), "entries that reached their goal, of all")
            .value(|row| row.value(|b| values::count(b.totals.done())))
            .cell(|row| row.text(|b| format!("{}/{}", b.totals.done(), b.added()))),
        Column::new("in-work", "WORK", Fixed(4), "entries in work")
            .shown_from(71)
            .value(|row| row.value(|b| values::count(b.totals.in_work)))
            .cell(|row| row.text(|b| number(b.totals.in_work))),
        Column::new("queued", "QUEUED", Fixed(6), "entries that wait for their turn")
            .shown_from(72)
            .value(|row| row.value(|b| values::count(b.totals.queued)))
            .cell(|row| row.text(|b| number(b.totals.queued))),
        Column::new("failed", "FAILED", Fixed(6), "repairs that failed")
            .shown_from_unless_filled(100)
            .value(|row| row.value(|b| values::count(b.totals.ends.failed)))
            .cell(failed_cell),
        Column::new("withdrawn", "CANCELLED", Fixed(9), "entries that were cancelled, deleted or dequeued")
            .shown_from(140)
            .value(|row| row.value(|b| values::count(b.totals.ends.withdrawn)))
            .cell(|row| row.text(|b| number(b.totals.ends.withdrawn))),
        Column::new("eta", "ETA", Content(3, 26), "estimated end if no machine gets stuck")
            .value(|row| row.value(|b| Value::text(end(row.app, b))))
            .cell(|row| row.cell(|app, b| Cell::styled(end(app, b), app.config.theme.title))),
        Column::new("age", "AGE", Fixed(6), "time since the enqueue")
            .shown_from(78)
            .value(|row| row.value(|b| values::age(row.app, Some(b.batch.at))))
            .cell(|row| row.text(|b| when::age(b.batch.at, row.app.known()))),
        Column::new("by", "ASKED BY", Content(8, 20), "operator who asked for the entries")
            .value(|row| row.value(|b| values::who(&b.batch.who)))
            .cell(|row| row.text(|b| by(row.app, b))),
        Column::new("why", "CAUSE", Rest, "the operator's reason, and who paused the batch")
            .value(|row| row.value(|b| Value::text(cause(row.app, b))))
            .cell(|row| row.text(|b| short_text::safe(&cause(row.app, b)))),
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
    let (text, severity) = state(app, batch);
    Cell::styled(text, app.config.theme.severity(severity))
}

/// Returns the state of a batch, and its severity.
fn state(app: &App, batch: &BatchSummary) -> (String, Severity) {
    let is_led = sources::current_leader(&app.seen, app.now.boot) != Leader::Nobody;
    let state = ShownState::of(&app.seen.snapshot.store, &batch.batch, &batch.totals, is_led, app.now.wall);
    let severity = match state {
        ShownState::Running if batch.totals.in_work > 0 => Severity::Rebooting,
        ShownState::Running | ShownState::Ended => Severity::Waiting,
        ShownState::Paused => Severity::Slow,
        ShownState::Disabled | ShownState::NoLeader | ShownState::Frozen | ShownState::Failed => Severity::Failed,
        ShownState::Done => Severity::Done,
    };
    (state.to_string(), severity)
}

fn failed_cell(row: &Row<'_>) -> Cell {
    let style = row.app.config.theme.severity(Severity::Failed);
    row.found.map(|b| Cell::styled(number(b.totals.ends.failed), style)).unwrap_or_default()
}

/// Returns the estimated end of the open entries. Empty if it is not known, or while the batch is paused.
fn end(app: &App, batch: &BatchSummary) -> String {
    let is_running = leaders::batch_state(app, batch) == BatchState::Running;
    let answer = app.knowledge.estimates.of_batch(batch.batch.queue, batch.id).filter(|_| is_running);
    let estimate = answer.and_then(|answer| answer.as_ref().ok());
    estimate.map(|estimate| estimate.interval(Detail::Short, |at| calendar::moment(app, at))).unwrap_or_default()
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
    let severity = if found.state() == BatchState::Done { state(row.app, found).1 } else { Severity::Rebooting };
    Cell::styled(signs.collect::<String>(), row.app.config.theme.severity(severity))
}

fn by(app: &App, batch: &BatchSummary) -> String {
    let who = &batch.batch.who;
    if app.size.width < 100 { short_text::safe(&who.user) } else { short_text::safe(&who.to_string()) }
}

/// Returns the cause. What an operator should know comes first: a pause, and an enqueue that was interrupted.
fn cause(app: &App, batch: &BatchSummary) -> String {
    let stored = batch.batch.paused.as_ref().filter(|_| batch.state() == BatchState::Paused);
    let not = if leaders::not_in_force(app).is_some() { "NOT IN FORCE: " } else { "" };
    let paused = stored.map(|stored| format!("{not}{}", paused(stored)));
    let (added, asked) = (batch.batch.added, batch.batch.asked);
    let interrupted = (added < asked).then(|| format!("only {added} of {asked} added"));
    [paused, interrupted, batch.batch.reason.clone()].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn paused(paused: &Paused) -> String {
    let why = paused.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("paused by {}{why}", paused.who)
}
