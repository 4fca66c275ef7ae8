//! Choice of columns: keys in the list of columns, and the command `:columns`.

use crossterm::event::{KeyCode, KeyEvent};

use crate::{
    keys::Command,
    state::{App, View, column_id::ColumnId, columns, picker::ColumnPicker, settings},
};

/// Opens the list of columns.
pub(super) fn open(app: &mut App) {
    app.picker = ColumnPicker::open(app);
    if app.picker.is_none() {
        app.print_error("the Overview has no columns to choose: choose a view");
    }
}

/// Handles a key while the list is open.
pub(super) fn press(app: &mut App, command: Option<Command>, key: KeyEvent) {
    let Some(mut picker) = app.picker.take() else { return };
    match (command, key.code) {
        (Some(Command::No), _) => return,
        (Some(Command::Press | Command::Yes), _) => {
            let visible_columns = picker.visible_columns();
            if !visible_columns.is_empty() {
                return put(app, visible_columns);
            }
            app.print_error_here("at least one column is shown");
        }
        (_, KeyCode::Char(' ')) => picker.toggle(),
        (Some(Command::NextField), _) | (_, KeyCode::Char('j')) => picker.step(true),
        (Some(Command::PreviousField), _) | (_, KeyCode::Char('k')) => picker.step(false),
        (Some(Command::NextOption), _) => picker.move_column(true),
        (Some(Command::PreviousOption), _) => picker.move_column(false),
        _ => {}
    }
    app.picker = Some(picker);
}

/// Carries out `:columns`.
pub(super) fn word(app: &mut App, argument: &str) -> Result<(), String> {
    if app.navigation.view == View::Overview {
        return Err("the Overview has no columns to choose: choose a view".to_owned());
    }
    match argument {
        "" => open(app),
        "default" => {
            app.lists.visible_columns.remove(columns::table(app.navigation.view, app.navigation.second_table()));
            app.save_setting(settings::current_columns);
        }
        names => {
            let names = columns::parse(app, names)?;
            put(app, names);
        }
    }
    Ok(())
}

/// Applies a choice of columns. The table's default columns are stored as no choice.
fn put(app: &mut App, names: Vec<ColumnId>) {
    let table = columns::table(app.navigation.view, app.navigation.second_table());
    if names == columns::default_columns(app.navigation.view, app.navigation.second_table(), app.size.width) {
        app.lists.visible_columns.remove(table);
    } else {
        app.lists.visible_columns.insert(table, names);
    }
    if app.session.message.as_ref().is_some_and(|message| message.about.is_here()) {
        app.session.message = None;
    }
    app.save_setting(settings::current_columns);
}
