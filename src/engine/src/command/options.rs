//! Command line of the helper, `cketerm run-command`. The engine writes it. The helper reads it, and so does the init
//! of a container, which waits for helpers that run power or repair commands.

use std::{path::PathBuf, time::Duration};

use cketerm_model::{boot_time::BootTime, result::ResultLabel};

/// Subcommand that makes this program the helper.
pub const SUBCOMMAND: &str = "run-command";

/// Options of the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HelperOptions {
    /// Seconds after which the command is ended.
    pub timeout: u64,
    /// Whether the command is a check, which ends with the engine.
    pub end_with_engine: bool,
    /// Boot time before which the command must begin.
    pub start_before: Option<BootTime>,
    /// Number of bytes of the helper's own input that go to the command.
    pub input: Option<u64>,
    /// Soft limit of open files for the command.
    pub descriptors: Option<u64>,
    /// Whether the output is reported while the command runs.
    pub report_output: bool,
    /// Folder for the result, and the attempt that it belongs to.
    pub result: Option<(PathBuf, ResultLabel)>,
    /// The command.
    pub argv: Vec<String>,
}

impl HelperOptions {
    /// Returns the arguments after the program's name.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec![SUBCOMMAND.to_owned(), "--timeout".to_owned(), self.timeout.to_string()];
        words.extend(self.end_with_engine.then(|| "--end-with-engine".to_owned()));
        words.extend(self.start_before.map(|at| format!("--start-before={}", at.millis())));
        words.extend(self.input.map(|bytes| format!("--input={bytes}")));
        words.extend(self.descriptors.map(|soft| format!("--descriptors={soft}")));
        words.extend(self.report_output.then(|| "--report-output".to_owned()));
        if let Some((folder, label)) = &self.result {
            words.push(format!("--results={}", folder.display()));
            words.push(format!("--attempt={}", label.attempt));
            words.push(format!("--cluster={}", label.cluster));
            words.push(format!("--lease={:x}", label.lease));
        }
        words.push("--".to_owned());
        words.extend(self.argv.iter().cloned());
        words
    }

    /// Parses the arguments after [`SUBCOMMAND`]; none if they name nothing that could be run.
    pub(super) fn read(words: &[String]) -> Option<Self> {
        let split = words.iter().position(|word| word == "--")?;
        let (options, argv) = (&words[..split], &words[split + 1..]);
        let value = |name: &str| options.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let timeout = options.iter().position(|word| word == "--timeout");
        let label = || {
            let lease = i64::from_str_radix(value("--lease")?, 16).ok()?;
            let (attempt, cluster) = (value("--attempt")?.to_owned(), value("--cluster")?.to_owned());
            Some((PathBuf::from(value("--results")?), ResultLabel { attempt, cluster, lease }))
        };
        Some(Self {
            timeout: options.get(timeout? + 1)?.parse().ok()?,
            end_with_engine: options.iter().any(|word| word == "--end-with-engine"),
            start_before: value("--start-before")
                .and_then(|at| at.parse().ok())
                .map(|at| Duration::from_millis(at).into()),
            input: value("--input").and_then(|bytes| bytes.parse().ok()),
            descriptors: value("--descriptors").and_then(|soft| soft.parse().ok()),
            report_output: options.iter().any(|word| word == "--report-output"),
            result: label(),
            argv: Some(argv).filter(|argv| !argv.is_empty())?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_options_survive_a_round_trip() {
        let label = ResultLabel { attempt: "reboots-5-1".to_owned(), cluster: "u-1".to_owned(), lease: 0x7a };
        let all = HelperOptions {
            timeout: 30,
            end_with_engine: true,
            start_before: Some(Duration::from_millis(1234).into()),
            input: Some(7),
            descriptors: Some(1024),
            report_output: true,
            result: Some((PathBuf::from("/var/lib/cketerm/results"), label)),
            argv: ["ipmi", "--", "--timeout", "10.0.0.1"].map(str::to_owned).to_vec(),
        };
        let bare = HelperOptions {
            end_with_engine: false,
            start_before: None,
            input: None,
            descriptors: None,
            report_output: false,
            result: None,
            ..all.clone()
        };
        for options in [all, bare] {
            let words = options.words();
            assert_eq!(words[0], SUBCOMMAND);
            assert_eq!(HelperOptions::read(&words[1..]), Some(options));
        }
        for wrong in [&["--timeout", "3", "--"][..], &["--timeout", "x", "--", "a"], &["--", "a"], &["a"], &[]] {
            let words: Vec<String> = wrong.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(HelperOptions::read(&words), None, "{wrong:?}");
        }
    }
}
