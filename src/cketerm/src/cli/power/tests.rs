use std::time::Duration;

use cketerm_model::{
    kube::Owner,
    names::{Address, NodeName},
    power_state::PowerState,
};

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

#[test]
fn an_address_claimed_by_two_nodes_is_refused() {
    let node = |name: &str, addresses: &[&str]| NodeRow {
        name: NodeName::new(name),
        addresses: addresses.iter().map(|a| Address::new(*a)).collect(),
        ..NodeRow::default()
    };
    let nodes = [node("w1", &["10.0.0.1", "w1"]), node("w2", &["10.0.0.2"]), node("evil", &["10.0.0.9", "10.0.0.1"])];
    assert!(duplicate_claim("10.0.0.1", &nodes).unwrap().contains("Nodes w1, evil all claim"));
    assert_eq!(duplicate_claim("10.0.0.2", &nodes), None);
    assert_eq!(duplicate_claim("10.0.0.3", &nodes), None);
}
