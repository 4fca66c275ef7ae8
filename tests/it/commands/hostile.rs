//! Escape sequences in every value from elsewhere (etcd, Kubernetes, sabakan, BMCs, webhooks, files), with every
//! subcommand run on them. No output controls the terminal or begins a forged line (CLI-4).

mod site;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::Path,
    process::Stdio,
    sync::Mutex,
    time::Duration,
};

use cketerm::cli::Cli;
use cketerm_model::text::steers;
use clap::{Command, CommandFactory};
use serde_json::{Map, Value};

use self::site::{Site, hostile_value};
use crate::{stalls::Stopwatch, world::program::command};

/// Every subcommand without further subcommands, including hidden ones.
fn collect_subcommands(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
        let path = format!("{path} {}", inner.get_name()).trim().to_owned();
        if inner.has_subcommands() {
            collect_subcommands(inner, &path, found);
        } else {
            found.push((path, inner.clone()));
        }
    }
}

/// Runs a command for at most four seconds, and returns its output.
fn run(config: &Path, args: &[String], form: Option<&str>) -> (String, String) {
    let mut all = command();
    all.arg("--config").arg(config).args(form.map(|f| ["-o", f]).into_iter().flatten()).arg("-v").args(args);
    let mut child = all.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            // a raw C1 byte is as harmful as the character, and is invalid UTF-8
            String::from_utf8(bytes).expect("the output is valid UTF-8")
        })
    };
    let (out, err) = (read(Box::new(child.stdout.take().unwrap())), read(Box::new(child.stderr.take().unwrap())));
    let began = Stopwatch::start();
    while child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(4) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    (out.join().unwrap(), err.join().unwrap())
}

/// Defect of an output, if any. A picture may set colours, and lines of a command's output are its own.
fn wrong(text: &str, picture: bool, lines: bool) -> Option<String> {
    let mut text = text.to_owned();
    if picture {
        // only colours are allowed: ESC [ digits m
        let mut plain = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            plain.push_str(before);
            let colours = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
            match colours.strip_prefix('m') {
                Some(tail) => rest = tail,
                None => return Some(format!("an escape sequence other than a colour precedes {colours:.20?}")),
            }
        }
        text = plain + rest;
    }
    if let Some((at, c)) = text.char_indices().find(|(_, c)| steers(*c)) {
        let from = text[..at].char_indices().rev().nth(40).map_or(0, |(i, _)| i);
        return Some(format!("{c:?} is printed after {:?}", &text[from..at]));
    }
    let forged = text.lines().find(|line| line.starts_with("FORGED") && !lines);
    forged.map(|line| format!("a hostile value starts its own line {line:?}"))
}

#[test]
fn no_subcommand_prints_terminal_escape_sequences() {
    let site = Site::new();
    site.inject_hostile_values();
    site.restore_values(false);
    let file = |name: &str, text: &str| std::fs::write(site.served.dir.join(name), text).unwrap();
    let raw = hostile_value("file").replace(['\n', '\r'], "");
    file(
        "hostile-file.yaml",
        &format!("name: \"{}\"\nstrange: x\n", raw.escape_default().to_string().replace("\\u{", "\\U{")),
    );
    file("addresses", &format!("{} {raw}\n", site.address));
    let state = run(&site.config, &["state".to_owned()], Some("json")).0;
    assert!(serde_json::from_str::<Map<String, Value>>(&state).is_ok(), "{state:.300}");
    file("state.json", &state);

    let mut found = Vec::new();
    let mut tree = Cli::command();
    tree.build();
    collect_subcommands(&tree, "", &mut found);
    assert!(found.len() > 90, "{}", found.len());
    // these run last: they change the output of other commands, or take the full four seconds
    let late = |path: &str| {
        let slow = ["agent", "sandbox", "power off", "power cycle", "power on", "nodes drain", "hosts", "wait"];
        (slow.iter().any(|word| path.contains(word)), path.to_owned())
    };
    found.sort_by_key(|(path, _)| late(path));
    let next = Mutex::new(found.into_iter());
    let (faults, seen) = (Mutex::new(Vec::new()), Mutex::new(BTreeMap::<&str, BTreeSet<String>>::new()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Some((path, leaf)) = next.lock().unwrap().next() else { return };
                    for call in site.calls(&path, &leaf) {
                        let forms: &[Option<&str>] =
                            if late(&path).0 { &[None] } else { &[None, Some("table"), Some("json"), Some("yaml")] };
                        let with = |config| forms.iter().map(move |form| (config, *form));
                        for (config, form) in with(&site.config).chain([(&site.broken, None)]) {
                            site.restore_values(config == &site.broken);
                            let (out, err) = run(config, &call, form);
                            let picture = path == "screenshot" && call.iter().any(|word| word == "ansi");
                            // this subcommand runs a command of the definition and prints its output
                            let lines = path == "sandbox machine";
                            for (text, where_to) in [(&out, "stdout"), (&err, "stderr")] {
                                if let Some(why) = wrong(text, picture && where_to == "stdout", lines) {
                                    faults.lock().unwrap().push(format!("{call:?} -o {form:?}, {where_to}: {why}"));
                                }
                            }
                            for source in ["etcd", "kube", "sabakan", "bmc", "machine", "file", "argument"] {
                                if (out.clone() + &err).contains(&format!("{source}-evil")) {
                                    seen.lock().unwrap().entry(source).or_default().insert(path.clone());
                                }
                            }
                        }
                    }
                }
            });
        }
    });
    // with a receiver's name the command sends a request and shows the answer
    let (out, err) = run(&site.config, &["notices", "test", "hook"].map(str::to_owned), None);
    for text in [&out, &err] {
        assert_eq!(wrong(text, false, false), None, "{text}");
    }
    assert!((out.clone() + &err).contains("hook-evil"), "{out} {err}");
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} unsafe outputs:\n{}", faults.len(), faults.join("\n"));
    // the hostile values were actually printed, so the checks above had something to find
    let seen = seen.into_inner().unwrap();
    let shown = |source: &str| seen.get(source).map_or(0, BTreeSet::len);
    for (source, least) in [("etcd", 15), ("kube", 5), ("sabakan", 3), ("bmc", 1), ("machine", 1), ("file", 1)] {
        assert!(shown(source) >= least, "values of {source} were shown by {:?} only; {seen:?}", seen.get(source));
    }
}
