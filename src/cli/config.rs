//! `config`: the local settings.

use clap::Subcommand;

use super::{Context, args::Output, output::columns};
use crate::{actions::ActionError, config::Settings};

/// The words.
#[derive(Debug, Subcommand)]
pub enum ConfigWord {
    /// Print a configuration file with every default
    Default,
    /// Print where the settings came from; secrets are left out
    Show,
}

/// Runs one of them.
pub fn run(word: &ConfigWord, context: &Context) -> Result<(), ActionError> {
    match word {
        ConfigWord::Default => context.out.text(Settings::default_yaml()),
        ConfigWord::Show => {
            let s = &context.settings;
            let source = |section: &str| s.sources.get(section).cloned().unwrap_or_else(|| "built-in".to_owned());
            let kube = match (&s.kube.kubeconfig, s.kube.in_cluster) {
                (Some(file), _) => file.display().to_string(),
                (None, true) => "in-cluster account".to_owned(),
                (None, false) => "none".to_owned(),
            };
            let rows = [
                ("etcd.endpoints", s.etcd.endpoints.join(","), source("etcd")),
                ("etcd.prefix", s.etcd.prefix.clone(), source("etcd")),
                ("kubernetes", kube, source("kubernetes")),
                ("power.bmcs", s.bmcs.as_ref().map(|f| f.display().to_string()).unwrap_or_default(), source("power")),
                ("http", s.http.clone().unwrap_or_default(), source("http")),
                ("log.level", s.log.level.clone(), source("log")),
                ("console.theme", s.console.theme.clone(), source("console")),
                ("engine.lease_ttl_seconds", s.lease_ttl_seconds.to_string(), source("engine")),
            ];
            match context.output(Output::Table) {
                Output::Table => {
                    let rows: Vec<Vec<String>> =
                        rows.into_iter().map(|(name, value, from)| vec![name.to_owned(), value, from]).collect();
                    context.out.text(&columns(&["Setting", "Value", "From"], &rows))
                }
                form => {
                    let all: serde_json::Map<_, _> = rows
                        .into_iter()
                        .map(|(n, v, f)| (n.to_owned(), serde_json::json!({"value": v, "from": f})))
                        .collect();
                    context.out.value(&all, form)
                }
            }
        }
    }
}
