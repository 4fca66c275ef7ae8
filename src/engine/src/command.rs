//! Commands of the definition as child processes (SAF-19).
//!
//! An argv list is run, never a shell, by a small helper: this program executed again as `cketerm run-command`. The
//! helper has a session of its own, enforces the timeout, and ends the whole process group. It goes on when the engine
//! is gone, because a machine between off and on must not stay off. Checks end with the engine.

mod helper;
mod init;
mod options;
mod output;
mod results;

use std::{
    fmt,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use cketerm_model::{
    attempt::{CheckAnswer, Ended, Outcome},
    boot_time::BootTime,
    output::OutputTails,
    result::{CommandResult, ResultLabel},
    secret,
};
use cketerm_runtime::descriptors;
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    sync::{Semaphore, watch},
};

pub use self::{
    helper::helper_main,
    init::{init_main, is_init},
    options::SUBCOMMAND,
    output::TAIL,
    results::{ResultFolder, ResultScan},
};
use self::{
    helper::{Message, Report},
    options::HelperOptions,
};

/// Purpose of a command, which decides whether it outlives the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Power and repair commands. They are never killed because the engine ends.
    Power,
    /// Checks. They end with the engine.
    Check,
}

/// A command line to run.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Seconds after which the command is ended.
    pub bound: u64,
    /// Purpose of the command.
    pub purpose: Purpose,
    /// Boot time before which the command must have begun; else it is withheld (SAF-18).
    pub start_before: Option<BootTime>,
    /// `CKETERM_ENTRY`.
    pub entry: String,
    /// `CKETERM_ATTEMPT`; empty for checks.
    pub attempt: String,
    /// Standard input of the command; none = empty.
    pub input: Option<String>,
    /// Attempt whose result must outlive this engine; none for checks and notices.
    pub label: Option<ResultLabel>,
    /// Receiver of what the command has printed so far; none for checks and notices.
    pub output: Option<watch::Sender<OutputTails>>,
}

/// Executor of command lines that are not processes of this host, such as the sandbox's machines.
pub trait Commands: Send + Sync {
    /// Reports whether the program exists.
    fn has(&self, program: &str) -> bool;
    /// Runs the command to its end, like the helper. It enforces the bound. Dropping the future ends a check, but not a
    /// power command.
    fn run(&self, line: CommandLine) -> BoxFuture<'static, (Ended, String, String)>;
    /// Reports whether results are kept until they are recorded.
    fn keeps_results(&self) -> bool {
        false
    }
    /// Returns the result of an attempt, if it is kept.
    fn result(&self, _label: &ResultLabel) -> Option<CommandResult> {
        None
    }
    /// Deletes the kept result, because it is recorded elsewhere.
    fn forget_result(&self, _label: &ResultLabel) {}
}

/// Results of power and repair commands, which are kept on the host that ran them until they are recorded.
impl Spawner {
    /// Reports whether results are kept.
    pub fn keeps_results(&self) -> bool {
        match &self.0 {
            Executor::Host(host) => host.results.is_some(),
            Executor::Elsewhere(commands) => commands.keeps_results(),
        }
    }

    /// Creates the place where results are kept; returns none if no results are kept. The error says why it cannot be
    /// used.
    pub fn prepare_results(&self) -> Option<Result<(), String>> {
        match &self.0 {
            Executor::Host(host) => host.results.as_ref().map(ResultFolder::prepare),
            Executor::Elsewhere(_) => None,
        }
    }

    /// Returns the result of an attempt that this host ran. The error says why the file is not a result.
    pub fn result(&self, label: &ResultLabel) -> Result<Option<CommandResult>, String> {
        match &self.0 {
            Executor::Host(host) => host.results.as_ref().map_or(Ok(None), |folder| folder.read(label)),
            Executor::Elsewhere(commands) => Ok(commands.result(label)),
        }
    }

    /// Deletes the kept result, because it is recorded elsewhere.
    pub fn forget_result(&self, label: &ResultLabel) {
        match &self.0 {
            Executor::Host(host) => host.results.iter().for_each(|folder| folder.forget(label)),
            Executor::Elsewhere(commands) => commands.forget_result(label),
        }
    }

