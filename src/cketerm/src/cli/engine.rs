//! `engine take`, `engine give`: the guided handover of the queues between CKE and cketerm.
//!
//! Nothing here touches CKE's lease or its key in the election: the operator stops and starts CKE. The commands check,
//! write the policy `engine`, say where to do what, wait, and verify who leads.

use std::time::Duration;

use cketerm_actions::ActionError;
use cketerm_clients::{net::Http, store::live::Live};
use cketerm_model::{acceptance::LeaderKind, policy::EngineChoice, stored::view::StoreView};
use cketerm_rules::handover::{
    Direction, Finding, Level, STOPS_WITH_CKE, cke_candidates, described, findings, is_done,
};
use clap::{Args, Subcommand};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::{
    Context,
    observe::read_complete,
    options::{Output, Reason},
};
use crate::backends::connect;

/// Longest wait for the page of this host's daemon, and its largest size in bytes.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
const PAGE_LIMIT: usize = 4096;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum EngineCommand {
    /// Let cketerm process the queues instead of CKE: check, say where to stop CKE, wait, verify
    Take(HandoverArgs),
    /// Give the queues back to CKE: finish what is in work, resign, wait until CKE leads
    Give(HandoverArgs),
}

/// Arguments of both directions.
#[derive(Args, Debug)]
pub struct HandoverArgs {
    /// Only check; change nothing
    #[arg(long)]
    check: bool,
    /// Stop waiting after this many seconds; run the command again to go on
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout_seconds: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    reason: Reason,
}

/// Runs one of the subcommands.
pub async fn run(command: EngineCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        EngineCommand::Take(args) => Box::pin(hand_over(Direction::Take, &args, context)).await,
        EngineCommand::Give(args) => Box::pin(hand_over(Direction::Give, &args, context)).await,
    }
}

async fn hand_over(direction: Direction, args: &HandoverArgs, context: &Context) -> Result<(), ActionError> {
    let store = context.store().await?;
    // one read reports connection errors at once
    let view = store.read_view().await?;
    if is_done(&view, direction) {
        let leader = view.leadership().message;
        match context.output(Output::Table) {
            form @ (Output::Json | Output::Yaml) if args.check => {
                let value = json!({
                    "possible": true, "done": true, "leader": leader, "findings": [], "cke": [], "stops_with_cke": null,
                });
                context.out.value(&value, form)?;
            }
            Output::Table | Output::Json | Output::Yaml => context.print_message(&format!("nothing to do: {leader}")),
        }
        return Ok(());
    }
    let backends = connect(&context.settings).await.map_err(|e| ActionError::failed(format!("{e:#}")))?;
    let seen = read_complete(&backends, context).await;
    let engine_here = daemon_answers(context.settings.http.as_deref()).await;
    let found = findings(&seen.snapshot, direction, engine_here, store.clock().wall());
    let blockers = print_findings(&seen.snapshot.store, direction, &found, args.check, context)?;
    if blockers > 0 {
        return Err(ActionError::failed(format!("{blockers} of the checks prevent this; nothing was changed")));
    }
    if args.check {
        return Ok(());
    }
    let wanted = match direction {
        Direction::Take => "cketerm",
        Direction::Give => "cke",
    };
    if view.policy.is_none() || !allows(view.policy().engine, direction) {
        context.operator().await?.set_policy("engine", wanted, args.reason.get()).await?;
        context.print_message(&format!("policy engine is `{wanted}` now"));
    }
    let live = Live::follow(&store);
    let deadline = Instant::now() + Duration::from_secs(args.timeout_seconds);
    wait(direction, &live, deadline, context).await
}

/// Reports whether a daemon of cketerm answers on this host, leading or not.
async fn daemon_answers(address: Option<&str>) -> bool {
    let Some(address) = address else { return false };
    let http = Http::verified(PAGE_TIMEOUT, PAGE_LIMIT);
    http.get(&format!("http://{address}/healthz")).await.is_ok_and(|answer| answer.status().is_success())
}

/// Reports whether this policy lets the program lead that is to lead.
fn allows(engine: EngineChoice, direction: Direction) -> bool {
    match (direction, engine) {
        (Direction::Take, EngineChoice::Cketerm | EngineChoice::Always) | (Direction::Give, EngineChoice::Cke) => true,
        (Direction::Take, EngineChoice::Cke) | (Direction::Give, EngineChoice::Cketerm | EngineChoice::Always) => false,
    }
}

