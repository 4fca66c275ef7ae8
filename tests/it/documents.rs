//! Every `cketerm …` line in the documents' blocks is run as written, or is listed below with the reason why not. Each
//! document gets a sandbox behind ports and one engine. The documents' addresses and files are replaced by the
//! sandbox's.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    guide::Shell,
    repository::documents,
    world::{program::Daemon, sandbox::Served, wait_for},
};

/// A document, and what running it requires.
struct Document {
    name: &'static str,
    /// Texts that a reader replaces, with the replacement.
    replacements: &'static [(&'static str, &'static str)],
    /// Commands to run before the first line that contains a text.
    before: &'static [(&'static str, &'static str)],
}

/// All documents with such lines.
const DOCUMENTS: [Document; 21] = [
    Document { name: "README.md", replacements: &[], before: &[] },
    Document { name: "docs/beside-cke.md", replacements: &[], before: &[] },
    Document { name: "docs/conditions.md", replacements: &[], before: &[] },
    Document {
        name: "docs/drains.md",
        replacements: &[],
        before: &[("rq why 0", "echo 10.1.3.11 | cketerm rq add -; cketerm rq hold 0")],
    },
    Document {
        name: "docs/from-ckecli.md",
        replacements: &[("/etc/cke/config.yml", "cke.yml"), (" FILE", " kubeconfig"), ("why 17", "why 0")],
        before: &[("info", "echo 10.1.3.11 | cketerm rq add -; cketerm rq hold 0")],
    },
    Document {
        name: "docs/guide.md",
        replacements: &[
            ("/etc/cke/config.yml", "cke.yml"),
            (" FILE", " kubeconfig"),
            ("10.0.1.", "10.1.3."),
            ("why 17", "why 0"),
            ("wait 17", "wait 0"),
            ("cancel 17", "cancel $(cketerm rq list -o table | awk 'END {print $1}')"),
            ("unreachable R640", "reinstall IPMI-2.0"),
            ("why 3", "why 0"),
            ("delete 3", "delete 0"),
        ],
        before: &[("rq cancel", "echo 10.1.2.13 | cketerm rq add -")],
    },
    Document { name: "docs/how-to/backup-and-recover.md", replacements: &[], before: &[] },
    Document { name: "docs/how-to/from-kubectl-drain.md", replacements: &[("w1 w2 w3", "w01 w02 w03")], before: &[] },
    Document { name: "docs/how-to/from-kured.md", replacements: &[], before: &[] },
    Document { name: "docs/how-to/maintenance-requests.md", replacements: &[], before: &[] },
    Document { name: "docs/how-to/maintenance.md", replacements: &[], before: &[] },
    Document { name: "docs/how-to/metal3.md", replacements: &[], before: &[] },
    Document { name: "docs/how-to/repair.md", replacements: &[], before: &[] },
    Document {
        name: "docs/how-to/rolling-reboot.md",
        replacements: &[],
        before: &[
            // no reboot brings another kernel here, and the leader proposes no more after reboots in vain
            ("policy set reboot_needed_signals", "cketerm rq wait --timeout-seconds 60"),
            // a reader takes longer than the leader needs to record what it proposes
            (
                "rq add --needed --dry-run",
                "timeout 60 sh -c 'until cketerm rq add --needed --dry-run; do sleep 0.2; done' >/dev/null 2>&1",
            ),
        ],
    },
    Document { name: "docs/how-to/upgrade.md", replacements: &[], before: &[] },
    Document { name: "docs/how-to/with-cke.md", replacements: &[("/etc/cke/config.yml", "cke.yml")], before: &[] },
    Document { name: "docs/packaging.md", replacements: &[("/etc/cketerm/", "./made-")], before: &[] },
    Document { name: "docs/sandbox.md", replacements: &[("--config CONFIG", "--config config.yaml")], before: &[] },
    Document { name: "docs/troubleshooting.md", replacements: &[], before: &[] },
    Document { name: "docs/tutorial.md", replacements: &[], before: &[] },
    Document {
        name: "docs/windows.md",
        replacements: &[
            (" FILE", " windows.yaml"),
            ("2026-12-28T", "$(date -d +30days +%F)T"),
            ("2027-01-04T", "$(date -d +30days +%F)T"),
        ],
        before: &[],
    },
];

