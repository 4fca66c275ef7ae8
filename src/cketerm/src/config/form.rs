//! Two forms of a configuration file: cketerm's, in sections, and CKE's, which is the form of its etcd utility.

use std::path::{Path, PathBuf};

use cketerm_clients::store::EtcdSettings;
use serde_yaml::{Mapping, Value};

use super::{
    ConfigError, ConfigSource, KubeSettings, Settings, listen_address, notices,
    section::{Section, duration, relative_to, same_key},
};

/// Keys of CKE's form, which are also those of cketerm's `etcd` section.
const ETCD_KEYS: [&str; 11] = [
    "endpoints",
    "prefix",
    "timeout",
    "username",
    "password",
    "tls-ca",
    "tls-ca-file",
    "tls-cert",
    "tls-cert-file",
    "tls-key",
    "tls-key-file",
];
/// Message about a file that one of the keys names.
pub(super) const UNREADABLE: &str = "cannot be read";
/// Sections of cketerm's form.
const SECTIONS: [&str; 8] = ["etcd", "cluster_etcd", "kubernetes", "engine", "console", "power", "log", "notices"];

/// Adds a file to the settings. Returns whether it has CKE's form and whether it holds a secret.
pub(super) fn take(
    settings: &mut Settings,
    place: ConfigSource,
    path: &Path,
    text: &str,
) -> Result<(bool, bool), ConfigError> {
    let file = path.display().to_string();
    let value: Value = serde_yaml::from_str(text).map_err(|e| ConfigError(format!("{file} is not YAML: {e}")))?;
    let map = match value {
        Value::Null => Mapping::new(),
        Value::Mapping(map) => map,
        _ => return Err(ConfigError(format!("{file}: expected keys and values, see `cketerm config default`"))),
    };
    let has =
        |names: &[&str]| names.iter().any(|name| map.keys().any(|k| k.as_str().is_some_and(|k| same_key(k, name))));
    let cke = match place {
        ConfigSource::Cke => true,
        ConfigSource::Cketerm => false,
        ConfigSource::Named => match (has(&SECTIONS), has(&ETCD_KEYS)) {
            (true, true) => {
                return Err(ConfigError(format!(
                    "{file} mixes both forms; put CKE's keys (endpoints …) in a file of their own, or below `etcd:`"
                )));
            }
            (has_sections, has_etcd_keys) => has_etcd_keys || !has_sections,
        },
    };
    let valid: Vec<&str> = if cke && place == ConfigSource::Named && !has(&ETCD_KEYS) {
        // neither form is recognized: the key may belong to either one
        ETCD_KEYS.iter().chain(&SECTIONS).copied().collect()
    } else if cke {
        ETCD_KEYS.to_vec()
    } else {
        SECTIONS.to_vec()
    };
    let mut root = Section::new(&file, "", map);
    note(settings, "etcd", cke.then_some(&root), &file);
    if cke {
        let secret = etcd(settings, &mut root, path)?;
        root.finish_with(&valid)?;
        settings.sources.insert("etcd".to_owned(), file.clone());
        settings.sources.insert("cke-form".to_owned(), file);
        return Ok((true, secret));
    }
    let mut secret = false;
    if let Some(mut section) = root.section("etcd")? {
        note(settings, "etcd", Some(&section), &file);
        let sets_endpoints = section.contains("endpoints");
        secret = etcd(settings, &mut section, path)?;
        settings.etcd.prefix = super::with_trailing_slash(&settings.etcd.prefix);
        section.finish()?;
        // a section without endpoints adds to those of an earlier file
        if sets_endpoints || !settings.configured() {
            settings.sources.insert("etcd".to_owned(), file.clone());
            settings.sources.remove("cke-form");
        }
    }
    if let Some(mut section) = root.section("cluster_etcd")? {
        note(settings, "cluster_etcd", Some(&section), &file);
        let endpoints = section.list("endpoints")?;
        // as for etcd: a password is only for the servers that it was written for
        let before = settings.cluster_etcd.take().filter(|_| endpoints.is_none());
        let anew = || EtcdSettings { endpoints: endpoints.unwrap_or_default(), ..EtcdSettings::default() };
        let mut members = before.unwrap_or_else(anew);
        secret |= credentials(&mut members, &mut settings.key_files, &mut section, path)?;
        section.finish()?;
        settings.cluster_etcd = Some(members);
    }
    if let Some(mut section) = root.section("kubernetes")? {
        note(settings, "kubernetes", Some(&section), &file);
        kubernetes(settings, &mut section, path)?;
        section.finish()?;
    }
    if let Some(mut section) = root.section("engine")? {
        note(settings, "engine", Some(&section), &file);
        if let Some(ttl) = section.number("lease_ttl_seconds")? {
            settings.lease_ttl_seconds = ttl;
        }
        if let Some(http) = section.text("http")? {
            settings.http = listen_address(&http);
        }
        if let Some(directory) = section.text("state_directory")?.filter(|d| !d.is_empty()) {
            settings.state_directory = relative_to(path, &directory);
        }
        if let Some(names) = section.list("command_env")? {
            settings.command_env = names;
        }
        section.finish()?;
    }
    if let Some(mut section) = root.section("console")? {
        note(settings, "console", Some(&section), &file);
        let console = &mut settings.console;
        console.theme = section.text("theme")?.unwrap_or(console.theme.clone());
        console.view = section.text("view")?.unwrap_or(console.view.clone());
        console.mouse = section.parsed("mouse")?.unwrap_or(console.mouse);
        console.title = section.flag("title")?.unwrap_or(console.title);
        console.bell = section.parsed("bell")?.unwrap_or(console.bell);
        console.ascii = section.parsed("ascii")?.unwrap_or(console.ascii);
        console.keys.extend(section.lists("keys")?);
        section.finish()?;
    }
    if let Some(mut section) = root.section("power")? {
        note(settings, "power", Some(&section), &file);
        let bmcs = section.text("bmcs")?.filter(|f| !f.is_empty());
        settings.bmcs = bmcs.map(|f| relative_to(path, &f)).or(settings.bmcs.take());
        section.finish()?;
    }
    if let Some(mut section) = root.section("log")? {
        note(settings, "log", Some(&section), &file);
        let log = &mut settings.log;
        log.level = section.text("level")?.unwrap_or(log.level.clone());
        log.directory = section.text("directory")?.map(|d| relative_to(path, &d)).or(log.directory.take());
        log.json = section.flag("json")?.unwrap_or(log.json);
        section.finish()?;
    }
    if let Some(sections) = root.sections("notices")? {
        settings.notices = notices::take(sections, path)?;
        settings.from.insert("notices".to_owned(), file.clone());
    }
    root.finish_with(&valid)?;

    Ok((false, secret))
}

