//! Options that several subcommands share: the global ones, and those of changes.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options that every subcommand takes. The environment can also set those of the servers (`CKETERM_CONFIG`,
/// `CKETERM_ETCD_ENDPOINTS` …); options take precedence.
#[derive(Args, Clone, Debug)]
pub struct Globals {
    /// Configuration file, cketerm's or CKE's [env: CKETERM_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
    /// etcd URLs, comma-separated [env: CKETERM_ETCD_ENDPOINTS]
    #[arg(long, global = true, value_name = "URLS", help_heading = "Global options")]
    pub etcd_endpoints: Option<String>,
    /// etcd key prefix [env: CKETERM_ETCD_PREFIX]
    #[arg(long, global = true, value_name = "PREFIX", help_heading = "Global options")]
    pub etcd_prefix: Option<String>,
    /// Kubeconfig; KUBECONFIG and ~/.kube/config are not read [env: CKETERM_KUBECONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig context [env: CKETERM_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub context: Option<String>,
    /// Output format; the default depends on the subcommand
    #[arg(short, long, global = true, env = "CKETERM_OUTPUT", hide_env_values = true, help_heading = "Global options")]
    pub output: Option<AskedOutput>,
    /// Coloured output
    #[arg(
        long,
        global = true,
        env = "CKETERM_COLOR",
        hide_env_values = true,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Global options"
    )]
    pub color: Color,
    /// Print more on standard error
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub verbose: u8,
}

/// Values of `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AskedOutput {
    /// Table for people.
    Table,
    /// Columns of `ckecli`, for its scripts; where it has none, the table for people.
    Simple,
    /// JSON, indented by four.
    Json,
    /// YAML.
    Yaml,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Columns.
    Table,
    /// JSON, indented by four.
    Json,
    /// YAML.
    Yaml,
}

/// Values of `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Reason of a change, for the audit.
#[derive(Args, Clone, Debug)]
pub struct Reason {
    /// Reason or ticket, for the audit record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

impl Reason {
    /// Returns the reason in the form that actions take.
    pub fn get(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// For rules that the leader does not know.
#[derive(Args, Clone, Copy, Debug)]
pub struct Handover {
    /// Store it although CKE leads; it takes effect once a cketerm engine leads
    #[arg(long)]
    pub for_handover: bool,
}