    /// Lists all kept results and removes those that are too old.
    pub fn scan_results(&self, now: SystemTime) -> Option<ResultScan> {
        match &self.0 {
            Executor::Host(host) => host.results.as_ref().map(|folder| folder.scan(now)),
            Executor::Elsewhere(_) => None,
        }
    }
}

/// Runner of command lines.
#[derive(Clone)]
pub struct Spawner(Executor);

#[derive(Clone)]
enum Executor {
    Host(Host),
    Elsewhere(Arc<dyn Commands>),
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Executor::Host(host) => host.fmt(f),
            Executor::Elsewhere(_) => f.write_str("Elsewhere"),
        }
    }
}

/// Runner on this host, by the helper.
#[derive(Clone, Debug)]
struct Host {
    helper: PathBuf,
    environment: Arc<Vec<(String, String)>>,
    /// Limits the checks that run at once.
    checks: Arc<Semaphore>,
    /// Folder of results of power and repair commands, which are kept until they are recorded.
    results: Option<ResultFolder>,
    /// Recent failures to start helpers.
    start_failures: Arc<Mutex<StartFailures>>,
}

/// Failures to start a helper, one after the other.
#[derive(Debug, Default)]
struct StartFailures {
    /// Number of failures in a row; 0 = the last helper was started.
    failures: u32,
    /// Reason of the last failure.
    why: String,
}

/// Number of failures in a row after which this host counts as unable to start programs. A single one may be a short
/// lack of memory.
const MAX_START_FAILURES: u32 = 3;

impl Spawner {
    /// Creates a runner on this host. Commands get PATH, HOME, LANG, `CKETERM_CONFIG` and the variables named in
    /// `passed_variables`, and nothing else. `helper` is this program.
    pub fn new(helper: PathBuf, config: Option<&str>, passed_variables: &[String]) -> Self {
        let names = ["PATH", "HOME", "LANG"].iter().map(|n| (*n).to_owned()).chain(passed_variables.iter().cloned());
        let mut environment: Vec<_> = names.filter_map(|n| std::env::var(&n).ok().map(|v| (n, v))).collect();
        if let Some(config) = config {
            environment.push(("CKETERM_CONFIG".to_owned(), config.to_owned()));
        }
        let checks = Arc::new(Semaphore::new(descriptors::checks_at_once()));
        let environment = Arc::new(environment);
        Self(Executor::Host(Host { helper, environment, checks, results: None, start_failures: Arc::default() }))
    }

    /// Keeps results of power and repair commands in this directory until they are recorded.
    #[must_use]
    pub fn keeping_results(self, folder: ResultFolder) -> Self {
        match self.0 {
            Executor::Host(host) => Self(Executor::Host(Host { results: Some(folder), ..host })),
            elsewhere @ Executor::Elsewhere(_) => Self(elsewhere),
        }
    }

    /// Creates a runner that passes commands to another executor than this host.
    pub fn elsewhere(commands: impl Commands + 'static) -> Self {
        Self(Executor::Elsewhere(Arc::new(commands)))
    }

    /// Reports whether the program exists.
    pub fn has(&self, program: &str) -> bool {
        match &self.0 {
            Executor::Host(host) => host.has(program),
            Executor::Elsewhere(commands) => commands.has(program),
        }
    }

    /// Returns the reason why this host cannot start programs: no memory, process or descriptor is left, or the helper
    /// is gone. It holds until a program was started again.
    pub fn unable(&self) -> Option<String> {
        let Executor::Host(host) = &self.0 else { return None };
        let start_failures = host.start_failures.lock().unwrap_or_else(PoisonError::into_inner);
        (start_failures.failures >= MAX_START_FAILURES)
            .then(|| format!("this host cannot start programs: {}", start_failures.why))
    }

    /// Tests whether a program can be started again, if the last start failed. It runs a helper without a command,
    /// which ends at once.
    pub async fn try_again(&self) {
        let Executor::Host(host) = &self.0 else { return };
        if host.start_failures.lock().unwrap_or_else(PoisonError::into_inner).failures > 0 {
            let mut helper = tokio::process::Command::new(&host.helper);
            helper.arg(SUBCOMMAND).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if let Ok(mut child) = host.started(helper.spawn()) {
                let _ = child.wait().await;
            }
        }
    }

