//! Tests of both forms, of their precedence, and of what is refused.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use super::*;

struct Directory {
    dir: tempfile::TempDir,
}

impl Directory {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        path
    }

    fn load(&self, text: &str) -> Result<Settings, ConfigError> {
        let config = Some(self.file("config.yaml", text));
        Settings::load_from(&Overrides { config, ..Overrides::default() }, |_| None, &[])
    }
}

const PEM: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

#[test]
fn the_default_file_equals_the_built_in_defaults() {
    let settings = Directory::new().load(Settings::default_yaml()).unwrap();
    let plain = Settings::default();
    assert_eq!((&settings.etcd, &settings.kube, &settings.console), (&plain.etcd, &plain.kube, &plain.console));
    assert_eq!((&settings.log, &settings.http), (&plain.log, &plain.http));
    assert_eq!(settings.lease_ttl_seconds, plain.lease_ttl_seconds);
    assert!(settings.configured() && !plain.configured());
}

#[test]
fn ckes_configuration_file_is_accepted_unchanged() {
    let directory = Directory::new();
    let ca = directory.file("ca.crt", PEM);
    let text = format!(
        "endpoints: [\"https://10.0.0.1:2379\", \"https://10.0.0.2:2379\"]\nprefix: /cke/\ntimeout: 5s\nusername: cke\n\
         password: p\ntls-ca-file: {}\ntls-cert: |\n  -----BEGIN CERTIFICATE-----\n  AA==\ntls-key: |\n  -----BEGIN KEY-----\n  AA==\n",
        ca.display()
    );
    let settings = directory.load(&text).unwrap();
    assert_eq!(settings.etcd.endpoints.len(), 2);
    assert_eq!(settings.etcd.timeout, Duration::from_secs(5));
    assert_eq!(settings.etcd.username.as_deref(), Some("cke"));
    assert!(settings.etcd.tls_ca.is_some() && settings.etcd.tls_cert.is_some() && settings.etcd.tls_key.is_some());
}

#[test]
fn cluster_etcd_is_a_separate_section() {
    let directory = Directory::new();
    let (ca, key) = (directory.file("ca.crt", PEM), directory.file("m.key", PEM));
    assert_eq!(directory.load("etcd: {endpoints: [\"http://a:2379\"]}").unwrap().cluster_etcd, None);
    // only credentials: the endpoints are those of the control planes
    let text = format!(
        "cluster_etcd: {{tls-ca-file: {0}, tls-cert-file: {0}, tls-key-file: {1}}}",
        ca.display(),
        key.display()
    );
    let members = directory.load(&text).unwrap().cluster_etcd.unwrap();
    assert!(members.endpoints.is_empty() && members.tls_ca.is_some() && members.tls_key.is_some());
    let members =
        directory.load("cluster_etcd: {endpoints: \"https://a:2379,https://b:2379\"}").unwrap().cluster_etcd.unwrap();
    assert_eq!(members.endpoints, ["https://a:2379", "https://b:2379"]);
    let error = directory.load("cluster_etcd: {prefix: /x/}").unwrap_err().to_string();
    assert!(error.contains("cluster_etcd.prefix"), "{error}");
}

#[test]
fn an_unknown_key_is_an_error_with_file_key_and_nearest_valid_key() {
    let directory = Directory::new();
    for (text, key, nearest) in [
        ("etcd:\n  endpoint: [x]\n", "etcd.endpoint", "etcd.endpoints"),
        ("endpoint: [x]\n", "endpoint", "endpoints"),
        ("endpoints: [x]\ntls-ca-fle: x\n", "tls-ca-fle", "tls-ca-file"),
        ("consol:\n  theme: x\n", "consol", "console"),
        ("etcd: {}\nenigne: {}\n", "enigne", "engine"),
        ("console:\n  temhe: x\n", "console.temhe", "console.theme"),
    ] {
        let error = directory.load(text).unwrap_err().to_string();
        assert!(error.contains("config.yaml") && error.contains(&format!("unknown key {key}")), "{error}");
        assert!(error.ends_with(&format!("nearest key is {nearest}")), "{error}");
    }
}

