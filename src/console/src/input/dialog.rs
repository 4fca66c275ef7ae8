//! Keys in a dialog. A key for a letter always writes: into the field that has the focus, else into the reason. `y`
//! means yes only on the buttons. An expired dialog takes the rest of the reason, the keys that close it, and Enter, which
//! asks again.

use std::time::Duration;

use crossterm::event::{Event as Terminal, KeyCode, KeyEvent, KeyModifiers};
use tui_input::backend::crossterm::EventHandler;

use crate::{
    keys::Command,
    state::{
        App,
        dialog::{Dialog, DialogAction, Focus, ReasonPolicy, kept_text::KeptText},
        event::Effect,
    },
};

/// Lines that one key scrolls a long list by: fewer than any dialog shows of one.
const SCROLL: usize = 3;
/// Time after which the operator has seen that a dialog expired, so that Enter and letters are keys again.
const READ_AFTER: Duration = Duration::from_secs(2);

/// Handles a key while a dialog is open.
pub(super) fn press(app: &mut App, command: Option<Command>, key: KeyEvent) -> Vec<Effect> {
    let effects = handle_key(app, command, key);
    if let Some(mut dialog) = app.dialog.take() {
        crate::dialogs::follow_choice(app, &mut dialog);
        app.dialog = Some(dialog);
    }
    // removes a message whose request is fulfilled, or whose dialog is closed
    let is_resolved = |text: &str| app.dialog.as_ref().is_none_or(|dialog| dialog.is_resolved(text));
    if app.session.message.as_ref().is_some_and(|message| message.about.is_here() && is_resolved(&message.text)) {
        app.session.message = None;
    }
    effects
}

fn handle_key(app: &mut App, command: Option<Command>, key: KeyEvent) -> Vec<Effect> {
    let Some(dialog) = &mut app.dialog else { return Vec::new() };
    let is_text_key = is_text_key(key);
    match command {
        Some(Command::PageDown) if !is_text_key => dialog.scroll += SCROLL,
        Some(Command::PageUp) if !is_text_key => dialog.scroll = dialog.scroll.saturating_sub(SCROLL),
        _ if dialog.expired.is_some() => {
            // keys pressed right after the change were meant for the dialog; text is kept for the next one
            let is_read = dialog.expired_at.is_some_and(|at| app.now.boot.saturating_duration_since(at) >= READ_AFTER);
            let closes = matches!(command, Some(Command::No | Command::Drop)) && (!is_text_key || is_read);
            let is_quit = is_read && key.code == KeyCode::Char('q') && is_text_key;
            let asks = matches!(command, Some(Command::Press | Command::Accept)) && !is_text_key;
            if closes || is_quit || key.code == KeyCode::Esc {
                app.session.kept_text = KeptText::of(dialog);
                app.dialog = None;
            } else if asks && is_read {
                ask_again(app);
            } else if is_text_key && dialog.why != ReasonPolicy::Never && !dialog.reason.value().is_empty() {
                // only a reason that was being typed goes on
                dialog.reason.handle_event(&Terminal::Key(key));
            }
        }
        Some(Command::Drop) => app.dialog = None,
        Some(Command::No) if !is_text_key || dialog.why == ReasonPolicy::Never => app.dialog = None,
        Some(Command::Yes) if !is_text_key || dialog.at_buttons() => return confirm(app),
        Some(Command::NextField | Command::Later) if !is_text_key => dialog.move_focus(true),
        Some(Command::PreviousField | Command::Earlier) if !is_text_key => dialog.move_focus(false),
        Some(Command::NextOption) if !is_text_key => dialog.change_option(true),
        Some(Command::PreviousOption) if !is_text_key => dialog.change_option(false),
        Some(Command::Press) if dialog.focus == Focus::Back && !is_text_key => return back(app),
        Some(Command::Press) if dialog.focus == Focus::Confirm && !is_text_key => return confirm(app),
        // Enter in a field or in a choice moves on; only a button acts
        Some(Command::Press | Command::Accept) if !is_text_key => {
            if let Some(missing) = dialog.focus_next() {
                app.print_error_here(missing);
            }
        }
        _ => write(dialog, key, is_text_key),
    }
    Vec::new()
}

/// Asks the question of the expired dialog again, if it still makes sense.
fn ask_again(app: &mut App) {
    let again = app.dialog.as_ref().and_then(|dialog| crate::dialogs::again::of(app, dialog));
    if let Some(again) = again {
        app.session.kept_text = None;
        super::verbs::show_numbered(app, again);
    }
}

/// Goes back from the dialog by its button, and says what was not done.
fn back(app: &mut App) -> Vec<Effect> {
    let Some(dialog) = app.dialog.take() else { return Vec::new() };
    app.print(dialog.not_done());
    match dialog.action {
        DialogAction::Lead { first } => super::lead::answered(app, first, false),
        DialogAction::Quit | DialogAction::Act(_) => Vec::new(),
    }
}

/// Handles a key that no command takes: it goes into the field that has the focus. If the focus is elsewhere, typing
/// goes to the missing value, else to the reason.
fn write(dialog: &mut Dialog, key: KeyEvent, is_text_key: bool) {
    if dialog.field().is_none() && is_text_key && key.code != KeyCode::Char(' ') && dialog.why != ReasonPolicy::Never {
        dialog.focus = if dialog.value.is_some() { Focus::Value } else { Focus::Reason };
    }
    if let Some(field) = dialog.field() {
        field.handle_event(&Terminal::Key(key));
    }
}

/// Reports whether a key writes a letter.
pub fn is_text_key(key: KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char(_)) && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
}

/// Starts the action, if no input is missing and nothing has changed.
fn confirm(app: &mut App) -> Vec<Effect> {
    let Some(dialog) = &mut app.dialog else { return Vec::new() };
    dialog.check(&app.seen);
    if crate::views::dialog::has_unread_warnings(dialog, app.size) {
        dialog.scroll += SCROLL;
        return Vec::new();
    }
    if let Some(missing) = dialog.missing() {
        if dialog.expired.is_none() {
            dialog.focus_missing();
            app.print_error_here(missing);
        }
        return Vec::new();
    }
    let action = dialog.confirmed();
    app.dialog = None;
    match action {
        DialogAction::Quit => vec![Effect::Quit],
        DialogAction::Lead { first } => super::lead::answered(app, first, true),
        DialogAction::Act(action) => super::verbs::act(app, action),
    }
}
