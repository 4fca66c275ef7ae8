//! `machines`: the machines that sabakan knows.

use std::collections::BTreeMap;

use cketerm_actions::ActionError;
use cketerm_clients::sabakan::Question;
use cketerm_model::names::Address;
use cketerm_sabakan::Machines;
use clap::Subcommand;
use serde_json::json;

use super::{Context, options::Output, output::columns, registry::look};

/// Subcommands about sabakan's machines.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum MachinesCommand {
    /// List the machines: state, role, rack, lifetime, place in the cluster, plan
    List,
}

/// Runs one of the subcommands.
pub async fn run(command: MachinesCommand, context: &Context) -> Result<(), ActionError> {
    match command {
        MachinesCommand::List => list(context).await,
    }
}

/// Prints sabakan's machines.
async fn list(context: &Context) -> Result<(), ActionError> {
    let look = look(context, Question::Members).await?;
    let now = look.store.clock().wall();
    let place = |address: &Address| {
        let definition = look.view.definition()?;
        let member = definition.members.by_address(&definition.cluster, address)?;
        Some(if member.control_plane { "control-plane" } else { "worker" })
    };
    // the machines are listed without a plan too; a missing template is no error
    let proposed = look.proposed();
    if let Err(why) = proposed.as_ref().map_err(|e| &e.text)
        && look.view.registry.template.is_some()
    {
        context.print_message(&format!("warning: no plan: {why}"));
    }
    let plans: BTreeMap<&str, (Option<&str>, String)> = proposed
        .iter()
        .flat_map(|p| &p.plan.nodes)
        .map(|c| {
            let what = match (c.was_control_plane, c.control_plane) {
                (Some(_), None) => Some("removed"),
                (None, Some(true)) => Some("added as control plane"),
                (None, Some(false)) => Some("added as worker"),
                (Some(true), Some(false)) => Some("demoted"),
                (Some(false), Some(true)) => Some("promoted"),
                (Some(true), Some(true)) | (Some(false), Some(false)) | (None, None) => None,
            };
            (c.address.as_str(), (what, c.why.to_string()))
        })
        .collect();
    match context.output(Output::Table) {
        Output::Table => {
            let rows = machines_of(&look.good.machines, now, &place, &plans);
            let header = ["Serial", "Address", "State", "For", "Role", "Rack", "Lifetime", "Place", "Plan"];
            context.out.text(columns(&header, &rows))
        }
        form => {
            let list: Vec<_> = look.good.machines.list.iter().map(|m| {
                let plan = plans.get(m.address.as_str());
                json!({
                    "serial": m.serial, "address": m.address, "state": m.state.as_str(), "seconds_in_state": m.duration,
                    "role": m.role, "rack": m.rack, "index_in_rack": m.index_in_rack, "lifetime_days": m.lifetime_days(now),
                    "place": place(&m.address), "plan": plan.map(|p| p.0.unwrap_or("stays")), "why": plan.map(|p| &p.1),
                })
            }).collect();
            context.out.value(&list, form)
        }
    }
}

fn machines_of(
    machines: &Machines,
    now: jiff::Timestamp,
    place: &impl Fn(&Address) -> Option<&'static str>,
    plans: &BTreeMap<&str, (Option<&str>, String)>,
) -> Vec<Vec<String>> {
    let row = |m: &cketerm_sabakan::Machine| {
        let plan = plans.get(m.address.as_str()).and_then(|p| p.0).map(str::to_owned);
        vec![
            m.serial.clone(),
            m.address.to_string(),
            m.state.as_str().to_owned(),
            span(m.duration.get()),
            m.role.clone(),
            m.rack.to_string(),
            format!("{} d", m.lifetime_days(now)),
            place(&m.address).unwrap_or("-").to_owned(),
            plan.unwrap_or_default(),
        ]
    };
    machines.list.iter().map(row).collect()
}

/// Formats a duration in its largest unit.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}
