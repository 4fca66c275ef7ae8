//! Progress of a queue: a bar, numbers, slots, and what limits it. The title has the state and the estimated end, which
//! are looked for first.

use cketerm_model::{cketerm_records::Audit, entry::QueueKind, stored::keys::SwitchName};
use cketerm_rules::eta::text::Detail;
use ratatui::{style::Style, text::Span};
use unicode_width::UnicodeWidthStr;

use super::{
    PanelLine, idle,
    sections::{self, section_rows},
    text,
};
use crate::{
    state::{
        App, calendar,
        eta::{RemainingWork, Tone},
        leaders,
        overview::{Motion, OverviewRow, Work},
        queries::{self, Leader},
        short_text, sources, when,
    },
    theme::Severity,
    views::{
        gauge::{self, Fill, Part},
        panel::Panel,
    },
};

/// Width of a line from which the basis of an estimate is shown.
const WIDE: usize = 100;
/// Width below which numbers have short words.
const SHORT_WIDTH: usize = 60;
/// Narrowest bar.
const MIN_BAR: usize = 6;
/// Space between two fields of a line.
const GAP: usize = 3;
/// Widths of a panel from which its title has room for the late end, and for what the planned end assumes.
const ASSUMED_WIDTH: u16 = 76;
const FULL_WIDTH: u16 = 110;
/// Columns of a panel's upper side that a note leaves to the frame and the title.
const NOTE_FRAME: u16 = 18;

/// Returns the title: the queue, the reason and the operator of its entries, the queue's state and its end.
pub(super) fn title(app: &App, queue: QueueKind, width: u16) -> Panel {
    let theme = &app.config.theme;
    let work = app.knowledge.summary.work_of(queue);
    let mut title = vec![text(heading(queue), theme.title)];
    let batch = work.only().and_then(|only| app.knowledge.batches.get(only.batch?));
    let asked = match (work.parts(), batch) {
        ([], Some(batch)) => sections::asked(app, batch),
        ([], None) => {
            let reason = work.asked.reason.as_deref().map(|why| short_text::shorten_middle(why, 40));
            let by = work.asked.by.as_deref().map(|by| {
                let at = work.asked.since.map(|at| format!(" {}", calendar::moment(app, at))).unwrap_or_default();
                format!("asked by {}{at}", short_text::safe(by))
            });
            reason.into_iter().chain(by).collect::<Vec<_>>().join(", ")
        }
        (parts, _) => match parts.iter().filter(|part| part.batch.is_some()).count() {
            1 => "1 batch, and entries without one".to_owned(),
            n => format!("{n} batches"),
        },
    };
    if !asked.is_empty() {
        title.push(Span::raw(format!(": {asked}")));
    }
    let (state, style) = match (work.parts(), batch) {
        ([], Some(batch)) if leaders::pause_in_force(app, batch).is_some() => sections::paused(app, batch),
        _ => state(app, queue, &work.only().map_or(work.motion, |only| only.motion), width),
    };
    let panel = Panel::new(title).note(text(state, style));
    match end(app, queue, work, detail(width)) {
        Some(end) => panel.note(text(end, theme.title)),
        None => panel,
    }
}

pub(super) fn heading(queue: QueueKind) -> &'static str {
    match queue {
        QueueKind::Reboot => "Reboots",
        QueueKind::Repair => "Repairs",
        QueueKind::Maintenance => "Maintenance",
    }
}

/// Returns the title of one part of a queue: its cause and owner, its state and its end.
pub(super) fn part_title(app: &App, queue: QueueKind, place: usize, width: u16) -> Panel {
    let theme = &app.config.theme;
    let part = app.knowledge.summary.work_of(queue).parts().get(place);
    let mut title = vec![text(heading(queue), theme.title)];
    let Some(batch) = part.and_then(|part| app.knowledge.batches.get(part.batch?)) else {
        title.push(Span::raw(": without a batch"));
        return Panel::new(title);
    };
    title.push(Span::raw(format!(": {}", sections::asked(app, batch))));
    let (state, style) = match part {
        _ if leaders::pause_in_force(app, batch).is_some() => sections::paused(app, batch),
        // while the queue does not move, neither does a part of it
        Some(part) if part.in_work == 0 && part.motion.left > 0 => {
            match state(app, queue, &app.knowledge.summary.work_of(queue).motion, width) {
                (_, style) if style == theme.good => ("waits for its turn".to_owned(), theme.muted),
                state => state,
            }
        }
        part => state(app, queue, &part.map(|part| part.motion).unwrap_or_default(), width),
    };
    let panel = Panel::new(title).note(text(state, style));
    let end = part.and_then(|part| sections::end(app, queue, (part, batch), detail(width)));
    match end.filter(|_| leaders::pause_in_force(app, batch).is_none()) {
        Some(end) => panel.note(text(end, theme.title)),
        None => panel,
    }
}

