//! One run of a program for a power driver: no shell, a clean environment, a time limit, and bounded output.

mod argv;
mod place;

use std::{
    io::ErrorKind,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use cketerm_runtime::host::{check_executable, is_world_writable};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::timeout,
};

pub(super) use self::{
    argv::{ADDRESS, Argv},
    place::Place,
};
use super::{driver::PowerError, settings::InventoryError, text::shorten};

/// Number of bytes that are kept of each output stream. The rest is read and discarded.
const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// Search path of the program for programs that it runs itself.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Failure of a power command. Each text begins with the file, the machine and the key. No variant shows an argument,
/// because that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandError {
    /// The program cannot be run as it is, so it was not.
    #[error(transparent)]
    Unusable(#[from] InventoryError),
    /// The program was not run. It may be possible later.
    #[error("{place}: {program} was not run: {why}")]
    NotRun {
        /// Place that names it.
        place: Place,
        /// Its path.
        program: String,
        /// The reason.
        why: String,
    },
    /// It did not end within its time and was killed. It may have done its work.
    #[error("{place}: {program} did not end within {seconds} s and was killed; see timeout-seconds")]
    Late {
        /// Place that names it.
        place: Place,
        /// Its path.
        program: String,
        /// Its time limit in seconds.
        seconds: u64,
    },
    /// It failed.
    #[error("{place}: {program} failed ({status}): {message}")]
    Failed {
        /// Place that names it.
        place: Place,
        /// Its path.
        program: String,
        /// Its exit status or signal.
        status: String,
        /// The beginning of its standard error, on one line and with secrets masked.
        message: String,
    },
    /// It printed too much to be a power state.
    #[error("{place}: {program} printed more than {MAX_OUTPUT_BYTES} bytes; print on or off, and nothing else")]
    TooLong {
        /// Place that names it.
        place: Place,
        /// Its path.
        program: String,
    },
}

impl From<CommandError> for PowerError {
    fn from(e: CommandError) -> Self {
        match e {
            CommandError::Unusable(_) => Self::Refused(e.into()),
            CommandError::NotRun { .. }
            | CommandError::Late { .. }
            | CommandError::Failed { .. }
            | CommandError::TooLong { .. } => Self::Failed(e.into()),
        }
    }
}

/// A variable of the environment of a program. No `Debug`, because it may be a password.
pub(super) struct Variable<'a> {
    pub(super) name: &'static str,
    pub(super) value: &'a str,
}

/// End of a program.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The beginning of its standard output.
    pub(super) stdout: String,
    /// The beginning of its standard error.
    pub(super) stderr: String,
    /// Whether it printed more to its standard output.
    cut: bool,
}

impl Ended {
    /// Returns the program's standard output. Errors: it failed, or printed too much.
    #[allow(clippy::result_large_err)] // the error of every run
    pub(super) fn output(self, argv: &Argv) -> Result<String, CommandError> {
        let (place, program) = (argv.place().clone(), argv.program().to_owned());
        if !self.status.success() {
            let message = shorten(&self.stderr);
            let message = if message.is_empty() { "it printed no error".to_owned() } else { message };
            return Err(CommandError::Failed { place, program, status: self.status.to_string(), message });
        }
        if self.cut { Err(CommandError::TooLong { place, program }) } else { Ok(self.stdout) }
    }
}

/// Runs a program and returns its standard output. It is killed at the time limit, and when the future is dropped.
pub(super) async fn run(argv: &Argv, limit: Duration) -> Result<String, CommandError> {
    run_to_end(argv, &[], limit).await?.output(argv)
}

/// Runs a program with these variables beside the usual ones, and returns its end. Errors: it was not run, or it was
/// killed.
pub(super) async fn run_to_end(
    argv: &Argv,
    variables: &[Variable<'_>],
    limit: Duration,
) -> Result<Ended, CommandError> {
    let (place, program) = (|| argv.place().clone(), || argv.program().to_owned());
    let not_run = |why: String| CommandError::NotRun { place: place(), program: program(), why };
    if let Some(why) = fault(argv) {
        return Err(why.into());
    }
    let mut child = Command::new(argv.program())
        .args(argv.arguments())
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .envs(variables.iter().map(|variable| (variable.name, variable.value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| not_run(e.to_string()))?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(not_run("its output cannot be read".to_owned()));
    };
    let ended = timeout(limit, async { tokio::join!(beginning(stdout), beginning(stderr), child.wait()) }).await;
    let Ok((stdout, stderr, status)) = ended else {
        return Err(CommandError::Late { place: place(), program: program(), seconds: limit.as_secs() });
    };
    let status = status.map_err(|e| not_run(e.to_string()))?;
    let text = |beginning: &Beginning| String::from_utf8_lossy(&beginning.kept).into_owned();
    Ok(Ended { status, stdout: text(&stdout), stderr: text(&stderr), cut: stdout.cut })
}

/// Returns the reason why the program cannot be run as it is: it is no file, or this user may not execute it. One that
/// everyone can change is refused, because it runs with cketerm's rights.
pub(super) fn fault(argv: &Argv) -> Option<InventoryError> {
    let why = check_program(Path::new(argv.program())).err()?;
    Some(argv.place().wrong(format_args!("{} cannot be run: {why}", argv.program())))
}

fn check_program(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => "there is no such file; install it, or correct its path".to_owned(),
        _ => e.to_string(),
    })?;
    if !metadata.is_file() {
        return Err("it is no file".to_owned());
    }
    if is_world_writable(path) {
        return Err(format!("everyone can write it; chmod o-w {shown}"));
    }
    check_executable(path).map_err(|e| match e.kind() {
        ErrorKind::PermissionDenied => format!("this user may not execute it; chmod +x {shown}"),
        _ => e.to_string(),
    })
}

/// Beginning of an output stream.
struct Beginning {
    kept: Vec<u8>,
    /// Whether there was more.
    cut: bool,
}

/// Reads a stream to its end and keeps its beginning. A stream that cannot be read further counts as ended.
async fn beginning(mut stream: impl AsyncRead + Unpin) -> Beginning {
    let (mut kept, mut cut, mut buffer) = (Vec::new(), false, [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let free = count.min(MAX_OUTPUT_BYTES - kept.len());
        kept.extend_from_slice(&buffer[..free]);
        cut |= free < count;
    }
    Beginning { kept, cut }
}
