//! `sabakan diff` and `approve`: the changes that etcd's and sabakan's current data would cause, and the state of
//! applying them.

use std::collections::BTreeMap;

use cketerm_actions::ActionError;
use cketerm_clients::sabakan::Question;
use cketerm_model::{
    entry::Stored,
    policy::{Approval, Membership},
    stored::view::StoreView,
};
use cketerm_rules::{
    decide::ApplyState,
    registry::{Proposed, sync},
};
use cketerm_sabakan::change::{Kind, NodeChange};
use jiff::Timestamp;
use serde_json::json;

use super::{
    Context,
    options::Output,
    output::Lines,
    registry::{RegistryView, look},
};

/// `sabakan diff`: compares the definition in force with the generated one, by machine and by field.
pub async fn diff(nodes: bool, context: &Context) -> Result<(), ActionError> {
    let look = look(context, Question::Members).await?;
    if nodes {
        return print_sync(&look, context);
    }
    let (proposed, applying) = look.proposed_with_state()?;
    print_change(&look.view, &proposed, &applying, look.store.clock().wall(), context)
}

/// Prints a proposed definition: its differences, and the state of applying it.
pub fn print_change(
    view: &StoreView,
    proposed: &Proposed,
    applying: &ApplyState,
    now: Timestamp,
    context: &Context,
) -> Result<(), ActionError> {
    let gate_reason = pending_gate(view, proposed, now);
    match context.output(Output::Table) {
        Output::Table => {
            for warning in proposed.plan.warnings.iter().filter(|_| proposed.plan.changed) {
                context.print_message(&format!("warning: {warning}"));
            }
            context.out.text(text(proposed, &status_lines(proposed, applying, gate_reason)))
        }
        form => context.out.value(
            &json!({
                "action": proposed.plan.action, "reason": proposed.plan.reason, "changed": proposed.plan.changed,
                "digest": proposed.digest, "gate": gate_reason, "nodes": proposed.change.nodes, "fields": proposed.change.fields,
                "warnings": proposed.plan.warnings, "applying": applying,
            }),
            form,
        ),
    }
}

/// Returns the reason why an operator has to approve this change. Returns `None` if it passes, is approved already, or
/// the policy requires no approval.
fn pending_gate<'a>(view: &StoreView, proposed: &'a Proposed, now: Timestamp) -> Option<&'a str> {
    let approved = view.registry.approvals.get(&proposed.digest).and_then(Stored::get).is_some_and(|a| now < a.until);
    // a control plane never leaves a definition that follows the Nodes without an approval
    let always = view.policy().membership == Membership::Nodes && !proposed.gate.control_planes.is_empty();
    let asked = proposed.plan.changed && (view.policy().approval == Approval::Gate || always) && !approved;
    proposed.gate.why.as_deref().filter(|_| asked)
}

/// Returns the state of applying, one line each.
fn status_lines(proposed: &Proposed, applying: &ApplyState, gate_reason: Option<&str>) -> Vec<String> {
    let gate = gate_reason.map(|why| format!("waits for approval of {}: {why}", proposed.digest));
    let now = match applying {
        ApplyState::Off | ApplyState::Settled | ApplyState::Approval(..) => None,
        ApplyState::Disabled(why) => Some(format!("is not applied: {why}")),
        ApplyState::Error(why) => Some(format!("cannot be applied: {why}")),
        ApplyState::Waits(why) => Some(format!("waits: {why}")),
        ApplyState::Applies => Some("is applied by the leader".to_owned()),
    };
    now.into_iter().chain(gate).collect()
}

/// Renders the diff for people: the state of applying, then the changes that all machines share, then those of each
/// machine.
fn text(proposed: &Proposed, status_lines: &[String]) -> String {
    let (plan, change) = (&proposed.plan, &proposed.change);
    let mut out = Lines::default();
    out.line(format_args!("{}: {}", plan.action, plan.reason));
    for line in status_lines {
        out.line(line);
    }
    if !plan.changed {
        return out.done();
    }
    let folds = change.folded();
    for field in &change.fields {
        out.line(format_args!("  field {field} changes"));
    }
    for (what, nodes) in &folds {
        out.line(format_args!("  {what} on {} nodes", nodes.len()));
    }
    let why: BTreeMap<&str, String> = plan.nodes.iter().map(|c| (c.address.as_str(), c.why.to_string())).collect();
    for node in &change.nodes {
        let own: Vec<_> = change.own(node, &folds).collect();
        if node.kind == Kind::Changed && own.is_empty() {
            continue;
        }
        let why = why.get(node.address.as_str()).map(String::as_str).unwrap_or_default();
        out.line(format_args!("{} {} {} – {why}", sign(node), node.address, role_change(node)));
        for field in own {
            let side = |s: &Option<String>| s.clone().unwrap_or_else(|| "–".to_owned());
            out.line(format_args!("    {}: {} → {}", field.field, side(&field.before), side(&field.after)));
        }
    }
    out.done()
}

