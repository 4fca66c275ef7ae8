//! Comparison of the definition in force with the generated one: by machine and by field, noise folded, with reason and
//! scores.

use cketerm_rules::decide::ApplyState;
use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    state::{App, columns::Changes, registry, short_text},
    table::wrap,
};

/// Draws the table, or the racks in its place.
pub(super) fn draw(app: &App, buffer: &mut Buffer, area: Rect, stale: bool) {
    let area = super::registry::draw_summary(app, buffer, area);
    if app.navigation.racks {
        return super::registry::racks(app, buffer, area);
    }
    if !super::columns::draw::<Changes, _>(app, (&mut *buffer, area), &app.lists.diff, stale) {
        super::draw_empty(buffer, area, &empty(app, usize::from(area.width)), app);
    }
}

/// Returns the full reason why there is no row, because the line above the table is cut.
fn empty(app: &App, width: usize) -> Vec<String> {
    if let Some(lines) = super::connecting(app) {
        return lines;
    }
    if app.lists.diff.total > 0 {
        return super::no_matches(app, "change");
    }
    let why = match &*app.seen.applying {
        ApplyState::Off => Some("not read yet".to_owned()),
        ApplyState::Disabled(why) => Some(super::registry::off(app, why)),
        ApplyState::Error(why) | ApplyState::Waits(why) => Some(why.clone()),
        ApplyState::Settled | ApplyState::Approval(..) | ApplyState::Applies => None,
    };
    let first = match (&why, registry::proposed(&app.seen), &*app.seen.applying) {
        (Some(_), None, _) => "there is no plan",
        (Some(_), _, ApplyState::Error(_)) => "nothing is applied: the last plan may be outdated",
        _ => "nothing would change",
    };
    let messages = why.into_iter().chain(super::registry::warnings(app).iter().map(|w| format!("! {w}")));
    let lines = messages.flat_map(|text| wrap(&short_text::safe(&text), width.saturating_sub(4)));
    let next = match &*app.seen.applying {
        ApplyState::Settled | ApplyState::Applies if app.seen.snapshot.store.registry.url.is_some() => {
            let [machines, constraint] = ["machines", "constraint"].map(|name| app.key(name));
            Some(format!("{machines} shows sabakan's machines, {constraint} sets how many the cluster needs"))
        }
        ApplyState::Settled
        | ApplyState::Applies
        | ApplyState::Off
        | ApplyState::Disabled(_)
        | ApplyState::Error(_)
        | ApplyState::Waits(_)
        | ApplyState::Approval(..) => None,
    };
    std::iter::once(first.to_owned()).chain(lines).chain(next).collect()
}
