//! Dialog that queues repairs of the marked nodes or of the one under the cursor, or another repair of an entry's
//! machine.

use std::fmt::Write as _;

use cketerm_model::{
    cluster::Operation,
    entry::{EntryId, QueueKind, Stored},
    names::Address,
    repair::RepairEntry,
};
use cketerm_rules::trouble;

use super::tier;
use crate::state::{
    App, Target, View,
    dialog::{Dialog, DialogAction, Precondition, pick::Pick, plan::Plan},
    event::{Action, count},
    queries, short_text,
};

/// Opens the dialog, or returns the reason why nothing can be repaired.
pub fn open(app: &App) -> Result<Dialog, String> {
    let machines = machines(app);
    if machines.is_empty() && app.seen.snapshot.store.definition().is_some() {
        return Err(app.nothing_selected(if app.acting_view() == View::Nodes { "node" } else { "entry" }));
    }
    of(app, machines)
}

/// Opens the dialog for these machines, each with its address if that is known.
pub fn of(app: &App, machines: Vec<(String, Option<Address>)>) -> Result<Dialog, String> {
    let definition = app.seen.snapshot.store.definition();
    let repair = &definition.ok_or("there is no cluster definition yet: `cketerm cluster set FILE`")?.cluster.repair;
    let last = last_repair(app, &machines);
    let mut pick = Pick::of(repair, last.as_ref().map(|(machine_type, _)| machine_type.as_str()));
    if let Some((_, Some(operation))) = &last {
        pick.choose_operation(operation);
    }
    if pick.is_empty() {
        return Err("the definition has no repair operation: add a `repair` section with `cketerm cluster set`".into());
    }
    let (mut addresses, mut lines, mut preconditions, mut api, mut nowhere) =
        (Vec::new(), Vec::new(), Vec::new(), 0, Vec::new());
    let (mut drained, mut busy, mut is_held) = (Vec::new(), Vec::new(), false);
    for (name, address) in machines {
        let Some(address) = address else {
            nowhere.push(name);
            continue;
        };
        let mut notes = String::new();
        if queries::is_api_server(&app.seen, &name) {
            api += 1;
            notes.push_str("  API server");
        }
        if queries::node(&app.seen, &name).is_none() {
            notes.push_str("  no Node: nothing is drained");
        }
        for id in app.knowledge.totals.entries_of(&name) {
            let state = queries::repair(&app.seen, id).map_or("queued", |e| short_text::repair_status(e, app.now.wall));
            let state = queries::entry(&app.seen, id).map_or(state, |e| short_text::status(e, app.now.wall));
            if queries::in_work(&app.seen, id) {
                let held = held_by(app, id);
                is_held |= held.is_some();
                busy.push(format!("! {name} is in work already: {id} {state}{}", held.unwrap_or_default()));
            } else {
                let _ = write!(notes, "  ({id}: {state})");
            }
        }
        drained.extend(queries::node(&app.seen, &name).map(|node| node.name.to_string()));
        let uid = queries::node(&app.seen, &name).map_or("", |n| n.uid.as_str());
        preconditions.push(Precondition::Node(name.clone(), uid.to_owned()));
        lines.push(if name == *address { format!("{name}{notes}") } else { format!("{name}  {address}{notes}") });
        addresses.push(address);
    }
    if addresses.is_empty() {
        return Err(format!("{} has no address: nothing can be repaired", nowhere.join(", ")));
    }
    if !nowhere.is_empty() {
        lines.insert(0, format!("! left out, no address is known: {}", nowhere.join(", ")));
    }
    if api > 0 {
        lines.insert(0, format!("! {} among them: one at a time", count(api, "API server")));
    }
    if !app.seen.snapshot.store.repairs.switch.enabled() {
        let key = app.key("switch");
        lines.insert(0, format!("! the repair queue is disabled: nothing starts before it is enabled ({key})"));
    }
    lines.splice(0..0, busy);
    let n = addresses.len();
    let verb = format!("Repair {}", count(n, "machine"));
    let known = crate::dialogs::preview::repairs(app, &addresses);
    let action = Action::AddRepairs { addresses, machine_type: String::new(), operation: String::new(), reason: None };
    let mut dialog = Dialog::new(format!("{verb}?"), verb, DialogAction::Act(action));
    dialog.lines = lines;
    dialog.plan = Some(Plan::new(QueueKind::Repair, drained, known).with_held(is_held));
    dialog.preconditions = preconditions;
    dialog.expect = tier::confirmation_text(app, "repair", n, api);
    dialog.pick = Some(pick);
    follow_choice(app, &mut dialog);
    Ok(dialog)
}

