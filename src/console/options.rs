//! How the console looks and begins, as settings, flags and the terminal have it.

use std::{collections::BTreeMap, path::PathBuf};

use tokio::sync::{mpsc, oneshot};

use super::{
    app::{Looks, View},
    charset::Letters,
    keys::Keymap,
    terminal::Modes,
    theme::{self, Shelf, Theme, background::Background},
};
use crate::{clock::Clock, config::Bell, telemetry::Ring};

/// How the console looks and begins.
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
#[derive(Debug)]
pub struct ConsoleOptions {
    /// The first view.
    pub view: View,
    /// The badge's word; none = the cluster's name.
    pub cluster_badge: Option<String>,
    /// The badge's colour: one of the 16 by name.
    pub badge_colour: Option<String>,
    /// A theme's name; `auto` = light or dark as the terminal is.
    pub theme: String,
    /// Where themes lie.
    pub shelf: Shelf,
    /// The terminal may be asked whether it is light or dark, and has a say in the theme.
    pub ask_background: bool,
    /// What the terminal can show.
    pub letters: Letters,
    /// Title and mouse.
    pub modes: Modes,
    /// When the bell rings.
    pub bell: Bell,
    /// Whether colours are used: false for `NO_COLOR` and `--color never`.
    pub colour: bool,
    /// Keys that differ from the table, by command name; an empty list unbinds.
    pub keys: BTreeMap<String, Vec<String>>,
    /// No actions.
    pub read_only: bool,
    /// Lines in place of a screen.
    pub plain: bool,
    /// It is a sandbox that ends with the console.
    pub sandbox: bool,
    /// The file in which columns and orders are kept; none = they are not.
    pub settings: Option<PathBuf>,
    /// The terminal's characters are UTF-8, and its font has blocks.
    pub blocks: bool,
    /// The terminal takes what is copied.
    pub copies: bool,
    /// etcd's endpoints, for the first screen.
    pub endpoints: Vec<String>,
    /// Where ages come from.
    pub clock: Clock,
    /// The last lines of this process's log.
    pub logs: Option<Ring>,
    /// Asked before the process stops (Ctrl-Z, SIGTSTP), so that the engine beside us resigns first; it answers when
    /// it has.
    pub resign: Option<mpsc::Sender<oneshot::Sender<()>>>,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        Self {
            view: View::Overview,
            cluster_badge: None,
            badge_colour: None,
            theme: theme::DEFAULT.to_owned(),
            shelf: Shelf::here(),
            ask_background: false,
            letters: Letters::default(),
            modes: Modes::default(),
            bell: Bell::default(),
            colour: true,
            keys: BTreeMap::new(),
            read_only: false,
            plain: false,
            sandbox: false,
            settings: None,
            blocks: false,
            copies: true,
            endpoints: Vec::new(),
            clock: Clock::Host,
            logs: None,
            resign: None,
        }
    }
}

impl ConsoleOptions {
    /// Theme and keys, or what is wrong with them: to be called before the terminal is taken.
    pub fn looks(&self) -> Result<Looks, String> {
        // until it is known whether the terminal is light or dark, its own colours do for both
        let name = if self.theme == theme::AUTO { theme::DEFAULT } else { &self.theme };
        Ok(Looks {
            theme: self.theme_named(name)?,
            keymap: Keymap::new(&self.keys)?,
            badge: self.cluster_badge.clone(),
            endpoints: self.endpoints.clone(),
            read_only: self.read_only,
            blocks: self.blocks,
            copies: self.copies,
            sandbox: self.sandbox,
            kept: self.settings.is_some(),
            letters: self.letters,
        })
    }

    /// The theme for a terminal like that; none where it may not be asked, or the theme cannot be read.
    pub(super) fn background_theme(&self, background: Background) -> Option<Theme> {
        self.ask_background.then(|| self.theme_named(background.theme()).ok()).flatten()
    }

    fn theme_named(&self, name: &str) -> Result<Theme, String> {
        let mut theme = self.shelf.theme(name, self.colour)?;
        if let Some(name) = &self.badge_colour {
            let colour = theme::colour(name)?;
            if self.colour {
                theme.badge = theme.badge.fg(colour);
            }
        }
        Ok(theme)
    }
}
