//! Columns of the reboot queue.

use cketerm_model::{entry::EntryId, reboot::RebootEntry};

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
    },
    table::Cell,
};

/// The reboot queue.
pub enum Reboots {}

type Column = super::Column<Reboots>;
type Row<'a> = EntryRow<'a, RebootEntry>;

impl Table for Reboots {
    type Id = EntryId;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("index", "INDEX", Content(5, 8), "number of the entry")
            .value(|row| values::index(row.id.index))
            .cell(|row| Cell::plain(row.id.index.to_string())),
        Column::new("node", "NODE", MachineName(8, 18), "name of the machine")
            .wide(100, MachineName(8, 40))
            .value(|row| Value::text(row.name))
            .fitted(entry::name_cell),
        Column::new("address", "ADDRESS", Content(7, 39), "address of the machine")
            .shown_from(100)
            .value(|row| Value::text(row.address))
            .cell(|row| Cell::plain(short_text::safe(row.address))),
        Column::new("role", "ROLE", Content(4, 20), "role of the Node; `api` runs an API server")
            .shown_from(100)
            .value(entry::role)
            .cell(|row| row.cell(|_| short_text::safe(queries::role(&row.app.seen, row.name)))),
        Column::hidden("rack", "RACK", "rack or zone, by a label of Node or definition").value(entry::rack),
        Column::new("status", "STATUS", Content(8, 11), "status of the entry").value(status).cell(status_cell),
        Column::new("since", "SINCE", Content(5, 6), "time in the phase: drain, command or boot")
            .shown_from(70)
            .value(entry::since)
            .cell(entry::since_cell),
        Column::new("progress", "PROGRESS", Content(8, 24), "pods gone, the attempt, or time since the command")
            .value(entry::progress)
            .cell(entry::progress_cell),
        Column::hidden("pods", "PODS", "pods that are gone, of those when the drain began")
            .value(|row| Value::text(short_text::pods(&row.app.seen, row.id)))
            .cell(|row| row.cell(|_| short_text::pods(&row.app.seen, row.id))),
        Column::new("reason", "REASON", Rest, "the engine's reason why the entry does not move")
            .value(entry::reason)
            .fitted(reason_cell),
        Column::hidden("batch", "BATCH", "batch of the entry: all entries of one enqueue").value(entry::batch),
        Column::hidden("by", "ASKED BY", "operator who asked for the reboot").value(entry::by),
        Column::hidden("why", "WHY", "the operator's reason").value(entry::why),
    ];

    fn row<'a>(app: &'a App, id: &'a EntryId) -> Row<'a> {
        let entry = queries::entry(&app.seen, *id);
        EntryRow::new(app, *id, entry, entry.map(|e| &e.node))
    }
}

fn status<'r>(row: &'r Row<'_>) -> Value<'r> {
    Value::text(row.entry.map_or("broken", |e| short_text::status(e, row.app.now.wall)))
}

fn status_cell(row: &Row<'_>) -> Cell {
    row.status_cell(row.entry.map_or("broken", |e| short_text::status(e, row.app.known())))
}

fn reason_cell(row: &Row<'_>, width: usize) -> Cell {
    let seen = &row.app.seen;
    let text = match (seen.reasons.contains_key(&row.id), queries::broken(seen, row.id)) {
        (true, _) | (false, None) => row.reason_text(),
        (false, Some(broken)) => Forms::only(short_text::safe(broken)),
    };
    row.reason_cell(text, width)
}