/// Returns the rows of one part's panel.
pub(super) fn part_rows(app: &App, queue: QueueKind, place: usize, height: usize) -> Vec<Option<OverviewRow>> {
    let part = app.knowledge.summary.work_of(queue).parts().get(place);
    let row = part.and_then(|part| part.batch).map(|id| OverviewRow::Batch(queue, id));
    if height < 2 { vec![row] } else { vec![row, Some(OverviewRow::Progress(queue))] }
}

/// Returns the lines of one part's panel: its bar and numbers. The last part of a queue also has the queue's limits.
pub(super) fn part_lines(app: &App, queue: QueueKind, place: usize, (width, height): (usize, usize)) -> Vec<PanelLine> {
    let Some(part) = app.knowledge.summary.work_of(queue).parts().get(place) else { return Vec::new() };
    let numbers = sections::numbers(app, queue, part, [0; 3]);
    let numbers_width: usize = numbers.iter().map(Span::width).sum();
    let room = width.saturating_sub(numbers_width + GAP);
    let mut first = Vec::new();
    let all = part.done + part.in_work + part.queued + part.backing_off + part.failed + part.withdrawn;
    if room >= MIN_BAR && all > 1 {
        first = sections::bar(app, part, room);
        first.push(Span::raw(" ".repeat(GAP)));
    }
    first.extend(numbers);
    if height < 2 { vec![first] } else { vec![first, fields(app, queue, width, true)] }
}

/// Returns the estimated end of the queue: `done 07:41Z ± 6m`. `None` if it is not known, or if nothing starts.
fn end(app: &App, queue: QueueKind, work: &Work, detail: Detail) -> Option<String> {
    work.left.end(app.knowledge.estimates.of_queue(queue), detail, |at| calendar::moment(app, at))
}

/// Reports whether the title shows the end.
fn has_end(app: &App, queue: QueueKind, work: &Work) -> bool {
    end(app, queue, work, Detail::Short).is_some()
}

/// Returns the amount of text about the end for the title of a panel.
fn detail(width: u16) -> Detail {
    match width {
        0..ASSUMED_WIDTH => Detail::Short,
        ASSUMED_WIDTH..FULL_WIDTH => Detail::Assumed,
        FULL_WIDTH.. => Detail::Full,
    }
}

/// Returns the state of a queue with work, or of a part of it with these entries, and its style.
/// The text of a disabled queue is as long as a title of this width has room for.
fn state(app: &App, queue: QueueKind, work: &Motion, width: u16) -> (String, Style) {
    let (theme, store, boot) = (&app.config.theme, &app.seen.snapshot.store, app.now.boot);
    let switch = store.switch(queue);
    let (remaining, held) = (work.left, work.held);
    // work in progress that moves
    let moving = work.used.saturating_sub(work.used_stuck);
    let window_closed = calendar::window_state(app, &store.policy(), queue).is_some_and(|state| !state.open);
    let (state, style) = match sources::current_leader(&app.seen, boot) {
        Leader::Unknown => ("etcd is lost", theme.danger),
        _ if !switch.enabled() => ("DISABLED", theme.danger),
        Leader::Nobody => ("NOT moving, nobody leads", theme.danger),
        _ if moving == 0 && remaining > 0 && calendar::freeze(app).is_some() => ("FROZEN", theme.danger),
        _ if work.used == 0 && work.is_empty() => ("nothing to do", theme.muted),
        _ if moving == 0 && remaining > 0 && window_closed => ("waits for the window", theme.trouble),
        _ if remaining == 0 && held > 0 && work.stalled() == 0 => ("ON HOLD", theme.trouble),
        _ if work.used == 0 && remaining == 0 && work.stalled() == 0 => ("waits for its machine", theme.trouble),
        _ if work.used > 0 && (remaining == 0 || moving == 0) => ("STUCK", theme.danger),
        _ if work.used > 0 && queries::kube_lost(&app.seen, boot).is_some() => {
            ("blocked, Kubernetes is lost", theme.danger)
        }
        _ if work.used_waits > 0 && moving == work.used_waits => ("blocked", theme.trouble),
        _ if work.used > 0 => ("moving", theme.good),
        _ if remaining == 0 && work.stuck == 0 => ("in backoff", theme.trouble),
        _ if remaining == 0 => ("STUCK", theme.danger),
        _ => ("waiting", theme.trouble),
    };
    let seen_at = queries::etcd_lost(&app.seen, boot).map(|_| format!("as of {}: ", calendar::time(app, app.known())));
    let seen_at = seen_at.unwrap_or_default();
    let window = calendar::window(app, queue).map(|(window, _)| format!(", {window}")).unwrap_or_default();
    if switch.enabled() {
        return (format!("{seen_at}{state}{window}"), style);
    }
    let audit = disabled_by(app, queue, switch.mod_revision);
    let who = audit.map(|audit| format!(" by {} {}", audit.who.user, calendar::moment(app, audit.at)));
    let (who, why) = (who.unwrap_or_default(), audit.and_then(|audit| audit.reason.as_deref()));
    let why = why.map(|why| format!(" ({})", short_text::shorten_middle(why, 30))).unwrap_or_default();
    let work = in_work_while_disabled(app, work);
    // the panel drops a note without room
    let forms = [format!("{who}{why}{work}{window}"), format!("{who}{work}"), work, String::new()];
    let room = usize::from(width.saturating_sub(NOTE_FRAME));
    let forms = forms.map(|form| short_text::safe(&format!("{seen_at}{state}{form}")));
    let fits = forms.iter().find(|form| form.width() <= room).or(forms.last());
    (fits.cloned().unwrap_or_default(), style)
}

