//! First process of a container. It runs the program as its child, forwards signals, and reaps orphans. It outlives the
//! engine until the power and repair commands under way have ended (SAF-19).
//!
//! When PID 1 of a PID namespace ends, the kernel kills every other process in it. A command between power off and
//! power on would leave its machine off. The helpers that run those commands survive the engine and become children of
//! PID 1, which waits for each within its own bound. SIGKILL of PID 1 itself, and an OOM kill of the whole cgroup,
//! cannot be survived.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use cketerm_model::text::visible;
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait},
};
use tokio::{
    signal::unix::{Signal as Signals, SignalKind, signal},
    time::Instant,
};

use super::options::{HelperOptions, SUBCOMMAND};

/// Time that the helper may need beyond its command's bound to end the whole group.
const KILL_MARGIN: Duration = Duration::from_secs(5);
/// Longest time from the fork of a process by the engine to its start as a helper.
const START_MARGIN: Duration = Duration::from_secs(10);
/// Bound of a process that cannot be inspected: the default of the policy `command_cap_seconds`.
const UNKNOWN_BOUND: Duration = Duration::from_hours(1);
/// Time between two scans of the processes.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// Bytes read of a command line: the helper's options come first.
const COMMAND_LINE_LIMIT: u64 = 2 << 20;

/// Reports whether this process is the first of its PID namespace.
pub fn is_init() -> bool {
    std::process::id() == 1
}

/// Runs this program again as a child with the same arguments. Returns once the child, and the power and repair
/// commands of its helpers, have ended. The result is the child's status, or 128 + N if signal N ended it.
pub fn init_main(arguments: &[OsString]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = runtime.and_then(|runtime| runtime.block_on(supervise(arguments)));
    match ran {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            log(&format!("the init of this container cannot run the program: {e}"));
            ExitCode::FAILURE
        }
    }
}

async fn supervise(arguments: &[OsString]) -> std::io::Result<u8> {
    // Handlers are installed first, so that an early signal waits for the child.
    let mut forwarded = Forwarded::new()?;
    let mut children = signal(SignalKind::child())?;
    let child = command_of("/proc/self/exe", arguments).spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let code = loop {
        if let Some(code) = reap(pid) {
            break code;
        }
        tokio::select! {
            biased;
            _ = children.recv() => {}
            signal = forwarded.next() => {
                // A child that has ended meanwhile is reaped next.
                let _ = kill_process(pid, signal);
            }
        }
    };
    let scan = || {
        reap(pid);
        waiting(arguments)
    };
    let changed = async || {
        tokio::select! {
            biased;
            _ = children.recv() => {}
            _ = forwarded.next() => log("ending once these commands have ended"),
            () = tokio::time::sleep(SCAN_INTERVAL) => {}
        }
    };
    wait_for_commands(code, scan, changed).await;
    Ok(code)
}

/// Returns the command that runs this program under the name, and with the arguments, of this process.
fn command_of(program: &str, arguments: &[OsString]) -> Command {
    let mut command = Command::new(program);
    if let Some(name) = arguments.first() {
        command.arg0(name);
    }
    command.args(arguments.iter().skip(1));
    command
}

/// Waits until the scan finds no process any more, or only processes that have had their time. `changed` returns when
/// it is time for the next scan.
async fn wait_for_commands(code: u8, scan: impl Fn() -> Vec<Waiting>, mut changed: impl AsyncFnMut()) {
    let began = Instant::now();
    let mut logged = Vec::new();
    loop {
        let left: Vec<Waiting> = scan().into_iter().filter(|w| began.elapsed() < w.bound).collect();
        if left.is_empty() {
            return;
        }
        let names: Vec<String> = left.iter().map(|w| w.what.clone()).collect();
        if names != logged {
            log(&format!(
                "the program has ended (status {code}); waiting for its commands, so that no machine stays off: {}",
                names.join("; ")
            ));
            logged = names;
        }
        changed().await;
    }
}

/// Reaps every child that has ended; returns the program's status if the program is among them. A program that stopped
/// itself is continued, because nobody else in a container could do so.
fn reap(program: Pid) -> Option<u8> {
    let mut code = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
        if pid != program {
            continue;
        }
        if status.stopped() {
            let _ = kill_process(program, Signal::CONT);
        } else {
            code = Some(code_of(status));
        }
    }
    code
}

fn code_of(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|number| 128 + number));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Signals that users and container runtimes send.
struct Forwarded([(Signals, Signal); 6]);

impl Forwarded {
    fn new() -> std::io::Result<Self> {
        let on = |kind: SignalKind, name: Signal| signal(kind).map(|signals| (signals, name));
        Ok(Self([
            on(SignalKind::terminate(), Signal::TERM)?,
            on(SignalKind::interrupt(), Signal::INT)?,
            on(SignalKind::hangup(), Signal::HUP)?,
            on(SignalKind::quit(), Signal::QUIT)?,
            on(SignalKind::user_defined1(), Signal::USR1)?,
            on(SignalKind::user_defined2(), Signal::USR2)?,
        ]))
    }

    /// Waits for the next signal.
    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            let received =
                self.0.iter_mut().find_map(|(signals, name)| signals.poll_recv(cx).is_ready().then_some(*name));
            received.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }
}

