//! Servers of a site with hostile values: escape sequences in all data of etcd, Kubernetes, sabakan, BMCs and webhooks.
//! Also the arguments with which every subcommand reads that data.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Mutex,
};

use clap::{Arg, Command};
use etcd_client::{Client, GetOptions, Txn, TxnOp};
use serde_json::{Value, json};

use crate::world::{
    program::{Daemon, cketerm},
    sandbox::Served,
    wait_for,
};

/// Hostile value with the name of its source.
pub fn hostile_value(source: &str) -> String {
    format!(
        "{source}-evil\u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}31m\u{9d}x\u{7f}\u{85}\u{202e}\u{2066}\u{200f}\u{2028}\u{e0041}\rover\nFORGED {source}"
    )
}

/// Fields with free text. In other fields the value would only become unreadable, which is tested too.
const FREE_TEXT_FIELDS: &[&str] = &[
    "user",
    "host",
    "reason",
    "why",
    "result",
    "on",
    "what",
    "outcome",
    "stdout",
    "stderr",
    "operation",
    "machine_type",
    "serial",
    "name",
    "detail",
    "info",
    "error",
    "version",
    "phase",
    "http",
    "node",
];

/// Overwrites these fields in a value, at every depth.
fn inject_hostile_values(value: &mut Value, source: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if value.is_string() && FREE_TEXT_FIELDS.contains(&name.as_str()) {
                    *value = json!(hostile_value(source));
                } else {
                    inject_hostile_values(value, source);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| inject_hostile_values(value, source)),
        _ => {}
    }
}

/// Answers every request as hostile servers of a site would: a BMC, sabakan, a webhook, an API server.
fn hostile_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || while answer(&stream).is_some() {});
        }
    });
    url
}

fn answer(mut stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    lines.read_line(&mut head).ok().filter(|n| *n > 0)?;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|n| *n > 0)?;
        if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    lines.read_exact(&mut vec![0; length]).ok()?;
    let (bmc, sabakan) = (hostile_value("bmc"), hostile_value("sabakan"));
    let mut words = head.split_whitespace();
    let (method, path) = (words.next()?, words.next()?);
    let (status, body) = match (method, path) {
        (_, "/graphql") => (200, machines(&sabakan)),
        (_, "/broken/graphql") => (200, json!({"errors": [{"message": sabakan}]})),
        ("GET", path) if path.starts_with("/redfish/v1/Systems/") => (
            200,
            json!({"@odata.id": path, "Name": bmc, "PowerState": bmc, "Status": {"Health": bmc}, "LastResetTime": bmc,
                "Actions": {"#ComputerSystem.Reset": {"target": format!("{path}/Actions/Reset"),
                    "ResetType@Redfish.AllowableValues": ["On", "ForceOff", bmc]}}}),
        ),
        ("GET", path) if path.starts_with("/redfish") => (
            200,
            json!({"@odata.id": path, "Systems": {"@odata.id": "/redfish/v1/Systems"},
                "Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}),
        ),
        (_, path) if path.starts_with("/redfish") => {
            (400, json!({"error": {"message": bmc, "@Message.ExtendedInfo": [{"Message": bmc, "MessageId": bmc}]}}))
        }
        (_, "/machines") => {
            (200, json!({"code": 3, "stdout": hostile_value("machine"), "stderr": hostile_value("machine")}))
        }
        (_, "/hook") => (500, json!(hostile_value("hook"))),
        _ => (
            500,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "reason": hostile_value("kube"),
                "message": hostile_value("kube")}),
        ),
    };
    let body = body.to_string();
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).ok()
}

fn machines(text: &str) -> Value {
    let one = |n: usize| {
        json!({"spec": {"serial": format!("{n}{text}"), "rack": 0, "indexInRack": n, "role": text,
            "ipv4": [format!("10.69.0.{n}")], "registerDate": "2020-01-01T00:00:00Z", "retireDate": "2030-01-01T00:00:00Z",
            "labels": [{"name": "datacenter", "value": text}], "bmc": {"type": text, "ipv4": "10.72.0.1"}},
            "status": {"state": "UNHEALTHY", "timestamp": "2020-01-01T00:00:00Z", "duration": 1e6}})
    };
    json!({"data": {"searchMachines": [one(1), one(2)]}})
}