    /// Runs the command to its end. It never fails: a command that cannot be run has an outcome too.
    pub async fn run(&self, line: &CommandLine) -> (Ended, String, String) {
        match &self.0 {
            Executor::Host(host) => host.run(line).await,
            Executor::Elsewhere(commands) => commands.run(line.clone()).await,
        }
    }
}

impl Host {
    /// Reports whether the program is on this host: an absolute path, or found in PATH, and executable.
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
        // A thousand checks at once would leave no file descriptor for the command that a machine waits for.
        let _turn = match line.purpose {
            Purpose::Check => self.checks.acquire().await.ok(),
            Purpose::Power => None,
        };
        match self.spawn(line).await {
            Ok(report) => (report.end, report.stdout, report.stderr),
            // Without its helper, nothing of the command began, so this does not count as a try.
            Err(NoReport::NoHelper(why)) => (Ended::Withheld(why), String::new(), String::new()),
            Err(NoReport::Lost(why)) => (Ended::Unknown(why), String::new(), String::new()),
        }
    }

    /// Counts helpers that could not be started.
    fn started<T>(&self, spawned: std::io::Result<T>) -> std::io::Result<T> {
        let mut start_failures = self.start_failures.lock().unwrap_or_else(PoisonError::into_inner);
        match &spawned {
            Ok(_) => *start_failures = StartFailures::default(),
            Err(e) => {
                start_failures.failures = start_failures.failures.saturating_add(1);
                start_failures.why = format!("helper {}: {e}", self.helper.display());
            }
        }
        spawned
    }

    async fn spawn(&self, line: &CommandLine) -> Result<Report, NoReport> {
        let mut command = tokio::process::Command::new(&self.helper);
        let options = HelperOptions {
            timeout: line.bound,
            end_with_engine: line.purpose == Purpose::Check,
            start_before: line.start_before,
            input: line.input.as_ref().map(|input| input.len() as u64),
            result: self.results.as_ref().zip(line.label.clone()).map(|(at, label)| (at.path().to_owned(), label)),
            descriptors: descriptors::inherited(),
            report_output: line.output.is_some(),
            argv: line.argv.clone(),
        };
        command
            .args(options.words())
            .env_clear()
            .envs(self.environment.iter().map(|(n, v)| (n, v)))
            .env("CKETERM_ENTRY", &line.entry)
            .env("CKETERM_ATTEMPT", &line.attempt)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Closing the helper's stdin ends a check. Nothing ends a power command.
            .kill_on_drop(false);
        let no_helper = |e| NoReport::NoHelper(format!("helper {}: {e}", self.helper.display()));
        let mut child = self.started(command.spawn()).map_err(no_helper)?;
        let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
        if let (Some(stdin), Some(input)) = (&mut stdin, &line.input) {
            // The helper reads all of it at once, whatever the command does. If the helper has died, its missing report
            // shows it below.
            let _ = stdin.write_all(input.as_bytes()).await;
            let _ = stdin.flush().await;
        }
        let mut report = None;
        if let Some(stdout) = stdout {
            let mut lines = BufReader::new(stdout).lines();
            let read = |e| NoReport::Lost(format!("helper's answer: {e}"));
            while let Some(text) = lines.next_line().await.map_err(read)? {
                match (serde_json::from_str(&text), &line.output) {
                    (Ok(Message::Report(ended)), _) => report = Some(ended),
                    (Ok(Message::SoFar(tails)), Some(output)) => drop(output.send_replace(tails)),
                    (Ok(Message::SoFar(_)), None) | (Err(_), _) => {}
                }
            }
        }
        let status = child.wait().await.map_err(|e| NoReport::Lost(format!("helper: {e}")))?;
        drop(stdin);
        // Without a report the helper itself was killed. The fate of the command is unknown, which differs from "not
        // started".
        Ok(report.unwrap_or_else(|| Report {
            end: Ended::Unknown(format!("the helper ended with {status}")),
            stdout: String::new(),
            stderr: String::new(),
        }))
    }
}

/// Reason why a helper reported nothing.
enum NoReport {
    /// The helper could not be started.
    NoHelper(String),
    /// The helper was started, but its report is lost.
    Lost(String),
}

/// Returns the outcome to record on an attempt. Text in the outputs that looks like a secret is masked.
pub fn outcome(at: jiff::Timestamp, (end, stdout, stderr): (Ended, String, String)) -> Outcome {
    Outcome { end, at, stdout: secret::masked(&stdout), stderr: secret::masked(&stderr) }
}

