//! Failures of `ipmitool`, told apart by its own messages: it exits with 1 for all of them.

use crate::power::{
    driver::{PowerError, Target},
    program::CommandError,
    text::shorten,
};

/// Failure of one run of `ipmitool`. No variant holds a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IpmiError {
    /// It was not run, or killed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The BMC refused the login.
    #[error("{target} refused the user name or password: check them in the file of power.bmcs ({message})")]
    Login {
        /// The BMC.
        target: Target,
        /// The message of `ipmitool`.
        message: String,
    },
    /// The user may not do this.
    #[error(
        "{target} refused the request: give the user the privilege level administrator, or operator together with `privilege: operator` in the file of power.bmcs ({message})"
    )]
    Privilege {
        /// The BMC.
        target: Target,
        /// The message of `ipmitool`.
        message: String,
    },
    /// No session.
    #[error("{target} does not answer: check `host`, its network, and that IPMI over LAN is enabled ({message})")]
    NoSession {
        /// The BMC.
        target: Target,
        /// The message of `ipmitool`.
        message: String,
    },
    /// Another failure.
    #[error("{target}: ipmitool failed ({status}): {message}")]
    Failed {
        /// The BMC.
        target: Target,
        /// Its exit status or signal.
        status: String,
        /// The message of `ipmitool`.
        message: String,
    },
}

/// Beginnings of lines of `ipmitool -v` about extensions that a BMC need not have.
const NOISE: &[&str] =
    &["Loading IANA", "Running Get", "Invalid completion code", "Discovered IPMB", "Get HPM", "Unable to Get Channel"];

impl IpmiError {
    /// Reads the standard error of `ipmitool -v` after a failure.
    pub(super) fn of(target: &Target, status: &str, stderr: &str) -> Self {
        let lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.filter(|line| !NOISE.iter().any(|noise| line.starts_with(noise))).collect();
        let about = |text: &str| lines.iter().any(|line| line.contains(text));
        let (target, message) = (target.clone(), shorten(&lines.join("; ")));
        if about("HMAC is invalid") || about("unauthorized name") || about("Password") {
            Self::Login { target, message }
        } else if about("Insufficient privilege level") || about("invalid role") || about("unauthorized role") {
            Self::Privilege { target, message }
        } else if about("Unable to establish IPMI") {
            Self::NoSession { target, message }
        } else {
            let message = if message.is_empty() { "it printed no error".to_owned() } else { message };
            Self::Failed { target, status: status.to_owned(), message }
        }
    }
}

impl From<IpmiError> for PowerError {
    fn from(e: IpmiError) -> Self {
        match e {
            IpmiError::Command(e) => e.into(),
            IpmiError::Login { .. } | IpmiError::Privilege { .. } => Self::Unauthorized(e.into()),
            IpmiError::NoSession { .. } | IpmiError::Failed { .. } => Self::Failed(e.into()),
        }
    }
}
