//! Entries in progress: machine, status, how far it is, what it waits for, and since when.

use cketerm_model::{entry::EntryId, reason::Reason};
use cketerm_rules::{
    beside_cke,
    trouble::{self, Trouble},
};
use jiff::SignedDuration;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::{PanelLine, folded::Folded, queued, text};
use crate::{
    state::{
        App, calendar,
        overview::OverviewRow,
        progress::{self, Compared, Progress},
        queries::{self, Leader},
        severity,
        short_text::{self, Forms},
        when,
    },
    theme::Severity,
    views::gauge,
};

/// Widest name of a machine.
const NAME_WIDTH: usize = 16;
/// Width of the small bar.
const BAR_WIDTH: usize = 8;
/// Width of the mark of work that is slower than usual.
const MARK_WIDTH: usize = 1;
/// Width of the age.
const AGE_WIDTH: usize = 5;

/// Returns the lines, the entry that has been in its state longest first. The next queued entries fill the lines below.
pub(super) fn lines(app: &App, width: usize, height: usize) -> Vec<PanelLine> {
    let mut lines: Vec<PanelLine> = entries(app, width, height).into_iter().flat_map(Folded::into_lines).collect();
    if lines.is_empty() {
        lines.push(vec![text("nothing is in work", app.config.theme.muted)]);
    }
    let lines_left = height.saturating_sub(lines.len());
    if lines_left > 2 && queued::count(app) > 0 && !queued::is_shown(app) {
        lines.push(vec![text(format!("next of {} queued:", queued::count(app)), app.config.theme.muted)]);
        lines.extend(queued::lines(app, width, lines_left - 1));
    }
    lines
}

/// Returns the entries of the lines; `None` for a line that goes on with the text of the one above.
pub(super) fn rows(app: &App, width: usize, height: usize) -> Vec<Option<OverviewRow>> {
    let entries = app.knowledge.summary.work.iter().zip(entries(app, width, height));
    let rows = entries.flat_map(|(id, folded)| {
        std::iter::once(Some(OverviewRow::Work(*id))).chain(folded.more.into_iter().map(|_| None))
    });
    rows.collect()
}

/// Returns the number of lines that go on with a text which one line has no room for.
pub(super) fn continued(app: &App, width: usize) -> usize {
    let all = app.knowledge.summary.work.len();
    entries(app, width, 2 * all).into_iter().map(|folded| folded.more.len()).sum()
}

/// Returns a line for each entry. Where there is room, the texts that are cut go on in a second line.
fn entries(app: &App, width: usize, height: usize) -> Vec<Folded> {
    let (work, backing_off) = parts(app);
    let mut entries = in_work(app, work, width, height);
    let room = height.saturating_sub(entries.len());
    entries.extend(backing_off.iter().take(room).map(|id| backs_off(app, *id, width)));
    super::folded::within(entries, height)
}

/// Returns the entries in work, and those that back off.
fn parts(app: &App) -> (&[EntryId], &[EntryId]) {
    let summary = &app.knowledge.summary;
    summary.work.split_at(summary.in_progress.min(summary.work.len()))
}

/// Returns the title, with the numbers.
pub(super) fn title(app: &App) -> String {
    let (work, backing_off) = parts(app);
    let all = if work.len() > 1 { format!("In work ({})", work.len()) } else { "In work".to_owned() };
    let label = if beside_cke::applies(&app.seen.snapshot.store) { ", by CKE's rules" } else { "" };
    if backing_off.is_empty() { all + label } else { format!("{all}, {} backing off{label}", backing_off.len()) }
}

/// Returns the line of an entry that backs off: when it is tried again, and what kept it.
fn backs_off(app: &App, id: EntryId, width: usize) -> Folded {
    let (seen, theme, now) = (&app.seen, &app.config.theme, app.known());
    let cause = match seen.reasons.get(&id) {
        Some(Reason::Backoff { cause: Some(cause), tried: None, .. }) => {
            short_text::reason_forms(seen, cause, now).after(": ")
        }
        Some(Reason::Backoff { cause: Some(cause), tried: Some(tried), .. }) => {
            short_text::reason_forms(seen, cause, now).after(&format!("; {} ago: ", when::age(*tried, now)))
        }
        _ => Forms::default(),
    };
    let at = queries::backoff_until(seen, id).map(|until| calendar::moment(app, until)).unwrap_or_default();
    let age = queries::since(seen, id).map(|at| when::age(at, now)).unwrap_or_default();
    let name = name(app, id);
    let columns = width.saturating_sub(name.width() + AGE_WIDTH + 2);
    let style = theme.severity(severity::of_entry(app, id));
    let (again, short) = match queries::leader(seen) {
        Leader::Nobody => (format!("backs off until {at}"), format!("until {at}")),
        Leader::Us | Leader::Other(_) | Leader::Cke(_) | Leader::Unknown if !queries::retries(seen, id.queue) => {
            (format!("backed off until {at}, the queue is disabled"), format!("until {at}, queue disabled"))
        }
        Leader::Us | Leader::Other(_) | Leader::Cke(_) | Leader::Unknown => {
            (format!("backs off, again at {at}"), format!("again {at}"))
        }
    };
    // the cause says more than the words before the time
    let what = if cause.whole.is_empty() {
        Forms { whole: again, shorter: vec![short] }
    } else {
        let in_short = cause.clone().after(&short).shorter;
        let mut what = cause.after(&again);
        what.shorter.truncate(1);
        what.shorter.extend(in_short);
        what
    };
    Folded::new(&what, columns, (name.width() + 1, width), style, |what| {
        vec![
            Span::raw(format!("{name} ")),
            text(format!("{what:<columns$} "), style),
            text(format!("{age:>AGE_WIDTH$}"), style),
        ]
    })
}

