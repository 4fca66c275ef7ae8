//! An engine behind a TCP proxy in front of a real kube-apiserver: one connection falls silent while all others work,
//! and every request takes three seconds.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use serde_json::json;

use crate::world::{
    Options, World,
    cluster::machines,
    history::changes,
    leader,
    program::{Daemon, config},
    wait_for,
};

/// One connection through the proxy.
#[derive(Default)]
struct Connection {
    /// Whether the client gets no more bytes.
    silent: AtomicBool,
    /// Number of bytes sent to the client.
    bytes_sent: AtomicU64,
}

#[derive(Default)]
struct Shared {
    connections: Mutex<Vec<Arc<Connection>>>,
    /// Delay of the client's bytes in milliseconds.
    delay: AtomicU64,
    /// Whether new connections are silent from the start.
    silent_from_start: AtomicBool,
}

struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    fn before(server: &str) -> Self {
        let server = server.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let shared_copy = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                let connection = Arc::new(Connection::default());
                connection.silent.store(shared_copy.silent_from_start.load(Ordering::SeqCst), Ordering::SeqCst);
                shared_copy.connections.lock().unwrap().push(Arc::clone(&connection));
                forward(&client, &upstream, &shared_copy, &connection);
            }
        });
        Self { port, shared }
    }

    /// Writes a kubeconfig like the world's that goes through the proxy.
    fn kubeconfig(&self, world: &World) -> PathBuf {
        let text = std::fs::read_to_string(&world.kubeconfig_bench).unwrap();
        let file = world.dir().join("kubeconfig-proxied");
        std::fs::write(&file, text.replace(&world.api, &format!("https://127.0.0.1:{}", self.port))).unwrap();
        file
    }

    fn daemon(&self, world: &World, ttl: &str) -> Daemon {
        let config = config(world.dir(), "proxied.yaml", &world.etcd, Some(&self.kubeconfig(world)), 5);
        let daemon = Daemon::start_in(world.dir(), &config, "engine", &[("CKETERM_LEASE_TTL", Path::new(ttl))]);
        daemon.ready();
        wait_for("the engine leads", 60, || leader::now(&world.etcd));
        daemon
    }

    /// Connection of the watch of Nodes: the one that carried most bytes while a Node was changed.
    fn watch_of_nodes(&self, world: &World) -> Arc<Connection> {
        wait_for("the watch of Nodes is found", 30, || {
            let all = self.shared.connections.lock().unwrap().clone();
            let before: Vec<u64> = all.iter().map(|c| c.bytes_sent.load(Ordering::SeqCst)).collect();
            for i in 0..10 {
                let note = json!({"metadata": {"annotations": {"example.org/note": i.to_string()}}});
                world.ok("PATCH", "/api/v1/nodes/w2", Some(&note));
            }
            sleep(Duration::from_millis(300));
            let received = all.iter().zip(before).map(|(c, b)| (c.bytes_sent.load(Ordering::SeqCst) - b, c));
            received.max_by_key(|(bytes, _)| *bytes).filter(|(bytes, _)| *bytes > 8_000).map(|(_, c)| Arc::clone(c))
        })
    }
}

fn forward(client: &TcpStream, upstream: &TcpStream, shared: &Arc<Shared>, connection: &Arc<Connection>) {
    let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
    let shared_copy = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            sleep(Duration::from_millis(shared_copy.delay.load(Ordering::SeqCst)));
            if to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to, connection) =
        (upstream.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(connection));
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            // on a silent connection the client receives neither data nor a close
            if connection.silent.load(Ordering::SeqCst) {
                continue;
            }
            connection.bytes_sent.fetch_add(n as u64, Ordering::SeqCst);
            if to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        if !connection.silent.load(Ordering::SeqCst) {
            let _ = to.shutdown(Shutdown::Both);
        }
    });
}

fn ready(world: &World, node: &str, status: &str) {
    let condition = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    world.ok("PATCH", &format!("/api/v1/nodes/{node}/status"), Some(&condition));
}

#[test]
fn nothing_starts_on_a_stale_copy_when_only_its_watch_connection_is_dead() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let all = machines(1, 2);
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    let proxy = Proxy::before(&world.api);
    let daemon = proxy.daemon(&world, "5");
    // without kubelets no Node becomes Ready again
    world.act("freeze", "kwok");
    let watch = proxy.watch_of_nodes(&world);
    watch.silent.store(true, Ordering::SeqCst);
    proxy.shared.silent_from_start.store(true, Ordering::SeqCst);
    // a worker goes down, the limit of unreachable nodes is 0, and the dead watch does not report it
    ready(&world, "w2", "Unknown");
    // wait until that watch has reported nothing for more than 10 s
    sleep(Duration::from_secs(11));
    world.queue(&[&all[1]]);
    let why = || world.run(&["rq", "why", "0", "-o", "json"]);
    world.wait_or_explain(0, "the reason is Stale", 60, || why().contains("\"Stale\"").then_some(()));
    proxy.shared.silent_from_start.store(false, Ordering::SeqCst);
    world.wait_or_explain(0, "the reason is UnreachableGate", 60, || why().contains("UnreachableGate").then_some(()));
    let drained = |c: &crate::world::history::Change| c.value.as_ref().is_some_and(|v| v.contains("draining"));
    assert!(!changes(&world.etcd, "/cke/reboots/data/").iter().any(drained), "no drain may start on the stale copy");
    ready(&world, "w2", "True");
    world.act("thaw", "kwok");
    wait_for("the machine is rebooted", 120, || world.entries().is_empty().then_some(()));
    assert!(!daemon.logged().contains("panicked"), "{}", daemon.logged());
}

#[test]
fn a_reboot_succeeds_through_a_proxy_that_delays_requests_by_three_seconds() {
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.add_pod("default", "web", "w1", "web", None);
    world.wait_for_running_pods("default");
    world.set_up(&all, &json!({"eviction_timeout_seconds": 240}));
    let proxy = Proxy::before(&world.api);
    let daemon = proxy.daemon(&world, "60");
    proxy.shared.delay.store(3_000, Ordering::SeqCst);
    world.queue(&[&all[1]]);
    world.wait_or_explain(0, "the machine is rebooted", 300, || world.entries().is_empty().then_some(()));
    let begun = world.power().iter().filter(|p| p.what == "begin" && p.address == all[1].address).count();
    assert_eq!(begun, 1, "once");
    assert!(!daemon.logged().contains("panicked"), "{}", daemon.logged());
}
