//! The sandbox from outside: other programs on its ports, and the console on it.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::Value;

use crate::{
    console::terminal::Console,
    world::{
        found,
        program::{Daemon, cketerm, command},
        sandbox::{Served, http},
        wait_for,
    },
};

/// A program with its first arguments, without the environment of the test run.
struct Program {
    file: PathBuf,
    home: PathBuf,
    first: Vec<String>,
}

impl Program {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.file);
        command.env_clear().env("HOME", &self.home).env("ETCDCTL_API", "3");
        command.args(&self.first).args(args).stdin(Stdio::null());
        command
    }

    /// Returns whether it succeeded, with all its output.
    fn try_run(&self, args: &[&str]) -> (bool, String) {
        let out = self.command(args).output().expect("kubectl starts");
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        (out.status.success(), text)
    }

    /// Output of a run that must succeed.
    fn ok(&self, args: &[&str]) -> String {
        let (success, text) = self.try_run(args);
        assert!(success, "{args:?}: {text}");
        text
    }
}

fn kubectl(served: &Served) -> Option<Program> {
    let kubeconfig = text(&served.facts["kubeconfig"]);
    let first = vec!["--kubeconfig".to_owned(), kubeconfig.to_owned()];
    Some(Program { file: found("kubectl")?, home: served.dir.clone(), first })
}

#[test]
fn etcdctl_reads_what_cketerm_has_stored() {
    let Some(file) = found("etcdctl") else { return };
    let served = Served::start(&["--nodes", "6"]);
    let first = vec!["--endpoints".to_owned(), text(&served.facts["etcd"]).to_owned()];
    let etcdctl = Program { file, home: served.dir.clone(), first };
    let keys = etcdctl.ok(&["get", "--prefix", "/cke/", "--keys-only"]);
    for key in ["/cke/cluster", "/cke/constraints", "/cke/cketerm/policy", "/cke/cketerm/identity"] {
        assert!(keys.lines().any(|line| line == key), "{key}: {keys}");
    }
    let text = etcdctl.ok(&["get", "--prefix", "/cke/cluster", "--print-value-only"]);
    let definition: Value = serde_json::from_str(text.trim()).expect("a definition");
    assert_eq!(definition["nodes"].as_array().map(Vec::len), Some(6));
    assert!(etcdctl.ok(&["put", "/mine", "1"]).contains("OK") && etcdctl.ok(&["get", "/mine"]).contains("/mine\n1"));
}

