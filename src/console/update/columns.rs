//! Choice of columns: keys in the list of columns, and the command `:columns`.

use crossterm::event::{KeyCode, KeyEvent};

use crate::console::{
    app::{App, View},
    chosen, columns,
    keys::Command,
    picker::Picker,
    settings,
};

/// Opens the list of columns.
pub(super) fn open(app: &mut App) {
    app.picker = Picker::open(app);
    if app.picker.is_none() {
        app.refuse("the Overview has no columns to choose: choose a view");
    }
}

/// Handles a key while the list is open.
pub(super) fn press(app: &mut App, command: Option<Command>, key: KeyEvent) {
    let Some(mut picker) = app.picker.take() else { return };
    match (command, key.code) {
        (Some(Command::No), _) => return,
        (Some(Command::Press | Command::Yes), _) => {
            let chosen = picker.chosen();
            if !chosen.is_empty() {
                return put(app, chosen);
            }
            app.refuse_here("at least one column is shown");
        }
        (_, KeyCode::Char(' ')) => picker.turn(),
        (Some(Command::NextField), _) | (_, KeyCode::Char('j')) => picker.step(true),
        (Some(Command::PreviousField), _) | (_, KeyCode::Char('k')) => picker.step(false),
        (Some(Command::NextOption), _) => picker.shift(true),
        (Some(Command::PreviousOption), _) => picker.shift(false),
        _ => {}
    }
    app.picker = Some(picker);
}

/// Carries out `:columns`.
pub(super) fn word(app: &mut App, argument: &str) -> Result<(), String> {
    if app.view == View::Overview {
        return Err("the Overview has no columns to choose: choose a view".to_owned());
    }
    match argument {
        "" => open(app),
        "default" => {
            app.chosen.remove(columns::table(app.view, app.of_cke));
            app.keep(settings::columns_of_open);
        }
        names => {
            let names = chosen::read(app, names)?;
            put(app, names);
        }
    }
    Ok(())
}

/// Applies a choice of columns. The table's default columns are stored as no choice.
fn put(app: &mut App, names: Vec<&'static str>) {
    let table = columns::table(app.view, app.of_cke);
    if names == columns::own(app.view, app.of_cke) {
        app.chosen.remove(table);
    } else {
        app.chosen.insert(table, names);
    }
    if app.message.as_ref().is_some_and(|message| message.here) {
        app.message = None;
    }
    app.keep(settings::columns_of_open);
}
