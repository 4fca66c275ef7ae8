//! The sandbox's CKE takes the decisions that the real CKE took in the recorded scenarios.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::names::Address;
use cketerm_sandbox::cke::queue::{Facts, Operation, reboot_operations, uncordoned};
use serde_json::{Value, json};

use super::scenes::{now, scenarios, snapshot, strings};

fn addresses(value: &Value) -> BTreeSet<Address> {
    strings(value).into_iter().map(Address::new).collect()
}

/// An operation in the recorded form: names and targets.
fn recorded_form(operation: &Operation, node: impl Fn(&u64) -> String) -> Vec<Value> {
    let form = |name: &str, entries: &[u64]| {
        let mut targets: Vec<String> = entries.iter().map(&node).collect();
        targets.sort();
        json!({"name": name, "targets": targets})
    };
    match operation {
        Operation::Uncordon(nodes) => vec![json!({"name": "reboot-uncordon", "targets": nodes})],
        Operation::Cancel(entries) => vec![form("reboot-cancel", entries)],
        Operation::Dequeue(entries) => vec![form("reboot-dequeue", entries)],
        Operation::Reboot(entries) => {
            vec![form("reboot-delete-daemonset-pod", entries), form("reboot-reboot", entries)]
        }
        Operation::DrainTimeout(entries) => vec![form("reboot-drain-timeout", entries)],
        Operation::DrainStart(entry) => vec![form("reboot-drain-start", &[*entry])],
    }
}

#[test]
fn the_sandboxs_cke_decides_as_the_recorded_one() {
    let (mut compared, mut differ) = (0, Vec::new());
    for row in scenarios() {
        let input = &row["input"];
        let store = snapshot(input).store;
        let entries: BTreeMap<_, _> =
            store.reboots.entries.iter().map(|(i, s)| (*i, s.get().unwrap().clone())).collect();
        let repairs = store.repairs.entries.values().filter_map(|s| s.get());
        let repairing = repairs.filter(|e| e.claims_machine()).map(|e| e.address.clone()).collect();
        let facts = Facts {
            cluster: &store.definition().unwrap().cluster,
            entries: &entries,
            enabled: input["reboot_enabled"] != json!(false),
            max_unreachable: input["maximum_unreachable_nodes_for_reboot"].as_i64().unwrap(),
            unreachable: &addresses(&input["unreachable"]),
            annotated: &addresses(&input["cordoned_with_annotation"]),
            repairing: &repairing,
            drained: &addresses(&input["nodes_without_pods_and_volumes"]),
            booted: &addresses(&input["nodes_with_boot_check_true"]),
            now: now(),
        };
        let node = |i: &u64| entries[i].node.to_string();
        let sorted = |mut list: Vec<Value>| {
            for operation in &mut list {
                let mut targets = strings(&operation["targets"]);
                targets.sort();
                operation["targets"] = json!(targets);
            }
            list.sort_by_key(ToString::to_string);
            list
        };
        let ours = sorted(reboot_operations(&facts).iter().flat_map(|o| recorded_form(o, node)).collect());
        let theirs = sorted(row["expected"]["reboot_ops"].as_array().unwrap().clone());
        let released: BTreeSet<Address> = uncordoned(&facts).into_iter().collect();
        if ours != theirs {
            differ.push(format!("{}: {} instead of {}", row["id"], json!(ours), json!(theirs)));
        }
        if released != addresses(&row["expected"]["uncordon"]) {
            differ.push(format!("{}: uncordons {released:?} instead of {}", row["id"], row["expected"]["uncordon"]));
        }
        compared += 1;
    }
    assert!(compared >= 160 && differ.is_empty(), "{} of {compared} differ:\n{}", differ.len(), differ.join("\n"));
}
