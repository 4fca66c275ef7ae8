//! etcd that authenticates its clients by certificates, with the roles of docs/etcd-roles.md: an engine reboots a
//! machine through it. The same site holds one of every kind of secret. No output, log, endpoint or stored value
//! contains any of them.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    roles::documented,
    store::{
        connection::authority,
        etcd::{Etcd, versions},
    },
    world::{
        program::{Daemon, RunOutput, command},
        sandbox::{Served, http},
        wait_for,
    },
};

/// Prefix of every planted secret.
const SECRET: &str = "hunter2";

struct Site {
    etcd: Etcd,
    keys: tempfile::TempDir,
    served: Served,
    /// Address of a worker.
    address: String,
}

impl Site {
    fn file(&self, name: &str) -> String {
        self.keys.path().join(name).display().to_string()
    }

    fn ctl(&self, who: &str, args: &[&str]) -> Output {
        let mut ctl = Command::new("etcdctl");
        ctl.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("ETCDCTL_API", "3");
        for (option, name) in
            [("--cacert", "ca.crt"), ("--cert", &format!("{who}.crt")), ("--key", &format!("{who}.key"))]
        {
            ctl.args([option, &self.file(name)]);
        }
        ctl.args(["--endpoints", &self.etcd.url]).args(args).output().expect("etcdctl starts")
    }

