//! The built program: commands that run to their end, and a daemon that can be killed.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use super::{World, free_port, wait_for};
use crate::stalls::Stopwatch;

/// Result of a command.
#[derive(Debug)]
pub struct RunOutput {
    /// Exit status; -1 = by a signal.
    pub code: i32,
    /// Data (standard output).
    pub stdout: String,
    /// Messages (standard error).
    pub stderr: String,
}

/// The program, without this machine's environment variables that could name a server.
pub fn command() -> Command {
    let mut command = Command::new(crate::binary::cketerm());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CKETERM_") || text.starts_with("KUBE") || text.starts_with("XDG_") {
            command.env_remove(&name);
        }
    }
    command.env("HOME", "/nonexistent").env("NO_COLOR", "1");
    command
}

/// Runs one command.
pub fn cketerm(config: &Path, args: &[&str]) -> RunOutput {
    let out = command().arg("--config").arg(config).args(args).stdin(Stdio::null()).output().expect("cketerm starts");
    RunOutput {
        code: out.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

/// Writes a configuration file in cketerm's form and returns its path.
pub fn config(dir: &Path, name: &str, etcd: &str, kubeconfig: Option<&Path>, ttl: u64) -> PathBuf {
    config_with(dir, name, &format!("endpoints: [\"{etcd}\"]"), kubeconfig, ttl)
}

fn config_with(dir: &Path, name: &str, etcd: &str, kubeconfig: Option<&Path>, ttl: u64) -> PathBuf {
    let path = dir.join(name);
    let kubernetes =
        kubeconfig.map_or_else(String::new, |k| format!("kubernetes: {{kubeconfig: \"{}\"}}\n", k.display()));
    // all daemons of a test share one state directory, as on one host
    let engine = format!("engine: {{lease_ttl_seconds: {ttl}, state_directory: \"{}/state\"}}\n", dir.display());
    let text = format!("etcd: {{{etcd}}}\n{kubernetes}{engine}");
    // an unchanged file is not rewritten, because a daemon may be reading it
    if std::fs::read_to_string(&path).ok().as_deref() != Some(text.as_str()) {
        std::fs::write(&path, text).expect("the configuration is written");
    }
    path
}

impl World {
    /// Configuration of this world, as the user `bench`, TTL 5 s.
    pub fn config(&self) -> PathBuf {
        config(self.dir(), "config.yaml", &self.etcd, Some(&self.kubeconfig_bench), 5)
    }

    /// Runs one command that must exit with 0; returns its data.
    pub fn run(&self, args: &[&str]) -> String {
        // more than a stall of the machine lasts
        let etcd = format!("endpoints: [\"{}\"], timeout: 20s", self.etcd);
        let config = config_with(self.dir(), "client.yaml", &etcd, Some(&self.kubeconfig_bench), 5);
        let output = cketerm(&config, args);
        assert_eq!(output.code, 0, "cketerm {args:?}: {}{}", output.stdout, output.stderr);
        output.stdout
    }

    /// Same as [`World::run`], with the notes on standard error before the data.
    pub fn run_with_notes(&self, args: &[&str]) -> String {
        let output = cketerm(&self.config(), args);
        assert_eq!(output.code, 0, "cketerm {args:?}: {}{}", output.stdout, output.stderr);
        format!("{}{}", output.stderr, output.stdout)
    }

    /// Starts an engine, with its log in `NAME.log`.
    pub fn daemon(&self, name: &str) -> Daemon {
        Daemon::start(self.dir(), &self.config(), name)
    }
}

/// An engine in a process of its own. Drop kills it.
pub struct Daemon {
    child: Child,
    /// `127.0.0.1:PORT` of `/healthz` and `/readyz`, or `off`.
    pub http: String,
    /// Its standard error.
    pub log: PathBuf,
}

impl Daemon {
    /// Starts one.
    pub fn start(dir: &Path, config: &Path, name: &str) -> Self {
        Self::start_in(dir, config, name, &[])
    }

    /// Starts one with additional environment variables.
    pub fn start_in(dir: &Path, config: &Path, name: &str, environment: &[(&str, &Path)]) -> Self {
        Self::start_by(command(), dir, config, name, environment)
    }

    /// Starts one with this limit of open files.
    pub fn start_limited(dir: &Path, config: &Path, name: &str, files: u32) -> Self {
        let program = command();
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(program.get_program());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        Self::start_by(limited, dir, config, name, &[])
    }

    /// Starts one without the HTTP endpoint.
    pub fn start_without_http(dir: &Path, config: &Path, name: &str, environment: &[(&str, &Path)]) -> Self {
        Self::start_at("off".to_owned(), command(), dir, config, name, environment)
    }

    fn start_by(command: Command, dir: &Path, config: &Path, name: &str, environment: &[(&str, &Path)]) -> Self {
        Self::start_at(format!("127.0.0.1:{}", free_port()), command, dir, config, name, environment)
    }

    fn start_at(
        http: String,
        mut command: Command,
        dir: &Path,
        config: &Path,
        name: &str,
        environment: &[(&str, &Path)],
    ) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).expect("a log");
        let child = command
            .arg("--daemon")
            .arg("--config")
            .arg(config)
            .args(["--http", &http])
            .env("CKETERM_LEASE_TTL", "5")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a log"))
            .stderr(file)
            .spawn()
            .expect("the daemon starts");
        Self { child, http, log }
    }

    /// Status and body of one of its pages; status 0 = no answer.
    pub fn page(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.http);
        super::sandbox::http("GET", &url, &[], "")
    }

    /// Waits until it is ready; returns the body of the page.
    pub fn ready(&self) -> String {
        wait_for(&format!("/readyz answers 200; see {}", self.log.display()), 30, || {
            let (code, body) = self.page("/readyz");
            (code == 200).then_some(body)
        })
    }

    /// Id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal: `STOP`, `CONT` …
    pub fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
    }

    /// Kills it, as `kill -9`.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM; returns the exit status and the duration of the end.
    pub fn terminate(mut self) -> (ExitStatus, Duration) {
        let began = Stopwatch::start();
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let status = wait_for("the daemon ends on SIGTERM", 30, || self.child.try_wait().expect("a status"));
        (status, began.elapsed())
    }

    /// Reports whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its log so far.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
