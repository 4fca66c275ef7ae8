//! `doctor`: checks everything that an engine on this host needs, and names the remedy of each failure. Writes nothing
//! and switches nothing.

mod configuration;
mod etcd;
mod power;
mod rights;
mod start_gates;
mod store_members;

pub use self::etcd::OWN_ETCD;

use cketerm_actions::ActionError;
use cketerm_rules::doctor::{Check, Checks, Outcome, Subject, checks};
use clap::Args;
use serde_json::json;

use super::{Context, observe::examine, options::Output, output::Lines};
use crate::backends::connect;

/// Arguments of `doctor`.
#[derive(Args, Clone, Copy, Debug)]
pub struct DoctorArgs {
    /// Print only what is not as it should be
    #[arg(long)]
    problems: bool,
}

/// Runs all checks and prints them. The exit status is 1 if one failed.
pub async fn run(args: &DoctorArgs, context: &Context) -> Result<(), ActionError> {
    let found = Box::pin(examined(Logins::Try, context)).await;
    print(&found, args.problems, context)
}

/// Prints the problems on standard error; none fails.
pub async fn report_problems(context: &Context) -> Result<(), ActionError> {
    let found = Box::pin(examined(Logins::Try, context)).await;
    let mut lines = Lines::default();
    found.0.iter().filter(|check| check.outcome != Outcome::Ok).for_each(|check| add(check, &mut lines));
    for line in lines.done().lines() {
        context.print_message(line);
    }
    Ok(())
}

/// Whether the machines' power drivers are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logins {
    /// A login at each.
    Try,
    /// None.
    Skip,
}

/// Returns all checks but those of the power drivers: no BMC gets a login.
pub(super) async fn without_logins(context: &Context) -> Vec<Check> {
    Box::pin(examined(Logins::Skip, context)).await.0
}

/// Returns the checks of these settings and of the servers behind them.
async fn examined(logins: Logins, context: &Context) -> Checks {
    let mut found = Checks::default();
    configuration::add(&context.settings, &mut found).await;
    if !context.settings.configured() {
        return found;
    }
    etcd::add(&context.settings.etcd, &mut found).await;
    match connect(&context.settings).await {
        Ok(backends) => {
            let seen = Box::pin(examine(&backends, context)).await;
            if let Some(kube) = &backends.kube {
                match kube.version().await {
                    Ok(version) => found.good(Subject::Kubernetes, format!("{} answers: {version}", kube.server())),
                    Err(e) => found.failed(
                        Subject::Kubernetes,
                        e.to_string(),
                        "correct `kubernetes` in the configuration, or let the API server answer",
                    ),
                }
            }
            if let Some(kube) = &backends.kube {
                rights::add(&seen.snapshot.store.policy(), kube, &mut found).await;
            }
            found.0.extend(checks(&seen, backends.kube.is_some()).0);
            start_gates::add(&seen.snapshot.store.policy(), &backends.prometheus, &mut found).await;
            if let Some(definition) = seen.snapshot.store.definition().filter(|_| logins == Logins::Try) {
                Box::pin(power::add(&definition.cluster, context, &mut found)).await;
            }
        }
        Err(e) => found.failed(Subject::Configuration, format!("{e:#}"), "correct the configuration"),
    }
    found.sort();
    found
}

fn print(found: &Checks, only_problems: bool, context: &Context) -> Result<(), ActionError> {
    let shown = found.0.iter().filter(|check| !only_problems || check.outcome != Outcome::Ok);
    match context.output(Output::Table) {
        Output::Table => {
            let mut lines = Lines::default();
            shown.for_each(|check| add(check, &mut lines));
            context.out.text(lines)?;
        }
        form => context.out.value(&json!({"checks": shown.collect::<Vec<_>>()}), form)?,
    }
    let counts = [Outcome::Ok, Outcome::Unknown, Outcome::Warning, Outcome::Failed].map(|outcome| found.count(outcome));
    let [ok, unknown, warnings, failed] = counts;
    let summary = format!("{ok} ok, {warnings} warnings, {unknown} not known, {failed} failed");
    if failed > 0 {
        return Err(ActionError::failed(summary));
    }
    context.print_message(&summary);
    Ok(())
}

fn add(check: &Check, lines: &mut Lines) {
    let sign = match check.outcome {
        Outcome::Ok => "ok",
        Outcome::Unknown => "unknown",
        Outcome::Warning => "WARNING",
        Outcome::Failed => "FAILED",
    };
    lines.line(format_args!("{sign:<8}{:<14} {}", check.subject.title(), check.text));
    if let Some(remedy) = &check.remedy {
        lines.line(format_args!("{:23}remedy: {remedy}", ""));
    }
}
