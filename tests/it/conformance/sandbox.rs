//! The sandbox behind loopback ports, in a thread with a runtime of its own. A client cannot tell it from real servers.

use std::path::PathBuf;

use cketerm_model::{boot_time::Seconds, clock::Clock};
use cketerm_sandbox::{
    durations::{Durations, RandomDuration},
    etcd::Etcd,
    kubernetes::{
        Objects,
        api::{Api, ApiOptions},
        controllers::Controllers,
    },
    machines::{Machine, Machines},
};
use tokio::{net::TcpListener, sync::oneshot};

use crate::world::cluster::Machine as Worker;

/// A sandbox that is served until this is dropped.
pub struct Served {
    /// Client URL of etcd.
    pub etcd: String,
    /// Kubeconfig of an administrator.
    pub kubeconfig: PathBuf,
    objects: Objects,
    _dir: tempfile::TempDir,
    _end: oneshot::Sender<()>,
}

impl Served {
    /// Compacts the history of the API server up to now.
    pub fn compact(&self) {
        self.objects.compact();
    }
}

/// Serves a new sandbox in a thread.
pub fn serve() -> Served {
    serve_with(&[])
}

/// Same as [`serve`], with machines and controllers.
pub fn serve_with(workers: &[Worker]) -> Served {
    let machine = |w: &Worker| Machine { name: w.name.clone(), address: w.address.clone(), ..Machine::default() };
    let machines: Vec<Machine> = workers.iter().map(machine).collect();
    let (end, ended) = oneshot::channel::<()>();
    let (sender, receiver) = std::sync::mpsc::channel();
    let objects = Objects::new(Clock::host());
    // the token of the kubeconfig below
    let tokens = [("admin".to_owned(), "admin".to_owned())].into();
    let api = Api::new(objects.clone(), ApiOptions { tokens, ..ApiOptions::default() });
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let _controllers = (!machines.is_empty()).then(|| {
                let machines = Machines::new(machines, short_durations(), Clock::host(), 1);
                Controllers::start(api.objects().clone(), machines, short_durations(), 1)
            });
            let etcd = serve_etcd(&Etcd::new(Clock::host())).await;
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            tokio::spawn(axum::serve(listener, api.router()).into_future());
            sender.send((etcd, format!("http://{address}"))).expect("the receiver waits");
            let _ = ended.await;
        });
    });
    let (etcd, server) = receiver.recv().expect("the sandbox starts");
    let dir = tempfile::tempdir().expect("a folder");
    let kubeconfig = dir.path().join("kubeconfig");
    // without TLS kubectl sends no token except one in the URL
    let server = server.replacen("://", "://t:admin@", 1);
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: t\ncontexts: [{{name: t, context: {{cluster: t, user: t}}}}]\n\
         clusters: [{{name: t, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: t, user: {{token: admin}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).expect("a kubeconfig");
    Served { etcd, kubeconfig, objects, _dir: dir, _end: end }
}

/// Short durations: nobody watches this sandbox.
fn short_durations() -> Durations {
    let quick = RandomDuration::between(0.05, 0.2);
    Durations {
        pod_start: quick,
        pod_stop: quick,
        lag: Seconds::new(0.02),
        budget_lag: Seconds::new(0.05),
        ..Durations::demo()
    }
}

async fn serve_etcd(etcd: &Etcd) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder().add_routes(etcd.routes());
    tokio::spawn(server.serve_with_incoming(incoming));
    format!("http://{address}")
}
