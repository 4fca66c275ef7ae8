//! The engine as the first process of a PID namespace, as in a container. However it ends, a machine between power off
//! and power on does not stay off.

use std::{
    fs::File,
    process::{Child, Command, Stdio},
};

use serde_json::json;

use crate::world::{
    Options, World, cluster::machines, found, free_port, program::command, sandbox::http, skipped, wait_for,
};

const SERVERS: Options = Options { kcm: false, kwok: true, audit: false, etcd34: false, scheduler: false };

/// A process in a PID namespace of its own, seen from outside. Drop kills all of it.
struct Container {
    unshare: Child,
    http: String,
}

impl Container {
    fn start(world: &World) -> Self {
        let (http, program) = (format!("127.0.0.1:{}", free_port()), command());
        let log = File::create(world.dir().join("container.log")).expect("a log");
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child", "--"]).arg(program.get_program());
        unshare.arg("--daemon").arg("--config").arg(world.config()).args(["--http", &http]);
        let unshare = unshare
            .env("HOME", "/nonexistent")
            .env("CKETERM_LEASE_TTL", "5")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("unshare starts");
        let container = Self { unshare, http };
        wait_for("the container is ready", 30, || (container.page("/readyz").0 == 200).then_some(()));
        container
    }

    fn page(&self, path: &str) -> (u16, String) {
        http("GET", &format!("http://{}{path}", self.http), &[], "")
    }

    /// Its first process.
    fn init(&self) -> u32 {
        child(self.unshare.id()).expect("PID 1")
    }

    /// The engine: the child of PID 1, or PID 1 itself.
    fn engine(&self) -> u32 {
        child(self.init()).filter(|pid| name(*pid).contains("--daemon")).unwrap_or_else(|| self.init())
    }

    /// Its exit status, which is that of PID 1.
    fn ends(&mut self) -> i32 {
        let status = wait_for("PID 1 ends", 60, || self.unshare.try_wait().expect("a status"));
        status.code().unwrap_or(-1)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

/// First child of a process.
fn child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

fn signal(name: &str, pid: u32) {
    assert!(
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().expect("kill starts").success()
    );
}

/// Real servers, and the right to create a PID namespace.
fn world() -> Option<World> {
    found("unshare")?;
    if !rustix::process::geteuid().is_root() {
        return skipped("a PID namespace with its own /proc requires root");
    }
    World::start(SERVERS)
}

/// Begins a reboot that takes this long; returns between power off and power on.
fn between_off_and_on(world: &World, seconds: u32) -> Container {
    let all = machines(1, 1);
    world.add_nodes(&all);
    world.set_up(&all, &json!({"command_timeout_seconds": 300}));
    world.set_command_seconds(seconds);
    world.queue(&[&all[1]]);
    let container = Container::start(world);
    wait_for("the machine is off", 60, || powered(world, "begin").then_some(()));
    container
}

fn powered(world: &World, what: &str) -> bool {
    world.power().iter().any(|p| p.what == what)
}

#[test]
fn on_sigterm_pid_1_releases_the_lock_and_waits_until_the_machine_is_on_again() {
    let Some(world) = world() else { return };
    let mut container = between_off_and_on(&world, 20);
    let next = world.daemon("next");
    next.ready();
    signal("TERM", container.init());
    wait_for("another engine leads", 30, || (next.page("/readyz").1 == "leading\n").then_some(()));
    assert!(!powered(&world, "end"), "the lock must be released while the command still runs");
    assert_eq!(container.ends(), 0, "PID 1 must return the engine's exit status");
    assert!(powered(&world, "end"), "PID 1 ended while the machine was off: {:?}", world.power());
    world.wait_for_empty_queue(60);
    assert_eq!(world.power().len(), 2, "the command must run exactly once: {:?}", world.power());
}

#[test]
fn after_sigkill_of_the_engine_pid_1_waits_until_the_machine_is_on_again() {
    let Some(world) = world() else { return };
    let mut container = between_off_and_on(&world, 6);
    signal("KILL", container.engine());
    assert_eq!(container.ends(), 128 + 9);
    assert!(powered(&world, "end"), "PID 1 ended while the machine was off: {:?}", world.power());
    let next = world.daemon("next");
    next.ready();
    world.wait_for_empty_queue(60);
    assert_eq!(world.power().len(), 2, "the command must run exactly once: {:?}", world.power());
}
