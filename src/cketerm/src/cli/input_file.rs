//! Files that a user names on the command line.

use std::{io::Read, path::Path};

use cketerm_actions::ActionError;

/// Reads a file, or standard input for `-`. Fails if it cannot be read or is not UTF-8 text.
pub fn read(file: &Path) -> Result<String, ActionError> {
    let mut bytes = Vec::new();
    let done = if file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    done.map_err(|e| ActionError::failed(format!("{}: cannot be read: {e}", file.display())))?;
    String::from_utf8(bytes).map_err(|_| ActionError::failed(format!("{}: not UTF-8 text", file.display())))
}
