//! Failures of requests to a BMC.

use crate::power::{driver::PowerError, text::shorten};

/// Failure of a request to a BMC. No variant holds a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BmcError {
    /// The address in a file or in a BareMetalHost cannot be used for Redfish.
    #[error("{0:?} is not a Redfish BMC address: {1}; write https://HOST or redfish://HOST/redfish/v1/Systems/ID")]
    Address(String, &'static str),
    /// No answer. The request may or may not have been taken.
    #[error("BMC {bmc} does not answer {what}: {why}; check that it runs, its URL, and its certificate (ca-file)")]
    Silent {
        /// Its origin.
        bmc: String,
        /// Method and path.
        what: String,
        /// The cause.
        why: String,
    },
    /// 401, 403, or a session that was refused.
    #[error("BMC {bmc} refused the user name or password for {what} ({code}): check them in the file or Secret")]
    Unauthorized {
        /// Its origin.
        bmc: String,
        /// Method and path.
        what: String,
        /// The status code.
        code: u16,
    },
    /// Another error status.
    #[error("BMC {bmc} answered {what} with {code}: {message}")]
    Refused {
        /// Its origin.
        bmc: String,
        /// Method and path.
        what: String,
        /// The status code.
        code: u16,
        /// Its message, on one line.
        message: String,
    },
    /// An answer that is not Redfish.
    #[error("BMC {bmc} gave an answer to {what} that is not Redfish: {why}")]
    NotRedfish {
        /// Its origin.
        bmc: String,
        /// Method and path.
        what: String,
        /// The problem.
        why: String,
    },
    /// A link or redirect that leaves the BMC. Following it would send the password elsewhere.
    #[error("BMC {bmc} redirects {what} to another server ({to}), which is not followed")]
    Elsewhere {
        /// Its origin.
        bmc: String,
        /// Method and path.
        what: String,
        /// The target.
        to: String,
    },
    /// The BMC has no system or several, and none was named.
    #[error("BMC {bmc} has {} systems{}; choose the machine's with `system:`", .found.len(), listed(.found))]
    Systems {
        /// Its origin.
        bmc: String,
        /// Their paths.
        found: Vec<String>,
    },
}

/// Number of systems that are listed.
const LISTED: usize = 4;

fn listed(found: &[String]) -> String {
    if found.is_empty() {
        return String::new();
    }
    let first: Vec<String> = found.iter().take(LISTED).map(|path| shorten(path)).collect();
    let more = found.len() - first.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!(" ({}{more})", first.join(", "))
}

impl From<BmcError> for PowerError {
    fn from(e: BmcError) -> Self {
        match e {
            BmcError::Unauthorized { .. } => Self::Unauthorized(e.into()),
            BmcError::Address(..)
            | BmcError::Silent { .. }
            | BmcError::Refused { .. }
            | BmcError::NotRedfish { .. }
            | BmcError::Elsewhere { .. }
            | BmcError::Systems { .. } => Self::Failed(e.into()),
        }
    }
}
