//! The key that opens: a row's detail, a line of the Overview, the entries of a batch.

use super::navigation::{push_position, record_arrival};
use crate::state::{App, Pane, View};

/// Shows the entries of the batch under the cursor; Esc leads back.
fn open_batch(app: &mut App) {
    let Some(id) = app.lists.batches_of(app.navigation.view).cursor else { return };
    push_position(app);
    app.navigation.show_batches(false);
    let under = app.list().filter().to_owned();
    super::typing::set_filter(app, &format!("batch:{}", id.0));
    record_arrival(app);
    if let Some(place) = app.navigation.before.last_mut() {
        place.under = Some(under);
    }
}

/// Opens the row under the cursor.
pub(super) fn open(app: &mut App) {
    if app.navigation.shows_batches() && app.navigation.pane.is_none() {
        return open_batch(app);
    }
    if app.navigation.view == View::Overview {
        match app.lists.overview_rows.cursor.clone() {
            Some(overview_row) => super::overview::open(app, &overview_row),
            None => app.print("nothing here can be opened"),
        }
        return;
    }
    if let Some(of) = app.target() {
        app.cursor_displaced();
        app.navigation.pane = Some(Pane::new(of));
    }
}
