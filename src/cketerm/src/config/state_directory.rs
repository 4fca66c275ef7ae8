//! Default directory for the results of commands, if the settings name none. It depends on the user who runs the
//! engine.

use std::path::{Path, PathBuf};

use super::Settings;

impl Settings {
    /// Returns the settings of a daemon: without a state directory in the settings it is the one that systemd made for
    /// the unit.
    #[must_use]
    pub fn for_daemon(self) -> Self {
        // several are separated by colons
        let from_systemd = std::env::var("STATE_DIRECTORY").unwrap_or_default();
        self.with_state_directory(from_systemd.split(':').map(PathBuf::from).find(|path| path.is_absolute()))
    }

    /// Returns the settings of the engine beside an operator's console. Without root it cannot write to the host's
    /// state directory, so it uses a directory in the operator's home.
    #[must_use]
    pub fn for_console(self) -> Self {
        let own = directories::ProjectDirs::from("", "", "cketerm");
        let state = own.as_ref().and_then(|d| d.state_dir()).filter(|_| !rustix::process::geteuid().is_root());
        // a user of a container without a passwd file has the home `/`, which is unusable
        self.with_state_directory(state.filter(|path| !path.starts_with("/.local")).map(Path::to_owned))
    }

    /// Uses this directory, unless the settings themselves name one.
    pub(super) fn with_state_directory(mut self, directory: Option<PathBuf>) -> Self {
        if let Some(directory) = directory.filter(|_| !self.from.contains_key("engine.state_directory")) {
            self.state_directory = directory;
        }
        self
    }
}
