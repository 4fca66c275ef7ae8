//! `docs/reference/json.md` against the program: a sandbox with an engine, the commands of each section on it, and each
//! field of their answers. A test of the library writes the tables about serialized types from the sources
//! (`src/cketerm/src/cli/json_fields.rs`).

mod tables;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use cketerm::cli::Cli;
use clap::CommandFactory;
use serde_json::{Value, json};

use self::tables::{Comparison, Section, code_spans, sections};
use crate::{
    ROOT,
    world::{
        program::{Daemon, cketerm},
        sandbox::Served,
        wait_for,
    },
};

/// Heading of the section that lists the commands without JSON.
const WITHOUT: &str = "Commands without JSON";

fn document() -> Vec<Section> {
    sections(&fs::read_to_string(format!("{ROOT}/docs/reference/json.md")).expect("the document"))
}

/// Commands in the headings of the document.
fn described(sections: &[Section]) -> BTreeSet<String> {
    sections.iter().filter(|s| s.heading.starts_with('`')).flat_map(|s| code_spans(&s.heading)).collect()
}

/// Every command that does something, by its short name.
fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let name = sub.get_visible_aliases().next().unwrap_or(sub.get_name());
        let path = format!("{path} {name}").trim().to_owned();
        if sub.get_subcommands().next().is_none() {
            found.insert(path);
        } else {
            leaves(sub, &path, found);
        }
    }
}

#[test]
fn every_command_is_described_or_listed_as_one_without_json() {
    let sections = document();
    let without = sections.iter().find(|s| s.heading == WITHOUT).expect("the list");
    let listed = without.text.split("\n\n").filter(|part| part.starts_with("- ")).flat_map(code_spans);
    let described = described(&sections);
    let commands = described.iter().map(|span| span.split(" --").next().unwrap_or(span).to_owned());
    let named: BTreeSet<String> = commands.chain(listed).collect();
    let mut all = BTreeSet::new();
    leaves(&Cli::command(), "", &mut all);
    let missing: Vec<&String> = all.difference(&named).collect();
    assert!(missing.is_empty(), "docs/reference/json.md lacks {missing:?}");
    let values = ["true", "false", "engine give"].map(str::to_owned);
    let unknown: Vec<&String> = named.difference(&all).filter(|name| !values.contains(name)).collect();
    assert!(unknown.is_empty(), "no such command: {unknown:?}");
}

/// A sandbox with an engine, and the answers that were compared.
struct Site<'a> {
    served: Served,
    config: PathBuf,
    comparison: Comparison<'a>,
    compared: BTreeSet<String>,
}

impl Site<'_> {
    /// Runs a command that must succeed.
    fn run(&self, args: &[&str]) -> String {
        let output = cketerm(&self.config, args);
        assert_eq!(output.code, 0, "{args:?}: {}{}", output.stdout, output.stderr);
        output.stdout
    }

    /// Runs a command with `-o json`, and returns its documents. Checks exit with 1 and print one.
    fn answers(&self, args: &[&str]) -> Vec<Value> {
        let output = cketerm(&self.config, &[args, &["-o", "json"]].concat());
        let read = serde_json::Deserializer::from_str(&output.stdout).into_iter().collect::<Result<Vec<Value>, _>>();
        let answers = read.unwrap_or_else(|e| panic!("{args:?}: {e}: {}", output.stdout));
        assert!(!answers.is_empty(), "{args:?} printed nothing: {}", output.stderr);
        answers
    }

    fn answer(&self, args: &[&str]) -> Value {
        self.answers(args).swap_remove(0)
    }

    /// Compares a command with the section that has this command in its heading.
    fn compare(&mut self, heading: &str, args: &[&str]) {
        for answer in self.answers(args) {
            self.comparison.compare(heading, &answer);
        }
        self.compared.insert(heading.to_owned());
    }

    /// Compares commands whose arguments are those of their headings.
    fn compare_plain(&mut self, headings: &[&str]) {
        for heading in headings {
            self.compare(heading, &heading.split(' ').collect::<Vec<_>>());
        }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let file = self.served.dir.join(name);
        fs::write(&file, text).expect("a file");
        file.display().to_string()
    }
}

fn add_receiver(config: &Path) {
    let text = fs::read_to_string(config).expect("the configuration");
    fs::write(config, format!("{text}notices: [{{name: log, program: [/bin/true]}}]\n")).expect("the configuration");
}

/// Entries in each state: one that booted, one on hold, one whose drain is blocked, a repair, a maintenance.
fn make_entries(site: &Site<'_>) {
    site.run(&["rq", "add", "w1", "--reason", "kernel"]);
    site.run(&["rq", "wait", "--timeout-seconds", "120"]);
    site.run(&["repair-queue", "add", "unreachable", "IPMI-2.0", "w3"]);
    wait_for("the end of the repair", 60, || {
        let list = site.answer(&["repair-queue", "list"]);
        (list[0]["status"] == "succeeded").then_some(())
    });
    site.run(&["maintenance", "add", "w5", "--until", "1h", "--reason", "disk"]);
    wait_for("the maintenance", 60, || {
        let list = site.answer(&["maintenance", "list"]);
        (list[0]["status"] == "in-maintenance").then_some(())
    });
}

/// A drain that no budget allows.
fn block_a_drain(site: &Site<'_>) {
    for budget in ["mysql-1", "mysql-2", "mysql-3", "mysql-4"] {
        let path = format!("/apis/policy/v1/namespaces/db/poddisruptionbudgets/{budget}");
        site.served.kubernetes("PATCH", &path, &json!({"spec": {"maxUnavailable": 0}}));
    }
    site.run(&["rq", "add", "w2", "--reason", "held"]);
    site.run(&["rq", "hold", "1"]);
    site.run(&["rq", "add", "w4", "--reason", "blocked"]);
    wait_for("the blockers of the drain", 60, || {
        let why = site.answer(&["rq", "why", "2"]);
        why["progress"]["blockers"].as_array().is_some_and(|list| !list.is_empty()).then_some(())
    });
}

