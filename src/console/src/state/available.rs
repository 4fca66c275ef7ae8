//! Commands that do something here and now. The footer and the lines of *Needs you* offer only these; the dialogs
//! refuse the others with a reason.

use cketerm_model::{
    acceptance::OperatorCommand,
    batch::BatchState,
    cketerm_records::Verb,
    entry::{EntryId, QueueKind},
    entry_ref::EntryRef,
    policy::MemberSource,
    reboot::RebootStatus,
    repair::StepStatus,
};
use cketerm_rules::{console_leads::NotCampaigning, decide::ApplyState};

use super::{
    App, HostId, Target, View,
    batches::BatchSummary,
    blockers,
    host_choice::CKETERM_KEY,
    leaders, next_object,
    object::Object,
    queries::{self, Leader},
    racks, related, rights, sources,
};
use crate::keys::{self, Command};

/// Reports whether a command would do something on this object, whatever is selected.
pub fn on(app: &App, command: Command, object: &Object) -> bool {
    permitted(app, command, object.view())
        && match object {
            Object::Source(_) => command == Command::Logs,
            Object::Leadership => command == Command::Lead && lead(app),
            Object::Queue(_) => matches!(command, Command::Switch),
            Object::Definition => registry(app, command),
            Object::Batch(_, id) => app.knowledge.batches.get(*id).is_some_and(|batch| batches(app, &[batch], command)),
            Object::Entry(id) => entry(app, command, *id),
            Object::Node(name) => node(app, command, name),
            Object::Host(id) => host(app, command, id),
            Object::Machine(_) => command == Command::Repair && has_operations(app),
        }
}

/// Reports whether a command would do something on what is selected.
pub fn here(app: &App, command: Command) -> bool {
    let view = app.acting_view();
    if !changes(command) {
        return shows(app, command);
    }
    if !permitted(app, command, view) {
        return false;
    }
    if app.acts_on_batches() {
        return batches(app, &app.chosen_batches(), command);
    }
    let any_entry = |command| app.chosen_entries().into_iter().any(|id| entry(app, command, id));
    match command {
        Command::Approve => registry(app, command),
        Command::Switch if view.registry() => registry(app, command),
        Command::Hold | Command::Unhold if app.holds_applying() => registry(app, command),
        Command::Unhold | Command::Fence if view == View::Hosts || command == Command::Fence => {
            // one host at a time
            matches!(app.chosen_hosts().as_slice(), [id] if host(app, command, id))
        }
        // a hold of a host is a choice of the dialog about its power
        Command::Hold if view == View::Hosts => app.chosen_hosts().iter().any(|id| host(app, Command::HostPower, id)),
        Command::HostPower => app.chosen_hosts().iter().any(|id| host(app, command, id)),
        Command::Cancel => cancel(app),
        Command::Hold | Command::Unhold | Command::ResetBackoff => any_entry(command),
        Command::Retry | Command::Done | Command::Force => {
            // an order is about one entry
            let fitting = app.chosen_entries().into_iter().filter(|id| entry(app, command, *id)).count();
            fitting == 1 && (app.chosen_entries().len() == 1 || app.chosen_nodes().len() == 1)
        }
        Command::Reboot => {
            let pane = app.navigation.pane.is_some();
            (pane || matches!(view, View::Nodes | View::Hosts | View::History))
                && app.chosen_nodes().iter().any(|name| queries::member(&app.seen, name).is_some())
        }
        Command::Repair => has_operations(app) && has_machine(app),
        // one node at a time
        Command::KeepCordoned => matches!(app.chosen_nodes().as_slice(), [name] if node(app, command, name)),
        Command::Release => {
            matches!(app.target(), Some(Target::Node(_)))
                && matches!(app.chosen_nodes().as_slice(), [name] if node(app, command, name))
        }
        Command::Constraint => !matches!(&app.seen.snapshot.store.constraints, Some(stored) if stored.value.is_err()),
        Command::DeleteFinished => view == View::Repairs && repairs(app, true),
        Command::DeleteUnfinished => view == View::Repairs && repairs(app, false),
        Command::CancelAll => !app.seen.snapshot.store.reboots.entries.is_empty(),
        Command::Lead => lead(app),
        _ => true,
    }
}

