//! Text and keys that are being typed.

use std::sync::OnceLock;

use cketerm_model::boot_time::BootTime;
use tui_input::Input;

use super::command_line::CommandLine;
use crate::keys::Stroke;

/// Text and keys that are being typed.
#[derive(Clone, Debug, Default)]
pub struct Typing {
    /// The command line while it is open.
    pub line: Option<CommandLine>,
    /// Command lines that were executed, oldest first.
    pub lines: Vec<String>,
    /// The filter while it is typed, and the filter before.
    pub filter: Option<(Input, String)>,
    /// Searchable texts of the open view's rows in their order without a filter, while a filter is typed: a letter then
    /// costs one search per row instead of all its columns. They are made from the state of the last snapshot.
    pub row_texts: OnceLock<Vec<Box<str>>>,
    /// Whether the field still holds the previous text unchanged: the first letter then replaces it.
    pub replace_on_typing: bool,
    /// Answer to a key that has no command here. It takes the place of the hints until the next key.
    pub notice: Option<String>,
    /// Boot time and line of the last click on a row, for a double click.
    pub last_click: Option<(BootTime, u16)>,
    /// Keys of an unfinished chord.
    pub chord: Vec<Stroke>,
    /// Boot time of the chord's last key.
    pub chord_at: BootTime,
}
