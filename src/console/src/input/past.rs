//! Data of the past: requested while a view shows it, added to the state, turned into rows.

use cketerm_clients::store::pages::Part;
use cketerm_model::stored::keys::Folder;
use cketerm_rules::beside_cke;

use crate::{
    state::{
        App, Pane, Target, View,
        event::Effect,
        overview,
        past::{PAGE, ReadRequest, ReadResponse},
    },
    views,
};

/// Number of operators' actions that the Overview shows, and the most audit records that it reads for them.
const MIN_ACTIONS: usize = 12;
const MAX_AUDIT_ROWS: usize = 1000;

/// Number of values that are kept of a folder, and the number beyond the one under the cursor.
const MIN_KEPT_ROWS: usize = MAX_AUDIT_ROWS;
const READ_AHEAD: usize = 2 * PAGE as usize;
/// The same while a filter or an order may need any of them: more than a folder holds.
const MAX_ROWS: usize = 12_000;

/// Drops values that no view shows. A console that stays open for a long time keeps no more of the past than a new one.
fn trim(app: &mut App) {
    macro_rules! trim {
        ($read:expr, $list:expr) => {{
            let (read, list) = (&mut $read, &$list);
            let is_arranged = !list.filter.is_empty() || list.sort.is_some();
            let viewed = list.cursor.as_ref().map_or(0, |id| read.rows.range(..=id).count());
            read.truncate(if is_arranged { MAX_ROWS } else { MIN_KEPT_ROWS.max(viewed + READ_AHEAD) });
        }};
    }
    trim!(app.knowledge.past.history, app.lists.history);
    trim!(app.knowledge.past.audit, app.lists.audit);
    trim!(app.knowledge.past.records, app.lists.records);
}

/// Adds an answer to the state.
pub(super) fn handle(app: &mut App, answer: ReadResponse) {
    if let ReadResponse::Logs(lines) = answer {
        if app.knowledge.logs.take(lines, app.now.boot) {
            super::seen::rows(app);
        }
        return;
    }
    if let ReadResponse::Rights(rights) = answer {
        app.knowledge.rights = rights;
        return;
    }
    if let ReadResponse::Plan(number, drains) = answer {
        let plan = app.dialog.as_mut().and_then(|d| d.plan.as_mut());
        if let Some(plan) = plan.filter(|plan| plan.number == number) {
            plan.take(drains, app.now);
        }
        return;
    }
    let history = matches!(answer, ReadResponse::History(..));
    app.knowledge.past.take(answer, app.now.boot);
    trim(app);
    if history {
        let seen = std::sync::Arc::clone(&app.seen);
        app.knowledge.refresh_usual(&seen.snapshot.store);
    }
    if let Some(mut dialog) = app.dialog.take() {
        crate::dialogs::preview::refresh(app, &mut dialog);
        app.dialog = Some(dialog);
    }
    match app.navigation.view {
        View::Overview => overview::refresh(app),
        View::History | View::Audit => super::seen::rows(app),
        _ => {}
    }
}

/// Updates the Overview's lines that can be opened: as many as the screen shows.
pub(super) fn overview_rows(app: &mut App) {
    let overview_rows = views::visible_overview_rows(app);
    let total = overview_rows.len();
    let exists = overview_rows.clone();
    // a temporary message covers the last lines; a selected line among them is selected again afterwards
    let hidden = app
        .lists
        .overview_rows
        .cursor
        .clone()
        .filter(|overview_row| app.lists.overview_rows.moved && !exists.contains(overview_row));
    let covered = hidden.filter(|overview_row| {
        let message = app.session.message.take();
        let there = message.is_some() && views::visible_overview_rows(app).contains(overview_row);
        app.session.message = message;
        there
    });
    app.lists.overview_rows.refresh(overview_rows, total, |overview_row| exists.contains(overview_row));
    if covered.is_some() {
        app.lists.overview_rows.cursor = covered;
    } else if !app.lists.overview_rows.moved {
        // the first line is selected until the operator selects another one
        app.lists.overview_rows.select(0);
    }
    // a line whose neighbour is selected instead cannot be mistaken here
    app.lists.overview_rows.cursor_displaced = false;
}

