//! Settings of the program: both forms of the file, the environment, the options, and their precedence
//! (docs/configuration.md).
//!
//! Local files hold connections, looks and logs only. Everything that affects a decision is in etcd (`cketerm/policy`).

mod form;
mod notices;
pub mod schema;
mod section;
mod state_directory;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use cketerm_clients::{
    notices::{Channel, Receiver, UrlSource},
    store::EtcdSettings,
};
use cketerm_model::{names::NodeName, secret};
use cketerm_runtime::host::is_world_readable;

/// CKE's own configuration file.
const CKE_FILE: &str = "/etc/cke/config.yml";
/// cketerm's configuration file of the whole host.
const HOST_FILE: &str = "/etc/cketerm/config.yaml";

/// Directory in which a daemon keeps the results of commands, for any user.
const STATE_DIRECTORY: &str = "/var/lib/cketerm";

pub use cketerm_console::theme::display::{Bell, Mouse, Switch};

pub use cketerm_clients::kubernetes::KubeSettings;

/// Settings of the console. They affect its looks only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleSettings {
    /// Name of a theme. `terminal`: the terminal's own colours. `auto`: light or dark, as the terminal is.
    pub theme: String,
    /// The first view.
    pub view: String,
    /// Whether the mouse is used.
    pub mouse: Mouse,
    /// Whether the terminal's title shows the state of the cluster.
    pub title: bool,
    /// Condition for the bell.
    pub bell: Bell,
    /// Whether lines and borders are drawn in ASCII.
    pub ascii: Switch,
    /// Keys that differ from the defaults, by command name. An empty list unbinds the command.
    pub keys: BTreeMap<String, Vec<String>>,
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            theme: "terminal".to_owned(),
            view: "overview".to_owned(),
            mouse: Mouse::LocalOnly,
            title: true,
            bell: Bell::Never,
            ascii: Switch::Auto,
            keys: BTreeMap::new(),
        }
    }
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// A filter of `tracing`: `info`, `cketerm=debug`.
    pub level: String,
    /// Directory of the rolling files. `None`: the state directory (console) or standard error (daemon).
    pub directory: Option<PathBuf>,
    /// Whether lines are JSON instead of text.
    pub json: bool,
}

/// The result of local files, environment and options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// etcd.
    pub etcd: EtcdSettings,
    /// The etcd of Kubernetes, whose members are checked before a machine that hosts one is disrupted. Without
    /// endpoints, cketerm tries the control planes at port 2379. `None`: the members cannot be checked.
    pub cluster_etcd: Option<EtcdSettings>,
    /// Kubernetes.
    pub kube: KubeSettings,
    /// The console.
    pub console: ConsoleSettings,
    /// File with the BMC of each node's address. `None`: no Redfish.
    pub bmcs: Option<PathBuf>,
    /// Logs.
    pub log: LogSettings,
    /// Receivers of notices.
    pub notices: Vec<Receiver>,
    /// Listen address of the daemon's HTTP endpoint. `None`: no endpoint.
    pub http: Option<String>,
    /// Names of environment variables that are passed to the definition's commands.
    pub command_env: Vec<String>,
    /// Directory in which a daemon keeps the results of commands until they are recorded.
    pub state_directory: PathBuf,
    /// TTL of the engine's lease in seconds.
    pub lease_ttl_seconds: u64,
    /// The Node of the process's pod, from `CKETERM_NODE`. It is a fact, not a setting, so no file has it.
    pub node: Option<NodeName>,
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
    /// The files that were looked for, in order, existing or not.
    pub searched_files: Vec<PathBuf>,
    /// Source of the servers, which decides whether an engine may run. `etcd` and `kubernetes` map to a file or to
    /// "environment or options". `cke-form` maps to CKE's file if etcd comes from one.
    pub sources: BTreeMap<String, String>,
    /// Source of each value by the setting's name (`engine.http`), for operators: a file, a variable, an option. A
    /// setting that is not listed has its built-in value.
    pub from: BTreeMap<String, String>,
    /// Files with private keys that the settings name.
    pub key_files: Vec<PathBuf>,
    /// Warnings for the operator, for example a secret in CKE's file that everyone can read.
    pub warnings: Vec<String>,
}
/// Settings from the command line. Each takes precedence over files and environment.
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
    /// `--sandbox`: all settings that name a server are ignored, whatever their source.
    pub sandbox: bool,
}

