//! Evidence that a machine has booted.

use cketerm_model::{fault, kube::NodeRow, power_state::PowerState};
use jiff::Timestamp;

use super::driver::Machine;

/// Reports whether the machine booted after `since`, and the evidence. Being on proves nothing, because the power
/// command may have failed. The proof is a boot id other than the one that the drain recorded, or the BMC's time of its
/// last reset.
pub fn booted(
    machine: &Machine,
    node: Option<&NodeRow>,
    since: Timestamp,
    now: Timestamp,
    on_is_enough: bool,
) -> (bool, String) {
    // A driver that cannot tell, such as a node's agent, leaves it to the boot id.
    if !matches!(machine.power, PowerState::On | PowerState::Unknown) {
        return (false, format!("the machine is {}", machine.power));
    }
    if let Some((row, owner)) = node.and_then(|row| Some((row, row.owner()?)))
        && !owner.boot_id.is_empty()
        && !row.boot_id.is_empty()
    {
        let new = owner.boot_id != row.boot_id;
        fault!(AgentBelieved => new = new || {
            let answer = crate::kubernetes::agent_annotations(row).answer();
            answer.is_some_and(|answer| answer.obeyed && answer.boot_id == owner.boot_id)
        });
        let which = if new { "a different boot id than" } else { "the same boot id as" };
        return (new, format!("Node {} has {which} before the drain", row.name));
    }
    if machine.power == PowerState::Unknown {
        return (false, "the driver does not report whether the machine is on".to_owned());
    }
    if let Some(age) = machine.reset_age {
        let passed = now.duration_since(since);
        // One second of tolerance for the whole seconds of both clocks.
        let new = i128::try_from(age.as_millis()).is_ok_and(|age| age < passed.as_millis() - 1_000);
        return (new, format!("the BMC reports a reset {} s ago", age.as_secs()));
    }
    if on_is_enough {
        return (true, "the machine is on, and nothing else is known".to_owned());
    }
    let why = "no proof by the BMC (LastResetTime) or Kubernetes (boot id before the drain): see --on-is-enough";
    (false, why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cketerm_model::{kube::Owner, names::NodeName};

    use super::*;

    fn machine(power: PowerState, reset_age: Option<u64>) -> Machine {
        Machine::seen(power, reset_age.map(Duration::from_secs))
    }

    fn node(before: &str, now: &str) -> NodeRow {
        let owner = serde_json::json!(
            {"lease": 1, "entry": "reboots/1", "schedulable_before": true, "uid": "u", "boot_id": before}
        );
        NodeRow {
            name: NodeName::new("node-1"),
            boot_id: now.to_owned(),
            owner: Some(serde_json::from_value::<Owner>(owner).map_err(|e| e.to_string())),
            ..NodeRow::default()
        }
    }

    #[test]
    fn booted_needs_proof_and_power_on_is_none() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let since = Timestamp::from_second(999_000).unwrap();
        let on = |age| machine(PowerState::On, age);
        for (what, machine, node, enough, expected) in [
            ("off", machine(PowerState::Off, Some(10)), Some(node("a", "b")), true, false),
            (
                "an unknown power state and another boot id",
                machine(PowerState::Unknown, None),
                Some(node("a", "b")),
                false,
                true,
            ),
            (
                "an unknown power state and the same boot id",
                machine(PowerState::Unknown, None),
                Some(node("a", "a")),
                true,
                false,
            ),
            ("an unknown power state and nothing else", machine(PowerState::Unknown, Some(10)), None, true, false),
            ("neither the BMC nor Kubernetes shows a boot", on(None), None, false, false),
            ("no sign of a boot, but power on is enough", on(None), None, true, true),
            ("another boot id", on(None), Some(node("a", "b")), false, true),
            ("the same boot id", on(None), Some(node("a", "a")), true, false),
            ("the same boot id outranks the BMC's report", on(Some(10)), Some(node("a", "a")), false, false),
            ("the BMC reports a later reset", on(Some(10)), None, false, true),
            ("the BMC reports an earlier reset", on(Some(2_000)), None, true, false),
            ("no boot id was recorded", on(None), Some(node("", "b")), false, false),
            ("a Node without a cketerm record", on(None), Some(NodeRow::default()), false, false),
        ] {
            let (booted, why) = booted(&machine, node.as_ref(), since, now, enough);
            assert_eq!(booted, expected, "{what}: {why}");
        }
    }
}
