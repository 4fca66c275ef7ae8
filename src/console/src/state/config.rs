//! Appearance and permissions of the console, which do not change while it runs.

use crate::{
    keys::Keymap,
    theme::{Theme, charset::Charset},
};

/// Settings that do not change while the console runs.
#[allow(clippy::struct_excessive_bools)] // independent switches
#[derive(Clone, Debug)]
pub struct AppConfig {
    /// Colours. Those of `auto` change once, when the terminal reports a light or dark background.
    pub theme: Theme,
    /// Name of the theme that the operator chose in the console. `None` = the configured one.
    pub chosen_theme: Option<String>,
    /// Active keys.
    pub keymap: Keymap,
    /// Text of the badge. `None` = the cluster's name.
    pub badge: Option<String>,
    /// etcd's endpoints, for the first screen.
    pub endpoints: Vec<String>,
    /// Whether the console was started read-only.
    pub read_only: bool,
    /// Whether heights are drawn with UTF-8 block characters instead of ASCII.
    pub blocks: bool,
    /// Whether this is a sandbox: quitting ends it, and affects nobody.
    pub sandbox: bool,
    /// Whether columns and sort orders are saved for the next start.
    pub saves_settings: bool,
    /// Whether the terminal accepts copied text.
    pub can_copy: bool,
    /// Whether the terminal reports clicks and the wheel.
    pub mouse: bool,
    /// Characters that the terminal can show.
    pub charset: Charset,
}

impl Default for AppConfig {
    fn default() -> Self {
        Self {
            theme: Theme::named("terminal", true).unwrap_or_else(|_| Theme::bare()),
            chosen_theme: None,
            keymap: Keymap::default(),
            badge: None,
            endpoints: Vec::new(),
            read_only: false,
            sandbox: false,
            saves_settings: false,
            blocks: false,
            can_copy: true,
            mouse: false,
            charset: Charset::default(),
        }
    }
}
