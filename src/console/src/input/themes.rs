//! Choice of a theme: `:theme`, and the keys while the picker is open.

use crossterm::event::{KeyCode, KeyEvent};

use crate::{
    keys::Command,
    state::{
        App,
        command_line::matching_candidates,
        settings::Change,
        theme_picker::{CONFIGURED, ThemePicker},
    },
    theme::Theme,
};

/// Uses the theme that was asked for, or opens the picker.
pub(super) fn read(app: &mut App, name: Option<&str>, themes: Vec<(String, Theme)>) {
    let Some(name) = name else {
        if !themes.is_empty() {
            let chosen = app.config.chosen_theme.clone();
            app.themes = Some(ThemePicker::open(themes, &app.config.theme, chosen.as_deref()));
        }
        return;
    };
    let exact = themes.iter().find(|(listed, _)| listed == name);
    let similar = matching_candidates(name, themes.iter().map(|(listed, _)| listed.as_str()));
    let found = exact.or_else(|| match similar.as_slice() {
        [only] => themes.iter().find(|(listed, _)| listed == only),
        _ => None,
    });
    if let Some((name, theme)) = found {
        put(app, name, theme);
    } else {
        let names = if similar.is_empty() { themes.iter().map(|(name, _)| name.clone()).collect() } else { similar };
        app.print_error(format!("there is no theme {name}: choose {}", names.join(", ")));
    }
}

/// Handles a key while the picker is open.
pub(super) fn press(app: &mut App, command: Option<Command>, key: KeyEvent) {
    let Some(mut picker) = app.themes.take() else { return };
    match (command, key.code) {
        (Some(Command::No), _) => {
            app.config.theme = picker.before;
            return;
        }
        (Some(Command::Press | Command::Yes), _) => {
            if let Some((name, theme)) = picker.here() {
                put(app, name, theme);
            }
            return;
        }
        (Some(Command::NextField), _) | (_, KeyCode::Char('j')) => picker.step(true),
        (Some(Command::PreviousField), _) | (_, KeyCode::Char('k')) => picker.step(false),
        _ => {}
    }
    if let Some((_, theme)) = picker.here() {
        app.config.theme = theme.clone();
    }
    app.themes = Some(picker);
}

/// Uses a theme from now on, and saves it.
fn put(app: &mut App, name: &str, theme: &Theme) {
    app.config.theme = theme.clone();
    let chosen = (name != CONFIGURED).then(|| name.to_owned());
    app.config.chosen_theme.clone_from(&chosen);
    app.save_setting(|_| Change::Theme(chosen));
    let saved = if app.config.saves_settings { ", saved for the next start" } else { "" };
    app.print(format!("theme {}{saved}", theme.name));
}
