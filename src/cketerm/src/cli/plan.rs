//! `sabakan plan` and `auto-repair plan` from files, without any server.

#![allow(clippy::doc_markdown)] // these comments are the help texts: no backticks there

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use cketerm_actions::{ActionError, unknown_constraint};
use cketerm_model::{
    cluster::{self, Cluster, Taint, written},
    constraints::Constraints,
    names::{Address, NodeName},
    policy::Strategy,
    reboot::RebootEntry,
    repair::RepairEntry,
};
use cketerm_sabakan::{
    Choice, Input, Machines, Plan, PlanError, RepairInput, RepairPlan, Template, Unused, machine, plan, plan_repairs,
    unused,
};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Context,
    input_file::read,
    options::Output,
    output::{Lines, columns},
};

/// Sources of a plan of the definition.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Plan from this file of sabakan's machines (JSON); contacts no server
    #[arg(long, value_name = "FILE")]
    pub machines: Option<PathBuf>,
    /// Template (YAML or JSON)
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub template: Option<PathBuf>,
    /// Constraints (YAML or JSON); without it, the defaults
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub constraints: Option<PathBuf>,
    /// Definition in force (YAML or JSON); without it, a first definition is planned
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub current: Option<PathBuf>,
    /// NodeList of Kubernetes (JSON), for the taints that all-healthy respects
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub kubernetes_nodes: Option<PathBuf>,
    /// Addresses of machines being drained or rebooted, comma-separated
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', requires = "machines")]
    pub rebooting: Vec<String>,
    /// Assume that the template is newer than the definition
    #[arg(long, requires = "machines")]
    pub template_changed: bool,
    /// Seconds in state retiring or retired before a machine is removed [default: 300]
    #[arg(long, value_name = "N", requires = "machines")]
    pub wait_seconds: Option<u64>,
    /// Strategy [default: weighted]
    #[arg(long, value_name = "NAME", requires = "machines")]
    pub strategy: Option<StrategyName>,
    /// Time at which to compute the machines' lifetimes (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME", requires = "machines")]
    pub now: Option<Timestamp>,
}

/// The strategies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StrategyName {
    /// As many workers as the constraints require, in the ratio of the weights
    Weighted,
    /// Every healthy machine of a templated role
    AllHealthy,
}

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Self {
        match name {
            StrategyName::Weighted => Self::Weighted,
            StrategyName::AllHealthy => Self::AllHealthy,
        }
    }
}

/// Sources of a plan of automatic repair.
#[derive(Args, Clone, Debug)]
pub struct RepairPlanArgs {
    /// Plan from this file of sabakan's machines (JSON); contacts no server
    #[arg(long, value_name = "FILE")]
    pub machines: Option<PathBuf>,
    /// Constraints (YAML or JSON); without it, the defaults
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub constraints: Option<PathBuf>,
    /// Entries of the repair queue (JSON list)
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub repairs: Option<PathBuf>,
    /// Entries of the reboot queue (JSON list)
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub reboots: Option<PathBuf>,
    /// Definition in force (YAML or JSON); without it, no machine is a member
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub current: Option<PathBuf>,
    /// Time (RFC 3339), only for durations in sabakan's data
    #[arg(long, value_name = "TIME", requires = "machines")]
    pub now: Option<Timestamp>,
}

/// `sabakan plan --machines FILE …`: prints the plan from files.
pub fn plan_from_files(args: &PlanArgs, machines: &Path, context: &Context) -> Result<(), ActionError> {
    let template = args
        .template
        .as_ref()
        .ok_or_else(|| ActionError::misused("sabakan plan --machines also needs --template FILE"))?;
    let template = Template::read(&read(template)?).map_err(|e| file_error(template, &e))?;
    let constraints = constraints(args.constraints.as_deref(), context)?;
    let current = args.current.as_deref().map(value::<Cluster>).transpose()?;
    let nodes = args.kubernetes_nodes.as_deref().map(taints).transpose()?;
    let rebooting: BTreeSet<Address> = args.rebooting.iter().map(|a| Address::new(a.trim())).collect();
    let shown = |error: String| print_plan(context, &failed(&error), &[], &[], Some(error));
    let machines = match machine::read(&read(machines)?) {
        Ok(machines) => machines,
        Err(e) => return shown(format!("{}: {e}", machines.display())),
    };
    let input = Input {
        machines: &machines.list,
        template: &template,
        constraints: &constraints,
        current: current.as_ref(),
        kubernetes_nodes: nodes.as_ref(),
        rebooting: &rebooting,
        template_changed: args.template_changed,
        wait_seconds: args.wait_seconds.unwrap_or(300),
        strategy: args.strategy.map_or(Strategy::Weighted, Into::into),
        now: args.now.unwrap_or_else(Timestamp::now),
    };
    show_plan(&input, plan(&input), &machines, context)
}

