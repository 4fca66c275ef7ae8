//! Appearance and start of the console, from the settings, the flags and the terminal.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use cketerm_model::clock::Clock;
use cketerm_rules::console_leads::LeadAnswer;
use cketerm_runtime::telemetry::Ring;
use tokio::sync::{mpsc, oneshot, watch};

use super::guard::Modes;
use crate::{
    keys::Keymap,
    state::{AppConfig, View, theme_picker::CONFIGURED},
    theme::{self, Theme, ThemeLoader, background::Background, charset::Charset, display::Bell},
};

/// Request to this process's engine to resign.
#[derive(Debug)]
pub struct Resign {
    /// The engine answers when it has resigned.
    pub requests: mpsc::Sender<oneshot::Sender<()>>,
    /// Longest time until then.
    pub longest: Duration,
}

/// Appearance and start of the console.
#[allow(clippy::struct_excessive_bools)] // independent switches
#[derive(Debug)]
pub struct ConsoleOptions {
    /// The first view.
    pub view: View,
    /// Text of the badge. `None` = the cluster's name.
    pub cluster_badge: Option<String>,
    /// Colour of the badge: the name of one of the 16 colours.
    pub badge_colour: Option<String>,
    /// Name of the theme; `auto` = light or dark, like the terminal.
    pub theme: String,
    /// Whether the theme was asked for at this start: a saved choice does not replace it.
    pub theme_is_fixed: bool,
    /// Directories of the themes.
    pub loader: ThemeLoader,
    /// Whether to query the terminal for its background, and choose the theme by the answer.
    pub ask_background: bool,
    /// Whether to probe the width of block symbols at the start.
    pub probe_width: bool,
    /// Characters that the terminal can show.
    pub charset: Charset,
    /// Terminal modes: title and mouse.
    pub modes: Modes,
    /// Events that ring the bell.
    pub bell: Bell,
    /// Whether colours are used: false for `NO_COLOR` and `--color never`.
    pub colour: bool,
    /// Keys that differ from the table, by command name; an empty list unbinds.
    pub keys: BTreeMap<String, Vec<String>>,
    /// Whether to start read-only, so that actions are refused.
    pub read_only: bool,
    /// Whether to print lines instead of drawing a screen.
    pub plain: bool,
    /// Whether this is a sandbox that ends with the console.
    pub sandbox: bool,
    /// File for columns and sort orders. `None` = they are not saved.
    pub settings: Option<PathBuf>,
    /// Whether the terminal uses UTF-8 and its font has block characters.
    pub blocks: bool,
    /// Whether the terminal accepts copied text.
    pub can_copy: bool,
    /// etcd's endpoints, for the first screen.
    pub endpoints: Vec<String>,
    /// Clock for ages.
    pub clock: Clock,
    /// The last lines of this process's log.
    pub logs: Option<Ring>,
    /// Takes the answer to whether this process's engine may lead. `None` = it needs no answer.
    pub lead_answer: Option<watch::Sender<LeadAnswer>>,
    /// Asked before the process stops (Ctrl-Z, SIGTSTP), so that this process's engine resigns first.
    pub resign: Option<Resign>,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        Self {
            view: View::Overview,
            cluster_badge: None,
            badge_colour: None,
            theme: theme::DEFAULT.to_owned(),
            theme_is_fixed: false,
            loader: ThemeLoader::with_default_folders(),
            ask_background: false,
            probe_width: false,
            charset: Charset::default(),
            modes: Modes::default(),
            bell: Bell::default(),
            colour: true,
            keys: BTreeMap::new(),
            read_only: false,
            plain: false,
            sandbox: false,
            settings: None,
            blocks: false,
            can_copy: true,
            endpoints: Vec::new(),
            clock: Clock::host(),
            logs: None,
            lead_answer: None,
            resign: None,
        }
    }
}

impl ConsoleOptions {
    /// Returns theme and keys, or their error. Call this before taking the terminal.
    pub fn config(&self) -> Result<AppConfig, String> {
        // Until the background is known, the terminal's own colours suit both.
        let name = if self.theme == theme::AUTO { theme::DEFAULT } else { &self.theme };
        Ok(AppConfig {
            theme: self.theme_named(name)?,
            chosen_theme: None,
            keymap: Keymap::new(&self.keys)?,
            badge: self.cluster_badge.clone(),
            endpoints: self.endpoints.clone(),
            read_only: self.read_only,
            blocks: self.blocks,
            can_copy: self.can_copy,
            mouse: self.modes.mouse,
            sandbox: self.sandbox,
            saves_settings: self.settings.is_some(),
            charset: self.charset,
        })
    }

    /// Returns the theme for this background. `None` if the terminal may not be queried or the theme cannot be read.
    pub(super) fn background_theme(&self, background: Background) -> Option<Theme> {
        self.ask_background.then(|| self.theme_named(background.theme()).ok()).flatten()
    }

    /// Returns a function that reads all themes, the configured one first, for a thread that may wait for a file server.
    pub fn themes(&self) -> impl FnOnce() -> Vec<(String, Theme)> + Send + use<> {
        let reader = Self {
            theme: self.theme.clone(),
            loader: self.loader.clone(),
            colour: self.colour,
            badge_colour: self.badge_colour.clone(),
            ..Self::default()
        };
        move || {
            let configured = if reader.theme == theme::AUTO { theme::DEFAULT } else { &reader.theme };
            let configured = (CONFIGURED.to_owned(), configured.to_owned());
            let listed = reader.loader.list().into_iter().filter(|source| !source.hidden).map(|source| source.name);
            let all = std::iter::once(configured).chain(listed.map(|name| (name.clone(), name)));
            // a theme with a fault is not offered; `cketerm theme check` names it
            all.filter_map(|(listed, name)| Some((listed, reader.theme_named(&name).ok()?))).collect()
        }
    }

    /// Returns the theme that was saved, unless one was asked for at this start. The error names what is wrong.
    pub(super) fn saved_theme(&self, name: Option<&str>) -> Result<Option<Theme>, String> {
        name.filter(|_| !self.theme_is_fixed).map(|name| self.theme_named(name)).transpose()
    }

    fn theme_named(&self, name: &str) -> Result<Theme, String> {
        let mut theme = self.loader.theme(name, self.colour)?;
        if let Some(name) = &self.badge_colour {
            let colour = theme::colour(name)?;
            if self.colour {
                theme.badge = theme.badge.fg(colour);
            }
        }
        Ok(theme)
    }
}
