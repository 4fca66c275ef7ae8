//! Typing of a filter. It takes effect with every key; Esc restores the previous filter.

use cketerm_model::text::visible;
use crossterm::event::{Event as Terminal, KeyCode, KeyEvent, KeyModifiers};
use tui_input::{Input, backend::crossterm::EventHandler};

use crate::{
    keys::Command,
    state::{App, View, columns},
};

/// Begins to type the filter of the open view.
pub(super) fn begin_filter(app: &mut App) {
    if app.navigation.view == View::Overview {
        app.print_error("the Overview has no rows to filter: choose a view");
        return;
    }
    let before = app.list().filter().to_owned();
    begin(app, before);
    // makes the texts of the rows
    super::seen::rows(app);
}

/// Begins to type a search in the overlay.
pub(super) fn begin_find(app: &mut App) {
    if app.navigation.help.is_some() {
        begin(app, app.navigation.search_text.clone());
    } else if app.navigation.searches_pane() {
        begin(app, app.navigation.pane_search.clone());
    } else {
        begin_filter(app);
    }
}

fn begin(app: &mut App, before: String) {
    app.typing.replace_on_typing = !before.is_empty();
    app.typing.filter = Some((Input::new(before.clone()), before));
}

/// Clears the previous text if the first key is a letter. A key that moves or erases keeps the text for editing.
fn clear_if_untouched(app: &mut App, letter: bool) {
    if std::mem::take(&mut app.typing.replace_on_typing)
        && letter
        && let Some((input, _)) = &mut app.typing.filter
    {
        input.reset();
    }
}

/// Applies the text that was typed so far.
fn apply_text(app: &mut App, text: &str) {
    if app.navigation.help.is_some() {
        text.clone_into(&mut app.navigation.search_text);
        app.navigation.help = Some(0);
    } else if app.navigation.searches_pane() {
        text.clone_into(&mut app.navigation.pane_search);
        let from = app.navigation.pane.as_ref().map_or(0, |pane| pane.scroll);
        super::pane::find(app, from);
    } else {
        set_filter(app, text);
    }
}

/// Handles a key while the filter is typed.
pub(super) fn press(app: &mut App, command: Option<Command>, key: KeyEvent) {
    match command {
        // an invalid filter can be fixed or dropped, but not accepted
        Some(Command::Accept | Command::NextField | Command::PreviousField | Command::Later | Command::Earlier)
            if app.navigation.help.is_none()
                && !app.navigation.searches_pane()
                && app.list().filter_error().is_some() => {}
        Some(Command::Accept | Command::NextField | Command::PreviousField | Command::Later | Command::Earlier) => {
            let accepted = app.typing.filter.take();
            // the same text once more: the next line with it
            let again = accepted.is_some_and(|(input, before)| !before.is_empty() && input.value() == before);
            if again && app.navigation.searches_pane() {
                let next = app.navigation.pane.as_ref().map_or(0, |pane| pane.scroll + 1);
                super::pane::find(app, next);
            }
        }
        Some(Command::Drop) => {
            if let Some((_, before)) = app.typing.filter.take() {
                apply_text(app, &before);
            }
        }
        _ => {
            let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
            clear_if_untouched(app, plain && matches!(key.code, KeyCode::Char(_)));
            let Some((input, _)) = &mut app.typing.filter else { return };
            input.handle_event(&Terminal::Key(key));
            let text = input.value().to_owned();
            apply_text(app, &text);
        }
    }
}

/// Inserts pasted text into the field that has the focus. Pasted text never acts as keys.
pub(super) fn paste(app: &mut App, text: &str) {
    let text = visible(text.trim(), false);
    if app.dialog.is_none() && app.typing.line.is_none() {
        clear_if_untouched(app, true);
    }
    let field = app.dialog.as_mut().and_then(crate::state::dialog::Dialog::field);
    let field = field.or_else(|| app.typing.line.as_mut().map(|line| &mut line.input));
    let field = field.or_else(|| app.typing.filter.as_mut().map(|(input, _)| input));
    let Some(field) = field else { return };
    for c in text.chars() {
        field.handle(tui_input::InputRequest::InsertChar(c));
    }
    if app.dialog.is_none()
        && let Some(filter) = app.typing.filter.as_ref().map(|(input, _)| input.value().to_owned())
    {
        apply_text(app, &filter);
    }
}

/// Applies a filter.
pub(super) fn set_filter(app: &mut App, text: &str) {
    let columns = columns::of(app);
    app.list_mut().set_filter(text, &columns);
    super::seen::filtered_rows(app);
}
