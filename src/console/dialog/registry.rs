//! The registry's verbs: enable or disable the integration, let a change pass the gate, hold applying.

use super::{Bound, Deed, Dialog, Why};
use crate::{
    console::{
        app::App,
        event::{Action, Registering},
        registry,
    },
    engine::decide::Applying,
};

fn dialog(title: String, verb: &'static str, what: Registering) -> Dialog {
    Dialog::new(title, verb, Deed::Act(Action::Registry { what, reason: None }))
}

/// Enables or disables the integration.
pub fn switch(app: &App) -> Dialog {
    let switch = &app.seen.snapshot.store.sabakan;
    let enabled = !switch.enabled();
    let verb = if enabled { "Enable" } else { "Disable" };
    let title = format!("{verb} the sabakan integration of {}?", app.cluster_word());
    let mut dialog = dialog(title, verb, Registering::Enable(enabled));
    dialog.lines =
        if enabled { consequences(app) } else { vec!["no definition is generated or applied any more".to_owned()] };
    dialog.bound = vec![Bound::Integration(switch.mod_revision)];
    dialog
}

/// What applying the plan does, a line each.
fn consequences(app: &App) -> Vec<String> {
    let Some(proposed) = registry::proposed(&app.seen) else {
        return vec!["there is no plan yet: what will change cannot be said".to_owned()];
    };
    if !proposed.plan.changed {
        return vec!["nothing would change now".to_owned()];
    }
    let mut lines = vec![format!("{}: {}", proposed.plan.action, proposed.plan.reason)];
    for (kind, n) in proposed.change.nodes.iter().fold(std::collections::BTreeMap::new(), |mut all, node| {
        *all.entry(node.kind).or_insert(0_usize) += 1;
        all
    }) {
        lines.push(format!("{n} {}", kind.word()));
    }
    if let Some(why) = &proposed.gate.why {
        lines.push(format!("! {why}"));
    }
    lines
}

/// Lets the change that waits pass.
pub fn approve(app: &App) -> Result<Dialog, String> {
    let Applying::Approval(digest, _) = &*app.seen.applying else {
        return Err("nothing waits for approval".to_owned());
    };
    let title = format!("Let this change of {} pass?", app.cluster_word());
    let mut dialog = dialog(title, "Approve", Registering::Approve(digest.clone()));
    dialog.lines = consequences(app);
    dialog.lines.push(format!("digest {digest}; the approval ends after an hour and dies with any change"));
    dialog.expect = Some(app.cluster_word());
    dialog.bound = vec![Bound::Digest(digest.clone())];
    Ok(dialog)
}

/// Stops all applying, or lets it go on.
pub fn hold(app: &App, hold: bool) -> Result<Dialog, String> {
    let already = app.seen.snapshot.store.registry.hold.is_some();
    if already == hold {
        return Err(if hold { "applying is on hold already" } else { "applying is not on hold" }.to_owned());
    }
    let (title, verb) = if hold { ("Stop all applying", "Hold") } else { ("Let applying go on", "Let go") };
    let mut dialog =
        dialog(format!("{title} of generated definitions in {}?", app.cluster_word()), verb, Registering::Hold(hold));
    dialog.lines = if hold { vec!["plans are still made and shown".to_owned()] } else { consequences(app) };
    dialog.why = Why::Optional;
    Ok(dialog)
}