/// Lines that are not run, with the reason. A line is skipped if it begins with the text.
const NOT_RUN: [(&str, &str, &str); 23] = [
    ("README.md", "cketerm   ", CONSOLE),
    ("README.md", "cketerm --daemon", DAEMON),
    ("docs/from-ckecli.md", "cketerm --config /etc/cke/config.yml --kubeconfig FILE --read-only", CONSOLE),
    ("docs/from-ckecli.md", "cketerm --config /etc/cke/config.yml --kubeconfig FILE\n", CONSOLE),
    ("docs/guide.md", "cketerm --config /etc/cke/config.yml --kubeconfig FILE   ", CONSOLE),
    ("docs/guide.md", "cketerm nodes keep-cordoned", "needs an entry in progress: tests/it/kubernetes/cordons.rs"),
    ("docs/hooks.md", "cketerm policy set hooks hooks.yaml", "runs programs of the site: tests/it/engine/hooks.rs"),
    ("docs/how-to/metal3.md", "cketerm hosts reboot ", HOSTS),
    ("docs/how-to/metal3.md", "cketerm hosts hold ", HOSTS),
    ("docs/how-to/metal3.md", "cketerm hosts release ", HOSTS),
    ("docs/how-to/metal3.md", "cketerm hosts fence ", HOSTS),
    ("docs/how-to/from-kubectl-drain.md", "cketerm rq wait", "waits for reboots: tests/it/adoption.rs"),
    (
        "docs/how-to/from-kured.md",
        "cketerm rq add --needed",
        "needs a Node that needs a reboot: tests/it/engine/reboot_needed.rs",
    ),
    ("docs/how-to/with-cke.md", "cketerm engine give", "waits until CKE leads: tests/it/commands/handover.rs"),
    ("docs/how-to/without-cke.md", "cketerm ", "tests/it/adoption.rs runs the whole document"),
    ("docs/sandbox.md", "cketerm --sandbox", CONSOLE),
    ("docs/sandbox.md", "cketerm sandbox serve", "all other commands run on this sandbox"),
    ("docs/sandbox.md", "cketerm --config CONFIG --daemon", DAEMON),
    ("docs/tutorial.md", "cketerm --sandbox", CONSOLE),
    ("docs/tutorial.md", "cketerm sandbox serve", "all other commands run on this sandbox"),
    ("docs/tutorial.md", "cketerm --config sandbox/config.yaml --daemon", DAEMON),
    ("docs/sabakan.md", "cketerm sabakan plan ", PLANS),
    ("docs/sabakan.md", "cketerm auto-repair plan ", PLANS),
];
const CONSOLE: &str = "a console: tests/it/console.rs starts it on a terminal";
const DAEMON: &str = "an engine, which does not exit: one runs during all these tests";
const HOSTS: &str = "needs registered hosts, which this sandbox lacks: tests/it/power/hosts.rs runs these commands";
const PLANS: &str = "needs files of a site: tests/it/commands/registry.rs runs these commands";

/// Lines of a document that run the program: in indented blocks, not in fenced ones.
fn lines(text: &str) -> Vec<String> {
    let (mut fenced, mut found) = (false, Vec::new());
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let Some(code) = line.strip_prefix("    ").filter(|_| !fenced) else { continue };
        let code = code.trim_start_matches("$ ").replacen("target/release/cketerm", "cketerm", 1);
        if code == "cketerm" || code.starts_with("cketerm ") || code.contains("| cketerm ") {
            found.push(code);
        }
    }
    found
}

/// Reason for which a line is not run.
fn reason(name: &str, line: &str) -> Option<&'static str> {
    let full_line = format!("{line}\n");
    NOT_RUN.iter().find(|(of, begins, _)| *of == name && full_line.starts_with(begins)).map(|(_, _, why)| *why)
}

/// Creates the files of the reader's folder: CKE's file for this etcd, windows that are always open.
fn write_files(dir: &Path, facts: &Value) {
    fs::write(dir.join("cke.yml"), format!("endpoints: [{}]\n", facts["etcd"])).expect("a file");
    fs::write(dir.join("windows.yaml"), "time_zone: UTC\nallow: [\"* * * * *\"]\n").expect("a file");
}

