//! A real etcd for one test, and a proxy in front of it that can be cut or made silent.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use cketerm_clients::store::{EtcdSettings, Store};
use cketerm_model::clock::Clock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

pub use crate::world::free_port;
use crate::{
    stalls::Stopwatch,
    world::{built, tests_one_etcd},
};

/// Debian's etcd 3.4 and 3.6, if installed; missing ones are reported. Only one, where one version is tested.
pub fn versions() -> Vec<PathBuf> {
    static NEWER: OnceLock<Option<PathBuf>> = OnceLock::new();
    if !runs("etcdctl", "version") {
        skipped("etcdctl is missing (Debian: etcd-client): no test of the store on a real etcd");
        return Vec::new();
    }
    let old = PathBuf::from("etcd");
    let found = (!tests_one_etcd() && runs(&old, "--version")).then_some(old);
    if found.is_none() && !tests_one_etcd() {
        skipped("no etcd on PATH (Debian: etcd-server)");
    }
    found.into_iter().chain(NEWER.get_or_init(|| built("etcd")).clone()).collect()
}

fn runs(program: impl AsRef<std::ffi::OsStr>, word: &str) -> bool {
    let quiet = || Stdio::null();
    Command::new(program).arg(word).stdout(quiet()).stderr(quiet()).status().is_ok_and(|s| s.success())
}

/// Written past the capture of the test harness: a skip must be visible.
fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = std::fs::OpenOptions::new()
        .append(true)
        .open("/dev/stderr")
        .and_then(|mut e| writeln!(e, "SKIP {test}: {why}"));
}

/// Debian's, or the newer one if that is missing.
pub fn any() -> Option<Etcd> {
    versions().first().map(|version| Etcd::start(version, &[]))
}

pub struct Etcd {
    pub url: String,
    pub dir: tempfile::TempDir,
    bin: PathBuf,
    args: Vec<String>,
    child: Option<Child>,
}

impl Etcd {
    pub fn start(bin: &Path, more: &[String]) -> Self {
        Self::serve(bin, "http", more)
    }

    pub fn serve(bin: &Path, scheme: &str, more: &[String]) -> Self {
        let (client, peer) = (free_port(), free_port());
        let (url, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let dir = tempfile::tempdir().unwrap();
        let mut args: Vec<String> = [
            "--data-dir",
            dir.path().join("data").to_str().unwrap(),
            "--listen-client-urls",
            &url,
            "--advertise-client-urls",
            &url,
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
            "--initial-cluster",
            &format!("default={peer}"),
            // after a rebuild the history differs, so it is another cluster
            "--initial-cluster-token",
            &format!("{:?}", Instant::now()),
        ]
        .map(str::to_owned)
        .to_vec();
        args.extend_from_slice(more);
        let mut etcd = Self { url, dir, bin: bin.to_owned(), args, child: None };
        etcd.up();
        etcd
    }

    /// Starts three members of one cluster, ordered by name.
    pub fn cluster(bin: &Path) -> Vec<Self> {
        let peers: Vec<String> = (0..3).map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
        let initial: Vec<String> = peers.iter().enumerate().map(|(i, p)| format!("m{i}={p}")).collect();
        let mut members: Vec<Self> = Vec::new();
        for (i, peer) in peers.iter().enumerate() {
            let (url, dir) = (format!("http://127.0.0.1:{}", free_port()), tempfile::tempdir().unwrap());
            let data = dir.path().join("data").to_str().unwrap().to_owned();
            let args = [
                ("--name", format!("m{i}")),
                ("--data-dir", data),
                ("--listen-client-urls", url.clone()),
                ("--advertise-client-urls", url.clone()),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer.clone()),
                ("--initial-cluster", initial.join(",")),
            ];
            let args = args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
            let mut member = Self { url, dir, bin: bin.to_owned(), args, child: None };
            member.spawn();
            members.push(member);
        }
        members.iter().for_each(Self::ready);
        members
    }

    pub fn up(&mut self) {
        self.spawn();
        self.ready();
    }

    fn spawn(&mut self) {
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let mut command = Command::new(&self.bin);
        command.args(&self.args).stdout(Stdio::null()).stderr(log).env_remove("ETCDCTL_API");
        self.child = Some(command.spawn().unwrap());
    }

    fn ready(&self) {
        let address = self.url.split("://").nth(1).unwrap().to_owned();
        let began = Stopwatch::start();
        loop {
            let up = std::net::TcpStream::connect(&address).is_ok();
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            if up && (log.contains("ready to serve client requests") || log.contains("serving client traffic")) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "etcd does not start: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn down(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it, deletes its data and starts it again with another history.
    pub fn rebuild(&mut self) {
        self.down();
        std::fs::remove_dir_all(self.dir.path().join("data")).unwrap();
        let token = self.args.iter().position(|a| a == "--initial-cluster-token").unwrap() + 1;
        self.args[token] = format!("{:?}", Instant::now());
        self.up();
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn ctl(&self, args: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        let out = command
            .env("ETCDCTL_API", "3")
            .args(["--command-timeout=30s", "--dial-timeout=30s", "--endpoints", &self.url])
            .args(args)
            .output()
            .unwrap();
        assert!(out.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Value of one key, as etcdctl prints it.
    pub fn value(&self, key: &str) -> String {
        self.ctl(&["get", "--print-value-only", key]).trim_end_matches('\n').to_owned()
    }

    pub fn settings(&self) -> EtcdSettings {
        // more than a stall of the machine lasts
        let timeout = Duration::from_secs(20);
        EtcdSettings { endpoints: vec![self.url.clone()], timeout, ..EtcdSettings::default() }
    }

    pub async fn store(&self) -> Store {
        Store::connect(&self.settings(), Clock::host()).await.unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.down();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Forwards both ways.
    Open,
    /// The client's bytes arrive, the answers do not.
    NoAnswers,
    /// Open connections end and new ones fail.
    Cut,
}

/// A proxy in front of an etcd.
pub struct Proxy {
    pub url: String,
    state: watch::Sender<LinkState>,
    _task: JoinSet<()>,
}

impl Proxy {
    pub async fn before(etcd: &Etcd) -> Self {
        let target = etcd.url.split("://").nth(1).unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (state, link) = watch::channel(LinkState::Open);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                if *link.borrow() == LinkState::Cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let mut cut = link.clone();
                let (up, down) = (pump(from_client, to_server, None), pump(from_server, to_client, Some(link.clone())));
                connections.spawn(async move {
                    tokio::select! {
                        () = up => {}
                        () = down => {}
                        _ = cut.wait_for(|l| *l == LinkState::Cut) => {}
                    }
                });
            }
        });
        Self { url, state, _task: task }
    }

    pub fn set(&self, link: LinkState) {
        self.state.send_replace(link);
    }

    pub async fn store(&self) -> Store {
        let settings = EtcdSettings { endpoints: vec![self.url.clone()], ..EtcdSettings::default() };
        Store::connect(&settings, Clock::host()).await.unwrap()
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut link: Option<watch::Receiver<LinkState>>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if let Some(link) = &mut link {
            let _ = link.wait_for(|l| *l == LinkState::Open).await;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

/// Waits for a condition that must hold soon; names it on a timeout.
pub async fn wait_until(what: &str, bound: Duration, mut true_now: impl FnMut() -> bool) {
    let began = Stopwatch::start();
    while !true_now() {
        assert!(began.elapsed() < bound, "timed out after {bound:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
