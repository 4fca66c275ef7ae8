//! `update`: the only function that changes the console's state.

mod columns;
mod command_line;
mod dialog;
mod jump;
mod look;
mod mouse;
mod past;
mod seen;
mod typing;
mod verbs;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind};
use ratatui::layout::Size;

pub use jump::{counterpart, log_filter};

use super::{
    app::App,
    event::{Effect, Event},
    keys::{self, Command, Context, Heard},
    tour,
};

/// Applies an event to the state and returns the resulting effects.
pub fn update(app: &mut App, event: Event) -> Vec<Effect> {
    let mut effects = match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        Event::Key(key) => {
            app.past.paid = super::past::PAGES_A_KEY;
            press(app, key)
        }
        Event::Paste(text) => {
            typing::paste(app, &text);
            Vec::new()
        }
        Event::Mouse(event) => {
            app.past.paid = super::past::PAGES_A_KEY;
            mouse::take_in(app, event);
            Vec::new()
        }
        Event::Resize(columns, rows) => {
            app.size = Size::new(columns, rows);
            Vec::new()
        }
        Event::Themed(theme) => {
            app.looks.theme = *theme;
            Vec::new()
        }
        Event::Seen(news) => {
            seen::take_in(app, news);
            super::sources::follow(app);
            super::others::follow(app);
            expire(app);
            Vec::new()
        }
        Event::Tick(now) => {
            app.now = now;
            super::sources::follow(app);
            expire(app);
            if let Some(mut dialog) = app.dialog.take() {
                super::dialog::refresh(app, &mut dialog);
                app.dialog = Some(dialog);
            }
            Vec::new()
        }
        Event::Done(result) => {
            app.busy = app.busy.saturating_sub(1);
            verbs::ended(app, result);
            Vec::new()
        }
        Event::Kept(said) => {
            match said {
                Ok(Some(text)) => app.refuse(text),
                Err(why) if app.looks.kept => {
                    // reported once: if the home directory cannot be written now, the next attempt fails too
                    app.looks.kept = false;
                    app.refuse(format!("{why}; columns and orders are not saved"));
                }
                Ok(None) | Err(_) => {}
            }
            Vec::new()
        }
        Event::Answered(answer) => {
            past::take_in(app, *answer);
            Vec::new()
        }
    };
    if let Some(dialog) = &mut app.dialog {
        dialog.begin();
    }
    tour::advance(app);
    look::reveal(app);
    effects.append(&mut app.effects);
    effects.extend(past::questions(app));
    effects
}

/// Removes everything that has expired.
fn expire(app: &mut App) {
    app.expire_chord();
    app.expire_message();
    app.expire_writing();
}

/// Returns the context in which a key would be looked up now.
pub fn context(app: &App) -> Context {
    if app.picker.is_some() {
        return Context::Dialog;
    }
    if let Some(dialog) = &app.dialog {
        return if dialog.typing() { Context::Field } else { Context::Dialog };
    }
    if app.typing.is_some() || app.line.is_some() {
        Context::Field
    } else if app.help.is_some() || app.pane.is_some() {
        Context::Detail
    } else {
        Context::Table
    }
}

fn press(app: &mut App, key: KeyEvent) -> Vec<Effect> {
    let unseen = super::views::too_small(app.size);
    let context = if unseen { Context::Table } else { context(app) };
    let mut command = match heard(app, context, key) {
        Heard::Command(command) => Some(command),
        Heard::Begun => return Vec::new(),
        Heard::Nothing => None,
    };
    let typed = app.dialog.is_some() || app.typing.is_some() || app.line.is_some();
    if unseen
        && (typed && dialog::writes(key)
            || !matches!(command, Some(Command::Quit | Command::Suspend | Command::Repaint)))
    {
        // an invisible dialog cannot be confirmed, and text that is typed blindly stays text
        return Vec::new();
    }
    if command.is_none() && context == Context::Field && app.dialog.is_some() && !dialog::writes(key) {
        // keys that are no text work in a dialog independent of the focus
        let elsewhere = app.looks.keymap.lookup(Context::Dialog, key);
        let meant = |c: &Command| matches!(c, Command::Yes | Command::No | Command::PageDown | Command::PageUp);
        command = elsewhere.filter(meant);
    }
    if unseen {
        app.dialog = None;
        app.typing = None;
        app.line = None;
        app.picker = None;
    }
    if app.picker.is_some() {
        columns::press(app, command, key);
        return Vec::new();
    }
    if app.dialog.is_some() {
        return dialog::press(app, command, key);
    }
    if app.typing.is_some() {
        typing::press(app, command, key);
        return Vec::new();
    }
    if app.line.is_some() {
        return command_line::press(app, command, key);
    }
    command.map(|command| carry_out(app, command)).unwrap_or_default()
}

/// Looks up a key together with the earlier keys of its chord.
fn heard(app: &mut App, context: Context, key: KeyEvent) -> Heard {
    let before = std::mem::take(&mut app.chord);
    if !before.is_empty() && key.code == KeyCode::Esc {
        // Esc only drops the chord
        return Heard::Begun;
    }
    let heard = app.looks.keymap.hear(context, &before, key);
    let stroke = keys::normal(key.code, key.modifiers);
    let so_far = before.iter().copied().chain([stroke]);
    match heard {
        Heard::Begun => {
            app.chord = so_far.collect();
            app.chord_at = app.now.boot;
        }
        Heard::Nothing if !before.is_empty() => {
            let pressed = so_far.map(|s| keys::title(&keys::named(s))).collect::<Vec<_>>().join(" ");
            app.say_here(format!("{pressed} is not bound to a command"));
            // the key was meant for the chord
            return Heard::Begun;
        }
        _ => {}
    }
    heard
}

/// Carries out the command of a key or of the command line.
fn carry_out(app: &mut App, command: Command) -> Vec<Effect> {
    tour::pressed(app, command);
    match command {
        Command::Undo => return verbs::undo(app),
        Command::Columns => columns::open(app),
        Command::Tour => tour::turn(app),
        // the engine gives the lock back first, so stopping needs the same confirmation as leaving
        Command::Suspend if super::dialog::quit::open(app).is_some() && !app.stops_twice() => {
            let key = app.key("suspend");
            app.refuse(format!(
                "{key} releases the lock, and no other engine stands by; {key} again suspends this console"
            ));
        }
        Command::Suspend => return vec![Effect::Suspend],
        Command::Repaint => return vec![Effect::Repaint],
        Command::Copy => return copy(app),
        Command::Quit => match super::dialog::quit::open(app) {
            Some(question) => verbs::show(app, question),
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
        | Command::Keep
        | Command::Release
        | Command::HostPower
        | Command::Fence => return verbs::begin(app, command, None),
        other => look::go(app, other),
    }
    Vec::new()
}

/// Sends the selection to the terminal's clipboard and reports it. Terminals do not confirm whether they took it.
fn copy(app: &mut App) -> Vec<Effect> {
    let Some(copied) = super::clipboard::chosen(app) else {
        app.say_here("nothing here can be copied: move the cursor to a row");
        return Vec::new();
    };
    if !app.looks.copies {
        app.refuse_here("this terminal cannot copy: it would print the sequence (OSC 52)");
        return Vec::new();
    }
    app.say(format!("copied {} (if the terminal allows it: OSC 52)", copied.what));
    vec![Effect::Copy(copied.text)]
}
