//! Sabakan's machines: state and time in it, role, rack, lifetime, place in the cluster, and what the plan does with
//! each.

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    state::{App, columns::Machines, short_text},
    table::wrap,
};

/// Draws the table, or the racks in its place.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let area = super::registry::draw_summary(app, buffer, area);
    if app.navigation.racks {
        return super::registry::racks(app, buffer, area);
    }
    if !super::columns::draw::<Machines, _>(app, (&mut *buffer, area), &app.lists.machines, stale) {
        super::draw_empty(buffer, area, &empty(app), app);
    }
}

fn empty(app: &App) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.lists.machines.total > 0 {
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