/// A process that must end first.
#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    /// Longest wait for it, from the end of the program.
    bound: Duration,
    /// Description for the log.
    what: String,
}

/// Returns the helpers with power or repair commands, and the processes that are about to become one.
fn waiting(own: &[OsString]) -> Vec<Waiting> {
    // The /proc of another PID namespace does not show this one.
    if std::fs::read_link("/proc/self").is_ok_and(|to| to == Path::new("1")) {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        return pids.filter(|pid| *pid != 1).filter_map(|pid| classify(&command_line(pid)?, own)).collect();
    }
    let what = "unknown processes: /proc belongs to another PID namespace".to_owned();
    // An error means that there is no child any more.
    let any = wait(WaitOptions::NOHANG).is_ok();
    any.then_some(Waiting { bound: UNKNOWN_BOUND, what }).into_iter().collect()
}

/// Returns the arguments of a process, including its name; none if it has ended.
fn command_line(pid: u32) -> Option<Vec<String>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(COMMAND_LINE_LIMIT).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_suffix('\0').unwrap_or(&text);
    (!text.is_empty()).then(|| text.split('\0').map(str::to_owned).collect())
}

fn classify(words: &[String], own: &[OsString]) -> Option<Waiting> {
    let rest = words.get(1..)?;
    if let Some((SUBCOMMAND, options)) = rest.split_first().map(|(first, options)| (first.as_str(), options)) {
        let helper = HelperOptions::read(options).filter(|helper| !helper.end_with_engine)?;
        let attempt =
            helper.result.map_or_else(|| "a command".to_owned(), |(_, label)| format!("attempt {}", label.attempt));
        let what = format!("{attempt}, limit {} s", helper.timeout);
        return Some(Waiting { bound: Duration::from_secs(helper.timeout) + KILL_MARGIN, what });
    }
    // The engine forked this process and was killed before the helper's command line replaced the engine's.
    let same = rest.iter().map(OsString::from).eq(own.iter().skip(1).cloned());
    same.then(|| Waiting { bound: START_MARGIN, what: "a process that is about to start a command".to_owned() })
}

fn log(text: &str) {
    eprintln!("cketerm: {}", visible(text, true));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn judged(words: &[&str]) -> Option<Waiting> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        classify(&words, &["/usr/bin/cketerm", "--daemon"].map(OsString::from))
    }

    #[test]
    fn init_waits_only_for_power_and_repair_helpers_within_their_timeout() {
        let power = judged(&["/proc/self/exe", "run-command", "--timeout", "20", "--", "ipmi", "10.0.0.1"]);
        assert_eq!(power.map(|w| w.bound), Some(Duration::from_secs(25)));
        assert_eq!(judged(&["x", "run-command", "--timeout", "20", "--end-with-engine", "--", "check"]), None);
        assert_eq!(judged(&["ipmi", "10.0.0.1"]), None);
        assert_eq!(judged(&["ssh"]), None);
        let forked = judged(&["/usr/bin/cketerm", "--daemon"]);
        assert_eq!(forked.map(|w| w.bound), Some(START_MARGIN));
    }

    #[test]
    fn the_program_runs_again_under_the_same_name_with_the_same_arguments() {
        let arguments = ["cketerm", "/proc/self/cmdline"].map(OsString::from);
        let output = command_of("/bin/cat", &arguments).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "cketerm\0/proc/self/cmdline\0");
    }

    #[test]
    fn the_command_line_of_a_process_has_all_its_arguments() {
        let own: Vec<String> = std::env::args().collect();
        assert_eq!(command_line(std::process::id()), Some(own));
        assert_eq!(command_line(0), None, "there is no such process");
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "waitpid reaps it, and returns its status")]
    fn the_status_is_that_of_the_program_and_a_signal_counts_from_128_as_in_a_shell() {
        let ended = |script: &str| {
            let child = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
            code_of(rustix::process::waitpid(pid, WaitOptions::empty()).unwrap().unwrap().1)
        };
        assert_eq!([ended("exit 0"), ended("exit 7"), ended("kill -TERM $$")], [0, 7, 128 + 15]);
    }

    #[tokio::test(start_paused = true)]
    async fn init_ends_with_the_last_command_or_once_it_has_had_its_time() {
        let waits = |bound: u64| Waiting { bound: Duration::from_secs(bound), what: format!("limit {bound} s") };
        let waited = async |scan: &dyn Fn(u32) -> Vec<Waiting>| {
            let (began, scans) = (Instant::now(), Cell::new(0));
            let scan = || {
                scans.set(scans.get() + 1);
                scan(scans.get())
            };
            let ended = wait_for_commands(0, scan, async || tokio::time::sleep(Duration::from_secs(1)).await);
            tokio::time::timeout(Duration::from_mins(1), ended).await.expect("an end");
            began.elapsed().as_secs()
        };
        assert_eq!(waited(&|_| Vec::new()).await, 0, "there are no commands");
        assert_eq!(waited(&|scan| if scan <= 3 { vec![waits(25)] } else { Vec::new() }).await, 3, "it has ended");
        assert_eq!(waited(&|_| vec![waits(5), waits(25)]).await, 25, "the slower one has had its time");
    }
}
