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
    /// The progress of one part of a queue, by its place in the order of work.
    Batch(QueueKind, usize),
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
/// Lines of *Needs you* that are always shown, if there are so many, and most lines on small and large screens.
const MIN_NEEDS: usize = 3;
const MAX_NEEDS_SMALL: usize = 5;
const MAX_NEEDS: usize = 8;
/// Lines of work that *Needs you* leaves room for.
const MIN_WORK: usize = 4;
/// Lines of the latest events that the racks leave room for.
const MIN_LATEST: usize = 6;
/// Most parts of queues that have a panel each; more are lines of one panel.
const MAX_BATCH_PANELS: usize = 3;
/// Most lines of the batches of one queue, on small and large screens.
const MAX_BATCH_LINES: [usize; 2] = [3, 6];
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
    let queues: Vec<QueueKind> =
        QueueKind::QUEUES.into_iter().filter(|queue| super::sections::has_work(app, *queue)).collect();
    let progress = progress(app, &queues, area.height, framed);
    let frame = if framed { usize::from(FRAME) } else { 0 };
    let taken: usize = progress.iter().map(|(_, lines)| lines + frame).sum();
    match app.knowledge.needs_you.len() {
        0 => free.place(Part::NeedsYou, 1, false),
        needs => {
            let work = app.knowledge.summary.work.len().clamp(1, MIN_WORK) + frame;
            let room = usize::from(area.height).saturating_sub(taken + work + frame);
            let most = if area.height >= TALL_HEIGHT { MAX_NEEDS } else { MAX_NEEDS_SMALL };
            let room = room.clamp(MIN_NEEDS, most);
            let inner = usize::from(width).saturating_sub(if framed { usize::from(FRAME) + 2 } else { 1 });
            // a text that one line has no room for takes another one
            let lines = if needs < room { super::needs_you::height(app, inner, room) } else { room };
            free.add(Part::NeedsYou, lines);
        }
    }
    for (part, lines) in progress {
        free.add(part, lines);
    }
    if queues.is_empty() {
        free.add(Part::Idle, super::idle::lines(app).len());
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

/// Returns the panels about the progress of queues, with their lines: one for each batch if there is room for it, else one
/// for each queue, with a line for each batch.
fn progress(app: &App, queues: &[QueueKind], height: u16, framed: bool) -> Vec<(Part, usize)> {
    let parts = |queue: QueueKind| app.knowledge.summary.work_of(queue).parts().len();
    let is_tall = height >= TALL_HEIGHT;
    let shown: usize = queues.iter().map(|queue| parts(*queue).max(1)).sum();
    let mut panels = Vec::new();
    for queue in queues.iter().copied() {
        // the limits of a queue are shown where they do not cost a line of something more important; failed entries of
        // other batches are counted beside them
        let has_failed = app.knowledge.summary.work_of(queue).others_failed > 0;
        let limits = usize::from(is_tall || queues.len() < 2 || has_failed);
        match parts(queue) {
            0 => panels.push((Part::Progress(queue), 1 + limits)),
            n if is_tall && framed && shown <= MAX_BATCH_PANELS => {
                panels.extend((0..n).map(|place| (Part::Batch(queue, place), if place + 1 == n { 2 } else { 1 })));
            }
            n => {
                let most = MAX_BATCH_LINES[usize::from(is_tall)];
                panels.push((Part::Progress(queue), n.min(most) + limits));
            }
        }
    }
    panels
}

fn one_column(app: &App, free: &mut Free) {
    let (work, latest) = (app.knowledge.summary.work.len(), app.knowledge.summary.latest.len());
    if !free.framed {
        free.add(Part::Work, work);
        free.add(Part::Latest, latest);
        return;
    }
    let width = usize::from(free.area.width.saturating_sub(FRAME + 2));
    let day = super::past::day_height(app, width, 1);
    let frame = usize::from(FRAME);
    // the next entries below the work get what nothing else needs
    let used = work + day + latest.max(1) + 3 * frame;
    let next = match usize::from(free.area.height).saturating_sub(used) {
        rest if rest > 2 && super::queued::count(app) > 0 => rest,
        _ => 0,
    };
    // a reason that one line has no room for takes lines of the latest events
    let left = usize::from(free.area.height).saturating_sub(work.max(1) + frame);
    let kept = if left > 3 * frame { 3 * frame + 1 } else { frame + 1 };
    let continued = super::work::continued(app, width).min(left.saturating_sub(kept));
    free.add(Part::Work, work + next.max(continued));
    if free.area.height > 3 * FRAME {
        free.add(Part::Day, day);
    }
    free.add(Part::Latest, latest.max(1));
}

/// Places work, the last day and the cluster beside the racks and the latest events. Both columns end at the bottom of the
/// screen: the chart of the day, the work and the latest events get what is left.
fn two_columns(app: &App, free: &mut Free) {
    let summary = &app.knowledge.summary;
    let area = free.area;
    let left_width = area.width * 55 / 100;
    let right_width = area.width - left_width;
    let inner = |width: u16| usize::from(width.saturating_sub(FRAME + 2));
    let (height, frame) = (usize::from(area.height), usize::from(FRAME));
    let mut left = Free { area: Rect { width: left_width, ..area }, framed: true, placed: Vec::new() };
    let mut right =
        Free { area: Rect { x: area.x + left_width, width: right_width, ..area }, framed: true, placed: Vec::new() };
    let cluster = super::cluster::lines(app, inner(left_width)).len();
    let day = super::past::day_height(app, inner(left_width), 1);
    let room = height.saturating_sub(cluster + day + 3 * frame);
    let work = summary.work.len().max(1).min(room.max(1));
    let more = room.saturating_sub(work);
    let with_chart = super::past::day_height(app, inner(left_width), day + more);
    // work takes the rest, so that nothing moves when entries start and end
    left.add(Part::Work, work + more.saturating_sub(with_chart - day));
    left.add(Part::Day, with_chart);
    left.add(Part::Cluster, cluster);
    let racks_room = height.saturating_sub(2 * frame + summary.latest.len().clamp(1, MIN_LATEST));
    let racks = super::racks::height(app, inner(right_width), racks_room);
    if racks > 0 {
        right.add(Part::Racks, racks.min(racks_room.max(2)));
    }
    right.add(Part::Latest, usize::from(right.area.height.saturating_sub(FRAME)).max(1));
    free.placed.append(&mut left.placed);
    free.placed.append(&mut right.placed);
}
