//! Login of a BMC, from the entry or the defaults of the file, or from a file of its own.

use std::fmt;

use cketerm_runtime::host::is_world_readable;

use super::settings::{Entry, FileSettings, RawSettings};

/// A user name and password. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// Returns the login of an entry: its own, else that of the defaults. `None`: neither has one.
pub(super) fn login(entry: &Entry<'_>) -> Result<Option<Login>, String> {
    let (own, file) = (entry.own, entry.file);
    let username = own.username.clone().or_else(|| file.defaults.username.clone());
    let password = match password(own, file)? {
        Some(own) => Some(own),
        None => password(&file.defaults, file)?,
    };
    match (username, password) {
        (Some(username), Some(password)) => Ok(Some(Login { username, password })),
        (None, None) => Ok(None),
        (Some(_), None) => Err("a username without a password or password-file".to_owned()),
        (None, Some(_)) => Err("a password without a username".to_owned()),
    }
}

fn password(raw: &RawSettings, file: &FileSettings) -> Result<Option<String>, String> {
    match (&raw.password, &raw.password_file) {
        (Some(_), Some(_)) => Err("password and password-file are both set; give only one".to_owned()),
        (Some(password), None) => Ok(Some(password.clone())),
        (None, Some(path)) => {
            let path = file.beside(path);
            let shown = path.display();
            if is_world_readable(&path) {
                return Err(format!("password-file {shown} can be read by everyone; chmod 600 {shown}"));
            }
            let text = std::fs::read_to_string(&path).map_err(|e| format!("password-file {shown}: {e}"))?;
            let password = text.trim_end_matches(['\n', '\r']);
            if password.is_empty() {
                return Err(format!("password-file {shown} is empty"));
            }
            Ok(Some(password.to_owned()))
        }
        (None, None) => Ok(None),
    }
}
