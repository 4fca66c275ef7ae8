//! Opening of the Overview's lines.

use super::navigation::{enter, push_position, record_arrival, visit};
use crate::state::{App, View, needs_you::NeedsYou, object::Object, overview::OverviewRow, racks};

/// Opens a line: the object's detail, or the view that shows it. Of several objects with one cause it opens the first, and
/// names the others.
pub(super) fn open(app: &mut App, row: &OverviewRow) {
    let others = match row {
        OverviewRow::NeedsYou(object) => app.knowledge.needs_you.iter().find(|line| line.object == *object),
        OverviewRow::Progress(_)
        | OverviewRow::Batch(..)
        | OverviewRow::Work(_)
        | OverviewRow::Racks
        | OverviewRow::Day
        | OverviewRow::Ended(_)
        | OverviewRow::Action(_)
        | OverviewRow::Cke(_) => None,
    };
    let others = others.filter(|line| line.objects.len() > 1).map(NeedsYou::others_named);
    open_row(app, row);
    if let Some(others) = others {
        app.print_here(others);
    }
}

fn open_row(app: &mut App, row: &OverviewRow) {
    match row {
        OverviewRow::NeedsYou(Object::Source(_) | Object::Leadership) => open_view(app, View::Logs),
        OverviewRow::NeedsYou(
            object @ (Object::Queue(_) | Object::Batch(..) | Object::Definition | Object::Machine(_)),
        ) => {
            super::trouble::open(app, object);
        }
        OverviewRow::Batch(queue, id) => super::trouble::open(app, &Object::Batch(*queue, *id)),
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
        | OverviewRow::Action(_)
        | OverviewRow::Cke(_) => {
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
