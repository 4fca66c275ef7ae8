//! Output of `etcdctl`, as an operator sees it.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{super::target::Target, session::Session};

crate::conformance::cases!("etcdctl": reads_and_writes, a_transaction, leases, the_server, a_watch_of_the_past);

/// Reports whether this machine has it.
pub fn is_installed() -> bool {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg("version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|s| s.success())
}

impl Session {
    /// Runs it and keeps code and output; `@` is the prefix of the case.
    fn ctl(&mut self, target: &Target, args: &[&str], input: &str) {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &target.etcd]);
        command.args(args.iter().map(|a| a.replace('@', &self.prefix)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("etcdctl starts");
        let text = input.replace('@', &self.prefix);
        child.stdin.take().expect("a pipe to stdin").write_all(text.as_bytes()).expect("etcdctl reads its input");
        let out = child.wait_with_output().expect("etcdctl exits");
        let printed = String::from_utf8_lossy(&out.stdout).replace(&target.etcd, "<etcd>");
        let lines: Vec<String> = printed.lines().map(|l| self.plain(l)).collect();
        self.note(&args.join(" "), json!({"code": out.status.code(), "out": lines}));
    }
}

async fn reads_and_writes(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "ctl").await;
    for args in [
        &["put", "@a", "1"][..],
        &["put", "@b", "2"],
        &["put", "@b", "3", "--prev-kv"],
        &["get", "@a"],
        &["get", "--prefix", "@"],
        &["get", "--prefix", "@", "--keys-only"],
        &["get", "--prefix", "@", "--print-value-only", "--limit", "1"],
        &["get", "--prefix", "@", "--sort-by", "VALUE", "--order", "DESCEND"],
        &["get", "@none"],
        &["del", "@a", "--prev-kv"],
        &["del", "--prefix", "@"],
        &["del", "@none"],
    ] {
        t.ctl(&target, args, "");
    }
    t.end()
}

async fn a_transaction(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "ctl-txn").await;
    let text = "version(\"@a\") = \"0\"\n\nput @a 1\nput @b 2\n\nget @a\n\n";
    t.ctl(&target, &["txn"], text);
    t.ctl(&target, &["txn"], text);
    t.end()
}

async fn leases(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "ctl-lease").await;
    t.grant(0x7001, 600).await;
    t.ctl(&target, &["put", "@a", "1", "--lease", "7001"], "");
    t.ctl(&target, &["lease", "keep-alive", "--once", "7001"], "");
    t.ctl(&target, &["lease", "revoke", "7001"], "");
    t.ctl(&target, &["lease", "revoke", "7001"], "");
    t.ctl(&target, &["lease", "list"], "");
    t.ctl(&target, &["get", "--prefix", "@"], "");
    t.end()
}

async fn the_server(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "ctl-server").await;
    t.ctl(&target, &["alarm", "list"], "");
    t.ctl(&target, &["user", "list"], "");
    t.ctl(&target, &["role", "list"], "");
    for args in [&["endpoint", "health"][..], &["endpoint", "status"], &["member", "list"]] {
        // `endpoint status` of etcdctl 3.4 sends the whole URL as its :authority, which Rust's HTTP/2 refuses and Go's
        // accepts
        let bare = target.etcd.trim_start_matches("http://");
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", bare]).args(args);
        let out = command.output().expect("etcdctl starts");
        t.note(
            &args.join(" "),
            json!({"code": out.status.code(), "lines": String::from_utf8_lossy(&out.stdout).lines().count()}),
        );
    }
    t.end()
}

async fn a_watch_of_the_past(target: Arc<Target>) -> Value {
    let mut t = Session::new(&target, "ctl-watch").await;
    let from = (t.base + 1).to_string();
    t.fill(&[("a", "1"), ("b", "2"), ("a", "3")]).await;
    t.delete("b", None).await;
    let mut command = tokio::process::Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args([
        "--endpoints",
        &target.etcd,
        "watch",
        "--prefix",
        &t.prefix,
        "--rev",
        &from,
        "--prev-kv",
    ]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().expect("etcdctl starts");
    let output = tokio::io::BufReader::new(child.stdout.take().expect("a pipe from stdout"));
    let mut lines = tokio::io::AsyncBufReadExt::lines(output);
    let mut printed = Vec::new();
    // a put prints three lines, or five with a previous value; a deletion prints five
    while printed.len() < 15 {
        let line = tokio::time::timeout(std::time::Duration::from_secs(10), lines.next_line()).await;
        let Ok(Ok(Some(line))) = line else { break };
        printed.push(t.plain(&line));
    }
    t.note("lines", json!(printed));
    t.end()
}