/// Everything that subcommands are pointed at.
pub struct Site {
    pub served: Served,
    /// Configuration with the sandbox's servers, which hold hostile values.
    pub config: PathBuf,
    /// Configuration with an API server and a sabakan that answer with errors.
    pub broken: PathBuf,
    hostile: String,
    node: String,
    pub address: String,
    host: String,
    planted: Mutex<BTreeMap<String, String>>,
    runtime: tokio::runtime::Runtime,
}

impl Site {
    pub fn new() -> Self {
        let served = Served::start(&["--nodes", "8", "--scenario", "repairs"]);
        let facts = |name: &str| served.facts[name].as_str().unwrap().to_owned();
        let own = PathBuf::from(facts("config"));
        // histories, attempts and audits as an engine writes them
        let daemon = Daemon::start(&served.dir, &own, "engine");
        let ended = || {
            let list: Value = serde_json::from_str(&cketerm(&own, &["repair-queue", "list"]).stdout).ok()?;
            list.as_array()?.iter().any(|e| e["status"] == "succeeded").then_some(())
        };
        wait_for("a repair has ended", 90, ended);
        daemon.kill();
        let hostile = hostile_server();
        let node = served.get("/machines").into_iter().find(|m| m["control_plane"] == false).unwrap();
        let (node, address) = (node["name"].as_str().unwrap().to_owned(), node["address"].as_str().unwrap().to_owned());
        std::fs::write(
            served.dir.join("hostile-bmcs.yaml"),
            json!({"bmcs": {&address: {"url": &hostile}}}).to_string(),
        )
        .unwrap();
        let config = |name: &str, kubeconfig: &Path| {
            let text = json!({"etcd": {"endpoints": [facts("etcd")]}, "kubernetes": {"kubeconfig": kubeconfig},
                "power": {"bmcs": "hostile-bmcs.yaml"},
                "notices": [{"name": "hook", "url": format!("{hostile}/hook"), "kinds": ["stuck"], "timeout": "1s"}]});
            let path = served.dir.join(name);
            std::fs::write(&path, text.to_string()).unwrap();
            path
        };
        let kubeconfig = served.dir.join("hostile-kubeconfig");
        let text = std::fs::read_to_string(served.kubeconfig("admin")).unwrap();
        std::fs::write(&kubeconfig, text.replace(&facts("kubernetes"), &hostile)).unwrap();
        let (config, broken) =
            (config("hostile.yaml", &served.kubeconfig("admin")), config("broken.yaml", &kubeconfig));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let hosts = served.kubernetes("GET", "/apis/metal3.io/v1alpha1/baremetalhosts", &Value::Null);
        let host = hosts["items"][0]["metadata"]["name"].as_str().unwrap_or("none").to_owned();
        Self { served, config, broken, hostile, node, address, host, planted: Mutex::default(), runtime }
    }