/// `--plain`: no terminal is needed; a signal ends it as it ends the console.
#[test]
fn a_plain_sandbox_prints_its_changes_as_lines_and_ends_on_a_signal() {
    let mut child = command()
        .args(["--sandbox", "--plain", "--nodes", "9", "--scenario", "budget", "--speed", "10"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let out = child.stdout.take().expect("a pipe");
    let (sender, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut all: Vec<String> = Vec::new();
    let expected = ["connecting to the sandbox", "leader: this program", "reboots: enabled", " draining"];
    while !expected.iter().all(|what| all.iter().any(|line| line.contains(what))) {
        match received.recv_timeout(std::time::Duration::from_mins(1)) {
            Ok(line) => all.push(line),
            Err(e) => {
                let _ = child.kill();
                panic!("{e}: {all:?}");
            }
        }
    }
    assert!(all.iter().all(|line| line.contains("Z ") && !line.contains('\u{1b}')), "{all:?}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_plan_lists_waves_pods_and_current_blockers_and_changes_nothing() {
    let served = Served::start(&["--nodes", "9", "--scenario", "budget"]);
    let config = text(&served.facts["config"]);
    let run = |args: &[&str]| {
        let out = command().args(["--config", config]).args(args).output().expect("the program starts");
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    // after half a second the scenario tightens a budget, which blocks every node with one of its pods
    let plan = || run(&["rq", "plan", "10.1.3.11", "10.1.0.12", "10.1.1.12", "10.1.2.12", "10.1.3.12", "10.1.0.11"]);
    wait_for("the plan names the budget", 30, || plan().1.contains("pdb db/mysql-1").then_some(()));
    let (code, text) = plan();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("wave 1: ") && text.contains("API server, alone\n  cp1 10.1.0.11"), "{text}");
    assert!(text.contains(" to evict, ") && text.contains(" stay; pods fit elsewhere\n"), "{text}");
    let (code, text) = run(&["repair-queue", "plan", "reinstall", "IPMI-2.0", "10.1.3.11"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("step 1: drain, then ") && text.contains("drain now: "), "{text}");
}

#[test]
fn kubectl_gets_watches_and_drains_against_a_budget() {
    let served = Served::start(&["--nodes", "9"]);
    let Some(kubectl) = kubectl(&served) else { return };
    let text = kubectl.ok(&["get", "nodes,pods", "-A"]);
    let lines = |word: &str| text.lines().filter(|l| l.contains(word)).count();
    assert_eq!((lines("node/cp"), lines("node/w"), lines("pod/mysql-")), (3, 6, 12), "{text}");
    assert!(text.contains("Ready    control-plane") && text.contains("1/1     Running"), "{text}");

    // the budget blocks the eviction of the database pod on that node
    let node = kubectl.ok(&["get", "pod", "-n", "db", "mysql-1-0", "-o", "jsonpath={.spec.nodeName}"]);
    let watch = Watch::start(kubectl.command(&["get", "node", &node, "-w", "--no-headers"]));
    watch.wait_for_line("Ready", 20);
    let budget = |spec: &str| kubectl.ok(&["patch", "pdb", "-n", "db", "mysql-1", "--type=merge", "-p", spec]);
    budget(r#"{"spec": {"maxUnavailable": 0}}"#);
    wait_for("the budget allows nothing", 20, || {
        let allowed = ["get", "pdb", "-n", "db", "mysql-1", "-o", "jsonpath={.status.disruptionsAllowed}"];
        (kubectl.ok(&allowed) == "0").then_some(())
    });
    let drain = ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=7s"];
    let (success, text) = kubectl.try_run(&drain);
    let refusal = r#"error when evicting pods/"mysql-1-0" -n "db" (will retry after 5s): Cannot evict pod as it would violate the pod's disruption budget."#;
    assert!(!success && text.contains(refusal), "{text}");
    watch.wait_for_line("Ready,SchedulingDisabled", 10);
    let pods = |node: &str| kubectl.ok(&["get", "pods", "-A", "--field-selector", &format!("spec.nodeName={node}")]);
    assert!(pods(&node).contains("mysql-1-0"), "{}", pods(&node));

    budget(r#"{"spec": {"maxUnavailable": 1}}"#);
    let text = kubectl.ok(&["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"]);
    assert!(text.contains(&format!("node/{node} drained")) && text.contains("pod/mysql-1-0 evicted"), "{text}");
    let left = pods(&node);
    assert!(left.contains("node-exporter") && !left.contains("mysql") && !left.contains("web-"), "{left}");
    // its StatefulSet has created it on another node
    wait_for("mysql-1-0 runs elsewhere", 20, || {
        let text = kubectl.try_run(&["get", "pod", "-n", "db", "mysql-1-0", "-o", "wide"]).1;
        (text.contains("Running") && !text.contains(&format!(" {node} "))).then_some(())
    });
    kubectl.ok(&["uncordon", &node]);
    wait_for("the watch has printed three lines", 10, || (watch.lines().len() >= 3).then_some(()));
    let last = watch.lines().pop().expect("a line");
    assert!(!last.contains("SchedulingDisabled"), "{last}");
}

#[test]
fn the_sandboxs_own_routes_control_machines_and_servers() {
    let served = Served::start(&["--empty"]);
    let admin = [("Authorization", "Bearer admin")];
    let kubernetes = |path: &str| http("GET", &format!("{}{path}", text(&served.facts["kubernetes"])), &admin, "");
    let sandbox_route = |method: &str, path: &str, body: &str| {
        http(method, &format!("{}{path}", served.machines), &[("Content-Type", "application/json")], body)
    };
    assert_eq!(served.get("/machines"), Vec::<Value>::new());
    let machine = r#"{"name": "w1", "rack": 2}"#;
    assert_eq!(sandbox_route("PUT", "/machines/10.0.0.7", machine).0, 201);
    assert_eq!(sandbox_route("PUT", "/machines/10.0.0.7", machine).0, 409);
    assert_eq!(sandbox_route("PUT", "/machines/10.0.0.8", machine).0, 409);
    let (code, why) = sandbox_route("PUT", "/machines/10.0.0.8", r#"{"nome": "w2"}"#);
    assert!(code == 422 && why.contains("nome"), "{code} {why}");
    wait_for("the kubelet registers the Node", 20, || {
        let (code, node) = kubernetes("/api/v1/nodes/w1");
        (code == 200 && node.contains("KubeletReady")).then_some(())
    });
    let (code, node) = kubernetes("/api/v1/nodes/w1");
    assert!(code == 200 && node.contains("10.0.0.7") && node.contains("rack2"), "{node}");

    assert_eq!(sandbox_route("POST", "/apiserver/stop", "").0, 204);
    assert_eq!(kubernetes("/readyz").0, 503);
    assert_eq!(sandbox_route("POST", "/apiserver/start", "").0, 204);
    assert_eq!(kubernetes("/readyz").0, 200);
    assert_eq!((sandbox_route("POST", "/apiserver/x", "").0, sandbox_route("POST", "/kubelets/x", "").0), (404, 404));
    let asked = served.get("/apiserver/audit");
    let one = asked.iter().rfind(|e| e["objectRef"]["name"] == "w1").expect("a request");
    assert_eq!((text(&one["verb"]), text(&one["objectRef"]["resource"])), ("get", "nodes"));
    assert_eq!(one["responseStatus"]["code"], 200);
}

/// A repair that works at the second step, one that fails, one blocked by a budget, and one outside the cluster.
#[test]
fn the_repairs_scenario_ends_as_documented() {
    let served = Served::start(&["--nodes", "12", "--scenario", "repairs"]);
    let config = Path::new(text(&served.facts["config"]));
    let daemon = Daemon::start(&served.dir, config, "engine");
    daemon.ready();
    let entry = |index: usize| {
        let listed = cketerm(config, &["repair-queue", "list"]).stdout;
        let listed: Value = serde_json::from_str(&listed).expect("a list");
        listed[index].clone()
    };
    let wait_for_end = |index: usize, status: &str, step: i64| {
        wait_for(&format!("repairs/{index} is {status} at step {step}"), 240, || {
            let entry = entry(index);
            (entry["status"] == status && entry["step"] == step).then_some(())
        });
    };
    let why = wait_for("a repair waits for the budget", 180, || {
        let reason = cketerm(config, &["repair-queue", "why", "2"]).stdout;
        reason.contains("blocked by pdb db/mysql-1").then_some(reason)
    });
    assert!(why.contains("IPMI-2.0 reinstall, processing, step 1 draining"), "{why}");
    wait_for_end(1, "failed", 0);
    wait_for_end(3, "succeeded", 0);
    wait_for_end(0, "succeeded", 1);
    let log = served.get("/machines/log");
    let began = |address: &Value| {
        let lines = log.iter().filter(|l| l["address"] == *address && l["what"].to_string().contains("egin"));
        lines.map(|l| l["argv"].as_array().and_then(|a| a.iter().rev().nth(1)).cloned()).collect::<Vec<_>>()
    };
    let of = |index: usize| began(&entry(index)["address"]);
    let verbs = |names: &[&str]| names.iter().map(|n| Some(Value::from(*n))).collect::<Vec<_>>();
    assert_eq!(of(0)[..2], verbs(&["repair", "reinstall"])[..], "both steps must run, each command once");
    assert_eq!(of(3), verbs(&["repair"]), "a machine outside of the cluster must be repaired");
    assert_eq!(of(1)[..2], verbs(&["repair", "repair"])[..], "after two failed attempts no further step may run");
}

#[test]
fn a_daemon_with_its_configuration_reboots_what_is_queued() {
    let served = Served::start(&["--nodes", "7"]);
    let config = Path::new(text(&served.facts["config"]));
    let daemon = Daemon::start(&served.dir, config, "engine");
    daemon.ready();
    let machine = served.get("/machines").into_iter().find(|m| m["name"] == "w2").expect("w2");
    let address = text(&machine["address"]);
    let mut add = command()
        .arg("--config")
        .arg(config)
        .args(["rq", "add", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    writeln!(add.stdin.take().expect("a pipe to stdin"), "{address}").expect("the program reads its input");
    assert!(add.wait().expect("the program exits").success());
    let ran = cketerm(config, &["rq", "wait", "--timeout-seconds", "90"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let power: Vec<String> = served.power().iter().map(|p| format!("{} {}", p.what, p.address)).collect();
    assert_eq!(power, [format!("begin {address}"), format!("end {address}")]);
    let (status, _) = daemon.terminate();
    assert!(status.success());
}

#[test]
fn the_sandbox_console_reboots_within_seconds_and_every_key_works() {
    let mut console = Console::of(&["--sandbox"], 100, 30);
    console.wait_for_text("[0 Overview] 1 Reboots", 10);
    console.press("1");
    console.wait_for_text(" rebooting ", 60);
    console.press("G\r");
    let text = console.wait_for_text("you can", 10);
    assert!(text.contains("kernel 6.6.74, CHG-1042") && text.contains("alice"), "{text}");
    console.press("\u{1b}");
    console.wait_for_text("INDEX", 10);
    console.press("2");
    let text = console.wait_for_text("KUBELET", 10);
    assert!(text.contains("[2 Nodes 60]") && text.contains("cp1") && text.contains("Ready"), "{text}");
    console.press("?");
    console.wait_for_text("Keys: j k scroll", 10);
    console.press("\u{1b}");
    console.wait_for_text("[2 Nodes 60]", 10);
    console.press("G");
    console.wait_for_text("> w57", 10);
    console.press("R");
    console.wait_for_text("Reboot 1 machine?", 10);
    console.press("\ry");
    console.wait_for_text("queued 1 reboot: reboots/23", 10);
    console.press("1");
    console.wait_for_text("23    w57 ", 10);
    console.press("G");
    console.wait_for_text("> 23 ", 10);
    console.press("X");
    console.wait_for_text("Cancel 1 reboot?", 10);
    console.press("\ry");
    console.wait_for_text("cancelled reboots/23", 10);
    // reboots are in progress, and no other engine stands by
    console.press("q");
    console.wait_for_text("Quit? The sandbox ends", 10);
    console.press("y");
    assert_eq!(console.wait_for_end(30), 0);
    console.wait_for_terminal_mode(false);
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// A program whose output goes on.
struct Watch {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Watch {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe from stdout"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                collected.lock().expect("the lock is not poisoned").push(line);
            }
        });
        Self { child, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("the lock is not poisoned").clone()
    }

    fn wait_for_line(&self, text: &str, seconds: u64) {
        wait_for(&format!("the watch prints {text}"), seconds, || {
            self.lines().iter().any(|line| line.contains(text)).then_some(())
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
