//! The commands of docs/guide.md for a reboot, run as written.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::json;

use crate::world::{Options, World, cluster::machines, in_both_worlds, program::command, wait_for};

in_both_worlds! {
    Options { kwok: true, ..Options::default() };
    the_commands_of_the_guide_complete_a_reboot,
}

const GUIDE: &str = include_str!("../../docs/guide.md");

/// Commands of one section of a document as written, comments included: a shell runs them.
fn commands(text: &str, section: &str) -> Vec<String> {
    let part = text.split(section).nth(1).unwrap_or_else(|| panic!("the document has no {section:?}"));
    let part = part.split("\n#").next().expect("a part");
    part.lines().filter_map(|l| l.strip_prefix("    ")).map(str::to_owned).collect()
}

/// A reader's shell, with a `cketerm` that reads a configuration as an installed one reads /etc/cketerm/config.yaml.
pub struct Shell {
    dir: PathBuf,
    path: String,
}

impl Shell {
    /// Creates a shell in that folder.
    pub fn new(dir: &Path, config: &Path) -> Self {
        let bin = dir.join("bin");
        fs::create_dir_all(&bin).expect("a folder");
        let program = crate::binary::cketerm();
        let script = format!("#!/bin/sh\nCKETERM_CONFIG='{}' exec '{program}' \"$@\"\n", config.display());
        fs::write(bin.join("cketerm"), script).expect("the script is written");
        fs::set_permissions(bin.join("cketerm"), PermissionsExt::from_mode(0o755)).expect("the script is executable");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
        Self { dir: dir.to_owned(), path }
    }

    /// Runs a line as written, comment included. Returns whether it succeeded, its data and its messages.
    pub fn run(&self, line: &str) -> (bool, String, String) {
        // use the same environment as every other run of the program in these tests
        let mut shell = Command::new("bash");
        shell.env_clear().envs(command().get_envs().filter_map(|(k, v)| Some((k, v?)))).env("PATH", &self.path);
        let out = shell.args(["-c", line]).current_dir(&self.dir).stdin(Stdio::null()).output().expect("a shell");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.success(), text(&out.stdout), text(&out.stderr))
    }
}

fn the_commands_of_the_guide_complete_a_reboot(world: &World) {
    let all = machines(1, 3);
    world.add_nodes(&all);
    let reader = Shell::new(world.dir(), &world.config());
    let shell = |line: &str| reader.run(line);
    world.set_up(&all, &json!({}));
    let daemon = world.daemon("engine");
    daemon.ready();
    // the queue's commands, with an address of this site
    let queueing = commands(GUIDE, "## Queueing reboots");
    let first = queueing.iter().find(|l| l.contains("rq add")).expect("the guide adds entries");
    let (succeeded, _, stderr) = shell(&first.replace("10.0.1.12", ""));
    assert!(succeeded && first.contains("10.0.1.11"), "{first}: {stderr}");
    for words in ["rq list -o table", "rq plan"] {
        let line = queueing.iter().find(|l| l.contains(words)).unwrap_or_else(|| panic!("the guide has no {words}"));
        let (succeeded, _, stderr) = shell(line);
        assert!(succeeded, "{line}: {stderr}");
    }
    let (succeeded, _, stderr) = shell("cketerm rq wait --timeout-seconds 120");
    assert!(succeeded, "{stderr}");
    let began: Vec<String> = world.power().into_iter().filter(|p| p.what == "begin").map(|p| p.address).collect();
    assert_eq!(began, ["10.0.1.11"]);
    wait_for("the node is uncordoned", 30, || (world.node("w1")["spec"]["unschedulable"] != true).then_some(()));
}
