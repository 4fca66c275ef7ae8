//! `info`: the basic data of a bug report. No secrets.

use std::time::Duration;

use cketerm_actions::{ActionError, Operator, rights};
use cketerm_clients::{
    kubernetes::Kube,
    store::{EtcdSettings, Store},
};
use cketerm_model::{clock::Clock, entry::Stored, secret};
use serde_json::{Map, Value, json};

use super::{Context, options::Output, output::Lines};

/// Longest wait for one server.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Label of the rights that the user lacks.
const LACKING_LABEL: &str = "you may not change";

/// Prints the report. A server that does not answer is named and is no error.
pub async fn run(context: &Context) -> Result<(), ActionError> {
    context.warn_of_default_endpoint();
    let all = Box::pin(report(context)).await;
    match context.output(Output::Table) {
        Output::Table => context.out.text(text(&all)),
        form => context.out.value(&all, form),
    }
}

/// Returns the report. It names servers that do not answer.
pub(super) async fn report(context: &Context) -> Map<String, Value> {
    let s = &context.settings;
    let mut all = Map::new();
    all.insert("cketerm".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    all.insert("build".to_owned(), json!(format!("{build}, {}-{}", std::env::consts::ARCH, std::env::consts::OS)));
    let host = rustix::system::uname();
    let to_text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let system = [to_text(host.sysname()), to_text(host.release()), to_text(host.machine())].join(" ");
    all.insert("host".to_owned(), json!(format!("{} ({system})", to_text(host.nodename()))));
    let files: Vec<String> = s.files.iter().map(|f| f.display().to_string()).collect();
    all.insert("files".to_owned(), json!(files));
    all.insert("etcd".to_owned(), etcd(&s.etcd).await);
    let kube = if s.kube.is_none() { None } else { Some(Kube::connect(&s.kube, Clock::host()).await) };
    all.insert(
        "kubernetes".to_owned(),
        match &kube {
            None => json!("not configured"),
            Some(Err(e)) => json!(e.to_string()),
            Some(Ok(kube)) => kubernetes(kube).await,
        },
    );
    let store = Store::connect(&s.etcd, Clock::host()).await;
    match &store {
        Ok(store) => {
            all.insert("you".to_owned(), json!(Operator::new(store.clone(), None).who().to_string()));
            let kube = kube.as_ref().and_then(|kube| kube.as_ref().ok());
            let stored_state = stored(store).await;
            let lacking = if stored_state.contains_key("stored") {
                json!("unknown: etcd does not answer")
            } else {
                json!(rights(store, kube).await.lacking().map(|(_, why)| why).collect::<Vec<&str>>())
            };
            all.insert(LACKING_LABEL.to_owned(), lacking);
            all.extend(stored_state);
        }
        Err(e) => drop(all.insert("stored".to_owned(), json!(e.to_string()))),
    }
    all
}

/// Returns each endpoint with its version, or with the reason why it has none.
async fn etcd(settings: &EtcdSettings) -> Value {
    let mut out = Map::new();
    for endpoint in &settings.endpoints {
        let one = EtcdSettings { endpoints: vec![endpoint.clone()], ..settings.clone() };
        let asked = async {
            let store = Store::connect(&one, Clock::host()).await.map_err(|e| e.to_string())?;
            store.server().await.map_err(|e| e.to_string())
        };
        let answer = match tokio::time::timeout(TIMEOUT, asked).await {
            Ok(Ok(text) | Err(text)) => text,
            Err(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        };
        out.insert(secret::url(endpoint), json!(answer));
    }
    out.insert("prefix".to_owned(), json!(settings.prefix));
    Value::Object(out)
}

async fn kubernetes(kube: &Kube) -> Value {
    let version = async { kube.version().await.unwrap_or_else(|e| e.to_string()) };
    let answer = tokio::time::timeout(TIMEOUT, version).await;
    let answer = answer.unwrap_or_else(|_| format!("no answer within {} s", TIMEOUT.as_secs()));
    json!({ kube.server(): answer })
}

/// Returns a summary of etcd's content: leader, engines, identity, definition, queues.
async fn stored(store: &Store) -> Map<String, Value> {
    let view = match tokio::time::timeout(TIMEOUT, store.read_view()).await {
        Ok(Ok(view)) => view,
        Ok(Err(e)) => return Map::from_iter([("stored".to_owned(), json!(e.to_string()))]),
        Err(_) => return Map::from_iter([("stored".to_owned(), json!("no answer"))]),
    };
    let leader = view.leader().map(|leader| {
        let whose = if view.is_cke(leader) { "CKE" } else { "cketerm" };
        let status = view.status.as_ref().and_then(Stored::get);
        let phase = status.map(|status| format!(", {}", status.phase)).unwrap_or_default();
        format!("{whose} on {}, lease {:x}{phase}", leader.host, leader.lease)
    });
    let engines: Vec<String> = view
        .engines
        .values()
        .filter_map(Stored::get)
        .map(|e| format!("{} {} ({}, pid {})", e.host, e.version, e.mode, e.pid))
        .collect();
    let identity = view.identity.as_ref().and_then(Stored::get);
    let identity = identity.map(|i| {
        let by = i.confirmed_by.as_ref().map_or("not confirmed".to_owned(), |who| format!("confirmed by {who}"));
        format!("{}, {by}", i.uid)
    });
    let (reboots, repairs) = (view.reboots.entries.len(), view.repairs.entries.len());
    let definition = view.definition().map(|d| format!("{}: {} nodes", d.cluster.name, d.cluster.nodes.len()));
    Map::from_iter([
        ("schema".to_owned(), json!(view.schema.as_ref().and_then(Stored::get))),
        ("policy engine".to_owned(), json!(view.policy().engine)),
        ("leader".to_owned(), json!(leader)),
        ("engines".to_owned(), json!(engines)),
        ("identity".to_owned(), json!(identity)),
        ("definition".to_owned(), json!(definition)),
        ("queues".to_owned(), json!(format!("{reboots} reboots, {repairs} repairs"))),
        ("unreadable keys".to_owned(), json!(view.broken.keys().collect::<Vec<_>>())),
    ])
}

fn text(all: &Map<String, Value>) -> Lines {
    let mut out = Lines::default();
    for (name, value) in all {
        let (name, value) = match value {
            Value::Array(list) if list.is_empty() && name == LACKING_LABEL => ("you may change", &json!("everything")),
            value => (name.as_str(), value),
        };
        let lines: Vec<String> = match value {
            Value::Null => vec!["none".to_owned()],
            Value::String(text) => vec![text.clone()],
            Value::Array(list) if list.is_empty() => vec!["none".to_owned()],
            Value::Array(list) => list.iter().map(|v| super::output::cell(Some(v))).collect(),
            Value::Object(map) => map.iter().map(|(k, v)| format!("{k}: {}", super::output::cell(Some(v)))).collect(),
            other => vec![other.to_string()],
        };
        for (i, line) in lines.iter().enumerate() {
            let label = if i == 0 { name } else { "" };
            out.line(format_args!("{label:<16} {line}"));
        }
    }
    out
}
