//! `cketerm --daemon` under systemd and Prometheus, on `cketerm sandbox serve`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    net::TcpStream,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::world::{
    program::{Daemon, cketerm},
    sandbox::Served,
    wait_for,
};

/// Samples by name with labels, as on the page.
fn samples(page: &str) -> BTreeMap<String, String> {
    let lines = page.lines().filter(|l| !l.starts_with('#'));
    lines.map(|l| l.rsplit_once(' ').expect("a sample")).map(|(name, n)| (name.to_owned(), n.to_owned())).collect()
}

fn list(config: &Path, queue: &str) -> Vec<Value> {
    serde_json::from_str(&cketerm(config, &[queue, "list"]).stdout).expect("a list")
}

/// Formats a number as the page does.
fn number(n: usize) -> String {
    format!("{n}.0")
}

fn by_status(entries: &[Value], status: &str) -> String {
    number(entries.iter().filter(|e| e["status"] == status).count())
}

/// The socket to which systemd lets services report their state.
struct Systemd {
    path: PathBuf,
    socket: UnixDatagram,
}

impl Systemd {
    fn listening(dir: &Path) -> Self {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not block");
        Self { path, socket }
    }

    /// The next notification that has already arrived.
    fn received(&self) -> Option<String> {
        let mut bytes = [0; 64];
        let n = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..n]).into_owned())
    }

    /// Waits for the next notification of this daemon.
    fn next(&self, daemon: &Daemon) -> String {
        wait_for(&format!("systemd is notified; see {}", daemon.log.display()), 60, || self.received())
    }
}

/// `sd_notify(3)`: a datagram to the socket named by `NOTIFY_SOCKET`.
#[test]
fn the_daemon_notifies_systemd_of_ready_and_stopping() {
    let served = Served::start(&["--nodes", "5"]);
    let config = Path::new(served.facts["config"].as_str().expect("a path"));
    let systemd = Systemd::listening(&served.dir);
    let daemon = Daemon::start_in(&served.dir, config, "engine", &[("NOTIFY_SOCKET", &systemd.path)]);
    assert_eq!(systemd.next(&daemon), "READY=1");
    // pages answer as soon as the daemon reports that it is ready
    let (status, page) = daemon.page("/healthz");
    assert_eq!(status, 200, "{page:?}, log: {}", daemon.logged());
    let log = daemon.log.clone();
    let (status, _) = daemon.terminate();
    assert!(status.success(), "{status}, log: {}", std::fs::read_to_string(&log).unwrap_or_default());
    assert_eq!(systemd.received().as_deref(), Some("STOPPING=1"));
}

/// Inodes of the sockets on which any process listens for TCP.
fn listening_sockets() -> BTreeSet<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let columns = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    // state 0A is LISTEN
    columns
        .filter(|row| row.get(3) == Some(&"0A"))
        .filter_map(|row| row.get(9).map(|inode| (*inode).to_owned()))
        .collect()
}

/// Whether this process listens on any of them.
fn listens(pid: u32) -> bool {
    let all = listening_sockets();
    assert!(!all.is_empty(), "at least the sandbox listens");
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .any(|inode| all.contains(&inode))
}

/// `off` means that no port is open, also not on loopback.
#[test]
fn a_daemon_without_an_http_endpoint_listens_nowhere() {
    let served = Served::start(&["--nodes", "5"]);
    let config = Path::new(served.facts["config"].as_str().expect("a path"));
    let systemd = Systemd::listening(&served.dir);
    let environment = [("NOTIFY_SOCKET", systemd.path.as_path())];
    let daemon = Daemon::start_without_http(&served.dir, config, "engine", &environment);
    assert_eq!(systemd.next(&daemon), "READY=1");
    assert!(!listens(daemon.pid()), "{}", daemon.logged());
    assert!(daemon.terminate().0.success());
    let with = Daemon::start(&served.dir, config, "engine");
    with.ready();
    assert!(listens(with.pid()));
}

/// The documented pod and unit run it as a user whose home must not hold results.
#[test]
fn a_daemon_stores_results_in_systemds_state_directory_not_in_home() {
    let served = Served::start(&["--nodes", "5"]);
    let config = Path::new(served.facts["config"].as_str().expect("a path"));
    let text = std::fs::read_to_string(config).expect("the configuration");
    let silent = served.dir.join("silent.yaml");
    std::fs::write(&silent, text.replace(", state_directory: state", "")).expect("a configuration");
    let (home, made) = (served.dir.join("home"), served.dir.join("made"));
    std::fs::create_dir(&home).expect("a home");
    let several = format!("{}:/elsewhere", made.display());
    let environment = [("STATE_DIRECTORY", Path::new(&several)), ("HOME", home.as_path())];
    let daemon = Daemon::start_in(&served.dir, &silent, "engine", &environment);
    daemon.ready();
    wait_for("the state directory is created", 30, || made.join("results").is_dir().then_some(()));
    assert!(!home.join(".local").exists());
}

