//! One run of a program with a time limit, ended early once its output decides.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{build::Program, leftovers};

/// Address space of one process in KiB: a mutant that allocates without end must not stop the machine. etcd needs more
/// than half of it.
const MEMORY: u64 = 16 * 1024 * 1024;

/// Variable that switches a mutant on. Tests on servers remove all variables that begin with `CKETERM_`.
pub const ACTIVE: &str = "ACTIVE_MUTANT";
/// Variable that names a file for the mutants that are reached.
pub const REACHED: &str = "REACHED_MUTANTS";

/// Number of runs of this process, for the names of their folders.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Success.
    Passed,
    /// A test failed: its name, or the first line that says so.
    Failed(String),
    /// The time was over.
    Overdue,
}

/// Surroundings of all runs.
#[derive(Clone, Debug)]
pub struct Runner {
    /// Root of the copy.
    pub tree: PathBuf,
    /// Folder for temporary files.
    pub temporary: PathBuf,
    /// A file whose existence makes all runs wait.
    pub pause_file: Option<PathBuf>,
    /// Further variables.
    pub variables: Vec<(String, String)>,
}

impl Runner {
    /// Runs a program of tests, and ends it as soon as `failure` recognises a line of its output.
    ///
    /// The limit is one of processor time. One of wall time is longer by the load of the machine.
    ///
    /// # Errors
    ///
    /// Fails if the program cannot be started.
    pub fn run(
        &self,
        program: &Program,
        arguments: &[String],
        variables: &[(String, String)],
        limit: Duration,
        failure: fn(&str) -> Option<String>,
    ) -> Result<(End, Duration)> {
        self.wait_for_quiet();
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let temporary = self.temporary.join(format!("mutant-{}-{number}", std::process::id()));
        fs::create_dir_all(&temporary)?;
        let (seconds, mut command) = (limit.as_secs() + 1, Command::new("sh"));
        let limits = format!("ulimit -c 0; ulimit -v {MEMORY}; ulimit -S -t {seconds}; ulimit -H -t {}", seconds + 5);
        command.arg("-c").arg(format!("{limits}; exec nice -n 19 \"$0\" \"$@\""));
        command.arg(&program.path).args(arguments).current_dir(&program.package);
        command.env("CARGO_MANIFEST_DIR", &program.package).env("TMPDIR", &temporary);
        // nothing may be written into the sources, and each run has to draw the same inputs
        command.env("INSTA_UPDATE", "no").env("INSTA_WORKSPACE_ROOT", &self.tree);
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1").env("PROPTEST_RNG_SEED", "1");
        command.env_remove(ACTIVE).env_remove(REACHED);
        command.envs(self.variables.iter().cloned()).envs(variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| program.path.display().to_string())?;
        // the limit is one of processor time; on a busy machine that takes longer
        let end = watch(&mut child, began + limit.mul_f64(1.0 + load()), failure);
        let took = began.elapsed();
        stop(&mut child);
        leftovers::kill(&temporary);
        let _ = fs::remove_dir_all(&temporary);
        Ok((end?, took))
    }

    fn wait_for_quiet(&self) {
        while self.pause_file.as_deref().is_some_and(Path::exists) {
            thread::sleep(Duration::from_secs(5));
        }
    }
}

fn watch(child: &mut Child, deadline: Instant, failure: fn(&str) -> Option<String>) -> Result<End> {
    let output = child.stdout.take().context("no output")?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || read_lines(output, &sender));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                if let Some(name) = failure(&line) {
                    return Ok(End::Failed(name));
                }
            }
            Err(RecvTimeoutError::Timeout) => return Ok(End::Overdue),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // its output is closed, but it may still hang
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(match status.signal() {
                Some(signal) if signal == Signal::XCPU.as_raw() => End::Overdue,
                _ if status.success() => End::Passed,
                _ => End::Failed(status.to_string()),
            });
        }
        if Instant::now() >= deadline {
            return Ok(End::Overdue);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Number of processes that wanted a processor in the last minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Sends complete lines, and the beginning of a very long one.
fn read_lines(output: impl Read, sender: &mpsc::Sender<String>) {
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
            return;
        }
        line.clear();
    }
}

/// Ends the whole process group.
fn stop(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit: Duration) -> End {
        let runner = Runner {
            tree: std::env::temp_dir(),
            temporary: std::env::temp_dir(),
            pause_file: None,
            variables: vec![("GREETING".to_owned(), "hello".to_owned())],
        };
        let program = Program { name: "sh".to_owned(), path: "/bin/sh".into(), package: std::env::temp_dir() };
        let arguments = ["-c".to_owned(), script.to_owned()];
        let failure = |line: &str| line.strip_suffix(" FAILED").map(str::to_owned);
        runner.run(&program, &arguments, &[], limit, failure).unwrap().0
    }

    #[test]
    fn the_end_is_success_a_failed_line_a_status_or_the_time_limit() {
        let long = Duration::from_mins(1);
        assert_eq!(run("test $GREETING = hello", long), End::Passed);
        assert_eq!(run("echo one FAILED; sleep 100", long), End::Failed("one".to_owned()));
        assert!(matches!(run("exit 3", long), End::Failed(text) if text.contains('3')));
        assert_eq!(run("sleep 100", Duration::from_millis(20)), End::Overdue);
        assert_eq!(run("while :; do :; done", Duration::from_millis(900)), End::Overdue);
        assert_eq!(run("exec >&-; sleep 100", Duration::from_millis(20)), End::Overdue);
    }
}
