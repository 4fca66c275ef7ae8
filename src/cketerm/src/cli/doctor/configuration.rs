//! Check of the local settings.

use cketerm_rules::doctor::{Checks, Subject};

use crate::{cli::config::findings, config::Settings};

/// Adds the errors and warnings of the settings in force.
pub(super) async fn add(settings: &Settings, found: &mut Checks) {
    const SUBJECT: Subject = Subject::Configuration;
    let (errors, warnings) = findings(settings).await;
    for error in &errors {
        found.failed(SUBJECT, error.clone(), "correct it; `cketerm config show` says where each setting comes from");
    }
    if !settings.configured() {
        let remedy = "run `cketerm init`, or write /etc/cketerm/config.yaml (`cketerm config default`)";
        found.failed(SUBJECT, "no etcd is configured", remedy);
        return;
    }
    for warning in warnings {
        found.warning_with_remedy_inside(SUBJECT, warning);
    }
    if errors.is_empty() {
        let files: Vec<String> = settings.files.iter().map(|file| file.display().to_string()).collect();
        let from = if files.is_empty() { "environment and options".to_owned() } else { files.join(", ") };
        found.good(SUBJECT, format!("read from {from}"));
    }
}
