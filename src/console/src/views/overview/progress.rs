//! Progress of a queue: a bar, numbers, the estimated end, slots, and what limits it.

use cketerm_model::{entry::QueueKind, stored::keys::SwitchName};
use ratatui::{style::Style, text::Span};

use super::{PanelLine, info, text};
use crate::{
    state::{
        App, calendar,
        eta::Tone,
        overview::{OverviewRow, Work},
        queries::{self, Leader},
        short_text, sources, when,
    },
    theme::Severity,
    views::{
        gauge::{self, Fill, Part},
        panel::Panel,
    },
};

/// Width of a line from which the estimate stands beside the bar.
const WIDE: usize = 100;
/// Narrowest bar.
const MIN_BAR: usize = 10;

/// Returns the title: the queue, the reason and the operator of its entries, and the queue's state.
pub(super) fn title(app: &App, queue: QueueKind) -> Panel {
    let theme = &app.config.theme;
    let work = app.knowledge.summary.work_of(queue);
    let mut title = vec![text(heading(queue), theme.title)];
    let reason = work.asked.reason.as_deref().map(|why| short_text::shorten_middle(why, 40));
    let by = work.asked.by.as_deref().map(|by| {
        let at = work.asked.since.map(|at| format!(" {}", calendar::moment(app, at))).unwrap_or_default();
        format!("asked by {}{at}", short_text::safe(by))
    });
    let asked: Vec<String> = reason.into_iter().chain(by).collect();
    if !asked.is_empty() {
        title.push(Span::raw(format!(": {}", asked.join(", "))));
    }
    let (state, style) = state(app, queue);
    Panel::new(title).note(text(state, style))
}

fn heading(queue: QueueKind) -> &'static str {
    match queue {
        QueueKind::Reboot => "Reboots",
        QueueKind::Repair => "Repairs",
    }
}

/// Returns the state of a queue with work, and its style.
fn state(app: &App, queue: QueueKind) -> (String, Style) {
    let (theme, store, boot) = (&app.config.theme, &app.seen.snapshot.store, app.now.boot);
    let (switch, work) = (store.switch(queue), app.knowledge.summary.work_of(queue));
    let (remaining, held) = (work.left.left, work.left.held);
    // work in progress that moves
    let moving = work.used.saturating_sub(work.used_stuck);
    let window_closed = calendar::window_state(app, &store.policy(), queue).is_some_and(|state| !state.open);
    let (state, style) = match sources::current_leader(&app.seen, boot) {
        Leader::Unknown => ("etcd is lost", theme.danger),
        _ if !switch.enabled() && work.used > 0 => ("DISABLED, finishing work", theme.danger),
        _ if !switch.enabled() => ("DISABLED", theme.danger),
        Leader::Nobody => ("NOT moving, nobody leads", theme.danger),
        _ if moving == 0 && remaining > 0 && calendar::freeze(app).is_some() => ("FROZEN", theme.danger),
        _ if work.used == 0 && work.left.is_empty() => ("nothing to do", theme.muted),
        _ if moving == 0 && remaining > 0 && window_closed => ("waits for the window", theme.trouble),
        _ if remaining == 0 && held > 0 && work.left.stalled() == 0 => ("ON HOLD", theme.trouble),
        _ if work.used > 0 && (remaining == 0 || moving == 0) => ("STUCK", theme.danger),
        _ if work.used > 0 && queries::kube_lost(&app.seen, boot).is_some() => {
            ("blocked, Kubernetes is lost", theme.danger)
        }
        _ if work.used_waits > 0 && moving == work.used_waits => ("blocked", theme.trouble),
        _ if work.used > 0 => ("moving", theme.good),
        _ if remaining == 0 && work.left.stuck == 0 => ("in backoff", theme.trouble),
        _ if remaining == 0 => ("STUCK", theme.danger),
        _ => ("waiting", theme.trouble),
    };
    let seen_at = queries::etcd_lost(&app.seen, boot).map(|_| format!("as of {}: ", calendar::time(app, app.known())));
    let by = (!switch.enabled()).then(|| who_disabled(app, queue, switch.mod_revision)).flatten();
    let window = calendar::window(app, queue).map(|(window, _)| format!(", {window}")).unwrap_or_default();
    (format!("{}{state}{}{window}", seen_at.unwrap_or_default(), by.unwrap_or_default()), style)
}

