//! Colour themes, by role. Backgrounds are never painted: the terminal keeps its own, and its palette defines the 16
//! names.
//!
//! [`mod@file`] parses one file and reports its faults. [`loader`] finds themes by name and merges one with its base.
//! [`background`] queries the terminal for a light or dark background.

pub mod background;
pub mod charset;
#[cfg(test)]
mod contrast;
pub mod display;
pub mod file;
pub mod loader;

use std::str::FromStr;

use ratatui::style::{Color, Modifier, Style};

use self::file::Face;
pub use self::loader::ThemeLoader;

/// Default theme.
pub const DEFAULT: &str = "terminal";
/// Theme name that queries the terminal and uses `light` or `dark`.
pub const AUTO: &str = "auto";

/// All roles as files name them, each with its purpose.
pub const ROLES: [(&str, &str); 14] = [
    ("badge", "the cluster's badge"),
    ("title", "column titles and headings"),
    ("tab", "the view that is open"),
    ("good", "all is well"),
    ("trouble", "an operator should check"),
    ("danger", "something is broken or about to be disrupted"),
    ("muted", "less important, such as what waits for its turn; also stale data"),
    ("draining", "shapes of work that drains a node; its text keeps the foreground"),
    ("rebooting", "work that restarts a machine, or watches one"),
    ("border", "frames of panels"),
    ("selection", "the whole row under the cursor"),
    ("key", "keys in hints"),
    ("cursor", "the name in the cursor's row"),
    ("mark", "marked rows"),
];

/// A theme, ready to draw with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Its name.
    pub name: String,
    /// The cluster's badge.
    pub badge: Style,
    /// Column titles and headings.
    pub title: Style,
    /// The open view.
    pub tab: Style,
    /// Everything is in order.
    pub good: Style,
    /// An operator should look.
    pub trouble: Style,
    /// Something is broken or about to be disrupted.
    pub danger: Style,
    /// Less important; also stale data.
    pub muted: Style,
    /// Shapes of work that drains a node: blue, which many palettes make too dark for text.
    pub draining: Style,
    /// Work that restarts a machine, or watches one.
    pub rebooting: Style,
    /// Frames of panels.
    pub border: Style,
    /// The whole row under the cursor.
    pub selection: Style,
    /// Keys in hints.
    pub key: Style,
    /// The name in the cursor's row.
    pub cursor: Style,
    /// Marked rows.
    pub mark: Style,
}

/// Demand of a piece of work on an operator. Every view shows it in the same colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is over, and succeeded.
    Done,
    /// It waits for its turn.
    Waiting,
    /// It drains a node.
    Draining,
    /// It restarts a machine, or watches one.
    Rebooting,
    /// It backs off, or takes longer than usual.
    Slow,
    /// It failed, or needs an operator.
    Failed,
}

impl Severity {
    /// Returns its sign. Work has one sign, because the word beside it says which work it is. All signs are one cell
    /// wide; terminals that draw some of them wider, or not at all, get ASCII (`charset`).
    pub fn sign(self) -> &'static str {
        match self {
            Self::Done => "\u{2713}",
            Self::Waiting => "\u{25cb}",
            Self::Draining | Self::Rebooting => "\u{25cf}",
            Self::Slow => "\u{25b2}",
            Self::Failed => "!",
        }
    }

    /// All severities, the harmless ones first.
    pub const ALL: [Self; 6] = [Self::Done, Self::Waiting, Self::Draining, Self::Rebooting, Self::Slow, Self::Failed];
}

impl Theme {
    /// Returns the style of text of a severity. Text about a drain keeps the foreground, because blue letters are hard
    /// to read in many palettes; its [`shape`](Self::shape) is blue.
    pub fn severity(&self, severity: Severity) -> Style {
        match severity {
            Severity::Draining => Style { fg: None, ..self.draining },
            Severity::Done | Severity::Waiting | Severity::Rebooting | Severity::Slow | Severity::Failed => {
                self.shape(severity)
            }
        }
    }

    /// Returns the style of shapes of a severity: bars, blocks and signs.
    pub fn shape(&self, severity: Severity) -> Style {
        match severity {
            Severity::Done => self.good,
            Severity::Waiting => self.muted,
            Severity::Draining => self.draining,
            Severity::Rebooting => self.rebooting,
            Severity::Slow => self.trouble,
            Severity::Failed => self.danger,
        }
    }

