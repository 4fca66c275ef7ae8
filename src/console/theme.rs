//! Colour themes: `themes/*.yaml`, by role. Backgrounds are never painted: the terminal keeps its own.

use std::str::FromStr;

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;

/// The looks of one role.
#[allow(clippy::struct_excessive_bools)] // four independent switches of a terminal
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Face {
    /// One of the 16 colours by name; none = the terminal's foreground.
    pub fg: Option<String>,
    /// Bold.
    pub bold: bool,
    /// Dim.
    pub dim: bool,
    /// Underlined.
    pub underline: bool,
    /// Foreground and background swapped.
    pub reverse: bool,
}

/// A theme as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThemeFile {
    name: String,
    badge: Face,
    title: Face,
    tab: Face,
    good: Face,
    trouble: Face,
    danger: Face,
    muted: Face,
    key: Face,
    cursor: Face,
    mark: Face,
}

/// A theme, ready to draw with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Its name.
    pub name: String,
    /// The cluster's badge.
    pub badge: Style,
    /// Column titles and headings.
    pub title: Style,
    /// The view that is open.
    pub tab: Style,
    /// All is well.
    pub good: Style,
    /// A person should look.
    pub trouble: Style,
    /// Something is broken or about to be disrupted.
    pub danger: Style,
    /// Less important; also data that is stale.
    pub muted: Style,
    /// Keys in hints.
    pub key: Style,
    /// The name in the cursor's row.
    pub cursor: Style,
    /// Marked rows.
    pub mark: Style,
}

const BUILT_IN: [&str; 3] = [
    include_str!("../../themes/terminal.yaml"),
    include_str!("../../themes/light.yaml"),
    include_str!("../../themes/plain.yaml"),
];

impl Theme {
    /// A built-in theme by name (`terminal`, `light`, `plain`); without colours where `colour` is false (`NO_COLOR`).
    pub fn named(name: &str, colour: bool) -> Result<Self, String> {
        let mut known = Vec::new();
        for text in BUILT_IN {
            let theme = Self::parse(text, colour)?;
            if theme.name == name {
                return Ok(theme);
            }
            known.push(theme.name);
        }
        Err(format!("there is no theme {name:?}: choose one of {}", known.join(", ")))
    }

    /// The names of the built-in themes.
    pub fn names() -> Vec<String> {
        BUILT_IN.iter().filter_map(|text| Self::parse(text, false).ok()).map(|theme| theme.name).collect()
    }

    /// Reads a theme's YAML.
    pub fn parse(text: &str, colour: bool) -> Result<Self, String> {
        let file: ThemeFile = serde_yaml::from_str(text).map_err(|e| format!("theme: {e}"))?;
        let style = |face: &Face| style(face, colour);
        Ok(Self {
            badge: style(&file.badge)?,
            title: style(&file.title)?,
            tab: style(&file.tab)?,
            good: style(&file.good)?,
            trouble: style(&file.trouble)?,
            danger: style(&file.danger)?,
            muted: style(&file.muted)?,
            key: style(&file.key)?,
            cursor: style(&file.cursor)?,
            mark: style(&file.mark)?,
            name: file.name,
        })
    }

    /// Without any look; never fails, for when nothing else can be read.
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
            key: plain,
            cursor: plain.add_modifier(Modifier::BOLD),
            mark: plain,
        }
    }
}

/// One of the 16 colours by name.
pub fn colour(name: &str) -> Result<Color, String> {
    match Color::from_str(name) {
        Ok(Color::Rgb(..) | Color::Indexed(_)) | Err(_) => {
            Err(format!("{name:?} is not one of the 16 colours: red, green, yellow, blue, magenta, cyan, light-red …"))
        }
        Ok(colour) => Ok(colour),
    }
}

fn style(face: &Face, coloured: bool) -> Result<Style, String> {
    let mut style = Style::new();
    if let Some(name) = &face.fg {
        let fg = colour(name)?;
        if coloured {
            style = style.fg(fg);
        }
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
    Ok(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_theme_parses_and_paints_no_background() {
        for name in ["terminal", "light", "plain"] {
            let theme = Theme::named(name, true).unwrap();
            for style in [theme.badge, theme.good, theme.danger, theme.muted, theme.cursor] {
                assert_eq!(style.bg, None, "{name}");
            }
        }
    }

    #[test]
    fn without_colour_no_role_has_one() {
        let theme = Theme::named("terminal", false).unwrap();
        for style in [theme.good, theme.trouble, theme.danger, theme.key, theme.mark] {
            assert_eq!(style.fg, None);
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        assert!(Theme::named("x", true).unwrap_err().contains("terminal"));
        assert!(colour("#123456").is_err());
    }
}
