//! Power state of a machine, as its BMC reports it.

use std::fmt;

use super::secret;

/// Number of characters kept of an unknown value.
const MAX_CHARACTERS: usize = 300;

/// Redfish's `PowerState`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// On.
    On,
    /// Off.
    Off,
    /// In transition, `PoweringOn` or `PoweringOff`, or an unknown value such as `Paused`.
    Other(String),
    /// The BMC reports no power state.
    Unknown,
}

impl PowerState {
    /// Reads the member `PowerState` of a computer system.
    pub fn read(value: Option<&str>) -> Self {
        match value {
            Some("On") => Self::On,
            Some("Off") => Self::Off,
            Some(other) => Self::Other(beginning(other)),
            None => Self::Unknown,
        }
    }
}

impl fmt::Display for PowerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Other(word) => word,
            Self::Unknown => "in an unknown state",
        })
    }
}

/// Returns the beginning of a BMC's word, on one line and with secrets masked.
fn beginning(word: &str) -> String {
    let beginning = secret::beginning(word.as_bytes(), MAX_CHARACTERS);
    beginning.split_whitespace().collect::<Vec<_>>().join(" ")
}