/// The unit creates the state directory for its user; the drop-in must leave it writable.
#[test]
fn the_drop_in_for_a_dedicated_user_leaves_the_state_directory_writable() {
    let file = |name: &str| {
        let path = Path::new(crate::ROOT).join("docs/package").join(name);
        std::fs::read_to_string(path).expect("a file of the package")
    };
    assert!(file("cketerm.service").lines().any(|line| line == "StateDirectory=cketerm"));
    let takes = ["BindReadOnlyPaths", "ReadOnlyPaths", "InaccessiblePaths", "TemporaryFileSystem", "StateDirectory"];
    for line in file("own-user.conf").lines() {
        let covered = takes.iter().any(|key| line.split('=').next() == Some(*key)) && line.contains("/var/lib");
        assert!(!covered, "{line}");
    }
}

/// The engine's main loop sends the `WatchdogSec` keep-alives, also in an engine that only observes.
#[test]
fn the_main_loop_sends_watchdog_keep_alives_in_time() {
    let served = Served::start(&["--nodes", "5"]);
    let config = Path::new(served.facts["config"].as_str().expect("a path"));
    let systemd = Systemd::listening(&served.dir);
    let environment = [("NOTIFY_SOCKET", systemd.path.as_path()), ("WATCHDOG_USEC", Path::new("4500000"))];
    let daemon = Daemon::start_in(&served.dir, config, "engine", &environment);
    assert_eq!(systemd.next(&daemon), "READY=1");
    for _ in 0..4 {
        assert_eq!(systemd.next(&daemon), "WATCHDOG=1");
    }
    let (status, _) = daemon.terminate();
    assert!(status.success(), "{status}");
    assert!(std::iter::from_fn(|| systemd.received()).any(|text| text == "STOPPING=1"));
}

