//! `update`: the only function that changes the console's state.

pub mod audit_messages;
mod columns;
mod command_line;
mod commands;
mod dialog;
mod jump;
mod lead;
mod mouse;
mod navigation;
mod open;
mod overview;
mod pane;
mod pane_content;
mod past;
mod racks;
mod seen;
mod themes;
mod trouble;
mod typing;
mod verbs;

pub use self::dialog::is_text_key;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Size;

use crate::{
    keys::{self, Command, Context, KeyMatch},
    state::{
        App,
        event::{Effect, Event},
        settings::Change,
        tour,
    },
};

/// Applies an event to the state and returns the resulting effects.
pub fn update(app: &mut App, event: Event) -> Vec<Effect> {
    let before = app.navigation.pane.clone().map(|pane| (pane, app.row_target()));
    let by_operator = matches!(event, Event::Key(_) | Event::Mouse(_) | Event::Paste(_));
    let mut effects = match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        Event::Key(key) => {
            app.knowledge.past.page_budget = crate::state::past::PAGES_PER_KEY;
            press(app, key)
        }
        Event::Paste(text) => {
            typing::paste(app, &text);
            Vec::new()
        }
        Event::Mouse(event) => {
            app.knowledge.past.page_budget = crate::state::past::PAGES_PER_KEY;
            mouse::handle(app, event);
            Vec::new()
        }
        Event::Resize(columns, rows) => {
            app.size = Size::new(columns, rows);
            Vec::new()
        }
        Event::ThemeDetected(theme) => {
            match &mut app.themes {
                Some(picker) => picker.before = *theme,
                None if app.config.chosen_theme.is_none() => app.config.theme = *theme,
                None => {}
            }
            Vec::new()
        }
        Event::ThemesRead(name, themes) => {
            themes::read(app, name.as_deref(), themes);
            Vec::new()
        }
        Event::WideSymbols => {
            app.config.charset = app.config.charset.without_blocks();
            app.config.blocks = false;
            // what was drawn so far may have shifted every line
            vec![Effect::Repaint]
        }
        Event::Seen(seen) => {
            seen::handle(app, seen);
            crate::state::sources::follow(app);
            audit_messages::follow(app);
            lead::follow(app);
            expire(app);
            Vec::new()
        }
        Event::Tick(now) => {
            app.now = now;
            crate::state::sources::follow(app);
            crate::state::needs_you::follow_sources(app);
            expire(app);
            if let Some(mut dialog) = app.dialog.take() {
                crate::dialogs::refresh(app, &mut dialog);
                app.dialog = Some(dialog);
            }
            Vec::new()
        }
        Event::Rested => {
            app.navigation.preview = app.target();
            Vec::new()
        }
        Event::Done(result) => {
            app.session.busy = app.session.busy.saturating_sub(1);
            verbs::ended(app, result);
            Vec::new()
        }
        Event::SettingsSaved(saved) => {
            match saved {
                Ok(Some(text)) => app.print_error(text),
                Err(why) if app.config.saves_settings => {
                    // reported once: if the home directory cannot be written now, the next attempt fails too
                    app.config.saves_settings = false;
                    app.print_error(format!("{why}; columns and orders are not saved"));
                }
                Ok(None) | Err(_) => {}
            }
            Vec::new()
        }
        Event::ReadFinished(answer) => {
            past::handle(app, *answer);
            Vec::new()
        }
    };
    let size = app.size;
    if let Some(dialog) = &mut app.dialog {
        dialog.shown_to = dialog.shown_to.max(crate::views::dialog::shown_to(dialog, size));
        dialog.begin();
    }
    tour::advance(app);
    pane::keep_ended(app);
    pane::keep_together(app, before.as_ref(), by_operator);
    crate::state::estimates::follow(app);
    navigation::reveal(app);
    effects.append(&mut app.session.effects);
    effects.extend(past::due_read_requests(app));
    effects
}

/// Removes everything that has expired.
fn expire(app: &mut App) {
    app.expire_chord();
    app.expire_write_permission();
}

