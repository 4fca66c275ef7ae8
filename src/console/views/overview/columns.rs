//! Layout: one column or two, folded lines, and the number of lines of each section.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr;

use super::{
    LABEL, OverviewLine, blocks, data, leads, machines,
    past::{actions, day, ended},
    queue, said, stuck, switches, text, to_go, waiting, waits_on, work,
};
use crate::{
    console::{app::App, overview::Spot, views},
    model::entry::QueueKind,
};

/// Number of lines from which long lines may take two and the last day is shown.
const ROOM: usize = 18;
/// Width from which the past is shown beside the present.
const TWO: u16 = 150;

/// Returns the lines of both columns; the right one is empty on a narrow screen.
fn columns(app: &App, area: Rect) -> (Vec<OverviewLine>, Vec<OverviewLine>) {
    let room = usize::from(area.height);
    let mut left = vec![said("Reboots", queue(app, QueueKind::Reboot)), said("Repairs", queue(app, QueueKind::Repair))];
    // on a tall screen, long lines continue in a second line
    let width = if room < ROOM { usize::MAX } else { usize::from(left_width(area)).saturating_sub(LABEL + 2) };
    left.extend(to_go(app).into_iter().flat_map(|line| folded(line, width)));
    let told = [said("Waiting", waiting(app)), said("Leads", leads(app)), said("Data", data(app))];
    left.extend(told.into_iter().flat_map(|line| folded(line, width)));
    left.extend(switches(app, area.width).into_iter().map(|spans| said("", spans)));
    if room >= ROOM {
        left.extend(day(app));
    }
    left.extend(blocks(app));
    left.extend(machines(app));
    let (work, stuck, waits_on) = (work(app), stuck(app), waits_on(app));
    let (ended, actions) = (ended(app), actions(app));
    if area.width >= TWO {
        let rest = room.saturating_sub(left.len());
        let parts = shares(rest, &[work.len(), stuck.len(), waits_on.len()]);
        left.extend(part("In work", work, parts[0]));
        left.extend(part("Stuck", stuck, parts[1]));
        left.extend(part("Waits on", waits_on, parts[2]));
        let parts = shares(room, &[ended.len(), actions.len()]);
        let mut right = part("Ended", ended, parts[0]);
        right.extend(part("Actions", actions, parts[1]));
        return (left, right);
    }
    let rest = room.saturating_sub(left.len());
    let parts = shares(rest, &[stuck.len(), work.len(), waits_on.len(), ended.len(), actions.len()]);
    left.extend(part("In work", work, parts[1]));
    left.extend(part("Stuck", stuck, parts[0]));
    left.extend(part("Waits on", waits_on, parts[2]));
    left.extend(part("Ended", ended, parts[3]));
    left.extend(part("Actions", actions, parts[4]));
    (left, Vec::new())
}

/// Distributes lines among the sections: first one each, then up to three each, then the rest, earlier sections first.
fn shares(room: usize, needs: &[usize]) -> Vec<usize> {
    let mut parts = vec![0; needs.len()];
    let mut left = room;
    for fair in [1, 3, room] {
        for (part, need) in parts.iter_mut().zip(needs) {
            let more = need.min(&fair).saturating_sub(*part).min(left);
            *part += more;
            left -= more;
        }
    }
    parts
}

/// Returns the first lines of a section under its label; the last line shows the number of hidden ones.
fn part(label: &'static str, lines: Vec<OverviewLine>, room: usize) -> Vec<OverviewLine> {
    let hidden = lines.len().saturating_sub(room);
    let mut shown: Vec<OverviewLine> = lines.into_iter().take(room).collect();
    if let Some(first) = shown.first_mut() {
        first.label = label;
    }
    if hidden > 0
        && let Some(last) = shown.last_mut()
    {
        last.spans.insert(0, text(format!("({hidden} more) "), Style::new()));
    }
    shown
}

/// Returns the targets of the lines that can be opened, in the order of the screen.
pub fn spots(app: &App, area: Rect) -> Vec<Spot> {
    let (left, right) = columns(app, area);
    left.into_iter().chain(right).filter_map(|line| line.spot).collect()
}

/// Returns the width of the left half, or of the whole area.
fn left_width(area: Rect) -> u16 {
    if area.width >= TWO { split(area).saturating_sub(1) } else { area.width }
}

/// Folds a line that is too long into two; the second one is cut if needed.
fn folded(line: OverviewLine, width: usize) -> Vec<OverviewLine> {
    let long = line.spans.iter().map(Span::width).sum::<usize>() > width;
    if !long {
        return vec![line];
    }
    let (mut first, mut second, mut used) = (Vec::new(), Vec::new(), 0);
    for span in line.spans {
        let style = span.style;
        for word in span.content.split_inclusive(' ') {
            if second.is_empty() && used + word.trim_end().width() <= width {
                used += word.width();
                first.push(text(word.to_owned(), style));
            } else {
                second.push(text(word.to_owned(), style));
            }
        }
    }
    if let Some(last) = first.last_mut() {
        *last = text(last.content.trim_end().to_owned(), last.style);
    }
    vec![OverviewLine { spans: first, ..line }, said("", second)]
}

/// Returns the target at this place of the screen.
pub(in crate::console::views) fn spot_at(app: &App, area: Rect, x: u16, y: u16) -> Option<Spot> {
    let (left, right) = columns(app, area);
    let lines = if area.width >= TWO && x >= area.x + split(area) { right } else { left };
    let nth = usize::from(y.checked_sub(area.y).filter(|nth| *nth < area.height)?);
    lines.into_iter().nth(nth)?.spot
}

/// Returns the place at which the right column begins.
fn split(area: Rect) -> u16 {
    if area.width >= TWO { area.width * 11 / 20 } else { area.width }
}

/// Draws the Overview.
pub(in crate::console::views) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if let Some(lines) = views::connecting(app) {
        views::say_empty(buffer, area, &lines, app);
        return;
    }
    let (left, right) = columns(app, area);
    let split = split(area);
    column(app, buffer, Rect { width: left_width(area), ..area }, left, stale);
    column(app, buffer, Rect { x: area.x + split, width: area.width - split, ..area }, right, stale);
}

fn column(app: &App, buffer: &mut Buffer, area: Rect, lines: Vec<OverviewLine>, stale: bool) {
    let theme = &app.looks.theme;
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        let at_cursor = line.spot.is_some() && line.spot == app.spots.cursor;
        let mut spans = vec![text(format!("{:<LABEL$}", line.label), theme.title)];
        spans.push(if at_cursor { text("> ", theme.cursor) } else { Span::raw("  ") });
        spans.extend(line.spans.into_iter().map(|span| if stale { span.style(theme.muted) } else { span }));
        let line = Line::from(spans);
        let long = line.width() > usize::from(area.width);
        buffer.set_line(area.x, y, &line, area.width);
        if long {
            buffer.set_stringn(area.right().saturating_sub(1), y, "~", 1, theme.muted);
        }
    }
}
