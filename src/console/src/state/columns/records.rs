//! Columns of CKE's operation records.

use cketerm_model::record::Record;
use ratatui::style::Style;

use super::{
    Table,
    Width::{Fixed, Rest},
    past::PastRow,
    values,
};
use crate::{
    state::{App, calendar, filter::Value, past::PastId, short_text, when},
    table::Cell,
    theme::Severity,
};

/// CKE's operation records.
pub enum Records {}

type Column = super::Column<Records>;
type Row<'a> = PastRow<'a, Record>;

impl Table for Records {
    type Id = PastId;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("id", "ID", Fixed(7), "number of the record")
            .value(|row| row.value(|r| values::index(r.id)))
            .cell(|row| row.first_cell(|r| Cell::plain(r.id.to_string()))),
        Column::new("start", "START", Fixed(11), "start of the operation")
            .value(|row| row.value(|r| values::age(row.app, r.start_at)))
            .cell(|row| {
                row.cell(|r| Cell::plain(r.start_at.map(|at| calendar::short(row.app, at)).unwrap_or_default()))
            }),
        Column::new("took", "TOOK", Fixed(6), "time from the start to the end")
            .value(|row| row.value(took))
            .cell(|row| row.cell(took_cell)),
        Column::new("status", "STATUS", Fixed(9), "status of the operation")
            .value(|row| row.value(|r| Value::text(r.status.as_str())))
            .cell(|row| row.cell(|r| Cell::styled(short_text::safe(&r.status), style(row.app, r)))),
        Column::new("operation", "OPERATION", Fixed(20), "name of the operation")
            .value(|row| row.value(|r| Value::text(r.operation.as_str())))
            .cell(|row| row.cell(|r| Cell::plain(short_text::safe(&r.operation)))),
        Column::new("targets", "TARGETS", Rest, "targets of the operation")
            .wide(120, Fixed(36))
            .value(|row| row.value(|r| Value::text(targets(r))))
            .cell(|row| row.error_cell(|r| targets_cell(row.app, r))),
        Column::new("error", "ERROR / INFO", Rest, "error of the operation, or information about it")
            .shown_from(120)
            .value(|row| row.value(|r| Value::text(format!("{}{}", r.error, r.info))))
            .cell(|row| row.cell(|r| Cell::styled(short_text::safe(detail(r)), style(row.app, r)))),
    ];

    fn row<'a>(app: &'a App, id: &'a PastId) -> Row<'a> {
        PastRow::new(app, &app.knowledge.past.records, id)
    }
}

fn took(record: &Record) -> Value<'_> {
    record.start_at.zip(record.end_at).map_or(Value::None, |(start, end)| values::span(start, end))
}

fn took_cell(record: &Record) -> Cell {
    Cell::plain(record.start_at.zip(record.end_at).map(|(start, end)| when::age(start, end)).unwrap_or_default())
}

fn style(app: &App, record: &Record) -> Style {
    let theme = &app.config.theme;
    match record.status.as_str() {
        _ if !record.error.is_empty() => theme.severity(Severity::Failed),
        "cancelled" => theme.severity(Severity::Slow),
        _ => Style::new(),
    }
}

fn detail(record: &Record) -> &str {
    if record.error.is_empty() { &record.info } else { &record.error }
}

/// Returns the cell with the targets. A narrow table, which has no ERROR / INFO, shows that text too.
fn targets_cell(app: &App, record: &Record) -> Cell {
    let (targets, detail) = (targets(record), detail(record));
    let narrow = app.size.width < 120 && !detail.is_empty();
    Cell::plain(short_text::safe(&if narrow { format!("{targets}: {detail}") } else { targets }))
}

/// Returns the targets of a record.
pub fn targets(record: &Record) -> String {
    match record.targets.as_deref() {
        Some([]) | None => record.command.target.clone(),
        Some(targets) => targets.join(" "),
    }
}
