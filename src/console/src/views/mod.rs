//! Drawing. It reads the state and never changes it. Its cost depends on the screen's size, not on the cluster's.

mod audit;
mod bar;
mod batches;
pub mod columns;
pub mod copy;
pub mod detail;
pub mod dialog;
mod diff;
pub mod footer;
pub mod header;
mod help;
mod history;
mod hosts;
pub mod key_document;
mod logs;
mod machines;
mod nodes;
mod overview;
mod palette;
mod pane;
pub mod panel;
mod picker;
mod preview;
mod racks;
mod reboots;
mod registry;
mod repairs;
mod theme_picker;
mod tour;

use ratatui::{
    Frame, Terminal,
    backend::TestBackend,
    layout::{Rect, Size},
};

pub use self::help::overflow as help_overflow;
#[cfg(test)]
pub(crate) use self::registry::summary_lines as registry_lines;
pub use crate::gauge;
use crate::{
    state::{
        App, View, queries,
        racks::{Grid, Map},
        short_text,
    },
    table::{put, wrap},
    theme::charset,
};

/// Least screen size; below it nothing useful fits.
pub const MIN_SIZE: (u16, u16) = (60, 15);
/// Height from which a pane is shown below its table instead of over it.
const MIN_SPLIT_HEIGHT: u16 = 36;

/// Width from which the detail of the cursor's row is shown beside the table.
const MIN_PREVIEW_WIDTH: u16 = 160;

/// Returns true if the screen fits only one line; then no key may do anything.
pub fn too_small(size: Size) -> bool {
    size.width < MIN_SIZE.0 || size.height < MIN_SIZE.1
}

/// Parts of the screen.
#[derive(Clone, Copy, Debug)]
pub struct ScreenLayout {
    /// Cluster, leader, counts, tabs.
    pub header: Rect,
    /// Lost sources.
    pub banner: Rect,
    /// The table; empty when a pane covers it.
    pub table: Rect,
    /// The detail of the cursor's row beside the table; empty on narrow screens and when a pane is open.
    pub preview: Rect,
    /// The pane; empty when none is open.
    pub pane: Rect,
    /// Message and hints.
    pub footer: Rect,
}

/// Divides the screen.
pub fn layout(app: &App) -> ScreenLayout {
    let (width, height) = (app.size.width, app.size.height);
    let banner = u16::try_from(header::banner(app).len()).unwrap_or(0);
    let footer = footer::height(app);
    let top = header::height(app).min(height);
    let rest = height.saturating_sub(top + banner + footer);
    let body = top + banner;
    let (table, pane) = match &app.navigation.pane {
        None => (rest, 0),
        Some(_) if height >= MIN_SPLIT_HEIGHT => (rest / 3, rest - rest / 3),
        Some(_) => (0, rest),
    };
    let list = if has_preview(app) { width / 20 * 11 } else { width };
    ScreenLayout {
        header: Rect::new(0, 0, width, top),
        banner: Rect::new(0, top, width, banner),
        // a gap before the border of the preview
        table: Rect::new(0, body, list - u16::from(list < width), table),
        preview: Rect::new(list, body, width - list, table),
        pane: Rect::new(0, body + table, width, pane),
        footer: Rect::new(0, height.saturating_sub(footer), width, footer),
    }
}

/// Returns true if the detail of the cursor's row is shown beside the table.
fn has_preview(app: &App) -> bool {
    let is_list = match app.navigation.view {
        // the Overview has a panel for it, and lines of a log need the width
        View::Overview | View::Logs => false,
        View::Machines | View::Diff => !app.navigation.racks,
        View::Nodes => app.navigation.map.is_none(),
        View::Reboots | View::Repairs | View::Hosts | View::History | View::Audit => true,
    };
    is_list && app.size.width >= MIN_PREVIEW_WIDTH && app.navigation.pane.is_none() && app.list().counts().0 > 0
}

/// Returns true if the preview shows another object than the one under the cursor. It follows once the cursor rests.
pub fn is_preview_due(app: &App) -> bool {
    let is_shown = has_preview(app) || overview::has_detail(app, layout(app).table);
    !too_small(app.size) && is_shown && app.navigation.preview != app.target()
}

/// Returns the number of lines between the top of the table's area and its titles.
fn summary_height(app: &App, table: Rect) -> usize {
    match app.navigation.view {
        // the lines about the plan's state
        View::Machines | View::Diff => {
            registry::summary_lines(app, usize::from(table.width)).len().min(usize::from(table.height / 3))
        }
        View::Logs => logs::summary_lines(app, table).len().min(usize::from(logs::summary_limit(table))),
        View::Hosts => hosts::summary_lines(app, usize::from(table.width)).len().min(usize::from(table.height / 3)),
        _ => 0,
    }
}