fn compare_entries(site: &mut Site<'_>) {
    site.compare_plain(&["rq list", "rq batches", "rq plan", "repair-queue list", "repair-queue batches"]);
    site.compare_plain(&["maintenance list", "nodes list", "history", "history --ended", "audit"]);
    site.compare("rq plan", &["rq", "plan", "w3"]);
    site.compare("rq why", &["rq", "why", "1"]);
    site.compare("rq why", &["rq", "why", "2"]);
    site.compare("maintenance why", &["maintenance", "why", "0"]);
    // a repair of a healthy machine would end at once
    site.served.send("POST", "/machines/10.1.1.12/behave", &json!({"check": "no"}));
    site.run(&["repair-queue", "disable"]);
    site.run(&["repair-queue", "add", "unreachable", "IPMI-2.0", "w3"]);
    site.compare("repair-queue why", &["repair-queue", "why", "1"]);
    // an ended entry has the form of the history, without the timeline
    for args in [["rq", "why", "0"], ["repair-queue", "why", "0"]] {
        let mut ended = site.answer(&args);
        ended["timeline"] = json!([]);
        site.comparison.compare("history --ended", &ended);
    }
    site.compare("repair-queue plan", &["repair-queue", "plan", "reinstall", "IPMI-2.0", "w3"]);
    site.compare_plain(&["repair-queue delete-finished", "repair-queue delete-unfinished"]);
}

fn compare_machines(site: &mut Site<'_>) {
    let mark = json!({"metadata": {"annotations": {"cketerm.io/reboot-needed": "new firmware"}}});
    site.served.kubernetes("PATCH", "/api/v1/nodes/w3", &mark);
    site.compare_plain(&["rq needed", "hosts list", "machines list"]);
    site.compare("power status", &["power", "status", "w3"]);
    site.compare("power test", &["power", "test", "w3"]);
}

fn compare_definition(site: &mut Site<'_>) {
    let definition = site.answer(&["cluster", "get"]);
    let good = site.file("definition.json", &definition.to_string());
    let mut bad = definition;
    bad["reboot"]["command_retries"] = json!(-1);
    bad["unknown"] = json!(1);
    let bad = site.file("bad.json", &bad.to_string());
    site.compare("cluster check", &["cluster", "check", &good]);
    site.compare("cluster check", &["cluster", "check", &bad]);
    site.compare_plain(&["cluster get", "cluster identify", "constraints show", "policy show"]);
    site.compare_plain(&["policy schema", "config schema", "sabakan plan", "sabakan diff", "sabakan diff --nodes"]);
    let variables = site.file("variables.json", r#"{"having": {"roles": ["cs"]}}"#);
    site.run(&["sabakan", "set-variables", &variables]);
    site.run(&["auto-repair", "set-variables", &variables]);
    site.compare_plain(&["sabakan get-template", "sabakan get-variables", "auto-repair get-variables"]);
    site.compare_plain(&["auto-repair plan"]);
    site.run(&["policy", "set", "membership", "nodes"]);
    site.compare_plain(&["membership list", "membership diff"]);
}

fn compare_leader(site: &mut Site<'_>) {
    site.compare_plain(&["leader", "status", "doctor", "info", "config show", "config check", "explain"]);
    site.compare("engine take", &["engine", "take", "--check"]);
    site.compare_plain(&["notices list", "theme list"]);
    site.compare("theme show", &["theme", "show", "dark"]);
    let theme = site.file("odd.yaml", "odd: {fg: no-colour}\n");
    site.compare("theme check", &["theme", "check", &theme]);
    let state = site.run(&["state"]);
    site.comparison.compare("state", &serde_json::from_str(&state).expect("a document"));
    site.compared.insert("state".to_owned());
    let state = site.file("state.json", &state);
    site.compare("decide", &["decide", "--from", &state, "--as-leader"]);
    let windows = site.file("windows.yaml", "time_zone: UTC\nallow: [\"* 22-23 * * 1-5\"]\n");
    site.run(&["policy", "set", "windows", &windows]);
    site.run(&["freeze", "--until", "1h", "--reason", "night"]);
    site.compare_plain(&["windows"]);
}

#[test]
fn every_field_of_every_answer_is_described() {
    let sections = document();
    let served = Served::start(&["--nodes", "9"]);
    let config = served.dir.join("config.yaml");
    add_receiver(&config);
    let daemon = Daemon::start(&served.dir, &config, "engine");
    wait_for("a leader", 60, || (daemon.page("/readyz").1 == "leading\n").then_some(()));
    let mut site = Site { served, config, comparison: Comparison::with(&sections), compared: BTreeSet::new() };
    site.comparison.compare("sandbox serve", &site.served.facts.clone());
    site.compared.insert("sandbox serve".to_owned());
    make_entries(&site);
    site.compare("nodes drain", &["nodes", "drain", "w6"]);
    block_a_drain(&site);
    compare_entries(&mut site);
    compare_machines(&mut site);
    compare_definition(&mut site);
    compare_leader(&mut site);
    let described = described(&sections);
    let left: Vec<&String> = described.difference(&site.compared).collect();
    assert!(left.is_empty(), "no answer was compared with the sections of {left:?}");
    let mut wrong: Vec<String> = site.comparison.differences.iter().cloned().collect();
    wrong.extend(site.comparison.missing());
    assert!(wrong.is_empty(), "docs/reference/json.md:\n{}\n{}", wrong.join("\n"), daemon.logged());
}
