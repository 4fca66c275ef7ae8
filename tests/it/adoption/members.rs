//! Control planes of a site: an etcd of Kubernetes with three members, and an API server at port 6443 of each address.

use std::{
    io,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::world::{World, built, wait_for};

/// Members `NETWORK.1` to `.3` of the etcd of Kubernetes.
pub(super) struct ClusterEtcd {
    running: Vec<Child>,
    /// URLs for clients, separated by commas.
    pub urls: String,
}

impl ClusterEtcd {
    pub(super) fn start(dir: &Path, network: &str) -> Option<Self> {
        let program = built("etcd")?;
        let peer = |i: u8| format!("http://{network}.{i}:2380");
        let client = |i: u8| format!("http://{network}.{i}:2379");
        let initial: Vec<String> = (1..=3).map(|i| format!("m{i}={}", peer(i))).collect();
        let running = (1..=3)
            .map(|i| {
                let mut command = Command::new(&program);
                command.args(["--name", &format!("m{i}"), "--unsafe-no-fsync"]);
                command.arg("--data-dir").arg(dir.join(format!("m{i}")));
                command.args(["--listen-client-urls", &client(i), "--advertise-client-urls", &client(i)]);
                command.args(["--listen-peer-urls", &peer(i), "--initial-advertise-peer-urls", &peer(i)]);
                command.args(["--initial-cluster", &initial.join(",")]);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("etcd starts")
            })
            .collect();
        let urls = (1..=3).map(client).collect::<Vec<_>>().join(",");
        wait_for("the etcd of Kubernetes answers", 60, || {
            let answers = |i: u8| TcpStream::connect(format!("{network}.{i}:2379")).is_ok();
            (1..=3).all(answers).then_some(())
        });
        Some(Self { running, urls })
    }
}

impl Drop for ClusterEtcd {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Lets the API server of a world answer at port 6443 of these addresses, too.
pub(super) fn api_servers(world: &World, addresses: impl IntoIterator<Item = String>) {
    let server = world.api.trim_start_matches("https://").to_owned();
    for address in addresses {
        let listener = TcpListener::bind((address.as_str(), 6443)).expect("an address of this host");
        let server = server.clone();
        std::thread::spawn(move || {
            for one in listener.incoming().flatten() {
                let Ok(other) = TcpStream::connect(&server) else { continue };
                let pairs = [(one.try_clone(), other.try_clone()), (Ok(other), Ok(one))];
                for (from, to) in pairs {
                    let (Ok(mut from), Ok(mut to)) = (from, to) else { continue };
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
    }
}