    fn root(&self, args: &[&str]) -> String {
        let out = self.ctl("root", args);
        assert!(out.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Writes a configuration with this certificate; its key is inline, as text.
    fn config(&self, who: &str, more: &str) -> PathBuf {
        let key = std::fs::read_to_string(self.file(&format!("{who}.key"))).unwrap().replace('\n', "\n    ");
        let text = format!(
            "etcd:\n  endpoints: [\"{}\"]\n  tls-ca-file: {}\n  tls-cert-file: {}\n  tls-key: |\n    {key}\n\
             kubernetes: {{kubeconfig: {}}}\n{more}",
            self.etcd.url,
            self.file("ca.crt"),
            self.file(&format!("{who}.crt")),
            self.served.kubeconfig("admin").display(),
        );
        self.private(&format!("{who}.yaml"), &text)
    }

    fn private(&self, name: &str, text: &str) -> PathBuf {
        let path = self.served.dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path
    }
}

/// Sets up TLS that requires a certificate, the roles of the document, the sandbox's machines and its definition.
fn site() -> Option<Site> {
    let version = versions().into_iter().next()?;
    let keys = tempfile::tempdir().unwrap();
    authority(keys.path(), &["server", "root", "engine", "operator", "stranger"]);
    let file = |name: &str| keys.path().join(name).display().to_string();
    let args = ["--cert-file", &file("server.crt"), "--key-file", &file("server.key")].map(str::to_owned);
    let ca = ["--client-cert-auth=true".to_owned(), format!("--trusted-ca-file={}", file("ca.crt"))];
    let etcd = Etcd::serve(&version, "https", &[&args[..], &ca[..]].concat());
    let served = Served::start(&["--nodes", "5"]);
    let machines = served.get("/machines");
    let worker = machines.iter().find(|m| m["control_plane"] == false).expect("a worker");
    let address = worker["address"].as_str().unwrap().to_owned();
    let site = Site { etcd, keys, served, address };
    for command in documented() {
        site.root(&command.iter().map(String::as_str).collect::<Vec<_>>());
    }
    // etcd 3.4 has no users without a password; these passwords are never used
    for (user, role) in [("root", "root"), ("engine", "cketerm-engine"), ("operator", "cketerm-operator")] {
        site.root(&["user", "add", &format!("{user}:unused-{user}")]);
        site.root(&["user", "grant-role", user, role]);
    }
    site.root(&["auth", "enable"]);
    Some(site)
}

fn run(config: &Path, args: &[&str]) -> RunOutput {
    let out = command().arg("--config").arg(config).args(args).stdin(std::process::Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    RunOutput { code: out.status.code().unwrap_or(-1), stdout: text(&out.stdout), stderr: text(&out.stderr) }
}

#[test]
fn an_engine_with_a_client_certificate_reboots_and_no_secret_leaks() {
    let Some(site) = site() else { return };
    let served = &site.served;
    let sandbox_config = Path::new(served.facts["config"].as_str().unwrap()).to_owned();

    // all secrets that a configuration can contain
    let redfish = served.facts["redfish"].as_str().unwrap();
    let name =
        served.get("/machines").into_iter().find(|m| m["address"] == site.address.as_str()).unwrap()["name"].clone();
    let bmcs = format!(
        "defaults: {{username: root, password: hunter2-bmc}}\nnetworks: [127.0.0.0/8]\nbmcs:\n  {}: {{url: \"{redfish}\", system: {name}}}\n",
        site.address
    );
    let bmcs = site.private("bmcs.yaml", &bmcs);
    let headers = site.private("headers", "Authorization: Bearer hunter2-header\n");
    let url = site.private("hook", "http://127.0.0.1:1/hunter2-hook\n");
    let logs = served.dir.join("logs");
    let more = format!(
        "power: {{bmcs: {}}}\nlog: {{level: \"debug\", directory: {}}}\nnotices:\n\
         - {{name: file, url_file: {}, header_file: {}}}\n- {{name: here, url: \"http://127.0.0.1:1/hunter2-path?token=hunter2-query\"}}\n",
        bmcs.display(),
        logs.display(),
        url.display(),
        headers.display()
    );
    let (engine, operator) = (site.config("engine", &more), site.config("operator", &more));
    let done = |args: &[&str]| {
        let output = run(&operator, args);
        assert_eq!(output.code, 0, "cketerm {args:?}: {output:?}");
        output.stdout
    };

    // by certificate alone: the operator's role sets the site up, the engine's role runs the reboot
    let mut cluster: serde_json::Value =
        serde_yaml::from_str(&run(&sandbox_config, &["cluster", "get"]).stdout).unwrap();
    let program = crate::binary::cketerm();
    cluster["reboot"]["reboot_command"] = serde_json::json!([program, "-v", "power", "cycle", "--hard"]);
    cluster["reboot"]["boot_check_command"] = serde_json::json!([program, "power", "booted"]);
    cluster["reboot"]["command_timeout_seconds"] = serde_json::json!(60);
    let file = served.dir.join("cluster.json");
    std::fs::write(&file, cluster.to_string()).unwrap();
    done(&["constraints", "set", "control-plane-count", "3"]);
    done(&["cluster", "set", file.to_str().unwrap()]);
    done(&["cluster", "identify", "--confirm"]);
    let policy: serde_json::Value =
        serde_json::from_str(&run(&sandbox_config, &["policy", "show", "-o", "json"]).stdout).unwrap();
    done(&["policy", "set", "control_plane_probe", policy["control_plane_probe"].as_str().unwrap()]);
    // the sandbox serves its etcd members at ports that these engines do not know
    done(&["policy", "set", "etcd_members", "none"]);
    site.root(&["put", "/cke/sabakan/url", "http://user:hunter2-sabakan@127.0.0.1:1/graphql"]);
    let daemon = Daemon::start(&served.dir, &engine, "engine");
    wait_for("the engine leads", 60, || (daemon.page("/readyz").1 == "leading\n").then_some(()));
    let addresses = served.dir.join("addresses");
    std::fs::write(&addresses, &site.address).unwrap();
    done(&["rq", "add", addresses.to_str().unwrap(), "--reason", "certificates"]);
    wait_for("the queue is empty", 120, || done(&["rq", "list", "-o", "json"]).trim().eq("[]").then_some(()));
    let log = served.get("/machines/log");
    let power_cycles = log.iter().filter(|l| l["address"] == site.address.as_str() && l["what"] == "down").count();
    assert_eq!(power_cycles, 1, "the machine is power-cycled exactly once: {log:?}");

    // a certificate of the same authority without a role, and one of another authority, get no access
    for (who, message) in [("stranger", "permission"), ("other", "etcd")] {
        let output = run(&site.config(who, ""), &["rq", "list"]);
        assert!(output.code != 0 && output.stderr.to_lowercase().contains(message), "{who}: {output:?}");
    }

    // Kubernetes refuses this token: error messages print more than successes
    let planted = served.dir.join("kubeconfig-planted");
    std::fs::rename(served.kubeconfig("hunter2-kube-token"), &planted).unwrap();
    let text = std::fs::read_to_string(&engine).unwrap();
    let own = served.kubeconfig("admin").display().to_string();
    let refused = site.private("refused.yaml", &text.replace(&own, &planted.display().to_string()));
    let output = run(&refused, &["nodes", "list"]);
    assert!(output.code != 0 && output.stderr.contains("401"), "{output:?}");

    // a user name with the correct and with a wrong password
    site.root(&["user", "add", "named:hunter2-etcd"]);
    site.root(&["user", "grant-role", "named", "cketerm-operator"]);
    let text = std::fs::read_to_string(&operator).unwrap();
    let with = |name: &str, password: &str| {
        let more = format!("etcd:\n  username: named\n  password: {password}\n");
        site.private(name, &text.replacen("etcd:\n", &more, 1))
    };
    let (named, wrong) = (with("named.yaml", "hunter2-etcd"), with("wrong.yaml", "hunter2-mistyped"));
    let output = run(&named, &["-v", "rq", "list"]);
    assert_eq!(output.code, 0, "{output:?}");
    let output = run(&wrong, &["-v", "rq", "list"]);
    assert!(output.code != 0 && output.stderr.contains("authentication"), "{output:?}");

    let configs = [("engine", &*engine), ("refused", &*refused), ("named", &*named), ("wrong", &*wrong)];
    let outputs = everything(&site, &daemon, &operator, &configs, &logs);
    let key = std::fs::read_to_string(site.file("engine.key")).unwrap();
    let body = key.lines().nth(1).expect("the key's body follows the header line").to_owned();
    for (place, text) in &outputs {
        for secret in [SECRET, &body] {
            let at = text.find(secret).map(|at| {
                let from = text.floor_char_boundary(at.saturating_sub(200));
                &text[from..text.ceil_char_boundary((at + 60).min(text.len()))]
            });
            assert!(at.is_none(), "{place}: …{}…", at.unwrap_or_default());
        }
    }
    let hook = "http://127.0.0.1:1/…";
    assert!(outputs.iter().any(|(_, text)| text.contains(hook)), "a receiver's URL is printed without its path");
    let written: usize = outputs.iter().map(|(_, text)| text.len()).sum();
    assert!(
        outputs.len() > 30 && written > 50_000,
        "only {} outputs with {written} bytes were searched",
        outputs.len()
    );
}

/// Everything that anybody can read: output of commands, the engine's log and endpoints, contents of etcd and
/// Kubernetes.
fn everything(
    site: &Site,
    daemon: &Daemon,
    operator: &Path,
    configs: &[(&str, &Path)],
    logs: &Path,
) -> Vec<(String, String)> {
    let mut outputs = Vec::new();
    let engine = configs[0].1;
    let state = site.served.dir.join("state.json");
    std::fs::write(&state, run(operator, &["state"]).stdout).unwrap();
    let state = state.to_str().unwrap();
    let commands: &[&[&str]] = &[
        &["info"],
        &["info", "-o", "json"],
        &["config", "show"],
        &["config", "show", "-o", "json"],
        &["config", "check"],
        &["config", "default"],
        &["--help"],
        &["state"],
        &["decide", "--from", state, "--as-leader"],
        &["decide", "--from", state, "-o", "json"],
        &["-v", "rq", "list"],
        &["rq", "why", "0"],
        &["history", "--ended", "-o", "json"],
        &["history", "--ended"],
        &["audit", "-o", "json"],
        &["audit"],
        &["notices", "list"],
        &["notices", "list", "-o", "json"],
        &["notices", "test", "here"],
        &["-v", "notices", "test", "file"],
        &["sabakan", "plan"],
        &["-v", "power", "status", &site.address],
        &["power", "status", "10.255.255.1"],
        &["nodes", "list"],
        &["hosts", "list"],
        &["leader"],
        &["screenshot", "--view", "overview", "--size", "200x60"],
        &["screenshot", "--view", "registry", "--size", "200x60", "--keys", "enter"],
        &["screenshot", "--view", "history", "--size", "200x60", "--keys", "enter"],
        &["screenshot", "--view", "audit", "--size", "200x60", "--keys", "enter"],
        &["screenshot", "--view", "reboots", "--size", "200x60", "--keys", "?"],
        &["nonsense", "--reason", "x"],
    ];
    for (who, config) in configs {
        for arguments in commands {
            let output = run(config, arguments);
            outputs.push((format!("{who}: {arguments:?}"), format!("{}{}", output.stdout, output.stderr)));
        }
    }
    // configurations with a mistake next to each secret
    for (i, (right, wrong)) in
        [("tls-key:", "tls-kex:"), ("notices:", "notises:"), ("url: ", "urk: "), ("log: {", "log: [")]
            .iter()
            .enumerate()
    {
        let text = std::fs::read_to_string(engine).unwrap().replacen(right, wrong, 1);
        let output = run(&site.private(&format!("wrong-{i}.yaml"), &text), &["config", "check"]);
        assert_ne!(output.code, 0, "{wrong}: {output:?}");
        outputs.push((format!("config check with {wrong}"), format!("{}{}", output.stdout, output.stderr)));
    }
    for page in ["/metrics", "/readyz", "/healthz", "/state"] {
        outputs.push((format!("GET {page}"), daemon.page(page).1));
    }
    outputs.push(("the engine's standard error".to_owned(), daemon.logged()));
    for file in std::fs::read_dir(logs).expect("the log directory is readable").flatten() {
        let text = String::from_utf8_lossy(&std::fs::read(file.path()).unwrap()).into_owned();
        outputs.push((format!("the log {}", file.path().display()), text));
    }
    assert!(
        outputs.iter().any(|(place, text)| place.starts_with("the log ") && text.contains("became the leader")),
        "no log file contains the engine's messages"
    );
    // the command line of the running program
    let cmdline = std::fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap_or_default();
    outputs.push(("its command line".to_owned(), String::from_utf8_lossy(&cmdline).into_owned()));
    // all keys, except the one in which the operator stored the URL
    let mut etcd = String::new();
    for key in site.root(&["get", "/cke/", "--prefix", "--keys-only"]).lines().filter(|key| *key != "/cke/sabakan/url")
    {
        if !key.is_empty() {
            let _ = writeln!(etcd, "{key} {}", site.root(&["get", key, "--print-value-only"]));
        }
    }
    outputs.push(("etcd".to_owned(), etcd));
    let api = site.served.facts["kubernetes"].as_str().unwrap();
    let bearer = [("Authorization", "Bearer admin")];
    for path in ["/api/v1/events", "/api/v1/nodes", "/api/v1/pods"] {
        let (code, text) = http("GET", &format!("{api}{path}"), &bearer, "");
        assert_eq!(code, 200, "{path}: {text}");
        outputs.push((format!("Kubernetes {path}"), text));
    }
    outputs
}
