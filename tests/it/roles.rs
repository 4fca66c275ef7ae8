//! docs/etcd-roles.md, run as written: each role can do its work, with exactly those rights, and no more.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::world::{
    Etcd, EtcdVersion, found,
    program::{Daemon, RunOutput, command},
    sandbox::Served,
    wait_for,
};

/// Commands of the document, in its order.
pub fn documented() -> Vec<Vec<String>> {
    let text = include_str!("../../docs/etcd-roles.md");
    let commands = text.lines().filter_map(|l| l.strip_prefix("    etcdctl "));
    commands.map(|c| c.split_whitespace().map(str::to_owned).collect()).collect()
}

fn etcdctl(file: &Path, url: &str, args: &[&str]) {
    let patient = ["--command-timeout=30s", "--dial-timeout=30s", "--endpoints", url];
    let out = Command::new(file).env_clear().env("ETCDCTL_API", "3").args(patient).args(args).output();
    let out = out.expect("etcdctl starts");
    assert!(out.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn config(dir: &Path, url: &str, user: &str, kubeconfig: Option<&str>) -> PathBuf {
    let path = dir.join(format!("{user}.yaml"));
    let kubernetes = kubeconfig.map_or_else(String::new, |k| format!("kubernetes: {{kubeconfig: \"{k}\"}}\n"));
    let etcd = format!("etcd: {{timeout: 20s, endpoints: [\"{url}\"], username: {user}, password: pw-{user}}}\n");
    std::fs::write(&path, format!("{etcd}{kubernetes}")).expect("the configuration is written");
    // a file with a password must not be readable by everybody
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("the file's mode is set");
    path
}

fn run(config: &Path, args: &[&str], stdin: &str) -> RunOutput {
    use std::io::Write as _;
    let mut child = command()
        .arg("--config")
        .arg(config)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cketerm starts");
    let _ = child.stdin.take().expect("a pipe to stdin").write_all(stdin.as_bytes());
    let out = child.wait_with_output().expect("cketerm exits");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    RunOutput { code: out.status.code().unwrap_or(-1), stdout: text(&out.stdout), stderr: text(&out.stderr) }
}

/// `rq cancel-all` reads everything once more after its writes. If it could not, it only printed the error of that read.
#[test]
fn a_cancel_of_all_entries_is_reported_although_the_read_after_it_fails() {
    let Some(ctl) = found("etcdctl") else { return };
    let Some(etcd) = Etcd::start(EtcdVersion::V34) else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let ctl = |args: &[&str]| etcdctl(&ctl, &etcd.url, args);
    let entry = r#"{"index":"3","node":"10.0.0.12","status":"queued"}"#;
    ctl(&["put", "/cke/reboots/data/0000000000000003", entry]);
    ctl(&["role", "add", "narrow"]);
    for (right, key) in [
        ("read", "/cke/leader/"),
        ("read", "/cke/cketerm/policy"),
        ("read", "/cke/cketerm/engines/"),
        ("readwrite", "/cke/reboots/data/"),
        ("readwrite", "/cke/cketerm/cancels/"),
        ("readwrite", "/cke/cketerm/audit/"),
    ] {
        ctl(&["role", "grant-permission", "--prefix", "narrow", right, key]);
    }
    for (user, role) in [("root", "root"), ("narrow", "narrow")] {
        ctl(&["user", "add", &format!("{user}:pw-{user}")]);
        ctl(&["user", "grant-role", user, role]);
    }
    ctl(&["auth", "enable"]);
    let ran = run(&config(dir.path(), &etcd.url, "narrow", None), &["rq", "cancel-all"], "");
    assert!(
        ran.code == 1 && ran.stderr.starts_with("cancelled: 3\n") && ran.stderr.contains("denied access"),
        "{ran:?}"
    );
}

#[test]
fn each_documented_etcd_role_can_do_its_work_and_no_more() {
    let Some(ctl) = found("etcdctl") else { return };
    let Some(etcd) = Etcd::start(EtcdVersion::V34) else { return };
    let served = Served::start(&["--nodes", "6"]);
    let kubeconfig = served.facts["kubeconfig"].as_str().expect("a path");
    // the definition of the sandbox's machines, in an etcd with authentication
    let sandbox_config = Path::new(served.facts["config"].as_str().expect("a path"));
    let definition = run(sandbox_config, &["cluster", "get"], "").stdout;
    let address = {
        let nodes: serde_json::Value = serde_yaml::from_str(&definition).expect("YAML");
        let nodes = nodes["nodes"].as_array().expect("nodes").clone();
        let worker = nodes.iter().find(|n| n["control_plane"] != true).expect("a worker");
        worker["address"].as_str().expect("text").to_owned()
    };
    for command in documented() {
        etcdctl(&ctl, &etcd.url, &command.iter().map(String::as_str).collect::<Vec<_>>());
    }
    etcdctl(&ctl, &etcd.url, &["user", "add", "root:pw-root"]);
    etcdctl(&ctl, &etcd.url, &["user", "grant-role", "root", "root"]);
    for role in ["observer", "operator", "engine"] {
        etcdctl(&ctl, &etcd.url, &["user", "add", &format!("{role}:pw-{role}")]);
        etcdctl(&ctl, &etcd.url, &["user", "grant-role", role, &format!("cketerm-{role}")]);
    }
    etcdctl(&ctl, &etcd.url, &["auth", "enable"]);
    let [observer, operator, engine] =
        ["observer", "operator", "engine"].map(|user| config(&served.dir, &etcd.url, user, Some(kubeconfig)));

    let done = |args: &[&str], stdin: &str| {
        let output = run(&operator, args, stdin);
        assert_eq!(output.code, 0, "cketerm {args:?} as operator: {output:?}");
        output.stdout
    };
    done(&["constraints", "set", "control-plane-count", "3"], "");
    let file = served.dir.join("cluster.yml");
    std::fs::write(&file, &definition).expect("the definition is written");
    done(&["cluster", "set", file.to_str().expect("text")], "");
    done(&["cluster", "identify", "--confirm"], "");
    let policy: serde_json::Value =
        serde_json::from_str(&run(sandbox_config, &["policy", "show", "-o", "json"], "").stdout).expect("JSON");
    let probe = policy["control_plane_probe"].as_str().expect("the sandbox's policy has a control plane probe");
    done(&["policy", "set", "control_plane_probe", probe], "");
    // this engine cannot reach the etcd members of those control planes
    done(&["policy", "set", "etcd_members", "none"], "");

    // the engine leads with its rights, and completes the operator's entry
    let daemon = Daemon::start(&served.dir, &engine, "engine");
    wait_for("the engine leads", 60, || (daemon.page("/readyz").1 == "leading\n").then_some(()));
    done(&["rq", "add", "-", "--reason", "roles"], &address);
    done(&["rq", "wait", "--timeout-seconds", "120"], "");
    assert_eq!(served.power().iter().filter(|p| p.what == "begin").count(), 1);

    // all other commands of an operator
    done(&["stop", "--reason", "power"], "");
    done(&["resume"], "");
    done(&["rq", "disable"], "");
    done(&["rq", "add", "-"], &address);
    done(&["rq", "hold", "1", "--reason", "spare part"], "");
    done(&["rq", "unhold", "1"], "");
    done(&["rq", "reset-backoff"], "");
    done(&["rq", "cancel", "1"], "");
    done(&["rq", "enable"], "");
    done(&["repair-queue", "disable"], "");
    done(&["repair-queue", "add", "unreachable", "IPMI-2.0", &address], "");
    done(&["repair-queue", "delete", "0"], "");
    done(&["policy", "set", "settle_seconds", "61"], "");
    done(&["sabakan", "disable"], "");
    done(&["auto-repair", "disable"], "");
    done(&["sabakan", "hold", "--reason", "audit"], "");
    done(&["sabakan", "unhold"], "");

    // an operator's role of version 0.1 lacks the right to write batches: entries are queued without one
    let root = |args: &[&str]| etcdctl(&ctl, &etcd.url, &[&["--user", "root:pw-root"], args].concat());
    let batches = ["cketerm-operator", "/cke/cketerm/batches/", "--prefix=true"];
    root(&[&["role", "revoke-permission"], &batches[..]].concat());
    done(&["rq", "disable"], "");
    for (args, stdin) in [
        (&["rq", "add", "-"][..], address.as_str()),
        (&["repair-queue", "add", "unreachable", "IPMI-2.0", &address], ""),
    ] {
        let added = run(&operator, args, stdin);
        assert!(added.code == 0 && added.stderr.contains("these entries are no batch"), "{args:?}: {added:?}");
    }
    done(&["rq", "cancel", "2"], "");
    done(&["repair-queue", "delete", "1"], "");
    done(&["rq", "enable"], "");
    root(&["role", "grant-permission", "cketerm-operator", "readwrite", "/cke/cketerm/batches/", "--prefix=true"]);
    let (status, _) = daemon.terminate();
    assert!(status.success());

    // without a leading cketerm a cancel leaves a record, unless an older role forbids it
    let cancels = ["cketerm-operator", "/cke/cketerm/cancels/", "--prefix=true"];
    root(&[&["role", "revoke-permission"], &cancels[..]].concat());
    for index in ["3", "4"] {
        done(&["rq", "add", "-"], &address);
        done(&["rq", "cancel", index], "");
        root(&["role", "grant-permission", "cketerm-operator", "readwrite", "/cke/cketerm/cancels/", "--prefix=true"]);
    }

    // a missing right is reported before any attempt, by a request that writes nothing
    let revision = || {
        let args = ["--user", "root:pw-root", "--endpoints", &etcd.url, "get", "/cke/cluster", "--write-out=json"];
        let out = Command::new(&ctl).env_clear().env("ETCDCTL_API", "3").args(args).output().expect("etcdctl starts");
        let got: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        got["header"]["revision"].clone()
    };
    let before = revision();
    let lacking = |who: &Path| {
        let info: serde_json::Value =
            serde_json::from_str(&run(who, &["info", "-o", "json"], "").stdout).expect("JSON");
        info["you may not change"].as_array().expect("a list").clone()
    };
    assert_eq!((lacking(&operator).len(), lacking(&engine).len()), (0, 0));
    let all = lacking(&observer);
    assert_eq!(all.len(), 6, "{all:?}");
    assert!(all.iter().all(|why| why.as_str().is_some_and(|why| why.contains("docs/etcd-roles.md"))), "{all:?}");
    assert_eq!(before, revision());

    // an observer sees the same, and is refused before anything is written
    assert_eq!(run(&observer, &["rq", "list"], "").code, 0);
    let bundle = served.dir.join("bundle.tar.gz");
    let bundle = run(&observer, &["support-bundle", bundle.to_str().expect("text")], "");
    assert_eq!(bundle.code, 0, "{bundle:?}");
    let incomplete: Vec<&str> = bundle.stderr.lines().filter(|line| line.starts_with("warning: incomplete")).collect();
    let local = |line: &&str| line.contains("log.txt") || line.contains("metrics.txt");
    assert!(incomplete.iter().all(local), "an observer must be able to read all of a bundle: {incomplete:?}");
    for (args, stdin) in [
        (&["rq", "add", "-"][..], address.as_str()),
        (&["rq", "disable"], ""),
        (&["policy", "set", "settle_seconds", "1"], ""),
    ] {
        let output = run(&observer, args, stdin);
        assert!(output.code != 0 && output.stderr.contains("permission"), "{args:?}: {output:?}");
    }
    assert_eq!(
        run(&operator, &["rq", "is-enabled"], "").stdout.trim(),
        "true",
        "an observer must not change the switch"
    );

    // an engine with an operator's account reports the missing permission and does not lead
    let daemon = Daemon::start(&served.dir, &operator, "pretender");
    wait_for("the log names the missing permission", 60, || daemon.logged().contains("permission").then_some(()));
    assert_ne!(daemon.page("/readyz").1, "leading\n");
}
