//! Completions of live objects, on a served sandbox: by the program, and by the script of bash.

use std::{path::Path, process::Command};

use crate::world::{program, sandbox::Served, wait_for};

/// Answer of the program. It waits at most a second for a server, which is shorter than a stall of the machine: an
/// empty answer is asked for again.
fn objects(words: &[&str]) -> Vec<String> {
    let asked = || {
        let output = program::command().args(["__complete", "--objects", "--"]).args(words).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        (!text.is_empty()).then(|| text.lines().map(str::to_owned).collect())
    };
    wait_for("the servers answer within a second", 60, asked)
}

#[test]
fn live_objects_are_completed_from_etcd_and_kubernetes() {
    let served = Served::start(&["--nodes", "6"]);
    let config = served.facts["config"].as_str().unwrap();
    let nodes = objects(&["--config", config, "nodes", "cordon", ""]);
    assert!(nodes.len() >= 6, "{nodes:?}");
    let first = nodes[0].as_str();
    assert_eq!(objects(&["--config", config, "rq", "add", first]), [first]);
    let run = |words: &[&str]| program::cketerm(Path::new(config), words);
    for words in [&["rq", "disable"][..], &["rq", "add", first]] {
        let output = run(words);
        assert_eq!(output.code, 0, "{words:?}: {output:?}");
    }
    let entries = objects(&["--config", config, "rq", "cancel", ""]);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(objects(&["--config", config, "rq", "pause", ""]).len(), 1);
    assert!(objects(&["policy", "set", "settle"]).contains(&"settle_seconds".to_owned()));

    // the script of bash asks the program, and falls back to its own words
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(crate::binary::cketerm(), folder.path().join("cketerm")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let complete = |words: &str, at: usize| {
        let script = format!(
            "source <(cketerm completions bash)\nCOMP_WORDS=({words})\nCOMP_CWORD={at}\n\
             _cketerm_objects cketerm \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        );
        let output = Command::new("bash").args(["-c", &script]).env("PATH", &path).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let line = format!("cketerm --config {config} rq cancel ''");
    wait_for("bash completes the entry", 60, || (complete(&line, 5).trim() == entries[0]).then_some(()));
    assert_eq!(complete("cketerm rq unh", 2), "unhold\n");
}

/// A server that does not answer costs a second, and no message.
#[test]
fn a_silent_server_completes_nothing_and_says_nothing() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for words in [&["rq", "cancel", ""][..], &["--config", "/no/such/file", "rq", "cancel", ""]] {
        let output = program::command()
            .args(["__complete", "--objects", "--", "--etcd-endpoints", &url])
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty(), "{output:?}");
    }
}
