//! Layout: one column or two, folded lines, and the number of lines of each section.

use cketerm_model::entry::QueueKind;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr;

use super::{
    LABEL_WIDTH, OverviewLine, blocks, data, info_line, leadership, machines,
    past::{actions, day, ended},
    queue, remaining_time, stuck, switches, text, waiting, waits_on, work,
};
use crate::{
    state::{App, overview::OverviewRow},
    views,
};

/// Number of lines from which long lines may take two and the last day is shown.
const TALL_HEIGHT: usize = 18;
/// Width from which the past is shown beside the present.
const TWO_COLUMN_WIDTH: u16 = 150;

/// Returns the lines of both columns; the right one is empty on a narrow screen.
fn columns(app: &App, area: Rect) -> (Vec<OverviewLine>, Vec<OverviewLine>) {
    let capacity = usize::from(area.height);
    let mut left =
        vec![info_line("Reboots", queue(app, QueueKind::Reboot)), info_line("Repairs", queue(app, QueueKind::Repair))];
    // on a tall screen, long lines continue in a second line
    let width =
        if capacity < TALL_HEIGHT { usize::MAX } else { usize::from(left_width(area)).saturating_sub(LABEL_WIDTH + 2) };
    left.extend(remaining_time(app).into_iter().flat_map(|line| fold_line(line, width)));
    let status_lines =
        [info_line("Waiting", waiting(app)), info_line("Leads", leadership(app)), info_line("Data", data(app))];
    left.extend(status_lines.into_iter().flat_map(|line| fold_line(line, width)));
    left.extend(switches(app, area.width).into_iter().map(|spans| info_line("", spans)));
    if capacity >= TALL_HEIGHT {
        left.extend(day(app));
    }
    left.extend(blocks(app));
    left.extend(machines(app));
    let (work, stuck, waits_on) = (work(app), stuck(app), waits_on(app));
    let (ended, actions) = (ended(app), actions(app));
    if area.width >= TWO_COLUMN_WIDTH {
        let free_lines = capacity.saturating_sub(left.len());
        let heights = distribute(free_lines, &[work.len(), stuck.len(), waits_on.len()]);
        left.extend(section("In work", work, heights[0]));
        left.extend(section("Stuck", stuck, heights[1]));
        left.extend(section("Waits on", waits_on, heights[2]));
        let heights = distribute(capacity, &[ended.len(), actions.len()]);
        let mut right = section("Ended", ended, heights[0]);
        right.extend(section("Actions", actions, heights[1]));
        return (left, right);
    }
    let free_lines = capacity.saturating_sub(left.len());
    let heights = distribute(free_lines, &[stuck.len(), work.len(), waits_on.len(), ended.len(), actions.len()]);
    left.extend(section("In work", work, heights[1]));
    left.extend(section("Stuck", stuck, heights[0]));
    left.extend(section("Waits on", waits_on, heights[2]));
    left.extend(section("Ended", ended, heights[3]));
    left.extend(section("Actions", actions, heights[4]));
    (left, Vec::new())
}

/// Distributes lines among the sections: first one each, then up to three each, then the rest, earlier sections first.
fn distribute(capacity: usize, lengths: &[usize]) -> Vec<usize> {
    let mut heights = vec![0; lengths.len()];
    let mut left = capacity;
    for limit in [1, 3, capacity] {
        for (section, need) in heights.iter_mut().zip(lengths) {
            let more = need.min(&limit).saturating_sub(*section).min(left);
            *section += more;
            left -= more;
        }
    }
    heights
}

/// Returns the first lines of a section under its label; the last line shows the number of hidden ones.
fn section(label: &'static str, lines: Vec<OverviewLine>, capacity: usize) -> Vec<OverviewLine> {
    let hidden = lines.len().saturating_sub(capacity);
    let mut shown: Vec<OverviewLine> = lines.into_iter().take(capacity).collect();
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
pub fn overview_rows(app: &App, area: Rect) -> Vec<OverviewRow> {
    let (left, right) = columns(app, area);
    left.into_iter().chain(right).filter_map(|line| line.overview_row).collect()
}

/// Returns the width of the left half, or of the whole area.
fn left_width(area: Rect) -> u16 {
    if area.width >= TWO_COLUMN_WIDTH { split_column(area).saturating_sub(1) } else { area.width }
}

/// Folds a line that is too long into two; the second one is cut if needed.
fn fold_line(line: OverviewLine, width: usize) -> Vec<OverviewLine> {
    let too_long = line.spans.iter().map(Span::width).sum::<usize>() > width;
    if !too_long {
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
    vec![OverviewLine { spans: first, ..line }, info_line("", second)]
}

/// Returns the target at this place of the screen.
pub(in crate::views) fn overview_row_at(app: &App, area: Rect, x: u16, y: u16) -> Option<OverviewRow> {
    let (left, right) = columns(app, area);
    let lines = if area.width >= TWO_COLUMN_WIDTH && x >= area.x + split_column(area) { right } else { left };
    let nth = usize::from(y.checked_sub(area.y).filter(|nth| *nth < area.height)?);
    lines.into_iter().nth(nth)?.overview_row
}

/// Returns the place at which the right column begins.
fn split_column(area: Rect) -> u16 {
    if area.width >= TWO_COLUMN_WIDTH { area.width * 11 / 20 } else { area.width }
}

/// Draws the Overview.
pub(in crate::views) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if let Some(lines) = views::connecting(app) {
        views::draw_empty(buffer, area, &lines, app);
        return;
    }
    let (left, right) = columns(app, area);
    let split_column = split_column(area);
    column(app, buffer, Rect { width: left_width(area), ..area }, left, stale);
    column(app, buffer, Rect { x: area.x + split_column, width: area.width - split_column, ..area }, right, stale);
}

fn column(app: &App, buffer: &mut Buffer, area: Rect, lines: Vec<OverviewLine>, stale: bool) {
    let theme = &app.config.theme;
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        let at_cursor = line.overview_row.is_some() && line.overview_row == app.lists.overview_rows.cursor;
        let mut spans = vec![text(format!("{:<LABEL_WIDTH$}", line.label), theme.title)];
        spans.push(if at_cursor { text("> ", theme.cursor) } else { Span::raw("  ") });
        spans.extend(line.spans.into_iter().map(|span| if stale { span.style(theme.muted) } else { span }));
        let line = Line::from(spans);
        let too_long = line.width() > usize::from(area.width);
        buffer.set_line(area.x, y, &line, area.width);
        if too_long {
            buffer.set_stringn(area.right().saturating_sub(1), y, "~", 1, theme.muted);
        }
    }
}
