//! Output of `kubectl`, as an operator sees it.

use std::{process::Stdio, sync::Arc};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
};

use super::{
    super::target::Target,
    lists::is_age,
    session::{PODS, Session, pod},
};

crate::conformance::cases!("kubectl":
    get_nodes, get_pods, get_other_kinds, get_what_is_not_there, cordon_and_uncordon, taint, label_and_annotate, drain, drain_refuses,
    drain_against_a_budget, drain_for_show, delete, create_and_apply, patch, wait, get_and_watch, rights, version, kinds, describe);

impl Session {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.target.kubectl);
        command.args(args.iter().map(|a| a.replace('@', &self.ns)));
        command
            .env_clear()
            .env("KUBECONFIG", &self.target.kubeconfig)
            .env("HOME", self.target.home())
            .env("PATH", "/bin");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs it and keeps its output, words only.
    async fn kubectl(&mut self, args: &[&str]) {
        let out = self.command(args).output().await.expect("kubectl starts");
        self.ran(&args.join(" "), &out);
    }

    async fn kubectl_with(&mut self, args: &[&str], input: &Value) {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("kubectl starts");
        let text = input.to_string().replace('@', &self.ns);
        child.stdin.take().expect("a pipe to stdin").write_all(text.as_bytes()).await.expect("kubectl reads its input");
        let out = child.wait_with_output().await.expect("kubectl exits");
        self.ran(&args.join(" "), &out);
    }

    fn ran(&mut self, what: &str, out: &std::process::Output) {
        let (stdout, stderr) = (words(&out.stdout), words(&out.stderr));
        self.note(what, &json!({"code": out.status.code(), "out": stdout, "err": stderr}));
    }
}

/// Lines of the output with one space between words, and without ages.
fn words(bytes: &[u8]) -> Vec<String> {
    let word = |w: &str| if is_age(w) { "<age>".to_owned() } else { w.to_owned() };
    let line = |l: &str| {
        let line = l.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
        // kubectl keeps the reasons of this warning in a map, in an order that differs in each run
        let Some(reasons) = line.strip_prefix("Warning: ") else { return line };
        let mut reasons: Vec<&str> = reasons.split("; ").collect();
        reasons.sort_unstable();
        format!("Warning: {}", reasons.join("; "))
    };
    String::from_utf8_lossy(bytes).lines().map(line).collect()
}

async fn get_nodes(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    k.node("m").await;
    k.ok("PATCH", &node, json!({"spec": {"unschedulable": true}})).await;
    let of = ["-l", "case=@"];
    for more in [&[][..], &["-o", "wide"], &["-o", "name"], &["--no-headers"], &["--show-labels"], &["-L", "case"]] {
        k.kubectl(&[&["get", "nodes"], &of[..], more].concat()).await;
    }
    let path = "jsonpath={.items[*].metadata.name}";
    k.kubectl(&["get", "nodes", "-l", "case=@", "-o", path]).await;
    k.kubectl(&["get", "no/@-n"]).await;
    k.kubectl(&["get", "nodes", "-l", "case=none"]).await;
    k.end()
}

async fn get_pods(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.kubectl(&["get", "pods", "-n", "@"]).await;
    k.pod("p").await;
    k.pod_as("q", "Pending", false).await;
    k.pod_as("r", "Succeeded", false).await;
    let going = k.pod("s").await;
    k.delete(&going, json!({})).await;
    for more in [
        &[][..],
        &["-o", "wide"],
        &["--show-labels"],
        &["-l", "app=b"],
        &["--field-selector", "status.phase=Running"],
        &["-o", "name"],
    ] {
        k.kubectl(&[&["get", "pods", "-n", "@"], more].concat()).await;
    }
    k.kubectl(&["get", "pods", "-A", "--field-selector", "spec.nodeName=@-n"]).await;
    k.kubectl(&["get", "po", "p", "-n", "@", "-o", "jsonpath={.status.phase} {.spec.nodeName}"]).await;
    k.end()
}

