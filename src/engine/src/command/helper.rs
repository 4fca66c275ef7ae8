//! The helper that runs one command: `cketerm run-command`, a process between engine and command.

use std::{
    io::{Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitCode, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use cketerm_model::{
    attempt::Ended,
    clock::Clock,
    output::OutputTails,
    result::{CommandResult, argv_digest},
    text,
};
use cketerm_runtime::descriptors;
use rustix::process::{Pid, Signal, kill_process_group, setsid};
use serde::{Deserialize, Serialize};

use super::{
    options::HelperOptions,
    outcome,
    output::{Grown, OutputReporter, Tail},
    results::ResultFolder,
};

/// Time between SIGTERM and SIGKILL of a process group whose time is over.
const GRACE: Duration = Duration::from_secs(1);

/// Report that the helper prints when the command has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) end: Ended,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// A line that the helper prints: what the command has printed so far, or the report, which is the last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Message {
    /// The command has ended.
    Report(Report),
    /// The command runs.
    SoFar(OutputTails),
}

/// Runs the helper, `cketerm run-command`, with the arguments after the subcommand. It writes the result to the given
/// folder, so that the result outlives the engine. At the end it prints one JSON line. The given number of bytes of its
/// own input go to the command.
pub fn helper_main(words: &[String]) -> ExitCode {
    let Some(options) = HelperOptions::read(words) else { return ExitCode::from(2) };
    // A session of its own keeps the terminal's signals away. It fails only if this process leads a group already.
    let _ = setsid();
    if let Some(soft) = options.descriptors {
        descriptors::lower(soft);
    }
    let input = options.input.map(|bytes| {
        let mut input = Vec::new();
        let _ = std::io::stdin().take(bytes).read_to_end(&mut input);
        input
    });
    let past_deadline =
        options.start_before.is_some_and(|at| Clock::host().boot() >= at).then_some("its start deadline had passed");
    // The engine ended while it wrote.
    let cut = input.as_ref().zip(options.input).is_some_and(|(input, bytes)| (input.len() as u64) < bytes);
    let withheld = past_deadline.or_else(|| cut.then_some("its input was cut off"));
    let report = if let Some(why) = withheld {
        Report { end: Ended::Withheld(why.to_owned()), stdout: String::new(), stderr: String::new() }
    } else {
        let reporter = options.report_output.then(|| OutputReporter::new(|tails| print(&Message::SoFar(tails))));
        supervise(&options.argv, options.timeout, options.end_with_engine, input, reporter)
    };
    // The result is written to disk first, because the reader of the answer may be gone before it has recorded it.
    if let Some((folder, label)) = options.result {
        let argv = argv_digest(&options.argv);
        let outcome = outcome(Clock::host().wall(), (report.end.clone(), report.stdout.clone(), report.stderr.clone()));
        // Without the file, the outcome is unknown to the next leader, as it is if this host is gone.
        let _ = ResultFolder::at(folder).write(&CommandResult { label, argv, outcome });
    }
    print(&Message::Report(report));
    ExitCode::SUCCESS
}

/// Prints one line for the engine. Returns false if the engine is gone, and nobody reads it.
fn print(message: &Message) -> bool {
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    std::io::stdout().write_all(line.as_bytes()).is_ok()
}

enum Event {
    Ended(std::io::Result<std::process::ExitStatus>),
    EngineGone,
}

fn supervise(
    argv: &[String],
    timeout: u64,
    end_with_engine: bool,
    input: Option<Vec<u8>>,
    reporter: Option<(OutputReporter, Grown)>,
) -> Report {
    let spawned = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir("/")
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => {
            let end = Ended::NotStarted(format!("{}: {e}", text::visible(&argv[0], false)));
            return Report { end, stdout: String::new(), stderr: String::new() };
        }
    };
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (reporter, grown) = reporter.unzip();
    let (out, err) = (Tail::keep(child.stdout.take(), grown.clone()), Tail::keep(child.stderr.take(), grown));
    if let Some(reporter) = reporter {
        reporter.follow(&out, &err);
    }
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // The command may not read its input, so a thread writes it.
        thread::spawn(move || stdin.write_all(&input));
    }
    let (events, inbox) = mpsc::channel();
    let waiter = events.clone();
    thread::spawn(move || waiter.send(Event::Ended(child.wait())));
    if end_with_engine {
        thread::spawn(move || {
            let mut nothing = Vec::new();
            let _ = std::io::stdin().read_to_end(&mut nothing);
            events.send(Event::EngineGone)
        });
    }
    // The deadline is in boot time, so it also passes while the host is suspended.
    let deadline = Clock::host().boot() + Duration::from_secs(timeout);
    let end = loop {
        let left = deadline.saturating_duration_since(Clock::host().boot());
        match inbox.recv_timeout(left.min(Duration::from_secs(1))) {
            Ok(Event::Ended(status)) => break ended(status),
            Ok(Event::EngineGone) => {
                end_group(group, &inbox);
                break Ended::Unknown("the engine ended".to_owned());
            }
            Err(_) if left.is_zero() => {
                end_group(group, &inbox);
                break Ended::TimedOut(timeout);
            }
            Err(_) => {}
        }
    };
    Report { end, stdout: out.finish(), stderr: err.finish() }
}

