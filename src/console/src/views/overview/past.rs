//! Panels about the past: the last day, and the latest events.

use cketerm_model::{
    cketerm_records::{Audit, EndKind},
    names::Address,
};
use cketerm_rules::beside_cke::{
    self,
    recorded::{Event, Kind},
};
use ratatui::text::Span;

use super::{PanelLine, folded, progress::seconds, text};
use crate::{
    state::{App, calendar, columns, overview::OverviewRow, past::PastId, short_text, when},
    views::bar::{chart, sparkline},
};

/// Width from which the times stand beside the numbers.
const WIDE: usize = 70;
/// Most lines of the chart: more show nothing new.
const MAX_CHART: usize = 6;
/// Fewest hours with ended entries that have a chart.
const MIN_HOURS: usize = 3;
/// Most machines of an action that are named one by one.
const MAX_NAMED: usize = 3;

/// Returns the number of lines about the last day, with a chart of this height at most.
pub(super) fn day_height(app: &App, width: usize, most: usize) -> usize {
    let day = &app.knowledge.summary.day;
    if day.ended.iter().all(|n| *n == 0) {
        return 1;
    }
    if most > 1 && has_shape(app) {
        return 1 + (most - 1).min(MAX_CHART);
    }
    1 + usize::from(width < WIDE && day.boot_percentile(50).is_some())
}

/// Reports whether the day has a shape: a chart of one or two hours says no more than a line.
fn has_shape(app: &App) -> bool {
    app.knowledge.summary.day.ended.iter().filter(|n| **n > 0).count() >= MIN_HOURS
}

/// Returns the rows of the last day.
pub(super) fn day_rows(app: &App, height: usize) -> Vec<Option<OverviewRow>> {
    let is_known = app.knowledge.summary.day.ended.iter().any(|n| *n > 0);
    if !is_known || height == 0 {
        return vec![None];
    }
    // the last line, below the chart, is the one that the cursor marks
    let mut rows = vec![None; height];
    if let Some(last) = rows.last_mut() {
        *last = Some(OverviewRow::Day);
    }
    rows
}

/// Returns the last day: the number of entries that ended in each hour, failures, and how long the machines were away.
/// With room for it, the hours are a chart.
pub(super) fn day(app: &App, width: usize, height: usize) -> Vec<PanelLine> {
    let (theme, day) = (&app.config.theme, &app.knowledge.summary.day);
    let all: u64 = day.ended.iter().sum();
    let read = &app.knowledge.past.history;
    if all == 0 {
        let shown = match (&read.error, read.loaded) {
            (Some(why), _) => text(format!("not read: {}", short_text::safe(why)), theme.trouble),
            (None, true) if beside_cke::applies(&app.seen.snapshot.store) => {
                text("CKE keeps no record of ended entries", theme.muted)
            }
            (None, true) => text("nothing ended", theme.muted),
            (None, false) => text("reading ...", theme.muted),
        };
        return vec![vec![shown]];
    }
    let known = day.ended.get(day.unread..).unwrap_or_default();
    let mut numbers = vec![text(format!("{} done", day.good), theme.good)];
    if day.bad > 0 {
        numbers.push(text(format!(", {} failed", day.bad), theme.danger));
    }
    if day.unread > 0 {
        numbers.push(text(format!(" in {}h", known.len()), theme.muted));
    }
    let times = match (day.boot_percentile(50), day.boot_percentile(90)) {
        (Some(median), Some(p90)) => {
            vec![Span::raw(format!("command to boot: median {}, p90 {}", seconds(median), seconds(p90)))]
        }
        _ => Vec::new(),
    };
    // without a chart, the hours are beside the numbers, and the times may need a line of their own
    let is_folded = width < WIDE && !times.is_empty() && height <= 2;
    let chart_lines = height.saturating_sub(1).min(MAX_CHART);
    let mut lines: Vec<PanelLine> = Vec::new();
    if chart_lines > 0 && !is_folded {
        let wide = (width / known.len().max(1)).clamp(1, 3);
        let chart = chart(known, wide, chart_lines, app.config.blocks);
        lines.extend(chart.into_iter().map(|line| vec![text(line, theme.good)]));
    } else {
        // behind the numbers, because the cursor's sign stands before them
        numbers.extend([Span::raw("  "), text(sparkline(known, app.config.blocks), theme.good)]);
    }
    if !is_folded && !times.is_empty() {
        numbers.push(Span::raw("   "));
        numbers.extend(times);
        lines.push(numbers);
        return lines;
    }
    lines.push(numbers);
    lines.extend((!times.is_empty()).then_some(times));
    lines
}