fn press(app: &mut App, key: KeyEvent) -> Vec<Effect> {
    if !is_escape_and_letter(app, key) {
        return press_key(app, key);
    }
    let mut effects = press_key(app, KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    let letter = KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..key };
    effects.extend(press_key(app, letter));
    effects
}

/// Keys with Alt that edit a text field.
const FIELD_EDITS: [char; 3] = ['b', 'd', 'f'];

/// Reports whether a key with Alt means Esc and then a letter. Over a slow link both arrive in one packet, which a
/// terminal also sends for Alt and the letter. Only keys without a meaning of their own are taken apart.
fn is_escape_and_letter(app: &App, key: KeyEvent) -> bool {
    let KeyCode::Char(letter) = key.code else { return false };
    if !key.modifiers.contains(KeyModifiers::ALT) || key.modifiers.contains(KeyModifiers::CONTROL) {
        return false;
    }
    let context = app.key_context();
    let is_bound = |context| app.config.keymap.match_stroke(context, &app.typing.chord, key) != KeyMatch::Unbound;
    let edits = context == Context::Field && FIELD_EDITS.contains(&letter);
    !(edits || is_bound(context) || (app.dialog.is_some() && is_bound(Context::Dialog)))
}

fn press_key(app: &mut App, key: KeyEvent) -> Vec<Effect> {
    let screen_too_small = super::views::too_small(app.size);
    app.typing.notice = None;
    let context = if screen_too_small { Context::Table } else { app.key_context() };
    let mut command = match key_match(app, context, key) {
        KeyMatch::Command(command) => Some(command),
        KeyMatch::Prefix => return Vec::new(),
        KeyMatch::Unbound => None,
    };
    let typed = app.dialog.is_some() || app.typing.filter.is_some() || app.typing.line.is_some();
    if screen_too_small
        && (typed && dialog::is_text_key(key)
            || !matches!(command, Some(Command::Quit | Command::Suspend | Command::Repaint)))
    {
        // an invisible dialog cannot be confirmed, and text that is typed blindly stays text
        return Vec::new();
    }
    if command.is_none() && context == Context::Field && app.dialog.is_some() && !dialog::is_text_key(key) {
        // keys that are no text work in a dialog independent of the focus
        let elsewhere = app.config.keymap.lookup(Context::Dialog, key);
        let is_dialog_command =
            |c: &Command| matches!(c, Command::Yes | Command::No | Command::PageDown | Command::PageUp);
        command = elsewhere.filter(is_dialog_command);
    }
    if screen_too_small {
        app.dialog = None;
        app.typing.filter = None;
        app.typing.line = None;
        app.picker = None;
        if let Some(picker) = app.themes.take() {
            app.config.theme = picker.before;
        }
    }
    if app.themes.is_some() {
        themes::press(app, command, key);
        return Vec::new();
    }
    if app.picker.is_some() {
        columns::press(app, command, key);
        return Vec::new();
    }
    if app.dialog.is_some() {
        return dialog::press(app, command, key);
    }
    if app.typing.filter.is_some() {
        typing::press(app, command, key);
        return Vec::new();
    }
    if app.typing.line.is_some() {
        return command_line::press(app, command, key);
    }
    if command == Some(Command::Quit) && !key.modifiers.contains(KeyModifiers::CONTROL) && app.navigation.has_layer() {
        // a letter closes what lies on top; only from a bare view it leaves
        command = Some(Command::Back);
    }
    let Some(command) = command else {
        say_unbound(app, &[keys::normalized(key.code, key.modifiers)]);
        return Vec::new();
    };
    app.dismiss_message();
    execute(app, command)
}

/// Says in place of the hints that keys have no command here. The message line keeps its text, because such a key does
/// nothing.
fn say_unbound(app: &mut App, strokes: &[keys::Stroke]) {
    let pressed = strokes.iter().map(|s| keys::title(&keys::stroke_name(*s))).collect::<Vec<_>>().join(" ");
    app.typing.notice = Some(format!("{pressed} is not bound; {} shows the keys", app.key("help")));
}

