//! The sandbox behind ports: the built program's `sandbox serve`, and its routes beside the protocols.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    cluster::{Machine, Power},
    program::command,
};

/// A running `cketerm sandbox serve` and its folder; both end with this.
pub struct Served {
    child: Child,
    /// Folder for its files and those of the test.
    pub dir: PathBuf,
    /// The line that it printed, as JSON.
    pub facts: Value,
    /// URL of the machines' routes.
    pub machines: String,
}

impl Served {
    /// Starts a sandbox in which nothing takes long.
    pub fn start(args: &[&str]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("cketerm-box-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a folder");
        let (durations_file, log) = (dir.join("pace.yaml"), dir.join("sandbox.log"));
        let quick = json!({"seconds": 0.1, "jitter": 0.2});
        let text = json!({"boot": {"seconds": 1}, "command": {"seconds": 1}, "check": {"seconds": 0.02}, "kubelet_start": quick,
            "node_ready": quick, "api_settle": 1, "pod_start": quick, "pod_stop": quick, "lag": 0.02, "budget_lag": 0.05});
        std::fs::write(&durations_file, text.to_string()).expect("a file");
        let mut serve = command();
        serve.args(["sandbox", "serve", "--pace"]).arg(&durations_file).arg("--dir").arg(&dir).args(args);
        let log = File::create(&log).expect("a log");
        let mut child =
            serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("the sandbox starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe from stdout")).read_line(&mut line).expect("a line");
        let facts: Value = serde_json::from_str(&line)
            .unwrap_or_else(|e| panic!("{e}: {line:?}; see {}", dir.join("sandbox.log").display()));
        let machines = facts["machines"].as_str().expect("the machines").to_owned();
        // etcd's default timeout is shorter than a stall of the machine
        let config = facts["config"].as_str().expect("a path");
        let text = std::fs::read_to_string(config).expect("the configuration");
        assert!(text.contains("etcd: {endpoints"), "{text}");
        let patient = text.replacen("etcd: {", "etcd: {timeout: 20s, ", 1);
        std::fs::write(config, patient).expect("the configuration is written");
        Self { child, dir, facts, machines }
    }

    /// Path of a kubeconfig for that user.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        let file = self.dir.join(format!("kubeconfig-{user}"));
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.facts["kubernetes"]}}],
            "users": [{"name": "u", "user": {"token": user}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        std::fs::write(&file, text.to_string()).expect("a file");
        file
    }

    /// Reads a list from one of its routes.
    pub fn get(&self, path: &str) -> Vec<Value> {
        let (code, text) = http("GET", &format!("{}{path}", self.machines), &[], "");
        assert_eq!(code, 200, "GET {path}: {text}");
        serde_json::from_str(&text).expect("a list")
    }

    /// Sends a body to one of its routes, which must accept it.
    pub fn send(&self, method: &str, path: &str, body: &Value) {
        let headers = [("Content-Type", "application/json")];
        let (code, text) = http(method, &format!("{}{path}", self.machines), &headers, &body.to_string());
        assert!((200..300).contains(&code), "{method} {path}: {code} {text}");
    }

    /// Sends a request to the sandbox's API server as `admin`; returns the answer. PATCH bodies are merge patches.
    pub fn kubernetes(&self, method: &str, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.facts["kubernetes"].as_str().expect("the API server"));
        let headers = [("Authorization", "Bearer admin"), ("Content-Type", "application/merge-patch+json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (code, text) = http(method, &url, &headers, &body);
        assert!((200..300).contains(&code), "{method} {path}: {code} {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Adds a machine.
    pub fn add_machine(&self, machine: &Machine) {
        let body = json!({"name": machine.name, "control_plane": machine.control_plane});
        self.send("PUT", &format!("/machines/{}", machine.address), &body);
    }

    /// Sets the behaviour of all machines from now on.
    pub fn behave(&self, behaviour: &Value) {
        for machine in self.get("/machines") {
            let address = machine["address"].as_str().expect("an address");
            self.send("POST", &format!("/machines/{address}/behave"), behaviour);
        }
    }

    /// See `World::act`.
    pub fn act(&self, what: &str, server: &str) {
        let path = match (what, server) {
            ("freeze" | "thaw", "kwok") => format!("/kubelets/{what}"),
            ("stop" | "kill", "apiserver") => "/apiserver/stop".to_owned(),
            ("start", "apiserver") => "/apiserver/start".to_owned(),
            _ => panic!("the sandbox cannot {what} its {server}"),
        };
        self.send("POST", &path, &Value::Null);
    }

    /// See `World::power`.
    pub fn power(&self) -> Vec<Power> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |line: &Value| {
            let at: jiff::Timestamp = text(&line["at"]).parse().expect("a time");
            Power { at: at.as_duration().as_secs_f64(), what: text(&line["what"]), address: text(&line["address"]) }
        };
        let lines = self.get("/machines/log").iter().map(line).collect::<Vec<_>>();
        lines.into_iter().filter(|p| p.what == "begin" || p.what == "end").collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let kept = self.dir.with_extension("failed");
            let _ = std::fs::rename(&self.dir, &kept);
            eprintln!("the logs of the sandbox and the daemons are kept in {}", kept.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// Sends one request to an `http://` URL, without any program. Returns status and body; status 0 = no answer.
pub fn http(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let exchange = || -> std::io::Result<Vec<u8>> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        // HTTP/1.0: the answer ends with the connection
        let more = headers.iter().map(|(name, value)| [name, ": ", value, "\r\n"].concat()).collect::<String>();
        let head = format!("{method} /{path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n{more}", body.len());
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().unwrap_or_default();
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, body.to_owned())
}