/// Returns what becomes of the work in progress while its queue is disabled: `, 1 in work finishes, 1 stays draining`.
fn in_work_while_disabled(app: &App, work: &Motion) -> String {
    let text = |n: usize, one: &str, many: &str| match n {
        0 => String::new(),
        1 => format!(", 1 {one}"),
        n => format!(", {n} {many}"),
    };
    let finish = text(work.after_command, "in work finishes", "in work finish");
    match sources::current_leader(&app.seen, app.now.boot) {
        // cketerm backs its drains off at once
        Leader::Us | Leader::Other(_) => finish + &text(work.draining, "drain given up", "drains given up"),
        // CKE keeps the status, and goes on at the next enable
        Leader::Cke(_) => finish + &text(work.draining, "stays draining", "stay draining"),
        Leader::Nobody => text(work.used, "in work waits for a leader", "in work wait for a leader"),
        Leader::Unknown => text(work.used, "in work", "in work"),
    }
}

/// Returns the record of the action that disabled a queue, if the audit has it. Only a record of the same transaction
/// counts, because `ckecli` and `etcdctl` write none.
fn disabled_by(app: &App, queue: QueueKind, switch_revision: i64) -> Option<&Audit> {
    let on = SwitchName::from(queue).title();
    let read = app.knowledge.past.audit.rows.iter().filter(|(id, _)| id.revision.0 == switch_revision);
    read.filter_map(|(_, row)| row.as_deref().ok()).find(|a| a.on == on && a.what == "disable")
}

/// Returns the rows of the lines: those that can be opened.
pub(super) fn rows(app: &App, queue: QueueKind, height: usize) -> Vec<Option<OverviewRow>> {
    let work = app.knowledge.summary.work_of(queue);
    let parts = work.parts();
    if !parts.is_empty() {
        return sections::rows(queue, parts, height);
    }
    if height < 2 || is_empty(work) {
        return vec![Some(OverviewRow::Progress(queue))];
    }
    // the cursor marks the line of text, because a reversed bar would read as its opposite
    vec![None, Some(OverviewRow::Progress(queue))]
}

fn is_empty(work: &Work) -> bool {
    work.used == 0 && work.left.is_empty()
}

/// Returns the lines: the bar with its numbers, then the slots and the limits. A queue of several batches has a line for
/// each. Without a frame, and so without a title, the estimated end is part of the lines.
pub(super) fn lines(app: &App, queue: QueueKind, (width, height): (usize, usize), framed: bool) -> Vec<PanelLine> {
    let work = app.knowledge.summary.work_of(queue);
    let parts = work.parts();
    if !parts.is_empty() {
        let mut lines = sections::lines(app, queue, parts, (width, height));
        if section_rows(parts.len(), height).1 {
            lines.push(fields(app, queue, width, framed));
        }
        return lines;
    }
    if is_empty(work) {
        return vec![vec![Span::raw("nothing is queued")]];
    }
    let numbers = numbers(app, queue, work, width);
    let numbers_width: usize = numbers.iter().map(Span::width).sum();
    let room = width.saturating_sub(numbers_width + GAP);
    let mut first = Vec::new();
    // the bar of a single entry would be full from its start on
    let all = work.done + work.failed + work.withdrawn + work.used.max(left(work));
    if room >= MIN_BAR && all > 1 {
        first = work.only().map_or_else(|| bar(app, work, room), |only| sections::bar(app, only, room));
        first.push(Span::raw(" ".repeat(GAP)));
    }
    first.extend(numbers);
    if height < 2 {
        return vec![first];
    }
    vec![first, fields(app, queue, width, framed)]
}

