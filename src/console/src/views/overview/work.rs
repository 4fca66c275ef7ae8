//! Entries in progress: machine, status, how far it is, what it waits for, and since when.

use cketerm_model::entry::EntryId;
use cketerm_rules::trouble::{self, Trouble};
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::{PanelLine, info, text};
use crate::{
    state::{App, overview::OverviewRow, queries, severity, short_text, when},
    theme::Severity,
    views::gauge,
};

/// Widest name of a machine.
const NAME_WIDTH: usize = 16;
/// Width of the status.
const STATUS_WIDTH: usize = 10;
/// Width of the small bar.
const BAR_WIDTH: usize = 8;
/// Width of the bar and its numbers.
const PROGRESS_WIDTH: usize = BAR_WIDTH + 6;
/// Width of the age.
const AGE_WIDTH: usize = 5;

/// Returns the lines, the entry that has been in its state longest first.
pub(super) fn lines(app: &App, width: usize, height: usize) -> Vec<PanelLine> {
    let all = &app.knowledge.summary.work;
    if all.is_empty() {
        return vec![info(vec![text("nothing is in work", app.config.theme.muted)])];
    }
    let name_width = all.iter().take(height).map(|id| name(app, *id).width()).max().unwrap_or(0);
    let status_width = all.iter().take(height).map(|id| status(app, *id).width()).max().unwrap_or(0).max(STATUS_WIDTH);
    all.iter().take(height).map(|id| one(app, *id, (width, name_width, status_width))).collect()
}

fn name(app: &App, id: EntryId) -> String {
    short_text::shorten_middle(&queries::machine(&app.seen, id).unwrap_or_default(), NAME_WIDTH)
}

/// Returns the status; of a repair with its step.
fn status(app: &App, id: EntryId) -> String {
    let (seen, now) = (&app.seen, app.known());
    match (queries::entry(seen, id), queries::repair(seen, id)) {
        (Some(entry), _) => short_text::status(entry, now).to_owned(),
        (_, Some(entry)) => format!("{} {}", short_text::step(seen, entry), short_text::repair_status(entry, now)),
        (None, None) => String::new(),
    }
}

fn one(app: &App, id: EntryId, (width, name_width, status_width): (usize, usize, usize)) -> PanelLine {
    let (seen, theme, now) = (&app.seen, &app.config.theme, app.known());
    let status = status(app, id);
    let severity = severity::of_entry(app, id);
    let style = theme.severity(severity);
    let age = queries::since(seen, id).map(|at| when::age(at, now)).unwrap_or_default();
    let why = seen.reasons.get(&id).map(|why| short_text::reason(why, now)).unwrap_or_default();
    let mut progress = pods(app, id, severity);
    let drawn: usize = progress.iter().map(Span::width).sum();
    progress.push(Span::raw(" ".repeat(PROGRESS_WIDTH.saturating_sub(drawn))));
    let fixed = name_width + status_width + PROGRESS_WIDTH.max(drawn) + AGE_WIDTH + 4;
    let why_width = width.saturating_sub(fixed).max(8);
    let mut why = why;
    if why.width() > why_width {
        crate::table::mark_cut(&mut why, why_width);
    }
    let why_style = match trouble::of(seen, id) {
        Some(Trouble::Stuck) => theme.danger,
        Some(Trouble::Waits) => theme.trouble,
        None => ratatui::style::Style::new(),
    };
    let mut spans =
        vec![Span::raw(format!("{:<name_width$} ", name(app, id))), text(format!("{status:<status_width$} "), style)];
    spans.extend(progress);
    spans.push(text(format!(" {why:<why_width$} "), why_style));
    spans.push(text(format!("{age:>AGE_WIDTH$}"), style));
    PanelLine { row: Some(OverviewRow::Work(id)), spans }
}

/// Returns the pods that are gone: `######-- 6/8`.
fn pods(app: &App, id: EntryId, severity: Severity) -> Vec<Span<'static>> {
    let theme = &app.config.theme;
    let progress = queries::progress(&app.seen, id).filter(|p| p.pods_at_start > 0);
    let Some(progress) = progress.filter(|_| !queries::finishes_anyway(&app.seen, id)) else { return Vec::new() };
    let (gone, all) = (progress.pods_gone, progress.pods_at_start);
    let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let (style, rest) = (theme.shape(severity), theme.shape(Severity::Waiting));
    let mut spans = gauge::done_of(count(gone), count(all), BAR_WIDTH, style, rest, app.config.blocks);
    spans.push(Span::raw(format!(" {gone}/{all}")));
    spans
}
