//! Columns of the audit records: who did what, when, why and from where.

use cketerm_model::cketerm_records::Audit;
use ratatui::style::Style;

use super::{
    Table,
    Width::{Content, Rest},
    past::PastRow,
    values,
};
use crate::{
    state::{App, calendar, filter::Value, past::PastId, short_text},
    table::Cell,
    theme::Severity,
};

/// The actions in the audit records.
pub enum Actions {}

type Column = super::Column<Actions>;
type Row<'a> = PastRow<'a, Audit>;

// narrow columns are as wide as their content, because on a narrow screen the objects need the space
impl Table for Actions {
    type Id = PastId;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("at", "AT", Content(9, 11), "time of the action")
            .value(|row| row.value(|a| values::age(row.app, Some(a.at))))
            .cell(|row| row.first_cell(|a| Cell::styled(calendar::short(row.app, a.last()), style(row.app, a)))),
        Column::new("who", "WHO", Content(5, 12), "operator, or the engine")
            .wide(120, Content(5, 30))
            .value(|row| row.value(|a| Value::text(who(a))))
            .cell(|row| {
                row.cell(|a| if is_narrow(row.app) { cell(row.app, a, &a.who.user) } else { cell(row.app, a, &who(a)) })
            }),
        Column::new("from", "FROM", Content(4, 39), "address from which the operator was logged in")
            .shown_from(150)
            .value(|row| row.value(|a| Value::text(from(a))))
            .cell(|row| row.cell(|a| cell(row.app, a, from(a)))),
        Column::new("what", "WHAT", Content(8, 20), "action")
            .wide(120, Content(8, 30))
            .value(|row| row.value(|a| Value::text(a.what.as_str())))
            .cell(|row| row.cell(|a| cell(row.app, a, &a.what_with_count()))),
        Column::new("on", "ON", Rest, "objects of the action")
            .wide(120, Content(8, 48))
            .value(|row| row.value(|a| Value::text(a.on.as_str())))
            .cell(|row| row.error_cell(|a| on_cell(row.app, a))),
        Column::new("result", "RESULT", Content(6, 40), "result of the action")
            .shown_from(160)
            .value(|row| row.value(|a| Value::text(a.result.as_str())))
            .cell(|row| row.cell(|a| cell(row.app, a, &a.result))),
        Column::new("why", "REASON", Rest, "the operator's reason")
            .shown_from(120)
            .value(|row| row.value(|a| Value::text(why(a))))
            .cell(|row| row.cell(|a| cell(row.app, a, why(a)))),
    ];

    fn row<'a>(app: &'a App, id: &'a PastId) -> Row<'a> {
        PastRow::new(app, &app.knowledge.past.audit, id)
    }
}

fn is_narrow(app: &App) -> bool {
    app.size.width < 120
}

/// Returns the style of a record: actions that failed, then those of operators, stand out.
fn style(app: &App, audit: &Audit) -> Style {
    let theme = &app.config.theme;
    match (audit.failed, audit.by_engine()) {
        (true, _) => theme.severity(Severity::Failed),
        (false, true) => theme.muted,
        (false, false) => theme.title,
    }
}

fn cell(app: &App, audit: &Audit, text: &str) -> Cell {
    Cell::styled(short_text::safe(text), style(app, audit))
}

/// Returns the cell with the objects. A narrow table, which has no REASON, shows that text too.
fn on_cell(app: &App, audit: &Audit) -> Cell {
    let (on, why) = (calendar::with_local_times(app, &audit.on), why(audit));
    let narrow = is_narrow(app) && !why.is_empty();
    cell(app, audit, &if narrow { format!("{on} ({why})") } else { on })
}

fn who(audit: &Audit) -> String {
    format!("{}@{}", audit.who.user, audit.who.host)
}

fn from(audit: &Audit) -> &str {
    audit.who.ssh_client.as_deref().unwrap_or_default()
}

fn why(audit: &Audit) -> &str {
    audit.reason.as_deref().unwrap_or_default()
}
