use std::sync::Arc;

use cketerm_model::{
    attempt::{Attempt, Ended},
    cketerm_records::Ending,
    cluster::{Cluster, Members, Node},
    entry::{EntryId, Stored},
    reboot::{RebootEntry, RebootStatus},
    stored::view::Definition,
    time::after,
};
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().unwrap()
}

/// A reboot that drained for 100 s, whose command ran for 2 s, and that booted after so many seconds.
fn booted(address: &str, boot: i64, control_plane: bool) -> Ending {
    let start = after(now(), -1000);
    let attempt = json!({
        "id": "a", "entry": "reboots/3", "number": 1, "address": address, "lease": 7, "host": "h", "argv": ["r"],
        "bound_seconds": 60, "drain_start": after(start, -100), "start": start, "control_plane": control_plane,
        "outcome": {"end": {"exit": 0}, "at": after(start, 2)},
    });
    let ending = json!({
        "entry": "reboots/3", "address": address, "end": "booted", "outcome": "booted", "at": after(start, 2 + boot),
        "last": {"drain_backoff_count": 1}, "attempts": [attempt],
    });
    serde_json::from_value(ending).unwrap()
}

fn class_of(address: &Address) -> MachineClass {
    let machine_type = if address.as_str() < "10.0.0.5" { "small" } else { "large" };
    MachineClass { machine_type: Some(machine_type.to_owned()), api_server: false }
}

fn class(machine_type: &str, api_server: bool) -> MachineClass {
    MachineClass { machine_type: Some(machine_type.to_owned()), api_server }
}

fn times(endings: &[Ending]) -> UsualTimes {
    UsualTimes::of(endings.iter().map(EndedTimes::of).collect(), class_of)
}

#[test]
fn the_phases_of_a_reboot_are_read_from_its_record() {
    let ended = EndedTimes::of(&booted("10.0.0.1", 40, false));
    let of = |phase| ended.seconds_of(phase);
    assert_eq!([Phase::Drain, Phase::Command, Phase::Boot, Phase::Whole].map(of), [100.0, 2.0, 40.0, 142.0].map(Some));
    assert_eq!(ended.backoffs, 1);
    let mut old = booted("10.0.0.1", 40, false);
    old.attempts[0].drain_start = None;
    let old = EndedTimes::of(&old);
    assert_eq!([Phase::Drain, Phase::Boot, Phase::Whole].map(|p| old.seconds_of(p)), [None, Some(40.0), None]);
}

/// A step with two tries, then a step with a drain: each step has its own durations.
#[test]
fn the_phases_of_a_repair_are_read_by_step() {
    let start = after(now(), -1000);
    let attempt = |number: u32, step: i64, at: i64, drain: Option<i64>, exit: i32| -> Attempt {
        serde_json::from_value(json!({
            "id": "a", "entry": "repairs/3", "number": number, "step": step, "address": "10.0.0.9", "lease": 7,
            "host": "h", "argv": ["r"], "bound_seconds": 60, "start": after(start, at), "machine_type": "R640",
            "operation": "unreachable", "drain_start": drain.map(|at| after(start, at)),
            "outcome": {"end": {"exit": exit}, "at": after(start, at + 3)},
        }))
        .unwrap()
    };
    let ending: Ending = serde_json::from_value(json!({
        "entry": "repairs/3", "address": "10.0.0.9", "end": "succeeded", "outcome": "succeeded",
        "at": after(start, 500), "last": {},
        "attempts": [attempt(1, 0, 0, None, 1), attempt(2, 0, 10, None, 0), attempt(3, 1, 300, Some(200), 0)],
    }))
    .unwrap();
    let ended = EndedTimes::of(&ending);
    let phase = |phase, step, seconds| PhaseTime { phase, step, seconds };
    assert_eq!(
        ended.phases,
        [
            phase(Phase::Command, Some(0), 3.0),
            phase(Phase::Command, Some(0), 3.0),
            phase(Phase::RepairStep, Some(0), 187.0),
            phase(Phase::Drain, Some(1), 100.0),
            phase(Phase::Command, Some(1), 3.0),
            phase(Phase::RepairStep, Some(1), 197.0),
            phase(Phase::Whole, None, 500.0),
        ]
    );
    assert_eq!(ended.class(class_of), class("R640", false), "a repair names its own machine type");
}

#[test]
fn a_success_command_and_one_that_never_began_are_no_phases() {
    let plain = booted("10.0.0.1", 40, false);
    let mut more = plain.clone();
    let mut withheld = plain.attempts[0].clone();
    withheld.outcome.as_mut().unwrap().end = Ended::Withheld("late".to_owned());
    let success = Attempt { success: true, ..plain.attempts[0].clone() };
    more.attempts = vec![withheld, plain.attempts[0].clone(), success];
    assert_eq!(EndedTimes::of(&more).phases, EndedTimes::of(&plain).phases);
}

