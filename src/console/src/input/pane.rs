//! The detail pane: its object follows the cursor and the cursor follows it, and its content can be changed.

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

/// Shows another object in the open pane, in the same way.
fn show(app: &mut App, of: Target) {
    if let Some(pane) = &mut app.navigation.pane {
        let content = match (pane.content, &of) {
            (PaneContent::Output { .. }, Target::Entry(_)) | (PaneContent::Yaml | PaneContent::Detail, _) => {
                pane.content
            }
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

/// Shows only the output of the entry's newest command, and keeps to its end; again: shows everything.
pub(super) fn follow(app: &mut App) {
    let Some(of @ Target::Entry(_)) = app.target() else {
        app.print_error("only a command of an entry has output: move the cursor to an entry");
        return;
    };
    let followed = app.navigation.pane.as_ref().map(|pane| pane.content);
    let content = match followed {
        Some(PaneContent::Output { follow: true }) => PaneContent::Detail,
        Some(PaneContent::Output { follow: false } | PaneContent::Yaml | PaneContent::Detail) | None => {
            PaneContent::Output { follow: true }
        }
    };
    if app.navigation.view == View::Overview {
        super::navigation::visit(app, of.clone());
    }
    app.navigation.pane = Some(Pane { of, scroll: 0, content });
}

/// Shows the object as YAML; again: as the detail.
pub(super) fn yaml(app: &mut App) {
    let Some(of) = app.target() else {
        app.print_error("nothing here can be shown as YAML: move the cursor to a row");
        return;
    };
    if let Target::Line(_) | Target::Fold(_) = of {
        app.print_error("this row has no object of its own, so there is no YAML of it");
        return;
    }
    app.navigation.pane_search.clear();
    let shown = app.navigation.pane.as_ref().is_some_and(|pane| pane.content == PaneContent::Yaml);
    let content = if shown { PaneContent::Detail } else { PaneContent::Yaml };
    if app.navigation.view == View::Overview {
        super::navigation::visit(app, of.clone());
    }
    app.navigation.pane = Some(Pane { of, scroll: 0, content });
    request_object(app);
}

/// Requests the object of Kubernetes that the pane shows as YAML.
fn request_object(app: &mut App) {
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
    if app.navigation.pane.is_none() {
        return;
    }
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