/// Returns who disabled a queue, when and why, if the audit has it: ` by bob at 09:17Z (storage incident)`. Only a
/// record of the same transaction counts, because `ckecli` and `etcdctl` write none.
fn who_disabled(app: &App, queue: QueueKind, switch_revision: i64) -> Option<String> {
    let on = SwitchName::from(queue).title();
    let read = app.knowledge.past.audit.rows.iter().filter(|(id, _)| id.revision.0 == switch_revision);
    let audit = read.filter_map(|(_, row)| row.as_ref().ok()).find(|a| a.on == on && a.what == "disable")?;
    let why =
        audit.reason.as_ref().map(|why| format!(" ({})", short_text::shorten_middle(why, 30))).unwrap_or_default();
    Some(short_text::safe(&format!(" by {} at {}{why}", audit.who.user, calendar::short(app, audit.at))))
}

/// Returns the lines: the bar with its numbers, then the estimate, the slots and the limits.
pub(super) fn lines(app: &App, queue: QueueKind, width: usize, height: usize) -> Vec<PanelLine> {
    let work = app.knowledge.summary.work_of(queue);
    if work.used == 0 && work.left.is_empty() {
        return vec![PanelLine {
            row: Some(OverviewRow::Progress(queue)),
            spans: vec![Span::raw("nothing is queued")],
        }];
    }
    let estimate = estimate(app, queue, work, width);
    let estimate_width: usize = estimate.iter().map(Span::width).sum();
    let numbers = numbers(app, queue, work);
    let numbers_width: usize = numbers.iter().map(Span::width).sum();
    let beside = width >= WIDE && numbers_width + estimate_width + 6 + MIN_BAR <= width;
    let taken = numbers_width + 3 + if beside { estimate_width + 3 } else { 0 };
    let mut first = bar(app, work, width.saturating_sub(taken).max(MIN_BAR));
    first.push(Span::raw("   "));
    first.extend(numbers);
    let mut second = Vec::new();
    if beside {
        first.push(Span::raw("   "));
        first.extend(estimate);
    } else {
        second.extend(estimate);
        second.push(Span::raw("   "));
    }
    second.extend(limits(app, queue, work));
    let row = |is_marked: bool| is_marked.then_some(OverviewRow::Progress(queue));
    // the cursor marks the line of text, because a reversed bar would read as its opposite
    let is_short = height < 2;
    let mut lines = vec![PanelLine { row: row(is_short), spans: first }];
    if !is_short {
        lines.push(PanelLine { row: row(true), spans: second });
    }
    lines
}

/// Returns the bar: done, in work, still to come.
fn bar(app: &App, work: &Work, width: usize) -> Vec<Span<'static>> {
    let theme = &app.config.theme;
    let left = &work.left;
    let all = left.left + left.held + left.stuck + left.behind + left.backoff.map_or(0, |(n, _)| n);
    let part = |amount, fill, severity| Part { amount, fill, style: theme.shape(severity) };
    let stuck = work.used_stuck.min(work.used);
    let parts = [
        part(work.done, Fill::Done, Severity::Done),
        part(work.failed, Fill::Done, Severity::Failed),
        part(work.used - stuck, Fill::Work, Severity::Rebooting),
        part(stuck, Fill::Work, Severity::Failed),
        part(all.saturating_sub(work.used), Fill::Rest, Severity::Waiting),
    ];
    gauge::bar(&parts, width, app.config.blocks)
}

