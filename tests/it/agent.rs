//! `cketerm agent` with its manifests, on a real API server: one order, one reboot; and the policy that binds each agent to
//! its own Node.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::world::{
    Options, World,
    cluster::{Machine, machines},
    program::{Daemon, cketerm, command},
    wait_for,
};

const NAMESPACE: &str = "cketerm-agent";
const NODES: &str = "/api/v1/nodes";

/// Creates the objects of docs/agent.yaml.
pub fn install(world: &World) {
    let text = fs::read_to_string(Path::new(crate::ROOT).join("docs/agent.yaml")).unwrap();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let object: Value = serde::Deserialize::deserialize(document).expect("docs/agent.yaml is valid YAML");
        let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let group = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let space = object["metadata"]["namespace"].as_str();
        let space = space.map(|space| format!("/namespaces/{space}")).unwrap_or_default();
        let plural = format!("{}s", kind.to_lowercase()).replace("policys", "policies");
        world.ok("POST", &format!("{group}{space}/{plural}"), Some(&object));
    }
}

/// Creates an agent's pod on a Node; returns a token that is bound to it, as a kubelet gets one.
fn token(world: &World, node: &str) -> String {
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{NAMESPACE}");
    let set = &world.ok("GET", &path, None)["metadata"];
    // a drain leaves pods of DaemonSets alone; the token of a pod that is evicted is no longer valid
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": set["name"], "uid": set["uid"], "controller": true,
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("agent-{node}"), "ownerReferences": [owner]},
        "spec": {"nodeName": node, "serviceAccountName": NAMESPACE, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "agent", "image": "registry.invalid/agent:1"}]},
    });
    let pod = world.ok("POST", &format!("/api/v1/namespaces/{NAMESPACE}/pods"), Some(&pod));
    let bound =
        json!({"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
    request_token(world, &json!({"boundObjectRef": bound}))
}

fn request_token(world: &World, spec: &Value) -> String {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAMESPACE}/token");
    world.ok("POST", &path, Some(&request))["status"]["token"].as_str().expect("a token").to_owned()
}

fn kubeconfig(world: &World, name: &str, token: &str) -> PathBuf {
    let text = fs::read_to_string(&world.kubeconfig).unwrap();
    let (before, rest) = text.split_once("user: {token: \"").unwrap();
    let after = rest.split_once('"').unwrap().1;
    let path = world.dir().join(format!("kubeconfig-agent-{name}"));
    fs::write(&path, format!("{before}user: {{token: \"{token}\"{after}")).unwrap();
    path
}

/// A machine with its agent.
pub struct Node<'a> {
    world: &'a World,
    name: String,
    kubeconfig: PathBuf,
    dir: PathBuf,
    agent: Option<Child>,
}

