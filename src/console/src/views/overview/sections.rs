//! Parts of a queue that have their own progress: a line for each open batch, and one for the entries without a batch.

use cketerm_model::entry::QueueKind;
use cketerm_rules::eta::{Estimate, text::Detail};
use ratatui::{style::Style, text::Span};
use unicode_width::UnicodeWidthStr;

use super::{PanelLine, text};
use crate::{
    keys,
    state::{
        App,
        batches::BatchSummary,
        calendar,
        overview::{OverviewRow, Section},
        short_text,
    },
    theme::Severity,
    views::gauge::{self, Fill, Part},
};

/// Widest name of a part.
const NAME_WIDTHS: [usize; 2] = [16, 32];
/// Width from which names may be longer.
const WIDE: usize = 100;
/// Width below which a line has less numbers.
const NARROW: usize = 70;
/// Narrowest bar; without room for it there is none.
const MIN_BAR: usize = 6;
/// Widest bar beside a name and numbers.
const MAX_BAR: usize = 40;
/// Space between two fields.
const GAP: usize = 2;

/// Returns the number of parts that so many lines show one by one, and whether a line with the queue's limits follows.
pub(super) fn section_rows(parts: usize, height: usize) -> (usize, bool) {
    let has_limits = height > parts || height > 2;
    let lines = if has_limits { height - 1 } else { height };
    // the line that counts the others takes one, too
    let shown = if parts > lines { lines.saturating_sub(1) } else { parts };
    (shown, has_limits)
}

/// Returns the rows of the lines: the batches, and the queue for the line with its limits.
pub(super) fn rows(queue: QueueKind, parts: &[Section], height: usize) -> Vec<Option<OverviewRow>> {
    let (shown, has_limits) = section_rows(parts.len(), height);
    let mut rows: Vec<Option<OverviewRow>> =
        parts.iter().take(shown).map(|part| part.batch.map(|id| OverviewRow::Batch(queue, id))).collect();
    if shown < parts.len() {
        rows.push(None);
    }
    if has_limits {
        rows.push(Some(OverviewRow::Progress(queue)));
    }
    rows
}

/// Returns the lines of the parts, without the one of the queue's limits.
pub(super) fn lines(app: &App, queue: QueueKind, parts: &[Section], (width, height): (usize, usize)) -> Vec<PanelLine> {
    let (shown, _) = section_rows(parts.len(), height);
    let visible: Vec<&Section> = parts.iter().take(shown).collect();
    let is_narrow = width < NARROW;
    let most = if width >= WIDE { NAME_WIDTHS[1] } else { NAME_WIDTHS[0] };
    let names: Vec<String> = visible.iter().map(|part| name(app, part, most)).collect();
    let name_width = names.iter().map(|name| name.width()).max().unwrap_or(0);
    let digits = |of: fn(&Section) -> usize| visible.iter().map(|part| of(part).to_string().len()).max().unwrap_or(1);
    let widths = [digits(|part| part.done), digits(|part| part.in_work), digits(|part| part.queued)];
    let width_of = |spans: &Vec<Span<'static>>| spans.iter().map(Span::width).sum::<usize>();
    let numbers: Vec<Vec<Span<'static>>> = visible
        .iter()
        .map(
            |part| if is_narrow { done_of_all(app, part) } else { numbers(app, queue, &in_short(part, width), widths) },
        )
        .collect();
    let numbers_width = numbers.iter().map(width_of).max().unwrap_or(0);
    let fixed = name_width + GAP + numbers_width;
    let notes_of = |is_short: bool| -> Vec<Option<(String, Style)>> {
        visible.iter().map(|part| note(app, queue, part, is_short)).collect()
    };
    let widest = |notes: &[Option<(String, Style)>]| {
        notes.iter().flatten().map(|(note, _)| note.width() + GAP).max().unwrap_or(0)
    };
    let mut notes = notes_of(false);
    if fixed + widest(&notes) + MIN_BAR + GAP > width {
        notes = notes_of(true);
    }
    let bar_width = width.saturating_sub(fixed + widest(&notes) + GAP).min(MAX_BAR);
    let mut lines = Vec::new();
    for (((part, name), numbers), note) in visible.iter().zip(names).zip(numbers).zip(notes) {
        let mut line = vec![text(format!("{name:<name_width$}"), app.config.theme.title), Span::raw(" ".repeat(GAP))];
        if bar_width >= MIN_BAR {
            line.extend(bar(app, part, bar_width));
            line.push(Span::raw(" ".repeat(GAP)));
        }
        let drawn = width_of(&numbers);
        line.extend(numbers);
        let used = width_of(&line) + numbers_width - drawn + GAP;
        // the ends of all batches begin in one column
        if let Some((note, style)) = note.filter(|(note, _)| used + note.width() <= width) {
            line.push(Span::raw(" ".repeat(numbers_width - drawn + GAP)));
            line.push(text(note, style));
        }
        lines.push(line);
    }
    if shown < parts.len() {
        let more = parts.len() - shown;
        let batches = if more == 1 { "batch" } else { "batches" };
        lines.push(vec![text(format!("+{more} more {batches}"), app.config.theme.muted)]);
    }
    lines
}

