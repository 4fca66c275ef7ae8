use std::sync::Arc;

use cketerm_clients::{kubernetes::KubeSettings, store::EtcdSettings};
use cketerm_model::{
    cketerm_records::{AcceptedCancel, EngineRegistration, Order, Progress, Request},
    entry::EntryId,
    reboot::RebootEntry,
};
use serde::de::DeserializeOwned;

use super::*;
use crate::cli::options::{Color, Globals};

const SECRET: &str = "zzz";

fn stored<T: DeserializeOwned>(value: Value) -> Stored<T> {
    Stored { key: "/cke/x".to_owned(), mod_revision: 7, value: Ok(Arc::new(serde_json::from_value(value).unwrap())) }
}

/// A copy of etcd with a secret in each place that could hold one.
fn planted() -> StoreView {
    let (id, at) = (EntryId::reboot(0), "2026-11-21T10:00:00Z");
    let who = json!({"user": "alice", "host": "admin1"});
    let secret_text = format!("see https://u:{SECRET}@host/{SECRET}?token={SECRET} and --password {SECRET}");
    let mut view = StoreView::default();
    let entry = json!({"index": "0", "node": "10.0.0.12", "status": "rebooting", "odd": SECRET});
    view.reboots.entries.insert(0, stored::<RebootEntry>(entry));
    view.requests.insert(id, stored::<Request>(json!({"who": who, "at": at, "reason": secret_text})));
    let order = json!({"verb": "hold", "who": who, "at": at, "reason": secret_text, "entry_revision": 7});
    view.orders.insert(id, stored::<Order>(order));
    let cancel = json!({"who": who, "at": at, "reason": SECRET, "address": "10.0.0.12", "created": 7});
    view.cancels.insert(id, stored::<AcceptedCancel>(cancel));
    let progress = json!({
        "phase": "evicting", "since": at, "pods_at_start": 2, "pods_gone": 1,
        "blockers": [{"pod": "a/b", "why": {"kind": "denied", "webhook": "w", "message": secret_text}}],
    });
    view.progress.insert(id, stored::<Progress>(progress));
    let attempt = json!({
        "id": "reboots-0-1", "entry": "reboots/0", "number": 1, "address": "10.0.0.12", "lease": 7, "host": "boot-0",
        "argv": ["ipmitool", "-a", SECRET, "10.0.0.12"], "bound_seconds": 60, "start": at,
        "outcome": {"end": {"exit": 1}, "at": at, "stdout": SECRET, "stderr": SECRET},
    });
    view.attempts.insert((id, 1), stored(attempt));
    let engine = json!({
        "host": "boot-0", "pid": 1, "version": "0.2.0", "mode": "daemon", "http": "127.0.0.1:1",
        "unable": secret_text, "missing_programs": ["ipmitool"],
    });
    view.engines.insert(7, stored::<EngineRegistration>(engine));
    view.registry.url = Some(stored(json!(format!("http://u:{SECRET}@sabakan/{SECRET}"))));
    view.registry.template = Some(stored(json!(format!("{{\"options\": \"{SECRET}\"}}"))));
    view.policy = Some(stored(json!({"of_tomorrow": SECRET})));
    let definition = json!({
        "name": "test", "nodes": [{"address": "10.0.0.12", "labels": {"a": SECRET}}],
        "reboot": {"reboot_command": ["sh", "-c", SECRET]}, "options": {"kubelet": {"extra_env": {"A": SECRET}}},
    });
    view.cluster = Some(stored(definition));
    let unreadable =
        Stored { key: "/cke/y".to_owned(), mod_revision: 8, value: Err(format!("it begins with {SECRET}")) };
    view.reboots.entries.insert(1, unreadable);
    view.broken.insert("/cke/y".to_owned(), format!("it begins with {SECRET}"));
    view
}

#[test]
fn a_copy_of_etcd_leaves_no_secret_in_a_bundle() {
    let mut collector = Collector { mask: Mask::default(), bundle: Bundle::default() };
    add_view(&planted(), &mut collector);
    assert_eq!(collector.bundle.errors, []);
    let all: String = collector.bundle.files().map(|(_, text)| text).collect();
    assert!(!all.contains(SECRET), "{all}");
    for known in ["10.0.0.12", "alice@admin1", "ipmitool", "boot-0", "\"arguments\": 3", "a/b", "hold", "of_tomorrow"] {
        assert!(all.contains(known), "{known}: {all}");
    }
    let entries: Value = serde_json::from_str(&collector.bundle.parts[&Part::Entries]).unwrap();
    assert_eq!(entries[0]["state"]["unknown_fields"], json!(["odd"]));
    assert_eq!(entries[0]["attempts"][0]["outcome"]["stdout_bytes"], SECRET.len());
    assert_eq!((&entries[1]["id"], &entries[1]["state"]), (&json!("reboots/1"), &Value::Null));
}