    /// Spoils the values in etcd and Kubernetes.
    pub fn inject_hostile_values(&self) {
        self.served.act("freeze", "kwok");
        let status = json!({"status": {"nodeInfo": {"kubeletVersion": hostile_value("kube"), "bootID": hostile_value("kube")},
            "conditions": [{"type": "Ready", "status": "False", "reason": "X", "message": hostile_value("kube")}]}});
        self.served.kubernetes("PATCH", &format!("/api/v1/nodes/{}/status", self.node), &status);
        let annotations = json!({"metadata": {"annotations": {"cketerm.io/x": hostile_value("kube"), "kubernetes.io/x": hostile_value("kube")}}});
        self.served.kubernetes("PATCH", &format!("/api/v1/nodes/{}", self.node), &annotations);
        let hosts = self.served.kubernetes("GET", "/apis/metal3.io/v1alpha1/baremetalhosts", &Value::Null);
        for host in hosts["items"].as_array().into_iter().flatten() {
            let (space, name) =
                (host["metadata"]["namespace"].as_str().unwrap(), host["metadata"]["name"].as_str().unwrap());
            let path = format!("/apis/metal3.io/v1alpha1/namespaces/{space}/baremetalhosts/{name}");
            let status = json!({"status": {"errorMessage": hostile_value("kube"), "errorType": hostile_value("kube"),
                "provisioning": {"state": hostile_value("kube")}}});
            self.served.kubernetes("PATCH", &format!("{path}/status"), &status);
            self.served.kubernetes(
                "PATCH",
                &path,
                &json!({"metadata": {"annotations": {"reboot.metal3.io/x": hostile_value("kube")}}}),
            );
        }
        let mut all = self.stored();
        for (key, value) in &mut all {
            // these keys must stay valid, because no command works without them
            if ["cketerm/schema", "cketerm/identity"].iter().any(|whole| key.ends_with(whole)) {
                continue;
            }
            if let Ok(mut parsed) = serde_json::from_str::<Value>(value) {
                if key.ends_with("/cluster") {
                    parsed["name"] = json!(hostile_value("etcd"));
                    parsed["nodes"][0]["labels"] = json!({"x": hostile_value("etcd")});
                    parsed["reboot"]["reboot_command"] = json!(["x", hostile_value("etcd")]);
                    parsed["strange"] = json!(hostile_value("etcd"));
                } else {
                    inject_hostile_values(&mut parsed, "etcd");
                }
                *value = parsed.to_string();
            }
        }
        let at = "2026-01-01T00:00:00Z";
        let who = json!({"user": hostile_value("etcd"), "host": hostile_value("etcd")});
        let text = hostile_value("etcd");
        let entry = |index: u64, node: &str| {
            json!({"index": index.to_string(), "node": node, "status": "queued", "last_transition_time": at,
                "drain_backoff_count": 0, "drain_backoff_expire": at})
        };
        for (key, value) in [
            ("reboots/data/0000000000000000", entry(0, &self.address)),
            ("reboots/data/0000000000000001", entry(1, &text)),
            ("reboots/data/0000000000000002", json!({"index": text, "status": text})),
            ("repairs/data/00000000000000f0", json!({"index": text, "status": text})),
            ("leader//7fffffff", json!(text)),
            ("status", json!({"phase": text, "timestamp": at})),
            ("sabakan/url", json!(format!("{}/graphql", self.hostile))),
            (
                "sabakan/template",
                json!({"name": text, "nodes": [{"user": text, "labels": {"cke.cybozu.com/role": text}}]}),
            ),
            ("sabakan/query-variables", json!({"having": {"roles": [text]}})),
            ("auto-repair/query-variables", json!({"having": {"roles": [text]}})),
            ("cketerm/approvals/hold", json!({"at": at, "who": who, "reason": text})),
            ("cketerm/approvals/aaaa", json!({"at": at, "until": "2096-01-01T00:00:00Z", "who": who, "reason": text})),
            (
                "cketerm/audit/00000009999999999999-1",
                json!({"at": at, "who": who, "what": text, "on": text, "reason": text, "result": text}),
            ),
            ("cketerm/orders/reboots/0", json!({"hold": {"at": at, "who": who, "reason": text}})),
            (
                "records/00000000000000ff",
                json!({"id": "255", "status": text, "operation": text, "info": text, "error": text,
                "command": {"name": text, "target": text, "detail": text}, "targets": [text]}),
            ),
            ("cketerm/policy", json!({"freeze": {"until": "2096-01-01T00:00:00Z", "reason": text, "who": who}})),
        ] {
            let raw = matches!(key, "leader//7fffffff" | "sabakan/url");
            let value = if raw { value.as_str().unwrap().to_owned() } else { value.to_string() };
            all.insert(format!("/cke/{key}"), value);
        }
        *self.planted.lock().unwrap() = all;
    }