/// Returns the number of rows that the table shows, without its titles.
pub fn table_height(app: &App) -> usize {
    let table = layout(app).table;
    usize::from(table.height.saturating_sub(1)).saturating_sub(summary_height(app, table)).max(1)
}

/// Returns the machine of the map of racks at this place.
pub fn machine_at(app: &App, place: (u16, u16)) -> Option<&str> {
    let map = app.navigation.map.as_ref().filter(|_| crate::state::racks::open(app))?;
    let table = layout(app).table;
    (table.height > 0).then(|| racks::machine_at(app, map, table, place)).flatten()
}

/// Reports whether the detail beside the table is at this place.
pub fn is_preview_at(app: &App, (x, y): (u16, u16)) -> bool {
    layout(app).preview.contains((x, y).into())
}

/// Returns the visible row on this line of the screen.
pub fn row_at(app: &App, y: u16) -> Option<usize> {
    let table = layout(app).table;
    let racks = app.navigation.racks && app.navigation.view.registry();
    // the map of the racks hides the rows
    if racks
        || crate::state::racks::open(app)
        || app.navigation.view == View::Overview
        || !(table.y..table.bottom()).contains(&y)
    {
        return None;
    }
    usize::from(y - table.y).checked_sub(summary_height(app, table) + 1).filter(|row| *row < table_height(app))
}

/// Returns the column whose title is at this place of the table's first line, if filters and `:sort` know it.
pub fn title_at(app: &App, x: u16, y: u16) -> Option<crate::state::column_id::ColumnId> {
    let table = layout(app).table;
    let summary = u16::try_from(summary_height(app, table)).unwrap_or(0);
    let has_titles = !crate::state::racks::open(app) && app.navigation.view != View::Overview;
    if !has_titles || y != table.y + summary || !table.contains((x, y).into()) {
        return None;
    }
    // The line is drawn once more: its columns depend on the visible rows.
    let mut terminal = Terminal::new(TestBackend::new(app.size.width, app.size.height)).ok()?;
    terminal.draw(|frame| draw_screen(app, frame)).ok()?;
    let buffer = terminal.backend().buffer();
    let line: Vec<&str> = (table.x..table.right()).map(|at| buffer[(at, y)].symbol()).collect();
    let titles = crate::state::columns::summaries(app.navigation.view, app.navigation.second_table());
    let mut known = titles.iter().filter(|c| c.has_value);
    known
        .find(|c| {
            let title: Vec<String> = c.title.chars().map(String::from).collect();
            let is_there = |from: usize| line[from..].iter().zip(&title).all(|(shown, letter)| shown == letter);
            let begins = |from: &usize| *from == 0 || line[from - 1] == " ";
            let ends = |from: &usize| {
                let next = line.get(from + title.len());
                next.is_none_or(|next| !next.chars().any(char::is_alphanumeric))
            };
            let place = usize::from(x - table.x);
            (0..line.len().saturating_sub(title.len() - 1))
                .filter(begins)
                .filter(ends)
                .filter(|from| is_there(*from))
                .any(|from| (from..from + title.len()).contains(&place))
        })
        .map(|c| c.id)
}

/// Returns the target at this place of the Overview.
pub fn overview_row_at(app: &App, x: u16, y: u16) -> Option<crate::state::overview::OverviewRow> {
    let known = app.navigation.view == View::Overview && app.seen.snapshot.store.synced;
    known.then(|| overview::overview_row_at(app, layout(app).table, x, y)).flatten()
}

/// Returns the Overview's targets.
pub fn visible_overview_rows(app: &App) -> Vec<crate::state::overview::OverviewRow> {
    if app.seen.snapshot.store.synced { overview::overview_rows(app, layout(app).table) } else { Vec::new() }
}

/// Checks that the Overview's targets belong to its lines.
#[cfg(test)]
pub fn check_overview_rows(app: &App) {
    overview::checks::rows_match_lines(app, layout(app).table);
}

/// Returns the number of lines of the map of racks that are visible.
pub fn map_height(app: &App) -> usize {
    racks::height(app, layout(app).table)
}

/// Returns the arrangement of the map of racks.
pub fn map_grid(app: &App, map: &Map) -> Grid {
    racks::grid(app, map, layout(app).table)
}

/// Returns the width and the lines that a map of racks may have now.
pub fn largest_map(app: &App) -> (usize, usize) {
    let layout = layout(app);
    (usize::from(app.size.width), usize::from(layout.table.height).saturating_sub(racks::MAX_LINES_BELOW))
}

/// Returns the number of lines that the pane shows, without its title.
pub fn pane_height(app: &App) -> usize {
    usize::from(layout(app).pane.height.saturating_sub(1))
}

/// Returns the width of the pane's text.
pub fn pane_width(app: &App) -> u16 {
    app.size.width.saturating_sub(2)
}

/// Returns how far the pane can be scrolled.
pub fn pane_overflow(app: &App) -> usize {
    pane::lines(app).len().saturating_sub(pane_height(app))
}

