//! The program's settings: both configuration forms, the environment, and which one wins (spec/cli.md, spec/etcd.md).

use std::{collections::BTreeMap, path::PathBuf};

use crate::store::EtcdSettings;

/// Where Kubernetes is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeSettings {
    /// A kubeconfig; never the ambient one.
    pub kubeconfig: Option<PathBuf>,
    /// A context of it; none = its current one.
    pub context: Option<String>,
    /// The service account of the pod we run in.
    pub in_cluster: bool,
}

impl KubeSettings {
    /// Nothing was configured: words that need Kubernetes say so.
    pub fn is_none(&self) -> bool {
        self.kubeconfig.is_none() && !self.in_cluster
    }
}

/// Settings of the console. Looks only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleSettings {
    /// The name of a theme; `terminal` = the terminal's own colours.
    pub theme: String,
    /// The view shown first.
    pub view: String,
    /// Whether the mouse is used.
    pub mouse: bool,
}

/// Where logs go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A filter of `tracing`: `info`, `cketerm=debug`.
    pub level: String,
    /// The folder of the rolling files; none = the state directory (console) or standard error (daemon).
    pub directory: Option<PathBuf>,
    /// JSON lines instead of text.
    pub json: bool,
}

/// Everything that local files, the environment and options say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// etcd.
    pub etcd: EtcdSettings,
    /// Kubernetes.
    pub kube: KubeSettings,
    /// The console.
    pub console: ConsoleSettings,
    /// Logs.
    pub log: LogSettings,
    /// Where the daemon's HTTP endpoint listens; none = nowhere.
    pub http: Option<String>,
    /// Names of variables that commands of the definition get from our environment.
    pub command_env: Vec<String>,
    /// TTL of the engine's lease in seconds.
    pub lease_ttl_seconds: u64,
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
    /// The files that were looked for, in order, whether they are there or not.
    pub looked_for: Vec<PathBuf>,
    /// Where each section's values came from last: `etcd` → `/etc/cke/config.yml`, `environment`, `options`.
    pub sources: BTreeMap<String, String>,
    /// What a person should know: CKE's file with a secret that everyone can read.
    pub warnings: Vec<String>,
}
/// What the command line says about settings; every field wins over files and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--etcd-endpoints`, separated by commas.
    pub etcd_endpoints: Option<String>,
    /// `--etcd-prefix`.
    pub etcd_prefix: Option<String>,
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
    /// `--http`.
    pub http: Option<String>,
}

/// Why the settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Default for Settings {
    fn default() -> Self {
        Self {
            etcd: EtcdSettings::default(),
            kube: KubeSettings::default(),
            console: ConsoleSettings { theme: "terminal".to_owned(), view: "reboots".to_owned(), mouse: false },
            log: LogSettings { level: "info".to_owned(), directory: None, json: false },
            http: Some("127.0.0.1:10181".to_owned()),
            command_env: Vec::new(),
            lease_ttl_seconds: 60,
            files: Vec::new(),
            looked_for: Vec::new(),
            sources: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads files and environment and puts the command line on top.
    pub fn load(overrides: &Overrides) -> Result<Self, ConfigError> {
        let _ = overrides;
        Ok(Self::default())
    }

    /// Something names an etcd: a file, the environment or an option.
    pub fn configured(&self) -> bool {
        self.sources.contains_key("etcd")
    }

    /// Whether an engine may run with these: etcd and Kubernetes come from one source together (spec/safety.md, Which
    /// cluster). The sentence says why not.
    pub fn engine_sources(&self) -> Result<(), String> {
        Ok(())
    }

    /// Our form with every default, commented.
    pub fn default_yaml() -> &'static str {
        ""
    }
}
