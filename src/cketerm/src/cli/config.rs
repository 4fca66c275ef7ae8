//! `config`: the local settings.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use cketerm_actions::ActionError;
use cketerm_clients::{kubernetes::Kube, power::BmcInventory};
use cketerm_console::{ConsoleOptions, View, keys::Keymap};
use cketerm_engine::command::{ResultFolder, Spawner};
use cketerm_model::{clock::Clock, secret};
use cketerm_runtime::telemetry;
use clap::Subcommand;
use serde_json::json;

use super::{
    Context,
    options::Output,
    output::{Lines, columns},
};
use crate::{
    config::{Settings, schema},
    daemon::watchdog_too_short,
};

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a configuration file with every default
    Default,
    /// Print the JSON schema of the configuration file, for editors and checks
    Schema,
    /// Print the settings in force and their sources; secrets are omitted
    Show,
    /// Check the settings in force, or a file; contacts no server
    Check {
        /// File to check, cketerm's or CKE's; without one, the settings in force
        file: Option<PathBuf>,
    },
}

/// Runs one of the subcommands.
pub async fn run(command: &ConfigCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        ConfigCommand::Default => context.out.text(Settings::default_yaml()),
        ConfigCommand::Schema => context.out.text(schema::to_json_text()),
        ConfigCommand::Show => show(&context.settings, context),
        ConfigCommand::Check { file: None } => check("the settings", &context.settings, context).await,
        ConfigCommand::Check { file: Some(file) } => {
            let name = file.display().to_string();
            match Settings::load_file(file) {
                Ok(settings) => check(&name, &settings, context).await,
                Err(e) => print_result(&name, &[e.to_string()], &[], context),
            }
        }
    }
}

