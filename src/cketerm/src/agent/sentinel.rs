//! Signs on the machine that it needs a reboot.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

/// Time limit of the command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Files and a command.
#[derive(Clone, Debug, Default)]
pub struct Sentinel {
    /// Files whose existence means that the machine needs a reboot.
    pub files: Vec<PathBuf>,
    /// Command whose exit status 0 means the same.
    pub command: Option<Vec<String>>,
}

impl Sentinel {
    /// Returns the cause for which the machine needs a reboot, or none. Errors: a file or the command cannot tell.
    pub(super) async fn check(&self) -> Result<Option<String>, String> {
        for file in &self.files {
            let exists = file.try_exists().map_err(|e| format!("{}: {e}", file.display()))?;
            if exists {
                return Ok(Some(of_file(file)));
            }
        }
        let Some((program, arguments)) = self.command.as_deref().and_then(<[String]>::split_first) else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let ended = timeout(COMMAND_TIMEOUT, command.output()).await;
        let output = ended.map_err(|_| format!("{program} did not end within {} s", COMMAND_TIMEOUT.as_secs()))?;
        let output = output.map_err(|e| format!("{program}: {e}"))?;
        match output.status.code() {
            Some(0) => {
                let text = String::from_utf8_lossy(&output.stdout);
                let line = text.lines().next().unwrap_or_default().trim();
                Ok(Some(if line.is_empty() { program.clone() } else { line.to_owned() }))
            }
            Some(_) => Ok(None),
            None => Err(format!("{program} was killed: {}", output.status)),
        }
    }
}

/// Returns the cause that a file shows: its path, and the packages that Debian lists beside it.
fn of_file(file: &Path) -> String {
    let mut list = OsString::from(file);
    list.push(".pkgs");
    let packages = std::fs::read_to_string(list).unwrap_or_default();
    let mut packages: Vec<&str> = packages.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    packages.dedup();
    if packages.is_empty() {
        return file.display().to_string();
    }
    format!("{}: {}", file.display(), packages.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_or_a_command_shows_the_cause() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("reboot-required");
        let sentinel = Sentinel { files: vec![dir.path().join("other"), file.clone()], command: None };
        assert_eq!(sentinel.check().await, Ok(None));
        std::fs::write(&file, "").unwrap();
        assert_eq!(sentinel.check().await, Ok(Some(file.display().to_string())));
        std::fs::write(dir.path().join("reboot-required.pkgs"), "libc6\nlibc6\nlinux-base\n").unwrap();
        assert_eq!(sentinel.check().await, Ok(Some(format!("{}: libc6, linux-base", file.display()))));
        for (script, expected) in [
            ("echo new kernel; echo x", Ok(Some("new kernel".to_owned()))),
            ("true", Ok(Some("/bin/sh".to_owned()))),
            ("exit 1", Ok(None)),
            ("kill -9 $$", Err(())),
        ] {
            let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
            let sentinel = Sentinel { files: Vec::new(), command: Some(words) };
            assert_eq!(sentinel.check().await.map_err(drop), expected, "{script}");
        }
        let missing = Sentinel { files: Vec::new(), command: Some(vec!["/nope".to_owned()]) };
        assert!(missing.check().await.unwrap_err().contains("/nope"));
    }
}
