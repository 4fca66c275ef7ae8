//! Jumps between related objects: from an entry to its node and back, from a record to its object, to the log lines of
//! either. The footer uses the same functions, so that it offers only jumps that work.

use super::look::{arrived, depart, enter, return_, visit};
use crate::{
    console::{
        app::{App, Target, View},
        columns::RowCells,
        past::PastId,
        queries,
    },
    model::entry::{EntryId, QueueKind},
    store::keys::Folder,
};

/// Returns the target of `jump`: from an entry to its node; from a node to its reboot entry, and from that entry over
/// the node to its repair; from an audit record to its object.
pub fn counterpart(app: &App) -> Option<Target> {
    // these lists are closed, so their content is derived from the snapshot and their filters
    let node = |name: String| {
        let shown = queries::known(&app.seen, &name) && app.nodes.good.passes(&RowCells::new(app, &name));
        shown.then_some(Target::Node(name))
    };
    let lies = |id: &EntryId| queries::lies(&app.seen, *id).is_some();
    match app.target()? {
        Target::Entry(id) => queries::machine(&app.seen, id).and_then(node),
        Target::Node(name) => {
            let reboot =
                app.totals.reboot_of(&name).filter(|id| lies(id) && app.reboots.good.passes(&RowCells::new(app, id)));
            let repair = || {
                app.totals.repair_of(&name).filter(|id| lies(id) && app.repairs.good.passes(&RowCells::new(app, id)))
            };
            reboot.or_else(repair).map(Target::Entry)
        }
        Target::Machine(address) => node(app.seen.snapshot.machine(&address)),
        Target::Host(id) => node(queries::host_node(&app.seen, &id)?.name.clone()),
        Target::Past(Folder::History, id) => node(app.seen.snapshot.machine(&app.past.history.get(&id)?.address)),
        Target::Past(Folder::Audit, id) => match about(app, &id)? {
            About::Entry(entry) if queries::lies(&app.seen, entry).is_some() => Some(Target::Entry(entry)),
            About::Entry(entry) => ended(app, entry).map(|id| Target::Past(Folder::History, id)),
            About::Node(name) => node(name),
        },
        Target::Past(..) | Target::Fold(_) | Target::Line(_) => None,
    }
}

/// Returns the filter for the log lines of the selected object.
pub fn log_filter(app: &App) -> Option<String> {
    let of_entry = |id: EntryId| match queries::machine(&app.seen, id) {
        Some(node) => format!("entry={id} or text:{node}"),
        None => format!("entry={id}"),
    };
    Some(match app.target()? {
        Target::Entry(id) => of_entry(id),
        Target::Past(Folder::History, id) => format!("entry={}", app.past.history.get(&id)?.entry),
        Target::Past(Folder::Audit, id) => match about(app, &id)? {
            About::Entry(entry) => of_entry(entry),
            About::Node(name) => name,
        },
        Target::Node(name) => name,
        Target::Machine(address) => app.seen.snapshot.machine(&address),
        Target::Host((_, host)) => host,
        Target::Past(..) | Target::Fold(_) | Target::Line(_) => return None,
    })
}

/// Object of an audit record.
enum About {
    Entry(EntryId),
    Node(String),
}

/// Returns the first entry or node that a record names: `reboots/3`, `repairs 5-7,9`, `node w3`, `10.0.0.14 10.0.0.15`.
fn about(app: &App, id: &PastId) -> Option<About> {
    let on = app.past.audit.get(id)?.on.clone();
    for queue in [QueueKind::Reboot, QueueKind::Repair] {
        let Some(rest) = on.strip_prefix(queue.folder()) else { continue };
        let digits = rest.trim_start_matches([' ', '/']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if let Some(index) = digits.get(..end).and_then(|digits| digits.parse().ok()) {
            return Some(About::Entry(EntryId { queue, index }));
        }
    }
    let word = on.strip_prefix("node ").unwrap_or(&on).split([' ', ',']).next()?;
    let by_address = app.seen.snapshot.machine(word);
    let known = |name: &&str| queries::known(&app.seen, name);
    [word, &by_address].into_iter().find(known).map(|name| About::Node(name.to_owned()))
}

/// Returns the history record of an entry that ended, if it was read.
fn ended(app: &App, entry: EntryId) -> Option<PastId> {
    let mut read = app.past.history.rows.iter();
    read.find(|(_, row)| row.as_ref().is_ok_and(|e| e.entry == entry)).map(|(id, _)| id.clone())
}

/// Goes to the counterpart; an open pane stays open and shows it.
pub(super) fn jump(app: &mut App) {
    let (to, piece) = (counterpart(app), app.pane.is_some());
    match to {
        // Esc leads back to the record
        Some(of) if app.view == View::Audit => visit(app, of),
        // jumping back and forth adds nothing to the history of places
        Some(of) if app.before.last().is_some_and(|place| place.at.as_ref() == Some(&of)) => {
            return_(app);
        }
        Some(of) => {
            visit(app, of);
            if !piece {
                app.pane = None;
            }
        }
        None => app.refuse("nowhere to go: the row has no counterpart, or a filter hides it (Esc)"),
    }
}

/// Opens the log lines of the selected object; Esc leads back.
pub(super) fn logs_of(app: &mut App) {
    let Some(filter) = log_filter(app) else {
        app.refuse(app.nothing_chosen("entry or node"));
        return;
    };
    if app.view == View::Logs {
        return super::typing::set_filter(app, &filter);
    }
    depart(app);
    enter(app, View::Logs);
    let under = app.list().filter().to_owned();
    super::typing::set_filter(app, &filter);
    arrived(app);
    if let Some(place) = app.before.last_mut() {
        place.under = Some(under);
    }
}