/// Looks up a key together with the earlier keys of its chord.
fn key_match(app: &mut App, context: Context, key: KeyEvent) -> KeyMatch {
    let before = std::mem::take(&mut app.typing.chord);
    if !before.is_empty() && key.code == KeyCode::Esc {
        // Esc only drops the chord
        return KeyMatch::Prefix;
    }
    let key_match = app.config.keymap.match_stroke(context, &before, key);
    let stroke = keys::normalized(key.code, key.modifiers);
    let so_far = before.iter().copied().chain([stroke]);
    match key_match {
        KeyMatch::Prefix => {
            app.typing.chord = so_far.collect();
            app.typing.chord_at = app.now.boot;
        }
        KeyMatch::Unbound if !before.is_empty() => {
            let pressed: Vec<keys::Stroke> = so_far.collect();
            say_unbound(app, &pressed);
            // the key was meant for the chord
            return KeyMatch::Prefix;
        }
        _ => {}
    }
    key_match
}

/// Carries out the command of a key or of the command line.
fn execute(app: &mut App, command: Command) -> Vec<Effect> {
    tour::on_command(app, command);
    match command {
        Command::Undo => return verbs::undo(app),
        Command::Lead => return lead::begin(app),
        Command::Columns => columns::open(app),
        Command::Tour => tour::toggle(app),
        Command::Mouse => return toggle_mouse(app),
        // the engine gives the lock back first, so stopping needs the same confirmation as leaving
        Command::Suspend if crate::dialogs::quit::open(app).is_some() && !app.is_repeated_suspend() => {
            let key = app.key("suspend");
            app.print_error(format!(
                "{key} releases the lock, and no other engine stands by; {key} again suspends this console"
            ));
        }
        Command::Suspend => return vec![Effect::Suspend],
        Command::Repaint => return vec![Effect::Repaint],
        Command::Copy => return copy(app),
        Command::Quit => match crate::dialogs::quit::open(app) {
            Some(confirmation) => verbs::show(app, confirmation),
            None => return vec![Effect::Quit],
        },
        Command::Cancel
        | Command::CancelAll
        | Command::Reboot
        | Command::Repair
        | Command::DeleteFinished
        | Command::DeleteUnfinished
        | Command::Hold
        | Command::Unhold
        | Command::ResetBackoff
        | Command::Switch
        | Command::Approve
        | Command::Constraint
        | Command::AutoRepair
        | Command::Retry
        | Command::Done
        | Command::Force
        | Command::KeepCordoned
        | Command::Release
        | Command::HostPower
        | Command::Fence => return verbs::begin(app, command, None),
        other => commands::go(app, other),
    }
    Vec::new()
}

/// Turns the mouse on or off, and saves that.
fn toggle_mouse(app: &mut App) -> Vec<Effect> {
    let on = !app.config.mouse;
    app.config.mouse = on;
    app.save_setting(|_| Change::Mouse(on));
    let saved = if app.config.saves_settings { "; saved for the next start" } else { "" };
    app.print(if on {
        format!("mouse on: a double click opens, a column title sorts, Shift selects text{saved}")
    } else {
        format!("mouse off{saved}")
    });
    vec![Effect::Mouse(on)]
}

/// Sends the selection to the terminal's clipboard and reports it. Terminals do not confirm whether they took it.
fn copy(app: &mut App) -> Vec<Effect> {
    let Some(copied) = crate::views::copy::copy_of_selection(app) else {
        app.print_here("nothing here can be copied: move the cursor to a row");
        return Vec::new();
    };
    if !app.config.can_copy {
        app.print_error_here("this terminal cannot copy: it would print the sequence (OSC 52)");
        return Vec::new();
    }
    app.print(format!("copied {} (if the terminal allows it: OSC 52)", copied.what));
    vec![Effect::Copy(copied.text)]
}
