//! Processes that a killed test leaves behind: servers, commands and helpers.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process};

/// Kills every process that has the folder in its arguments or in its environment. The folder belongs to one run alone.
pub fn kill(folder: &Path) {
    let folder = folder.display().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let mentions = |file: &str| {
            let bytes = fs::read(process.path().join(file)).unwrap_or_default();
            // a longer name that begins with this one is another run's
            String::from_utf8_lossy(&bytes).split(['\0', '=', '/']).any(|part| part == name_of(&folder))
        };
        if (mentions("cmdline") || mentions("environ"))
            && let Some(id) = Pid::from_raw(id)
        {
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

fn name_of(folder: &str) -> &str {
    folder.rsplit('/').next().unwrap_or(folder)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_processes_of_the_folder_end() {
        let folder = format!("/tmp/leftovers-{}", std::process::id());
        let mut own = Command::new("sleep").arg("100").env("TMPDIR", &folder).spawn().unwrap();
        let mut other = Command::new("sleep").arg("100").env("TMPDIR", format!("{folder}0")).spawn().unwrap();
        kill(Path::new(&folder));
        assert!(!own.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
