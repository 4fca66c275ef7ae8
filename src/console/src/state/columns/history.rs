//! Columns of the entries that ended.

use cketerm_model::cketerm_records::EndKind;
use ratatui::style::Style;

use super::{
    Table,
    Width::{Content, Fixed, Rest},
    past::PastRow,
    values,
};
use crate::{
    state::{
        App, calendar,
        filter::Value,
        past::{Ended, PastId},
        short_text, when,
    },
    table::Cell,
    theme::Severity,
};

/// The entries that ended.
pub enum EndedEntries {}

type Column = super::Column<EndedEntries>;
type Row<'a> = PastRow<'a, Ended>;

// narrow columns are as wide as their content: the outcome needs the space
impl Table for EndedEntries {
    type Id = PastId;
    type Row<'a> = Row<'a>;

    const COLUMNS: &'static [Column] = &[
        Column::new("ended", "ENDED", Content(9, 11), "time of the end")
            .value(|row| row.value(|e| values::age(row.app, Some(e.at))))
            .cell(|row| row.first_cell(|e| Cell::plain(calendar::short(row.app, e.at)))),
        Column::new("entry", "ENTRY", Content(9, 12), "queue and number of the entry")
            .value(|row| row.value(|e| Value::text(e.entry.to_string())))
            .cell(|row| row.cell(|e| Cell::plain(e.entry.to_string()))),
        Column::new("node", "NODE", Content(8, 14), "name of the machine")
            .wide(100, Content(8, 40))
            .value(|row| row.value(|e| Value::text(node_name(row.app, e))))
            .fitted(|row, width| row.cell(|e| Cell::plain(short_text::shorten_middle(&node_name(row.app, e), width)))),
        Column::new("address", "ADDRESS", Content(7, 39), "address of the machine")
            .shown_from(150)
            .value(|row| row.value(|e| Value::text(e.address.as_str())))
            .cell(|row| row.cell(|e| Cell::plain(short_text::safe(&e.address)))),
        Column::new("took", "TOOK", Content(4, 6), "time of the work, without the queue")
            .value(|row| row.value(|e| e.took().map_or(Value::None, |took| Value::Span(took.into()))))
            .cell(|row| row.cell(|e| Cell::plain(e.took().map(when::span).unwrap_or_default()))),
        Column::new("tries", "TRIES", Fixed(5), "number of attempts")
            .shown_from(100)
            .value(|row| row.value(|e| values::count(e.attempts)))
            .cell(|row| row.cell(|e| Cell::plain(e.attempts.to_string()))),
        Column::new("by", "ASKED BY", Content(8, 12), "operator who asked for the entry")
            .wide(100, Content(8, 40))
            .value(|row| row.value(|e| e.request.as_ref().map_or(Value::None, |r| values::who(&r.who))))
            .cell(|row| row.cell(|e| by_cell(row.app, e))),
        Column::new("outcome", "OUTCOME", Rest, "outcome of the entry")
            .wide(120, Content(8, 60))
            .value(|row| row.value(|e| Value::text(e.described())))
            .cell(|row| row.error_cell(|e| outcome_cell(row.app, e))),
        Column::new("why", "REASON", Rest, "the operator's reason")
            .shown_from(120)
            .value(|row| row.value(|e| Value::text(why(e))))
            .cell(|row| row.cell(|e| Cell::plain(short_text::safe(why(e))))),
    ];

    fn row<'a>(app: &'a App, id: &'a PastId) -> Row<'a> {
        PastRow::new(app, &app.knowledge.past.history, id)
    }
}

fn by_cell(app: &App, ended: &Ended) -> Cell {
    match &ended.request {
        None => Cell::plain("via ckecli"),
        Some(request) if app.size.width < 100 => Cell::plain(short_text::safe(&request.who.user)),
        Some(request) => Cell::plain(short_text::safe(&request.who.to_string())),
    }
}

fn why(ended: &Ended) -> &str {
    ended.request.as_ref().and_then(|r| r.reason.as_deref()).unwrap_or_default()
}

/// Returns the machine's current name, else the name in its attempt, else its address.
pub fn node_name(app: &App, ended: &Ended) -> String {
    let now = app.seen.snapshot.machine(&ended.address);
    if now == *ended.address { ended.node.as_ref().map_or(now, ToString::to_string) } else { now }
}

/// Returns the severity of an outcome: good, unintended, or failed.
fn severity(ended: &Ended) -> Severity {
    if ended.end.good() {
        Severity::Done
    } else if ended.end == EndKind::Failed {
        Severity::Failed
    } else {
        Severity::Slow
    }
}

/// Returns the style of an outcome.
pub fn outcome_style(app: &App, ended: &Ended) -> Style {
    app.config.theme.severity(severity(ended))
}

fn outcome_cell(app: &App, ended: &Ended) -> Cell {
    Cell::signed(&app.config.theme, severity(ended), short_text::safe(&in_row(ended)))
}

/// Returns the outcome in short: `cancelled by ?` if the operator is not recorded.
fn in_row(ended: &Ended) -> String {
    let is_unknown = ended.withdrawn_by.is_none() && matches!(ended.end, EndKind::Cancelled | EndKind::Deleted);
    if is_unknown { format!("{} by {}", ended.outcome, when::UNKNOWN) } else { ended.described() }
}