/// Returns the latest events: ended entries and people's actions, the newest first. Those that a line has no room for go on
/// in a second one where there is room.
pub(super) fn latest(app: &App, width: usize, height: usize) -> Vec<PanelLine> {
    let events = events(app, width, height);
    if !events.is_empty() {
        return events.into_iter().flatten().collect();
    }
    let (theme, past) = (&app.config.theme, &app.knowledge.past);
    let shown = match (past.history.error.as_ref().or(past.audit.error.as_ref()), past.history.loaded) {
        (Some(why), _) => text(format!("not read: {}", short_text::safe(why)), theme.trouble),
        (None, true) => text("nothing yet", theme.muted),
        (None, false) => text("reading ...", theme.muted),
    };
    vec![vec![shown]]
}

/// Returns the events of the lines; `None` for a line that goes on with the one above.
pub(super) fn latest_rows(app: &App, width: usize, height: usize) -> Vec<Option<OverviewRow>> {
    let events = app.knowledge.summary.latest.iter().zip(events(app, width, height));
    let rows = events.flat_map(|(row, lines)| {
        let more = lines.len().saturating_sub(1);
        std::iter::once(Some(row.clone())).chain(std::iter::repeat_n(None, more))
    });
    rows.collect()
}

/// Returns the lines of each event that is shown.
fn events(app: &App, width: usize, height: usize) -> Vec<Vec<PanelLine>> {
    let shown: Vec<&OverviewRow> = app.knowledge.summary.latest.iter().take(height).collect();
    let times: Vec<String> = shown.iter().map(|row| time(app, row)).collect();
    let indent = times.iter().map(String::len).max().unwrap_or(0);
    let mut room = height.saturating_sub(shown.len());
    let lines = shown.into_iter().zip(times).map(|(row, time)| {
        let line = event(app, row, &format!("{time:<indent$} "));
        let folded = folded::spans(&line, width, indent + 1);
        if folded.len() > room + 1 {
            return vec![line];
        }
        room -= folded.len() - 1;
        folded
    });
    lines.collect()
}

/// Returns the time of an event.
fn time(app: &App, row: &OverviewRow) -> String {
    let past = &app.knowledge.past;
    let at = match row {
        OverviewRow::Ended(id) => past.history.get(id).map(|ended| ended.at),
        OverviewRow::Action(id) => past.audit.get(id).map(|audit| audit.at),
        OverviewRow::Cke(id) => app.knowledge.summary.cke.get(id).map(|event| event.at),
        OverviewRow::NeedsYou(_)
        | OverviewRow::Progress(_)
        | OverviewRow::Batch(..)
        | OverviewRow::Work(_)
        | OverviewRow::Racks
        | OverviewRow::Day => None,
    };
    at.map(|at| calendar::short(app, at)).unwrap_or_default()
}

fn event(app: &App, row: &OverviewRow, time: &str) -> PanelLine {
    let mut spans = vec![Span::raw(time.to_owned())];
    match row {
        OverviewRow::Ended(id) => spans.extend(ended(app, id).unwrap_or_default()),
        OverviewRow::Action(id) => {
            spans.extend(app.knowledge.past.audit.get(id).map(|audit| Span::raw(action(app, audit))));
        }
        OverviewRow::Cke(id) => spans.extend(app.knowledge.summary.cke.get(id).map(|event| cke(app, event))),
        OverviewRow::NeedsYou(_)
        | OverviewRow::Progress(_)
        | OverviewRow::Batch(..)
        | OverviewRow::Work(_)
        | OverviewRow::Racks
        | OverviewRow::Day => {}
    }
    spans
}

