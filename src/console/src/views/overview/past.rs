//! Panels about the past: the last day, and the latest events.

use cketerm_model::cketerm_records::Audit;
use ratatui::text::Span;

use super::{PanelLine, info, progress::seconds, text};
use crate::{
    state::{App, calendar, columns, overview::OverviewRow, past::PastId, short_text, when},
    views::bar::sparkline,
};

/// Width from which the times stand beside the numbers.
const WIDE: usize = 70;

/// Returns the last day: the number of entries that ended in each hour, failures, and how long the machines were away.
pub(super) fn day(app: &App, width: usize) -> Vec<PanelLine> {
    let (theme, day) = (&app.config.theme, &app.knowledge.summary.day);
    let all: u64 = day.ended.iter().sum();
    let read = &app.knowledge.past.history;
    if all == 0 {
        let shown = match (&read.error, read.loaded) {
            (Some(why), _) => text(format!("not read: {}", short_text::safe(why)), theme.trouble),
            (None, true) => text("nothing ended", theme.muted),
            (None, false) => text("reading ...", theme.muted),
        };
        return vec![info(vec![shown])];
    }
    let known = day.ended.get(day.unread..).unwrap_or_default();
    let mut numbers = vec![
        text(sparkline(known, app.config.blocks), theme.good),
        Span::raw("  "),
        text(format!("{} done", day.good), theme.good),
    ];
    if day.bad > 0 {
        numbers.push(text(format!(", {} failed", day.bad), theme.danger));
    }
    if day.unread > 0 {
        numbers.push(text(format!(" in {}h", known.len()), theme.muted));
    }
    let times = match (day.boot_percentile(50), day.boot_percentile(90)) {
        (Some(median), Some(p90)) => vec![Span::raw(format!("p50 {}  p90 {}", seconds(median), seconds(p90)))],
        _ => Vec::new(),
    };
    let line = |spans| PanelLine { row: Some(OverviewRow::Day), spans };
    if times.is_empty() {
        return vec![line(numbers)];
    }
    if width >= WIDE {
        numbers.push(Span::raw("   "));
        numbers.extend(times);
        return vec![line(numbers)];
    }
    vec![line(numbers), line(times)]
}

/// Returns the latest events: ended entries and people's actions, the newest first.
pub(super) fn latest(app: &App, height: usize) -> Vec<PanelLine> {
    let rows = app.knowledge.summary.latest.iter();
    let lines: Vec<PanelLine> = rows.take(height).filter_map(|row| event(app, row)).collect();
    if !lines.is_empty() {
        return lines;
    }
    let (theme, past) = (&app.config.theme, &app.knowledge.past);
    let shown = match (past.history.error.as_ref().or(past.audit.error.as_ref()), past.history.loaded) {
        (Some(why), _) => text(format!("not read: {}", short_text::safe(why)), theme.trouble),
        (None, true) => text("nothing yet", theme.muted),
        (None, false) => text("reading ...", theme.muted),
    };
    vec![info(vec![shown])]
}

fn event(app: &App, row: &OverviewRow) -> Option<PanelLine> {
    let spans = match row {
        OverviewRow::Ended(id) => ended(app, id)?,
        OverviewRow::Action(id) => {
            let audit = app.knowledge.past.audit.get(id)?;
            vec![Span::raw(format!("{} ", calendar::short(app, audit.at))), Span::raw(action(audit))]
        }
        OverviewRow::NeedsYou(_)
        | OverviewRow::Progress(_)
        | OverviewRow::Work(_)
        | OverviewRow::Racks
        | OverviewRow::Day => return None,
    };
    Some(PanelLine { row: Some(row.clone()), spans })
}

fn ended(app: &App, id: &PastId) -> Option<Vec<Span<'static>>> {
    let theme = &app.config.theme;
    let e = app.knowledge.past.history.get(id)?;
    let took = e.took().map(|took| format!(" in {}", when::span(took))).unwrap_or_default();
    let by = e.request.as_ref().map(|r| format!(" ({})", short_text::safe(&r.who.user))).unwrap_or_default();
    let node = short_text::shorten_middle(&app.seen.snapshot.machine(&e.address), 24);
    Some(vec![
        Span::raw(format!("{} {node} ", calendar::short(app, e.at))),
        text(short_text::safe(&e.outcome), columns::outcome_style(app, e)),
        text(format!("{took}{by}"), theme.muted),
    ])
}

fn action(audit: &Audit) -> String {
    let why = audit.reason.as_ref().map(|why| format!(" \"{why}\"")).unwrap_or_default();
    short_text::safe(&format!("{}: {} {}{why}", audit.who.user, audit.what, audit.on))
}
