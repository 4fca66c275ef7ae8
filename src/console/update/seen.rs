//! Taking in what the engine saw: rows anew, cursor and marks by identity, dialogs checked.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    console::{
        app::{App, HostId, View},
        brief, facts,
        past::PastId,
        registry::{Row, Serial},
    },
    engine::snapshot::Seen,
    model::{cluster::Node, entry::EntryId},
    store::keys::Folder,
};

/// Takes in a newer snapshot.
pub(super) fn take_in(app: &mut App, seen: Arc<Seen>) {
    app.seen = seen;
    if app.seen.now.boot > app.now.boot {
        app.now = app.seen.now;
    }
    app.facts.refresh(&app.seen);
    app.registry.refresh(&app.seen);
    rows(app);
    if app.view == View::Overview {
        super::past::sums(app);
    }
    if let Some(mut dialog) = app.dialog.take() {
        dialog.check(&app.seen);
        app.dialog = Some(dialog);
    }
}

/// Makes the rows of both views anew; the filter of each is applied.
pub(super) fn rows(app: &mut App) {
    let seen = Arc::clone(&app.seen);
    let entries = &seen.snapshot.store.reboots.entries;
    let all: Vec<EntryId> = entries.keys().map(|index| EntryId::reboot(*index)).collect();
    let total = all.len();
    let shown = filtered(app, &app.reboots.filter, all);
    app.reboots.refresh(shown, total, |id| entries.contains_key(&id.index));

    let repairs = &seen.snapshot.store.repairs.entries;
    let all: Vec<EntryId> = repairs.keys().map(|index| EntryId::repair(*index)).collect();
    let total = all.len();
    let shown = filtered(app, &app.repairs.filter, all);
    app.repairs.refresh(shown, total, |id| repairs.contains_key(&id.index));

    let all: Vec<Serial> = app.registry.machines.keys().cloned().collect();
    let total = all.len();
    let shown = filtered(app, &app.machines.filter, all);
    let mut machines = std::mem::take(&mut app.machines);
    machines.refresh(shown, total, |serial| app.registry.machines.contains_key(serial));
    app.machines = machines;

    let (all, total) = (app.registry.rows.clone(), app.registry.rows.len());
    let shown = filtered(app, &app.diff.filter, all);
    let mut diff = std::mem::take(&mut app.diff);
    diff.refresh(shown, total, |row| app.registry.rows.binary_search(row).is_ok());
    app.diff = diff;

    let hosts = &seen.snapshot.kube.hosts;
    let same = hosts.len() == app.hosts.rows.len() && hosts.keys().eq(app.hosts.rows.iter());
    let shown = if same && app.hosts.filter.is_empty() {
        std::mem::take(&mut app.hosts.rows)
    } else {
        filtered(app, &app.hosts.filter, hosts.keys().cloned().collect())
    };
    app.hosts.refresh(shown, hosts.len(), |id| hosts.contains_key(id));

    let members = seen.snapshot.store.definition().into_iter().flat_map(|d| &d.cluster.nodes);
    let names: BTreeSet<&str> =
        members.map(Node::node_name).chain(seen.snapshot.kube.nodes.keys().map(String::as_str)).collect();
    let total = names.len();
    let shown = if app.nodes.filter.is_empty() {
        let same = names.len() == app.nodes.rows.len() && names.iter().zip(&app.nodes.rows).all(|(a, b)| *a == b);
        if same { std::mem::take(&mut app.nodes.rows) } else { names.iter().map(|n| (*n).to_owned()).collect() }
    } else {
        filtered(app, &app.nodes.filter, names.iter().map(|n| (*n).to_owned()).collect())
    };
    app.nodes.refresh(shown, total, |name| names.contains(name.as_str()));
    match app.view {
        View::History if app.of_cke => past(app, Folder::Records),
        View::History => past(app, Folder::History),
        View::Audit => past(app, Folder::Audit),
        _ => {}
    }
}

/// The rows of what was read of the past.
fn past(app: &mut App, folder: Folder) {
    let (ids, list): (Vec<PastId>, _) = match folder {
        Folder::History => (app.past.history.rows.keys().cloned().collect(), &mut app.history),
        Folder::Records => (app.past.records.rows.keys().cloned().collect(), &mut app.records),
        Folder::Audit => (app.past.audit.rows.keys().cloned().collect(), &mut app.audit),
    };
    let (mut list, total) = (std::mem::take(list), ids.len());
    let exists = |id: &PastId| match folder {
        Folder::History => app.past.history.rows.contains_key(id),
        Folder::Records => app.past.records.rows.contains_key(id),
        Folder::Audit => app.past.audit.rows.contains_key(id),
    };
    list.refresh(filtered(app, &list.filter, ids), total, exists);
    *match folder {
        Folder::History => &mut app.history,
        Folder::Records => &mut app.records,
        Folder::Audit => &mut app.audit,
    } = list;
}

