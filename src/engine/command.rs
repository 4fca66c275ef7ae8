//! Commands of the definition as child processes (spec/safety.md, Commands).
//!
//! An argv list, never a shell, run by a small helper: this program executed again as `cketerm run-command`. The helper
//! has a session of its own, enforces the timeout by itself, ends the whole process group, and goes on when the engine
//! is gone: a machine between off and on must not stay off. Checks are ended when the engine goes.

mod helper;

use std::{fmt, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};

use self::helper::Report;
pub use self::helper::{TAIL, helper_main};
use super::snapshot::CheckAnswer;
use crate::{
    descriptors,
    model::{
        attempt::{Ended, Outcome},
        secret,
    },
};

/// What a command is for: decides what becomes of it when the engine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Power and repair commands are never killed for the engine's sake.
    Power,
    /// Checks are.
    Check,
}

/// One command line to run.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Seconds after which it is ended.
    pub bound: u64,
    /// What it is for.
    pub purpose: Purpose,
    /// Boot time before which it must have begun; else it is withheld (spec/safety.md, Lease).
    pub start_before: Option<Duration>,
    /// `CKETERM_ENTRY`.
    pub entry: String,
    /// `CKETERM_ATTEMPT`; empty for checks.
    pub attempt: String,
    /// What it reads on its standard input; without it that is empty.
    pub input: Option<String>,
}

/// What answers command lines where they are no processes of this host: the sandbox's machines.
pub trait Commands: Send + Sync {
    /// Whether the program is there.
    fn has(&self, program: &str) -> bool;
    /// Runs it to its end, like the helper: its bound enforced, checks ended when the future is dropped, power commands
    /// not.
    fn run(&self, line: CommandLine) -> BoxFuture<'static, (Ended, String, String)>;
}

/// Runs command lines.
#[derive(Clone)]
pub struct Spawner(Where);

#[derive(Clone)]
enum Where {
    Host(Host),
    Elsewhere(Arc<dyn Commands>),
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Where::Host(host) => host.fmt(f),
            Where::Elsewhere(_) => f.write_str("Elsewhere"),
        }
    }
}

/// On this host, by the helper.
#[derive(Clone, Debug)]
struct Host {
    helper: PathBuf,
    environment: Arc<Vec<(String, String)>>,
    /// Checks that may run at once.
    checks: Arc<Semaphore>,
}

impl Spawner {
    /// Commands get PATH, HOME, LANG, `CKETERM_CONFIG` and the variables named in `also`, and nothing else.
    /// `helper` is this program.
    pub fn new(helper: PathBuf, config: Option<&str>, also: &[String]) -> Self {
        let names = ["PATH", "HOME", "LANG"].iter().map(|n| (*n).to_owned()).chain(also.iter().cloned());
        let mut environment: Vec<_> = names.filter_map(|n| std::env::var(&n).ok().map(|v| (n, v))).collect();
        if let Some(config) = config {
            environment.push(("CKETERM_CONFIG".to_owned(), config.to_owned()));
        }
        let checks = Arc::new(Semaphore::new(descriptors::checks_at_once()));
        Self(Where::Host(Host { helper, environment: Arc::new(environment), checks }))
    }

    /// Commands are answered by something else than this host.
    pub fn elsewhere(commands: impl Commands + 'static) -> Self {
        Self(Where::Elsewhere(Arc::new(commands)))
    }

    /// Whether the program is there.
    pub fn has(&self, program: &str) -> bool {
        match &self.0 {
            Where::Host(host) => host.has(program),
            Where::Elsewhere(commands) => commands.has(program),
        }
    }

    /// Runs it to its end. Never fails: what cannot be run is an outcome too.
    pub async fn run(&self, line: &CommandLine) -> (Ended, String, String) {
        match &self.0 {
            Where::Host(host) => host.run(line).await,
            Where::Elsewhere(commands) => commands.run(line.clone()).await,
        }
    }
}