fn run(name: &str) {
    let document = DOCUMENTS.iter().find(|d| d.name == name).expect("a document");
    let (_, text) = documents().into_iter().find(|(n, _)| n == name).expect("the document is listed");
    let served = Served::start(&["--nodes", "30"]);
    write_files(&served.dir, &served.facts);
    let config = served.dir.join("config.yaml");
    let daemon = Daemon::start(&served.dir, &config, "engine");
    wait_for("a leader", 60, || (daemon.page("/readyz").1 == "leading\n").then_some(()));
    let shell = Shell::new(&served.dir, &config);
    let (mut ran, mut wrong, mut before) = (0, Vec::new(), document.before.to_vec());
    for line in lines(&text) {
        if let Some(why) = reason(name, &line) {
            eprintln!("NOT RUN: {name}: {line}: {why}");
            continue;
        }
        while let Some(at) = before.iter().position(|(begins, _)| line.contains(begins)) {
            let (_, command) = before.remove(at);
            let (succeeded, _, stderr) = shell.run(command);
            assert!(succeeded, "{command}: {stderr}");
        }
        let command = document.replacements.iter().fold(line.clone(), |line, (from, to)| line.replace(from, to));
        let (succeeded, out, stderr) = shell.run(&command);
        ran += 1;
        if !succeeded {
            wrong.push(format!("{line}\n  as {command}\n  {out}{stderr}"));
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{}\n{}", wrong.join("\n"), daemon.logged());
    assert!(ran > 0, "{name} contains no command to run");
    eprintln!("{name}: {ran} lines were run");
}

macro_rules! run {
    ($($test:ident: $name:literal),+ $(,)?) => {$(
        #[test]
        fn $test() {
            run($name);
        }
    )+};
}

run! {
    the_quick_start_runs_as_written: "README.md",
    conditions_and_events_are_turned_on_as_written: "docs/conditions.md",
    the_plans_of_drains_run_as_written: "docs/drains.md",
    the_first_hour_beside_cke_runs_as_written: "docs/from-ckecli.md",
    the_guide_runs_as_written: "docs/guide.md",
    backup_and_recovery_run_as_written: "docs/how-to/backup-and-recover.md",
    the_way_from_kubectl_drain_runs_as_written: "docs/how-to/from-kubectl-drain.md",
    the_way_from_kured_runs_as_written: "docs/how-to/from-kured.md",
    the_maintenance_requests_run_as_written: "docs/how-to/maintenance-requests.md",
    the_maintenance_runs_as_written: "docs/how-to/maintenance.md",
    the_metal3_how_to_runs_as_written: "docs/how-to/metal3.md",
    the_repair_how_to_runs_as_written: "docs/how-to/repair.md",
    the_rolling_reboot_runs_as_written: "docs/how-to/rolling-reboot.md",
    the_upgrade_runs_as_written: "docs/how-to/upgrade.md",
    the_hand_over_runs_as_written: "docs/how-to/with-cke.md",
    host_setup_runs_as_written: "docs/packaging.md",
    the_sandbox_document_runs_as_written: "docs/sandbox.md",
    troubleshooting_runs_as_written: "docs/troubleshooting.md",
    the_tutorial_runs_as_written: "docs/tutorial.md",
    windows_and_freezes_run_as_written: "docs/windows.md",
}

#[test]
fn every_command_in_the_documents_is_run_or_listed_with_a_reason() {
    let (mut all, mut left, mut listed) = (0, Vec::new(), [false; NOT_RUN.len()]);
    for (name, text) in documents() {
        for line in lines(&text) {
            all += 1;
            let full_line = format!("{line}\n");
            let entry = NOT_RUN.iter().position(|(of, begins, _)| *of == name && full_line.starts_with(begins));
            match entry {
                Some(i) => listed[i] = true,
                None if DOCUMENTS.iter().any(|d| d.name == name) => {}
                None => left.push(format!("{name}: {line}")),
            }
        }
    }
    assert!(all > 60, "only {all} lines were found");
    assert!(left.is_empty(), "commands that are neither run nor listed in NOT_RUN:\n{}", left.join("\n"));
    let stale: Vec<_> = NOT_RUN.iter().zip(listed).filter(|(_, there)| !there).map(|(entry, _)| entry).collect();
    assert!(stale.is_empty(), "entries of NOT_RUN that match no command: {stale:?}");
}
