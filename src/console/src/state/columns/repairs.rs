//! Columns of the repair queue.

use cketerm_model::{entry::EntryId, repair::RepairEntry};

use super::{
    Table,
    Width::{Content, MachineName, Rest},
    entry::{self, EntryRow},
    values,
};
use crate::{
    state::{
        App,
        filter::Value,
        queries,
        short_text::{self, Forms},
        when,
    },
    table::Cell,
};

/// The repair queue.
pub enum Repairs {}

type Column = super::Column<Repairs>;
type Row<'a> = EntryRow<'a, RepairEntry>;

impl Table for Repairs {
    type Id = EntryId;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("index", "INDEX", Content(5, 8), "number of the entry")
            .value(|row| values::index(row.id.index))
            .cell(|row| Cell::plain(row.id.index.to_string())),
        Column::new("node", "MACHINE", MachineName(8, 14), "name of the machine")
            .wide(100, MachineName(8, 40))
            .value(|row| Value::text(row.name))
            .fitted(entry::name_cell),
        Column::new("address", "ADDRESS", Content(7, 39), "address of the machine")
            .shown_from(120)
            .value(|row| Value::text(row.address))
            .cell(|row| Cell::plain(short_text::safe(row.address))),
        Column::new("type", "TYPE", Content(4, 20), "machine type, which selects the repair procedure")
            .shown_from(90)
            .value(|row| row.value(|e| Value::text(e.machine_type.as_str())))
            .cell(|row| row.cell(|e| short_text::safe(&e.machine_type))),
        Column::new("operation", "OPERATION", Content(9, 11), "operation of the repair procedure")
            .wide(100, Content(9, 20))
            .shown_from(70)
            .value(|row| row.value(|e| Value::text(e.operation.as_str())))
            .cell(|row| row.cell(|e| short_text::safe(&e.operation))),
        Column::new("step", "STEP", Content(4, 6), "step of the operation, and their number")
            .shown_from(70)
            .value(|row| row.value(|e| Value::text(short_text::step(&row.app.seen, e))))
            .cell(|row| row.cell(|e| short_text::step(&row.app.seen, e))),
        Column::new("command", "COMMAND", Content(7, 30), "command of the step, without the address")
            .shown_from(140)
            .cell(|row| row.cell(|e| short_text::command(&row.app.seen, e))),
        Column::new("status", "STATUS", Content(8, 11), "status of the entry, or of its step in progress")
            .value(status)
            .cell(status_cell),
        Column::hidden("since", "SINCE", "time in the phase: drain, command or boot")
            .value(entry::since)
            .cell(entry::since_cell),
        Column::new("left", "LEFT", Content(4, 6), "time until the step's deadline")
            .shown_from(100)
            .value(left)
            .cell(left_cell),
        Column::new("progress", "PROGRESS", Content(8, 24), "pods gone, the attempt, or time since the command")
            .value(entry::progress)
            .cell(entry::progress_cell),
        Column::hidden("pods", "PODS", "pods that are gone, of those when the drain began")
            .cell(|row| row.cell(|_| short_text::pods(&row.app.seen, row.id))),
        Column::new("health", "HEALTH", Content(6, 10), "answer of the health check")
            .shown_from(110)
            .value(|row| row.value(|_| Value::text(short_text::health(&row.app.seen, row.id))))
            .cell(health_cell),
        Column::hidden("serial", "SERIAL", "serial of the machine, if the entry has one")
            .value(|row| row.value(|e| Value::text(e.serial.as_deref().unwrap_or_default()))),
        Column::new("reason", "REASON", Rest, "why the entry does not move, or its end")
            .value(entry::reason)
            .fitted(reason_cell),
        Column::hidden("batch", "BATCH", "batch of the entry: all entries of one enqueue").value(entry::batch),
        Column::hidden("by", "ASKED BY", "operator who asked for the repair").value(entry::by),
        Column::hidden("why", "WHY", "the operator's reason").value(entry::why),
    ];

    fn row<'a>(app: &'a App, id: &'a EntryId) -> Row<'a> {
        let entry = queries::repair(&app.seen, *id);
        EntryRow::new(app, *id, entry, entry.map(|e| &e.address))
    }
}

fn status<'r>(row: &'r Row<'_>) -> Value<'r> {
    Value::text(row.entry.map_or("broken", |e| short_text::repair_status(e, row.app.now.wall)))
}

fn status_cell(row: &Row<'_>) -> Cell {
    row.status_cell(row.entry.map_or("broken", |e| short_text::repair_status(e, row.app.known())))
}

fn left<'r>(row: &'r Row<'_>) -> Value<'r> {
    let now = row.app.now.wall;
    row.value(|_| queries::deadline(&row.app.seen, row.id).map_or(Value::None, |at| values::span(now, at)))
}

fn left_cell(row: &Row<'_>) -> Cell {
    let now = row.app.known();
    row.cell(|_| queries::deadline(&row.app.seen, row.id).map(|at| when::left(at, now)).unwrap_or_default())
}

fn health_cell(row: &Row<'_>) -> Cell {
    row.cell(|e| if e.unfinished() { short_text::health(&row.app.seen, row.id) } else { String::new() })
}

fn reason_cell(row: &Row<'_>, width: usize) -> Cell {
    let seen = &row.app.seen;
    let text = match row.entry {
        Some(entry) if entry.deleted => Forms::only("the leader removes it".to_owned()),
        Some(entry) if entry.finished() => Forms::only(short_text::ending(seen, entry)),
        Some(_) => row.reason_text(),
        None => match seen.snapshot.store.repairs.entries.get(&row.id.index).map(|s| &s.value) {
            Some(Err(broken)) => Forms::only(short_text::safe(broken)),
            Some(Ok(_)) | None => row.reason_text(),
        },
    };
    row.reason_cell(text, width)
}
