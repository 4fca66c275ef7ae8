//! Worlds that cases run on: real servers, and the sandbox behind loopback ports.

use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicUsize,
};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{report::SANDBOX, sandbox::Served};
use crate::world::{Etcd, EtcdVersion, Options, World, built, cluster::Machine};

/// A world for cases.
pub struct Target {
    /// Name in the report.
    pub name: &'static str,
    /// Client URL of etcd.
    pub etcd: String,
    /// Administrator's kubeconfig, where there is an API server.
    pub kubeconfig: PathBuf,
    /// Path of `kubectl`, if it is needed and installed.
    pub kubectl: PathBuf,
    /// Nodes whose pods run.
    pub workers: Vec<Machine>,
    /// Number of `workers` that are taken.
    pub taken: AtomicUsize,
    /// Whether pods without a node get one.
    pub schedules: bool,
    home: tempfile::TempDir,
    client: OnceCell<kube::Client>,
    servers: Servers,
}

/// Servers that end with the place.
#[allow(dead_code)] // kept so that they are dropped with the target
enum Servers {
    Etcd(Etcd),
    World(World),
    Sandbox(Served),
}

/// etcd 3.6, the reference, first; then Debian's 3.4.
pub fn etcds() -> Vec<Target> {
    let one = |(name, version)| {
        let etcd = Etcd::start(version)?;
        Some(Target::new(name, etcd.url.clone(), PathBuf::new(), Servers::Etcd(etcd)))
    };
    // without the reference there is nothing to compare
    let Some(truth) = one(("etcd 3.6", EtcdVersion::V36)) else { return Vec::new() };
    std::iter::once(truth).chain(one(("etcd 3.4", EtcdVersion::V34))).collect()
}

/// The sandbox's etcd and API server on loopback ports, without controllers.
pub fn sandbox() -> Target {
    let served = super::sandbox::serve();
    let (etcd, kubeconfig) = (served.etcd.clone(), served.kubeconfig.clone());
    Target::new(SANDBOX, etcd, kubeconfig, Servers::Sandbox(served))
}

/// The sandbox with machines, kubelets, a scheduler and controllers.
pub fn sandbox_with_controllers() -> Target {
    let served = super::sandbox::serve_with(&workers());
    let (etcd, kubeconfig) = (served.etcd.clone(), served.kubeconfig.clone());
    let mut target = Target::new(SANDBOX, etcd, kubeconfig, Servers::Sandbox(served));
    target.workers = workers();
    target.schedules = true;
    target
}

/// Machines of a place with controllers.
fn workers() -> Vec<Machine> {
    let one =
        |i| Machine { name: format!("worker-{i:02}"), address: format!("10.0.1.{}", i + 10), control_plane: false };
    (0..24).map(one).collect()
}

/// A real API server, alone or with controllers and kwok.
pub fn kubernetes(name: &'static str, controllers: bool) -> Option<Target> {
    let world = World::start(Options { kcm: controllers, kwok: controllers, ..Options::default() })?;
    let mut target = Target::new(name, world.etcd.clone(), world.kubeconfig.clone(), Servers::World(world));
    target.workers = if controllers { workers() } else { Vec::new() };
    Some(target)
}

impl Target {
    fn new(name: &'static str, etcd: String, kubeconfig: PathBuf, servers: Servers) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        Self {
            name,
            etcd,
            kubeconfig,
            kubectl: PathBuf::new(),
            workers: Vec::new(),
            taken: AtomicUsize::new(0),
            schedules: false,
            home,
            client: OnceCell::new(),
            servers,
        }
    }

    /// A home folder for programs.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Adds kubectl.
    pub fn with_kubectl(mut self) -> Self {
        self.kubectl = built("kubectl").unwrap_or_default();
        self
    }

    /// Registers the nodes, as kubelets do, and waits until they are Ready.
    pub async fn begin(&self) {
        if self.workers.is_empty() {
            return;
        }
        let client = self.client().await;
        let resources = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
        for w in &self.workers {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": w.name, "labels": {"kubernetes.io/hostname": w.name}},
                "status": {"addresses": [{"type": "InternalIP", "address": w.address}, {"type": "Hostname", "address": w.name}],
                    "capacity": resources, "allocatable": resources, "nodeInfo": {"bootID": format!("first-{}", w.name),
                    "architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "6.6.74", "kubeletVersion": "v1.35.4",
                    "containerRuntimeVersion": "containerd://2.0.2", "osImage": "Flatcar", "kubeProxyVersion": "",
                    "machineID": "", "systemUUID": ""}}});
            let request = http::Request::post("/api/v1/nodes").header("content-type", "application/json");
            let request = request.body(node.to_string().into_bytes()).expect("a request");
            client.request::<Value>(request).await.expect("a node");
        }
        for _ in 0..300 {
            let request = http::Request::get("/api/v1/nodes").body(Vec::new()).expect("a request");
            let list = client.request::<Value>(request).await.expect("nodes");
            let ready = |n: &&Value| {
                let conditions = n["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
            };
            if list["items"].as_array().into_iter().flatten().filter(ready).count() >= self.workers.len() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("{}: the nodes do not become Ready", self.name);
    }

    /// Client of the administrator.
    pub async fn client(&self) -> kube::Client {
        self.client.get_or_init(|| self.connect(|_| {})).await.clone()
    }

    /// Client with another token, or without one.
    pub async fn client_with(&self, token: Option<&str>) -> kube::Client {
        let token = token.map(|t| t.to_owned().into());
        self.connect(|config| config.auth_info.token = token).await
    }

    async fn connect(&self, change: impl FnOnce(&mut kube::Config)) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("the kubeconfig is valid");
        config.default_retry = false;
        change(&mut config);
        kube::Client::try_from(config).expect("a client")
    }

    /// Compacts the history of the API server's store up to now.
    pub async fn compact(&self) {
        match &self.servers {
            Servers::Sandbox(served) => served.compact(),
            Servers::Etcd(_) | Servers::World(_) => {
                let mut etcd = etcd_client::Client::connect([&self.etcd], None).await.expect("etcd is reachable");
                let now = etcd.get("\0", None).await.expect("a read").header().expect("a header").revision();
                // another case may have compacted it already
                drop(etcd.compact(now, None).await);
            }
        }
    }

    /// Same as compaction; in addition the API server drops what its watch cache keeps of the history.
    pub async fn forget(&self) {
        match &self.servers {
            Servers::World(world) => {
                world.act("kill", "apiserver");
                let address = world.api.trim_start_matches("https://");
                // its threads may outlive it: the next API server would end because its port is in use
                drop(std::net::TcpListener::bind(address).expect("the port of the killed API server is free"));
                self.compact().await;
                world.act("start", "apiserver");
                for _ in 0..300 {
                    let ready = http::Request::get("/readyz").body(kube::client::Body::empty()).expect("a request");
                    if self.client().await.send(ready).await.is_ok_and(|a| a.status() == 200) {
                        return;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                let log = std::fs::read_to_string(world.dir().join("log/apiserver.log")).unwrap_or_default();
                let last: Vec<_> = log.lines().rev().take(5).collect();
                panic!("the API server does not become ready again; its last lines, newest first: {last:#?}");
            }
            _ => self.compact().await,
        }
    }
}
