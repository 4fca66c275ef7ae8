//! Overview: within five seconds it shows what needs a person, whether work moves, and when it will be done. Panels, the
//! most important first; a wide screen has two columns, a very wide one the detail of the line under the cursor.

mod arrange;
mod cluster;
mod folded;
mod idle;
mod needs_you;
mod past;
mod progress;
mod queued;
mod racks;
mod sections;
mod work;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr;

pub(super) use self::arrange::has_detail;
use self::arrange::{Part, Placed, arrange};
use crate::{
    state::{App, Target, overview::OverviewRow},
    table::{mark_cut, put},
    views::{
        self, detail,
        panel::{self, Panel},
    },
};

/// Text of a line of a panel. The object that Enter opens is in [`rows`].
type PanelLine = Vec<Span<'static>>;

/// Most columns of a cut word that are left empty.
const MAX_PART_OF_WORD: usize = 10;
/// Width from which the cursor's bar keeps the colours of its line.
const COLOURED_BAR_WIDTH: u16 = 100;

fn text(text: impl Into<String>, style: Style) -> Span<'static> {
    Span::styled(text.into(), style)
}

/// Returns the lines of a part for this width and number of lines.
fn lines(app: &App, placed: &Placed) -> Vec<PanelLine> {
    let inner = placed.inner();
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    match placed.part {
        Part::NeedsYou => needs_you::lines(app, width, height),
        Part::Progress(queue) => progress::lines(app, queue, (width, height), placed.framed),
        Part::Batch(queue, place) => progress::part_lines(app, queue, place, (width, height)),
        Part::Idle => idle::lines(app),
        Part::Work => work::lines(app, width, height),
        Part::Racks => racks::lines(app, width, height),
        Part::Day => past::day(app, width, height),
        Part::Latest => past::latest(app, width, height),
        Part::Cluster => cluster::lines(app, width),
        Part::Detail if queued::is_shown(app) => queued::lines(app, width, height),
        Part::Detail => {
            let lines = detailed(app).map(|of| detail::lines(app, &of, inner.width)).unwrap_or_default();
            lines.into_iter().map(|line| line.spans).collect()
        }
    }
}

/// Returns the objects of a part's lines that can be opened, without making their texts: every key asks for them.
fn rows(app: &App, placed: &Placed) -> Vec<Option<OverviewRow>> {
    let inner = placed.inner();
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    let mut rows = match placed.part {
        Part::NeedsYou => needs_you::rows(app, width, height),
        Part::Progress(queue) => progress::rows(app, queue, height),
        Part::Batch(queue, place) => progress::part_rows(app, queue, place, height),
        Part::Work => work::rows(app, width, height),
        Part::Racks => racks::rows(app, width, height),
        Part::Day => past::day_rows(app, height),
        Part::Latest => past::latest_rows(app, width, height),
        Part::Idle | Part::Cluster | Part::Detail => Vec::new(),
    };
    rows.truncate(height);
    rows
}

/// Returns the title of a part, and the note at the right.
fn title(app: &App, part: Part, width: u16) -> Panel {
    let heading = |title: &str| vec![text(title.to_owned(), app.config.theme.title)];
    match part {
        Part::NeedsYou => needs_you::title(app),
        Part::Progress(queue) => progress::title(app, queue, width),
        Part::Batch(queue, place) => progress::part_title(app, queue, place, width),
        Part::Idle => Panel::new(heading("Queues")),
        Part::Work => Panel::new(heading(&work::title(app))),
        Part::Racks => Panel::new(heading("Racks")),
        Part::Day => Panel::new(heading("Last 24 hours")),
        Part::Latest => Panel::new(heading("Latest")),
        Part::Cluster => Panel::new(heading("Cluster")),
        Part::Detail if queued::is_shown(app) => Panel::new(heading(&format!("Queued ({})", queued::count(app)))),
        Part::Detail => {
            let title = detailed(app).map(|of| detail::title(app, &of));
            Panel::new(heading(title.as_deref().unwrap_or("Detail")))
        }
    }
}

/// Returns the object of the detail panel: the one under the cursor, or the work that lasts longest if the cursor is on
/// a line without an object.
fn detailed(app: &App) -> Option<Target> {
    let longest = || app.knowledge.summary.work.first().copied().map(Target::Entry);
    app.navigation.preview.clone().or_else(|| longest().filter(|_| app.target().is_none()))
}

/// Returns the targets of the lines that can be opened, in the order of the screen. Those of *Needs you* are complete:
/// its panel scrolls with the cursor.
pub fn overview_rows(app: &App, area: Rect) -> Vec<OverviewRow> {
    let mut all: Vec<OverviewRow> = Vec::new();
    for placed in arrange(app, area) {
        if placed.part == Part::NeedsYou {
            let objects = app.knowledge.needs_you.iter().map(|line| line.object.clone());
            all.extend(objects.map(OverviewRow::NeedsYou));
            continue;
        }
        let mut of_part: Vec<OverviewRow> = rows(app, &placed).into_iter().flatten().collect();
        of_part.dedup();
        all.extend(of_part);
    }
    all
}