/// Rows that a filter lets through.
fn filtered<Id: Haystack>(app: &App, filter: &str, all: Vec<Id>) -> Vec<Id> {
    let (negated, needle) = match filter.strip_prefix('!') {
        Some(rest) => (true, rest.to_lowercase()),
        None => (false, filter.to_lowercase()),
    };
    if needle.is_empty() {
        return all;
    }
    all.into_iter().filter(|id| id.text(app).to_lowercase().contains(&needle) != negated).collect()
}

/// The text of a row in which a filter looks: everything that the row says, hidden columns included.
trait Haystack {
    fn text(&self, app: &App) -> String;
}

impl Haystack for EntryId {
    fn text(&self, app: &App) -> String {
        let seen = &app.seen;
        let why = seen.reasons.get(self).map(|r| brief::reason(r, app.now.wall)).unwrap_or_default();
        let name = facts::machine(seen, *self).unwrap_or_default();
        if let Some(e) = facts::repair(seen, *self) {
            let (state, serial) = (brief::repair_status(e, app.now.wall), e.serial.as_deref().unwrap_or_default());
            return format!(
                "{} {name} {} {} {} {state} {serial} {why}",
                self.index, e.address, e.machine_type, e.operation
            );
        }
        match facts::entry(seen, *self) {
            Some(e) => format!("{} {name} {} {} {why}", self.index, e.node, brief::status(e, app.now.wall)),
            None => format!("{} broken {why}", self.index),
        }
    }
}

impl Haystack for PastId {
    fn text(&self, app: &App) -> String {
        let past = &app.past;
        let found = match app.view {
            View::Audit => past.audit.get(self).map(|a| {
                let why = a.reason.as_deref().unwrap_or_default();
                format!("{} {} {} {} {why}", a.who, a.what, a.on, a.result)
            }),
            _ if app.of_cke => past.records.get(self).map(|r| {
                let targets = crate::console::views::history::targets(r);
                format!("{} {} {} {targets} {} {}", r.id, r.status, r.operation, r.info, r.error)
            }),
            _ => past.history.get(self).map(|e| {
                let node = crate::console::views::history::node(app, e);
                let asked =
                    e.request.as_ref().map(|r| format!("{} {}", r.who, r.reason.as_deref().unwrap_or_default()));
                format!("{} {node} {} {} {}", e.entry, e.address, e.outcome, asked.unwrap_or_default())
            }),
        };
        found.unwrap_or_else(|| format!("broken {}", self.key))
    }
}

impl Haystack for Serial {
    fn text(&self, app: &App) -> String {
        let Some(m) = app.registry.machine(&app.seen, self) else { return self.0.clone() };
        let plan = app.registry.change(&app.seen, &m.address).map(|c| c.kind.word()).unwrap_or_default();
        let place = crate::console::registry::place(&app.seen, &m.address);
        format!("{} {} {} {} rack{} {place} {plan} {}", m.serial, m.address, m.state, m.role, m.rack, m.bmc_type)
    }
}

impl Haystack for HostId {
    fn text(&self, app: &App) -> String {
        let Some(host) = facts::host(&app.seen, self) else { return self.1.clone() };
        let node = facts::host_node(&app.seen, self).map(|n| n.name.as_str()).unwrap_or_default();
        let (asked, remark) = (brief::host_asked(host), brief::host(app, self).0);
        format!("{} {} {} {asked} {} {node} {remark}", self.0, self.1, brief::host_power(host), host.provisioning)
    }
}

impl Haystack for Row {
    fn text(&self, app: &App) -> String {
        match self {
            Self::Field(text) | Self::Fold(text) => text.clone(),
            Self::Node(kind, address) => {
                let choice = app.registry.choice(&app.seen, address);
                let (serial, why) = choice.map(|c| (c.serial.clone(), c.why.to_string())).unwrap_or_default();
                format!("{} {address} {} {why}", kind.word(), serial.unwrap_or_default())
            }
        }
    }
}

impl Haystack for String {
    fn text(&self, app: &App) -> String {
        let seen = &app.seen;
        let (state, _) = brief::node_state(app, self);
        let kubelet = facts::node(seen, self).map(|n| n.kubelet.as_str()).unwrap_or_default();
        let address = facts::address(seen, self).unwrap_or_default();
        format!("{self} {address} {state} {} {} {kubelet}", facts::role(seen, self), facts::rack(seen, self))
    }
}