/// Returns the fields of the second line that fit, the most important first. A field is shown whole or not at all.
pub(super) fn fields(app: &App, queue: QueueKind, width: usize, titled: bool) -> Vec<Span<'static>> {
    let work = app.knowledge.summary.work_of(queue);
    // beside the numbers of one batch, those of the whole queue say so
    let label = format!("all {queue}s:");
    let whole = (!work.parts().is_empty()).then(|| vec![text(label, app.config.theme.muted)]);
    let mut fields: Vec<Vec<Span<'static>>> = whole.into_iter().collect();
    if work.others_failed > 0 {
        fields.push(vec![text(format!("others: {} failed", work.others_failed), app.config.theme.danger)]);
    }
    let is_first = queue == QueueKind::Reboot || !sections::has_work(app, QueueKind::Reboot);
    fields.extend(idle::cordons(app).filter(|_| is_first).map(|cordons| vec![cordons]));
    fields.extend(estimate(app, queue, work, titled));
    fields.extend(limits(app, queue, work));
    if width >= WIDE && !(titled && has_end(app, queue, work)) {
        fields.extend(basis(app, queue, work));
    }
    let (mut line, mut used) = (Vec::new(), 0);
    for field in fields {
        let field_width: usize = field.iter().map(Span::width).sum();
        if !line.is_empty() {
            if used + GAP + field_width > width {
                break;
            }
            line.push(Span::raw(" ".repeat(GAP)));
            used += GAP;
        }
        used += field_width;
        line.extend(field);
    }
    line
}

/// Returns the number of entries that have not ended.
fn left(work: &Work) -> usize {
    let left = &work.left;
    left.left + left.held + left.stuck + left.behind + left.backoff.map_or(0, |(n, _)| n)
}

/// Returns the bar: done, in work, still to come, cancelled.
fn bar(app: &App, work: &Work, width: usize) -> Vec<Span<'static>> {
    let theme = &app.config.theme;
    let all = left(work);
    let part = |amount, fill, severity| Part { amount, fill, style: theme.shape(severity) };
    let stuck = work.motion.used_stuck.min(work.used);
    let parts = [
        part(work.done, Fill::Done, Severity::Done),
        part(work.failed, Fill::Done, Severity::Failed),
        part(work.used - stuck, Fill::Work, Severity::Rebooting),
        part(stuck, Fill::Work, Severity::Failed),
        part(work.backing_off, Fill::Rest, Severity::Slow),
        part(all.saturating_sub(work.used + work.backing_off), Fill::Rest, Severity::Waiting),
        part(work.withdrawn, Fill::Withdrawn, Severity::Waiting),
    ];
    gauge::bar(&parts, width, app.config.blocks)
}

/// Returns the numbers of the bar's parts.
fn numbers(app: &App, queue: QueueKind, work: &Work, width: usize) -> Vec<Span<'static>> {
    let (theme, counts) = (&app.config.theme, app.knowledge.totals.counts(queue));
    let failed = if work.only().is_some() { work.failed } else { work.failed.max(counts.failed) };
    let waiting = (counts.queued + counts.backoff).saturating_sub(work.backing_off);
    let waiting = waiting.saturating_sub(if queue == QueueKind::Repair {
        work.used.saturating_sub(counts.draining + counts.after)
    } else {
        0
    });
    let backing_off = if width < SHORT_WIDTH { "backoff" } else { "backing off" };
    let parts = [
        (work.done, "done", theme.good, false),
        (work.used, "in work", theme.rebooting, false),
        (waiting, "queued", Style::new(), false),
        (work.backing_off, backing_off, theme.trouble, true),
        (failed, "failed", theme.danger, true),
        (work.withdrawn, sections::withdrawn(queue), theme.muted, true),
        (counts.broken, "broken", theme.danger, true),
    ];
    let line = |zeros: bool, gap: &'static str| {
        let mut spans: Vec<Span<'static>> = Vec::new();
        for (n, what, style, _) in parts.into_iter().filter(|(n, .., optional)| *n > 0 || (zeros && !optional)) {
            if !spans.is_empty() {
                spans.push(Span::raw(gap));
            }
            spans.push(text(format!("{n} {what}"), if n == 0 { theme.muted } else { style }));
        }
        spans
    };
    let fits = |spans: &Vec<Span<'static>>| spans.iter().map(Span::width).sum::<usize>() <= width;
    let usual = line(true, "  ");
    if fits(&usual) { usual } else { line(false, " ") }
}