/// Settings in force: name and value of each. Passwords and keys are only reported as set.
pub(super) fn in_force(s: &Settings) -> [(&'static str, String); 33] {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|p| p.display().to_string()).unwrap_or_default();
    let set = |there: bool| if there { "(set)" } else { "" }.to_owned();
    let (e, members) = (&s.etcd, s.cluster_etcd.as_ref());
    let receivers: Vec<String> = s.notices.iter().map(|r| format!("{} ({})", r.name, r.channel)).collect();
    let keys = s.console.keys.iter().map(|(name, keys)| format!("{name}: {}", keys.join(" or ")));
    [
        ("etcd.endpoints", e.masked_endpoints().join(",")),
        ("etcd.prefix", e.prefix.clone()),
        ("etcd.timeout", format!("{:?}", e.timeout)),
        ("etcd.username", e.username.clone().unwrap_or_default()),
        ("etcd.password", set(e.password.is_some())),
        ("etcd.tls-ca", set(e.tls_ca.is_some())),
        ("etcd.tls-cert", set(e.tls_cert.is_some())),
        ("etcd.tls-key", set(e.tls_key.is_some())),
        ("cluster_etcd.endpoints", members.map_or_else(String::new, |m| m.masked_endpoints().join(","))),
        ("cluster_etcd.username", members.and_then(|m| m.username.clone()).unwrap_or_default()),
        ("cluster_etcd.password", set(members.is_some_and(|m| m.password.is_some()))),
        ("cluster_etcd.tls-ca", set(members.is_some_and(|m| m.tls_ca.is_some()))),
        ("cluster_etcd.tls-cert", set(members.is_some_and(|m| m.tls_cert.is_some()))),
        ("cluster_etcd.tls-key", set(members.is_some_and(|m| m.tls_key.is_some()))),
        ("kubernetes.kubeconfig", path(&s.kube.kubeconfig)),
        ("kubernetes.context", s.kube.context.clone().unwrap_or_default()),
        ("kubernetes.in_cluster", s.kube.in_cluster.to_string()),
        ("engine.lease_ttl_seconds", s.lease_ttl_seconds.to_string()),
        ("engine.http", s.http.clone().unwrap_or_else(|| "off".to_owned())),
        ("engine.state_directory", s.state_directory.display().to_string()),
        ("engine.command_env", s.command_env.join(",")),
        ("console.theme", s.console.theme.clone()),
        ("console.view", s.console.view.clone()),
        ("console.mouse", s.console.mouse.to_string()),
        ("console.title", s.console.title.to_string()),
        ("console.bell", s.console.bell.to_string()),
        ("console.ascii", s.console.ascii.to_string()),
        ("console.keys", keys.collect::<Vec<_>>().join(", ")),
        ("power.bmcs", path(&s.bmcs)),
        ("log.level", s.log.level.clone()),
        ("log.directory", path(&s.log.directory)),
        ("log.json", s.log.json.to_string()),
        ("notices", receivers.join(", ")),
    ]
}

fn show(s: &Settings, context: &Context) -> Result<(), ActionError> {
    let rows = in_force(s);
    let source = |name: &str| s.from.get(name).cloned().unwrap_or_else(|| "built-in".to_owned());
    match context.output(Output::Table) {
        Output::Table => {
            let rows: Vec<Vec<String>> =
                rows.into_iter().map(|(name, value)| vec![name.to_owned(), value, source(name)]).collect();
            context.out.text(columns(&["Setting", "Value", "From"], &rows))
        }
        form => {
            let all: serde_json::Map<_, _> =
                rows.into_iter().map(|(n, v)| (n.to_owned(), json!({"value": v, "from": source(n)}))).collect();
            context.out.value(&all, form)
        }
    }
}

/// Collects errors and warnings beyond those that reading the files has reported already.
async fn check(name: &str, s: &Settings, context: &Context) -> Result<(), ActionError> {
    let (errors, warnings) = findings(s).await;
    print_result(name, &errors, &warnings, context)
}

/// Returns the errors and warnings of these settings. Contacts no server.
pub async fn findings(s: &Settings) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut warnings) = (Vec::new(), s.warnings.clone());
    warnings.extend(s.exposures());
    warnings.extend(watchdog_too_short(Duration::from_secs(s.lease_ttl_seconds)));
    if let Some(http) = &s.http
        && http.parse::<std::net::SocketAddr>().is_err()
    {
        errors.push(format!("engine.http: {http:?} is not an address such as 127.0.0.1:10181"));
    }
    errors.extend(telemetry::level(&s.log.level).err().map(|e| format!("log.level: {e}")));
    errors.extend(s.console.view.parse::<View>().err().map(|e| format!("console.view: {e}")));
    let options = ConsoleOptions { theme: s.console.theme.clone(), ..ConsoleOptions::default() };
    errors.extend(options.config().err().map(|e| format!("console.theme: {e}")));
    errors.extend(Keymap::new(&s.console.keys).err().map(|e| format!("console.{e}")));
    if let Some(file) = &s.bmcs {
        match BmcInventory::read(Path::new(file)) {
            Ok(inventory) => {
                let named = |why: String| format!("power.bmcs: {}: {why}", file.display());
                errors.extend(inventory.errors().into_iter().map(named));
                warnings.extend(inventory.warnings().into_iter().map(named));
            }
            Err(e) => errors.push(format!("power.bmcs: {e}")),
        }
    }
    let spawner = Spawner::new("/proc/self/exe".into(), None, &s.command_env);
    for receiver in &s.notices {
        let faults = receiver.faults(|program| spawner.has(program));
        errors.extend(faults.into_iter().map(|why| format!("notices ({}): {why}", receiver.name)));
    }
    let of =
        |section: &'static str, urls: &[String]| urls.iter().map(move |url| (section, url.clone())).collect::<Vec<_>>();
    let members = s.cluster_etcd.as_ref().map_or_else(Vec::new, |m| of("cluster_etcd", &m.endpoints));
    for (section, url) in of("etcd", &s.etcd.endpoints).into_iter().chain(members) {
        let uri = url.parse::<http::Uri>();
        if !uri.is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()) {
            let shown = secret::url(&url);
            errors.push(format!("{section}.endpoints: {shown:?} is not a URL such as https://10.0.0.11:2379"));
        }
    }
    if s.cluster_etcd.as_ref().is_some_and(|m| m.tls_cert.is_some() != m.tls_key.is_some()) {
        errors.push("cluster_etcd: only one of tls-cert and tls-key is set; set both".to_owned());
    }
    if !s.kube.is_none() {
        // reads the kubeconfig only; the server is not contacted
        errors.extend(Kube::connect(&s.kube, Clock::host()).await.err().map(|e| format!("kubernetes: {e}")));
    }
    if let Some(why) = ResultFolder::below(&s.state_directory).fault() {
        let (user, place) = (rustix::process::geteuid().as_raw(), s.state_directory.display());
        warnings.push(format!(
            "engine.state_directory: an engine of user {user} cannot store command results: {why}; \
             run `install -d -m 0700 -o {user} {place}`, or set another directory"
        ));
    }
    if s.configured() {
        warnings
            .extend(s.check_engine_sources().err().map(|why| format!("no engine can run with these settings: {why}")));
    } else {
        warnings.push("no etcd is configured".to_owned());
    }
    (errors, warnings)
}

fn print_result(name: &str, errors: &[String], warnings: &[String], context: &Context) -> Result<(), ActionError> {
    match context.output(Output::Table) {
        Output::Table => {
            let mut lines = Lines::default();
            for error in errors {
                lines.line(format_args!("error: {error}"));
            }
            for warning in warnings {
                lines.line(format_args!("warning: {warning}"));
            }
            context.out.text(lines)?;
            if errors.is_empty() {
                context.out.line(&format!("{name}: ok"))?;
            }
        }
        form => context.out.value(&json!({"errors": errors, "warnings": warnings}), form)?,
    }
    match errors.len() {
        0 => Ok(()),
        1 => Err(ActionError::failed(format!("{name}: one error"))),
        n => Err(ActionError::failed(format!("{name}: {n} errors"))),
    }
}
