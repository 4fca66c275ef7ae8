//! Collection of a bundle's parts. A source that does not answer is named in `errors.txt`, and never stops the others.

use std::{path::PathBuf, time::Duration};

use cketerm_clients::{
    kubernetes::Kube,
    store::{Store, StoreError},
};
use cketerm_model::{
    cketerm_records::{Audit, Ending},
    clock::Clock,
    entry::Stored,
    stored::view::StoreView,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    Bundle, Part, cluster, local,
    past::{action, ended},
    queues, readme,
    safe::{Mask, Text},
};
use crate::{
    cli::{Context, config, doctor, info},
    config::Settings,
};

/// Longest wait for one part.
const TIMEOUT: Duration = Duration::from_secs(40);
/// Largest number of records of the audit, and of the history.
const MAX_RECORDS: usize = 5000;

/// A bundle in the making.
struct Collector {
    mask: Mask,
    bundle: Bundle,
}

impl Collector {
    fn fail(&mut self, part: Part, why: &str) {
        let error = self.mask.text(&format!("{}: {why}", part.file()));
        self.bundle.errors.push(error);
    }

    fn json(&mut self, part: Part, value: &impl Serialize) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => drop(self.bundle.parts.insert(part, text + "\n")),
            Err(e) => self.fail(part, &e.to_string()),
        }
    }

    fn lines(&mut self, part: Part, lines: &[Text]) {
        let text = lines.iter().fold(String::new(), |text, line| text + line.as_str() + "\n");
        self.bundle.parts.insert(part, text);
    }
}

/// Collects all parts.
pub(super) async fn bundle(since: Timestamp, now: Timestamp, context: &Context) -> Bundle {
    let settings = &context.settings;
    let mask = Mask::of(settings, |name| std::env::var(name).ok());
    let mut collector = Collector { mask, bundle: Bundle::default() };
    add_local(since, settings, &mut collector).await;
    match timeout(TIMEOUT, Box::pin(info::report(context))).await {
        Ok(report) => {
            let document = collector.mask.document(Value::Object(report));
            collector.json(Part::About, &document);
        }
        Err(_) => collector.fail(Part::About, "no answer"),
    }
    match timeout(TIMEOUT, Box::pin(doctor::without_logins(context))).await {
        Ok(checks) => {
            let document = collector.mask.document(json!({"checks": checks}));
            collector.json(Part::Doctor, &document);
        }
        Err(_) => collector.fail(Part::Doctor, "no answer"),
    }
    if let Err(why) = kubernetes(settings).await {
        collector.fail(Part::Doctor, &format!("Kubernetes: {why}"));
    }
    Box::pin(add_stored(since, context, &mut collector)).await;
    let mut collected = collector.bundle;
    let errors = collected.errors.iter().fold(String::new(), |text, error| text + error.as_str() + "\n");
    collected.parts.insert(Part::Errors, if errors.is_empty() { "none\n".to_owned() } else { errors });
    collected.parts.insert(Part::Readme, readme(since, now));
    collected
}

/// Reports whether Kubernetes answers.
async fn kubernetes(settings: &Settings) -> Result<(), String> {
    if settings.kube.is_none() {
        return Err("not configured, so nothing of it is in the bundle".to_owned());
    }
    let asked = async {
        let kube = Kube::connect(&settings.kube, Clock::host()).await.map_err(|e| e.to_string())?;
        kube.version().await.map(drop).map_err(|e| e.to_string())
    };
    timeout(TIMEOUT, asked).await.unwrap_or_else(|_| Err("no answer".to_owned()))
}

/// Adds the parts of this host.
async fn add_local(since: Timestamp, settings: &Settings, collector: &mut Collector) {
    let source = |name: &str| settings.from.get(name).map_or("built-in", String::as_str);
    let rows = config::in_force(settings).into_iter().map(|(name, value)| {
        // a list of names could hold a value by mistake
        let value = if name == "engine.command_env" { only_names(&settings.command_env) } else { value };
        (name.to_owned(), json!({"value": value, "from": source(name)}))
    });
    // the names of the settings say `password`, but their values are not the passwords
    let rows: Map<String, Value> = rows.collect();
    let document = collector.mask.document(Value::Object(rows));
    collector.json(Part::Configuration, &document);

    match log_directory(settings) {
        Some(directory) => match local::log_lines(&directory, since, &collector.mask) {
            Ok(lines) => collector.lines(Part::Log, &lines),
            Err(e) => {
                let place = directory.display();
                collector
                    .fail(Part::Log, &format!("{place}: {e}; a daemon may log to the journal: journalctl -u cketerm"));
            }
        },
        None => collector.fail(Part::Log, "no log directory is configured: see journalctl -u cketerm"),
    }
    match settings.http.as_deref().map(str::parse) {
        Some(Ok(address)) => match local::metrics(address, &collector.mask).await {
            Ok(lines) => collector.lines(Part::Metrics, &lines),
            Err(why) => collector.fail(Part::Metrics, &format!("{address}: {why}; no daemon may run on this host")),
        },
        Some(Err(_)) => collector.fail(Part::Metrics, "engine.http is not an address"),
        None => collector.fail(Part::Metrics, "engine.http is off"),
    }
}