fn sign(node: &NodeChange) -> char {
    match node.kind {
        Kind::Added => '+',
        Kind::Removed => '-',
        _ => '~',
    }
}

fn role_change(node: &NodeChange) -> String {
    match node.kind {
        Kind::Promoted => "worker → control plane".to_owned(),
        Kind::Demoted => "control plane → worker".to_owned(),
        _ if node.control_plane => "control plane".to_owned(),
        _ => "worker".to_owned(),
    }
}

/// `sabakan diff --nodes`: dry run of the node synchronisation.
fn print_sync(look: &RegistryView, context: &Context) -> Result<(), ActionError> {
    let nodes = look.nodes.as_ref().ok_or_else(|| {
        ActionError::misused(
            "--nodes needs Kubernetes, which is not configured or does not answer: give --kubeconfig FILE",
        )
    })?;
    let definition =
        look.view.definition().ok_or_else(|| ActionError::failed("no readable cluster definition is stored"))?;
    let mut changes = Vec::new();
    for member in &definition.cluster.nodes {
        let name = member.node_name();
        let node = nodes.iter().find(|n| n.name == name || n.addresses.contains(&member.address));
        if let Some((node, description)) = node.and_then(|n| Some((n, sync::description(member, &n.described)?))) {
            changes.push((node.name.clone(), description));
        }
    }
    match context.output(Output::Table) {
        Output::Table => {
            if changes.is_empty() {
                return context.out.line("every Node matches the definition");
            }
            let mut lines = Lines::default();
            for (name, what) in &changes {
                lines.line(format_args!("{name}: {what}"));
            }
            context.out.text(lines)
        }
        form => {
            let list: Vec<_> = changes.iter().map(|(name, what)| json!({"node": name, "changes": what})).collect();
            context.out.value(&list, form)
        }
    }
}

/// `sabakan approve [DIGEST]`: approves the pending change.
pub async fn approve(digest: Option<&str>, reason: Option<&str>, context: &Context) -> Result<(), ActionError> {
    let look = look(context, Question::Members).await?;
    let (proposed, applying) = look.proposed_with_state()?;
    let now = look.store.clock().wall();
    Box::pin(approve_change(&Pending { view: &look.view, proposed, applying, now }, digest, reason, context)).await
}

/// A proposed definition, as one read shows it.
pub struct Pending<'a> {
    /// State of etcd.
    pub view: &'a StoreView,
    /// The definition.
    pub proposed: Proposed,
    /// State of applying it.
    pub applying: ApplyState,
    /// Time of the read.
    pub now: Timestamp,
}

/// Approves the pending change, if it has this digest.
pub async fn approve_change(
    pending: &Pending<'_>,
    digest: Option<&str>,
    reason: Option<&str>,
    context: &Context,
) -> Result<(), ActionError> {
    let Pending { view, proposed, applying, now } = pending;
    let command = if view.policy().membership == Membership::Nodes { "membership" } else { "sabakan" };
    let nothing = |why: &str| Err(ActionError::refused(format!("no change waits for approval: {why}")));
    match applying {
        ApplyState::Disabled(why) | ApplyState::Error(why) => return nothing(why),
        ApplyState::Waits(why) if view.registry.hold.is_some() => {
            return Err(ActionError::refused(format!("nothing is approved while applying is {why}")));
        }
        _ => {}
    }
    let Some(why) = pending_gate(view, proposed, *now) else {
        let (plan, never) = (&proposed.plan, view.policy().approval == Approval::Never);
        let asked = if plan.changed && never { "; policy approval is never" } else { "" };
        return nothing(&format!("{} ({}){asked}", plan.action, plan.reason));
    };
    if let Some(given) = digest.filter(|d| *d != proposed.digest) {
        return Err(ActionError::refused(format!(
            "the pending change is {}, not {given}: it has changed meanwhile; see `cketerm {command} diff`",
            proposed.digest
        )));
    }
    let approval = context.operator().await?.approve(&proposed.digest, reason).await?;
    context.print_message(&format!(
        "approved until {}: {} ({}; {why})",
        approval.until, proposed.digest, proposed.plan.reason
    ));
    Ok(())
}
