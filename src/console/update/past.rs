//! Data of the past: requested while a view shows it, added to the state, turned into rows.

use crate::{
    console::{
        app::{App, Pane, Target, View},
        event::Effect,
        overview,
        past::{Answer, PAGE, Question},
        views,
    },
    store::{keys::Folder, pages::Part},
};

/// Number of operators' actions that the Overview shows, and the most audit records that it reads for them.
const DEEDS: usize = 12;
const LOOKED: usize = 1000;

/// Number of values that are kept of a folder, and the number beyond the one under the cursor.
const KEPT: usize = LOOKED;
const BEYOND: usize = 2 * PAGE as usize;
/// The same while a filter or an order may need any of them: more than a folder holds.
const ALL: usize = 12_000;

/// Drops values that no view shows. A console that stays open for a long time keeps no more of the past than a new one.
fn trim(app: &mut App) {
    macro_rules! trim {
        ($read:expr, $list:expr) => {{
            let (read, list) = (&mut $read, &$list);
            let arranged = !list.filter.is_empty() || list.sort.is_some();
            let looked = list.cursor.as_ref().map_or(0, |id| read.rows.range(..=id).count());
            read.keep(if arranged { ALL } else { KEPT.max(looked + BEYOND) });
        }};
    }
    trim!(app.past.history, app.history);
    trim!(app.past.audit, app.audit);
    trim!(app.past.records, app.records);
}

/// Adds an answer to the state.
pub(super) fn take_in(app: &mut App, answer: Answer) {
    if let Answer::Logs(lines) = answer {
        if app.logs.take(lines, app.now.boot) {
            super::seen::rows(app);
        }
        return;
    }
    if let Answer::Rights(rights) = answer {
        app.rights = rights;
        return;
    }
    if let Answer::Plan(number, drains) = answer {
        let plan = app.dialog.as_mut().and_then(|d| d.plan.as_mut());
        if let Some(plan) = plan.filter(|plan| plan.number == number) {
            plan.take(drains, app.now);
        }
        return;
    }
    app.past.take(answer, app.now.boot);
    trim(app);
    if let Some(mut dialog) = app.dialog.take() {
        crate::console::dialog::plan::refresh(app, &mut dialog);
        app.dialog = Some(dialog);
    }
    match app.view {
        View::Overview => sums(app),
        View::History | View::Audit => super::seen::rows(app),
        _ => {}
    }
}

/// Recomputes the sums of the Overview.
pub(super) fn sums(app: &mut App) {
    app.summary = overview::summary(app);
}

/// Updates the Overview's lines that can be opened: as many as the screen shows.
pub(super) fn spots(app: &mut App) {
    let spots = views::overview_spots(app);
    let total = spots.len();
    let exists = spots.clone();
    // a temporary message covers the last lines; a selected line among them is selected again afterwards
    let hidden = app.spots.cursor.clone().filter(|spot| app.spots.moved && !exists.contains(spot));
    let covered = hidden.filter(|spot| {
        let message = app.message.take();
        let there = message.is_some() && views::overview_spots(app).contains(spot);
        app.message = message;
        there
    });
    app.spots.refresh(spots, total, |spot| exists.contains(spot));
    if covered.is_some() {
        app.spots.cursor = covered;
    } else if !app.spots.moved {
        // the first line is selected until the operator selects another one
        app.spots.select(0);
    }
    // a line whose neighbour is selected instead cannot be mistaken here
    app.spots.strayed = false;
}

/// Returns the queries that are needed now.
pub(super) fn questions(app: &mut App) -> Vec<Effect> {
    let store = std::sync::Arc::clone(&app.seen.snapshot.store);
    let boot = app.now.boot;
    let mut asked: Vec<Question> = Vec::new();
    // one screen ahead of the cursor
    let near_end = |place: usize, rows: usize| place + 2 * views::table_height(app) >= rows;
    // a filter that few rows pass would read a whole folder, so each key press allows a few pages
    let paid = app.past.paid > 0;
    match app.view {
        View::Overview => {
            asked.extend(app.past.history.wants(Folder::History, &store, false, boot));
            let older = app.summary.actions.len() < DEEDS && app.past.audit.rows.len() < LOOKED;
            asked.extend(app.past.audit.wants(Folder::Audit, &store, older, boot));
        }
        View::History if app.of_cke => {
            let older =
                paid && near_end(app.records.place, app.records.rows.len()) && app.past.records.rows.len() < ALL;
            asked.extend(app.past.records.wants(Folder::Records, &store, older, boot));
        }
        View::History => {
            let older =
                paid && near_end(app.history.place, app.history.rows.len()) && app.past.history.rows.len() < ALL;
            asked.extend(app.past.history.wants(Folder::History, &store, older, boot));
        }
        View::Audit => {
            let older = paid && near_end(app.audit.place, app.audit.rows.len()) && app.past.audit.rows.len() < ALL;
            asked.extend(app.past.audit.wants(Folder::Audit, &store, older, boot));
        }
        View::Logs => asked.extend(app.logs.wants(boot).map(Question::Logs)),
        _ => {}
    }
    if let Some(plan) = app.dialog.as_mut().and_then(|d| d.plan.as_mut())
        && !plan.asked
        && !plan.nodes.is_empty()
    {
        plan.asked = true;
        asked.push(Question::Plan(plan.number, plan.queue, plan.nodes.clone()));
    }
    if app.dialog.as_ref().is_some_and(|d| d.plan.is_some()) && !app.past.history.begun {
        // to estimate how long similar entries took
        asked.extend(app.past.history.wants(Folder::History, &store, false, boot));
    }
    if let Some(Pane { of: Target::Past(Folder::History, id), .. }) = &app.pane {
        let told = app.past.ending.as_ref().is_some_and(|(key, _)| *key == id.key);
        if !told && app.past.asked.as_ref() != Some(&id.key) {
            app.past.asked = Some(id.key.clone());
            asked.push(Question::Ending(id.key.clone()));
        }
    }
    if asked.iter().any(|q| matches!(q, Question::Page(_, Part::Before(_)))) {
        app.past.paid = app.past.paid.saturating_sub(1);
    }
    asked.into_iter().map(Effect::Ask).collect()
}
