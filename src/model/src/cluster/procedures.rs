//! Look-up of the operation in the `repair` section that an entry names (REP-12, REP-13).

use super::{Operation, Procedure, Repair, Step};
use crate::secret;

impl Repair {
    /// Returns the operations for a machine type: those of the first procedure that names it, as in CKE. Returns `None`
    /// if no procedure does.
    pub fn operations_for(&self, machine_type: &str) -> Option<&[Operation]> {
        let named = |p: &&Procedure| p.machine_types.iter().flatten().any(|t| t == machine_type);
        let procedure = self.repair_procedures.iter().flatten().find(named)?;
        Some(procedure.repair_operations.as_deref().unwrap_or_default())
    }

    /// Returns the operation of that name for a machine type, or a message that names the known ones.
    pub fn operation(&self, machine_type: &str, operation: &str) -> Result<&Operation, String> {
        let known = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let Some(operations) = self.operations_for(machine_type) else {
            return Err(format!(
                "the definition has no repair procedure for the machine type {machine_type:?}; known types: {}",
                known(self.machine_types())
            ));
        };
        operations.iter().find(|o| o.operation == operation).ok_or_else(|| {
            format!(
                "the machine type {machine_type} has no repair operation {operation:?}; known operations: {}",
                known(operations.iter().map(|o| o.operation.as_str()).collect())
            )
        })
    }

    /// Returns all machine types of the procedures, in the definition's order, each once.
    pub fn machine_types(&self) -> Vec<&str> {
        let mut types: Vec<&str> = Vec::new();
        for name in self.repair_procedures.iter().flatten().flat_map(|p| p.machine_types.iter().flatten()) {
            if !types.contains(&name.as_str()) {
                types.push(name);
            }
        }
        types
    }
}

impl Operation {
    /// Returns its steps in order; empty if the definition has none.
    pub fn steps(&self) -> &[Step] {
        self.repair_steps.as_deref().unwrap_or_default()
    }

    /// Reports whether a machine may lose its disks: the operation's name, or a word of one of its commands, is one that
    /// sites use for an installation. The definition has no field for it.
    pub fn reinstalls(&self) -> bool {
        let commands = self.steps().iter().flat_map(|step| step.repair_command.iter().flatten());
        commands.chain([&self.operation]).any(|word| {
            let word = word.to_ascii_lowercase();
            INSTALLS.iter().any(|install| word.contains(install))
        })
    }

    /// Returns the step with that number, counted from 0.
    pub fn step(&self, number: i64) -> Option<&Step> {
        self.steps().get(usize::try_from(number).ok()?)
    }
}

/// Words for an installation of a machine.
const INSTALLS: [&str; 6] = ["reinstall", "reimage", "reprovision", "redeploy", "rebuild", "wipe"];

/// Describes the actions of each step on the machine at `address`, for display, for example `step 1: drain, then
/// power-cycle 10.0.0.1`.
pub fn describe_steps(steps: &[Step], address: &str) -> Vec<String> {
    let words = |(i, step): (usize, &Step)| {
        let mut words = Vec::new();
        if step.need_drain.unwrap_or(false) {
            words.push("drain".to_owned());
        }
        let argv = secret::argv(step.repair_command.as_deref().unwrap_or_default());
        words.push(if argv.is_empty() { "no command".to_owned() } else { format!("{argv} {address}") });
        match step.watch_seconds.unwrap_or(0) {
            0 => words.push("one health check".to_owned()),
            seconds => words.push(format!("check its health for {seconds}s")),
        }
        format!("step {}: {}", i + 1, words.join(", then "))
    };
    steps.iter().enumerate().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair() -> Repair {
        serde_json::from_value(serde_json::json!({"repair_procedures": [
            {"machine_types": ["QEMU", "iDRAC-9"], "repair_operations": [
                {"operation": "unreachable", "repair_steps": [{"repair_command": ["a"]}, {"repair_command": ["b"]}]},
                {"operation": "unhealthy"}]},
            {"machine_types": ["QEMU"], "repair_operations": [{"operation": "later"}]},
        ]}))
        .unwrap()
    }

    #[test]
    fn the_first_procedure_with_the_machine_type_supplies_the_operation() {
        let repair = repair();
        assert_eq!(repair.operation("iDRAC-9", "unreachable").unwrap().steps().len(), 2);
        assert_eq!(
            repair.operation("QEMU", "later").unwrap_err(),
            "the machine type QEMU has no repair operation \"later\"; known operations: unreachable, unhealthy"
        );
        assert_eq!(
            repair.operation("qemu", "unreachable").unwrap_err(),
            "the definition has no repair procedure for the machine type \"qemu\"; known types: QEMU, iDRAC-9"
        );
        assert!(Repair::default().operation("x", "y").unwrap_err().ends_with("known types: none"));
    }

    #[test]
    fn a_step_out_of_range_is_none() {
        let repair = repair();
        let operation = repair.operation("QEMU", "unreachable").unwrap();
        assert_eq!(operation.step(1).and_then(|s| s.repair_command.clone()), Some(vec!["b".to_owned()]));
        assert_eq!((operation.step(2), operation.step(-1)), (None, None));
    }
}