impl Host {
    /// Whether the program is on this host: an absolute path, or found in PATH, and executable.
    fn has(&self, program: &str) -> bool {
        use std::os::unix::fs::PermissionsExt;
        let executable =
            |path: PathBuf| std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
        if program.contains('/') {
            return executable(program.into());
        }
        let path = self.environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, v)| v.as_str());
        path.split(':').any(|dir| executable(PathBuf::from(dir).join(program)))
    }

    async fn run(&self, line: &CommandLine) -> (Ended, String, String) {
        // a thousand checks at once would leave no file descriptor for the command that a machine waits for
        let _turn = match line.purpose {
            Purpose::Check => self.checks.acquire().await.ok(),
            Purpose::Power => None,
        };
        match self.spawn(line).await {
            Ok(report) => (report.end, report.stdout, report.stderr),
            Err(why) => (Ended::NotStarted(why), String::new(), String::new()),
        }
    }

    async fn spawn(&self, line: &CommandLine) -> Result<Report, String> {
        let mut command = tokio::process::Command::new(&self.helper);
        command
            .args(["run-command", "--timeout", &line.bound.to_string()])
            .args((line.purpose == Purpose::Check).then_some("--end-with-engine"))
            .args(line.start_before.map(|at| format!("--start-before={}", at.as_millis())))
            .args(line.input.as_ref().map(|input| format!("--input={}", input.len())))
            .args(descriptors::inherited().map(|soft| format!("--descriptors={soft}")))
            .arg("--")
            .args(&line.argv)
            .env_clear()
            .envs(self.environment.iter().map(|(n, v)| (n, v)))
            .env("CKETERM_ENTRY", &line.entry)
            .env("CKETERM_ATTEMPT", &line.attempt)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Dropping the helper's stdin is what ends a check; nothing ends a power command.
            .kill_on_drop(false);
        let mut child = command.spawn().map_err(|e| format!("helper {}: {e}", self.helper.display()))?;
        let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
        if let (Some(stdin), Some(input)) = (&mut stdin, &line.input) {
            // The helper takes all of it at once, whatever the command does; one that has died says so below.
            let _ = stdin.write_all(input.as_bytes()).await;
            let _ = stdin.flush().await;
        }
        let mut said = String::new();
        if let Some(mut stdout) = stdout {
            stdout.read_to_string(&mut said).await.map_err(|e| format!("helper's answer: {e}"))?;
        }
        let status = child.wait().await.map_err(|e| format!("helper: {e}"))?;
        drop(stdin);
        serde_json::from_str(said.trim()).or_else(|_| {
            // The helper itself was killed: the command's fate is unknown, which is not the same as "not started".
            Ok(Report {
                end: Ended::Unknown(format!("the helper ended with {status}")),
                stdout: String::new(),
                stderr: String::new(),
            })
        })
    }
}

/// The outcome that is recorded on an attempt: what looks like a secret in its outputs is not kept.
pub fn outcome(at: jiff::Timestamp, (end, stdout, stderr): (Ended, String, String)) -> Outcome {
    Outcome { end, at, stdout: secret::masked(&stdout), stderr: secret::masked(&stderr) }
}

/// What a check's end means: exit 0 and `true` is yes; what could not be asked is no answer; the rest is no.
pub fn check_answer((end, stdout, stderr): (Ended, String, String)) -> CheckAnswer {
    let said = || {
        secret::masked(
            &[stdout.trim(), stderr.trim()].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("; "),
        )
    };
    match end {
        Ended::Exit(0) if stdout.trim() == "true" => CheckAnswer::Yes,
        Ended::Exit(0) => CheckAnswer::No(said()),
        Ended::Exit(code @ (126 | 127)) => CheckAnswer::Unavailable(format!("exit {code}: {}", said())),
        Ended::Exit(code) => CheckAnswer::No(format!("exit {code} {}", said()).trim_end().to_owned()),
        Ended::TimedOut(seconds) => CheckAnswer::No(format!("no answer in {seconds} s")),
        Ended::Signal(number) => CheckAnswer::Unavailable(format!("ended by signal {number}")),
        Ended::NotStarted(why) | Ended::Withheld(why) | Ended::Unknown(why) => CheckAnswer::Unavailable(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exit_zero_and_true_is_yes_and_what_cannot_be_asked_is_no_answer() {
        let answer = |end: Ended, out: &str| check_answer((end, out.to_owned(), String::new()));
        assert_eq!(answer(Ended::Exit(0), " true\n"), CheckAnswer::Yes);
        assert!(matches!(answer(Ended::Exit(0), "TRUE"), CheckAnswer::No(_)));
        assert!(matches!(answer(Ended::Exit(1), "true"), CheckAnswer::No(_)));
        assert!(matches!(answer(Ended::TimedOut(3), ""), CheckAnswer::No(_)));
        for end in [Ended::Exit(127), Ended::Exit(126), Ended::Signal(11), Ended::NotStarted("x".to_owned())] {
            assert!(matches!(answer(end, "true"), CheckAnswer::Unavailable(_)));
        }
    }
}
