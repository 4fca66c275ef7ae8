//! Types of the section `console` other than text: words and switches.

use std::{fmt, str::FromStr};

/// Use of the mouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mouse {
    /// Never.
    Never,
    /// Without SSH and tmux only, because there the selecting and copying of the terminal or of tmux has to keep working.
    #[default]
    LocalOnly,
    /// Over SSH and in tmux too.
    Always,
}

/// Occasions on which the terminal's bell rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bell {
    /// Never.
    #[default]
    Never,
    /// Rings when something becomes stuck.
    Stuck,
    /// Rings when the last work ends.
    Ended,
    /// Rings on both occasions.
    Both,
}

/// Switch that may be left to the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// As the environment determines.
    #[default]
    Auto,
    /// On.
    On,
    /// Off.
    Off,
}

impl Mouse {
    /// Reports whether the mouse is used; `remote`: the session came over SSH, or is in tmux or screen.
    pub fn is_enabled(self, remote: bool) -> bool {
        match self {
            Self::Never => false,
            Self::LocalOnly => !remote,
            Self::Always => true,
        }
    }
}

impl Bell {
    /// Reports whether the bell rings when something becomes stuck.
    pub fn stuck(self) -> bool {
        matches!(self, Self::Stuck | Self::Both)
    }

    /// Reports whether the bell rings when the last work ends.
    pub fn ended(self) -> bool {
        matches!(self, Self::Ended | Self::Both)
    }
}

impl FromStr for Mouse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "false" => Ok(Self::Never),
            "true" => Ok(Self::LocalOnly),
            "always" => Ok(Self::Always),
            other => Err(format!("expected true, false or always, not {other:?}")),
        }
    }
}

impl FromStr for Bell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self::Never),
            "stuck" => Ok(Self::Stuck),
            "ended" => Ok(Self::Ended),
            "both" => Ok(Self::Both),
            other => Err(format!("expected never, stuck, ended or both, not {other:?}")),
        }
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "true" => Ok(Self::On),
            "false" => Ok(Self::Off),
            other => Err(format!("expected auto, true or false, not {other:?}")),
        }
    }
}

impl fmt::Display for Mouse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "false",
            Self::LocalOnly => "true",
            Self::Always => "always",
        })
    }
}

impl fmt::Display for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::Stuck => "stuck",
            Self::Ended => "ended",
            Self::Both => "both",
        })
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "true",
            Self::Off => "false",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_options_survive_a_round_trip() {
        for word in ["false", "true", "always"] {
            assert_eq!(word.parse::<Mouse>().unwrap().to_string(), word);
        }
        for word in ["never", "stuck", "ended", "both"] {
            assert_eq!(word.parse::<Bell>().unwrap().to_string(), word);
        }
        for word in ["auto", "true", "false"] {
            assert_eq!(word.parse::<Switch>().unwrap().to_string(), word);
        }
        assert!("yes".parse::<Mouse>().is_err() && "on".parse::<Bell>().is_err() && "on".parse::<Switch>().is_err());
    }

    #[test]
    fn over_ssh_and_in_tmux_the_mouse_is_used_only_with_always() {
        assert!(
            !Mouse::Never.is_enabled(false) && Mouse::LocalOnly.is_enabled(false) && !Mouse::LocalOnly.is_enabled(true)
        );
        assert!(Mouse::Always.is_enabled(true) && Mouse::default().is_enabled(false));
    }
}
