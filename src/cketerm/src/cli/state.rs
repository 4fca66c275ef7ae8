//! `state` and `decide`: a snapshot of everything that is known, and the decision of the rules on it. Neither writes
//! anything.

use std::path::PathBuf;

use cketerm_actions::ActionError;
use cketerm_model::{
    entry::Stored,
    kube::PLANNED_TAINT,
    reboot::RebootStatus,
    repair::StepStatus,
    secret::{self, mask},
};
use cketerm_rules::{
    decide::{ApplyState, Decision, Effect, MaintenanceRequestEffect, Planned, RebootNeededEffect, RegistryEffect},
    seen::Seen,
    state::State,
};
use clap::Args;
use serde_json::{Value, json};

use super::{
    Context,
    input_file::read,
    observe::read_complete,
    options::Output,
    output::{Lines, columns},
};
use crate::backends::connect;

/// State to decide on.
#[derive(Args, Debug)]
pub struct DecideArgs {
    /// File printed by `cketerm state` (JSON or YAML); - = standard input
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// Decide as a leader that has just taken over, if the engine of the state did not lead
    #[arg(long)]
    pub as_leader: bool,
}

/// Runs an engine that only observes until everything has been read once, and prints its snapshot.
pub async fn state(context: &Context) -> Result<(), ActionError> {
    let form = match context.output(Output::Json) {
        Output::Table => return Err(ActionError::misused("state has no table: use -o json or -o yaml")),
        form => form,
    };
    // one read reports connection errors at once
    context.store().await?.leader().await?;
    let backends = connect(&context.settings).await.map_err(|e| ActionError::failed(format!("{e:#}")))?;
    let last = read_complete(&backends, context).await;
    if let Some(note) = only_leaders_read(&last) {
        context.print_message(&note);
    }
    let document = State::of(&last).document().map_err(|e| ActionError::failed(e.to_string()))?;
    context.out.value(&document, form)
}

/// Returns a note about data that only a leader reads, if a decision on this state would need it.
fn only_leaders_read(seen: &Seen) -> Option<String> {
    let store = &seen.snapshot.store;
    let drains = store.reboots.entries.values().filter_map(Stored::get).any(|e| e.status == RebootStatus::Draining)
        || store.repairs.entries.values().filter_map(Stored::get).any(|e| e.step_status == StepStatus::Draining);
    let led = seen.snapshot.engine.leading.is_some();
    (drains && !led && seen.snapshot.kube.synced()).then(|| {
        "note: only a leader reads the endpoints and the pods of draining nodes: for those, see the leader's \
         /state"
            .to_owned()
    })
}

/// Repeats the decision of a stored state.
pub fn decide(args: &DecideArgs, context: &Context) -> Result<(), ActionError> {
    let text = read(&args.from)?;
    let state = State::read(&text).map_err(|e| ActionError::failed(format!("{} {e}", args.from.display())))?;
    if !args.as_leader && state.snapshot.engine.leading.is_none() {
        context.print_message(
            "the engine of this state did not lead, and does nothing; --as-leader shows a leader's decision",
        );
    }
    let decision = if args.as_leader { state.decide_as_leader() } else { state.decide() };
    match context.output(Output::Table) {
        Output::Table => context.out.text(table(&decision)),
        form => {
            let mut value = written(&decision).map_err(|e| ActionError::failed(e.to_string()))?;
            mask(&mut value);
            context.out.value(&value, form)
        }
    }
}

/// Serializes the decision, each effect with its name and each reason with its sentence.
pub(super) fn written(decision: &Decision) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(decision)?;
    let effect = |planned: &Planned| -> Result<Value, serde_json::Error> {
        let mut value = serde_json::to_value(planned)?;
        value["word"] = json!(planned.effect.as_str());
        Ok(value)
    };
    value["effects"] = decision.effects.iter().map(effect).collect::<Result<_, _>>()?;
    for (id, reason) in &decision.reasons {
        value["reasons"][id.to_string()]["text"] = json!(reason.to_string());
    }
    Ok(value)
}

