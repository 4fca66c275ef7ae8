//! The shared API servers, and a plain client for everybody else: kubelet, controllers, administrators.

use std::{
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use cketerm_clients::kubernetes::{Kube, KubeSettings};
use cketerm_model::{
    clock::Clock,
    fence::{Fence, Life, Permit},
};
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};

use crate::world::{self, EtcdVersion, Options, World};

/// A running etcd and API server.
pub(crate) struct Server {
    pub(crate) dir: PathBuf,
    pub(crate) etcd: String,
    /// Whether it cannot stream lists.
    pub(crate) old: bool,
}

/// Both kinds, shared by all tests of this file. They end with this process. Missing ones are skipped with a clear
/// message. They are not a `World` each, because worlds take turns and these stay for the whole run.
pub(crate) fn both() -> Vec<&'static Server> {
    static BOTH: [OnceLock<Option<Server>>; 2] = [OnceLock::new(), OnceLock::new()];
    BOTH.iter().enumerate().filter_map(|(i, server)| server.get_or_init(|| shared(i == 1)).as_ref()).collect()
}

fn shared(old: bool) -> Option<Server> {
    let version = if old { EtcdVersion::V34 } else { EtcdVersion::V36 };
    let args = world::kubernetes_on(version)?;
    let dir = tempfile::Builder::new().prefix("cketerm-kube-").tempdir().unwrap().keep();
    let mut up = world::script("up");
    let up = up.args(["--audit", "--while", &std::process::id().to_string()]).args(args).arg(&dir);
    let out = up.output().unwrap();
    assert!(out.status.success(), "the servers did not start: {}", String::from_utf8_lossy(&out.stderr));
    let facts = String::from_utf8_lossy(&out.stdout).into_owned();
    let etcd = facts.lines().find_map(|l| l.strip_prefix("ETCD=")).unwrap().to_owned();
    Some(Server { dir, etcd, old })
}

/// A server for a test that stops it or counts its requests.
pub(crate) fn dedicated(old: bool) -> Option<(World, Server)> {
    let world = World::start(Options { audit: true, etcd34: old, ..Options::default() })?;
    let server = Server { dir: world.dir().to_owned(), etcd: world.etcd.clone(), old };
    Some((world, server))
}

impl Server {
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// The module under test, as a user that the audit log can tell from the rest.
    pub(crate) async fn kube(&self) -> Kube {
        connect(&self.dir.join("kubeconfig-bench")).await
    }

    /// Client for everybody else.
    pub(crate) async fn api(&self) -> Api {
        let kubeconfig = kube::config::Kubeconfig::read_from(self.kubeconfig()).unwrap();
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Api { client: kube::Client::try_from(config).unwrap() }
    }

    /// Finished requests of the user under test: verb and address.
    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        let log = std::fs::read_to_string(self.dir.join("audit.log")).unwrap();
        log.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|e| e["user"]["username"] == "bench")
            .map(|e| {
                (
                    e["verb"].as_str().unwrap_or_default().to_owned(),
                    e["requestURI"].as_str().unwrap_or_default().to_owned(),
                )
            })
            .collect()
    }
}

pub(crate) async fn connect(kubeconfig: &Path) -> Kube {
    let settings = KubeSettings { kubeconfig: Some(kubeconfig.to_owned()), ..KubeSettings::default() };
    Kube::connect(&settings, Clock::host()).await.unwrap()
}

pub(crate) fn permit() -> Permit {
    let clock = Clock::host();
    let life = Life::new(clock.clone(), Duration::from_mins(10), clock.boot());
    Fence::new("test", 1, 1, life).permit_record().expect("the lease has begun just now")
}

/// Returns a name that no other test has.
pub(crate) fn unique_name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Waits until the condition holds, for ten seconds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out after ten seconds: {what}");
}

pub(crate) struct Api {
    pub(crate) client: kube::Client,
}

impl Api {
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value, kind: &str) -> (u16, Value) {
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(if body.is_null() { vec![] } else { body.to_string().into_bytes() }).unwrap();
        match self.client.request::<Value>(request).await {
            Ok(value) => (200, value),
            Err(kube::Error::Api(status)) => (status.code, json!({"message": status.message})),
            Err(other) => panic!("{method} {path}: {other}"),
        }
    }

    async fn ok(&self, method: &str, path: &str, body: Value, kind: &str) -> Value {
        let (code, answer) = self.call(method, path, body, kind).await;
        assert_eq!(code, 200, "{method} {path}: {answer}");
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ok("GET", path, Value::Null, "application/json").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.ok("POST", path, body, "application/json").await
    }

    pub(crate) async fn merge(&self, path: &str, body: Value) -> Value {
        self.ok("PATCH", path, body, "application/merge-patch+json").await
    }

    pub(crate) async fn delete(&self, path: &str) -> Value {
        self.ok(
            "DELETE",
            path,
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}),
            "application/json",
        )
        .await
    }

    /// Creates a namespace for the test.
    pub(crate) async fn namespace(&self) -> String {
        let name = unique_name("t");
        self.post("/api/v1/namespaces", json!({"metadata": {"name": name, "labels": {"team": "a"}}})).await;
        name
    }

    /// Creates a Ready node with an address.
    pub(crate) async fn node(&self, address: &str) -> String {
        let name = unique_name("node");
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "rack1",
            "node-role.kubernetes.io/worker": "", "cke.cybozu.com/role": "ss", "noise": "x"});
        self.post("/api/v1/nodes", json!({"metadata": {"name": name, "labels": labels}})).await;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}],
            "volumesInUse": ["kubernetes.io/csi/x"],
            "nodeInfo": {"bootID": "boot-1", "kubeletVersion": "v1.35.4", "architecture": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                "systemUUID": ""}}});
        self.merge(&format!("/api/v1/nodes/{name}/status"), status).await;
        name
    }

    /// Creates a running, ready pod with the label `app: a`.
    pub(crate) async fn pod(&self, namespace: &str, name: &str, node: &str) {
        self.post(
            &format!("/api/v1/namespaces/{namespace}/pods"),
            json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": {"nodeName": node,
                "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "none"}]}}),
        )
        .await;
        self.phase(namespace, name, "Running", true).await;
    }

    pub(crate) async fn phase(&self, namespace: &str, name: &str, phase: &str, ready: bool) {
        let ready = if ready { "True" } else { "False" };
        self.merge(
            &format!("/api/v1/namespaces/{namespace}/pods/{name}/status"),
            json!({"status": {"phase": phase, "conditions":
                [{"type": "Ready", "status": ready, "lastTransitionTime": "2025-01-01T00:00:00Z"}]}}),
        )
        .await;
    }

    /// Creates a budget for `app: a`.
    pub(crate) async fn budget(&self, namespace: &str, name: &str) {
        self.post(
            &format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"),
            json!({"metadata": {"name": name}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}}),
        )
        .await;
    }

    /// Writes a status as the disruption controller would, `behind` generations late.
    pub(crate) async fn budget_status(&self, namespace: &str, name: &str, behind: i64, numbers: (i32, i32, i32)) {
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}");
        let generation = self.get(&path).await["metadata"]["generation"].as_i64().unwrap();
        let (allowed, healthy, desired) = numbers;
        self.merge(
            &format!("{path}/status"),
            json!({"status": {"observedGeneration": generation - behind, "disruptionsAllowed": allowed,
                "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": 3}}),
        )
        .await;
    }
}
