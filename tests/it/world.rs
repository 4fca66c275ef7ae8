//! Servers for one test, and an independent view of them: plain HTTP for Kubernetes, etcd's own history for keys, the
//! API server's audit log for requests. They are real, or the sandbox behind ports; a client cannot tell the
//! difference.
//!
//! Tests are skipped with a clear message if this machine lacks something (`setup` says what to install). Servers that
//! are installed and do not start are a failure.
#![allow(dead_code)] // each test file uses only a part

pub mod cluster;
pub mod history;
pub mod leader;
pub mod program;
pub mod prometheus;
pub mod recorder;
pub mod rights;
pub mod sandbox;
pub mod webhook;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use crate::stalls::Stopwatch;

/// Servers that a test needs.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent switches, named where they are set
pub struct Options {
    /// Whether to start kube-controller-manager: budgets get a status, Jobs and DaemonSets their pods.
    pub kcm: bool,
    /// Whether to start kwok: nodes become Ready, pods run and end.
    pub kwok: bool,
    /// Whether to start kube-scheduler: pods without a node get one.
    pub scheduler: bool,
    /// Whether to write the audit log.
    pub audit: bool,
    /// Whether to use Debian's etcd 3.4 instead of 3.6.
    pub etcd34: bool,
}

/// Version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdVersion {
    /// Debian's.
    V34,
    /// The one that Kubernetes is built with.
    V36,
}

/// An etcd alone.
pub struct Etcd {
    servers: Servers,
    /// Client URL.
    pub url: String,
}

/// etcd, Kubernetes, and machines that a definition's commands reach.
pub struct World {
    backend: Backend,
    /// Client URL of etcd.
    pub etcd: String,
    /// URL of the API server.
    pub api: String,
    /// Kubeconfig of the user `admin`.
    pub kubeconfig: PathBuf,
    /// Kubeconfig of the user `bench`, whose requests the audit log can tell from the rest.
    pub kubeconfig_bench: PathBuf,
    token: String,
}

/// Servers of a world.
enum Backend {
    /// Servers of `tests/servers`.
    Real(Servers, #[allow(dead_code)] WorldSlot),
    /// `cketerm sandbox serve`.
    Sandbox(sandbox::Served),
}

/// A folder with servers; they end with it.
struct Servers {
    dir: PathBuf,
}

impl Etcd {
    /// Starts one; `None` with a message if this machine has none.
    pub fn start(version: EtcdVersion) -> Option<Self> {
        let mut args = vec!["--etcd-only".to_owned()];
        args.extend(etcd_of(version)?);
        let (servers, facts) = Servers::start(&args);
        Some(Self { servers, url: fact(&facts, "ETCD") })
    }

    /// Returns its folder.
    pub fn dir(&self) -> &Path {
        &self.servers.dir
    }

    /// Acts on it: `stop`, `start`, `kill`, `freeze` or `thaw`.
    pub fn act(&self, what: &str) {
        self.servers.server_action(what, "etcd");
    }
}

impl World {
    /// Starts the servers; `None` with a message if this machine lacks something.
    pub fn start(options: Options) -> Option<Self> {
        Self::start_with(options, &[])
    }

    /// Starts the servers with additional flags of kube-apiserver.
    pub fn start_with(options: Options, apiserver: &[&str]) -> Option<Self> {
        let version = if options.etcd34 { EtcdVersion::V34 } else { EtcdVersion::V36 };
        let mut args = kubernetes_on(version)?;
        for (enabled, flag) in [
            (options.kcm, "--kcm"),
            (options.kwok, "--kwok"),
            (options.scheduler, "--scheduler"),
            (options.audit, "--audit"),
        ] {
            args.extend(enabled.then(|| flag.to_owned()));
        }
        args.extend(apiserver.iter().flat_map(|flag| ["--apiserver-flag".to_owned(), (*flag).to_owned()]));
        let slot = WorldSlot::take();
        let (servers, facts) = Servers::start(&args);
        let kubeconfig = PathBuf::from(fact(&facts, "KUBECONFIG"));
        let text = std::fs::read_to_string(&kubeconfig).expect("kubeconfig");
        let token = text.split("token: \"").nth(1).and_then(|t| t.split('"').next()).expect("a token").to_owned();
        Some(Self {
            etcd: fact(&facts, "ETCD"),
            api: fact(&facts, "APISERVER"),
            kubeconfig,
            kubeconfig_bench: PathBuf::from(fact(&facts, "KUBECONFIG_BENCH")),
            token,
            backend: Backend::Real(servers, slot),
        })
    }

