//! Arrangement of the Overview's panels for the size of the screen.

use cketerm_model::entry::QueueKind;
use ratatui::layout::Rect;

use crate::{
    state::{App, View},
    views::panel::FRAME,
};

/// A part of the Overview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything that waits for a person.
    NeedsYou,
    /// The progress of a queue with work.
    Progress(QueueKind),
    /// The next step, while nothing is queued.
    Idle,
    /// Entries in progress.
    Work,
    /// The machines by rack.
    Racks,
    /// The last day.
    Day,
    /// Ended entries and people's actions.
    Latest,
    /// The leader, the data sources, the switches.
    Cluster,
    /// The detail of the line under the cursor.
    Detail,
}

/// A part, and its place on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// The part.
    pub(super) part: Part,
    /// Its area.
    pub(super) area: Rect,
    /// Whether it has a frame.
    pub(super) framed: bool,
}

/// Height from which parts have frames.
const FRAMED_HEIGHT: u16 = 15;
/// Height from which *Needs you* may take more lines.
const TALL_HEIGHT: u16 = 28;
/// Width from which small panels stand side by side.
const TWO_COLUMN_WIDTH: u16 = 104;
/// Width and height from which the detail of the line under the cursor is shown beside the list.
const DETAIL_SIZE: (u16, u16) = (160, 30);
/// Share of the list beside the detail, in percent.
const LIST_PERCENT: u16 = 55;

/// Free lines, from the top down.
struct Free {
    area: Rect,
    framed: bool,
    placed: Vec<Placed>,
}

impl Free {
    /// Places a part with this number of lines, or with fewer if there is not enough room. Nothing is placed without
    /// room for one line.
    fn place(&mut self, part: Part, lines: usize, framed: bool) {
        let frame = if framed { FRAME } else { 0 };
        let height = u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(frame).min(self.area.height);
        if height <= frame {
            return;
        }
        self.placed.push(Placed { part, area: Rect { height, ..self.area }, framed });
        self.area = Rect { y: self.area.y + height, height: self.area.height - height, ..self.area };
    }

    /// Places a part with this number of lines.
    fn add(&mut self, part: Part, lines: usize) {
        self.place(part, lines, self.framed);
    }
}

/// Reports whether the detail of the line under the cursor is shown.
pub(in crate::views) fn has_detail(app: &App, area: Rect) -> bool {
    let is_open = app.navigation.view == View::Overview && app.navigation.pane.is_none();
    is_open && area.width >= DETAIL_SIZE.0 && area.height >= DETAIL_SIZE.1
}

/// Arranges the parts.
pub(super) fn arrange(app: &App, area: Rect) -> Vec<Placed> {
    let has_detail = has_detail(app, area);
    let width = if has_detail { area.width * LIST_PERCENT / 100 } else { area.width };
    let framed = area.height >= FRAMED_HEIGHT;
    let mut free = Free { area: Rect { width, ..area }, framed, placed: Vec::new() };
    let queues: Vec<QueueKind> = QueueKind::ALL.into_iter().filter(|queue| has_work(app, *queue)).collect();
    let needs = app.knowledge.needs_you.len();
    let most = match (area.height, queues.len()) {
        (TALL_HEIGHT.., _) => 8,
        (18.., 0 | 1) => 5,
        _ => 3,
    };
    match needs {
        0 => free.place(Part::NeedsYou, 1, false),
        n => free.add(Part::NeedsYou, n.min(most)),
    }
    let lines = if queues.len() > 1 && area.height < TALL_HEIGHT { 1 } else { 2 };
    for queue in &queues {
        free.add(Part::Progress(*queue), lines);
    }
    if queues.is_empty() {
        free.add(Part::Idle, 2);
    }
    if width >= TWO_COLUMN_WIDTH && free.framed {
        two_columns(app, &mut free);
    } else {
        one_column(app, &mut free);
    }
    let mut placed = free.placed;
    if has_detail {
        let area = Rect { x: area.x + width, width: area.width - width, ..area };
        placed.push(Placed { part: Part::Detail, area, framed: true });
    }
    placed
}

/// Reports whether a queue has entries that are not over, or is disabled.
fn has_work(app: &App, queue: QueueKind) -> bool {
    let work = app.knowledge.summary.work_of(queue);
    let is_disabled = !app.seen.snapshot.store.switch(queue).enabled();
    work.used > 0 || !work.left.is_empty() || is_disabled
}

fn one_column(app: &App, free: &mut Free) {
    let work = app.knowledge.summary.work.len();
    free.add(Part::Work, work);
    if !free.framed {
        free.add(Part::Latest, app.knowledge.summary.latest.len());
        return;
    }
    if free.area.height > 3 * FRAME {
        free.add(Part::Day, 1);
    }
    free.add(Part::Latest, app.knowledge.summary.latest.len().max(1));
}

/// Places work beside the racks, and the last day and the cluster beside the latest events.
fn two_columns(app: &App, free: &mut Free) {
    let summary = &app.knowledge.summary;
    let area = free.area;
    let left_width = area.width * 55 / 100;
    let right_width = area.width - left_width;
    let racks = super::racks::height(app, usize::from(right_width).saturating_sub(4));
    let most = usize::from(area.height.saturating_sub(2 * FRAME + 3));
    let middle = summary.work.len().max(racks).max(1).min(most);
    let mut left = Free { area: Rect { width: left_width, ..area }, framed: true, placed: Vec::new() };
    let mut right =
        Free { area: Rect { x: area.x + left_width, width: right_width, ..area }, framed: true, placed: Vec::new() };
    left.add(Part::Work, middle);
    if racks > 0 {
        right.add(Part::Racks, middle);
    }
    left.add(Part::Day, 2);
    left.add(Part::Cluster, super::cluster::lines(app, usize::from(left_width).saturating_sub(4)).len());
    right.add(Part::Latest, summary.latest.len().max(1));
    // both columns end on one line
    let bottom = |free: &Free| free.placed.last().map_or(area.y, |last| last.area.bottom());
    let end = bottom(&left);
    if let Some(last) = right.placed.last_mut().filter(|last| last.part == Part::Latest) {
        let end = end.max(last.area.bottom());
        last.area.height = end.min(area.bottom()) - last.area.y;
    }
    free.placed.append(&mut left.placed);
    free.placed.append(&mut right.placed);
}
