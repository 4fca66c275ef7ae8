//! The registry of a stage: its settings, stored as an operator would, and changes of its machines.

use cketerm_actions::{ActionError, Operator};
use cketerm_model::stored::keys::SwitchName;
use cketerm_sandbox::{
    Sandbox,
    workload::{Population, Registry},
};
use serde_json::{Value, json};

use super::data::RegistryChange;

/// Makes every machine of a bare population a spare.
pub(super) fn move_nodes_to_spares(population: &mut Population) {
    let Some(registry) = population.registry.as_mut().filter(|r| r.bare) else { return };
    let workers = population.nodes.saturating_sub(population.control_planes);
    registry.minimum_workers.get_or_insert(workers * 2 / 3);
    registry.spares += std::mem::take(&mut population.nodes);
    population.workloads.clear();
    population.pods_per_node = 0;
}

/// Stores URL, template, constraints, policy and switches.
pub(super) async fn settings(
    operator: &Operator,
    registry: &Registry,
    workers: usize,
    definition: Value,
    url: &str,
) -> Result<(), ActionError> {
    operator.set_switch(SwitchName::Sabakan, registry.enabled, None).await?;
    operator.set_switch(SwitchName::AutoRepair, registry.enabled, None).await?;
    operator.set_sabakan_url(url, None).await?;
    let minimum = registry.minimum_workers.map_or(workers.max(1), |m| m.max(1) as usize);
    operator.set_constraint("minimum-workers", &minimum.to_string(), None).await?;
    operator.set_constraint("maximum-repair-queue-entries", &registry.repairs.to_string(), None).await?;
    // A machine that is unreachable because of its reboot needs no repair.
    operator.set_constraint("wait-seconds-to-repair-rebooting", "120", None).await?;
    operator.set_policy("sabakan_poll_seconds", "3", None).await?;
    operator.set_policy("removal_wait_seconds", "10", None).await?;
    operator.set_sabakan_template(&template(registry, definition).to_string(), None).await.map(drop)
}

/// Returns the template: the definition with one node for each role instead of its nodes.
fn template(registry: &Registry, mut definition: Value) -> Value {
    let mut counts: Vec<(&String, usize)> = Vec::new();
    for role in &registry.roles {
        match counts.iter_mut().find(|(r, _)| *r == role) {
            Some((_, count)) => *count += 1,
            None => counts.push((role, 1)),
        }
    }
    let labels = |role: &str| json!({"cke.cybozu.com/role": role});
    let first = registry.roles.first().map_or("", String::as_str);
    let mut nodes = vec![json!({"user": "cybozu", "control_plane": true, "labels": labels(first)})];
    for (role, count) in counts {
        let mut labels = labels(role);
        labels["cke.cybozu.com/weight"] = json!(format!("{count}.0"));
        nodes.push(json!({"user": "cybozu", "labels": labels}));
    }
    definition["nodes"] = Value::Array(nodes);
    definition
}

/// Applies one change.
pub(super) fn change(sandbox: &Sandbox, change: &RegistryChange) -> Result<(), String> {
    if let Some((serial, state)) = &change.state {
        let set = sandbox.sabakan.set_state(serial, *state);
        set.map_err(|e| format!("sabakan does not set {serial} to {}: {e:?}", state.name()))?;
    }
    if let Some(rack) = change.rack_gone {
        sandbox.sabakan.rack_gone(rack, &sandbox.machines);
    }
    Ok(())
}
