//! An object as YAML: the keys of an entry in etcd, the Node or host in Kubernetes, the member of the definition. Secrets
//! are masked.

use std::sync::Arc;

use cketerm_model::{
    entry::{EntryId, Stored},
    names::Address,
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
        navigation::{YamlStamp, YamlText},
        past::{ObjectId, PastId},
        queries, short_text, yaml,
    },
    table::wrap,
};

/// Returns the lines of an object's YAML. Matches of the text that is searched for are highlighted.
pub(super) fn lines(app: &App, of: &Target, width: u16) -> Vec<Line<'static>> {
    let theme = &app.config.theme;
    let search = app.navigation.pane_search.to_lowercase();
    let kept = known(app, of, width).map(|text| Arc::clone(&text.lines));
    let parts = kept.unwrap_or_else(|| parts(app, of, width));
    let lines = parts.iter().map(|(part, is_comment)| {
        let style = if *is_comment { theme.muted } else { Style::new() };
        let found = !search.is_empty() && part.to_lowercase().contains(&search);
        if found { Line::styled(part.clone(), theme.mark) } else { coloured(part, style, theme.title) }
    });
    lines.collect()
}

/// Returns the wrapped text that was kept, if it is still that of the object.
fn known<'a>(app: &'a App, of: &Target, width: u16) -> Option<&'a YamlText> {
    let kept = app.navigation.yaml.as_ref().filter(|kept| kept.of == *of && kept.width == width)?;
    (stamp(app, of)? == kept.stamp).then_some(kept)
}

/// Returns the wrapped text to keep for an open pane: the kept one as long as nothing has changed. `None` if nothing
/// tells when it changes.
pub fn kept(app: &App, of: &Target, width: u16) -> Option<YamlText> {
    if let Some(known) = known(app, of, width) {
        return Some(known.clone());
    }
    Some(YamlText { of: of.clone(), width, stamp: stamp(app, of)?, lines: parts(app, of, width) })
}

/// Returns the wrapped lines of an object's YAML, each with whether it is a comment.
fn parts(app: &App, of: &Target, width: u16) -> Arc<[(String, bool)]> {
    let text = text(app, of);
    let parts = text.lines().flat_map(|line| {
        let is_comment = line.starts_with('#');
        wrapped(line, usize::from(width)).into_iter().map(move |part| (part, is_comment))
    });
    parts.collect()
}

/// Returns the revisions of everything that an object's YAML is made from. `None` if they are not known.
fn stamp(app: &App, of: &Target) -> Option<YamlStamp> {
    let store = &app.seen.snapshot.store;
    let read = |id: &ObjectId| match app.knowledge.past.object.get(id) {
        Some(Ok(text)) => Some(Arc::clone(text)),
        Some(Err(_)) | None => None,
    };
    let definition = store.cluster.as_ref().map_or(0, |stored| stored.mod_revision);
    Some(match of {
        Target::Entry(id) => {
            let of_key = |revision: Option<i64>| revision.unwrap_or(0);
            let mut revisions = vec![
                of_key(store.stored_entry(*id).map(|stored| stored.mod_revision)),
                of_key(store.requests.get(id).map(|stored| stored.mod_revision)),
                of_key(store.orders.get(id).map(|stored| stored.mod_revision)),
                of_key(store.progress.get(id).map(|stored| stored.mod_revision)),
            ];
            revisions.extend(store.attempts_of(*id).map(|stored| stored.mod_revision));
            // the number of attempts separates the two lists
            revisions.push(-1);
            revisions.extend(store.output.range((*id, 0)..=(*id, u32::MAX)).map(|(_, stored)| stored.mod_revision));
            YamlStamp { revisions, object: None }
        }
        // an object that was not read yet, or with an error, has a short text
        Target::Node(name) => {
            let address = queries::member(&app.seen, name).map(|member| &member.address);
            // sabakan's data has no revision
            if address.is_some_and(|address| app.knowledge.registry.at(&app.seen, address).is_some()) {
                return None;
            }
            YamlStamp { revisions: vec![definition], object: Some(read(&ObjectId::Node(name.clone()))?) }
        }
        Target::Host(id) => YamlStamp { revisions: Vec::new(), object: Some(read(&ObjectId::Host(id.clone()))?) },
        Target::Past(Folder::History, id) => {
            let is_read = app.knowledge.past.timeline(&id.key).is_some();
            YamlStamp { revisions: vec![i64::from(is_read)], object: None }
        }
        // a few lines
        Target::Past(Folder::Audit | Folder::Records, _) | Target::Machine(_) | Target::Fold(_) | Target::Line(_) => {
            return None;
        }
    })
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
        Some(Ok(text)) => format!("# {title} in Kubernetes; secrets are masked\n{text}"),
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
        Folder::History => match past.timeline(&id.key) {
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
fn document(title: &str, value: Value) -> String {
    format!("# {title}; secrets are masked\n{}", yaml::masked(value))
}
