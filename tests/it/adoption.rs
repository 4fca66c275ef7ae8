//! docs/how-to/own-etcd.md and docs/how-to/without-cke.md, run as written: from nothing to the end of a first rolling
//! reboot, with an etcd of cketerm's own.

mod agents;
mod members;
mod own_etcd;
mod rolling;

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::world::{built, program::command};

/// All commands of one section of a document, comments included: a shell runs them.
fn commands(document: &str, section: &str) -> Vec<String> {
    let heading = format!("\n## {section}\n");
    let part = document.split(&heading).nth(1).unwrap_or_else(|| panic!("the document has no section {section:?}"));
    let part = part.split("\n## ").next().expect("a part");
    let (mut fenced, mut found) = (false, Vec::new());
    for line in part.lines() {
        fenced ^= line.starts_with("```");
        found.extend(line.strip_prefix("    ").filter(|_| !fenced).map(str::to_owned));
    }
    assert!(!found.is_empty(), "{section:?} has no command");
    found
}

/// A reader's shell: it keeps exported variables and the folder, and knows the programs that the documents use.
struct Reader {
    dir: PathBuf,
    path: String,
    /// Replacements of what differs on this machine.
    here: Vec<(String, String)>,
    exported: String,
}

impl Reader {
    fn new(dir: &Path, here: &[(&str, &str)]) -> Option<Self> {
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin).expect("a folder");
        for name in ["etcd", "etcdctl", "etcdutl", "kubectl"] {
            let _ = std::fs::remove_file(bin.join(name));
            std::os::unix::fs::symlink(built(name)?, bin.join(name)).expect("a link");
        }
        let program = crate::binary::cketerm();
        let config = dir.join("etc/config.yaml");
        // an installed program reads /etc/cketerm/config.yaml, if there is one
        let script = format!(
            "#!/bin/sh\n[ ! -e '{0}' ] || export CKETERM_CONFIG='{0}'\nexec '{program}' \"$@\"\n",
            config.display()
        );
        std::fs::write(bin.join("cketerm"), script).expect("a script");
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(bin.join("cketerm"), mode).expect("an executable");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
        let here = here.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        Some(Self { dir: dir.to_owned(), path, here, exported: String::new() })
    }

    /// Runs a line that must succeed; returns its data and messages.
    fn run(&mut self, line: &str) -> String {
        let here = self.here(line);
        let text = self.attempt(line).unwrap_or_else(|text| panic!("{line}\n  as {here}\n  {text}"));
        if here.starts_with("export ") {
            let _ = write!(self.exported, "{here}; ");
        }
        if let Some((_, folder)) = here.split_once("&& cd ") {
            self.dir = PathBuf::from(folder);
        }
        text
    }

    fn here(&self, line: &str) -> String {
        self.here.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
    }

    /// Runs a line; returns its data and messages, as an error if it failed.
    fn attempt(&self, line: &str) -> Result<String, String> {
        let mut shell = Command::new("bash");
        shell.env_clear().envs(command().get_envs().filter_map(|(k, v)| Some((k, v?)))).env("PATH", &self.path);
        let script = format!("set -eo pipefail; {}{}", self.exported, self.here(line));
        let out = shell.args(["-c", &script]).current_dir(&self.dir).stdin(Stdio::null()).output().expect("a shell");
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if out.status.success() { Ok(text) } else { Err(text) }
    }

    fn run_all(&mut self, lines: &[String]) -> String {
        lines.iter().map(|line| self.run(line)).collect()
    }
}