/// Every key can be remapped or unbound in the configuration.
#[test]
fn keys_are_read_by_the_names_of_their_commands() {
    let text = "console:\n  keys: {cancel: [\"ctrl-x c\", f8], nodes: [2], hold: f9, force: []}\n";
    let keys = Directory::new().load(text).unwrap().console.keys;
    let found: Vec<(&str, Vec<&str>)> =
        keys.iter().map(|(name, keys)| (name.as_str(), keys.iter().map(String::as_str).collect())).collect();
    let wanted = [("cancel", vec!["ctrl-x c", "f8"]), ("force", vec![]), ("hold", vec!["f9"]), ("nodes", vec!["2"])];
    assert_eq!(found, wanted);
}

#[test]
fn values_of_the_wrong_type_are_reported_by_key() {
    let directory = Directory::new();
    for (text, words) in [
        ("console:\n  mouse: yes\n", "console.mouse: expected true, false or always, not \"yes\""),
        ("console:\n  bell: on\n", "console.bell: expected never, stuck, ended or both, not \"on\""),
        ("console:\n  ascii: 7\n", "console.ascii: expected auto, true or false, not \"7\""),
        ("console:\n  title: no\n", "console.title: expected true or false, not \"no\""),
        ("console:\n  keys: [x]\n", "console.keys: expected names, each with a list of strings"),
        ("console:\n  keys: {hold: {a: b}}\n", "console.keys.hold: expected a list of strings"),
        ("endpoints: [x]\ntimeout: 2 apples\n", "timeout: \"2 apples\""),
        ("endpoints: [x]\ntls-ca: nonsense\n", "tls-ca: not PEM"),
        ("endpoints: [x]\ntls-ca-file: /nowhere/ca\n", "/nowhere/ca cannot be read"),
        ("engine:\n  lease_ttl_seconds: -1\n", "engine.lease_ttl_seconds"),
        ("engine:\n  lease_ttl_seconds: 1\n", "too short"),
        ("etcd: {}\nendpoints: [x]\n", "mixes both forms"),
        ("- a\n", "expected keys"),
        ("a: b: c", "is not YAML"),
    ] {
        let error = directory.load(text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_world_readable_secret_is_refused_in_cketerms_form_and_warned_about_in_ckes() {
    let directory = Directory::new();
    let open = |text: &str, mode: u32| {
        let path = directory.file("c.yaml", text);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Settings::load_from(&Overrides { config: Some(path), ..Overrides::default() }, |_| None, &[])
    };
    let ours = "etcd:\n  endpoints: [x]\n  password: p\n";
    assert!(open(ours, 0o644).unwrap_err().to_string().contains("chmod o-r"));
    assert!(open(ours, 0o640).unwrap().warnings.is_empty());
    assert_eq!(open("endpoints: [x]\npassword: p\n", 0o644).unwrap().warnings.len(), 1);
    assert!(open("endpoints: [x]\n", 0o644).unwrap().warnings.is_empty());
    let hook = |url: &str| format!("etcd:\n  endpoints: [x]\nnotices:\n- {{name: chat, url: \"{url}\"}}\n");
    let warned = open(&hook("https://hooks.example.com/services/SECRET"), 0o644).unwrap().warnings;
    assert!(warned.len() == 1 && warned[0].contains("url_file") && !warned[0].contains("SECRET"), "{warned:?}");
    assert!(open(&hook("https://hooks.example.com/services/SECRET"), 0o640).unwrap().warnings.is_empty());
    assert!(open(&hook("https://hooks.example.com/"), 0o644).unwrap().warnings.is_empty());
}

#[test]
fn later_files_win_and_endpoints_do_not_inherit_another_files_password() {
    let directory = Directory::new();
    let places = [
        (ConfigSource::Cke, directory.file("cke.yml", "endpoints: [\"http://a:1\"]\npassword: p\nusername: u\n")),
        (ConfigSource::Cketerm, directory.file("host.yaml", "etcd:\n  prefix: /site/\nlog:\n  level: debug\n")),
        (ConfigSource::Cketerm, directory.dir.path().join("missing.yaml")),
    ];
    let settings = Settings::load_from(&Overrides::default(), |_| None, &places).unwrap();
    assert_eq!((settings.etcd.prefix.as_str(), settings.etcd.password.as_deref()), ("/site/", Some("p")));
    assert_eq!((settings.files.len(), settings.searched_files.len()), (2, 3));

    let config = Some(directory.file("named.yaml", "etcd:\n  endpoints: [\"http://b:1\"]\n"));
    let overrides = Overrides { config, ..Overrides::default() };
    let settings = Settings::load_from(&overrides, |_| None, &places).unwrap();
    assert_eq!((settings.etcd.endpoints[0].as_str(), settings.etcd.password.as_deref()), ("http://b:1", None));
    assert_eq!((settings.etcd.prefix.as_str(), settings.log.level.as_str()), ("/cke/", "debug"));

    let environment = |name: &str| (name == "CKETERM_ETCD_ENDPOINTS").then(|| "http://c:1, http://d:1".to_owned());
    let settings = Settings::load_from(&overrides, environment, &places).unwrap();
    assert_eq!(settings.etcd.endpoints, ["http://c:1", "http://d:1"]);
    let overrides = Overrides { etcd_endpoints: Some("http://e:1".to_owned()), ..overrides };
    assert_eq!(Settings::load_from(&overrides, environment, &places).unwrap().etcd.endpoints, ["http://e:1"]);
    let overrides = Overrides { sandbox: true, ..overrides };
    let sandbox = Settings::load_from(&overrides, environment, &places).unwrap();
    assert!(!sandbox.configured() && sandbox.etcd == EtcdSettings::default() && sandbox.files.is_empty());
    // an unreadable file does not prevent the sandbox
    let broken = Overrides { config: Some("/nonexistent".into()), sandbox: true, ..Overrides::default() };
    assert_eq!(Settings::load_from(&broken, environment, &places).unwrap().warnings.len(), 1);
    // the sandbox reads only the console section of the file
    let keys = "etcd:\n  endpoints: [\"http://b:1\"]\nconsole:\n  theme: plain\n  keys:\n    top: [\"g g\"]\n";
    let tried = Overrides { config: Some(directory.file("keys.yaml", keys)), ..broken };
    let tried = Settings::load_from(&tried, environment, &places).unwrap();
    assert_eq!((tried.console.theme.as_str(), tried.console.keys["top"].len()), ("plain", 1));
    assert!(!tried.configured() && tried.warnings.is_empty(), "{:?}", tried.warnings);
}

#[test]
fn an_engine_needs_etcd_and_kubernetes_from_one_source_or_a_cke_file() {
    let directory = Directory::new();
    let load = |text: &str, kubeconfig: Option<&str>| {
        let config = Some(directory.file("c.yaml", text));
        let overrides = Overrides { config, kubeconfig: kubeconfig.map(PathBuf::from), ..Overrides::default() };
        Settings::load_from(&overrides, |_| None, &[]).unwrap().check_engine_sources()
    };
    let etcd = "etcd:\n  endpoints: [x]\n";
    assert_eq!(load(&format!("{etcd}kubernetes:\n  kubeconfig: k\n"), None), Ok(()));
    assert_eq!(load(&format!("{etcd}kubernetes:\n  in_cluster: true\n"), None), Ok(()));
    assert_eq!(load("endpoints: [x]\n", Some("k")), Ok(()));
    assert!(load(etcd, Some("k")).unwrap_err().contains("one place"));
    assert!(load(etcd, None).unwrap_err().contains("no Kubernetes"));
    assert!(Settings::default().check_engine_sources().unwrap_err().contains("no etcd"));
}

#[test]
fn a_missing_named_file_is_an_error_and_paths_are_relative_to_the_file() {
    let overrides = Overrides { config: Some("/nowhere/c.yaml".into()), ..Overrides::default() };
    let error = Settings::load_from(&overrides, |_| None, &[]).unwrap_err().to_string();
    assert!(error.contains("/nowhere/c.yaml"), "{error}");
    let directory = Directory::new();
    let settings = directory.load("etcd: {}\nkubernetes:\n  kubeconfig: kube/config\n").unwrap();
    assert_eq!(settings.kube.kubeconfig, Some(directory.dir.path().join("kube/config")));
}

#[test]
fn a_cke_file_with_unreadable_certificates_is_ignored_with_a_warning() {
    let directory = Directory::new();
    let places =
        [(ConfigSource::Cke, directory.file("cke.yml", "endpoints: [\"http://a:1\"]\ntls-key-file: /nowhere/key\n"))];
    let settings = Settings::load_from(&Overrides::default(), |_| None, &places).unwrap();
    assert!(!settings.configured() && settings.etcd == EtcdSettings::default());
    assert!(settings.warnings[0].contains("/nowhere/key cannot be read"), "{:?}", settings.warnings);
}

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

/// Compares the part between the marks with the output of `config default`. `UPDATE_DOCS=1` writes it.
#[test]
fn docs_configuration_md_contains_the_printed_default_file() {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = document.split_once("by `make docs` -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    let indented = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
    let file: String = Settings::default_yaml().lines().map(indented).collect();
    let wanted = format!("{before}by `make docs` -->\n\n{file}\n<!-- end -->{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(DOCUMENT, wanted).unwrap();
    } else {
        assert!(document == wanted, "docs/configuration.md differs from `config default`: run `make docs`");
    }
}

/// Every field of the policy has a row with its default, and no row names an unknown field.
#[test]
fn both_policy_tables_list_every_field_with_its_default() {
    use std::collections::BTreeMap;

    use cketerm_model::policy::Policy;

    let serde_json::Value::Object(mut fields) = serde_json::to_value(Policy::default()).unwrap() else { panic!() };
    // Absent by default.
    for name in ["windows", "freeze", "groups", "hooks", "uncordon_gates", "breaker", "canary", "start_gates"] {
        fields.insert(name.to_owned(), "none".into());
    }
    fields.insert("node_selector".to_owned(), "empty: all Nodes".into());
    fields.insert("reboot_needed_signals".to_owned(), "kured, Flatcar, own annotation".into());
    // Chosen when cketerm creates its schema in etcd.
    fields.insert("engine".to_owned(), "chosen once".into());
    let plain = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    let expected: BTreeMap<String, String> = fields.iter().map(|(n, v)| (n.clone(), plain(v))).collect();
    for (file, heading, column) in [("configuration.md", "## Policy", 1), ("reference/policy.md", "## All settings", 2)]
    {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
        let document = std::fs::read_to_string(path).unwrap();
        let section = document.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
        let row = |line: &str| {
            let cells: Vec<&str> = line.trim_end_matches(" |").split(" | ").collect();
            let name = cells[0].split('`').nth(1).unwrap().to_owned();
            let default = if name == "engine" { "chosen once" } else { cells[column].trim_matches('`') };
            (name, default.to_owned())
        };
        let is_row = |line: &&str| line.starts_with("| `") || line.starts_with("| [`");
        let rows: BTreeMap<String, String> = section.lines().filter(is_row).map(row).collect();
        assert_eq!(rows, expected, "{file}");
    }
}

/// The source is kept for each setting, not for each section.
#[test]
fn the_origin_of_each_setting_is_recorded_by_its_name() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("c.yaml");
    std::fs::write(&file, "etcd:\n  endpoints: [http://a:1]\nengine:\n  http: off\nlog:\n  level: debug\n").unwrap();
    let environment = |name: &str| match name {
        "CKETERM_LEASE_TTL" => Some("9".to_owned()),
        "CKETERM_ETCD_PREFIX" => Some("/x/".to_owned()),
        _ => None,
    };
    let overrides = Overrides { config: Some(file.clone()), context: Some("c".to_owned()), ..Overrides::default() };
    let settings = Settings::load_from(&overrides, environment, &[]).unwrap();
    let from = |name: &str| settings.from.get(name).map(String::as_str);
    let named = file.to_str();
    for (name, source) in [
        ("etcd.endpoints", named),
        ("etcd.prefix", Some("CKETERM_ETCD_PREFIX")),
        ("etcd.username", None),
        ("etcd.tls-ca", None),
        ("engine.http", named),
        ("engine.lease_ttl_seconds", Some("CKETERM_LEASE_TTL")),
        ("kubernetes.context", Some("--context")),
        ("log.level", named),
        ("log.json", None),
        ("console.theme", None),
    ] {
        assert_eq!(from(name), source, "{name}");
    }
    assert!(settings.warnings.is_empty());
    let odd = Overrides { etcd_prefix: Some("cke".to_owned()), ..overrides };
    assert!(Settings::load_from(&odd, environment, &[]).unwrap().warnings[0].contains("\"cke/\""));
}

#[test]
fn the_default_etcd_endpoint_causes_a_warning_unless_an_endpoint_is_named() {
    let directory = Directory::new();
    let none = |_: &str| None;
    let unconfigured = Settings::load_from(&Overrides::default(), none, &[]).unwrap();
    let warning = unconfigured.default_endpoint_warning().unwrap();
    for part in ["the default http://127.0.0.1:2379", "CKETERM_ETCD_ENDPOINTS", "--etcd-endpoints"] {
        assert!(warning.contains(part), "{warning}");
    }
    for text in ["etcd: {prefix: /x/}\n", "etcd: {endpoints: }\n", "log: {level: debug}\n", "prefix: /cke/\n"] {
        assert!(directory.load(text).unwrap().default_endpoint_warning().is_some(), "{text}");
    }
    // An explicit endpoint gives no warning, in either form of the file and even if it is the default address.
    for text in ["etcd: {endpoints: [\"http://e:1\"]}\n", "endpoints: [\"http://e:1\"]\n", Settings::default_yaml()] {
        assert_eq!(directory.load(text).unwrap().default_endpoint_warning(), None, "{text}");
    }
    let environment = |name: &str| (name == "CKETERM_ETCD_ENDPOINTS").then(|| "http://e:1".to_owned());
    let settings = Settings::load_from(&Overrides::default(), environment, &[]).unwrap();
    assert_eq!(settings.default_endpoint_warning(), None);
    let options = Overrides { etcd_endpoints: Some("http://e:1".to_owned()), ..Overrides::default() };
    assert_eq!(Settings::load_from(&options, none, &[]).unwrap().default_endpoint_warning(), None);
}

#[test]
fn world_readable_secrets_and_plain_http_are_reported_as_exposures() {
    let directory = Directory::new();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let (key, kubeconfig) =
        (directory.file("etcd.key", PEM), directory.file("kubeconfig", "insecure-skip-tls-verify: true\n"));
    let text = "etcd: {endpoints: ['http://10.0.0.1:2379'], username: u, password: hunter2, tls-key-file: etcd.key}\n\
                kubernetes: {kubeconfig: kubeconfig}\n";
    let exposures = |settings: &Settings| settings.exposures().join("; ");
    let settings = directory.load(text).unwrap();
    let why = exposures(&settings);
    assert!(why.contains("etcd.password goes over plain HTTP to http://10.0.0.1:2379"), "{why}");
    assert!(why.contains("insecure-skip-tls-verify") && !why.contains("chmod") && !why.contains("hunter2"), "{why}");
    open(&key);
    open(&kubeconfig);
    let why = exposures(&settings);
    assert!(why.contains("etcd.key holds a key") && why.contains("kubeconfig holds a key or token"), "{why}");
    let near = directory.load(&text.replace("10.0.0.1", "127.0.0.1")).unwrap();
    assert!(!exposures(&near).contains("plain HTTP"), "{}", exposures(&near));
}

#[test]
fn a_configured_state_directory_wins_over_all_others() {
    let place = |settings: Settings, found: Option<&str>| {
        settings.with_state_directory(found.map(PathBuf::from)).state_directory.display().to_string()
    };
    let directory = Directory::new();
    let unset = directory.load(Settings::default_yaml()).unwrap();
    assert_eq!(place(unset.clone(), None), "/var/lib/cketerm", "the same for every user");
    assert_eq!(place(unset, Some("/made/by/systemd")), "/made/by/systemd");
    let configured = directory.load("engine: {state_directory: /srv/x}\n").unwrap();
    assert_eq!(place(configured, Some("/made/by/systemd")), "/srv/x");
    let environment = |name: &str| (name == "CKETERM_STATE_DIRECTORY").then(|| "/srv/y".to_owned());
    let configured = Settings::load_from(&Overrides::default(), environment, &[]).unwrap();
    assert_eq!(place(configured, Some("/made/by/systemd")), "/srv/y");
}
