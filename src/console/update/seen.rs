//! Taking in what the engine saw: rows anew, cursor and marks by identity, dialogs checked.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    console::{
        app::{App, View},
        columns::{Of, Told},
        filter::{Cells, Value},
        list::List,
        logs::LineId,
        past::PastId,
        registry::Serial,
        undo,
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
    undo::look(app);
    if app.view == View::Overview {
        super::past::sums(app);
    }
    if let Some(mut dialog) = app.dialog.take() {
        crate::console::dialog::refresh(app, &mut dialog);
        app.dialog = Some(dialog);
    }
}

/// Makes the rows of both views anew; the filter of each is applied.
pub(super) fn rows(app: &mut App) {
    let seen = Arc::clone(&app.seen);
    let entries = &seen.snapshot.store.reboots.entries;
    let all: Vec<EntryId> = entries.keys().map(|index| EntryId::reboot(*index)).collect();
    let total = all.len();
    let shown = arranged(app, &app.reboots, all);
    app.reboots.refresh(shown, total, |id| entries.contains_key(&id.index));

    let repairs = &seen.snapshot.store.repairs.entries;
    let all: Vec<EntryId> = repairs.keys().map(|index| EntryId::repair(*index)).collect();
    let total = all.len();
    let shown = arranged(app, &app.repairs, all);
    app.repairs.refresh(shown, total, |id| repairs.contains_key(&id.index));

    let all: Vec<Serial> = app.registry.machines.keys().cloned().collect();
    let total = all.len();
    let shown = arranged(app, &app.machines, all);
    let mut machines = std::mem::take(&mut app.machines);
    machines.refresh(shown, total, |serial| app.registry.machines.contains_key(serial));
    app.machines = machines;

    let (all, total) = (app.registry.rows.clone(), app.registry.rows.len());
    let shown = arranged(app, &app.diff, all);
    let mut diff = std::mem::take(&mut app.diff);
    diff.refresh(shown, total, |row| app.registry.rows.binary_search(row).is_ok());
    app.diff = diff;

    let hosts = &seen.snapshot.kube.hosts;
    let plain = app.hosts.good.is_empty() && app.hosts.sort.is_none();
    let same = hosts.len() == app.hosts.rows.len() && hosts.keys().eq(app.hosts.rows.iter());
    let shown = if same && plain {
        std::mem::take(&mut app.hosts.rows)
    } else {
        arranged(app, &app.hosts, hosts.keys().cloned().collect())
    };
    app.hosts.refresh(shown, hosts.len(), |id| hosts.contains_key(id));

    let members = seen.snapshot.store.definition().into_iter().flat_map(|d| &d.cluster.nodes);
    let names: BTreeSet<&str> =
        members.map(Node::node_name).chain(seen.snapshot.kube.nodes.keys().map(String::as_str)).collect();
    let total = names.len();
    let shown = if app.nodes.good.is_empty() && app.nodes.sort.is_none() {
        let same = names.len() == app.nodes.rows.len() && names.iter().zip(&app.nodes.rows).all(|(a, b)| *a == b);
        if same { std::mem::take(&mut app.nodes.rows) } else { names.iter().map(|n| (*n).to_owned()).collect() }
    } else {
        arranged(app, &app.nodes, names.iter().map(|n| (*n).to_owned()).collect())
    };
    app.nodes.refresh(shown, total, |name| names.contains(name.as_str()));
    crate::console::racks::refresh(app);
    match app.view {
        View::History if app.of_cke => past(app, Folder::Records),
        View::History => past(app, Folder::History),
        View::Audit => past(app, Folder::Audit),
        View::Logs => log(app),
        _ => {}
    }
}

/// The rows of the log. Who looks at the newest line goes on looking at the newest.
fn log(app: &mut App) {
    let ids: Vec<LineId> = app.logs.lines.keys().copied().collect();
    let (mut list, total) = (std::mem::take(&mut app.log), ids.len());
    let newest = list.place == 0;
    list.refresh(arranged(app, &list, ids), total, |id| app.logs.lines.contains_key(id));
    if newest {
        list.select(0);
    }
    app.log = list;
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
    list.refresh(arranged(app, &list, ids), total, exists);
    if !list.moved {
        // whoever has not chosen a row looks at the newest
        list.select(0);
    }
    *match folder {
        Folder::History => &mut app.history,
        Folder::Records => &mut app.records,
        Folder::Audit => &mut app.audit,
    } = list;
}

/// The rows that the filter of a list lets through, in its order.
fn arranged<Id: Told + Ord + Clone>(app: &App, list: &List<Id>, mut all: Vec<Id>) -> Vec<Id> {
    if !list.good.is_empty() {
        all.retain(|id| list.good.passes(&Of(app, id)));
    }
    if let Some((column, largest_first)) = list.sort {
        all.sort_by_cached_key(|id| Of(app, id).value(column).key());
        if largest_first {
            // what says nothing stays last
            let said = all.partition_point(|id| Of(app, id).value(column) != Value::None);
            if let Some(said) = all.get_mut(..said) {
                said.reverse();
            }
        }
    }
    all
}
