//! Three members of a real etcd behind three API servers that are always healthy. So the members alone decide whether
//! the next API server may go down.

use std::{
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client};
use serde_json::json;

use crate::world::{
    Options, World, built,
    cluster::{Machine, machines},
    program::Daemon,
    wait_for,
};

#[test]
fn i46_a_control_plane_waits_while_another_etcd_member_is_unhealthy() {
    let Some(program) = built("etcd") else { return };
    let Some(world) = World::start(Options { kwok: true, ..Options::default() }) else { return };
    let mut members = Members::start(&program, world.dir());
    let all: Vec<Machine> =
        machines(3, 0).into_iter().zip(1_u8..).map(|(machine, i)| Machine { address: address(i), ..machine }).collect();
    world.add_nodes(&all);
    world.set_up(&all, &json!({}));
    world.run(&["policy", "set", "etcd_members", "check"]);
    let config = world.dir().join("members.yaml");
    let text = std::fs::read_to_string(world.config()).expect("a configuration");
    let endpoints = json!([members.url(1), members.url(2)]);
    std::fs::write(&config, format!("{text}cluster_etcd: {{endpoints: {endpoints}}}\n")).expect("a file");
    let daemon = Daemon::start(world.dir(), &config, "engine");
    daemon.ready();

    // a member lags: its answers to the leader are lost, and the leader stops sending after some hundred entries
    members.silence(true);
    members.write(3000);
    world.queue(&[&all[0]]);
    waits(&world, "EtcdMemberUnhealthy", &["m3", "raft index"]);
    // a member is stopped
    members.kill(3);
    waits(&world, "EtcdMemberUnhealthy", &["m3", "no answer"]);
    // another member raises an alarm; the third has recovered
    let second = members.id("m2");
    members.alarm(AlarmAction::Activate, second);
    members.silence(false);
    members.spawn(3);
    waits(&world, "EtcdMemberUnhealthy", &["m2", "alarm"]);
    assert_eq!(world.cordoned(), Vec::<String>::new());
    assert_eq!(world.power(), []);

    // all members are healthy under many writes: the three API servers are rebooted in turn
    members.alarm(AlarmAction::Deactivate, second);
    let writes = members.keep_writing();
    world.queue(&[&all[1], &all[2]]);
    world.wait_for_empty_queue(150);
    assert!(writes.load(SeqCst) > 3000, "{} writes", writes.load(SeqCst));
    let begun: Vec<String> = world.power().into_iter().filter(|p| p.what == "begin").map(|p| p.address).collect();
    assert_eq!(begun, [address(1), address(2), address(3)]);
    // the etcd leader was moved before its machine was rebooted
    let audit = world.run(&["audit", "-o", "json"]);
    assert!(audit.contains("move etcd leader"), "{audit}");
}

/// Waits until the first entry waits for this reason, with these words in its text.
fn waits(world: &World, reason: &str, words: &[&str]) {
    wait_for(&format!("{reason} with {words:?}"), 60, || {
        let why = world.run(&["rq", "why", "0", "-o", "json"]);
        (why.contains(reason) && words.iter().all(|text| why.contains(text))).then_some(())
    });
}

/// Address of the machine and of its member: all of 127.0.0.0/8 is this host.
fn address(i: u8) -> String {
    format!("127.0.46.{i}")
}

/// Three members; the connection to the third one's peer port can be silenced.
struct Members {
    program: PathBuf,
    folder: PathBuf,
    ports: Vec<u16>,
    running: Vec<Option<Child>>,
    silent: Arc<AtomicBool>,
    writing: Arc<AtomicBool>,
    runtime: tokio::runtime::Runtime,
}

