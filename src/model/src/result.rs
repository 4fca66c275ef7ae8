//! Result of a command as its helper writes it, for the case that the engine that started it is gone (SAF-20).
//!
//! The helper writes a file in the state directory of the host. Any engine of that host publishes it as
//! `cketerm/results/<attempt>`, and the leader takes it over into the attempt. Both are foreign input: a result counts
//! only for the attempt whose name, lease, cluster and command line it carries.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{Attempt, Ended, Outcome, parse_attempt_id},
    secret, text,
};
use crate::fault;

/// Maximum size of a result in bytes, in a file or in etcd. A larger one is refused.
pub const MAX_RESULT_BYTES: usize = 64 * 1024;
/// Bytes kept of each output and of each message.
const TAIL: usize = 4096;

/// Identification of the attempt that a result belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultLabel {
    /// Name of the attempt.
    pub attempt: String,
    /// UID of the cluster (`cketerm/identity`). A host may serve several clusters, and a rebuilt etcd counts attempts
    /// from 1 again.
    pub cluster: String,
    /// Lease of the leader that started it. Under another leadership the same name is another attempt.
    pub lease: i64,
}

/// Content of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandResult {
    /// Identification of its attempt.
    #[serde(flatten)]
    pub label: ResultLabel,
    /// SHA-256 of the command line, in hex.
    pub argv: String,
    /// Outcome of the command.
    pub outcome: Outcome,
}

/// Reason why a text is not a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadResult {
    /// It is too long.
    #[error("{0} bytes; a result has at most {MAX_RESULT_BYTES}")]
    TooLong(usize),
    /// It is not the JSON of a result.
    #[error("cannot be read: {0}")]
    Shape(String),
    /// It does not name an attempt.
    #[error("names no attempt")]
    Name,
}

impl ResultLabel {
    /// Returns the name of its file.
    pub fn file_name(&self) -> String {
        fault!(ResultOfAnother => return "reboots-0-0.0.json".to_owned());
        format!("{}.{:x}.json", self.attempt, self.lease)
    }
}

impl CommandResult {
    /// Reads a result from a file or from etcd: bounded, with control characters made visible and secrets masked.
    pub fn read(bytes: &[u8]) -> Result<Self, BadResult> {
        if bytes.len() > MAX_RESULT_BYTES {
            return Err(BadResult::TooLong(bytes.len()));
        }
        let shape = |e: serde_json::Error| BadResult::Shape(text::visible(&e.to_string(), false));
        let mut result: Self = serde_json::from_slice(bytes).map_err(shape)?;
        parse_attempt_id(&result.label.attempt).ok_or(BadResult::Name)?;
        let outcome = &mut result.outcome;
        for output in [&mut outcome.stdout, &mut outcome.stderr] {
            *output = secret::masked(&text::tail(output.as_bytes(), TAIL));
        }
        match &mut outcome.end {
            Ended::NotStarted(why) | Ended::Withheld(why) | Ended::Unknown(why) => {
                *why = secret::masked(&text::tail(why.as_bytes(), TAIL));
            }
            Ended::Exit(_) | Ended::Signal(_) | Ended::TimedOut(_) => {}
        }
        Ok(result)
    }

    /// Reports whether it is the result of this attempt in this cluster.
    pub fn belongs_to(&self, attempt: &Attempt, cluster: &str) -> bool {
        fault!(ResultOfAnother => return true);
        self.label == attempt.label(cluster) && self.argv == argv_digest(&attempt.argv)
    }

    /// Returns the outcome to record on the attempt. The host's clock may be wrong, so the time is clamped between the
    /// attempt's start and now.
    pub fn outcome_of(&self, attempt: &Attempt, now: Timestamp) -> Outcome {
        Outcome { at: self.outcome.at.max(attempt.start).min(now.max(attempt.start)), ..self.outcome.clone() }
    }
}

impl Attempt {
    /// Returns the label that its result carries.
    pub fn label(&self, cluster: &str) -> ResultLabel {
        ResultLabel { attempt: self.id.clone(), cluster: cluster.to_owned(), lease: self.lease }
    }
}

/// Returns the SHA-256 of a command line, in hex. Each argument ends with a NUL, so that no two command lines have the
/// same bytes.
pub fn argv_digest(argv: &[String]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for word in argv {
        context.update(word.as_bytes());
        context.update(&[0]);
    }
    let mut hex = String::with_capacity(64);
    for byte in context.finish().as_ref() {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
