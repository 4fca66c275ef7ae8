//! How the console looks, and what it may: what does not change while it runs.

use super::{charset::Letters, keys::Keymap, theme::Theme};

/// What does not change while the console runs.
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
#[derive(Clone, Debug)]
pub struct Looks {
    /// Colours; those of `auto` change once, when the terminal says whether it is light or dark.
    pub theme: Theme,
    /// Keys in force.
    pub keymap: Keymap,
    /// The badge's word; none = the cluster's name.
    pub badge: Option<String>,
    /// etcd's endpoints, for the first screen.
    pub endpoints: Vec<String>,
    /// Actions are refused.
    pub read_only: bool,
    /// Heights are drawn with the block characters of UTF-8; else with ASCII.
    pub blocks: bool,
    /// It is a sandbox: leaving ends it, and harms nobody.
    pub sandbox: bool,
    /// Columns and orders are kept for the next time.
    pub kept: bool,
    /// The terminal takes what is copied.
    pub copies: bool,
    /// What the terminal can show.
    pub letters: Letters,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            theme: Theme::named("terminal", true).unwrap_or_else(|_| Theme::bare()),
            keymap: Keymap::default(),
            badge: None,
            endpoints: Vec::new(),
            read_only: false,
            sandbox: false,
            kept: false,
            blocks: false,
            copies: true,
            letters: Letters::default(),
        }
    }
}