/// Returns the queries that are needed now.
pub(super) fn due_read_requests(app: &mut App) -> Vec<Effect> {
    let store = std::sync::Arc::clone(&app.seen.snapshot.store);
    let boot = app.now.boot;
    let mut requested: Vec<ReadRequest> = Vec::new();
    // one screen ahead of the cursor
    let near_end = |place: usize, rows: usize| place + 2 * views::table_height(app) >= rows;
    // a filter that few rows pass would read a whole folder, so each key press allows a few pages
    let page_budget = app.knowledge.past.page_budget > 0;
    match app.navigation.view {
        View::Overview => {
            let older = app.knowledge.summary.actions.len() < MIN_ACTIONS
                && app.knowledge.past.audit.rows.len() < MAX_AUDIT_ROWS;
            requested.extend(app.knowledge.past.audit.next_request(Folder::Audit, &store, older, boot));
            if beside_cke::applies(&store) {
                requested.extend(app.knowledge.past.records.next_request(Folder::Records, &store, false, boot));
            }
        }
        View::History if app.navigation.cke_records => {
            let older = page_budget
                && near_end(app.lists.records.place, app.lists.records.rows.len())
                && app.knowledge.past.records.rows.len() < MAX_ROWS;
            requested.extend(app.knowledge.past.records.next_request(Folder::Records, &store, older, boot));
        }
        View::History => {
            let older = page_budget
                && near_end(app.lists.history.place, app.lists.history.rows.len())
                && app.knowledge.past.history.rows.len() < MAX_ROWS;
            requested.extend(app.knowledge.past.history.next_request(Folder::History, &store, older, boot));
        }
        View::Audit => {
            let older = page_budget
                && near_end(app.lists.audit.place, app.lists.audit.rows.len())
                && app.knowledge.past.audit.rows.len() < MAX_ROWS;
            requested.extend(app.knowledge.past.audit.next_request(Folder::Audit, &store, older, boot));
        }
        View::Logs => requested.extend(app.knowledge.logs.next_request(boot).map(ReadRequest::Logs)),
        _ => {}
    }
    // every view compares running phases with the usual ones
    requested.extend(app.knowledge.past.history.next_request(Folder::History, &store, false, boot));
    if let Some(plan) = app.dialog.as_mut().and_then(|d| d.plan.as_mut())
        && !plan.requested
        && !plan.nodes.is_empty()
    {
        plan.requested = true;
        requested.push(ReadRequest::Plan(plan.number, plan.queue, plan.nodes.clone()));
    }
    if let Some(Pane { of: Target::Past(Folder::History, id), .. }) = &app.navigation.pane {
        let loaded_ending = app.knowledge.past.timeline(&id.key).is_some();
        if !loaded_ending && app.knowledge.past.requested.as_ref() != Some(&id.key) {
            app.knowledge.past.requested = Some(id.key.clone());
            requested.push(ReadRequest::Ending(id.key.clone()));
        }
    }
    // the timeline of an entry has CKE's drains from there
    let shown = app.navigation.pane.as_ref().map(|pane| &pane.of).or(app.navigation.preview.as_ref());
    if matches!(shown, Some(Target::Entry(_))) && beside_cke::applies(&store) {
        requested.extend(app.knowledge.past.records.next_request(Folder::Records, &store, false, boot));
    }
    if requested.iter().any(|q| matches!(q, ReadRequest::Page(_, Part::Before(_)))) {
        app.knowledge.past.page_budget = app.knowledge.past.page_budget.saturating_sub(1);
    }
    requested.into_iter().map(Effect::Ask).collect()
}
