//! An object as YAML: the keys of an entry in etcd, the Node or host in Kubernetes, the member of the definition. Secrets
//! are masked.

use cketerm_model::{
    entry::{EntryId, Stored},
    names::Address,
    secret,
    stored::{keys::Folder, view::StoreView},
};
use ratatui::{
    style::Style,
    text::{Line, Span},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    state::{
        App, HostId, Target,
        past::{ObjectId, PastId},
        queries, short_text,
    },
    table::wrap,
};

/// Returns the lines of an object's YAML. Matches of the text that is searched for are highlighted.
pub(super) fn lines(app: &App, of: &Target, width: u16) -> Vec<Line<'static>> {
    let theme = &app.config.theme;
    let search = app.navigation.pane_search.to_lowercase();
    let mut lines = Vec::new();
    for line in text(app, of).lines() {
        let style = if line.starts_with('#') { theme.muted } else { Style::new() };
        for part in wrapped(line, usize::from(width)) {
            let found = !search.is_empty() && part.to_lowercase().contains(&search);
            lines.push(if found { Line::styled(part, theme.mark) } else { coloured(&part, style, theme.title) });
        }
    }
    lines
}

/// Wraps a line and keeps its indent, which is a part of YAML.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let text = line.trim_start_matches(' ');
    let indent = " ".repeat((line.len() - text.len()).min(width / 2));
    let parts = wrap(&short_text::safe(text), width - indent.len());
    parts.into_iter().map(|part| format!("{indent}{part}")).collect()
}

/// Returns a line with its key in its own style.
fn coloured(line: &str, style: Style, key: Style) -> Line<'static> {
    match line.split_once(':') {
        Some((name, value)) if style == Style::new() && !name.trim_start().contains(' ') => {
            Line::from(vec![Span::styled(format!("{name}:"), key), Span::raw(value.to_owned())])
        }
        _ => Line::styled(line.to_owned(), style),
    }
}

/// Returns the whole text.
fn text(app: &App, of: &Target) -> String {
    let store = &app.seen.snapshot.store;
    match of {
        Target::Entry(id) => entry(store, *id),
        Target::Node(name) => {
            let address = queries::member(&app.seen, name).map(|member| member.address.clone());
            let member = address.map(|address| member(app, &address)).unwrap_or_default();
            format!("{}{member}", object(app, &ObjectId::Node(name.clone()), &format!("node {name}")))
        }
        Target::Host(id) => host(app, id),
        Target::Machine(address) => member(app, address),
        Target::Past(folder, id) => past(app, *folder, id),
        Target::Line(_) | Target::Fold(_) => "# this row has no object of its own\n".to_owned(),
    }
}

/// Returns the keys of an entry and what belongs to it.
fn entry(store: &StoreView, id: EntryId) -> String {
    let mut keys = Map::new();
    if let Some(stored) = store.stored_entry(id) {
        let value = match stored.value {
            Ok(_) => store.entry(id).map_or(Value::Null, |entry| match (entry.as_reboot(), entry.as_repair()) {
                (Some(reboot), _) => json(reboot),
                (_, Some(repair)) => json(repair),
                (None, None) => Value::Null,
            }),
            Err(why) => Value::String(format!("cannot be read: {why}")),
        };
        keys.insert(stored.key.to_owned(), value);
    }
    insert(&mut keys, store.requests.get(&id));
    insert(&mut keys, store.orders.get(&id));
    insert(&mut keys, store.progress.get(&id));
    for attempt in store.attempts_of(id) {
        insert(&mut keys, Some(attempt));
    }
    for (_, output) in store.output.range((id, 0)..=(id, u32::MAX)) {
        insert(&mut keys, Some(output));
    }
    if keys.is_empty() {
        return format!("# etcd has no keys of {id} any more\n");
    }
    document(&format!("{id}: its keys in etcd"), Value::Object(keys))
}

fn insert<T: Serialize>(keys: &mut Map<String, Value>, stored: Option<&Stored<T>>) {
    let Some(stored) = stored else { return };
    let value = match &stored.value {
        Ok(value) => json(value.as_ref()),
        Err(why) => Value::String(format!("cannot be read: {why}")),
    };
    keys.insert(stored.key.clone(), value);
}

fn host(app: &App, id: &HostId) -> String {
    object(app, &ObjectId::Host(id.clone()), &format!("host {}/{}", id.0, id.1))
}

/// Returns an object of Kubernetes, as far as it was read.
fn object(app: &App, id: &ObjectId, title: &str) -> String {
    match app.knowledge.past.object.get(id) {
        None => format!("# {title}: reading ...\n"),
        Some(Err(why)) => format!("# {title}: not read: {why}\n"),
        Some(Ok(content)) => {
            let mut content = Value::clone(content);
            if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
                // Bookkeeping of the API server, longer than all the rest.
                metadata.remove("managedFields");
            }
            document(&format!("{title} in Kubernetes"), content)
        }
    }
}

/// Returns a machine: the member of the definition, and sabakan's data.
fn member(app: &App, address: &Address) -> String {
    let name = app.seen.snapshot.machine(address);
    let member = queries::member(&app.seen, &name);
    let mut text = match member {
        Some(member) => document(&format!("{name} in the definition"), json(member)),
        None => format!("# {name}: not in the definition\n"),
    };
    if let Some(machine) = app.knowledge.registry.at(&app.seen, address) {
        text += &document(&format!("machine {} in sabakan", machine.serial), json(machine));
    }
    text
}

fn past(app: &App, folder: Folder, id: &PastId) -> String {
    let past = &app.knowledge.past;
    let value = match folder {
        Folder::History => match past.ending.as_ref().filter(|(key, _)| *key == id.key).map(|(_, ending)| ending) {
            None => return format!("# {}: reading ...\n", id.key),
            Some(Err(why)) => return format!("# {}: not read: {why}\n", id.key),
            Some(Ok(timeline)) => json(&timeline.ending),
        },
        Folder::Audit => past.audit.get(id).map_or(Value::Null, |audit| json(audit.as_ref())),
        Folder::Records => past.records.get(id).map_or(Value::Null, |record| json(record.as_ref())),
    };
    document(&id.key, value)
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// Returns a YAML document with a title, its secrets masked.
fn document(title: &str, mut value: Value) -> String {
    secret::mask(&mut value);
    let text = serde_yaml::to_string(&value).unwrap_or_else(|e| format!("# cannot be written as YAML: {e}\n"));
    format!("# {title}; secrets are masked\n{text}")
}