fn table(decision: &Decision) -> String {
    let mut out = Lines::default();
    out.line(format_args!("phase: {}", decision.phase));
    out.line("");
    let rows = decision.effects.iter().map(|planned| {
        let entry = planned.entry.map(|id| id.to_string()).unwrap_or_default();
        vec![planned.machine.clone(), entry, planned.effect.as_str().to_owned(), detail(&planned.effect)]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        out.line("no actions");
    } else {
        out.table(&columns(&["Machine", "Entry", "Effect", "What"], &rows));
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (id, reason) in &decision.reasons {
        rows.push(vec![id.to_string(), reason.to_string()]);
    }
    for (node, reason) in &decision.orphans {
        rows.push(vec![format!("node {node}"), reason.to_string()]);
    }
    if !rows.is_empty() {
        out.line("");
        out.table(&columns(&["Entry", "Why"], &rows));
    }
    out.line("");
    out.line(format_args!("definition: {}", applying_text(&decision.registry)));
    if let Some(off) = &decision.auto_repair.off {
        out.line(format_args!("automatic repair: {off}"));
    }
    out.done()
}

/// Returns the state of applying the generated definition.
fn applying_text(applying: &ApplyState) -> String {
    match applying {
        ApplyState::Off => "nothing to generate it from".to_owned(),
        ApplyState::Disabled(why) => format!("not generated: {why}"),
        ApplyState::Settled => "up to date".to_owned(),
        ApplyState::Error(why) => format!("unchanged: {why}"),
        ApplyState::Waits(why) => format!("waits: {why}"),
        ApplyState::Approval(digest, why) => format!("waits for approval of {digest}: {why}"),
        ApplyState::Applies => "is applied".to_owned(),
    }
}

/// Returns a one-line summary of an effect.
fn detail(effect: &Effect) -> String {
    let pods = |n: usize, what: &str| format!("{n} {what}");
    match effect {
        Effect::Remove { end, .. } | Effect::Finish { end, .. } => end.outcome(),
        Effect::BackOff { cause, .. } | Effect::Unwind { cause, .. } => cause.to_string(),
        Effect::Power { attempt, .. } | Effect::RunAgain { attempt, .. } => attempt.command(),
        Effect::BootCheck { argv, .. } | Effect::HealthCheck { argv, .. } => secret::argv(argv),
        Effect::Preview { pods: asked, .. } => pods(asked.len(), "pods to preview"),
        Effect::Explain { budgets } => pods(budgets.len(), "budgets"),
        Effect::Evict { evict, delete, .. } => {
            format!("{}, {}", pods(evict.len(), "to evict"), pods(delete.len(), "to delete"))
        }
        Effect::Recheck { node, .. } => node.to_string(),
        Effect::Release { uncordon, .. } => if *uncordon { "uncordon" } else { "remove the mark only" }.to_owned(),
        Effect::RunHook { hook, .. } => format!("{}: {}", hook.name, hook.target()),
        Effect::ReturnToService { node } => format!("boot {}", node.boot_id),
        Effect::Settle { entry } | Effect::EndHooks { entry, .. } => entry.to_string(),
        Effect::TakeResult { result, .. } => {
            result.get().map_or_else(|| result.key.clone(), |r| format!("{}: {}", r.label.attempt, r.outcome.end))
        }
        Effect::SetNodeSigns { node, conditions, taint } => {
            let sign = |is_set: bool| if is_set { "+" } else { "-" };
            let conditions = conditions.iter().map(|c| format!("{}{}", sign(c.content.is_some()), c.condition));
            let taint = taint.map(|is_set| format!("{}{PLANNED_TAINT}", sign(is_set)));
            format!("{}: {}", node.name, conditions.chain(taint).collect::<Vec<_>>().join(" "))
        }
        Effect::SetEndpoints { row, addresses } => {
            format!("{} {}/{}: {}", row.kind, row.namespace, row.name, addresses.join(", "))
        }
        Effect::BeginMaintenance { entry } => format!("{} on {}", entry.id(), entry.address()),
        Effect::MoveEtcdLeader { member, to_name, .. } => format!("{member} to {to_name}"),
        Effect::Registry(RegistryEffect::Apply(apply)) => {
            format!("{}: {}", apply.generated.action, apply.generated.reason)
        }
        Effect::Registry(RegistryEffect::Describe { description, .. }) => description.to_string(),
        Effect::RebootNeeded(RebootNeededEffect::Record(changes)) => {
            changes.iter().map(|change| change.node.as_str()).collect::<Vec<_>>().join(", ")
        }
        Effect::RebootNeeded(RebootNeededEffect::Queue(batch)) => {
            let nodes: Vec<&str> = batch.machines.iter().map(|machine| machine.node.as_str()).collect();
            format!("{}: {}", batch.cause, nodes.join(", "))
        }
        Effect::MaintenanceRequest(what) => match what {
            MaintenanceRequestEffect::Hold { row, is_held } => format!("{}: {is_held}", row.name),
            MaintenanceRequestEffect::Report { row, .. } => row.name.clone(),
            MaintenanceRequestEffect::Accept { record, .. } => record.name.clone(),
            MaintenanceRequestEffect::Queue { record, nodes, .. } => {
                format!("{}: {} nodes", record.get().map_or("?", |record| &record.name), nodes.len())
            }
            MaintenanceRequestEffect::Withdraw { entry: (id, _), cause, .. } => format!("{id}: {cause}"),
            MaintenanceRequestEffect::End { ended, cause, .. } => format!("{}: {cause}", ended.name),
            MaintenanceRequestEffect::Forget { uid, .. } => uid.clone(),
        },
        Effect::Registry(_) | Effect::StartDrain { .. } | Effect::Stamp { .. } => String::new(),
    }
}
