//! Dialogs of the registry: enable or disable the integration or automatic repair, set a constraint, approve a change,
//! hold applying.

use cketerm_actions::CONSTRAINTS;
use cketerm_model::{policy::MemberSource, stored::keys::SwitchName};
use cketerm_rules::decide::ApplyState;
use cketerm_sabakan::change::Kind;
use tui_input::Input;

use super::tier;
use crate::state::{
    App,
    dialog::{
        Dialog, DialogAction, Precondition, ReasonPolicy,
        pick::Pick,
        preconditions::{constraint_revisions, hold_revision, plan_digest},
    },
    event::{Action, RegistryAction, count},
    registry,
};

fn dialog(verb: impl Into<String>, what: RegistryAction) -> Dialog {
    let verb = verb.into();
    Dialog::new(format!("{verb}?"), verb, DialogAction::Act(Action::Registry { what, reason: None }))
}

/// Opens the dialog that enables or disables the integration.
pub fn switch(app: &App) -> Dialog {
    let switch = &app.seen.snapshot.store.sabakan;
    let enabled = !switch.enabled();
    let verb = if enabled { "Enable" } else { "Disable" };
    let verb = format!("{verb} the sabakan integration");
    let mut dialog = dialog(verb, RegistryAction::Enable(enabled));
    dialog.lines =
        if enabled { consequences(app) } else { vec!["no definition is generated or applied any more".to_owned()] };
    dialog.preconditions = vec![Precondition::switch(&app.seen, SwitchName::Sabakan)];
    dialog
}

/// Returns the effects of applying the plan, one per line.
fn consequences(app: &App) -> Vec<String> {
    let Some(proposed) = registry::proposed(&app.seen) else {
        return vec!["there is no plan yet: the changes are unknown".to_owned()];
    };
    if !proposed.plan.changed {
        return vec!["nothing would change now".to_owned()];
    }
    let mut lines = vec![format!("{}: {}", proposed.plan.action, proposed.plan.reason)];
    for (kind, n) in proposed.change.nodes.iter().fold(std::collections::BTreeMap::new(), |mut all, node| {
        *all.entry(node.kind).or_insert(0_usize) += 1;
        all
    }) {
        lines.push(format!("{n} {}", kind.as_str()));
    }
    if let Some(why) = &proposed.gate.why {
        lines.push(format!("! {why}"));
    }
    lines
}

/// Opens the dialog that approves the pending change.
pub fn approve(app: &App) -> Result<Dialog, String> {
    let ApplyState::Approval(digest, _) = &*app.seen.applying else {
        return Err("nothing waits for approval".to_owned());
    };
    let nodes = registry::proposed(&app.seen).map(|proposed| proposed.change.nodes.as_slice()).unwrap_or_default();
    let removed = nodes.iter().filter(|node| node.kind == Kind::Removed).count();
    let what = if nodes.is_empty() { "this change".to_owned() } else { count(nodes.len(), "change") };
    let mut dialog = dialog(format!("Approve {what}"), RegistryAction::Approve(digest.clone()));
    dialog.lines = consequences(app);
    dialog.lines.push(format!("digest {digest}; the approval expires after an hour or with any change"));
    dialog.expect = tier::confirmation_text(app, "approve", removed, 0);
    dialog.preconditions = vec![Precondition::Digest(digest.clone())];
    Ok(dialog)
}

/// Opens the dialog that stops all applying, or resumes it.
pub fn hold(app: &App, hold: bool) -> Result<Dialog, String> {
    let already = app.seen.snapshot.store.registry.hold.is_some();
    if already == hold {
        return Err(if hold { "applying is on hold already" } else { "applying is not on hold" }.to_owned());
    }
    if hold && app.seen.snapshot.store.member_source() == MemberSource::Operators {
        return Err("operators set the definition: none is applied".to_owned());
    }
    let verb = if hold { "Stop applying definitions" } else { "Resume applying definitions" };
    let mut dialog = dialog(verb, RegistryAction::Hold(hold, hold_revision(&app.seen)));
    dialog.lines = if hold { vec!["plans are still made and shown".to_owned()] } else { consequences(app) };
    dialog.preconditions = vec![if hold {
        Precondition::ApplyState(hold_revision(&app.seen), None)
    } else {
        Precondition::ApplyState(hold_revision(&app.seen), Some(plan_digest(&app.seen)))
    }];
    dialog.why = ReasonPolicy::Optional;
    Ok(dialog)
}

/// Opens the dialog that enables or disables automatic repair.
pub fn auto_repair(app: &App) -> Dialog {
    let store = &app.seen.snapshot.store;
    let enabled = !store.auto_repair.enabled();
    let verb = if enabled { "Enable" } else { "Disable" };
    let verb = format!("{verb} automatic repair");
    let mut dialog = dialog(verb, RegistryAction::AutoRepair(enabled));
    dialog.lines = match (enabled, store.constraints().maximum_repair_queue_entries) {
        (false, _) => vec!["no repair is queued automatically any more; those in the queue continue".to_owned()],
        (true, cap) if cap <= 0 => {
            vec!["! maximum-repair-queue-entries is 0: none is queued until that constraint is set".to_owned()]
        }
        (true, cap) => {
            vec![format!("machines that sabakan reports broken are queued for repair, up to {cap} entries in all")]
        }
    };
    dialog.preconditions = vec![Precondition::switch(&app.seen, SwitchName::AutoRepair)];
    dialog
}

/// Opens the dialog that sets a constraint: its name is chosen, its value is typed.
pub fn constraint(app: &App) -> Result<Dialog, String> {
    let store = &app.seen.snapshot.store;
    if let Some(Err(why)) = store.constraints.as_ref().map(|c| &c.value) {
        return Err(format!("the constraints cannot be read: {why}"));
    }
    let now = serde_json::to_value(&*store.constraints()).unwrap_or_default();
    let option = |name: &&str| {
        let value = now.get(*name).map_or_else(|| "not set".to_owned(), |value| format!("is {value}"));
        ((*name).to_owned(), vec![format!("{name} {value} now")])
    };
    let what = RegistryAction::Constraint { name: String::new(), value: String::new() };
    let mut dialog = dialog("Set 1 constraint", what);
    dialog.lines = vec!["in force from the next pass and the next plan".to_owned()];
    dialog.pick = Some(Pick::one("constraint", CONSTRAINTS.iter().map(option).collect()));
    dialog.value = Some(Input::default());
    let (cke_constraints, cketerm_constraints) = constraint_revisions(&app.seen);
    dialog.preconditions = vec![Precondition::Constraints(cke_constraints, cketerm_constraints)];
    Ok(dialog)
}

/// Opens the same dialog for this constraint and value.
pub fn constraint_to(app: &App, name: &str, value: &str) -> Result<Dialog, String> {
    let mut dialog = constraint(app)?;
    if let Some(pick) = &mut dialog.pick {
        pick.choose(name);
    }
    dialog.value = Some(Input::new(value.to_owned()));
    dialog.proposed = Some(value.to_owned());
    Ok(dialog)
}
