//! The configuration file of this host: drafted from options and answers, checked, and written at once.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf, absolute},
};

use cketerm_actions::ActionError;
use clap::Args;
use serde_json::{Map, Value, json};

use super::{InitArgs, ask::Asked};
use crate::{
    cli::Context,
    config::{Overrides, Settings},
};

/// Certificates, and the etcd of Kubernetes.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct TlsArgs {
    /// Certificate of the authority of etcd
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// Key of the client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// URLs of the etcd of Kubernetes, whose members are checked before one goes down; default: the control planes
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    cluster_etcd_endpoints: Vec<String>,
    /// Certificate of the authority of the etcd of Kubernetes [kubeadm: /etc/kubernetes/pki/etcd/ca.crt]
    #[arg(long, value_name = "FILE")]
    cluster_etcd_ca: Option<PathBuf>,
    /// Client certificate for it [kubeadm: /etc/kubernetes/pki/etcd/healthcheck-client.crt]
    #[arg(long, value_name = "FILE", requires = "cluster_etcd_key")]
    cluster_etcd_cert: Option<PathBuf>,
    /// Key of that certificate [kubeadm: /etc/kubernetes/pki/etcd/healthcheck-client.key]
    #[arg(long, value_name = "FILE", requires = "cluster_etcd_cert")]
    cluster_etcd_key: Option<PathBuf>,
    /// File with the BMCs of the machines (docs/power.md)
    #[arg(long, value_name = "FILE")]
    bmcs: Option<PathBuf>,
}

impl TlsArgs {
    fn any(&self) -> bool {
        let files = [&self.etcd_ca, &self.etcd_cert, &self.cluster_etcd_ca, &self.cluster_etcd_cert, &self.bmcs];
        files.iter().any(|file| file.is_some()) || !self.cluster_etcd_endpoints.is_empty()
    }
}

/// Configuration of this host: the file that exists, or a new one.
pub(super) enum Draft {
    /// Files exist and are kept.
    Kept(Box<Settings>),
    /// A new file.
    New {
        /// Its path.
        path: PathBuf,
        /// Its text.
        text: String,
        /// The same without a password, for people.
        shown: String,
    },
}

impl Draft {
    /// Takes the settings of an existing file, or drafts a new one from options and answers.
    pub(super) fn of(args: &InitArgs, asked: &Asked, context: &Context) -> Result<Self, ActionError> {
        let settings = &context.settings;
        if let Some(file) = settings.files.last() {
            if args.tls.any() {
                return Err(ActionError::misused(format!(
                    "{} exists and is not changed: write certificates, cluster_etcd and power there, then run init \
                     without these options",
                    file.display()
                )));
            }
            settings.check_engine_sources().map_err(ActionError::refused)?;
            context.print_message(&format!("using {}", file.display()));
            return Ok(Self::Kept(Box::new(settings.clone())));
        }
        let path = absolute(&args.write_config).unwrap_or_else(|_| args.write_config.clone());
        if path.exists() {
            return Err(ActionError::refused(format!(
                "{} exists but was not read: give it with --config, or remove it",
                path.display()
            )));
        }
        let mut all = Self::document(args, asked, settings)?;
        let text = Self::text(&all)?;
        if let Some(password) = all.get_mut("etcd").and_then(|etcd| etcd.get_mut("password")) {
            *password = json!("…");
        }
        let shown = Self::text(&all)?;
        Ok(Self::New { path, text, shown })
    }

    fn text(all: &Map<String, Value>) -> Result<String, ActionError> {
        let yaml = serde_yaml::to_string(all);
        let yaml = yaml.map_err(|e| ActionError::failed(format!("the configuration cannot be written: {e}")))?;
        Ok(format!("# Written by `cketerm init`; all settings: `cketerm config default`.\n{yaml}"))
    }

