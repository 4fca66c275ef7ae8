//! Two forms of a configuration file: cketerm's, in sections, and CKE's, which is the form of its etcd utility.
//!
//! The code requests every key by name. A key that it did not request is an error, which names the nearest known key.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use cketerm_clients::store::EtcdSettings;
use serde_yaml::{Mapping, Value};

use super::{ConfigError, ConfigSource, KubeSettings, Settings, listen_address, notices, schema};

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
        let sets_endpoints = section.remaining.keys().any(|k| k.as_str().is_some_and(|k| same_key(k, "endpoints")));
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
    let keys: Vec<String> = section
        .remaining
        .iter()
        .filter(|(_, v)| !v.is_null())
        .filter_map(|(k, _)| k.as_str().map(str::to_owned))
        .collect();
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

/// Resolves a path relative to the folder of the configuration file.
pub(super) fn relative_to(file: &Path, path: &str) -> PathBuf {
    file.parent().map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
}

/// Parses a duration in Go's notation: `2s`, `1m30s`, `500ms`, `1.5h`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|&n| n > 0)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (name, tail) = tail.split_at(unit);
        let seconds = match name {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    (!text.trim().is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

/// Compares keys. Case (as in CKE's reader) and the choice of `-` or `_` do not matter.
fn same_key(a: &str, b: &str) -> bool {
    let plain = |t: &str| t.to_lowercase().replace('_', "-");
    plain(a) == plain(b)
}

/// Mapping of a file whose keys are requested one by one.
pub(super) struct Section {
    file: String,
    path: String,
    remaining: Mapping,
    requested_keys: Vec<String>,
}

impl Section {
    fn new(file: &str, path: &str, remaining: Mapping) -> Self {
        Self { file: file.to_owned(), path: path.to_owned(), remaining, requested_keys: Vec::new() }
    }

    pub(super) fn key_error(&self, name: &str, why: &str) -> ConfigError {
        ConfigError(format!("{}: {}{name}: {why}", self.file, self.path))
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        debug_assert!(
            schema::has_key(&self.path, name),
            "{}{name} is missing in src/cketerm/src/config/schema.rs",
            self.path
        );
        self.requested_keys.push(name.to_owned());
        let key = self.remaining.keys().find(|k| k.as_str().is_some_and(|k| same_key(k, name))).cloned()?;
        self.remaining.remove(&key).filter(|value| !value.is_null())
    }

    fn section(&mut self, name: &str) -> Result<Option<Self>, ConfigError> {
        // a section without keys below it is empty, not missing
        let present = self.remaining.keys().any(|k| k.as_str() == Some(name));
        match self.take(name) {
            None if present => Ok(Some(Self::new(&self.file, &format!("{name}."), Mapping::new()))),
            None => Ok(None),
            Some(Value::Mapping(map)) => Ok(Some(Self::new(&self.file, &format!("{name}."), map))),
            Some(_) => Err(self.key_error(name, "expected keys below it")),
        }
    }

    /// Returns a list of sections.
    fn sections(&mut self, name: &str) -> Result<Option<Vec<Self>>, ConfigError> {
        let values = match self.take(name) {
            None => return Ok(None),
            Some(Value::Sequence(values)) => values,
            Some(_) => return Err(self.key_error(name, "expected a list")),
        };
        let each = values.into_iter().enumerate().map(|(n, value)| match value {
            Value::Mapping(map) => Ok(Self::new(&self.file, &format!("{}{name}[{n}].", self.path), map)),
            _ => Err(self.key_error(&format!("{name}[{n}]"), "expected keys and values")),
        });
        each.collect::<Result<_, _>>().map(Some)
    }

    /// Sets the name that errors use for this item of a list from now on.
    pub(super) fn set_label(&mut self, name: &str) {
        self.path = format!("{} ({name}).", self.path.trim_end_matches('.'));
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(self.key_error(name, "expected a string")),
        }
    }

    /// Returns a word of an enumeration; a boolean counts as its word.
    fn parsed<T: std::str::FromStr<Err = String>>(&mut self, name: &str) -> Result<Option<T>, ConfigError> {
        let text = match self.take(name) {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(other) => serde_yaml::to_string(&other).unwrap_or_default().trim_end().to_owned(),
        };
        text.parse().map(Some).map_err(|why: String| self.key_error(name, &why))
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => {
                let found = other.as_str().map(|t| format!(", not {t:?}")).unwrap_or_default();
                Err(self.key_error(name, &format!("expected true or false{found}")))
            }
        }
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u64>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => {
                value.as_u64().map(Some).ok_or_else(|| self.key_error(name, "expected a number of at least 0"))
            }
        }
    }

    pub(super) fn list(&mut self, name: &str) -> Result<Option<Vec<String>>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.split(',').map(|t| t.trim().to_owned()).collect())),
            Some(Value::Sequence(values)) => {
                let texts = values.iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
                texts.map(Some).ok_or_else(|| self.key_error(name, "expected a list of strings"))
            }
            Some(_) => Err(self.key_error(name, "expected a list of strings")),
        }
    }

    /// Returns lists of texts by name.
    fn lists(&mut self, name: &str) -> Result<BTreeMap<String, Vec<String>>, ConfigError> {
        // a digit is a text here too
        let text = |value: &mut Value| {
            if let Value::Number(number) = value {
                *value = Value::String(number.to_string());
            }
        };
        let remaining = match self.take(name) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Mapping(mut map)) => {
                for (_, value) in &mut map {
                    text(value);
                    value.as_sequence_mut().into_iter().flatten().for_each(text);
                }
                map
            }
            Some(_) => return Err(self.key_error(name, "expected names, each with a list of strings")),
        };
        let mut of = Self::new(&self.file, &format!("{}{name}.", self.path), remaining);
        let names: Vec<String> = of.remaining.keys().filter_map(|k| k.as_str().map(str::to_owned)).collect();
        let mut lists = BTreeMap::new();
        for name in names {
            let list = of.list(&name)?.unwrap_or_default();
            lists.insert(name, list);
        }
        of.finish()?;
        Ok(lists)
    }

    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let requested_keys = self.requested_keys.clone();
        self.finish_with(&requested_keys.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Fails if a key is left that the code did not request.
    fn finish_with(self, valid: &[&str]) -> Result<(), ConfigError> {
        let Some(key) = self.remaining.keys().next() else { return Ok(()) };
        let key = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
        let distance = |name: &&&str| strsim::damerau_levenshtein(&key.to_lowercase(), name);
        let nearest = valid.iter().min_by_key(distance).map(|n| format!("; the nearest key is {}{n}", self.path));
        Err(ConfigError(format!("{}: unknown key {}{key}{}", self.file, self.path, nearest.unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_like_go() {
        assert_eq!(duration("2s"), Some(Duration::from_secs(2)));
        assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        for key_error in ["", "2", "s", "2x", "-1s"] {
            assert_eq!(duration(key_error), None, "{key_error:?}");
        }
    }
}
