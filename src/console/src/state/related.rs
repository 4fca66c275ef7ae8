//! Objects related to the selected one: an entry's node, a node's entries, the object of a record, and the log lines of
//! each. The footer uses the same functions as the keys, so that it offers only jumps that work.

use cketerm_model::{
    entry::{EntryId, QueueKind},
    names::Address,
    stored::keys::Folder,
};

use crate::state::{
    App, Target,
    columns::{Nodes, Reboots, Repairs, RowCells},
    past::PastId,
    queries,
};

/// Returns the target of `jump`: from an entry to its node; from a node to its reboot entry, and from that entry over
/// the node to its repair; from an audit record to its object.
pub fn counterpart(app: &App) -> Option<Target> {
    // these lists are closed, so their content is derived from the snapshot and their filters
    let node = |name: String| {
        let shown = queries::known(&app.seen, &name)
            && app.lists.nodes.active_filter.passes(&RowCells::<Nodes>::new(app, &name));
        shown.then_some(Target::Node(name))
    };
    let stored_at = |id: &EntryId| queries::stored_at(&app.seen, *id).is_some();
    match app.target()? {
        Target::Entry(id) => queries::machine(&app.seen, id).and_then(node),
        Target::Node(name) => {
            let reboot = app.knowledge.totals.reboot_of(&name).filter(|id| {
                stored_at(id) && app.lists.reboots.active_filter.passes(&RowCells::<Reboots>::new(app, id))
            });
            let repair = || {
                app.knowledge.totals.repair_of(&name).filter(|id| {
                    stored_at(id) && app.lists.repairs.active_filter.passes(&RowCells::<Repairs>::new(app, id))
                })
            };
            reboot.or_else(repair).map(Target::Entry)
        }
        Target::Machine(address) => node(app.seen.snapshot.machine(&address)),
        Target::Host(id) => node(queries::host_node(&app.seen, &id)?.name.to_string()),
        Target::Past(Folder::History, id) => {
            node(app.seen.snapshot.machine(&app.knowledge.past.history.get(&id)?.address))
        }
        Target::Past(Folder::Audit, id) => match audit_subject(app, &id)? {
            AuditSubject::Entry(entry) if queries::stored_at(&app.seen, entry).is_some() => Some(Target::Entry(entry)),
            AuditSubject::Entry(entry) => ended(app, entry).map(|id| Target::Past(Folder::History, id)),
            AuditSubject::Node(name) => node(name),
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
        Target::Past(Folder::History, id) => format!("entry={}", app.knowledge.past.history.get(&id)?.entry),
        Target::Past(Folder::Audit, id) => match audit_subject(app, &id)? {
            AuditSubject::Entry(entry) => of_entry(entry),
            AuditSubject::Node(name) => name,
        },
        Target::Node(name) => name,
        Target::Machine(address) => app.seen.snapshot.machine(&address),
        Target::Host((_, host)) => host,
        Target::Past(..) | Target::Fold(_) | Target::Line(_) => return None,
    })
}

/// Object of an audit record.
enum AuditSubject {
    Entry(EntryId),
    Node(String),
}

/// Returns the first entry or node that a record names: `reboots/3`, `repairs 5-7,9`, `node w3`, `10.0.0.14 10.0.0.15`.
fn audit_subject(app: &App, id: &PastId) -> Option<AuditSubject> {
    let on = app.knowledge.past.audit.get(id)?.on.clone();
    for queue in QueueKind::QUEUES {
        let Some(rest) = on.strip_prefix(queue.folder()) else { continue };
        let digits = rest.trim_start_matches([' ', '/']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if let Some(index) = digits.get(..end).and_then(|digits| digits.parse().ok()) {
            return Some(AuditSubject::Entry(EntryId { queue, index }));
        }
    }
    let word = on.strip_prefix("node ").unwrap_or(&on).split([' ', ',']).next()?;
    let by_address = app.seen.snapshot.machine(&Address::new(word));
    let known = |name: &&str| queries::known(&app.seen, name);
    [word, &by_address].into_iter().find(known).map(|name| AuditSubject::Node(name.to_owned()))
}

/// Returns the history record of an entry that ended, if it was read.
fn ended(app: &App, entry: EntryId) -> Option<PastId> {
    let mut read = app.knowledge.past.history.rows.iter();
    read.find(|(_, row)| row.as_ref().is_ok_and(|e| e.entry == entry)).map(|(id, _)| id.clone())
}
