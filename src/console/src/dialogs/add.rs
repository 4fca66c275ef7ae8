//! Dialog that queues reboots of the marked nodes, or of the one under the cursor.

use std::fmt::Write as _;

use cketerm_model::{entry::QueueKind, entry_ref::EntryRef, names::Address};
use cketerm_rules::{reboot_needed::list::cause_of, trouble};

use super::tier;
use crate::state::{
    App, View,
    dialog::{Dialog, DialogAction, Precondition, plan::Plan},
    event::{Action, count},
    queries,
};

/// Opens the dialog, or returns the reason why there is nothing to add.
pub fn open(app: &App) -> Result<Dialog, String> {
    if !matches!(app.acting_view(), View::Nodes | View::Hosts | View::History) && app.navigation.pane.is_none() {
        let [nodes, mark, reboot] = ["nodes", "mark", "reboot"].map(|name| app.key(name));
        return Err(format!("add reboots in the Nodes view: press {nodes}, mark with {mark}, then {reboot}"));
    }
    let chosen = app.chosen_nodes();
    if chosen.is_empty() {
        return Err(app.nothing_selected("node"));
    }
    of(app, chosen)
}

/// Data of the nodes that are to be rebooted.
struct Selection {
    addresses: Vec<Address>,
    /// Nodes that are not in the definition.
    undefined_nodes: Vec<String>,
    lines: Vec<String>,
    preconditions: Vec<Precondition>,
    api_servers: usize,
}

/// Updates the lines. The dialog expires if the action would now be about other machines than those that were shown.
pub fn follow(app: &App, dialog: &mut Dialog) {
    let named = |preconditions: &Precondition| {
        if let Precondition::Node(name, _) = preconditions { Some(name.clone()) } else { None }
    };
    let mut chosen: Vec<String> = dialog.preconditions.iter().filter_map(named).collect();
    chosen.extend(dialog.left_out.iter().cloned());
    let Selection { addresses, undefined_nodes, lines, api_servers, .. } = gather(app, &chosen);
    let DialogAction::Act(Action::AddReboots { addresses: shown, .. }) = &dialog.action else { return };
    let same = addresses == *shown && undefined_nodes == dialog.left_out;
    if same && dialog.expect == tier::confirmation_text(app, "reboot", addresses.len(), api_servers) {
        dialog.lines = lines;
    } else {
        dialog.expire("the definition's nodes or API servers have changed".to_owned());
    }
}

fn gather(app: &App, chosen: &[String]) -> Selection {
    let (mut addresses, mut lines, mut preconditions, mut api) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut undefined_nodes, mut queued, mut worker_lines) = (Vec::new(), 0, Vec::new());
    for name in chosen {
        let Some(member) = queries::member(&app.seen, name) else {
            undefined_nodes.push(name.clone());
            continue;
        };
        let in_queue = app
            .knowledge
            .totals
            .reboot_of(name)
            .filter(|id| app.seen.snapshot.store.entry(*id).is_some_and(EntryRef::unfinished));
        queued += usize::from(in_queue.is_some());
        let uid = queries::node(&app.seen, name).map_or("", |n| n.uid.as_str());
        preconditions.push(Precondition::Node(name.clone(), uid.to_owned()));
        addresses.push(member.address.clone());
        let mut note = in_queue.map(|id| format!("  (in {id} already: rebooted TWICE)")).unwrap_or_default();
        if let Some(id) = app.knowledge.totals.repair_of(name) {
            let _ = write!(note, "  (in {id} too)");
        }
        let shown = if **name == *member.address { name.clone() } else { format!("{name}  {}", member.address) };
        if member.control_plane {
            api.push(format!("{shown}  API server{note}"));
        } else {
            worker_lines.push(format!("{shown}{note}"));
        }
    }
    let api_servers = api.len();
    if api_servers > 0 {
        lines.push(format!("! {} among them: one at a time, alone", count(api_servers, "API server")));
    }
    if !undefined_nodes.is_empty() {
        lines.push(format!("! left out, not in the definition: {}", undefined_nodes.join(", ")));
    }
    if queued > 0 {
        lines.push(format!("! {queued} already in the queue"));
    }
    if !app.seen.snapshot.store.reboots.switch.enabled() {
        lines.push(format!("! the queue is disabled: nothing starts before it is enabled ({})", app.key("switch")));
    }
    lines.extend(api);
    lines.extend(worker_lines);
    Selection { addresses, undefined_nodes, lines, preconditions, api_servers }
}

/// Opens the dialog for these nodes.
pub fn of(app: &App, chosen: Vec<String>) -> Result<Dialog, String> {
    let Selection { addresses, undefined_nodes, lines, preconditions, api_servers } = gather(app, &chosen);
    if addresses.is_empty() {
        return Err(format!(
            "{} is not in the cluster definition: only its nodes can be rebooted",
            undefined_nodes.join(", ")
        ));
    }
    let n = addresses.len();
    let verb = format!("Reboot {}", count(n, "machine"));
    let known = crate::dialogs::preview::reboots(app, &addresses);
    let mut entries = chosen.iter().flat_map(|name| app.knowledge.totals.entries_of(name));
    let is_held = entries.any(|id| trouble::of(&app.seen, id).is_some());
    let cause = common_cause(app, &chosen);
    let nodes = chosen.into_iter().filter(|name| queries::node(&app.seen, name).is_some()).collect();
    let plan = Plan::new(QueueKind::Reboot, nodes, known).with_held(is_held);
    let mut dialog =
        Dialog::new(format!("{verb}?"), verb, DialogAction::Act(Action::AddReboots { addresses, reason: None }));
    dialog.lines = lines;
    dialog.reason = cause.unwrap_or_default().into();
    dialog.plan = Some(plan);
    dialog.preconditions = preconditions;
    dialog.left_out = undefined_nodes;
    dialog.expect = tier::confirmation_text(app, "reboot", n, api_servers);
    Ok(dialog)
}

/// Returns the cause for which all of these nodes need a reboot, if it is the same.
fn common_cause(app: &App, chosen: &[String]) -> Option<String> {
    let snap = &app.seen.snapshot;
    let cause = |name: &String| {
        let row = queries::node(&app.seen, name)?;
        cause_of(&snap.store, &snap.reboot_signals, row, app.known())
    };
    let first = cause(chosen.first()?)?;
    chosen.iter().all(|name| cause(name).as_ref() == Some(&first)).then_some(first)
}
