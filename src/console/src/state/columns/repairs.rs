//! Columns of the repair queue.

use cketerm_model::{
    entry::EntryId,
    repair::{RepairEntry, RepairStatus},
};
use ratatui::style::Style;

use super::{
    Table,
    Width::{Fixed, MachineName, Rest},
    entry::{self, EntryRow},
    values,
};
use crate::{
    state::{App, filter::Value, queries, short_text, when},
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
        Column::new("index", "INDEX", Fixed(5), "number of the entry")
            .value(|row| values::index(row.id.index))
            .cell(|row| Cell::plain(row.id.index.to_string())),
        Column::new("node", "MACHINE", MachineName(11, 14), "name of the machine")
            .wide(100, MachineName(11, 40))
            .value(|row| Value::text(row.name))
            .fitted(entry::name_cell),
        Column::new("address", "ADDRESS", Fixed(15), "address of the machine")
            .shown_from(120)
            .value(|row| Value::text(row.address))
            .cell(|row| Cell::plain(short_text::safe(row.address))),
        Column::new("type", "TYPE", Fixed(10), "machine type, which selects the repair procedure")
            .shown_from(90)
            .value(|row| row.value(|e| Value::text(e.machine_type.as_str())))
            .cell(|row| row.cell(|e| short_text::safe(&e.machine_type))),
        Column::new("operation", "OPERATION", Fixed(11), "operation of the repair procedure")
            .wide(100, Fixed(14))
            .value(|row| row.value(|e| Value::text(e.operation.as_str())))
            .cell(|row| row.cell(|e| short_text::safe(&e.operation))),
        Column::new("step", "STEP", Fixed(4), "step of the operation, and their number")
            .value(|row| row.value(|e| Value::text(short_text::step(&row.app.seen, e))))
            .cell(|row| row.cell(|e| short_text::step(&row.app.seen, e))),
        Column::new("command", "COMMAND", Fixed(20), "command of the step, without the address")
            .wide(160, Fixed(30))
            .shown_from(140)
            .cell(|row| row.cell(|e| short_text::command(&row.app.seen, e))),
        Column::new("status", "STATUS", Fixed(9), "status of the entry, or of its step in progress")
            .value(status)
            .cell(status_cell),
        Column::hidden("since", "SINCE", "time in the status").value(|row| row.since(|e| e.last_transition_time)),
        Column::new("left", "LEFT", Fixed(5), "time until the step's deadline").value(left).cell(left_cell),
        Column::new("pods", "PODS", Fixed(7), "pods that are gone, of those when the drain began")
            .shown_from(110)
            .cell(|row| row.cell(|_| short_text::pods(&row.app.seen, row.id))),
        Column::new("health", "HEALTH", Fixed(10), "answer of the health check")
            .shown_from(110)
            .value(|row| row.value(|_| Value::text(short_text::health(&row.app.seen, row.id))))
            .cell(health_cell),
        Column::hidden("serial", "SERIAL", "serial of the machine, if the entry has one")
            .value(|row| row.value(|e| Value::text(e.serial.as_deref().unwrap_or_default()))),
        Column::new("reason", "REASON", Rest, "why the entry does not move, or its end")
            .value(entry::reason)
            .cell(reason_cell),
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
    let (theme, Some(entry)) = (&row.app.config.theme, row.entry) else { return row.broken("broken") };
    let style = match entry.status {
        RepairStatus::Failed if !entry.deleted => theme.danger,
        RepairStatus::Succeeded if !entry.deleted => theme.good,
        RepairStatus::Queued | RepairStatus::Processing | RepairStatus::Succeeded | RepairStatus::Failed => {
            Style::new()
        }
    };
    Cell::styled(short_text::repair_status(entry, row.app.known()), style)
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

fn reason_cell(row: &Row<'_>) -> Cell {
    let (seen, now) = (&row.app.seen, row.app.known());
    let reason = || seen.reasons.get(&row.id).map(|why| short_text::reason(why, now)).unwrap_or_default();
    let text = match row.entry {
        Some(entry) if entry.deleted => "the leader removes it".to_owned(),
        Some(entry) if entry.finished() => short_text::ending(seen, entry),
        Some(_) => reason(),
        None => match seen.snapshot.store.repairs.entries.get(&row.id.index).map(|s| &s.value) {
            Some(Err(broken)) => short_text::safe(broken),
            Some(Ok(_)) | None => reason(),
        },
    };
    row.reason_cell(&text)
}