/// Returns the numbers of the bar's parts.
fn numbers(app: &App, queue: QueueKind, work: &Work) -> Vec<Span<'static>> {
    let (theme, counts) = (&app.config.theme, app.knowledge.totals.counts(queue));
    let failed = work.failed.max(counts.failed);
    let waiting = counts.queued + counts.backoff;
    let waiting = waiting.saturating_sub(if queue == QueueKind::Repair {
        work.used.saturating_sub(counts.draining + counts.after)
    } else {
        0
    });
    let parts = [
        (work.done, "done", theme.good, false),
        (work.used, "in work", theme.rebooting, false),
        (waiting, "queued", Style::new(), false),
        (failed, "failed", theme.danger, true),
        (counts.broken, "broken", theme.danger, true),
    ];
    let mut spans = Vec::new();
    for (n, what, style, _) in parts.into_iter().filter(|(n, .., optional)| *n > 0 || !optional) {
        if !spans.is_empty() {
            spans.push(Span::raw("  "));
        }
        spans.push(text(format!("{n} {what}"), if n == 0 { theme.muted } else { style }));
    }
    spans
}

/// Returns the estimated end, or the reason why there is none.
fn estimate(app: &App, queue: QueueKind, work: &Work, width: usize) -> Vec<Span<'static>> {
    let theme = &app.config.theme;
    let what = match queue {
        QueueKind::Reboot => "reboot",
        QueueKind::Repair => "repair",
    };
    let phrases = work.left.described(what, |at| calendar::moment(app, at));
    // the basis of the estimate is in the queue's own view
    let phrases = phrases.into_iter().filter(|(_, tone)| *tone != Tone::Aside || width >= WIDE);
    let spans = phrases.map(|(phrase, tone)| match tone {
        Tone::Plain => text(phrase, theme.title),
        Tone::Trouble => text(phrase, theme.trouble),
        Tone::Aside => text(phrase, theme.muted),
    });
    spans.collect()
}

/// Returns the slots, the usual time, and what limits further starts.
fn limits(app: &App, queue: QueueKind, work: &Work) -> Vec<Span<'static>> {
    let (theme, store) = (&app.config.theme, &app.seen.snapshot.store);
    let mut parts: Vec<Vec<Span<'static>>> = Vec::new();
    if let Some(all) = work.slots.and_then(|n| usize::try_from(n).ok()) {
        let mut slots = vec![Span::raw("slots ")];
        slots.extend(gauge::slots(work.used, all, theme.rebooting, app.config.blocks));
        parts.push(slots);
    }
    if let (QueueKind::Reboot, Some(usual)) = (queue, app.knowledge.summary.day.boot_percentile(50)) {
        parts.push(vec![Span::raw(format!("usual {} a machine", seconds(usual)))]);
    }
    if queue == QueueKind::Reboot {
        let limit = store.constraints().maximum_unreachable_nodes_for_reboot;
        let away = app.knowledge.totals.unready.len() + app.knowledge.totals.missing.len();
        let is_over = i64::try_from(away).is_ok_and(|away| away > limit);
        let style = if is_over { theme.danger } else { Style::new() };
        parts.push(vec![text(format!("unreachable {away} of {limit}"), style)]);
    }
    for (on, n) in work.waits.iter().take(2) {
        parts.push(vec![text(format!("{n} for {on}"), theme.muted)]);
    }
    let mut spans = Vec::new();
    for part in parts {
        if !spans.is_empty() {
            spans.push(Span::raw("   "));
        }
        spans.extend(part);
    }
    spans
}

/// Formats whole seconds.
pub(super) fn seconds(seconds: u64) -> String {
    when::span(jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(0)))
}

/// Returns the next step while nothing is queued.
pub(super) fn idle(app: &App) -> Vec<PanelLine> {
    let theme = &app.config.theme;
    let key = |name: &str| text(app.key(name), theme.key);
    let first = info(vec![text("both queues are done", theme.good)]);
    let second = info(vec![
        Span::raw("to reboot machines: "),
        key("nodes"),
        Span::raw(" nodes, "),
        key("mark"),
        Span::raw(" marks some, "),
        key("reboot"),
        Span::raw(" queues them and shows first what would happen"),
    ]);
    vec![first, second]
}