/// Returns the text of the open pane, line by line.
pub fn pane_text(app: &App) -> Vec<String> {
    pane::lines(app).iter().map(ToString::to_string).collect()
}

/// Draws the whole screen.
pub fn draw(app: &App, frame: &mut Frame) {
    draw_screen(app, frame);
    charset::apply_charset(frame.buffer_mut(), app.config.charset);
}

fn draw_screen(app: &App, frame: &mut Frame) {
    let area = frame.area();
    if too_small(area.as_size()) {
        let text = format!("{}x{} is too small: {}x{} at least", area.width, area.height, MIN_SIZE.0, MIN_SIZE.1);
        put(frame.buffer_mut(), 0, 0, area.width, &text, app.config.theme.trouble);
        return;
    }
    let layout = layout(app);
    header::draw(app, frame.buffer_mut(), layout.header, layout.banner);
    let boot = app.now.boot;
    if layout.table.height > 0 {
        let etcd_lost = queries::etcd_lost(&app.seen, boot).is_some();
        match app.navigation.view {
            View::Overview => overview::draw(app, frame.buffer_mut(), layout.table, etcd_lost),
            View::History => history::draw(app, frame.buffer_mut(), layout.table, etcd_lost),
            View::Logs => logs::draw(app, frame.buffer_mut(), layout.table),
            View::Audit => audit::draw(app, frame.buffer_mut(), layout.table, etcd_lost),
            View::Reboots => {
                reboots::draw(app, frame.buffer_mut(), layout.table, queries::etcd_lost(&app.seen, boot).is_some());
            }
            View::Repairs => {
                repairs::draw(app, frame.buffer_mut(), layout.table, queries::etcd_lost(&app.seen, boot).is_some());
            }
            View::Machines => {
                let lost =
                    queries::etcd_lost(&app.seen, boot).is_some() || app.seen.snapshot.registry.members.error.is_some();
                machines::draw(app, frame.buffer_mut(), layout.table, lost);
            }
            View::Diff => {
                let lost = etcd_lost || app.seen.snapshot.registry.members.error.is_some();
                diff::draw(app, frame.buffer_mut(), layout.table, lost);
            }
            View::Hosts => {
                hosts::draw(app, frame.buffer_mut(), layout.table, queries::kube_lost(&app.seen, boot).is_some());
            }
            View::Nodes => {
                let lost = queries::kube_lost(&app.seen, boot).is_some();
                match &app.navigation.map {
                    Some(map) => racks::draw(app, map, frame.buffer_mut(), layout.table, lost),
                    None => nodes::draw(app, frame.buffer_mut(), layout.table, lost),
                }
            }
        }
    }
    preview::draw(app, frame.buffer_mut(), layout.preview);
    pane::draw(app, frame.buffer_mut(), layout.pane);
    footer::draw(app, frame, layout.footer);
    if app.navigation.help.is_some() {
        help::draw(app, frame.buffer_mut(), layout.table.union(layout.preview).union(layout.pane).union(layout.banner));
    }
    if let Some(open) = &app.picker {
        picker::draw(app, open, frame.buffer_mut());
    }
    if let Some(open) = &app.themes {
        theme_picker::draw(app, open, frame.buffer_mut());
    }
    if let Some(open) = &app.dialog {
        dialog::draw(app, open, frame);
    }
}

/// Returns the text of an empty table while etcd is not read yet, or `None` afterwards.
fn connecting(app: &App) -> Option<Vec<String>> {
    let store = &app.seen.snapshot.store;
    if store.synced {
        return None;
    }
    let mut lines = vec![if app.config.sandbox {
        "the sandbox starts ...".to_owned()
    } else {
        format!("connecting to etcd at {} ...", app.config.endpoints.join(" "))
    }];
    if let Some(error) = &store.error {
        lines.extend(wrap(&short_text::safe(error), usize::from(app.size.width).saturating_sub(4)));
    }
    Some(lines)
}

/// Returns the text of a table whose filter passes no row.
fn no_matches(app: &App, what: &str) -> Vec<String> {
    let list = app.list();
    let (_, total) = list.counts();
    vec![format!("no {what} of {total} matches {:?}", list.filter()), format!("{} shows all", app.key("back"))]
}

/// Writes the reason into an empty table.
fn draw_empty(buffer: &mut ratatui::buffer::Buffer, area: Rect, lines: &[String], app: &App) {
    let width = area.width.saturating_sub(4);
    let lines = lines
        .iter()
        .enumerate()
        .flat_map(|(nth, line)| wrap(line, usize::from(width)).into_iter().map(move |line| (nth == 0, line)));
    for (y, (first, line)) in (area.y + 2..area.bottom()).zip(lines) {
        let style = if first { app.config.theme.title } else { ratatui::style::Style::new() };
        put(buffer, area.x + 2, y, width, &line, style);
    }
}
