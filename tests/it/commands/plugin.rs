//! `kubectl cketerm`: the program under the name of a plugin, and its completions.

use std::{os::unix::fs::symlink, path::Path, process::Command};

use crate::world::program;

fn text(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_link_named_as_a_plugin_shows_kubectl_in_its_help() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-cketerm");
    symlink(crate::binary::cketerm(), &plugin).unwrap();
    let help = text(Command::new(&plugin).args(["rq", "--help"]));
    assert!(help.contains("Usage: kubectl cketerm reboot-queue"), "{help}");
    let listed = text(Command::new(&plugin).args(["sandbox", "scenarios"]));
    assert_eq!(listed, text(program::command().args(["sandbox", "scenarios"])));
}

#[test]
fn the_packaged_script_completes_the_words_behind_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    symlink(crate::binary::cketerm(), folder.path().join("cketerm")).unwrap();
    let script = Path::new(crate::ROOT).join("docs/package/kubectl_complete-cketerm");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let complete = |words: &[&str]| text(Command::new(&script).args(words).env("PATH", &path));
    assert_eq!(complete(&["rq", "unh"]), "unhold\n:4\n");
    assert_eq!(complete(&["rq", "list", "-o", "ya"]), "yaml\n:4\n");
    assert_eq!(complete(&["rq", "list", "--conf"]), "--config\n:4\n");
    assert_eq!(complete(&["rq", "list", "--config", ""]), ":0\n");
    let all = complete(&[""]);
    assert!(all.starts_with("reboot-queue\n") && !all.contains("__complete"), "{all}");
}