async fn get_other_kinds(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 1, 3, 2).await;
    k.budget("c", json!({"maxUnavailable": "25%"})).await;
    let template = json!({"metadata": {"labels": {"d": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let selector = json!({"matchLabels": {"d": "1"}});
    for (kind, name) in [("daemonsets", "d"), ("replicasets", "r")] {
        let body = json!({"metadata": {"name": name}, "spec": {"selector": selector, "template": template}});
        k.ok("POST", &format!("/apis/apps/v1/namespaces/@/{kind}"), body).await;
    }
    for kind in ["pdb", "ds", "rs", "jobs", "ns/@"] {
        k.kubectl(&["get", kind, "-n", "@"]).await;
    }
    k.end()
}

async fn get_what_is_not_there(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.kubectl(&["get", "pod", "none", "-n", "@"]).await;
    k.kubectl(&["get", "node", "@-none"]).await;
    k.kubectl(&["get", "node", "@-none", "--ignore-not-found"]).await;
    k.kubectl(&["get", "things"]).await;
    k.kubectl(&["delete", "pod", "none", "-n", "@"]).await;
    k.end()
}

async fn cordon_and_uncordon(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    for word in ["cordon", "cordon", "uncordon", "uncordon"] {
        k.kubectl(&[word, "@-n"]).await;
        k.note_object("the node", &node, &["/spec/unschedulable"]).await;
    }
    k.kubectl(&["cordon", "@-none"]).await;
    k.kubectl(&["cordon", "@-n", "--dry-run=server"]).await;
    k.kubectl(&["cordon", "-l", "case=@"]).await;
    k.note_object("the node", &node, &["/spec/unschedulable"]).await;
    k.end()
}

async fn taint(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    for more in [
        &["k=v:NoSchedule"][..],
        &["k=w:NoSchedule"],
        &["k=w:NoSchedule", "--overwrite"],
        &["x:NoExecute"],
        &["k-"],
        &["k-"],
        &["x:NoExecute-"],
    ] {
        k.kubectl(&[&["taint", "nodes", "@-n"], more].concat()).await;
        k.note_object("the node", &node, &["/spec/taints"]).await;
    }
    k.end()
}

async fn label_and_annotate(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    for more in [&["a=b"][..], &["a=b"], &["a=c"], &["a=c", "--overwrite"], &["a-"], &["a-"]] {
        for word in ["label", "annotate"] {
            k.kubectl(&[&[word, "node", "@-n"], more].concat()).await;
        }
        k.note_object("the node", &node, &["/metadata/labels/a", "/metadata/annotations/a"]).await;
    }
    k.end()
}

/// Creates a pod that is gone as soon as it is evicted: no kubelet is here to end it.
async fn evictable_pod(k: &Session, name: &str, owner: Value) {
    let mut body = pod(name);
    body["spec"]["terminationGracePeriodSeconds"] = json!(0);
    if !owner.is_null() {
        body["metadata"]["ownerReferences"] = json!([owner]);
    }
    k.ok("POST", PODS, body).await;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    k.ok("PATCH", &format!("{PODS}/{name}/status"), status).await;
}

/// The owner reference of a new set of that kind.
async fn owner(k: &Session, kind: &str) -> Value {
    let template = json!({"metadata": {"labels": {"d": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body =
        json!({"metadata": {"name": "owner"}, "spec": {"selector": {"matchLabels": {"d": "1"}}, "template": template}});
    let plural = format!("{}s", kind.to_lowercase());
    let made = k.ok("POST", &format!("/apis/apps/v1/namespaces/@/{plural}"), body).await;
    json!({"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": made["metadata"]["uid"], "controller": true})
}

async fn drain(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    let set = owner(&k, "ReplicaSet").await;
    evictable_pod(&k, "p", set.clone()).await;
    k.kubectl(&["drain", "@-n", "--timeout=20s"]).await;
    k.note_object("the node", &node, &["/spec/unschedulable"]).await;
    k.note_object("pods", PODS, &["/items/0/metadata/name"]).await;
    k.kubectl(&["drain", "@-n", "--timeout=20s"]).await;
    k.end()
}

async fn drain_refuses(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    let set = owner(&k, "DaemonSet").await;
    evictable_pod(&k, "daemon", set).await;
    k.kubectl(&["drain", "@-n", "--timeout=20s"]).await;
    k.note_object("the node", &node, &["/spec/unschedulable"]).await;
    evictable_pod(&k, "bare", Value::Null).await;
    k.kubectl(&["drain", "@-n", "--ignore-daemonsets", "--timeout=20s"]).await;
    k.kubectl(&["drain", "@-n", "--ignore-daemonsets", "--force", "--timeout=20s"]).await;
    k.note_object("pods", PODS, &["/items/0/metadata/name", "/items/1/metadata/name"]).await;
    k.kubectl(&["uncordon", "@-n"]).await;
    k.kubectl(&["drain", "@-none"]).await;
    k.end()
}

async fn drain_against_a_budget(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.node("n").await;
    let set = owner(&k, "ReplicaSet").await;
    evictable_pod(&k, "p", set.clone()).await;
    let budget = k.budget("b", json!({})).await;
    k.budget_status(&budget, 0, 2, 2).await;
    k.kubectl(&["drain", "@-n", "--timeout=2s"]).await;
    k.note_object("the pod", &format!("{PODS}/p"), &["/metadata/deletionTimestamp"]).await;
    k.budget_status(&budget, 1, 3, 2).await;
    k.kubectl(&["drain", "@-n", "--timeout=20s"]).await;
    k.note_object("the budget", &budget, &["/status/disruptionsAllowed"]).await;
    evictable_pod(&k, "q", set).await;
    k.kubectl(&["drain", "@-n", "--disable-eviction", "--timeout=20s"]).await;
    k.end()
}

async fn drain_for_show(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    let set = owner(&k, "ReplicaSet").await;
    evictable_pod(&k, "p", set).await;
    for how in ["client", "server"] {
        k.kubectl(&["drain", "@-n", &format!("--dry-run={how}")]).await;
    }
    k.note_object("the node", &node, &["/spec/unschedulable"]).await;
    k.note_object("the pod", &format!("{PODS}/p"), &["/metadata/deletionTimestamp"]).await;
    k.end()
}

async fn delete(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.node("n").await;
    k.pod("p").await;
    k.pod("q").await;
    k.kubectl(&["delete", "pod", "p", "-n", "@", "--grace-period=0", "--force"]).await;
    k.kubectl(&["delete", "pod", "q", "-n", "@", "--now", "--wait=false"]).await;
    k.kubectl(&["delete", "pods", "-n", "@", "-l", "app=none"]).await;
    k.kubectl(&["delete", "node", "@-n"]).await;
    k.end()
}

async fn create_and_apply(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let mut body = pod("p");
    body["metadata"]["namespace"] = json!("@");
    for word in ["create", "create", "apply", "apply"] {
        k.kubectl_with(&[word, "--validate=false", "-f", "-"], &body).await;
    }
    body["metadata"]["labels"]["new"] = json!("yes");
    k.kubectl_with(&["apply", "--validate=false", "-f", "-"], &body).await;
    k.note_object("the pod", &format!("{PODS}/p"), &["/metadata/labels"]).await;
    k.kubectl(&["create", "namespace", "@"]).await;
    k.end()
}

async fn patch(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    for (kind, text) in [
        ("strategic", "{\"spec\":{\"unschedulable\":true}}"),
        ("strategic", "{\"spec\":{\"unschedulable\":true}}"),
        ("merge", "{\"metadata\":{\"labels\":{\"case\":null}}}"),
        ("json", "[{\"op\":\"remove\",\"path\":\"/spec/unschedulable\"}]"),
    ] {
        k.kubectl(&["patch", "node", "@-n", "--type", kind, "-p", text]).await;
    }
    k.note_object("the node", &node, &["/spec/unschedulable", "/metadata/labels"]).await;
    k.end()
}

async fn wait(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.node("n").await;
    k.pod("p").await;
    k.kubectl(&["wait", "--for=condition=Ready", "node/@-n", "--timeout=10s"]).await;
    k.kubectl(&["wait", "--for=condition=Ready", "pod/p", "-n", "@", "--timeout=10s"]).await;
    k.kubectl(&["wait", "--for=delete", "pod/none", "-n", "@", "--timeout=10s"]).await;
    k.end()
}

async fn get_and_watch(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    let mut child = k.command(&["get", "nodes", "-l", "case=@", "-w"]).spawn().expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe from stdout")).lines();
    let mut printed = Vec::new();
    for cordon in [true, false, true] {
        while let Ok(Ok(Some(line))) = tokio::time::timeout(std::time::Duration::from_secs(10), lines.next_line()).await
        {
            let last = !line.starts_with("NAME");
            printed.extend(words(line.as_bytes()));
            if last {
                break;
            }
        }
        k.ok("PATCH", &node, json!({"spec": {"unschedulable": cordon}})).await;
    }
    k.note("lines", &json!(printed));
    k.end()
}

async fn rights(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    k.kubectl(&["auth", "can-i", "patch", "nodes"]).await;
    k.kubectl(&["auth", "can-i", "create", "pods/eviction", "-n", "@"]).await;
    k.end()
}

async fn version(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let out = k.command(&["version", "-o", "json"]).output().await.expect("kubectl starts");
    let printed: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
    let server = &printed["serverVersion"];
    k.note("server", &json!({"code": out.status.code(), "major": server["major"], "minor": server["minor"]}));
    k.kubectl(&["get", "--raw", "/readyz"]).await;
    k.end()
}

async fn kinds(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let out = k.command(&["api-resources", "--no-headers"]).output().await.expect("kubectl starts");
    let printed = words(&out.stdout);
    let expected =
        ["nodes ", "pods ", "namespaces ", "poddisruptionbudgets ", "daemonsets ", "replicasets ", "jobs ", "leases "];
    let lines: Vec<&String> = expected.iter().filter_map(|w| printed.iter().find(|l| l.starts_with(w))).collect();
    let code = out.status.code();
    k.note("kinds", &json!({"code": code, "lines": lines}));
    k.end()
}

async fn describe(target: Arc<Target>) -> Value {
    let mut k = Session::new(target).await;
    let node = k.node("n").await;
    k.ok("PATCH", &node, json!({"spec": {"unschedulable": true}})).await;
    let out = k.command(&["describe", "node", "@-n"]).output().await.expect("kubectl starts");
    let printed = words(&out.stdout);
    let expected = ["Name:", "Unschedulable:", "Ready ", "InternalIP:", "Kubelet Version:"];
    let lines: Vec<&String> = expected.iter().filter_map(|w| printed.iter().find(|l| l.starts_with(w))).collect();
    let code = out.status.code();
    k.note("a node", &json!({"code": code, "lines": lines}));
    k.end()
}