/// Records the source of a section's settings. If the file replaces a whole section, because it names endpoints, the
/// records of earlier files are removed.
fn note(settings: &mut Settings, name: &str, section: Option<&Section>, file: &str) {
    let Some(section) = section else { return };
    let keys = section.given_keys();
    let anew: &[&str] = match name {
        "etcd" | "cluster_etcd" => &["endpoints"],
        "kubernetes" => &["kubeconfig", "in_cluster"],
        _ => &[],
    };
    if keys.iter().any(|key| anew.iter().any(|known| same_key(key, known))) {
        settings.from.retain(|setting, _| !setting.starts_with(&format!("{name}.")));
    }
    for key in keys {
        let known = ETCD_KEYS.iter().find(|known| name.ends_with("etcd") && same_key(&key, known));
        let key = known.map_or(key, |known| (*known).to_owned());
        settings.from.insert(format!("{name}.{}", key.trim_end_matches("-file")), file.to_owned());
    }
}

/// Reads the etcd keys of either form, and returns whether there was a secret among them. A file that names endpoints
/// replaces the settings of other files: a password is only for the servers that it was written for.
fn etcd(settings: &mut Settings, section: &mut Section, path: &Path) -> Result<bool, ConfigError> {
    let endpoints = section.list("endpoints")?;
    if let Some(endpoints) = endpoints {
        settings.etcd = EtcdSettings { endpoints, ..EtcdSettings::default() };
        settings.key_files.clear();
    }
    let etcd = &mut settings.etcd;
    etcd.prefix = section.text("prefix")?.unwrap_or(etcd.prefix.clone());
    if let Some(timeout) = section.text("timeout")? {
        let key_error = || section.key_error("timeout", &format!("{timeout:?} is not a duration such as 2s or 500ms"));
        etcd.timeout = duration(&timeout).filter(|t| !t.is_zero()).ok_or_else(key_error)?;
    }
    credentials(etcd, &mut settings.key_files, section, path)
}

/// Reads user, password and certificates of an etcd, and returns whether there was a secret among them.
fn credentials(
    etcd: &mut EtcdSettings,
    key_files: &mut Vec<PathBuf>,
    section: &mut Section,
    path: &Path,
) -> Result<bool, ConfigError> {
    etcd.username = section.text("username")?.or(etcd.username.take());
    let password = section.text("password")?;
    let mut secret = password.as_ref().is_some_and(|p| !p.is_empty());
    etcd.password = password.or(etcd.password.take());
    for (name, slot) in [("tls-ca", &mut etcd.tls_ca), ("tls-cert", &mut etcd.tls_cert), ("tls-key", &mut etcd.tls_key)]
    {
        let inline = section.text(name)?.filter(|text| !text.is_empty());
        let file = section.text(&format!("{name}-file"))?.filter(|text| !text.is_empty());
        match (inline, file) {
            (Some(_), Some(_)) => return Err(section.key_error(name, "given here and as a file; give only one")),
            (Some(text), None) => {
                secret |= name == "tls-key";
                *slot = Some(check_pem(text.into_bytes()).map_err(|why| section.key_error(name, &why))?);
            }
            (None, Some(file)) => {
                let field = format!("{name}-file");
                let file = relative_to(path, &file);
                let bytes = std::fs::read(&file)
                    .map_err(|e| section.key_error(&field, &format!("{} {UNREADABLE}: {e}", file.display())))?;
                if name == "tls-key" {
                    key_files.push(file.clone());
                }
                let why = |why: String| section.key_error(&field, &format!("{}: {why}", file.display()));
                *slot = Some(check_pem(bytes).map_err(why)?);
            }
            (None, None) => {}
        }
    }
    Ok(secret)
}

fn kubernetes(settings: &mut Settings, section: &mut Section, path: &Path) -> Result<(), ConfigError> {
    let kubeconfig = section.text("kubeconfig")?.filter(|f| !f.is_empty()).map(|f| relative_to(path, &f));
    let context = section.text("context")?;
    let in_cluster = section.flag("in_cluster")?.unwrap_or(false);
    if in_cluster && kubeconfig.is_some() {
        return Err(section.key_error("in_cluster", "given together with a kubeconfig; give only one"));
    }
    if kubeconfig.is_some() || in_cluster {
        settings.kube = KubeSettings { kubeconfig, context, in_cluster };
        settings.sources.insert("kubernetes".to_owned(), path.display().to_string());
    } else if context.is_some() {
        settings.kube.context = context;
    }
    Ok(())
}

/// Checks that the content is PEM, so that the error comes from here and not from a failed handshake.
fn check_pem(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let framed = bytes.windows(11).any(|w| w == b"-----BEGIN ");
    if framed { Ok(bytes) } else { Err("not PEM: the -----BEGIN line is missing".to_owned()) }
}