/// Returns the names of variables that may be followed by a value.
fn only_names(variables: &[String]) -> String {
    let names = variables.iter().map(|name| name.split('=').next().unwrap_or_default());
    names.collect::<Vec<_>>().join(",")
}

/// Returns the directory of the log files: the configured one, or the one of this user's consoles.
fn log_directory(settings: &Settings) -> Option<PathBuf> {
    let own = || Some(directories::ProjectDirs::from("", "", "cketerm")?.state_dir()?.to_owned());
    settings.log.directory.clone().or_else(own)
}

/// Adds the parts of etcd.
async fn add_stored(since: Timestamp, context: &Context, collector: &mut Collector) {
    let read = async {
        let store = Store::connect(&context.settings.etcd, Clock::host()).await.map_err(|e| e.to_string())?;
        let view = store.read_view().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((store, view))
    };
    let (store, view) = match timeout(TIMEOUT, read).await {
        Ok(Ok(read)) => read,
        failed => {
            let why = failed.map_or_else(|_| "no answer".to_owned(), |read| read.err().unwrap_or_default());
            collector.fail(Part::Leader, &format!("etcd: {why}"));
            for part in [Part::Policy, Part::Constraints, Part::Definition, Part::Entries, Part::Audit, Part::History] {
                collector.fail(part, "etcd was not read");
            }
            return;
        }
    };
    add_view(&view, collector);
    let folder = store.keys().audit_prefix();
    let from = format!("{folder}{:020}", since.as_nanosecond().max(0));
    match timeout(TIMEOUT, store.newest_first_from::<Audit>(&folder, &from)).await {
        Ok(Ok((_, records))) => {
            let records: Vec<&Audit> = readable(&records, Part::Audit, collector);
            let records: Vec<_> = records.into_iter().map(|audit| action(audit, &collector.mask)).collect();
            collector.json(Part::Audit, &records);
        }
        Ok(Err(e)) => collector.fail(Part::Audit, &e.to_string()),
        Err(_) => collector.fail(Part::Audit, "no answer"),
    }
    match timeout(TIMEOUT, ended_since(&store, since)).await {
        Ok(Ok(mut records)) => {
            // etcd's order is that of its writes, whatever the clocks of engines show
            records.sort_by_key(|stored| std::cmp::Reverse(stored.get().map(|ending| (ending.at, ending.entry))));
            let records: Vec<&Ending> = readable(&records, Part::History, collector);
            let records: Vec<_> = records.into_iter().map(|ending| ended(ending, &collector.mask)).collect();
            collector.json(Part::History, &records);
        }
        Ok(Err(e)) => collector.fail(Part::History, &e.to_string()),
        Err(_) => collector.fail(Part::History, "no answer"),
    }
}

/// Reads the entries that ended since this time, newest first; not many more than a bundle holds.
async fn ended_since(store: &Store, since: Timestamp) -> Result<Vec<Stored<Ending>>, StoreError> {
    let mut entries = store.ended_entries().await?;
    let mut found = Vec::new();
    let mut readable = 0;
    while let Some(mut read) = store.next_ended(&mut entries).await? {
        let is_older = |stored: &Stored<Ending>| stored.get().is_some_and(|ending| ending.ended_before(since));
        let is_past = !read.is_empty() && read.iter().all(is_older);
        read.retain(|stored| stored.get().is_none_or(|ending| ending.at >= since));
        readable += read.iter().filter(|stored| stored.get().is_some()).count();
        found.append(&mut read);
        if is_past || readable > MAX_RECORDS {
            break;
        }
    }
    Ok(found)
}

/// Returns the newest readable records, and names how many others there are.
fn readable<'a, T>(records: &'a [Stored<T>], part: Part, collector: &mut Collector) -> Vec<&'a T> {
    let unreadable = records.iter().filter(|stored| stored.get().is_none()).count();
    if unreadable > 0 {
        collector.fail(part, &format!("{unreadable} records cannot be read"));
    }
    let mut found: Vec<&T> = records.iter().filter_map(Stored::get).collect();
    if found.len() > MAX_RECORDS {
        collector.fail(part, &format!("only the newest {MAX_RECORDS} records"));
        found.truncate(MAX_RECORDS);
    }
    found
}

/// Adds what the copy of etcd holds.
fn add_view(view: &StoreView, collector: &mut Collector) {
    match cluster::policy(&view.policy(), view.policy.is_some(), &collector.mask) {
        Ok(document) => collector.json(Part::Policy, &document),
        Err(e) => collector.fail(Part::Policy, &e.to_string()),
    }
    if view.policy.as_ref().is_some_and(|stored| stored.get().is_none()) {
        collector.fail(Part::Policy, "the stored policy cannot be read: these are the defaults");
    }
    collector.json(Part::Constraints, &cluster::limits(&view.constraints()));
    match view.definition() {
        Some(definition) => {
            let document = cluster::definition(&definition.cluster, &collector.mask);
            collector.json(Part::Definition, &document);
        }
        None => collector.fail(Part::Definition, "no readable definition is stored"),
    }
    let leadership = queues::leadership(view, &collector.mask);
    collector.json(Part::Leader, &leadership);
    let entries = queues::entries(view, &collector.mask);
    collector.json(Part::Entries, &entries);
}

#[cfg(test)]
mod tests;