/// Returns the bar of a part.
pub(super) fn bar(app: &App, part: &Section, width: usize) -> Vec<Span<'static>> {
    let theme = &app.config.theme;
    let stuck = part.motion.used_stuck.min(part.in_work);
    let of = |amount, fill, severity| Part { amount, fill, style: theme.shape(severity) };
    let parts = [
        of(part.done, Fill::Done, Severity::Done),
        of(part.failed, Fill::Done, Severity::Failed),
        of(part.in_work - stuck, Fill::Work, Severity::Rebooting),
        of(stuck, Fill::Work, Severity::Failed),
        of(part.backing_off, Fill::Rest, Severity::Slow),
        of(part.queued, Fill::Rest, Severity::Waiting),
        of(part.withdrawn, Fill::Withdrawn, Severity::Waiting),
    ];
    gauge::bar(&parts, width, app.config.blocks)
}

/// Returns the numbers of a part, each in its column.
pub(super) fn numbers(
    app: &App,
    queue: QueueKind,
    part: &Section,
    [done, in_work, queued]: [usize; 3],
) -> Vec<Span<'static>> {
    let theme = &app.config.theme;
    let style = |n: usize, style: Style| if n == 0 { theme.muted } else { style };
    let mut spans = vec![
        text(format!("{:>done$} done", part.done), style(part.done, theme.good)),
        text(format!("  {:>in_work$} in work", part.in_work), style(part.in_work, theme.rebooting)),
        text(format!("  {:>queued$} queued", part.queued), style(part.queued, Style::new())),
    ];
    let more = [
        (part.backing_off, "backing off", theme.trouble),
        (part.failed, "failed", theme.danger),
        (part.withdrawn, withdrawn(queue), theme.muted),
    ];
    spans
        .extend(more.into_iter().filter(|(n, ..)| *n > 0).map(|(n, what, style)| text(format!("  {n} {what}"), style)));
    spans
}

/// Returns the word for entries of a queue that an operator took out of it.
pub(super) fn withdrawn(queue: QueueKind) -> &'static str {
    match queue {
        QueueKind::Reboot => "cancelled",
        QueueKind::Repair => "deleted",
        QueueKind::Maintenance => "released",
    }
}

/// Returns a part without the numbers that a line of this width has no room for: an entry that backs off is queued, too.
fn in_short(part: &Section, width: usize) -> Section {
    if width >= WIDE {
        return part.clone();
    }
    Section { queued: part.queued + part.backing_off, backing_off: 0, withdrawn: 0, ..part.clone() }
}

/// Returns how many entries of a part are done, for narrow screens: `34/60 done`.
fn done_of_all(app: &App, part: &Section) -> Vec<Span<'static>> {
    let all = part.done + part.failed + part.in_work + part.queued + part.backing_off;
    let theme = &app.config.theme;
    let mut spans =
        vec![text(format!("{}/{all} done", part.done), if part.done == 0 { theme.muted } else { theme.good })];
    if part.failed > 0 {
        spans.push(text(format!("  {} failed", part.failed), theme.danger));
    }
    spans
}