    fn stored(&self) -> BTreeMap<String, String> {
        self.runtime.block_on(async {
            let mut client = self.client().await;
            let got = client.get("/cke/", Some(GetOptions::new().with_prefix())).await.unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            got.kvs().iter().map(|kv| (text(kv.key()), text(kv.value()))).collect()
        })
    }

    async fn client(&self) -> Client {
        Client::connect([self.served.facts["etcd"].as_str().unwrap()], None).await.unwrap()
    }

    /// Restores all values as planted. With `broken` the URL is that of the sabakan that answers with errors.
    pub fn restore_values(&self, broken: bool) {
        let mut all = self.planted.lock().unwrap().clone();
        if broken {
            all.insert("/cke/sabakan/url".to_owned(), format!("{}/broken/graphql", self.hostile));
        }
        self.runtime.block_on(async {
            let mut client = self.client().await;
            let puts: Vec<TxnOp> = all.into_iter().map(|(key, value)| TxnOp::put(key, value, None)).collect();
            for some in puts.chunks(100) {
                client.txn(Txn::new().and_then(some.to_vec())).await.unwrap();
            }
        });
    }

    /// Value for an argument that a subcommand requires.
    fn value(&self, path: &str, arg: &Arg) -> String {
        let name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string).unwrap_or_default();
        let possible = arg.get_possible_values();
        if let Some(first) = possible.first() {
            return first.get_name().to_owned();
        }
        let file = |name: &str| self.served.dir.join(name).display().to_string();
        match (path, name.as_str(), arg.get_id().as_str()) {
            ("decide", ..) => file("state.json"),
            ("man", ..) => file("man"),
            ("support-bundle", ..) => file("bundle.tar.gz"),
            ("rq add" | "reboot-queue add", ..) => file("addresses"),
            (_, _, "at") => self.hostile.clone(),
            (_, "FILE" | "FILES", _) => file("hostile-file.yaml"),
            (_, "INDEX", _) => "0".to_owned(),
            (_, "UNIXTIME", _) => "1".to_owned(),
            (_, "ADDRESS", _) => self.address.clone(),
            (_, "TIME", _) => "1h".to_owned(),
            ("hosts fence", "NODE", _) => self.node.clone(),
            (path, "NAME", _) if path.starts_with("hosts") => self.host.clone(),
            (path, "NAME", _) if path.starts_with("nodes") => self.node.clone(),
            _ => hostile_value("argument"),
        }
    }

    /// Calls of a subcommand: with its required arguments, and with options that show something else.
    pub fn calls(&self, path: &str, leaf: &Command) -> Vec<Vec<String>> {
        let mut least: Vec<String> = path.split(' ').map(str::to_owned).collect();
        let own = leaf.get_arguments().filter(|a| !a.is_global_set() && a.get_id() != "help");
        for arg in own {
            // also pass positional arguments: some commands require one of several
            if !(arg.is_required_set() || arg.is_positional()) {
                continue;
            }
            least.extend(arg.get_long().map(|long| format!("--{long}")));
            if arg.get_action().takes_values() {
                least.push(self.value(path, arg));
            }
        }
        let more: &[&[&str]] = match path {
            "history" => &[&["--ended"], &["--failed", "--ended"]],
            "sabakan diff" => &[&["--nodes"]],
            "reboot-queue add" => &[&["--dry-run"]],
            "decide" => &[&["--as-leader"]],
            "screenshot" => {
                &[&["--format", "ansi"], &["--format", "svg"], &["--view", "nodes"], &["--view", "history"]]
            }
            "cluster init" => &[&["--from-kubernetes"]],
            "support-bundle" => &[&["--force"], &["--list"]],
            "power booted" => &[&["--on-is-enough"]],
            _ => &[],
        };
        let more = more.iter().map(|more| least.iter().cloned().chain(more.iter().map(|w| (*w).to_owned())).collect());
        let mut calls: Vec<Vec<String>> = more.collect();
        calls.insert(0, least);
        // commands that require no argument behave differently without one
        for bare in ["explain", "config check", "reboot-queue plan"] {
            if path == bare {
                calls.push(bare.split(' ').map(str::to_owned).collect());
            }
        }
        calls
    }
}