fn ended(status: std::io::Result<std::process::ExitStatus>) -> Ended {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Exit(code),
            (None, Some(signal)) => Ended::Signal(signal),
            (None, None) => Ended::Unknown(status.to_string()),
        },
        Err(e) => Ended::Unknown(e.to_string()),
    }
}

/// Sends SIGTERM to the whole group, then SIGKILL.
fn end_group(group: Option<Pid>, inbox: &mpsc::Receiver<Event>) {
    let Some(group) = group else { return };
    let _ = kill_process_group(group, Signal::TERM);
    let until = Instant::now() + GRACE;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match inbox.recv_timeout(left) {
            Ok(Event::Ended(_)) | Err(_) => break,
            Ok(Event::EngineGone) => {}
        }
    }
    // Children of the command may still be there.
    let _ = kill_process_group(group, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::{super::output::TAIL, *};

    fn sh(script: &str, timeout: u64) -> Report {
        supervise(&["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()], timeout, false, None, None)
    }

    #[test]
    fn a_command_may_read_or_ignore_its_input() {
        let cat = |script: &str| {
            let argv = ["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()];
            supervise(&argv, 10, false, Some(vec![b'x'; 200_000]), None)
        };
        assert_eq!(cat("wc -c").stdout.trim(), "200000");
        assert_eq!(cat("exit 0").end, Ended::Exit(0));
        assert_eq!(sh("wc -c", 10).stdout.trim(), "0");
    }

    /// The command goes on only after its first lines were reported.
    #[test]
    fn complete_lines_are_reported_while_the_command_runs() {
        let dir = tempfile::tempdir().unwrap();
        let go = dir.path().join("go");
        let script = format!("echo one; printf part; while [ ! -e {} ]; do sleep 0.05; done; echo two", go.display());
        let (sender, reports) = mpsc::channel();
        let reporter = OutputReporter::new(move |tails| {
            std::fs::write(&go, "").unwrap();
            sender.send(tails).is_ok()
        });
        let argv = ["/bin/sh".to_owned(), "-c".to_owned(), script];
        let report = supervise(&argv, 60, false, None, Some(reporter));
        assert_eq!((report.end, report.stdout.as_str()), (Ended::Exit(0), "one\nparttwo\n"));
        assert_eq!(reports.recv().map(|tails: OutputTails| tails.stdout).as_deref(), Ok("one\n"));
    }

    #[test]
    fn exit_status_and_outputs_are_reported() {
        let report = sh("echo true; echo oops >&2; exit 3", 10);
        assert_eq!((report.end, report.stdout.trim(), report.stderr.trim()), (Ended::Exit(3), "true", "oops"));
    }

    #[test]
    fn only_the_tail_of_a_large_output_is_kept() {
        let report = sh("head -c 5000000 /dev/zero | tr '\\0' x; echo END", 30);
        assert_eq!(report.end, Ended::Exit(0));
        assert!(report.stdout.len() <= TAIL && report.stdout.trim_end().ends_with("xEND"));
    }

    #[test]
    fn control_characters_become_visible() {
        assert_eq!(sh("printf 'a\\033[2Jb'", 10).stdout, "a␛[2Jb");
    }

    #[test]
    fn a_timeout_kills_the_whole_process_group() {
        let marker = tempfile::NamedTempFile::new().unwrap();
        let path = marker.path().display().to_string();
        let script = format!("(sleep 3; echo survived > {path}) & sleep 60");
        assert_eq!(sh(&script, 1).end, Ended::TimedOut(1));
        thread::sleep(Duration::from_millis(3500));
        assert_eq!(std::fs::read_to_string(marker.path()).unwrap(), "");
    }

    #[test]
    fn a_foreign_signal_is_distinguished_from_the_timeout() {
        assert_eq!(sh("kill -9 $$", 10).end, Ended::Signal(9));
    }

    #[test]
    fn a_missing_program_is_reported_as_not_started() {
        let report = supervise(&["/no/such/program".to_owned()], 5, false, None, None);
        assert!(matches!(report.end, Ended::NotStarted(why) if why.contains("/no/such/program")));
    }
}