/// Returns the name of a part: the cause of the batch, and its owner where there is room.
fn name(app: &App, part: &Section, most: usize) -> String {
    let Some(batch) = part.batch.and_then(|id| app.knowledge.batches.get(id)) else {
        return "without a batch".to_owned();
    };
    let mut cause = short_text::safe(&batch.batch.reason.clone().unwrap_or_else(|| format!("batch {}", batch.id)));
    let with_owner = short_text::safe(&format!("{cause}, {}", batch.batch.who.user));
    if with_owner.width() <= most {
        return with_owner;
    }
    if cause.width() > most {
        crate::table::mark_cut(&mut cause, most);
    }
    cause
}

/// Returns the cause, the owner and the time of a batch: `kernel 6.6.74, asked by alice 05:20Z`.
pub(super) fn asked(app: &App, batch: &BatchSummary) -> String {
    let cause = batch.batch.reason.as_deref().map(|why| format!("{}, ", short_text::shorten_middle(why, 40)));
    let at = calendar::moment(app, batch.batch.at);
    short_text::safe(&format!("{}asked by {} {at}", cause.unwrap_or_default(), batch.batch.who.user))
}

/// Returns that a batch is paused, by whom, and the key that resumes it.
pub(super) fn paused(app: &App, batch: &BatchSummary) -> (String, Style) {
    let by = batch.batch.paused.as_ref().map(|paused| format!(" by {}", paused.who.user)).unwrap_or_default();
    (short_text::safe(&format!("PAUSED{by}{}", resume_key(app))), app.config.theme.trouble)
}

fn resume_key(app: &App) -> String {
    app.config.keymap.key("unhold").map(|key| format!(", {} resumes", keys::title(key))).unwrap_or_default()
}

/// Returns the end of a part, or the pause that keeps it from ending; in short without the width of the interval, and
/// without the person.
fn note(app: &App, queue: QueueKind, part: &Section, is_short: bool) -> Option<(String, Style)> {
    let batch = app.knowledge.batches.get(part.batch?)?;
    if part.paused {
        let (long, style) = paused(app, batch);
        return Some((if is_short { format!("PAUSED{}", resume_key(app)) } else { long }, style));
    }
    let estimate = estimate(app, queue, batch)?;
    let clock = |at| calendar::moment(app, at);
    let end = if is_short {
        format!("done about {}", clock(estimate.planned().likely))
    } else {
        estimate.described(Detail::Short, clock)
    };
    Some((all_but(part) + &end, app.config.theme.title))
}

/// Returns the estimated end of a batch, unless nothing starts: `done 07:41Z ± 6m`.
pub(super) fn end(
    app: &App,
    queue: QueueKind,
    (part, batch): (&Section, &BatchSummary),
    detail: Detail,
) -> Option<String> {
    let estimate = estimate(app, queue, batch)?;
    Some(all_but(part) + &estimate.described(detail, |at| calendar::moment(app, at)))
}

/// Returns how many entries of a part the end is not about, because they wait for an operator or behind such an entry:
/// `all but 1 `. Empty if it is about all.
fn all_but(part: &Section) -> String {
    match part.motion.resting() {
        0 => String::new(),
        n => format!("all but {n} "),
    }
}

fn estimate<'a>(app: &'a App, queue: QueueKind, batch: &BatchSummary) -> Option<&'a Estimate> {
    let is_barred = app.knowledge.summary.work_of(queue).left.start.as_ref().is_some_and(|start| start.bar.is_some());
    app.knowledge.estimates.of_batch(queue, batch.id).filter(|_| !is_barred)?.as_ref().ok()
}

/// Reports whether a queue has entries that are not over, or is disabled.
pub(super) fn has_work(app: &App, queue: QueueKind) -> bool {
    let work = app.knowledge.summary.work_of(queue);
    let is_disabled = !app.seen.snapshot.store.switch(queue).enabled();
    work.used > 0 || !work.left.is_empty() || is_disabled
}