/// Prints a plan from any input. Without a plan it returns `error` as exit status 1.
pub fn show_plan(
    input: &Input<'_>,
    result: Result<Plan, PlanError>,
    machines: &Machines,
    context: &Context,
) -> Result<(), ActionError> {
    match result {
        Ok(mut plan) => {
            let others = unused(input, &plan);
            if plan.cluster.is_none() {
                plan.cluster = input.current.cloned();
            }
            print_plan(context, &plan, &others, &machines.warnings, None)
        }
        Err(e) => print_plan(context, &failed(&e.to_string()), &[], &machines.warnings, Some(e.to_string())),
    }
}

fn failed(error: &str) -> Plan {
    Plan {
        action: cketerm_sabakan::Action::None,
        reason: error.to_owned(),
        changed: false,
        cluster: None,
        nodes: Vec::new(),
        warnings: Vec::new(),
    }
}

fn print_plan(
    context: &Context,
    plan: &Plan,
    others: &[Unused],
    ignored: &[String],
    error: Option<String>,
) -> Result<(), ActionError> {
    match context.output(Output::Table) {
        Output::Table if error.is_none() => {
            for warning in ignored.iter().chain(&plan.warnings) {
                context.print_message(&format!("warning: {warning}"));
            }
            context.out.text(table(plan, others))?;
        }
        Output::Table => {}
        form => {
            let cluster = plan.cluster.as_ref().map(serde_json::to_value).transpose();
            let cluster = cluster.map_err(|e| ActionError::failed(format!("the definition cannot be written: {e}")))?;
            let warnings: Vec<&String> = ignored.iter().chain(&plan.warnings).collect();
            context.out.value(
                &json!({
                    "action": plan.action, "reason": plan.reason, "changed": plan.changed,
                    "cluster": cluster.as_ref().map(written), "nodes": plan.nodes, "unused": others,
                    "warnings": warnings, "error": error,
                }),
                form,
            )?;
        }
    }
    error.map_or(Ok(()), |e| Err(ActionError::failed(format!("no plan: {e}; the definition in force stays"))))
}

fn table(plan: &Plan, others: &[Unused]) -> String {
    let mut out = Lines::default();
    out.line(format_args!("action: {}", plan.action));
    out.line(format_args!("reason: {}", plan.reason));
    for (name, plane) in [("control planes", true), ("workers", false)] {
        let members: Vec<&Choice> = plan.nodes.iter().filter(|c| c.control_plane == Some(plane)).collect();
        let mut roles: BTreeMap<&str, usize> = BTreeMap::new();
        for member in &members {
            *roles.entry(&member.role).or_default() += 1;
        }
        let roles: Vec<String> = roles.iter().map(|(role, n)| format!("{role} {n}")).collect();
        out.line(format_args!("{name}: {} ({})", members.len(), roles.join(", ")));
    }
    out.line("");
    let mut rows: Vec<Vec<String>> = Vec::new();
    let role_name = |plane: Option<bool>| match plane {
        Some(true) => "control-plane",
        Some(false) => "worker",
        None => "-",
    };
    let score = |n: Option<i64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for c in &plan.nodes {
        let serial = c.serial.clone().unwrap_or_default();
        let row = vec![c.address.to_string(), serial, c.role.clone(), role_name(c.was_control_plane).to_owned()];
        rows.push([row, vec![role_name(c.control_plane).to_owned(), score(c.score), c.why.to_string()]].concat());
    }
    for u in others {
        let row = vec![u.address.to_string(), u.serial.clone(), u.role.clone(), "-".to_owned(), "-".to_owned()];
        rows.push([row, vec![score(u.score), u.why.clone()]].concat());
    }
    out.table(&columns(&["Address", "Serial", "Role", "Was", "Place", "Score", "Why"], &rows));
    out.done()
}

