use cketerm_model::{boot_time::Seconds, names::Address};

use super::*;
use crate::tests::machine as sick;

const WAIT: i64 = 300;

fn constraints(cap: i64) -> Constraints {
    Constraints { maximum_repair_queue_entries: cap, wait_seconds_to_repair_rebooting: WAIT, ..Constraints::default() }
}

fn machine(n: u8, state: State, duration: f64) -> Machine {
    Machine { state, duration: Seconds::new(duration), ..sick(n) }
}

fn cluster(addresses: &[&str]) -> Cluster {
    let node = |a: &&str| cketerm_model::cluster::Node { address: Address::new(*a), ..Default::default() };
    Cluster { nodes: addresses.iter().map(node).collect(), ..Cluster::default() }
}

fn repair(address: &str, status: RepairStatus, deleted: bool) -> RepairEntry {
    let mut old = entry(&Machine { address: Address::new(address), ..sick(1) }, 4, None);
    (old.status, old.deleted) = (status, deleted);
    old
}

fn run(
    machines: &[Machine],
    repairs: &[RepairEntry],
    reboots: &[RebootEntry],
    members: &[&str],
    cap: i64,
) -> RepairPlan {
    let current = cluster(members);
    let constraints = constraints(cap);
    plan_repairs(&RepairInput {
        machines,
        constraints: &constraints,
        repairs,
        reboots,
        current: Some(&current),
        excluded: &BTreeMap::from([(Address::new("10.0.0.77"), "its BareMetalHost is held off by a".to_owned())]),
        next_index: 7,
    })
}

/// REP-53: the entry's fields come from sabakan's machine.
#[test]
fn a_repair_entry_takes_its_fields_from_sabakans_machine() {
    let machines = [machine(2, State::Unreachable, 900.0), machine(1, State::Unhealthy, 0.0)];
    let plan = run(&machines, &[], &[], &["10.0.0.1"], 9);
    let text = serde_json::to_string(&plan.entries[0]).unwrap();
    assert!(text.starts_with(r#"{"index":"7","address":"10.0.0.1","nodename":"10.0.0.1","serial":"SN01","machine_type":"iDRAC-9","operation":"unhealthy","status":"queued","step":0,"step_status":"waiting","deleted":false"#), "{text}");
    assert_eq!((plan.entries[1].index, plan.entries[1].operation.as_str()), (8, "unreachable"));
    assert_eq!(plan.entries[1].nodename, "", "not a member");
}

/// REP-46, I42: a machine with any repair entry is skipped.
#[test]
fn a_machine_with_any_entry_is_skipped() {
    for (status, deleted) in
        [(RepairStatus::Queued, false), (RepairStatus::Succeeded, false), (RepairStatus::Failed, true)]
    {
        let plan = run(&[machine(1, State::Unhealthy, 900.0)], &[repair("10.0.0.1", status, deleted)], &[], &[], 9);
        assert_eq!(plan.entries, []);
        assert!(plan.skipped[0].why.contains("repair entry 4"), "{:?}", plan.skipped);
    }
}

/// REP-48 to REP-50, I42: a machine that became unreachable only lately, by cketerm's own reboot.
#[test]
fn a_young_unreachable_machine_is_skipped_where_there_is_another_cause() {
    let reboot = |status| RebootEntry { status, ..RebootEntry::queued(0, &Address::new("10.0.0.1")) };
    let member: &[&str] = &["10.0.0.1"];
    for (state, duration, reboots, members, added) in [
        (State::Unreachable, 299.9, vec![reboot(RebootStatus::Rebooting)], member, false),
        (State::Unreachable, 300.0, vec![reboot(RebootStatus::Rebooting)], member, true),
        (State::Unreachable, 10.0, vec![reboot(RebootStatus::Draining)], member, true),
        (State::Unreachable, 10.0, vec![], member, true),
        (State::Unreachable, 10.0, vec![], &[], false),
        (State::Unreachable, 300.0, vec![], &[], true),
        (State::Unhealthy, 0.0, vec![reboot(RebootStatus::Rebooting)], &[], true),
    ] {
        let plan = run(&[machine(1, state, duration)], &[], &reboots, members, 9);
        assert_eq!(plan.entries.len(), usize::from(added), "{state} {duration} {reboots:?} {members:?}");
        assert_eq!(plan.skipped.len(), usize::from(!added));
    }
}

/// REP-52, I42: above the limit none is added, and the plan says so.
#[test]
fn above_the_cap_no_repair_is_added_and_the_reason_is_given() {
    let machines = [machine(1, State::Unhealthy, 1.0), machine(2, State::Unhealthy, 1.0)];
    let old = [repair("10.9.9.9", RepairStatus::Succeeded, false)];
    assert_eq!(run(&machines, &old, &[], &[], 3).entries.len(), 2);
    let plan = run(&machines, &old, &[], &[], 2);
    assert_eq!((plan.entries.len(), plan.skipped.len()), (0, 2));
    assert!(plan.capped.unwrap().contains("1 entries and 2 new ones exceed maximum-repair-queue-entries 2"));
    assert_eq!(run(&machines, &[], &[], &[], 0).entries, [], "the default adds none");
    assert_eq!(run(&[], &old, &[], &[], 0).capped, None, "nothing to add is not above the cap");
}

/// REP-49: CKE looks at the first entry only (I42).
#[test]
fn a_young_machine_with_a_rebooting_entry_is_not_added() {
    let entry = |index, status| RebootEntry { status, ..RebootEntry::queued(index, &Address::new("10.0.0.1")) };
    let reboots = [entry(2, RebootStatus::Rebooting), entry(0, RebootStatus::Cancelled)];
    let machines = [machine(1, State::Unreachable, 10.0), machine(2, State::Unhealthy, 1.0)];
    let plan = run(&machines, &[], &reboots, &["10.0.0.1"], 2);
    assert_eq!(plan.entries.iter().map(|e| e.address.as_str()).collect::<Vec<_>>(), ["10.0.0.2"]);
    assert!(plan.skipped[0].why.contains("it is being rebooted"), "{:?}", plan.skipped);
    // a skipped machine does not count towards the limit either
    assert_eq!(run(&machines, &[], &reboots, &["10.0.0.1"], 1).entries.len(), 1);
}

/// REP-47, I44: a repair could power on a machine that a client holds off through Metal3.
#[test]
fn i44_a_machine_held_by_its_host_is_not_repaired_and_does_not_count_to_the_cap() {
    let held = Machine { address: Address::new("10.0.0.77"), ..machine(1, State::Unreachable, 9000.0) };
    let plan = run(&[held, machine(2, State::Unreachable, 9000.0)], &[], &[], &["10.0.0.77", "10.0.0.2"], 1);
    assert_eq!(plan.entries.iter().map(|e| e.address.as_str()).collect::<Vec<_>>(), ["10.0.0.2"]);
    assert_eq!((plan.skipped[0].address.as_str(), plan.capped), ("10.0.0.77", None));
    assert!(plan.skipped[0].why.contains("held off by a"), "{:?}", plan.skipped);
}
