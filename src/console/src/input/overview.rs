//! Opening of the Overview's lines.

use super::navigation::{enter, push_position, record_arrival, visit};
use crate::state::{App, View, object::Object, overview::OverviewRow, racks};

/// Opens a line: the object's detail, or the view that shows it.
pub(super) fn open(app: &mut App, row: &OverviewRow) {
    match row {
        OverviewRow::NeedsYou(Object::Source(_) | Object::Leadership) => open_view(app, View::Logs),
        OverviewRow::NeedsYou(object @ (Object::Queue(_) | Object::Definition | Object::Machine(_))) => {
            super::trouble::open(app, object);
        }
        OverviewRow::Progress(queue) => open_view(app, View::of_queue(*queue)),
        OverviewRow::Racks => {
            open_view(app, View::Nodes);
            if app.navigation.map.is_none() {
                app.navigation.map = Some(racks::Map::default());
                racks::refresh(app);
            }
        }
        OverviewRow::Day => open_view(app, View::History),
        OverviewRow::NeedsYou(Object::Entry(_) | Object::Node(_) | Object::Host(_))
        | OverviewRow::Work(_)
        | OverviewRow::Ended(_)
        | OverviewRow::Action(_) => {
            if let Some(of) = row.target() {
                visit(app, of);
            }
        }
    }
}

fn open_view(app: &mut App, view: View) {
    push_position(app);
    enter(app, view);
    record_arrival(app);
}
