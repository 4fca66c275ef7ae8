//! Sabakan's machines: state and time in it, role, rack, lifetime, place in the cluster, and what the plan does with
//! each.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use crate::{
    app::App,
    columns::{self, Machines},
    short_text,
    table::{mark_cut, put, wrap},
};

/// Draws the table, or the racks in its place.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let area = draw_summary(app, buffer, area);
    if app.racks {
        return racks(app, buffer, area);
    }
    if !columns::draw::<Machines, _>(app, (&mut *buffer, area), &app.machines, stale) {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn empty(app: &App) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.machines.total > 0 {
        return super::no_matches(app, "machine");
    }
    let registry = &app.seen.snapshot.registry;
    let width = usize::from(app.size.width).saturating_sub(4);
    match (&registry.members.error, &registry.members.good) {
        (Some(why), _) => wrap(&short_text::safe(why), width),
        (None, Some(_)) => vec!["sabakan has no matching machine".to_owned()],
        (None, None) if app.seen.snapshot.store.registry.url.is_none() => {
            vec!["sabakan is not set up: `cketerm sabakan set-url URL`".to_owned()]
        }
        (None, None) => vec!["asking sabakan ...".to_owned()],
    }
}

/// Draws one or two lines about the plan and the state of applying above the table. Returns the rest of the area.
pub(super) fn draw_summary(app: &App, buffer: &mut Buffer, area: Rect) -> Rect {
    let mut lines = super::diff::summary_lines(app, usize::from(area.width));
    let height = u16::try_from(lines.len()).unwrap_or(0).min(area.height / 3);
    if lines.len() > usize::from(height)
        && let Some((last, _)) = usize::from(height).checked_sub(1).and_then(|at| lines.get_mut(at))
    {
        mark_cut(last, usize::from(area.width));
    }
    for (y, (line, style)) in (area.y..area.y + height).zip(lines) {
        put(buffer, area.x, y, area.width, &line, style);
    }
    Rect { y: area.y + height, height: area.height - height, ..area }
}

/// Draws the racks as counts by role and state.
pub(super) fn racks(app: &App, buffer: &mut Buffer, area: Rect) {
    put(
        buffer,
        area.x,
        area.y,
        area.width,
        "  racks: role in-the-definition/all (control planes), machines not healthy",
        app.config.theme.title,
    );
    for (y, line) in (area.y + 1..area.bottom()).zip(&app.registry.racks) {
        put(buffer, area.x + 2, y, area.width.saturating_sub(2), &short_text::safe(line), Style::new());
    }
    if usize::from(area.height.saturating_sub(1)) < app.registry.racks.len() {
        let more = app.registry.racks.len() + 1 - usize::from(area.height.saturating_sub(1));
        let text = format!("... and {more} more racks");
        put(
            buffer,
            area.x + 2,
            area.bottom().saturating_sub(1),
            area.width,
            &format!("{text:<40}"),
            app.config.theme.muted,
        );
    }
}