/// `auto-repair plan --machines FILE …`: prints the plan from files.
pub fn repairs_from_files(args: &RepairPlanArgs, machines: &Path, context: &Context) -> Result<(), ActionError> {
    let machines = machine::read(&read(machines)?).map_err(|e| file_error(machines, &e))?;
    let constraints = constraints(args.constraints.as_deref(), context)?;
    let repairs: Vec<RepairEntry> = args.repairs.as_deref().map(value).transpose()?.unwrap_or_default();
    let reboots: Vec<RebootEntry> = args.reboots.as_deref().map(value).transpose()?.unwrap_or_default();
    let current = args.current.as_deref().map(value::<Cluster>).transpose()?;
    let result = plan_repairs(&RepairInput {
        machines: &machines.list,
        constraints: &constraints,
        repairs: &repairs,
        reboots: &reboots,
        current: current.as_ref(),
        excluded: &BTreeMap::new(),
        next_index: repairs.iter().map(|e| e.index + 1).max().unwrap_or(0),
    });
    show_repairs(&result, &machines, context)
}

/// Prints the plan of automatic repair from any input.
pub fn show_repairs(result: &RepairPlan, machines: &Machines, context: &Context) -> Result<(), ActionError> {
    for warning in &machines.warnings {
        context.print_message(&format!("warning: {warning}"));
    }
    match context.output(Output::Table) {
        Output::Table => {
            if let Some(why) = &result.capped {
                context.out.line(why)?;
            }
            let entries = result.entries.iter().map(|e| {
                let serial = e.serial.clone().unwrap_or_default();
                vec![e.address.to_string(), serial, e.operation.clone(), "added".to_owned(), e.machine_type.clone()]
            });
            let skipped = result.skipped.iter().map(|s| {
                vec![s.address.to_string(), s.serial.clone(), s.state.to_string(), "skipped".to_owned(), s.why.clone()]
            });
            let rows: Vec<Vec<String>> = entries.chain(skipped).collect();
            context.out.text(columns(&["Address", "Serial", "State", "Decision", "Why"], &rows))
        }
        form => context.out.value(result, form),
    }
}

/// Returns the constraints of a file, else the defaults. Unknown names cause a warning: they change no plan, but may be
/// misspelt.
fn constraints(file: Option<&Path>, context: &Context) -> Result<Constraints, ActionError> {
    let Some(file) = file else { return Ok(Constraints::default()) };
    let constraints: Constraints = value(file)?;
    for name in constraints.unknown.keys() {
        context.print_message(&format!("warning: {}: {}; ignored", file.display(), unknown_constraint(name)));
    }
    Ok(constraints)
}

/// Parses a file's YAML or JSON into a typed value.
fn value<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, ActionError> {
    let text = read(file)?;
    let parsed: Value = cluster::parse(&text).map_err(|e| file_error(file, &e))?;
    serde_json::from_value(parsed).map_err(|e| file_error(file, &e))
}

/// Returns the taints of a `NodeList` by Node name.
fn taints(file: &Path) -> Result<BTreeMap<NodeName, Vec<Taint>>, ActionError> {
    #[derive(serde::Deserialize)]
    struct List {
        items: Vec<Item>,
    }
    #[derive(serde::Deserialize)]
    struct Item {
        metadata: Metadata,
        #[serde(default)]
        spec: Spec,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        name: String,
    }
    #[derive(Default, serde::Deserialize)]
    struct Spec {
        #[serde(default)]
        taints: Option<Vec<Taint>>,
    }
    let list: List = value(file)?;
    Ok(list.items.into_iter().map(|n| (NodeName::new(n.metadata.name), n.spec.taints.unwrap_or_default())).collect())
}

fn file_error(file: &Path, e: &dyn std::fmt::Display) -> ActionError {
    ActionError::failed(format!("{}: {e}", file.display()))
}