#[test]
fn durations_are_known_by_machine_type_and_from_eight_on() {
    let small = (0..8).map(|i| booted("10.0.0.1", 20 + i, false));
    let large = (0..7).map(|_| booted("10.0.0.9", 200, false));
    let all: Vec<Ending> = small.chain(large).collect();
    let kind = |machine_type: &str| PhaseKind::reboot(Phase::Boot, class(machine_type, false));
    let usual = times(&all);
    let of = |kind: &PhaseKind| usual.of_kind(kind).map(|u| (u.median.as_secs(), u.samples));
    assert_eq!(of(&kind("small")), Some((23, 8)));
    assert_eq!(of(&kind("large")), Some((27, 15)), "seven are too few: all workers count");
    assert_eq!(of(&PhaseKind::reboot(Phase::Boot, class("small", true))), None, "an API server also settles");
    assert_eq!(times(&all[..7]).of_kind(&kind("small")), None);
}

#[test]
fn failed_and_cancelled_entries_are_not_usual() {
    let mut endings: Vec<Ending> = (0..8).map(|_| booted("10.0.0.1", 20, false)).collect();
    endings[0].end = cketerm_model::cketerm_records::EndKind::Cancelled;
    assert_eq!(times(&endings).of_kind(&PhaseKind::reboot(Phase::Boot, class("small", false))), None);
}

#[test]
fn a_phase_is_slow_beyond_one_and_a_half_times_the_p90() {
    let usual = Usual::of((1..=10).map(|i| f64::from(i) * 4.0).collect()).unwrap();
    let judged = |s| usual.judge(SignedDuration::from_secs(s));
    assert_eq!((usual.median.as_secs(), usual.p90.as_millis()), (22, 36_400));
    assert_eq!([judged(0), judged(54), judged(55)], [Pace::Usual, Pace::Usual, Pace::Slow]);
    let short = Usual::of(vec![0.2; 8]).unwrap();
    let of_short = |s| short.judge(SignedDuration::from_secs(s));
    assert_eq!([of_short(5), of_short(6)], [Pace::Usual, Pace::Slow], "stored times have whole seconds");
}

#[test]
fn elapsed_times_are_shown_beside_the_usual_ones() {
    let usual = |median: i64, p90: i64| Usual {
        median: SignedDuration::from_secs(median),
        p90: SignedDuration::from_secs(p90),
        samples: 9,
    };
    let text = |elapsed, usual: Usual| usual.compared(SignedDuration::from_secs(elapsed));
    assert_eq!(text(58, usual(20, 40)), "58s, usual 20–40s");
    assert_eq!(text(158, usual(112, 151)), "2m, usual 1m52s–2m31s");
    assert_eq!(text(3, usual(1, 1)), "3s, usual 1s");
    assert_eq!(text(7300, usual(50, 7300)), "2h01m, usual 50s–2h01m");
}

#[test]
fn the_last_day_counts_whole_times_of_one_queue() {
    let endings: Vec<Ending> = (0..9).map(|i| booted("10.0.0.1", 18 + i, false)).collect();
    let usual = times(&endings);
    let since = |ago: i64| usual.whole_since(QueueKind::Reboot, after(now(), -ago)).map(|u| u.median.as_secs());
    assert_eq!((since(86_400), since(10)), (Some(124), None));
    assert_eq!(usual.whole_since(QueueKind::Repair, after(now(), -86_400)), None);
}

#[test]
fn the_running_phase_follows_the_entry_and_its_newest_attempt() {
    let node = Node {
        address: Address::new("10.0.0.1"),
        labels: Some([("cke.cybozu.com/machine-type".to_owned(), "small".to_owned())].into()),
        ..Node::default()
    };
    let cluster = Cluster { nodes: vec![node], ..Cluster::default() };
    let stored = |value| Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) };
    let mut store = StoreView::default();
    let members = Members::of(&cluster);
    store.cluster =
        Some(Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(Definition { cluster, members })) });
    let (id, since) = (EntryId::reboot(3), after(now(), -100));
    let entry = RebootEntry::queued(3, &Address::new("10.0.0.1"));
    let put = |store: &mut StoreView, status| {
        store.reboots.entries.insert(3, stored(entry.moved_to(status, since)));
    };
    put(&mut store, RebootStatus::Queued);
    assert_eq!(running(&store, id), None);
    put(&mut store, RebootStatus::Draining);
    let found = running(&store, id).unwrap();
    assert_eq!((found.since, &found.kind), (since, &PhaseKind::reboot(Phase::Drain, class("small", false))));
    put(&mut store, RebootStatus::Rebooting);
    let attempt = booted("10.0.0.1", 1, false).attempts.remove(0);
    let open = Attempt { outcome: None, ..attempt.clone() };
    for (attempt, phase, since) in
        [(open, Phase::Command, attempt.start), (attempt.clone(), Phase::Boot, after(attempt.start, 2))]
    {
        let stored = Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(attempt)) };
        store.attempts.insert((id, 1), stored);
        let found = running(&store, id).unwrap();
        assert_eq!((found.kind.phase, found.since), (phase, since));
    }
}