    /// Returns a built-in theme by name; without colours if `colour` is false (`NO_COLOR`).
    pub fn named(name: &str, colour: bool) -> Result<Self, String> {
        ThemeLoader::built_in().theme(name, colour)
    }

    /// Creates a theme from the faces of its roles.
    fn from_faces(name: &str, faces: &[(&str, Face)], colour: bool) -> Self {
        let mut theme = Self { name: name.to_owned(), ..Self::bare() };
        for (role, face) in faces {
            if let Some(style) = theme.role_mut(role) {
                *style = to_style(face, colour);
            }
        }
        theme
    }

    fn role_mut(&mut self, role: &str) -> Option<&mut Style> {
        Some(match role {
            "badge" => &mut self.badge,
            "title" => &mut self.title,
            "tab" => &mut self.tab,
            "good" => &mut self.good,
            "trouble" => &mut self.trouble,
            "danger" => &mut self.danger,
            "muted" => &mut self.muted,
            "draining" => &mut self.draining,
            "rebooting" => &mut self.rebooting,
            "border" => &mut self.border,
            "selection" => &mut self.selection,
            "key" => &mut self.key,
            "cursor" => &mut self.cursor,
            "mark" => &mut self.mark,
            _ => return None,
        })
    }

    /// Creates a theme without any style. It never fails, as a fallback if no theme can be read.
    pub fn bare() -> Self {
        let plain = Style::new();
        Self {
            name: "bare".to_owned(),
            badge: plain.add_modifier(Modifier::REVERSED),
            title: plain,
            tab: plain.add_modifier(Modifier::BOLD),
            good: plain,
            trouble: plain,
            danger: plain,
            muted: plain,
            draining: plain,
            rebooting: plain,
            border: plain,
            selection: plain.add_modifier(Modifier::REVERSED),
            key: plain,
            cursor: plain.add_modifier(Modifier::BOLD),
            mark: plain,
        }
    }
}

/// Parses one of the 16 colours by name.
pub fn colour(name: &str) -> Result<Color, String> {
    match Color::from_str(name) {
        Ok(Color::Rgb(..) | Color::Indexed(_)) | Err(_) => Err(format!(
            "{name:?} is not one of the 16 colours: black, red, green, yellow, blue, magenta, cyan, gray, dark-gray, \
             light-red, light-green, light-yellow, light-blue, light-magenta, light-cyan, white"
        )),
        Ok(colour) => Ok(colour),
    }
}

/// Converts a face to ratatui's style. Colours were validated before; an invalid one leaves the terminal's own.
fn to_style(face: &Face, coloured: bool) -> Style {
    let mut style = Style::new();
    if let Some(fg) = face.fg.as_deref().filter(|_| coloured).and_then(|name| colour(name).ok()) {
        style = style.fg(fg);
    }
    for (on, modifier) in [
        (face.bold, Modifier::BOLD),
        (face.dim, Modifier::DIM),
        (face.underline, Modifier::UNDERLINED),
        (face.reverse, Modifier::REVERSED),
    ] {
        if on {
            style = style.add_modifier(modifier);
        }
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_a_field_and_every_field_a_role() {
        let mut theme = Theme::bare();
        for (role, _) in ROLES {
            assert!(theme.role_mut(role).is_some(), "{role}");
            *theme.role_mut(role).unwrap() = Style::new().fg(Color::Red);
        }
        let all = format!("{theme:?}");
        assert_eq!(all.matches(".red()").count(), ROLES.len(), "{all}");
    }

    #[test]
    fn without_colours_no_role_has_a_foreground() {
        for (name, _) in loader::BUILT_IN {
            let theme = Theme::named(name, false).unwrap();
            for style in [theme.good, theme.trouble, theme.danger, theme.key, theme.mark, theme.cursor, theme.tab] {
                assert_eq!(style.fg, None, "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_theme_name_lists_the_valid_ones() {
        assert!(Theme::named("x", true).unwrap_err().contains("terminal"));
        assert!(Theme::named("contrst", true).unwrap_err().contains("did you mean \"contrast\""));
        assert!(colour("#123456").is_err());
    }
}
