//! Check of the local settings.

use cketerm_rules::doctor::{Checks, Subject};

use crate::{cli::config::findings, config::Settings};

/// Largest number of lines of one kind: a file of BMCs may have a thousand entries with the same fault.
const MAX_LINES: usize = 5;

/// Returns the first lines, and where the others are.
fn first_of(all: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().take(MAX_LINES).cloned().collect();
    if all.len() > MAX_LINES {
        lines.push(format!("{} more of these: `cketerm config check` prints all", all.len() - MAX_LINES));
    }
    lines
}

/// Adds the errors and warnings of the settings in force.
pub(super) async fn add(settings: &Settings, found: &mut Checks) {
    const SUBJECT: Subject = Subject::Configuration;
    let (errors, warnings) = findings(settings).await;
    for error in first_of(&errors) {
        found.failed(SUBJECT, error, "correct it; `cketerm config show` says where each setting comes from");
    }
    if !settings.configured() {
        let remedy = "run `cketerm init`, or write /etc/cketerm/config.yaml (`cketerm config default`)";
        found.failed(SUBJECT, "no etcd is configured", remedy);
        return;
    }
    for warning in first_of(&warnings) {
        found.warning_with_remedy_inside(SUBJECT, warning);
    }
    if errors.is_empty() {
        let files: Vec<String> = settings.files.iter().map(|file| file.display().to_string()).collect();
        let from = if files.is_empty() { "environment and options".to_owned() } else { files.join(", ") };
        found.good(SUBJECT, format!("read from {from}"));
    }
}
