//! Failures of `ssh`: of the connection, and of the command on the other host.

use crate::power::{
    driver::{PowerError, Target},
    program::CommandError,
    text::shorten,
};

/// Failure of one run of `ssh`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SshError {
    /// It was not run, or killed. A killed one may have rebooted the machine.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The key of the host is unknown or another one.
    #[error(
        "{target}: its host key is not known; add the right one to known-hosts-file (ssh-keyscan, then compare) ({message})"
    )]
    HostKey {
        /// The host.
        target: Target,
        /// The message of `ssh`.
        message: String,
    },
    /// The host refused the login.
    #[error("{target} refused the login: check user and identity-file, and authorized_keys there ({message})")]
    Login {
        /// The host.
        target: Target,
        /// The message of `ssh`.
        message: String,
    },
    /// No connection, so no command ran.
    #[error("{target} cannot be reached; nothing was rebooted: check host, port and network ({message})")]
    Unreachable {
        /// The host.
        target: Target,
        /// The message of `ssh`.
        message: String,
    },
    /// The command on the host failed.
    #[error("{target}: the command failed there ({status}): {message}")]
    Remote {
        /// The host.
        target: Target,
        /// Its exit status or signal.
        status: String,
        /// The beginning of its standard error.
        message: String,
    },
    /// The host shows neither its boot id nor its uptime.
    #[error("{target} did not print its boot id and uptime; let the user's login shell print nothing of its own")]
    NoFacts {
        /// The host.
        target: Target,
    },
    /// The user may not reboot the host.
    #[error("{target}: this user may not reboot it: log in as root, or set command to [sudo, -n, systemctl, reboot]")]
    NoRight {
        /// The host.
        target: Target,
    },
}

impl SshError {
    /// Reads the standard error of an `ssh` that could not connect or log in.
    pub(super) fn connection(target: &Target, stderr: &str) -> Self {
        let (target, message) = (target.clone(), shorten(stderr));
        if stderr.contains("Host key verification failed") || stderr.contains("host key is known") {
            Self::HostKey { target, message }
        } else if stderr.contains("Permission denied") || stderr.contains("Too many authentication failures") {
            Self::Login { target, message }
        } else {
            Self::Unreachable { target, message }
        }
    }

    /// Creates the failure of a command on the host.
    pub(super) fn remote(target: &Target, status: &str, stderr: &str) -> Self {
        let message = shorten(stderr);
        let message = if message.is_empty() { "it printed no error".to_owned() } else { message };
        Self::Remote { target: target.clone(), status: status.to_owned(), message }
    }
}

impl From<SshError> for PowerError {
    fn from(e: SshError) -> Self {
        match e {
            SshError::Command(e) => e.into(),
            SshError::HostKey { .. } | SshError::Login { .. } => Self::Unauthorized(e.into()),
            SshError::NoRight { .. } => Self::Refused(e.into()),
            SshError::Unreachable { .. } | SshError::Remote { .. } | SshError::NoFacts { .. } => Self::Failed(e.into()),
        }
    }
}