fn in_work(app: &App, all: &[EntryId], width: usize, height: usize) -> Vec<Folded> {
    let name_width = all.iter().take(height).map(|id| name(app, *id).width()).max().unwrap_or(0);
    let status_width = all.iter().take(height).map(|id| status(app, *id).width()).max().unwrap_or(0);
    let progress_width = all.iter().take(height).map(|id| progress_width(app, *id)).max().unwrap_or(0);
    all.iter().take(height).map(|id| one(app, *id, (width, name_width, status_width, progress_width))).collect()
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

fn one(
    app: &App,
    id: EntryId,
    (width, name_width, status_width, progress_width): (usize, usize, usize, usize),
) -> Folded {
    let (seen, theme, now) = (&app.seen, &app.config.theme, app.known());
    let status = status(app, id);
    let severity = severity::of_entry(app, id);
    let style = theme.severity(severity);
    let compared = progress::compared(app, id);
    let is_slow = compared.is_some_and(|compared| compared.is_slow());
    let age = queries::since(seen, id).map(|at| when::age(at, now)).unwrap_or_default();
    let mut progress = progress_spans(app, id, severity, compared);
    let drawn: usize = progress.iter().map(Span::width).sum();
    progress.push(Span::raw(" ".repeat(progress_width.saturating_sub(drawn) + usize::from(progress_width > 0))));
    let fixed =
        name_width + status_width + progress_width + usize::from(progress_width > 0) + MARK_WIDTH + AGE_WIDTH + 3;
    let why_width = width.saturating_sub(fixed).max(8);
    let why_style = match trouble::of(seen, id) {
        Some(Trouble::Stuck) => theme.danger,
        Some(Trouble::Waits) => theme.trouble,
        None if is_slow => theme.severity(Severity::Slow),
        None => ratatui::style::Style::new(),
    };
    let place = (name_width + 1, width);
    Folded::new(&why(app, id, compared), why_width, place, why_style, |why| {
        let mut spans = vec![
            Span::raw(format!("{:<name_width$} ", name(app, id))),
            text(format!("{status:<status_width$} "), style),
        ];
        spans.extend(progress.iter().cloned());
        spans.push(text(format!("{why:<why_width$} "), why_style));
        let mark = if is_slow { Severity::Slow.sign() } else { " " };
        spans.push(text(mark, theme.severity(Severity::Slow)));
        spans.push(text(format!("{age:>AGE_WIDTH$}"), style));
        spans
    })
}

/// Returns the reason that the entry waits for. Where nothing holds it, the time of its phase beside the usual one.
fn why(app: &App, id: EntryId, compared: Option<Compared>) -> Forms {
    let (seen, now) = (&app.seen, app.known());
    let reason = seen.reasons.get(&id);
    let is_held = reason.is_some_and(trouble::own);
    let is_booting = matches!(progress::of(app, id), Some(Progress::Boot { .. }));
    match (compared, reason) {
        (Some(compared), _) if !is_held && (is_booting || compared.is_slow()) => {
            Forms::only(compared.usual.compared(compared.elapsed))
        }
        // the progress beside it says when the backoff ends
        (_, Some(why @ Reason::Backoff { .. })) => short_text::row_forms(seen, why, now),
        (_, reason) => reason.map(|why| short_text::reason_forms(seen, why, now)).unwrap_or_default(),
    }
}

/// Returns the width of the progress of an entry.
fn progress_width(app: &App, id: EntryId) -> usize {
    let spans = progress_spans(app, id, severity::of_entry(app, id), progress::compared(app, id));
    spans.iter().map(Span::width).sum()
}

/// Returns how far an entry is: the pods that are gone (`######-- 6/8`), the attempt (`try 2/3`), or the time of the boot
/// against the usual one (`####==--`).
fn progress_spans(app: &App, id: EntryId, severity: Severity, compared: Option<Compared>) -> Vec<Span<'static>> {
    let theme = &app.config.theme;
    let (style, rest, blocks) = (theme.shape(severity), theme.shape(Severity::Waiting), app.config.blocks);
    let seconds = |duration: SignedDuration| u64::try_from(duration.as_secs()).unwrap_or(0);
    match (progress::of(app, id), compared) {
        (Some(Progress::Pods { gone, all }), _) => {
            let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
            let mut spans = gauge::done_of(count(gone), count(all), BAR_WIDTH, style, rest, blocks);
            spans.push(Span::raw(format!(" {gone}/{all}")));
            spans
        }
        (Some(Progress::Command { number, allowed, .. }), _) => vec![text(format!("try {number}/{allowed}"), style)],
        (Some(Progress::Boot { .. }), Some(compared)) => {
            // full at the time within which nine of ten boots end
            let late = theme.shape(Severity::Slow);
            gauge::elapsed_of(seconds(compared.elapsed), seconds(compared.usual.p90), BAR_WIDTH, style, late, blocks)
        }
        (Some(progress @ (Progress::Failed { .. } | Progress::Backoff { .. })), _) => {
            vec![text(short_text::progress(&progress, app.known()), theme.shape(progress.severity()))]
        }
        (Some(Progress::Boot { .. }), None) | (None, _) => Vec::new(),
    }
}
