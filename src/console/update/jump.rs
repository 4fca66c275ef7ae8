//! From an object to what belongs to it: from an entry to its node and back, from a record to what it is about, to the log
//! lines of either. What can be reached is asked by the footer too: it offers nothing else.

use super::look::{enter, visit};
use crate::{
    console::{
        app::{App, Pane, Target, View},
        facts,
        past::PastId,
    },
    model::entry::{EntryId, QueueKind},
    store::keys::Folder,
};

/// Where `jump` leads from here: from an entry to its node, from a node to its entry – its reboot first, from there over
/// the node to its repair –, from an audit record to what it is about.
pub fn counterpart(app: &App) -> Option<Target> {
    let node = |name: String| app.nodes.place_of(&name).map(|_| Target::Node(name));
    match app.target()? {
        Target::Entry(id) => facts::machine(&app.seen, id).and_then(node),
        Target::Node(name) => {
            let reboot = app.facts.reboot_of(&name).filter(|id| app.reboots.place_of(id).is_some());
            let repair = || app.facts.repair_of(&name).filter(|id| app.repairs.place_of(id).is_some());
            reboot.or_else(repair).map(Target::Entry)
        }
        Target::Machine(address) => node(app.seen.snapshot.machine(&address)),
        Target::Host(id) => node(facts::host_node(&app.seen, &id)?.name.clone()),
        Target::Past(Folder::History, id) => node(app.seen.snapshot.machine(&app.past.history.get(&id)?.address)),
        Target::Past(Folder::Audit, id) => match about(app, &id)? {
            About::Entry(entry) if facts::lies(&app.seen, entry).is_some() => Some(Target::Entry(entry)),
            About::Entry(entry) => ended(app, entry).map(|id| Target::Past(Folder::History, id)),
            About::Node(name) => node(name),
        },
        Target::Past(..) | Target::Fold(_) | Target::Line(_) => None,
    }
}

/// The filter of the log lines of what is chosen.
pub fn log_filter(app: &App) -> Option<String> {
    let of_entry = |id: EntryId| match facts::machine(&app.seen, id) {
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

/// What an audit record is about.
enum About {
    Entry(EntryId),
    Node(String),
}

/// The first entry or node that a record names: `reboots/3`, `repairs 5-7,9`, `node w3`, `10.0.0.14 10.0.0.15`.
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
    let known = |name: &&str| facts::node(&app.seen, name).is_some() || facts::member(&app.seen, name).is_some();
    [word, &by_address].into_iter().find(known).map(|name| About::Node(name.to_owned()))
}

/// The end of an entry, among those that were read.
fn ended(app: &App, entry: EntryId) -> Option<PastId> {
    let mut read = app.past.history.rows.iter();
    read.find(|(_, row)| row.as_ref().is_ok_and(|e| e.entry == entry)).map(|(id, _)| id.clone())
}

/// Goes to the counterpart; an open pane stays open on it.
pub(super) fn jump(app: &mut App) {
    let (to, piece) = (counterpart(app), app.pane.is_some());
    match to {
        // whoever comes from a record goes back to it
        Some(of) if app.view == View::Audit => visit(app, of),
        Some(of) => {
            app.view = match &of {
                Target::Node(name) => {
                    app.nodes.go_to(name);
                    View::Nodes
                }
                Target::Entry(id) if id.queue == QueueKind::Reboot => {
                    app.reboots.go_to(id);
                    View::Reboots
                }
                Target::Entry(id) => {
                    app.repairs.go_to(id);
                    View::Repairs
                }
                _ => return,
            };
            crate::console::racks::refresh(app);
            app.pane = piece.then_some(Pane { of, scroll: 0 });
        }
        None => app.refuse("there is nothing to go to: it has no counterpart, or a filter hides it (Esc)"),
    }
}

/// Opens the log lines of what is chosen; Esc leads back.
pub(super) fn logs_of(app: &mut App) {
    let Some(filter) = log_filter(app) else {
        app.refuse(app.nothing_chosen("entry or node"));
        return;
    };
    let from = app.view;
    enter(app, View::Logs);
    app.before.push(from);
    super::typing::set_filter(app, &filter);
}