/// Returns the estimated end, or the reason why there is none. An end that the title shows is not repeated: what is left
/// are the entries that do not end on their own.
fn estimate(app: &App, queue: QueueKind, work: &Work, titled: bool) -> Vec<Vec<Span<'static>>> {
    let theme = &app.config.theme;
    let styled = |(phrase, tone): (String, Tone)| match tone {
        Tone::Plain => text(phrase, theme.title),
        Tone::Trouble => text(phrase, theme.trouble),
        Tone::Aside => text(phrase, theme.muted),
    };
    if titled && has_end(app, queue, work) {
        // the numbers of the first line have the backoffs
        let others = RemainingWork { backoff: None, ..work.left.clone() };
        return others.parked().into_iter().map(|parked| vec![styled(parked)]).collect();
    }
    let phrases = described(app, queue, work).into_iter().filter(|(_, tone)| *tone != Tone::Aside);
    let spans: Vec<Span<'static>> = phrases.map(styled).collect();
    if spans.is_empty() { Vec::new() } else { vec![spans] }
}

/// Returns the basis of the estimate: `(like the last 16)`.
fn basis(app: &App, queue: QueueKind, work: &Work) -> Option<Vec<Span<'static>>> {
    let aside = described(app, queue, work).into_iter().find(|(_, tone)| *tone == Tone::Aside);
    aside.map(|(phrase, _)| vec![text(phrase.trim_start().to_owned(), app.config.theme.muted)])
}

fn described(app: &App, queue: QueueKind, work: &Work) -> Vec<(String, Tone)> {
    let what = match queue {
        QueueKind::Reboot => "reboot",
        QueueKind::Repair => "repair",
        QueueKind::Maintenance => "maintenance",
    };
    work.left.described(what, app.knowledge.estimates.of_queue(queue), |at| calendar::moment(app, at))
}

/// Returns the slots, the machines that are away, the usual time, and what limits further starts.
fn limits(app: &App, queue: QueueKind, work: &Work) -> Vec<Vec<Span<'static>>> {
    let (theme, store) = (&app.config.theme, &app.seen.snapshot.store);
    let mut parts: Vec<Vec<Span<'static>>> = Vec::new();
    if let Some(all) = work.slots.and_then(|n| usize::try_from(n).ok()) {
        let mut slots = vec![Span::raw("slots ")];
        if work.used > all {
            // the limit was lowered, or a program that knows no limit started work
            slots.push(text(format!("{}/{all}, limit lowered", work.used), theme.trouble));
        } else {
            slots.extend(gauge::slots(work.used, all, theme.rebooting, app.config.blocks));
        }
        parts.push(slots);
    }
    if queue == QueueKind::Reboot {
        let limit = store.constraints().maximum_unreachable_nodes_for_reboot;
        let away = app.knowledge.totals.unready.len() + app.knowledge.totals.missing.len();
        let is_over = i64::try_from(away).is_ok_and(|away| away > limit);
        let style = if is_over { theme.danger } else { Style::new() };
        parts.push(vec![text(format!("unreachable {away} of {limit}"), style)]);
    }
    if let (QueueKind::Reboot, Some(usual)) = (queue, app.knowledge.summary.day.boot_percentile(50)) {
        parts.push(vec![Span::raw(format!("usual boot {}", seconds(usual)))]);
    }
    if let Some((window, is_open)) = calendar::window(app, queue) {
        parts.push(vec![text(window, if is_open { Style::new() } else { theme.trouble })]);
    }
    for (on, n) in work.waits.iter().take(2) {
        let verb = if *n == 1 { "waits" } else { "wait" };
        parts.push(vec![text(format!("{n} {verb} for {on}"), theme.muted)]);
    }
    parts
}

/// Formats whole seconds.
pub(super) fn seconds(seconds: u64) -> String {
    when::span(jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(0)))
}