/// Reports whether a command that changes nothing in the cluster would show something else.
fn shows(app: &App, command: Command) -> bool {
    let (view, (shown, total)) = (app.navigation.view, app.list().counts());
    // the counts of the racks and the map of the racks hide the rows
    let has_rows = shown > 0 && !app.shows_rack_counts();
    match command {
        Command::Open => opens(app),
        Command::Mark | Command::MarkAll => view != View::Overview && has_rows,
        Command::Sort | Command::Reverse => view != View::Overview && has_rows && !racks::open(app),
        Command::Filter | Command::Find => {
            app.navigation.help.is_some()
                || app.navigation.searches_pane()
                || view != View::Overview && total > 0 && !app.shows_rack_counts()
        }
        Command::Racks if view.registry() => app.navigation.racks || !app.knowledge.registry.racks.is_empty(),
        Command::Racks => view != View::Nodes || shown > 0,
        Command::Jump => related::counterpart(app).is_some(),
        Command::LogsOf => related::log_filter(app).is_some(),
        Command::Trouble => next_object::next(app).is_some(),
        Command::Yaml => app.target().is_some_and(|of| !matches!(of, Target::Line(_) | Target::Fold(_))),
        Command::Follow => matches!(app.target(), Some(Target::Entry(_))),
        Command::Blockers => {
            // the list is about all drains: the hint stays while the cursor moves, which costs nothing
            let totals = &app.knowledge.totals;
            let mut drains = totals.in_work.iter().chain(&totals.stuck).chain(&totals.backing_off);
            drains.any(|id| blockers::any(app, *id))
        }
        Command::PreviousEntry => app.list().has_neighbour(-1),
        Command::NextEntry => app.list().has_neighbour(1),
        Command::Undo => app.can_undo(),
        _ => true,
    }
}

/// Reports whether the row under the cursor can be opened.
fn opens(app: &App) -> bool {
    if app.navigation.shows_batches() {
        return app.lists.batches_of(app.navigation.view).cursor.is_some();
    }
    match app.navigation.view {
        View::Overview => app.lists.overview_rows.cursor.is_some(),
        View::Reboots
        | View::Nodes
        | View::Repairs
        | View::Machines
        | View::Diff
        | View::Hosts
        | View::History
        | View::Audit
        | View::Logs => app.target().is_some() && !app.shows_rack_counts(),
    }
}

/// Reports whether one of the selected entries can be cancelled or deleted. An entry that cannot be read is removed
/// alone.
fn cancel(app: &App) -> bool {
    let chosen = app.chosen_entries();
    let readable = chosen.iter().any(|id| queries::address_of(&app.seen, *id).is_some());
    (readable || chosen.len() == 1) && chosen.into_iter().any(|id| entry(app, Command::Cancel, id))
}

/// Reports whether the command changes the cluster.
fn changes(command: Command) -> bool {
    keys::TABLE.iter().any(|binding| binding.command == command && binding.changes)
}

/// Reports whether this console may write, the operator has the right, and the leader honours the command.
fn permitted(app: &App, command: Command, view: View) -> bool {
    if !changes(command) {
        return true;
    }
    let may_write = !app.read_only() && app.seen.snapshot.store.synced && sources::refusal(app).is_none();
    let is_granted = || rights::area(command, view).and_then(|area| app.knowledge.rights.refusal(area)).is_none();
    let refused = |requested: OperatorCommand| leaders::refusal(app, requested).is_some();
    may_write && is_granted() && !leaders::requested(command, view).is_some_and(refused)
}

/// Reports whether the leader honours the command of this name on a row of this view.
pub fn honoured(app: &App, name: &str, view: View) -> bool {
    let command = keys::TABLE.iter().find(|binding| binding.name == name).map(|binding| binding.command);
    let requested = command.and_then(|command| leaders::requested(command, view));
    requested.is_none_or(|requested| leaders::refusal(app, requested).is_none())
}

/// Reports whether nobody leads.
fn lead(app: &App) -> bool {
    let engine = &app.seen.snapshot.engine;
    matches!(queries::leader(&app.seen), Leader::Nobody)
        && engine.not_campaigning.as_ref().is_some_and(NotCampaigning::can_lead_now)
}

/// Reports whether a command would do something on one of these batches.
fn batches(app: &App, chosen: &[&BatchSummary], command: Command) -> bool {
    match command {
        Command::Hold => chosen.iter().any(|batch| batch.state() == BatchState::Running),
        Command::Unhold => chosen.iter().any(|batch| batch.state() == BatchState::Paused),
        Command::Cancel => chosen.iter().any(|batch| batch.totals.open() > 0),
        Command::ResetBackoff => {
            let mut entries = chosen.iter().flat_map(|batch| app.seen.snapshot.store.entries_of_batch(batch.id));
            entries.any(|id| entry(app, command, id))
        }
        command => whole_queue(command),
    }
}

/// Reports whether a command acts on one object of this kind at a time.
pub fn is_for_one(command: Command, object: &Object) -> bool {
    match command {
        Command::Retry | Command::Done | Command::Force | Command::Release | Command::KeepCordoned | Command::Fence => {
            true
        }
        Command::Unhold => matches!(object, Object::Host(_)),
        _ => false,
    }
}

/// Reports whether a command is about a whole queue, whatever is selected.
fn whole_queue(command: Command) -> bool {
    matches!(command, Command::Switch | Command::Stop | Command::Resume | Command::CancelAll)
}