/// Prints the findings, and what stops with CKE. Returns the number of blockers.
fn print_findings(
    store: &StoreView,
    direction: Direction,
    found: &[Finding],
    check: bool,
    context: &Context,
) -> Result<usize, ActionError> {
    let blockers = found.iter().filter(|finding| finding.level == Level::Blocker).count();
    let hosts: Vec<String> = cke_candidates(store).iter().map(described).collect();
    match context.output(Output::Table) {
        Output::Table => {
            context.print_message(&store.leadership().message);
            for finding in found {
                let sign = match finding.level {
                    Level::Blocker => "BLOCKER",
                    Level::Warning => "warning",
                    Level::Note => "note",
                };
                context.print_message(&format!("{sign}: {}", finding.text));
            }
            match direction {
                Direction::Take => {
                    context.print_message(&format!("note: with CKE stopped, {STOPS_WITH_CKE}"));
                    if check && !hosts.is_empty() {
                        context.print_message(&format!("note: CKE is to be stopped on {}", hosts.join(", ")));
                    }
                }
                Direction::Give => {}
            }
            if blockers == 0 {
                context.print_message(if check {
                    "the handover can begin; nothing was changed"
                } else {
                    "the checks passed"
                });
            }
        }
        form if check => {
            let stops = (direction == Direction::Take).then_some(STOPS_WITH_CKE);
            let value = json!({
                "possible": blockers == 0, "done": false, "leader": store.leadership().message, "findings": found,
                "cke": hosts, "stops_with_cke": stops,
            });
            context.out.value(&value, form)?;
        }
        Output::Json | Output::Yaml => {
            return Err(ActionError::misused("only `--check` has JSON and YAML: the handover itself prints its steps"));
        }
    }
    Ok(blockers)
}

/// Waits until the right program leads, and prints each step once.
async fn wait(direction: Direction, live: &Live, deadline: Instant, context: &Context) -> Result<(), ActionError> {
    let mut views = live.subscribe();
    let mut said = Vec::new();
    let mut trouble = None;
    loop {
        let view = views.borrow_and_update().clone();
        if view.error != trouble {
            if let Some(error) = &view.error {
                context.print_message(&format!("{error}; retrying"));
            }
            trouble.clone_from(&view.error);
        }
        if view.synced {
            if has_arrived(&view, direction) {
                context.print_message(&view.leadership().message);
                context.print_message(way_back(direction));
                return Ok(());
            }
            let lines = steps(&view, direction);
            if lines != said {
                for line in &lines {
                    context.print_message(line);
                }
                said = lines;
            }
        }
        match timeout_at(deadline, views.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(ActionError::failed("the watch of etcd ended: run the command again")),
            Err(_) => return Err(ActionError::failed(unfinished(&view, direction))),
        }
    }
}

/// Reports whether the right program leads and works: a cketerm that has migrated its records, or any CKE.
fn has_arrived(view: &StoreView, direction: Direction) -> bool {
    let Some(leader) = view.leader() else { return false };
    let lead = view.leadership().lead;
    match direction {
        Direction::Take => lead == LeaderKind::Cketerm && view.migrates(leader).is_none(),
        Direction::Give => lead == LeaderKind::Cke,
    }
}

/// Returns what the operator has to do or to wait for now.
fn steps(view: &StoreView, direction: Direction) -> Vec<String> {
    match direction {
        Direction::Take => {
            let cke = cke_candidates(view);
            if cke.is_empty() {
                let migrates = view.leader().and_then(|leader| view.migrates(leader));
                return vec![migrates.unwrap_or_else(|| {
                    "no CKE is left in the election; waiting for an engine of cketerm (systemctl start cketerm)"
                        .to_owned()
                })];
            }
            cke.iter().map(|one| format!("stop CKE on {}: systemctl stop cke", described(one))).collect()
        }
        Direction::Give => {
            if let Some(leader) = view.leader() {
                return vec![format!("{}; waiting for {}", view.leadership().message, leader.host)];
            }
            vec!["cketerm has resigned; start CKE where it is to run: systemctl start cke".to_owned()]
        }
    }
}

fn way_back(direction: Direction) -> &'static str {
    match direction {
        Direction::Take => "done; the way back: `cketerm engine give`",
        Direction::Give => "done; the way back: `cketerm engine take`",
    }
}

fn unfinished(view: &StoreView, direction: Direction) -> String {
    let (back, state) = match direction {
        Direction::Take if cke_candidates(view).is_empty() => {
            ("cke", "No CKE is left, but no engine of cketerm leads: start one (`systemctl start cketerm`)")
        }
        Direction::Take => ("cke", "cketerm leads as soon as no CKE is left in the election"),
        Direction::Give => ("cketerm", "CKE leads as soon as it is started and cketerm has resigned"),
    };
    format!(
        "not finished in time: {}. {state}. Run the command again to go on waiting, or `cketerm policy set engine {back}` to undo it",
        view.leadership().message
    )
}