impl<'a> Node<'a> {
    pub fn new(world: &'a World, machine: &Machine) -> Self {
        let name = machine.name.clone();
        let kubeconfig = kubeconfig(world, &name, &token(world, &name));
        let dir = world.dir().join(format!("node-{name}"));
        fs::create_dir(&dir).unwrap();
        let node = Self { world, name, kubeconfig, dir, agent: None };
        node.boot(&world.boot_id(&machine.name));
        node.reboots_by("echo reboot >> reboots");
        node
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Sets the script that reboots the machine.
    pub fn reboots_by(&self, script: &str) {
        fs::write(self.file("reboot"), format!("cd {}\n{script}\n", self.dir.display())).unwrap();
    }

    pub fn boot(&self, id: &str) {
        fs::write(self.file("boot_id"), format!("{id}\n")).unwrap();
    }

    /// Starts the agent anew, and waits until it has reported.
    fn start(&mut self) {
        self.spawn();
        let boot = fs::read_to_string(self.file("boot_id")).unwrap();
        self.wait("the agent reports", |node| {
            node.annotation("cketerm.io/agent").is_some_and(|text| text.contains(boot.trim())).then_some(())
        });
    }

    /// Starts the agent anew.
    pub fn spawn(&mut self) {
        self.kill();
        let log = fs::File::options().create(true).append(true).open(self.file("log")).unwrap();
        let path = |name: &str| self.file(name).display().to_string();
        let child = command()
            .args(["agent", "--poll", "1", "--node", &self.name, "--sentinel", &path("reboot-required")])
            .args(["--kubeconfig", self.kubeconfig.to_str().unwrap(), "--state-directory", &path("state")])
            .args(["--boot-id-file", &path("boot_id"), "--reboot-command", &format!("/bin/sh {}", path("reboot"))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(child);
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.agent.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn annotation(&self, name: &str) -> Option<String> {
        self.world.node(&self.name)["metadata"]["annotations"][name].as_str().map(str::to_owned)
    }

    fn annotate(&self, name: &str, value: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {name: value}}});
        self.world.ok("PATCH", &format!("{NODES}/{}", self.name), Some(&patch));
    }

    fn answer(&self) -> Value {
        let text = self.annotation("cketerm.io/reboot-answer");
        text.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default()
    }

    /// Writes an order by hand.
    fn order(&self, attempt: &str, boot_id: &str, seconds: i64) {
        let deadline = Timestamp::now() + SignedDuration::from_secs(seconds);
        let order = json!({"attempt": attempt, "boot_id": boot_id, "deadline": deadline.to_string()});
        self.annotate("cketerm.io/reboot-order", Some(&order.to_string()));
    }

    /// Waits for the answer to this attempt.
    fn answered(&self, attempt: &str) -> Value {
        self.wait(&format!("an answer to {attempt}"), |node| {
            Some(node.answer()).filter(|answer| answer["attempt"] == attempt)
        })
    }

    pub fn reboots(&self) -> usize {
        fs::read_to_string(self.file("reboots")).unwrap_or_default().lines().count()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    fn wait<T>(&self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        wait_for(&format!("{what}; the log is {}", self.file("log").display()), 30, || condition(self))
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Configuration of a driver: all machines have an agent.
fn config(world: &World) -> PathBuf {
    let dir = world.dir();
    fs::write(dir.join("bmcs.yaml"), "others: {driver: agent, settings: {deadline-seconds: 15}}\n").unwrap();
    let file = dir.join("agents.yaml");
    fs::write(&file, fs::read_to_string(world.config()).unwrap() + "power: {bmcs: bmcs.yaml}\n").unwrap();
    file
}

#[test]
fn an_agent_reports_and_obeys_each_order_once() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let all = machines(0, 2);
    world.add_nodes(&all);
    install(&world);
    let config = config(&world);
    let mut node = Node::new(&world, &all[0]);
    let address = all[0].address.as_str();

    let tested = cketerm(&config, &["power", "test", address]);
    assert!(tested.code == 1 && tested.stdout.contains("no agent reports on Node w1"), "{}", tested.stdout);
    node.start();
    let tested = cketerm(&config, &["power", "test", address]);
    assert_eq!(tested.code, 0, "{}{}", tested.stdout, tested.stderr);
    assert!(tested.stdout.contains("the agent of Node w1"), "{}", tested.stdout);

    fs::write(node.file("reboot-required"), "").unwrap();
    fs::write(node.file("reboot-required.pkgs"), "libc6\n").unwrap();
    let cause = node.wait("the sentinel is reported", |node| node.annotation("cketerm.io/reboot-needed"));
    assert!(cause.starts_with("sentinel /") && cause.ends_with("reboot-required: libc6"), "{cause}");
    fs::remove_file(node.file("reboot-required")).unwrap();
    node.wait("the report is taken back", |node| node.annotation("cketerm.io/reboot-needed").is_none().then_some(()));

    assert_eq!(node.reboots(), 0, "neither a test nor a report reboots: {}", node.log());
    let cycled = cketerm(&config, &["power", "cycle", address]);
    assert!(cycled.code == 0 && cycled.stderr.contains("took the order to reboot"), "{}", cycled.stderr);
    node.wait("the machine reboots", |node| (node.reboots() == 1).then_some(()));
    // The agent comes back before the machine goes down.
    node.start();
    let boot = world.boot_id("w1");
    for (attempt, boot_id, seconds, why) in [
        ("late", boot.as_str(), -1, "the deadline"),
        ("soon", boot.as_str(), 3, "less than 5 s away"),
        ("far", boot.as_str(), 7200, "more than an hour away"),
        ("old", "another-boot", 60, "the machine has booted since"),
    ] {
        node.order(attempt, boot_id, seconds);
        let answer = node.answered(attempt);
        assert!(answer["obeyed"] == false && answer["why"].as_str().unwrap().contains(why), "{attempt}: {answer}");
    }
    assert_eq!(node.reboots(), 1, "{}", node.log());

    // It is killed after it has recorded and answered, before the machine reboots.
    node.reboots_by("kill -9 $PPID");
    node.order("killed", &boot, 60);
    assert_eq!(node.answered("killed")["obeyed"], true);
    wait_for("the agent is killed", 30, || node.agent.as_mut()?.try_wait().unwrap().map(drop));
    node.reboots_by("echo reboot >> reboots");
    node.start();
    // Also if its answer is lost.
    node.annotate("cketerm.io/reboot-answer", None);
    let answer = node.answered("killed");
    assert!(answer["why"].as_str().unwrap().contains("recorded this attempt before"), "{answer}");
    assert_eq!(node.reboots(), 1, "{}", node.log());

    // Without a record on the disk nothing is obeyed.
    fs::write(node.file("state/obeyed.json"), "{").unwrap();
    let refused = cketerm(&config, &["power", "cycle", address]);
    assert!(
        refused.code == 1 && refused.stderr.contains("refused to reboot: the agent cannot record"),
        "{}",
        refused.stderr
    );
    fs::remove_file(node.file("state/obeyed.json")).unwrap();

    // An agent that does not answer: the order is withdrawn.
    node.kill();
    let silent = cketerm(&config, &["power", "cycle", address]);
    assert!(silent.code == 1 && silent.stderr.contains("was withdrawn and nothing was rebooted"), "{}", silent.stderr);
    assert_eq!(node.annotation("cketerm.io/reboot-order"), None);
    // A cancelled command withdraws it at once.
    let mut cycle = command();
    cycle.arg("--config").arg(&config).args(["power", "cycle", address]).stderr(Stdio::piped());
    let child = cycle.spawn().unwrap();
    node.wait("the order is there", |node| node.annotation("cketerm.io/reboot-order"));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(stderr.contains("cancelled: the order") && stderr.contains("was withdrawn"), "{stderr}");
    assert_eq!(node.annotation("cketerm.io/reboot-order"), None);
    node.start();
    assert_eq!(node.reboots(), 1, "{}", node.log());
}

#[test]
fn an_agent_changes_only_its_own_node_and_there_only_its_annotations() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let all = machines(0, 2);
    world.add_nodes(&all);
    install(&world);
    let bound = token(&world, "w1");
    let free = request_token(&world, &json!({}));
    let patch = |token: &str, node: &str, body: Value| patch_as(&world, token, node, &body);
    let annotation = |name: &str| json!({"metadata": {"annotations": {name: "x"}}});
    wait_for("the policy is in force", 60, || {
        patch(&bound, "w2", annotation("cketerm.io/agent")).1.contains("bound to").then_some(())
    });
    for name in ["cketerm.io/agent", "cketerm.io/reboot-answer", "cketerm.io/reboot-needed"] {
        let (code, text) = patch(&bound, "w1", annotation(name));
        assert_eq!(code, 200, "{name}: {text}");
        let (code, text) = patch(&bound, "w2", annotation(name));
        assert!(code == 422 || code == 403, "{name} of another Node: {code} {text}");
        let (code, text) = patch(&free, "w1", annotation(name));
        assert!(code == 422 || code == 403, "{name} with a token of no Node: {code} {text}");
    }
    for (what, body) in [
        ("an order", annotation("cketerm.io/reboot-order")),
        ("the owner", annotation("cketerm.io/owner")),
        ("another annotation", annotation("example.com/x")),
        ("a cordon", json!({"spec": {"unschedulable": true}})),
        ("a taint", json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})),
        ("a label", json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})),
        ("a finalizer", json!({"metadata": {"finalizers": ["example.com/x"]}})),
    ] {
        let (code, text) = patch(&bound, "w1", body);
        assert!(code == 422 || code == 403, "{what}: {code} {text}");
    }
    let node = world.node("w1");
    assert_eq!(node["metadata"]["annotations"]["cketerm.io/reboot-order"], Value::Null);
    // Everybody else, such as the engine, is not concerned.
    world.ok(
        "PATCH",
        &format!("{NODES}/w1"),
        Some(&json!({"metadata": {"annotations": {"cketerm.io/reboot-order": null}}})),
    );
}