/// Returns the meaning of a check's end (REB-38, REP-30). Exit 0 with `true` is yes. A check that could not run gives
/// no answer. Everything else is no.
pub fn check_answer((end, stdout, stderr): (Ended, String, String)) -> CheckAnswer {
    let output = || {
        secret::masked(
            &[stdout.trim(), stderr.trim()].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("; "),
        )
    };
    match end {
        Ended::Exit(0) if stdout.trim() == "true" => CheckAnswer::Yes,
        Ended::Exit(0) => CheckAnswer::No(output()),
        Ended::Exit(code @ (126 | 127)) => CheckAnswer::Unavailable(format!("exit {code}: {}", output())),
        Ended::Exit(code) => CheckAnswer::Failed { code, output: output() },
        Ended::TimedOut(seconds) => CheckAnswer::TimedOut(seconds),
        Ended::Signal(number) => CheckAnswer::Unavailable(format!("ended by signal {number}")),
        Ended::NotStarted(why) | Ended::Withheld(why) | Ended::Unknown(why) => CheckAnswer::Unavailable(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_means_yes_only_for_exit_zero_and_true() {
        let answer = |end: Ended, out: &str| check_answer((end, out.to_owned(), String::new()));
        assert_eq!(answer(Ended::Exit(0), " true\n"), CheckAnswer::Yes);
        assert!(matches!(answer(Ended::Exit(0), "TRUE"), CheckAnswer::No(_)));
        assert_eq!(answer(Ended::Exit(1), "true"), CheckAnswer::Failed { code: 1, output: "true".to_owned() });
        assert_eq!(answer(Ended::TimedOut(3), ""), CheckAnswer::TimedOut(3));
        // Neither a negative answer nor a failed check.
        for end in [Ended::Exit(127), Ended::Exit(126), Ended::Signal(11), Ended::NotStarted("x".to_owned())] {
            assert!(matches!(answer(end, "true"), CheckAnswer::Unavailable(_)));
        }
    }

    #[tokio::test]
    async fn lines_of_the_helper_before_its_report_are_the_output_so_far() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let helper = dir.path().join("helper");
        let lines =
            [r#"{"stdout":"one"}"#, r#"{"stdout":"one two"}"#, r#"{"end":{"exit":0},"stdout":"all","stderr":""}"#];
        std::fs::write(&helper, format!("#!/bin/sh\n{}", lines.map(|line| format!("echo '{line}'\n")).concat()))
            .unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = watch::Sender::new(OutputTails::default());
        let line = CommandLine {
            argv: vec!["reboot".to_owned()],
            bound: 60,
            purpose: Purpose::Power,
            start_before: None,
            entry: String::new(),
            attempt: String::new(),
            input: None,
            label: None,
            output: Some(output.clone()),
        };
        let spawner = Spawner::new(helper, None, &[]);
        let (end, stdout, _) = loop {
            let ended = spawner.run(&line).await;
            // Another test that forks at this moment holds the file open for writing.
            if !matches!(ended.0, Ended::Withheld(_)) {
                break ended;
            }
        };
        assert_eq!((end, stdout.as_str()), (Ended::Exit(0), "all"));
        assert_eq!(output.borrow().stdout, "one two");
    }

    #[tokio::test]
    async fn a_host_reports_unable_after_three_failed_starts_until_one_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let helper = dir.path().join("helper");
        let spawner = Spawner::new(helper.clone(), None, &[]);
        let line = CommandLine {
            argv: vec!["reboot".to_owned()],
            bound: 5,
            purpose: Purpose::Power,
            start_before: None,
            entry: String::new(),
            attempt: String::new(),
            input: None,
            label: None,
            output: None,
        };
        spawner.try_again().await;
        for _ in 0..MAX_START_FAILURES {
            assert_eq!(spawner.unable(), None);
            assert!(
                matches!(spawner.run(&line).await.0, Ended::Withheld(_)),
                "a failed start does not count as a try of the command"
            );
        }
        assert!(spawner.unable().is_some_and(|why| why.contains("helper")));
        spawner.try_again().await;
        assert!(spawner.unable().is_some());
        std::os::unix::fs::symlink("/bin/true", helper).unwrap();
        spawner.try_again().await;
        assert_eq!(spawner.unable(), None);
    }
}