    /// Starts a sandbox without machines and with an empty etcd.
    pub fn sandbox() -> Self {
        let served = sandbox::Served::start(&["--empty"]);
        let of = |name: &str| served.facts[name].as_str().expect("a fact").to_owned();
        let (etcd, api) = (of("etcd"), of("kubernetes"));
        let (kubeconfig, kubeconfig_bench) = (served.kubeconfig("admin"), served.kubeconfig("bench"));
        Self { etcd, api, kubeconfig, kubeconfig_bench, token: "admin".to_owned(), backend: Backend::Sandbox(served) }
    }

    /// Folder of the servers, also for files of the test.
    pub fn dir(&self) -> &Path {
        match &self.backend {
            Backend::Real(servers, _) => &servers.dir,
            Backend::Sandbox(sandbox) => &sandbox.dir,
        }
    }

    /// `stop`, `start`, `kill`, `freeze` or `thaw` one of `etcd`, `apiserver`, `kcm`, `kwok`; the sandbox's kubelets
    /// are its `kwok`.
    pub fn act(&self, what: &str, server: &str) {
        match &self.backend {
            Backend::Real(servers, _) => servers.server_action(what, server),
            Backend::Sandbox(sandbox) => sandbox.act(what, server),
        }
    }

    /// Sends one request as the user `admin`; returns the status code and the answer. PATCH bodies are merge patches.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        if matches!(self.backend, Backend::Sandbox(_)) {
            let body = body.map(Value::to_string).unwrap_or_default();
            let headers = [("Authorization", &*format!("Bearer {}", self.token)), ("Content-Type", kind)];
            let (code, answer) = sandbox::http(method, &format!("{}{path}", self.api), &headers, &body);
            return (code, serde_json::from_str(&answer).unwrap_or(Value::String(answer)));
        }
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-m", "30", "-X", method, "-w", "\n%{http_code}", "--cacert"])
            .arg(self.dir().join("certs/apiserver.crt"))
            .args(["-H", &format!("Authorization: Bearer {}", self.token), "-H", &format!("Content-Type: {kind}")])
            .args(body.map(|_| ["--data-binary", "@-"]).into_iter().flatten())
            .arg(format!("{}{path}", self.api));
        let mut child =
            curl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("curl starts");
        if let (Some(mut stdin), Some(body)) = (child.stdin.take(), body) {
            stdin.write_all(body.to_string().as_bytes()).expect("curl reads");
        }
        let out = child.wait_with_output().expect("curl ends");
        let text = String::from_utf8_lossy(&out.stdout);
        let (answer, code) = text.rsplit_once('\n').unwrap_or(("", "0"));
        let answer = serde_json::from_str(answer).unwrap_or_else(|_| Value::String(answer.to_owned()));
        (code.trim().parse().unwrap_or(0), answer)
    }

    /// Sends a request that must succeed.
    pub fn ok(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = self.call(method, path, body);
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        answer
    }

    /// Finished requests so far, oldest first (with `audit`).
    pub fn audit(&self) -> Vec<Value> {
        if let Backend::Sandbox(served) = &self.backend {
            return served.get("/apiserver/audit");
        }
        let text = std::fs::read_to_string(self.dir().join("audit.log")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Servers {
    fn start(args: &[String]) -> (Self, String) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("cketerm-it-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let servers = Self { dir: std::env::temp_dir().join(name) };
        let out = script("up")
            .args(["--while", &std::process::id().to_string()])
            .args(args)
            .arg(&servers.dir)
            .output()
            .expect("bash starts");
        assert!(out.status.success(), "the servers did not start: {}", String::from_utf8_lossy(&out.stderr));
        (servers, String::from_utf8_lossy(&out.stdout).into_owned())
    }

    fn server_action(&self, what: &str, server: &str) {
        let status = script("one").arg(&self.dir).args([what, server]).status().expect("bash starts");
        assert!(status.success(), "{what} {server}");
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let keep = std::thread::panicking();
        let mut down = script("down");
        let _ = down.args((!keep).then_some("--rm")).arg(&self.dir).stdout(Stdio::null()).status();
        if keep {
            let kept = self.dir.with_extension("failed");
            let _ = std::fs::rename(&self.dir, &kept);
            eprintln!("the logs of the servers and daemons are kept in {}", kept.display());
        }
    }
}

/// Limits worlds to two for each processor: more would make each too slow for the deadlines of the tests.
struct WorldSlot;

static WORLDS: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl WorldSlot {
    fn take() -> Self {
        let most = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let mut worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
        while *worlds >= most {
            worlds = FREED.wait(worlds).unwrap_or_else(PoisonError::into_inner);
        }
        *worlds += 1;
        Self
    }
}

impl Drop for WorldSlot {
    fn drop(&mut self) {
        *WORLDS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FREED.notify_one();
    }
}

/// Options of `up` for Kubernetes on that etcd; `None` with a message if this machine lacks something.
pub fn kubernetes_on(version: EtcdVersion) -> Option<Vec<String>> {
    if !has("go") {
        return skipped("Go is missing: no kube-apiserver");
    }
    etcd_of(version)
}

/// One program of `tests/servers/build`, built if it is missing; `None` with a message if this machine cannot build it.
pub fn built(program: &str) -> Option<PathBuf> {
    static LOCK: Mutex<()> = Mutex::new(());
    if !has("go") {
        return skipped(&format!("Go is missing: no {program}"));
    }
    let _one = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let out = script("build").arg(program).output().expect("bash starts");
    assert!(out.status.success(), "{program} was not built: {}", String::from_utf8_lossy(&out.stderr));
    Some(bin().join(program))
}

/// Folder in which `tests/servers/build` puts its results.
fn bin() -> PathBuf {
    let cache = || {
        let home = || std::env::home_dir().unwrap_or_default().join(".cache");
        std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("cketerm-servers/bin")
    };
    std::env::var_os("CKETERM_SERVERS").map_or_else(cache, PathBuf::from)
}

/// A program on `PATH`, or one that was built before; `None` with a message if there is none.
pub fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([bin()]);
    let there = places.map(|dir| dir.join(program)).find(|file| file.is_file());
    there.or_else(|| skipped(&format!("{program} is missing")))
}

/// Whether `CKETERM_SERVERS` is a folder of `tests/servers/versions etcd`: then every test uses the etcd of that folder.
pub fn tests_one_etcd() -> bool {
    std::fs::read_to_string(bin().join("fixed")).is_ok_and(|kind| kind.trim() == "etcd")
}

/// Options for an etcd of that version; `None` if it is not installed.
fn etcd_of(version: EtcdVersion) -> Option<Vec<String>> {
    for tool in ["bash", "curl", "openssl", "python3", "setsid"] {
        if !has(tool) {
            return skipped(&format!("{tool} is missing: no real servers"));
        }
    }
    match version {
        _ if tests_one_etcd() => Some(Vec::new()),
        EtcdVersion::V36 if has("go") => Some(Vec::new()),
        EtcdVersion::V36 => skipped("Go is missing: no etcd 3.6"),
        EtcdVersion::V34 => {
            let version_output = Command::new("etcd").arg("--version").output().ok();
            let old = version_output.is_some_and(|o| String::from_utf8_lossy(&o.stdout).contains("etcd Version: 3.4."));
            if old {
                Some(vec!["--etcd".to_owned(), "etcd".to_owned()])
            } else {
                skipped("no etcd 3.4 on PATH (Debian: etcd-server)")
            }
        }
    }
}

/// Reports a skip with a clear message.
pub fn skipped<T>(why: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    say(&format!("SKIP {test}: {why}"));
    None
}

/// Writes a message past the capture of the test harness, straight to the file: it must be visible.
pub fn say(text: &str) {
    let _ = std::fs::OpenOptions::new().append(true).open("/dev/stderr").and_then(|mut err| writeln!(err, "{text}"));
}

fn has(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Share of the heap, in percent, by which the servers' memory may grow before Go collects garbage. Most of a server's
/// time in these tests is its start, and with Go's default of 100 a quarter of that is garbage collection.
const GO_GARBAGE_PERCENT: &str = "800";

/// Returns the command of a script in `tests/servers`.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(crate::ROOT).join("tests/servers").join(name));
    command.env("GOGC", GO_GARBAGE_PERCENT);
    command
}

fn fact(facts: &str, name: &str) -> String {
    let found = facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("the script `up` printed no {name}: {facts}")).to_owned()
}

/// Scenarios in both worlds, each a function of a `&World`, as tests `NAME::real` and `NAME::sandbox`. The real servers
/// are started with these options.
macro_rules! in_both_worlds {
    ($options:expr; $($name:ident),+ $(,)?) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn real() {
                if let Some(world) = $crate::world::World::start($options) {
                    super::$name(&world);
                }
            }

            #[test]
            fn sandbox() {
                super::$name(&$crate::world::World::sandbox());
            }
        }
    )+};
}
pub(crate) use in_both_worlds;

/// Waits until `what` is there, at most `seconds`.
pub fn wait_for<T>(what: &str, seconds: u64, mut poll: impl FnMut() -> Option<T>) -> T {
    let began = Stopwatch::start();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(seconds), "timed out after {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns a free port that nobody else gets soon.
pub fn free_port() -> u16 {
    let out = script("ports").output().expect("python3 starts");
    String::from_utf8_lossy(&out.stdout).trim().parse().expect("a port")
}
