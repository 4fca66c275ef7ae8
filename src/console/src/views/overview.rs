//! Overview: within five seconds it shows what needs a person, whether work moves, and when it will be done. Panels, the
//! most important first; a wide screen has two columns, a very wide one the detail of the line under the cursor.

mod arrange;
mod cluster;
mod needs_you;
mod past;
mod progress;
mod racks;
mod work;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

pub(super) use self::arrange::has_detail;
use self::arrange::{Part, Placed, arrange};
use crate::{
    state::{App, overview::OverviewRow},
    table::put,
    views::{
        self, detail,
        panel::{self, Panel},
    },
};

/// A line of a panel: the object that Enter opens, and the text.
struct PanelLine {
    row: Option<OverviewRow>,
    spans: Vec<Span<'static>>,
}

/// Width from which the cursor's bar keeps the colours of its line.
const COLOURED_BAR_WIDTH: u16 = 100;

fn info(spans: Vec<Span<'static>>) -> PanelLine {
    PanelLine { row: None, spans }
}

fn text(text: impl Into<String>, style: Style) -> Span<'static> {
    Span::styled(text.into(), style)
}

/// Returns the lines of a part for this width and number of lines.
fn lines(app: &App, placed: &Placed) -> Vec<PanelLine> {
    let inner = placed.inner();
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    match placed.part {
        Part::NeedsYou => needs_you::lines(app, width, height),
        Part::Progress(queue) => progress::lines(app, queue, width, height),
        Part::Idle => progress::idle(app),
        Part::Work => work::lines(app, width, height),
        Part::Racks => racks::lines(app, width, height),
        Part::Day => past::day(app, width),
        Part::Latest => past::latest(app, height),
        Part::Cluster => cluster::lines(app, width),
        Part::Detail => {
            let target = app.navigation.preview.as_ref();
            let lines = target.map(|of| detail::lines(app, of, inner.width)).unwrap_or_default();
            lines.into_iter().map(|line| info(line.spans)).collect()
        }
    }
}

/// Returns the title of a part, and the note at the right.
fn title(app: &App, part: Part) -> Panel {
    let heading = |title: &str| vec![text(title.to_owned(), app.config.theme.title)];
    match part {
        Part::NeedsYou => needs_you::title(app),
        Part::Progress(queue) => progress::title(app, queue),
        Part::Idle => Panel::new(heading("Queues")),
        Part::Work => match app.knowledge.summary.work.len() {
            0 | 1 => Panel::new(heading("In work")),
            n => Panel::new(heading(&format!("In work ({n})"))),
        },
        Part::Racks => Panel::new(heading("Racks")),
        Part::Day => Panel::new(heading("Last 24 hours")),
        Part::Latest => Panel::new(heading("Latest")),
        Part::Cluster => Panel::new(heading("Cluster")),
        Part::Detail => {
            let title = app.navigation.preview.as_ref().map(|of| detail::title(app, of));
            Panel::new(heading(title.as_deref().unwrap_or("Detail")))
        }
    }
}

/// Returns the targets of the lines that can be opened, in the order of the screen. Those of *Needs you* are complete:
/// its panel scrolls with the cursor.
pub fn overview_rows(app: &App, area: Rect) -> Vec<OverviewRow> {
    let of_part = |placed: &Placed| -> Vec<OverviewRow> {
        match placed.part {
            Part::NeedsYou => {
                let objects = app.knowledge.needs_you.iter().map(|line| line.object.clone());
                objects.map(OverviewRow::NeedsYou).collect()
            }
            Part::Detail => Vec::new(),
            Part::Progress(_) | Part::Idle | Part::Work | Part::Racks | Part::Day | Part::Latest | Part::Cluster => {
                let mut rows: Vec<OverviewRow> = lines(app, placed)
                    .into_iter()
                    .take(usize::from(placed.inner().height))
                    .filter_map(|l| l.row)
                    .collect();
                rows.dedup();
                rows
            }
        }
    };
    arrange(app, area).iter().flat_map(of_part).collect()
}

/// Returns the target at this place of the screen.
pub(super) fn overview_row_at(app: &App, area: Rect, x: u16, y: u16) -> Option<OverviewRow> {
    let placed = arrange(app, area).into_iter().find(|placed| placed.area.contains((x, y).into()))?;
    if let Part::Progress(queue) = placed.part {
        return Some(OverviewRow::Progress(queue));
    }
    let nth = y.checked_sub(placed.inner().y)?;
    lines(app, &placed).into_iter().nth(usize::from(nth))?.row
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
            title(app, placed.part).draw(&app.config, buffer, placed.area);
        }
        for (y, line) in (inner.y..inner.bottom()).zip(lines(app, &placed)) {
            draw_line(app, buffer, Rect { y, height: 1, ..inner }, line, stale);
        }
    }
}

/// Draws a line. The one under the cursor is a bar over the panel's whole width, with a sign in front of it.
fn draw_line(app: &App, buffer: &mut Buffer, area: Rect, line: PanelLine, stale: bool) {
    let theme = &app.config.theme;
    let at_cursor = line.row.is_some() && line.row == app.lists.overview_rows.cursor;
    let spans = line.spans.into_iter().map(|span| if stale { span.style(theme.muted) } else { span });
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