/// Returns the blocker of an entry that is held up.
fn held_by(app: &App, id: EntryId) -> Option<String> {
    trouble::of(&app.seen, id)?;
    let why = app.seen.reasons.get(&id)?;
    Some(format!(", held up: {}", short_text::stuck_on(why, app.now.wall)))
}

/// Asks for the typed confirmation if the chosen operation reinstalls machines.
pub fn follow_choice(app: &App, dialog: &mut Dialog) {
    let DialogAction::Act(Action::AddRepairs { addresses, .. }) = &dialog.action else { return };
    let api = addresses
        .iter()
        .filter(|address| queries::is_api_server(&app.seen, &app.seen.snapshot.machine(address)))
        .count();
    let definition = app.seen.snapshot.store.definition();
    let operation = dialog.pick.as_ref().and_then(Pick::chosen).and_then(|(machine_type, operation)| {
        definition.and_then(|definition| definition.cluster.repair.operation(machine_type, operation).ok())
    });
    let name = if operation.is_some_and(Operation::reinstalls) { "reinstall" } else { "repair" };
    dialog.expect = tier::confirmation_text(app, name, addresses.len(), api);
}

/// Returns the selected machines by name, each with its address if it is known.
fn machines(app: &App) -> Vec<(String, Option<Address>)> {
    let of_entry = |id: &EntryId| {
        let address = queries::address_of(&app.seen, *id)?.clone();
        Some((app.seen.snapshot.machine(&address), Some(address)))
    };
    let of_hosts = || {
        let names = app.chosen_nodes().into_iter();
        names.map(|name| (name.clone(), queries::address(&app.seen, &name))).collect::<Vec<_>>()
    };
    let of_addresses = || {
        let addresses = app.chosen_addresses().into_iter();
        addresses.map(|address| (app.seen.snapshot.machine(&address), Some(address))).collect::<Vec<_>>()
    };
    let mut machines: Vec<(String, Option<Address>)> = match (&app.navigation.pane, app.acting_view()) {
        (Some(pane), _) => match &pane.of {
            Target::Entry(id) => of_entry(id).into_iter().collect(),
            Target::Node(name) => vec![(name.clone(), queries::address(&app.seen, name))],
            Target::Machine(address) => vec![(app.seen.snapshot.machine(address), Some(address.clone()))],
            Target::Host(_) => of_hosts(),
            Target::Past(..) => of_addresses(),
            Target::Fold(_) | Target::Line(_) => Vec::new(),
        },
        (None, View::Hosts) => of_hosts(),
        (None, View::Nodes) => {
            app.chosen_nodes().into_iter().map(|name| (name.clone(), queries::address(&app.seen, &name))).collect()
        }
        (None, View::Machines | View::Diff | View::History | View::Audit | View::Logs) => of_addresses(),
        (None, View::Overview | View::Reboots | View::Repairs) => {
            app.chosen_entries().iter().filter_map(of_entry).collect()
        }
    };
    machines.sort();
    machines.dedup();
    machines
}

/// Returns machine type and operation of the last repairs of these machines, as far as they were the same for all.
fn last_repair(app: &App, machines: &[(String, Option<Address>)]) -> Option<(String, Option<String>)> {
    let chosen = |e: &RepairEntry| (e.machine_type.clone(), e.operation.clone());
    if let Some(Target::Entry(id)) = app.target()
        && id.queue == QueueKind::Repair
        && machines.len() == 1
    {
        return queries::repair(&app.seen, id).map(chosen).map(|(of, operation)| (of, Some(operation)));
    }
    let of = |address: &Address| {
        let entries = app.seen.snapshot.store.repairs.entries.values().rev().filter_map(Stored::get);
        entries.into_iter().find(|e| e.address == *address).map(chosen)
    };
    let known: Vec<_> = machines.iter().map(|(_, address)| address.as_ref().and_then(of)).collect::<Option<_>>()?;
    let (machine_type, operation) = known.first()?;
    let same_type = known.iter().all(|(other, _)| other == machine_type);
    let same_operation = known.iter().all(|(_, other)| other == operation);
    same_type.then(|| (machine_type.clone(), same_operation.then(|| operation.clone())))
}
