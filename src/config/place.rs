//! Where an engine keeps the results of commands, where the settings do not say it: that depends on who runs it.

use std::path::{Path, PathBuf};

use super::Settings;

impl Settings {
    /// As a daemon has them: where they name no state directory, it is the one that systemd made for the unit.
    #[must_use]
    pub fn of_a_daemon(self) -> Self {
        // several are separated by colons
        let made = std::env::var("STATE_DIRECTORY").unwrap_or_default();
        self.keeping_results_in(made.split(':').map(PathBuf::from).find(|path| path.is_absolute()))
    }

    /// As the engine beside a person's console has them: without root it cannot write to the host's state directory, and
    /// keeps what it has to keep in that person's home.
    #[must_use]
    pub fn of_a_console(self) -> Self {
        let own = directories::ProjectDirs::from("", "", "cketerm");
        let state = own.as_ref().and_then(|d| d.state_dir()).filter(|_| !rustix::process::geteuid().is_root());
        // a user of a container without a passwd has `/` as home, which is none
        self.keeping_results_in(state.filter(|path| !path.starts_with("/.local")).map(Path::to_owned))
    }

    /// What the settings themselves name wins.
    pub(super) fn keeping_results_in(mut self, place: Option<PathBuf>) -> Self {
        if let Some(place) = place.filter(|_| !self.from.contains_key("engine.state_directory")) {
            self.state_directory = place;
        }
        self
    }
}
