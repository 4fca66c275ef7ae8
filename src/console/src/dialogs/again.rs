//! The question of an expired dialog, asked again about the state of now.

use super::{
    add, backoff, batches, cancel, freeze, hold, host, keep_cordoned, maintenance, order, registry, repair, stop,
    switch,
};
use crate::state::{
    App,
    dialog::{Dialog, DialogAction, Precondition, kept_text::KeptText},
    event::{Action, RegistryAction},
};
use cketerm_model::{cketerm_records::Verb, entry::EntryId};

/// Returns the same question with fresh facts and the text that was typed. `None` if it makes no sense any more.
pub fn of(app: &App, dialog: &Dialog) -> Option<Dialog> {
    dialog.expired.as_ref()?;
    let DialogAction::Act(action) = &dialog.action else { return None };
    let mut again = question(app, dialog, action)?;
    if again.expired.is_some() {
        return None;
    }
    again.notes.clone_from(&dialog.notes);
    if let Some(kept) = KeptText::of(dialog) {
        kept.restore(&mut again);
        super::follow_choice(app, &mut again);
    }
    // a phrase is kept only if the same one is asked for
    if again.expect == dialog.expect {
        again.typed = dialog.typed.clone();
    }
    Some(again)
}

fn question(app: &App, dialog: &Dialog, action: &Action) -> Option<Dialog> {
    match action {
        Action::Cancel { entries, .. } => {
            let all = dialog.stops.as_ref().map_or(entries, |stops| &stops.ids);
            match &dialog.stops {
                Some(stops) if stops.not_started => cancel::queued(app, all.clone()).ok(),
                Some(_) | None => cancel::of(app, all.clone()).ok(),
            }
        }
        Action::Remove { entry, .. } => cancel::remove(app, *entry).ok(),
        Action::ResetBackoff { entries, .. } => backoff::of(app, entries, "").ok(),
        Action::Hold { entries, hold, .. } => {
            let ids: Vec<EntryId> = entries.iter().map(|(id, _)| *id).collect();
            hold::of(app, dialog.stops.as_ref().map_or(ids, |stops| stops.ids.clone()), *hold).ok()
        }
        Action::Batches { queue, batches: chosen, what, .. } => {
            let found: Vec<_> = chosen.iter().filter_map(|(id, _)| app.knowledge.batches.get(*id)).collect();
            batches::of(app, *queue, &found, *what).ok()
        }
        Action::Order { entry, verb: verb @ (Verb::Retry | Verb::Done | Verb::Force), .. } => {
            order::of(app, *entry, *verb).ok()
        }
        Action::Order { .. } => order::release_of(app, node(dialog)?).ok(),
        Action::KeepCordoned { node, .. } => keep_cordoned::of(app, node).ok().filter(|again| is_same(again, action)),
        Action::Switch { queue, .. } => Some(switch::of(app, *queue)).filter(|again| is_same(again, action)),
        Action::Stop { .. } => Some(stop::stop(app)),
        Action::Resume { .. } => stop::resume(app).ok(),
        Action::Unfreeze { .. } => freeze::unfreeze(app, dialog.reason.value()).ok(),
        Action::Registry { what, .. } => match what {
            RegistryAction::Enable(_) => Some(registry::switch(app)).filter(|again| is_same(again, action)),
            RegistryAction::AutoRepair(_) => Some(registry::auto_repair(app)).filter(|again| is_same(again, action)),
            RegistryAction::Approve(_) => registry::approve(app).ok(),
            RegistryAction::Hold(hold, _) => registry::hold(app, *hold).ok(),
            RegistryAction::Constraint { .. } => registry::constraint(app).ok(),
        },
        Action::AddReboots { .. } => {
            let bound = dialog.preconditions.iter().filter_map(named).map(str::to_owned);
            add::of(app, bound.chain(dialog.left_out.iter().cloned()).collect()).ok()
        }
        Action::AddRepairs { addresses, .. } => {
            let name = |address: &cketerm_model::names::Address| app.seen.snapshot.machine(address);
            let machines = addresses.iter().map(|address| (name(address), Some(address.clone())));
            repair::of(app, machines.collect()).ok()
        }
        Action::Hosts { .. } => host::again(app, dialog),
        // a freeze is about no object and does not expire
        Action::Freeze { .. } | Action::Maintenance { .. } => None,
        Action::EndMaintenance { .. } => maintenance::end(app, dialog.reason.value()).ok(),
    }
}

/// Returns the Node that the dialog is bound to.
fn node(dialog: &Dialog) -> Option<&str> {
    dialog.preconditions.iter().find_map(named)
}

fn named(precondition: &Precondition) -> Option<&str> {
    match precondition {
        Precondition::Node(name, _) => Some(name),
        Precondition::Entry(..)
        | Precondition::Phase(..)
        | Precondition::Hold(..)
        | Precondition::Switch(..)
        | Precondition::Constraints(..)
        | Precondition::Policy(_)
        | Precondition::Pause(..)
        | Precondition::Digest(_)
        | Precondition::ApplyState(..)
        | Precondition::Host(..) => None,
    }
}

/// Reports whether a dialog asks for this action: one that switches would now switch back.
fn is_same(again: &Dialog, action: &Action) -> bool {
    let of = |action: &Action| match action {
        Action::Switch { enabled, .. } => Some(*enabled),
        Action::Registry { what: RegistryAction::Enable(on) | RegistryAction::AutoRepair(on), .. } => Some(*on),
        Action::KeepCordoned { keep, .. } => Some(*keep),
        _ => None,
    };
    matches!(&again.action, DialogAction::Act(asked) if of(asked) == of(action))
}