/// Sends a patch with this token; returns the status code and the answer.
fn patch_as(world: &World, token: &str, node: &str, body: &Value) -> (u16, String) {
    let out = Command::new("curl")
        .args(["-sS", "-m", "30", "-X", "PATCH", "-w", "\n%{http_code}", "--cacert"])
        .arg(world.dir().join("certs/apiserver.crt"))
        .args(["-H", &format!("Authorization: Bearer {token}"), "-H", "Content-Type: application/merge-patch+json"])
        .args(["--data-binary", &body.to_string(), &format!("{}{NODES}/{node}", world.api)])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (answer, code) = text.rsplit_once('\n').unwrap_or(("", "0"));
    (code.trim().parse().unwrap_or(0), answer.to_owned())
}

#[test]
fn the_reboot_queue_works_with_agents() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let all = machines(1, 1);
    let program = crate::binary::cketerm();
    world.set_up(
        &all,
        &json!({
            "reboot_command": [program, "power", "cycle"],
            "boot_check_command": [program, "power", "booted"],
            "command_timeout_seconds": 60,
        }),
    );
    world.add_nodes(&all);
    install(&world);
    let config = config(&world);
    let worker = &all[1];
    let mut node = Node::new(&world, worker);
    let before = world.boot_id(&worker.name);
    world.queue(&[worker]);
    let _engine = Daemon::start(world.dir(), &config, "engine");
    // Nothing is drained for an agent that is not there.
    world.wait_or_explain(0, "the entry waits for the agent", 60, || {
        world.run(&["rq", "why", "0"]).contains("no agent reports on Node w1").then_some(())
    });
    assert!(world.cordoned().is_empty());
    node.start();
    world.wait_or_explain(0, "the machine reboots", 90, || (node.reboots() == 1).then_some(()));
    world.wait_for_entry_status(0, "rebooting", 1);
    // The machine is back: its kubelet and its agent report the new boot.
    node.boot(&format!("{before}-next"));
    let boot = json!({"status": {"nodeInfo": {"bootID": format!("{before}-next")}}});
    world.ok("PATCH", &format!("{NODES}/{}/status", worker.name), Some(&boot));
    node.start();
    world.wait_for_empty_queue(120);
    assert_eq!(node.reboots(), 1, "the machine reboots exactly once: {}", node.log());
    wait_for("the worker is uncordoned", 30, || world.cordoned().is_empty().then_some(()));
}
