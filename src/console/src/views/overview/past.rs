//! Section about the past: the last day in one line, ended entries, operators' actions.

use cketerm_model::cketerm_records::Audit;
use ratatui::text::Span;

use super::{OverviewLine, info_line, text};
use crate::{
    state::{App, calendar, columns, overview::OverviewRow, short_text, when},
    views::bar::sparkline,
};

/// Returns the last day in one line: the number of entries that ended in each hour, and how long the machines were
/// away.
pub(super) fn day(app: &App) -> Option<OverviewLine> {
    let (theme, day) = (&app.config.theme, &app.knowledge.summary.day);
    let all: u64 = day.ended.iter().sum();
    if all == 0 {
        return None;
    }
    let blocks = app.config.blocks;
    let known = day.ended.get(day.unread..).unwrap_or_default();
    let hours = if day.unread == 0 { "24h".to_owned() } else { format!("{}h", known.len()) };
    // the numbers come first, because narrow screens cut the end
    let mut spans = vec![Span::raw(format!("{hours} {all} ended"))];
    if day.bad > 0 {
        spans.push(text(format!(", {} failed", day.bad), theme.trouble));
    }
    spans.push(Span::raw(format!(" {}", sparkline(known, blocks))));
    if let (Some(least), Some(most), true) = (day.boots.iter().min(), day.boots.iter().max(), day.boots.len() > 2) {
        let span = |s: &u64| when::span(jiff::SignedDuration::from_secs(i64::try_from(*s).unwrap_or(0)));
        let boots = format!("; reboots took {} to {} {}", span(least), span(most), sparkline(&day.boots, blocks));
        spans.push(text(boots, theme.muted));
    }
    Some(info_line("By hour", spans))
}

/// Returns the lines of the entries that ended last.
pub(super) fn ended(app: &App) -> Vec<OverviewLine> {
    let theme = &app.config.theme;
    let read = &app.knowledge.past.history;
    let mut lines: Vec<OverviewLine> = Vec::new();
    for id in &app.knowledge.summary.ended {
        let Some(e) = read.get(id) else { continue };
        let took = e.took().map(|took| format!(" in {}", when::span(took)));
        let by = e.request.as_ref().map(|r| format!(" ({})", short_text::safe(&r.who.user))).unwrap_or_default();
        let node = short_text::shorten_middle(&app.seen.snapshot.machine(&e.address), 24);
        let style = columns::outcome_style(app, e);
        lines.push(OverviewLine {
            overview_row: Some(OverviewRow::Ended(id.clone())),
            label: "",
            spans: vec![
                Span::raw(format!("{} {node} ", calendar::short(app, e.at))),
                text(short_text::safe(&e.outcome), style),
                text(format!("{}{by}", took.unwrap_or_default()), theme.muted),
            ],
        });
    }
    if lines.is_empty() {
        lines.push(info_line("", vec![placeholder(app, read.loaded, read.error.as_ref())]));
    }
    lines
}

/// Returns the lines of the operators' last actions.
pub(super) fn actions(app: &App) -> Vec<OverviewLine> {
    let read = &app.knowledge.past.audit;
    let mut lines: Vec<OverviewLine> = Vec::new();
    for id in &app.knowledge.summary.actions {
        let Some(audit) = read.get(id) else { continue };
        lines.push(OverviewLine {
            overview_row: Some(OverviewRow::Action(id.clone())),
            label: "",
            spans: vec![Span::raw(format!("{} {}", calendar::short(app, audit.at), action(audit)))],
        });
    }
    if lines.is_empty() {
        lines.push(info_line("", vec![placeholder(app, read.loaded, read.error.as_ref())]));
    }
    lines
}

fn action(audit: &Audit) -> String {
    let why = audit.reason.as_ref().map(|why| format!(" \"{why}\"")).unwrap_or_default();
    short_text::safe(&format!("{}: {} {}{why}", audit.who.user, audit.what, audit.on))
}

fn placeholder(app: &App, loaded: bool, error: Option<&String>) -> Span<'static> {
    let theme = &app.config.theme;
    match error {
        Some(why) => text(format!("not read: {}", short_text::safe(why)), theme.trouble),
        None if loaded => text("nothing yet", theme.muted),
        None => text("reading ...", theme.muted),
    }
}
