//! Jumps between related objects: from an entry to its node and back, from a record to its object, to the log lines of
//! either.

use super::navigation::{enter, pop_position, push_position, record_arrival, visit};
use crate::state::{
    App, View,
    related::{counterpart, log_filter},
};

/// Goes to the counterpart; an open pane stays open and shows it.
pub(super) fn jump(app: &mut App) {
    let (to, had_pane) = (counterpart(app), app.navigation.pane.is_some());
    match to {
        // Esc leads back to the record
        Some(of) if app.navigation.view == View::Audit => visit(app, of),
        // jumping back and forth adds nothing to the history of places
        Some(of) if app.navigation.before.last().is_some_and(|place| place.at.as_ref() == Some(&of)) => {
            pop_position(app);
        }
        Some(of) => {
            visit(app, of);
            if !had_pane {
                app.navigation.pane = None;
            }
        }
        None => app.print_error("nowhere to go: the row has no counterpart, or a filter hides it (Esc)"),
    }
}

/// Opens the log lines of the selected object; Esc leads back.
pub(super) fn logs_of(app: &mut App) {
    let Some(filter) = log_filter(app) else {
        app.print_error(app.nothing_selected("entry or node"));
        return;
    };
    if app.navigation.view == View::Logs {
        return super::typing::set_filter(app, &filter);
    }
    push_position(app);
    enter(app, View::Logs);
    let under = app.list().filter().to_owned();
    super::typing::set_filter(app, &filter);
    record_arrival(app);
    if let Some(place) = app.navigation.before.last_mut() {
        place.under = Some(under);
    }
}
