//! Result of a command as its helper writes it down, for the case that the engine that started it is gone.
//!
//! A file in the state directory of the host, then `cketerm/results/<attempt>`: any engine of that host publishes it, and
//! the leader takes it over into the attempt. Both are foreign input: a result counts only for the attempt whose name,
//! lease, cluster and command line it carries.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{Attempt, Ended, Outcome, parse_attempt_id},
    secret, text,
};
use crate::mutation::{Mutation, on};

/// Bytes of one result, in a file or in etcd; a longer one is refused.
pub const MOST_BYTES: usize = 64 * 1024;
/// Bytes kept of each output and of each sentence.
const TAIL: usize = 4096;

/// Which attempt a result belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultLabel {
    /// The attempt's name.
    pub attempt: String,
    /// UID of the cluster (`cketerm/identity`): a host may serve several, and an etcd that was rebuilt counts anew.
    pub cluster: String,
    /// Lease of the leader that started it: the same attempt of another leadership is another one.
    pub lease: i64,
}

/// What the helper found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandResult {
    /// Which attempt it belongs to.
    #[serde(flatten)]
    pub label: ResultLabel,
    /// SHA-256 of the command line, in hex.
    pub argv: String,
    /// How the command ended.
    pub outcome: Outcome,
}

/// Why a text is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadResult {
    /// Too long.
    #[error("{0} bytes; a result has at most {MOST_BYTES}")]
    TooLong(usize),
    /// Not the JSON of a result.
    #[error("cannot be read: {0}")]
    Shape(String),
    /// The attempt's name is none.
    #[error("names no attempt")]
    Name,
}

impl ResultLabel {
    /// Name of its file.
    pub fn file_name(&self) -> String {
        if on(Mutation::ResultOfAnother) {
            // one file for all
            return "reboots-0-0.0.json".to_owned();
        }
        format!("{}.{:x}.json", self.attempt, self.lease)
    }
}

impl CommandResult {
    /// Reads one from a file or from etcd: bounded, control characters made visible, secrets masked.
    pub fn read(bytes: &[u8]) -> Result<Self, BadResult> {
        if bytes.len() > MOST_BYTES {
            return Err(BadResult::TooLong(bytes.len()));
        }
        let shape = |e: serde_json::Error| BadResult::Shape(text::visible(&e.to_string(), false));
        let mut result: Self = serde_json::from_slice(bytes).map_err(shape)?;
        parse_attempt_id(&result.label.attempt).ok_or(BadResult::Name)?;
        let outcome = &mut result.outcome;
        for said in [&mut outcome.stdout, &mut outcome.stderr] {
            *said = secret::masked(&text::tail(said.as_bytes(), TAIL));
        }
        match &mut outcome.end {
            Ended::NotStarted(why) | Ended::Withheld(why) | Ended::Unknown(why) => {
                *why = secret::masked(&text::tail(why.as_bytes(), TAIL));
            }
            Ended::Exit(_) | Ended::Signal(_) | Ended::TimedOut(_) => {}
        }
        Ok(result)
    }

    /// Whether it is the result of this attempt in this cluster.
    pub fn belongs_to(&self, attempt: &Attempt, cluster: &str) -> bool {
        if on(Mutation::ResultOfAnother) {
            return true;
        }
        self.label == attempt.label(cluster) && self.argv == argv_digest(&attempt.argv)
    }

    /// What is recorded on the attempt. The host's clock may be wrong: the time lies between the attempt's start and now.
    pub fn outcome_of(&self, attempt: &Attempt, now: Timestamp) -> Outcome {
        Outcome { at: self.outcome.at.max(attempt.start).min(now.max(attempt.start)), ..self.outcome.clone() }
    }
}

impl Attempt {
    /// The label that its result carries.
    pub fn label(&self, cluster: &str) -> ResultLabel {
        ResultLabel { attempt: self.id.clone(), cluster: cluster.to_owned(), lease: self.lease }
    }
}

/// SHA-256 of a command line, in hex. Each argument ends with a NUL, so that no two command lines have the same bytes.
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