/// Returns the target at this place of the screen.
pub(super) fn overview_row_at(app: &App, area: Rect, x: u16, y: u16) -> Option<OverviewRow> {
    let placed = arrange(app, area).into_iter().find(|placed| placed.area.contains((x, y).into()))?;
    let nth = usize::from(y.checked_sub(placed.inner().y)?);
    let mut rows = rows(app, &placed);
    match placed.part {
        // a line without a target belongs to the one of its panel
        Part::Progress(_) | Part::Batch(..) | Part::Day | Part::Racks => {
            let own = rows.get_mut(nth).and_then(Option::take);
            own.or_else(|| rows.into_iter().flatten().next_back())
        }
        // a line that goes on with the text of the one above belongs to its row
        Part::NeedsYou | Part::Work | Part::Latest => rows.get(..=nth)?.iter().rev().flatten().next().cloned(),
        Part::Idle | Part::Cluster | Part::Detail => rows.into_iter().nth(nth)?,
    }
}

/// Cuts a text that is too long between two words, with a `~` behind it; within a word only if it is a long one.
fn cut_words(text: String, width: usize) -> String {
    if text.width() <= width {
        return text;
    }
    let mut cut = text.clone();
    mark_cut(&mut cut, width);
    cut.pop();
    let ends_a_word = text.get(cut.len()..).is_some_and(|rest| rest.starts_with(' '));
    let words = if ends_a_word { Some(cut.as_str()) } else { cut.rsplit_once(' ').map(|(words, _)| words) };
    let words = words.filter(|words| words.width() + MAX_PART_OF_WORD >= width).unwrap_or(&cut);
    format!("{}~", words.trim_end())
}

/// Draws the Overview.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    if let Some(lines) = views::connecting(app) {
        views::draw_empty(buffer, area, &lines, app);
        return;
    }
    for placed in arrange(app, area) {
        let inner = placed.inner();
        if placed.framed {
            title(app, placed.part, placed.area.width).draw(&app.config, buffer, placed.area);
        }
        let rows = rows(app, &placed).into_iter().chain(std::iter::repeat(None));
        for ((y, line), row) in (inner.y..inner.bottom()).zip(lines(app, &placed)).zip(rows) {
            draw_line(app, buffer, Rect { y, height: 1, ..inner }, (line, row), stale);
        }
    }
}

/// Draws a line. The one under the cursor is a bar over the panel's whole width, with a sign in front of it.
fn draw_line(app: &App, buffer: &mut Buffer, area: Rect, (line, row): (PanelLine, Option<OverviewRow>), stale: bool) {
    let theme = &app.config.theme;
    let at_cursor = row.is_some() && row == app.lists.overview_rows.cursor;
    let spans = line.into_iter().map(|span| if stale { span.style(theme.muted) } else { span });
    let drawn = Line::from(spans.collect::<Vec<_>>());
    let too_long = drawn.width() > usize::from(area.width);
    buffer.set_line(area.x, area.y, &drawn, area.width);
    if too_long {
        put(buffer, area.right().saturating_sub(1), area.y, 1, "~", theme.muted);
    }
    if at_cursor {
        put(buffer, area.x.saturating_sub(1), area.y, 1, ">", Style::new());
        for x in area.x.saturating_sub(1)..area.right() {
            let cell = &mut buffer[(x, area.y)];
            // on a narrow screen, which a slow link may serve, colours within the bar would cost too many bytes
            let own = if app.size.width < COLOURED_BAR_WIDTH { Style::reset() } else { cell.style() };
            cell.set_style(own.patch(theme.selection));
        }
    }
}

impl Placed {
    /// Returns the area of the lines.
    fn inner(&self) -> Rect {
        if self.framed {
            return panel::inner(self.area);
        }
        Rect { x: self.area.x + 1, width: self.area.width.saturating_sub(1), ..self.area }
    }
}

#[cfg(test)]
pub(in crate::views) mod checks {
    use super::*;

    /// Checks that each panel has as many rows as lines that can be opened, so that the cursor marks the right ones.
    pub(in crate::views) fn rows_match_lines(app: &App, area: Rect) {
        for placed in arrange(app, area) {
            let (rows, lines) = (rows(app, &placed), lines(app, &placed));
            let opened = rows.iter().filter(|row| row.is_some()).count();
            assert!(
                rows.len() <= lines.len() || opened == 0,
                "{:?}: {} rows, {} lines",
                placed,
                rows.len(),
                lines.len()
            );
            assert!(rows.len() <= usize::from(placed.inner().height), "{placed:?}");
        }
    }
}