#[test]
fn records_leave_no_secret_in_a_bundle() {
    let (mask, at) = (Mask::default(), "2026-11-21T10:00:00Z");
    let who = json!({"user": "alice", "host": "admin1"});
    let audit: Audit = serde_json::from_value(json!({
        "at": at, "who": who, "what": "policy set", "on": "cketerm/policy", "reason": format!("token={SECRET}"),
        "result": format!("hooks = [{{\"name\":\"a\",\"url\":\"https://chat.example/{SECRET}\"}}]"),
    }))
    .unwrap();
    let ending: Ending = serde_json::from_value(json!({
        "entry": "reboots/1", "address": "10.0.0.12", "end": "cancelled", "outcome": "cancelled", "at": at,
        "last": {"odd": SECRET},
        "attempts": [{
            "id": "reboots-1-1", "entry": "reboots/1", "number": 1, "address": "10.0.0.12", "lease": 7,
            "host": "boot-0", "argv": ["ssh", SECRET], "bound_seconds": 60, "start": at,
            "outcome": {"end": {"not_started": format!("ipmitool -P {SECRET}")}, "at": at, "stdout": SECRET},
        }],
        "hooks": [{
            "hook": "silence", "at": "before_drain", "try": 1, "target": format!("POST https://h/{SECRET}"), "lease": 7,
            "host": "boot-0", "bound_seconds": 30, "start": at,
            "outcome": {"end": {"status": 500}, "at": at, "output": SECRET},
        }],
    }))
    .unwrap();
    let ran = Audit { what: "power".to_owned(), result: format!("reset {SECRET} 10.0.0.12"), ..audit.clone() };
    let all = serde_json::to_string(&(action(&audit, &mask), action(&ran, &mask), ended(&ending, &mask))).unwrap();
    assert!(!all.contains(SECRET), "{all}");
    for known in
        ["policy set", "https://chat.example/…", "silence", "HTTP status 500", "\"program\":\"ssh\"", ":\"reset\""]
    {
        assert!(all.contains(known), "{known}: {all}");
    }
}

#[tokio::test]
async fn servers_that_do_not_answer_are_named_and_secrets_of_the_settings_stay_out() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         users: [{{name: a, user: {{token: {SECRET}-token}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'http://admin:{SECRET}@127.0.0.1:1'}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let log = folder.path().join("log");
    std::fs::create_dir(&log).unwrap();
    std::fs::write(log.join("cketerm.log.2026-11-21"), format!("2026-11-21T10:00:00Z  INFO said {SECRET}-password\n"))
        .unwrap();
    let etcd = EtcdSettings {
        endpoints: vec![format!("http://root:{SECRET}@127.0.0.1:1")],
        username: Some("root".to_owned()),
        password: Some(format!("{SECRET}-password")),
        timeout: Duration::from_millis(300),
        ..EtcdSettings::default()
    };
    let mut settings = Settings {
        etcd,
        kube: KubeSettings { kubeconfig: Some(kubeconfig), ..KubeSettings::default() },
        command_env: vec![format!("BMC_PASSWORD={SECRET}")],
        http: Some("127.0.0.1:1".to_owned()),
        ..Settings::default()
    };
    settings.log.directory = Some(log);
    settings.sources.insert("etcd".to_owned(), "a test".to_owned());
    let globals = Globals {
        config: None,
        etcd_endpoints: None,
        etcd_prefix: None,
        kubeconfig: None,
        context: None,
        output: None,
        color: Color::Never,
        verbose: 0,
    };
    let context = Context::new(settings, &globals);
    let made = Box::pin(bundle(Timestamp::MIN, "2026-11-21T12:00:00Z".parse().unwrap(), &context)).await;
    let all: String = made.files().map(|(_, text)| text).collect();
    assert!(!all.contains(SECRET), "{all}");
    let errors = &made.parts[&Part::Errors];
    for known in
        ["leader.json: etcd: ", "entries.json: etcd was not read", "doctor.json: Kubernetes: ", "metrics.txt: "]
    {
        assert!(errors.contains(known), "{known}: {errors}");
    }
    let written: Vec<Part> = made.parts.keys().copied().collect();
    let local = [Part::Readme, Part::Errors, Part::About, Part::Doctor, Part::Configuration, Part::Log];
    assert_eq!(written, local);
    assert!(all.contains("said ***") && all.contains("BMC_PASSWORD") && all.contains("127.0.0.1:1"), "{all}");
}
