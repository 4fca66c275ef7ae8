//! Choice of a theme with a live preview.

use crate::theme::Theme;

/// Name under which the picker lists the configured theme.
pub const CONFIGURED: &str = "default";

/// The open theme picker. The theme under the cursor is in force while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThemePicker {
    /// All themes, by name.
    pub themes: Vec<(String, Theme)>,
    /// Index of the theme under the cursor.
    pub at: usize,
    /// The theme that comes back if none is chosen.
    pub before: Theme,
}

impl ThemePicker {
    /// Opens the picker on the theme in force.
    pub fn open(themes: Vec<(String, Theme)>, in_force: &Theme, name: Option<&str>) -> Self {
        let is_it = |(listed, theme): &(String, Theme)| match name {
            Some(name) => listed == name,
            None => theme.name == in_force.name,
        };
        let at = themes.iter().position(is_it).unwrap_or(0);
        Self { themes, at, before: in_force.clone() }
    }

    /// Moves the cursor; it wraps around at the ends.
    pub fn step(&mut self, forward: bool) {
        let all = self.themes.len().max(1);
        self.at = (self.at + if forward { 1 } else { all - 1 }) % all;
    }

    /// Returns the name and the theme under the cursor.
    pub fn here(&self) -> Option<&(String, Theme)> {
        self.themes.get(self.at)
    }
}