/// Idle and silent connections, and requests that never end, in a process with a low limit of open files. Pages still
/// answer, and the commands of the machine in progress still run.
#[test]
fn three_hundred_idle_connections_block_neither_http_pages_nor_commands() {
    let served = Served::start(&["--nodes", "5"]);
    let config = Path::new(served.facts["config"].as_str().expect("a path"));
    // a hard limit of open files: the process cannot raise it
    let daemon = Daemon::start_limited(&served.dir, config, "engine", 256);
    daemon.ready();
    let mut held: Vec<TcpStream> = Vec::new();
    for i in 0..300 {
        let mut one = TcpStream::connect(&daemon.http).expect("a connection");
        // a third sends nothing, a third sends half a request, a third sends one request and stays connected
        let request: &[u8] = match i % 3 {
            0 => b"",
            1 => b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ",
            _ => b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        };
        one.write_all(request).expect("the request is sent");
        held.push(one);
    }
    for page in ["/healthz", "/metrics", "/readyz", "/healthz", "/metrics"] {
        // the client waits for 30 s; a process without free descriptors would accept no connection
        assert_eq!(daemon.page(page).0, 200, "{page}");
    }
    let worker = served.get("/machines").into_iter().find(|m| m["control_plane"] == false).expect("a worker");
    let file = served.dir.join("nodes");
    std::fs::write(&file, worker["address"].as_str().expect("an address")).expect("a file");
    let added = cketerm(config, &["rq", "add", file.to_str().expect("text")]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    wait_for("the reboot is complete", 120, || list(config, "rq").is_empty().then_some(()));
    assert!(served.power().iter().any(|p| p.what == "end"), "the reboot command was run");
    assert_eq!(daemon.page("/healthz").0, 200);
    let open =
        std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the process has a descriptor table").count();
    assert!(open < 200, "{open} files are open");
    assert_eq!(held.len(), 300);
}

/// I39: metrics, commands and etcd agree when nothing moves; only the leader exports CKE's names.
#[test]
fn metrics_commands_and_etcd_agree_when_idle() {
    let served = Served::start(&["--nodes", "12", "--scenario", "repairs"]);
    let config = Path::new(served.facts["config"].as_str().expect("a path"));
    let daemon = Daemon::start(&served.dir, config, "engine");
    daemon.ready();
    // on a slow machine a reboot may begin before the repair of the same machine, which then waits for it
    wait_for("a repair has succeeded and one has failed", 600, || {
        let repairs = list(config, "repair-queue");
        let some = |status: &str| repairs.iter().any(|entry| entry["status"] == status);
        (some("succeeded") && some("failed")).then_some(())
    });
    for queue in ["rq", "repair-queue"] {
        assert_eq!(cketerm(config, &[queue, "disable"]).code, 0);
    }
    let second = Daemon::start(&served.dir, config, "second");
    second.ready();
    // the unfinished repairs, with the reason that `why` gives for each
    let reasons = |repairs: &[Value]| -> Vec<(String, String)> {
        let unfinished = repairs.iter().filter(|e| e["status"] == "queued" || e["status"] == "processing");
        let why = |entry: &Value| {
            let index = entry["index"].as_str().expect("text").to_owned();
            let why = cketerm(config, &["repair-queue", "why", &index, "-o", "json"]).stdout;
            let why: Value = serde_json::from_str(&why).expect("JSON");
            let reason = why["reason"]["reason"].as_str().or(why["reason"].as_str()).expect("a reason");
            (index, reason.to_owned())
        };
        unfinished.map(why).collect()
    };
    let read = || {
        let (reboots, repairs) = (list(config, "rq"), list(config, "repair-queue"));
        let reasons = reasons(&repairs);
        (reboots, repairs, reasons)
    };
    let (mut page, mut shown) = (BTreeMap::new(), read());
    wait_for("the metrics match queues that do not change", 240, || {
        page = samples(&daemon.page("/metrics").1);
        let before = std::mem::replace(&mut shown, read());
        (page["cke_repair_queue_enabled"] == "0.0" && before == shown).then_some(())
    });
    let (reboots, repairs, reasons) = &shown;
    assert!(repairs.len() >= 4);
    assert_eq!(page["cke_reboot_queue_entries"], number(reboots.len()));
    for status in ["queued", "draining", "rebooting", "cancelled"] {
        assert_eq!(page[&format!("cke_reboot_queue_items{{status=\"{status}\"}}")], by_status(reboots, status));
    }
    for status in ["queued", "processing", "succeeded", "failed"] {
        assert_eq!(page[&format!("cke_repair_queue_items{{status=\"{status}\"}}")], by_status(repairs, status));
    }
    for entry in repairs {
        let (address, status) = (entry["address"].as_str().expect("text"), entry["status"].as_str().expect("text"));
        assert_eq!(page[&format!("cke_machine_repair_status{{address=\"{address}\",status=\"{status}\"}}")], "1.0");
    }
    for (metric, queue) in [("cke_reboot_queue_enabled", "rq"), ("cke_repair_queue_enabled", "repair-queue")] {
        let enabled = cketerm(config, &[queue, "is-enabled"]).stdout.trim() == "true";
        assert_eq!(page[metric], number(usize::from(enabled)), "{metric}");
    }
    // each unfinished entry is counted once, under the reason that `why` gives
    for (index, reason) in reasons {
        assert!(
            page.contains_key(&format!("cketerm_entries{{queue=\"repair\",reason=\"{reason}\"}}")),
            "{index}: {reason}"
        );
    }
    // the leader's own state, replayed from the file alone, gives the same reasons
    let (status, state) = daemon.page("/state");
    assert_eq!(status, 200, "{state}");
    let saved = served.dir.join("state.json");
    std::fs::write(&saved, state).expect("the state file is written");
    let replayed = cketerm(config, &["decide", "--from", saved.to_str().expect("text"), "-o", "json"]);
    assert!(
        replayed.code == 0 && replayed.stderr.is_empty(),
        "the state of a leader must cause no warning: {}",
        replayed.stderr
    );
    let decided: Value = serde_json::from_str(&replayed.stdout).expect("JSON");
    for (index, _) in reasons {
        let id = format!("repairs/{index}");
        assert!(decided["reasons"][&id].is_object(), "{id} has no reason in {}", decided["reasons"]);
    }
    // the engine counted the commands that it ran
    assert!(page.keys().any(|k| k.starts_with("cketerm_effects_total{")), "{page:?}");
    let second = samples(&second.page("/metrics").1);
    assert_eq!([&page["cke_leader"], &second["cke_leader"]], ["1.0", "0.0"]);
    assert_eq!(second["cketerm_engine_state{state=\"standing-by\"}"], "1.0");
    assert!(second.keys().filter(|k| k.starts_with("cke_")).eq(["cke_leader"]), "{second:?}");
}