impl Members {
    fn start(program: &Path, folder: &Path) -> Self {
        let free = |i: u8| TcpListener::bind((address(i), 0)).expect("loopback").local_addr().expect("a port").port();
        // ports of each member for clients and for peers; the third one's peers come through a proxy
        let ports: Vec<u16> = [1, 2, 3].into_iter().flat_map(|i| [free(i), free(i)]).collect();
        let silent = Arc::new(AtomicBool::new(false));
        let proxy = TcpListener::bind((address(3), 0)).expect("loopback");
        let mut members = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            ports: [ports, vec![proxy.local_addr().expect("a port").port()]].concat(),
            running: vec![None, None, None],
            silent: Arc::clone(&silent),
            writing: Arc::new(AtomicBool::new(true)),
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime"),
        };
        let behind = format!("{}:{}", address(3), members.ports[5]);
        std::thread::spawn(move || forward(&proxy, &behind, &silent));
        (1..=3).for_each(|i| members.spawn(i));
        wait_for("etcd has three members", 60, || (members.list()?.len() == 3).then_some(()));
        members
    }

    fn url(&self, i: u8) -> String {
        format!("http://{}:{}", address(i), self.ports[usize::from(i - 1) * 2])
    }

    /// Peer URL that the other members know.
    fn peer(&self, i: u8) -> String {
        let port = if i == 3 { self.ports[6] } else { self.ports[usize::from(i - 1) * 2 + 1] };
        format!("http://{}:{port}", address(i))
    }

    fn spawn(&mut self, i: u8) {
        let listens = format!("http://{}:{}", address(i), self.ports[usize::from(i - 1) * 2 + 1]);
        let initial: Vec<String> = (1..=3).map(|i| format!("m{i}={}", self.peer(i))).collect();
        let log =
            || File::options().create(true).append(true).open(self.folder.join(format!("m{i}.log"))).expect("a log");
        let mut command = Command::new(&self.program);
        command.args(["--name", &format!("m{i}"), "--unsafe-no-fsync", "--logger", "zap"]);
        command.arg("--data-dir").arg(self.folder.join(format!("m{i}")));
        command.args(["--listen-client-urls", &self.url(i), "--advertise-client-urls", &self.url(i)]);
        command.args(["--listen-peer-urls", &listens, "--initial-advertise-peer-urls", &self.peer(i)]);
        command.args(["--initial-cluster", &initial.join(",")]);
        let child = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn().expect("etcd starts");
        self.running[usize::from(i - 1)] = Some(child);
    }

    fn kill(&mut self, i: u8) {
        if let Some(mut child) = self.running[usize::from(i - 1)].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn silence(&self, silent: bool) {
        self.silent.store(silent, SeqCst);
    }

    fn ask<T>(&self, ask: impl AsyncFnOnce(Client) -> Option<T>) -> Option<T> {
        let urls = [self.url(1), self.url(2)];
        self.runtime.block_on(async { ask(Client::connect(urls, None).await.ok()?).await })
    }

    /// Names and ids of the members that have started.
    fn list(&self) -> Option<Vec<(String, u64)>> {
        self.ask(async |mut client| {
            let list = client.member_list().await.ok()?;
            Some(
                list.members().iter().filter(|m| !m.name().is_empty()).map(|m| (m.name().to_owned(), m.id())).collect(),
            )
        })
    }

    fn id(&self, name: &str) -> u64 {
        let found = self.list().and_then(|all| all.into_iter().find(|(n, _)| n == name));
        found.expect("a member").1
    }

    fn alarm(&self, action: AlarmAction, member: u64) {
        let mut options = AlarmOptions::new();
        options.with_member(member);
        let done = self.ask(async |mut client| client.alarm(action, AlarmType::Nospace, Some(options)).await.ok());
        done.expect("the alarm is set");
    }

    fn write(&self, count: u32) {
        let done = self.ask(async |client| {
            let puts = (0..count).map(|i| {
                let mut kv = client.kv_client();
                // etcd elects a new leader while members come and go, so a failed write is repeated
                async move {
                    for _ in 0..100 {
                        if kv.put(format!("/writes/{}", i % 50), i.to_string(), None).await.is_ok() {
                            return Some(());
                        }
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    None
                }
            });
            for put in puts {
                put.await?;
            }
            Some(())
        });
        done.expect("all writes succeed");
    }

    /// Writes about a thousand times a second until the members end; returns the counter of writes.
    fn keep_writing(&self) -> Arc<AtomicU32> {
        let (count, writing, urls) =
            (Arc::new(AtomicU32::new(0)), Arc::clone(&self.writing), [self.url(1), self.url(2)]);
        let counted = Arc::clone(&count);
        self.runtime.spawn(async move {
            let client = Client::connect(urls, None).await.expect("a client");
            while writing.load(SeqCst) {
                let batch = (0..100).map(|i| {
                    let mut kv = client.kv_client();
                    async move { kv.put(format!("/writes/{i}"), "x", None).await.is_ok() }
                });
                let done = futures::future::join_all(batch).await.into_iter().filter(|done| *done).count();
                counted.fetch_add(u32::try_from(done).expect("a small count"), SeqCst);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        count
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.writing.store(false, SeqCst);
        (1..=3).for_each(|i| self.kill(i));
    }
}

/// Forwards connections, and holds their bytes back while it is silent.
fn forward(listener: &TcpListener, to: &str, silent: &Arc<AtomicBool>) {
    for one in listener.incoming().flatten() {
        let Ok(other) = TcpStream::connect(to) else { continue };
        for (mut from, mut to) in
            [(one.try_clone().expect("a socket"), other.try_clone().expect("a socket")), (other, one)]
        {
            let silent = Arc::clone(silent);
            std::thread::spawn(move || {
                let mut buffer = [0; 16 << 10];
                while let Ok(read) = from.read(&mut buffer) {
                    while silent.load(SeqCst) {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    if read == 0 || to.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    }
}