fn entry(app: &App, command: Command, id: EntryId) -> bool {
    let seen = &app.seen;
    if command == Command::Open {
        return true;
    }
    let Some(entry) = seen.snapshot.store.entry(id) else {
        // an entry that cannot be read can only be removed
        return command == Command::Cancel && queries::stored_at(seen, id).is_some();
    };
    let watching = |repair: &cketerm_model::repair::RepairEntry| {
        repair.unfinished() && repair.claims_machine() && repair.step_status == StepStatus::Watching
    };
    let after_command = match entry {
        EntryRef::Reboot(reboot) => reboot.status == RebootStatus::Rebooting,
        EntryRef::Repair(repair) => watching(repair),
        EntryRef::Maintenance(_) => entry.is_after_command(),
    };
    let held = queries::order(seen, id) == Some(Verb::Hold);
    match command {
        Command::Cancel => match entry {
            EntryRef::Reboot(reboot) => reboot.status != RebootStatus::Cancelled,
            EntryRef::Repair(repair) => !repair.deleted,
            EntryRef::Maintenance(maintenance) => maintenance.released.is_none(),
        },
        Command::Hold => !held && entry.unfinished() && !entry.is_after_command(),
        Command::Unhold => held,
        Command::Retry => after_command && queries::running(seen, id).is_none(),
        Command::Done => after_command,
        Command::Force => match entry {
            EntryRef::Reboot(reboot) => matches!(reboot.status, RebootStatus::Draining | RebootStatus::Queued),
            EntryRef::Repair(repair) => repair.unfinished() && !watching(repair),
            EntryRef::Maintenance(_) => false,
        },
        Command::ResetBackoff => entry.unfinished() && (entry.backoff_count() > 0 || entry.backoff_expire().is_some()),
        Command::Repair => has_operations(app),
        Command::Blockers => blockers::any(app, id),
        _ => false,
    }
}

fn node(app: &App, command: Command, name: &str) -> bool {
    let (seen, boot) = (&app.seen, app.now.boot);
    match command {
        Command::Release => seen.orphans.contains_key(name),
        Command::KeepCordoned => {
            let cordoned = queries::node(seen, name).is_some_and(|row| row.unschedulable || row.keep_cordoned);
            cordoned && queries::kube_lost(seen, boot).is_none()
        }
        Command::Repair => has_operations(app) && queries::address(seen, name).is_some(),
        Command::Reboot => queries::member(seen, name).is_some(),
        _ => false,
    }
}

fn host(app: &App, command: Command, id: &HostId) -> bool {
    let Some(host) = queries::host(&app.seen, id) else { return false };
    match command {
        Command::Unhold => host.asked.keys.keys().any(|key| key == CKETERM_KEY || key.starts_with("cketerm-")),
        Command::HostPower => true,
        Command::Fence => host.hindrance().is_none() && app.seen.snapshot.kube.node_of_host(host).is_some(),
        _ => false,
    }
}

fn registry(app: &App, command: Command) -> bool {
    let store = &app.seen.snapshot.store;
    let (used, held) = (store.member_source() != MemberSource::Operators, store.registry.hold.is_some());
    match command {
        Command::Approve => !held && matches!(*app.seen.applying, ApplyState::Approval(..)),
        Command::Hold => used && !held,
        Command::Unhold => held,
        Command::Switch => true,
        _ => false,
    }
}

/// Reports whether the definition has an operation for repairs.
fn has_operations(app: &App) -> bool {
    let definition = app.seen.snapshot.store.definition();
    let procedures = definition.into_iter().flat_map(|d| d.cluster.repair.repair_procedures.iter().flatten());
    procedures.flat_map(|p| p.repair_operations.iter().flatten()).next().is_some()
}

/// Reports whether a machine is selected whose address is known.
fn has_machine(app: &App) -> bool {
    let has_node = || app.chosen_nodes().iter().any(|name| queries::address(&app.seen, name).is_some());
    let has_address = |id: &EntryId| queries::address_of(&app.seen, *id).is_some();
    match (&app.navigation.pane, app.acting_view()) {
        (Some(pane), _) => match &pane.of {
            Target::Entry(id) => has_address(id),
            Target::Node(_) | Target::Host(_) => has_node(),
            Target::Machine(_) => true,
            Target::Past(..) => !app.chosen_addresses().is_empty(),
            Target::Fold(_) | Target::Line(_) => false,
        },
        (None, View::Overview | View::Reboots | View::Repairs) => app.chosen_entries().iter().any(has_address),
        (None, View::Nodes | View::Hosts) => has_node(),
        (None, View::Machines | View::Diff | View::History | View::Audit | View::Logs) => {
            !app.chosen_addresses().is_empty() && !app.shows_rack_counts()
        }
    }
}

fn repairs(app: &App, finished: bool) -> bool {
    let mut ids = app.seen.snapshot.store.repairs.entries.keys();
    ids.any(|index| {
        let id = EntryId { queue: QueueKind::Repair, index: *index };
        queries::repair(&app.seen, id).is_some_and(|entry| !entry.deleted && entry.finished() == finished)
    })
}
