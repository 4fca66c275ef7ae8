//! Output of a running command, as the leader publishes it: `cketerm/output/<attempt>`, under its lease, until the
//! command ends (SAF-44).
//!
//! Only people read it. The outcome of the attempt holds the final output, and no decision depends on this one.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{secret, text};

/// Shortest time between two published outputs of one command.
pub const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes kept of both outputs of a running command together.
pub const OUTPUT_TAIL: usize = 4096;
/// Maximum size of a published output in bytes. JSON writes a control character in six bytes.
pub const MAX_OUTPUT_BYTES: usize = 8 * OUTPUT_TAIL;

/// Ends of both outputs of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputTails {
    /// End of standard output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// End of standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

/// Value of `cketerm/output/<attempt>`: what a running command has printed last (STO-77).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutput {
    /// Time of the publication, by the clock of the leader.
    pub at: Timestamp,
    /// The output.
    #[serde(flatten)]
    pub tails: OutputTails,
}

impl OutputTails {
    /// Returns the last [`OUTPUT_TAIL`] bytes of both outputs together. An output that needs less than its half leaves
    /// the rest to the other.
    pub fn bounded(stdout: &str, stderr: &str) -> Self {
        let half = OUTPUT_TAIL / 2;
        let of_stdout = OUTPUT_TAIL - stderr.len().min(half);
        let stdout = text::tail(stdout.as_bytes(), of_stdout);
        let stderr = text::tail(stderr.as_bytes(), OUTPUT_TAIL - stdout.len().min(half));
        Self { stdout, stderr }
    }

    /// Reports whether nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}

impl CommandOutput {
    /// Reads a published output: bounded, with control characters made visible and secrets masked. The error says why
    /// it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MAX_OUTPUT_BYTES {
            return Err(format!("{} bytes; an output has at most {MAX_OUTPUT_BYTES}", bytes.len()));
        }
        let read: Self = serde_json::from_slice(bytes).map_err(|e| text::visible(&e.to_string(), false))?;
        let tails = OutputTails::bounded(&secret::masked(&read.tails.stdout), &secret::masked(&read.tails.stderr));
        Ok(Self { at: read.at, tails })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_together_keep_their_last_4_kib() {
        let long = "x".repeat(5000);
        let both = OutputTails::bounded(&long, &long);
        assert_eq!((both.stdout.len(), both.stderr.len()), (OUTPUT_TAIL / 2, OUTPUT_TAIL / 2));
        let one = OutputTails::bounded(&format!("{long}END"), "oops");
        assert_eq!((one.stdout.len(), one.stderr.as_str()), (OUTPUT_TAIL - 4, "oops"));
        assert!(one.stdout.ends_with("xEND"));
        let other = OutputTails::bounded("out", &long);
        assert_eq!((other.stdout.as_str(), other.stderr.len()), ("out", OUTPUT_TAIL - 3));
    }

    #[test]
    fn a_published_output_is_untrusted_input() {
        let text = r#"{"at":"2026-11-24T06:12:00Z","stdout":"password: hunter2\n\u001b[2Jb"}"#;
        let read = CommandOutput::read(text.as_bytes()).unwrap();
        assert_eq!(read.tails.stdout, "password: ***\n␛[2Jb");
        assert!(CommandOutput::read(b"{}").is_err());
        let long = format!(r#"{{"at":"2026-11-24T06:12:00Z","stdout":"{}"}}"#, "x".repeat(MAX_OUTPUT_BYTES));
        assert!(CommandOutput::read(long.as_bytes()).unwrap_err().contains("at most"));
    }
}