/// Reason why the settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Default for Settings {
    fn default() -> Self {
        Self {
            etcd: EtcdSettings::default(),
            cluster_etcd: None,
            kube: KubeSettings::default(),
            console: ConsoleSettings::default(),
            bmcs: None,
            log: LogSettings { level: "info".to_owned(), directory: None, json: false },
            notices: Vec::new(),
            http: Some("127.0.0.1:10181".to_owned()),
            command_env: Vec::new(),
            state_directory: PathBuf::from(STATE_DIRECTORY),
            lease_ttl_seconds: 60,
            node: None,
            files: Vec::new(),
            searched_files: Vec::new(),
            sources: BTreeMap::new(),
            from: BTreeMap::new(),
            key_files: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// Source of etcd or Kubernetes other than a file, as messages name it.
const ENVIRONMENT: &str = "environment or options";

/// Owner of a file. It decides the form, and how a readable secret is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfigSource {
    /// `/etc/cke/config.yml`: CKE's form.
    Cke,
    /// cketerm's own form.
    Cketerm,
    /// `--config`: either form.
    Named,
}

impl Settings {
    /// Loads files and environment, then applies the command line.
    pub fn load(overrides: &Overrides) -> Result<Self, ConfigError> {
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let own = directories::ProjectDirs::from("", "", "cketerm");
        let user = own.as_ref().map(|d| d.config_dir().join("config.yaml"));
        let mut places =
            vec![(ConfigSource::Cke, PathBuf::from(CKE_FILE)), (ConfigSource::Cketerm, PathBuf::from(HOST_FILE))];
        places.extend(user.map(|path| (ConfigSource::Cketerm, path)));
        Self::load_from(overrides, environment, &places)
    }

    /// Loads one file alone, in cketerm's form or CKE's, without environment and options.
    pub fn load_file(path: &Path) -> Result<Self, ConfigError> {
        let overrides = Overrides { config: Some(path.to_owned()), ..Overrides::default() };
        Self::load_from(&overrides, |_| None, &[])
    }

    fn load_from(
        overrides: &Overrides,
        environment: impl Fn(&str) -> Option<String>,
        places: &[(ConfigSource, PathBuf)],
    ) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        if overrides.sandbox {
            // No file and no variable counts in a sandbox, so a broken one cannot prevent its start.
            settings.lease_ttl_seconds = 10;
            if let Some(path) = &overrides.config {
                settings.console = settings.console_of(path);
            }
            return Ok(settings);
        }
        for (place, path) in places {
            settings.searched_files.push(path.clone());
            match std::fs::read_to_string(path) {
                Ok(text) => {
                    let before = settings.clone();
                    match settings.apply_file(*place, path, &text) {
                        // neither must keys and certificates of CKE's that this user may not read
                        Err(e) if *place == ConfigSource::Cke && e.0.contains(form::UNREADABLE) => {
                            settings = before;
                            settings.warnings.push(format!("{} was ignored: {e}", path.display()));
                        }
                        taken => taken?,
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                // a file that this user may not read must not stop a user who has a file of their own
                Err(e) => settings.warnings.push(format!("{} was ignored: {e}", path.display())),
            }
        }
        let named = overrides.config.clone().or_else(|| environment("CKETERM_CONFIG").map(PathBuf::from));
        if let Some(path) = named {
            settings.searched_files.push(path.clone());
            let text = std::fs::read_to_string(&path)
                .map_err(|e| ConfigError(format!("{} cannot be read: {e}; check --config", path.display())))?;
            settings.apply_file(ConfigSource::Named, &path, &text)?;
        }
        settings.apply_environment(&environment)?;
        settings.apply_options(overrides);
        if !settings.etcd.prefix.starts_with('/') {
            settings
                .warnings
                .push(format!("etcd.prefix {:?} does not begin with /; CKE's default is /cke/", settings.etcd.prefix));
        }
        if settings.lease_ttl_seconds < 2 {
            let ttl = settings.lease_ttl_seconds;
            return Err(ConfigError(format!("engine.lease_ttl_seconds: {ttl} is too short; give 2 or more")));
        }
        Ok(settings)
    }

    /// Returns the console settings of a file for a sandbox, so that keys and themes can be tried there. Nothing else
    /// of it counts, and a file that cannot be read is only a warning.
    fn console_of(&mut self, path: &Path) -> ConsoleSettings {
        let mut named = Self::default();
        let text = std::fs::read_to_string(path).map_err(|e| ConfigError(e.to_string()));
        match text.and_then(|text| named.apply_file(ConfigSource::Cketerm, path, &text)) {
            Ok(()) => named.console,
            Err(e) => {
                self.warnings.push(format!("{} is not used here: {e}", path.display()));
                Self::default().console
            }
        }
    }

    fn apply_file(&mut self, place: ConfigSource, path: &Path, text: &str) -> Result<(), ConfigError> {
        let (cke, secret) = form::take(self, place, path, text)?;
        self.files.push(path.to_owned());
        let has_secret_url = |r: &&Receiver| match &r.channel {
            Channel::Webhook { url: UrlSource::Inline(url), .. } => url.has_secret_path(),
            Channel::Webhook { url: UrlSource::File(_), .. } | Channel::Program(_) => false,
        };
        if let Some(receiver) = self.notices.iter().find(has_secret_url).filter(|_| !cke && is_world_readable(path)) {
            self.warnings.push(format!(
                "{} can be read by everyone; if the URL of receiver {:?} is a secret, use url_file",
                path.display(),
                receiver.name
            ));
        }
        if secret && is_world_readable(path) {
            let advice = format!("chmod o-r {}", path.display());
            if !cke {
                return Err(ConfigError(format!(
                    "{} holds a password or key and can be read by everyone; {advice}",
                    path.display()
                )));
            }
            self.warnings
                .push(format!("{} holds a password or key and everyone can read it: {advice}", path.display()));
        }
        Ok(())
    }

    fn apply_environment(&mut self, environment: &impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        let mut from = std::mem::take(&mut self.from);
        let mut lookup = |setting: &str, variable: &str| {
            let value = environment(variable)?;
            from.insert(setting.to_owned(), variable.to_owned());
            Some(value)
        };
        if let Some(urls) = lookup("etcd.endpoints", "CKETERM_ETCD_ENDPOINTS") {
            self.set_endpoints(&urls);
        }
        if let Some(prefix) = lookup("etcd.prefix", "CKETERM_ETCD_PREFIX") {
            self.etcd.prefix = with_trailing_slash(&prefix);
        }
        self.etcd.username = lookup("etcd.username", "CKETERM_ETCD_USERNAME").or_else(|| self.etcd.username.take());
        self.etcd.password = lookup("etcd.password", "CKETERM_ETCD_PASSWORD").or_else(|| self.etcd.password.take());
        if let Some(file) = lookup("kubernetes.kubeconfig", "CKETERM_KUBECONFIG") {
            self.set_kubeconfig(file.into());
        }
        self.kube.context = lookup("kubernetes.context", "CKETERM_CONTEXT").or_else(|| self.kube.context.take());
        if let Some(http) = lookup("engine.http", "CKETERM_HTTP") {
            self.http = listen_address(&http);
        }
        if let Some(directory) = lookup("engine.state_directory", "CKETERM_STATE_DIRECTORY") {
            self.state_directory = directory.into();
        }
        if let Some(ttl) = lookup("engine.lease_ttl_seconds", "CKETERM_LEASE_TTL") {
            let wrong = |_| ConfigError(format!("CKETERM_LEASE_TTL: {ttl:?} is not a number of seconds"));
            self.lease_ttl_seconds = ttl.parse().map_err(wrong)?;
        }
        self.from = from;
        self.node = environment("CKETERM_NODE").map(NodeName::new);
        Ok(())
    }

    fn apply_options(&mut self, options: &Overrides) {
        if let Some(urls) = &options.etcd_endpoints {
            self.set_origin("etcd.endpoints", "--etcd-endpoints");
            self.set_endpoints(urls);
        }
        if let Some(prefix) = &options.etcd_prefix {
            self.set_origin("etcd.prefix", "--etcd-prefix");
            self.etcd.prefix = with_trailing_slash(prefix);
        }
        if let Some(file) = &options.kubeconfig {
            self.set_origin("kubernetes.kubeconfig", "--kubeconfig");
            self.set_kubeconfig(file.clone());
        }
        if let Some(context) = &options.context {
            self.set_origin("kubernetes.context", "--context");
            self.kube.context = Some(context.clone());
        }
        if let Some(http) = &options.http {
            self.set_origin("engine.http", "--http");
            self.http = listen_address(http);
        }
    }

    fn set_origin(&mut self, setting: &str, place: &str) {
        self.from.insert(setting.to_owned(), place.to_owned());
    }

    fn set_endpoints(&mut self, urls: &str) {
        self.etcd.endpoints = urls.split(',').map(|u| u.trim().to_owned()).filter(|u| !u.is_empty()).collect();
        self.sources.insert("etcd".to_owned(), ENVIRONMENT.to_owned());
        self.sources.remove("cke-form");
    }

    fn set_kubeconfig(&mut self, file: PathBuf) {
        (self.kube.kubeconfig, self.kube.in_cluster) = (Some(file), false);
        self.sources.insert("kubernetes".to_owned(), ENVIRONMENT.to_owned());
    }

    /// Returns true if a file, the environment or an option names an etcd.
    pub fn configured(&self) -> bool {
        self.sources.contains_key("etcd")
    }

    /// Returns a warning if the built-in endpoint of etcd is used, because no file, variable or option names one.
    pub fn default_endpoint_warning(&self) -> Option<String> {
        (!self.from.contains_key("etcd.endpoints")).then(|| {
            format!(
                "no etcd endpoint is configured; using the default {}. Set etcd.endpoints, CKETERM_ETCD_ENDPOINTS or \
                 --etcd-endpoints",
                self.etcd.masked_endpoints().join(",")
            )
        })
    }

    /// Checks whether an engine may run with these settings. Either etcd and Kubernetes come from the same source, or
    /// etcd comes from CKE's form and Kubernetes from an explicit kubeconfig or the in-cluster account. The error names
    /// the reason.
    pub fn check_engine_sources(&self) -> Result<(), String> {
        let Some(etcd) = self.sources.get("etcd") else {
            return Err("no etcd is configured; see `cketerm config default`".to_owned());
        };
        let Some(kube) = self.sources.get("kubernetes").filter(|_| !self.kube.is_none()) else {
            return Err("no Kubernetes is configured: set kubernetes.kubeconfig, --kubeconfig or \
                        kubernetes.in_cluster; KUBECONFIG is never used"
                .to_owned());
        };
        if etcd == kube || self.sources.contains_key("cke-form") {
            return Ok(());
        }
        Err(format!(
            "etcd comes from {etcd}, Kubernetes from {kube}; set both in one place, so that they belong to one cluster"
        ))
    }

    /// Returns warnings about secrets that others on this host or in the network can read: key files and kubeconfigs
    /// readable by everyone, passwords over plain HTTP, certificates that are not verified.
    pub fn exposures(&self) -> Vec<String> {
        let mut all = Vec::new();
        let kubeconfig = self.kube.kubeconfig.iter();
        for file in self.key_files.iter().chain(kubeconfig).filter(|file| is_world_readable(file)) {
            all.push(format!("{} holds a key or token and everyone can read it: chmod o-r {0}", file.display()));
        }
        let plain = |url: &&String| url.starts_with("http://") && !is_loopback_url(url);
        if let (Some(_), Some(url)) = (&self.etcd.password, self.etcd.endpoints.iter().find(plain)) {
            let url = secret::url(url);
            all.push(format!("etcd.password goes over plain HTTP to {url}: use https"));
        }
        let text =
            self.kube.kubeconfig.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        if text.lines().any(|line| line.trim_start_matches(['-', ' ']).starts_with("insecure-skip-tls-verify: true")) {
            all.push("the kubeconfig sets insecure-skip-tls-verify; others can read its token".to_owned());
        }
        all
    }

    /// Returns cketerm's form with every default, commented.
    pub fn default_yaml() -> &'static str {
        DEFAULT_YAML
    }
}

/// Returns the listen address. `off`, `none` and the empty text mean none.
fn listen_address(text: &str) -> Option<String> {
    (!matches!(text, "" | "off" | "none")).then(|| text.to_owned())
}

/// Returns true if the URL's host is this host.
fn is_loopback_url(url: &str) -> bool {
    let uri = url.parse::<http::Uri>().ok();
    let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Appends the slash that operators often omit: `/cke` means `/cke/`. CKE uses the prefix of its own file literally, so
/// that one is not changed (STO-1).
fn with_trailing_slash(prefix: &str) -> String {
    if prefix.is_empty() || prefix.ends_with('/') { prefix.to_owned() } else { format!("{prefix}/") }
}

/// Output of `cketerm config default`, also included in docs/configuration.md.
const DEFAULT_YAML: &str = include_str!("config/default.yaml");

#[cfg(test)]
mod tests;