fn ended(app: &App, id: &PastId) -> Option<Vec<Span<'static>>> {
    let theme = &app.config.theme;
    let e = app.knowledge.past.history.get(id)?;
    let took = e.took().map(|took| format!(" in {}", when::span(took))).unwrap_or_default();
    // somebody else may have cancelled it
    let asked = if e.end.withdrawn() { "asked by " } else { "" };
    let request = e.request.as_ref().filter(|r| e.withdrawn_by.as_ref().is_none_or(|who| who.user != r.who.user));
    let by = request.map(|r| format!(" ({asked}{})", short_text::safe(&r.who.user))).unwrap_or_default();
    let who = match &e.withdrawn_by {
        Some(who) => format!(" by {}", who.user),
        // an operator whom nobody recorded is unknown, and is not the one who asked for it
        None if matches!(e.end, EndKind::Cancelled | EndKind::Deleted) => format!(" by {}", when::UNKNOWN),
        None => String::new(),
    };
    let outcome = short_text::safe(&format!("{}{who}", e.outcome));
    if let Some(n) = app.knowledge.summary.folded.get(id) {
        let what = text(format!("{n} {}s {outcome}", e.entry.queue), columns::outcome_style(app, e));
        return Some(vec![what, text(by, theme.muted)]);
    }
    let node = short_text::shorten_middle(&app.seen.snapshot.machine(&e.address), 24);
    Some(vec![
        Span::raw(format!("{node} ")),
        text(outcome, columns::outcome_style(app, e)),
        text(format!("{took}{by}"), theme.muted),
    ])
}

/// Returns the objects of an action by name: the first ones of many, and the number of the others.
fn first_names(app: &App, on: &str) -> String {
    let all = short_text::named(&app.seen, on);
    let is_list = on.split(' ').all(|word| word.parse::<std::net::IpAddr>().is_ok());
    let names: Vec<&str> = all.split(' ').collect();
    match names.split_at_checked(MAX_NAMED) {
        Some((first, rest)) if is_list && rest.len() > 1 => format!("{} and {} more", first.join(" "), rest.len()),
        _ => all,
    }
}

/// Returns an event of CKE: `CKE: w02 rebooted, 1m44s`.
fn cke(app: &App, event: &Event) -> Span<'static> {
    let addresses: Vec<&str> = event.machines.iter().map(Address::as_str).collect();
    let machines = first_names(app, &addresses.join(" "));
    let what = match &event.kind {
        Kind::Rebooted(Some(took)) => format!("{machines} rebooted, {}", when::span(*took)),
        Kind::Rebooted(None) => format!("{machines} rebooted"),
        Kind::Removed => format!("{machines} left the queue without a reboot"),
        Kind::Cancelled => format!("{machines} removed after its cancel"),
        Kind::DrainRefused => format!("drain of {machines} refused"),
        Kind::DrainTimedOut => format!("drain of {machines} timed out"),
        Kind::RebootFailed => format!("reboot command failed on {machines}"),
        Kind::RepairEnded => format!("repair of {machines} ended"),
        Kind::Failed(operation, why) => format!("{operation} {machines}: {why}"),
    };
    let times = if event.times > 1 { format!(" ({} times)", event.times) } else { String::new() };
    let theme = &app.config.theme;
    let style = if event.kind.failed() { theme.trouble } else { ratatui::style::Style::new() };
    text(short_text::safe(&format!("CKE: {what}{times}")), style)
}

fn action(app: &App, audit: &Audit) -> String {
    let why = audit.reason.as_ref().map(|why| format!(" \"{why}\"")).unwrap_or_default();
    short_text::safe(&format!("{}: {} {}{why}", audit.who.user, audit.what, first_names(app, &audit.on)))
}
