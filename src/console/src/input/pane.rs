//! The detail pane: its object follows the cursor and the cursor follows it, and its content can be changed.

use cketerm_model::stored::keys::Folder;

use crate::{
    state::{
        App, Pane, PaneContent, Target, View,
        past::{ObjectId, ReadRequest},
    },
    views,
};

/// Keeps cursor and pane at one object. If the operator has moved the cursor, the pane shows its row. If rows have
/// changed, the cursor goes to the row of the pane's object; without such a row it is hidden until the pane closes.
pub(super) fn keep_together(app: &mut App, before: Option<&(Pane, Option<Target>)>, by_operator: bool) {
    let Some(pane) = &app.navigation.pane else {
        app.list_mut().show_hidden_cursor();
        return;
    };
    let at = app.row_target();
    if at.as_ref() == Some(&pane.of) || app.navigation.view == View::Overview {
        return;
    }
    let moved = before.is_some_and(|(previous, row)| previous.of == pane.of && *row != at);
    match at {
        Some(at) if by_operator && moved => show(app, at),
        _ => {
            let of = pane.of.clone();
            if !app.select_row_of(&of) {
                app.list_mut().hide_cursor();
            }
        }
    }
}

/// Keeps the pane of an entry that has ended: it shows the entry's record from the history, with its outcome.
pub(super) fn keep_ended(app: &mut App) {
    let Some(Pane { of: Target::Entry(id), .. }) = &app.navigation.pane else { return };
    let id = *id;
    if app.seen.snapshot.store.has_entry(id) {
        return;
    }
    let record = app.knowledge.past.ended(id).map(|(record, _)| record.clone());
    if let Some((pane, record)) = app.navigation.pane.as_mut().zip(record) {
        pane.of = Target::Past(Folder::History, record);
    }
}

/// Shows another object in the open pane, in the same way.
fn show(app: &mut App, of: Target) {
    if let Some(pane) = &mut app.navigation.pane {
        let content = match (pane.content, &of) {
            (PaneContent::Output { .. }, Target::Entry(_) | Target::Past(Folder::History, _))
            | (PaneContent::Yaml | PaneContent::Detail, _) => pane.content,
            (PaneContent::Output { .. }, _) => PaneContent::Detail,
        };
        *pane = Pane { of, scroll: 0, content };
    }
    request_object(app);
}

/// Goes to the previous or next row. An open pane stays open and shows it.
pub(super) fn step(app: &mut App, by: isize) {
    app.list_mut().show_hidden_cursor();
    app.list_mut().go(by);
    if app.navigation.pane.is_some()
        && let Some(of) = app.row_target()
    {
        app.cursor_displaced();
        show(app, of);
    }
}

/// Requests the object of Kubernetes that the pane shows as YAML.
pub(super) fn request_object(app: &mut App) {
    let id = match &app.navigation.pane {
        Some(Pane { of: Target::Node(name), content: PaneContent::Yaml, .. }) => ObjectId::Node(name.clone()),
        Some(Pane { of: Target::Host(id), content: PaneContent::Yaml, .. }) => ObjectId::Host(id.clone()),
        _ => return,
    };
    let object = &mut app.knowledge.past.object;
    object.loaded = object.loaded.take().filter(|(loaded, _)| *loaded == id);
    object.requested = Some(id.clone());
    app.session.effects.push(crate::state::event::Effect::Ask(ReadRequest::Object(id)));
}

/// Goes to the first line at or below `from` with the text that is searched for; from the end it begins again.
pub(super) fn find(app: &mut App, from: usize) {
    let search = app.navigation.pane_search.to_lowercase();
    if search.is_empty() {
        return;
    }
    let lines = views::pane_text(app);
    let holds = |line: &String| line.to_lowercase().contains(&search);
    let below = lines.iter().enumerate().skip(from).find(|(_, line)| holds(line));
    let found = below.or_else(|| lines.iter().enumerate().find(|(_, line)| holds(line))).map(|(at, _)| at);
    if let Some((pane, at)) = app.navigation.pane.as_mut().zip(found) {
        pane.scroll = at;
    }
}

/// Keeps a followed output at its end, and every scroll position within the text.
pub(super) fn reveal(app: &mut App) {
    let Some(pane) = &app.navigation.pane else {
        app.navigation.yaml = None;
        return;
    };
    app.navigation.yaml = match pane.content {
        PaneContent::Yaml => views::detail::kept_yaml(app, &pane.of, views::pane_width(app)),
        PaneContent::Detail | PaneContent::Output { .. } => None,
    };
    let most = views::pane_overflow(app);
    if let Some(pane) = &mut app.navigation.pane {
        let followed = pane.content == PaneContent::Output { follow: true };
        pane.scroll = if followed { most } else { pane.scroll.min(most) };
    }
}

/// Scrolls the pane. Scrolling up stops to follow the output; at its end it is followed again.
pub(super) fn scroll(app: &mut App, by: isize) {
    let most = views::pane_overflow(app);
    let Some(pane) = &mut app.navigation.pane else { return };
    pane.scroll = pane.scroll.saturating_add_signed(by).min(most);
    if let PaneContent::Output { follow } = &mut pane.content {
        *follow = pane.scroll == most;
    }
}