    fn document(args: &InitArgs, asked: &Asked, settings: &Settings) -> Result<Map<String, Value>, ActionError> {
        let endpoints = if settings.configured() {
            settings.etcd.endpoints.clone()
        } else {
            let answer = asked.question(
                "--etcd-endpoints URLS",
                "etcd for the queues, not the one of Kubernetes (docs/how-to/own-etcd.md) [http://127.0.0.1:2379]: ",
                "http://127.0.0.1:2379",
            )?;
            answer.split(',').map(|url| url.trim().to_owned()).collect()
        };
        let kubernetes = match (&settings.kube.kubeconfig, settings.kube.in_cluster) {
            (None, true) => json!({"in_cluster": true}),
            (file, _) => {
                let file = match file {
                    Some(file) => file.clone(),
                    None => asked
                        .question("--kubeconfig FILE", "kubeconfig with the rights of docs/rbac.yaml: ", "")?
                        .into(),
                };
                let mut section = Map::from_iter([("kubeconfig".to_owned(), path_value(&file))]);
                section.extend(settings.kube.context.clone().map(|name| ("context".to_owned(), json!(name))));
                Value::Object(section)
            }
        };
        let tls = &args.tls;
        let mut etcd = Map::from_iter([
            ("endpoints".to_owned(), json!(endpoints)),
            ("prefix".to_owned(), json!(settings.etcd.prefix)),
        ]);
        add_credentials(&mut etcd, [&tls.etcd_ca, &tls.etcd_cert, &tls.etcd_key]);
        etcd.extend(settings.etcd.username.clone().map(|user| ("username".to_owned(), json!(user))));
        etcd.extend(settings.etcd.password.clone().map(|password| ("password".to_owned(), json!(password))));
        let mut cluster_etcd = Map::new();
        if !tls.cluster_etcd_endpoints.is_empty() {
            cluster_etcd.insert("endpoints".to_owned(), json!(tls.cluster_etcd_endpoints));
        }
        add_credentials(&mut cluster_etcd, [&tls.cluster_etcd_ca, &tls.cluster_etcd_cert, &tls.cluster_etcd_key]);
        let mut all = Map::from_iter([("etcd".to_owned(), Value::Object(etcd)), ("kubernetes".to_owned(), kubernetes)]);
        if !cluster_etcd.is_empty() {
            all.insert("cluster_etcd".to_owned(), Value::Object(cluster_etcd));
        }
        if let Some(file) = &tls.bmcs {
            all.insert("power".to_owned(), json!({"bmcs": path_value(file)}));
        }
        Ok(all)
    }

    /// Returns the settings of the file, as every later command will read them.
    pub(super) fn settings(&self) -> Result<Settings, ActionError> {
        match self {
            Self::Kept(settings) => Ok((**settings).clone()),
            Self::New { path, text, .. } => {
                let failed = |e: std::io::Error| ActionError::failed(format!("init: a temporary file: {e}"));
                let temporary = std::env::temp_dir().join(format!("cketerm-init-{}.yaml", std::process::id()));
                create(&temporary, text).map_err(failed)?;
                let overrides = Overrides { config: Some(temporary.clone()), ..Overrides::default() };
                let loaded = Settings::load(&overrides);
                let _ = fs::remove_file(&temporary);
                let mut settings = loaded.map_err(|e| ActionError::failed(e.to_string()))?;
                settings.files = vec![path.clone()];
                Ok(settings)
            }
        }
    }

    /// Returns the path of a new file, and its text without a password.
    pub(super) fn new_file(&self) -> Option<(&Path, &str)> {
        match self {
            Self::Kept(_) => None,
            Self::New { path, shown, .. } => Some((path, shown)),
        }
    }

    /// Writes a new file at once: a reader finds all of it or none. Returns its path.
    pub(super) fn write(&self) -> Result<Option<&Path>, ActionError> {
        let (path, text) = match self {
            Self::Kept(_) => return Ok(None),
            Self::New { path, text, .. } => (path.as_path(), text),
        };
        let written = || -> std::io::Result<()> {
            let folder = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            let temporary = folder.join(format!(".config.yaml.{}", std::process::id()));
            create(&temporary, text)?;
            // a link refuses to replace a file that somebody wrote meanwhile
            let linked = fs::hard_link(&temporary, path);
            let _ = fs::remove_file(&temporary);
            linked
        };
        written().map_err(|e| {
            ActionError::failed(format!(
                "{}: {e}; nothing was written: run init as root, or give --write-config",
                path.display()
            ))
        })?;
        Ok(Some(path))
    }
}

fn add_credentials(section: &mut Map<String, Value>, files: [&Option<PathBuf>; 3]) {
    for (name, file) in ["tls-ca-file", "tls-cert-file", "tls-key-file"].into_iter().zip(files) {
        section.extend(file.as_ref().map(|file| (name.to_owned(), path_value(file))));
    }
}

fn path_value(file: &Path) -> Value {
    json!(absolute(file).unwrap_or_else(|_| file.to_owned()).display().to_string())
}

/// Creates a file that only its owner and group can read.
fn create(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_is_private_and_never_replaces_one_that_appeared_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("etc/config.yaml");
        let text = "etcd: {endpoints: [\"http://127.0.0.1:1\"]}\n".to_owned();
        let draft = Draft::New { path: path.clone(), shown: text.clone(), text };
        assert_eq!(draft.settings().unwrap().etcd.endpoints, ["http://127.0.0.1:1"]);
        assert!(!path.exists(), "reading a draft writes nothing");
        assert_eq!(draft.write().unwrap(), Some(path.as_path()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        fs::write(&path, "other").unwrap();
        let refused = draft.write().unwrap_err().to_string();
        assert!(refused.contains("nothing was written"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "other");
        assert_eq!(fs::read_dir(folder.path().join("etc")).unwrap().count(), 1, "no temporary file is left");
    }
}
