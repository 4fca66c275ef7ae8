//! Keys in a dialog.

use crossterm::event::{Event as Terminal, KeyCode, KeyEvent, KeyModifiers};
use tui_input::backend::crossterm::EventHandler;

use crate::console::{
    app::App,
    dialog::{Deed, Focus, Why},
    event::Effect,
    keys::Command,
};

/// Lines that one key scrolls a long list by: fewer than any dialog shows of one.
const SCROLL: usize = 3;

/// A key while a dialog is open.
pub(super) fn press(app: &mut App, command: Option<Command>, key: KeyEvent) -> Vec<Effect> {
    let Some(dialog) = &mut app.dialog else { return Vec::new() };
    match command {
        // Enter in a field, and in a choice, goes on: only a button does something
        Some(Command::NextField | Command::Accept) => dialog.turn(true),
        Some(Command::PreviousField) => dialog.turn(false),
        Some(Command::NextOption) => dialog.option(true),
        Some(Command::PreviousOption) => dialog.option(false),
        Some(Command::PageDown) => dialog.scroll += SCROLL,
        Some(Command::PageUp) => dialog.scroll = dialog.scroll.saturating_sub(SCROLL),
        Some(Command::Drop) if dialog.expired.is_some() => app.dialog = None,
        Some(Command::Drop) => dialog.focus = Focus::Cancel,
        Some(Command::Reason) if dialog.why != Why::Never && dialog.expired.is_none() => dialog.focus = Focus::Reason,
        Some(Command::No) => app.dialog = None,
        Some(Command::Press) if dialog.focus == Focus::Cancel => app.dialog = None,
        Some(Command::Press) if matches!(dialog.focus, Focus::Type | Focus::Operation) => dialog.turn(true),
        Some(Command::Yes | Command::Press) => return confirm(app),
        // whoever types a reason, or the value that is missing, without asking for the field means that field
        None if types(key) && dialog.field().is_none() && dialog.expired.is_none() && dialog.why != Why::Never => {
            dialog.focus = if dialog.value.is_some() { Focus::Value } else { Focus::Reason };
            if let Some(field) = dialog.field() {
                field.handle_event(&Terminal::Key(key));
            }
        }
        _ => {
            if let Some(field) = dialog.field() {
                field.handle_event(&Terminal::Key(key));
            }
        }
    }
    Vec::new()
}

/// A key that writes a letter.
fn types(key: KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char(c) if c.is_alphanumeric())
        && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
}

/// Does it, if nothing is missing and nothing has changed.
fn confirm(app: &mut App) -> Vec<Effect> {
    let Some(dialog) = &mut app.dialog else { return Vec::new() };
    dialog.check(&app.seen);
    if let Some(missing) = dialog.missing() {
        if dialog.expired.is_none() {
            dialog.go_to_missing();
            app.refuse(missing);
        }
        return Vec::new();
    }
    let deed = dialog.confirmed();
    app.dialog = None;
    match deed {
        Deed::Quit => vec![Effect::Quit],
        Deed::Act(action) => super::verbs::act(app, action),
    }
}
