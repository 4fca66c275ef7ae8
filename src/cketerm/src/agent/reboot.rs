//! The reboot of the machine: through logind, so that kubelet's graceful shutdown runs, or by a command.

use std::{fmt, path::PathBuf, process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

use super::logind;

/// Time limit of the request. The shutdown itself takes longer, and the request does not wait for it.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Way to reboot the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebootMethod {
    /// logind's method `Reboot` on the system bus with this socket.
    Logind(PathBuf),
    /// A program with its arguments.
    Command(Vec<String>),
}

impl fmt::Display for RebootMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Logind(socket) => write!(f, "reboots through logind ({})", socket.display()),
            Self::Command(words) => write!(f, "reboots with `{}`", words.join(" ")),
        }
    }
}

impl RebootMethod {
    /// Asks whether a reboot would be taken now. A command cannot be asked. Errors: it would not.
    pub(super) async fn is_possible(&self) -> Result<(), String> {
        match self {
            Self::Logind(socket) => limited(logind::can_reboot(socket)).await,
            Self::Command(_) => Ok(()),
        }
    }

    /// Requests the reboot. Errors: it was not taken.
    pub(super) async fn run(&self) -> Result<(), String> {
        match self {
            Self::Logind(socket) => limited(logind::reboot(socket)).await,
            Self::Command(words) => limited(run_command(words)).await,
        }
    }
}

async fn limited(requested: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    timeout(TIMEOUT, requested).await.unwrap_or_else(|_| Err(format!("no end within {} s", TIMEOUT.as_secs())))
}

async fn run_command(words: &[String]) -> Result<(), String> {
    let Some((program, arguments)) = words.split_first() else { return Err("no reboot command".to_owned()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(false);
    let output = command.output().await.map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} failed ({}): {}", output.status, text.trim().lines().last().unwrap_or_default()))
}
