//! Tests of notices: each kind, sent once, cleared, folded, limited; and the scene of a pass.

use std::collections::{BTreeMap, BTreeSet};

use cketerm_model::{
    attempt::Ended,
    boot_time::{BootTime, Seconds},
    cketerm_records::{EndKind, Ending},
    entry::{EntryId, Stored},
    names::NodeName,
    notice::{Kind, Leadership, Notice, NotifierState},
    reason::{CommandRetry, Reason},
    stored::{keys::Keys, row::Row, view::StoreView},
};
use jiff::Timestamp;
use serde_json::json;

use super::{
    due::{Endings, Memory, due, new_receiver},
    fold::{Bucket, begin, fold, remove_delivered},
    scene::{Condition, Scene, ended},
};
use crate::{decide::ApplyState, seen::Seen, snapshot::Leading};

fn all() -> BTreeSet<Kind> {
    Kind::CHOICE.into()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_780_000_000 + second).unwrap()
}

/// Returns a moment at which boot-0 leads and nothing else is to be notified.
#[allow(clippy::cast_precision_loss)]
fn scene(second: i64) -> Scene {
    Scene {
        at: at(second),
        boot: BootTime::new(second as f64),
        leader: Leadership { create_revision: 7, host: "boot-0".to_owned() },
        cluster_uid: Some("7f0a3c52-1f6e".to_owned()),
        ..Scene::default()
    }
}

fn condition(kind: Kind, key: &str, word: &str, settle: f64) -> (String, Condition) {
    let notice = Notice::new(kind, key.to_owned(), format!("{key} is active"), at(0));
    (key.to_owned(), Condition { notice, word: word.to_owned(), settle: Seconds::new(settle) })
}

/// A receiver that takes every notice at once.
struct TestReceiver {
    state: NotifierState,
    memory: Memory,
    kinds: BTreeSet<Kind>,
}

impl TestReceiver {
    /// Creates a receiver that knows the leader already.
    fn new() -> Self {
        let leader = Some(Leadership { create_revision: 7, host: "boot-0".to_owned() });
        Self { state: NotifierState { leader, ..new_receiver(at(0), 100) }, memory: Memory::default(), kinds: all() }
    }

    /// Returns the titles of the new notices at this moment, which are received at once.
    fn notify(&mut self, scene: &Scene, endings: &Endings) -> Vec<String> {
        self.state = due(&self.state, scene, endings, &self.kinds, &mut self.memory);
        std::mem::take(&mut self.state.pending).into_iter().map(|p| p.notice.title).collect()
    }

    fn observe(&mut self, second: i64, conditions: &[(String, Condition)]) -> Vec<String> {
        let scene = Scene { conditions: conditions.iter().cloned().collect(), ..scene(second) };
        self.notify(&scene, &Endings { complete: true, ..Endings::default() })
    }
}

const NO_NOTICES: [&str; 0] = [];

#[test]
fn a_new_leader_is_notified_once_with_its_predecessor() {
    let mut receiver = TestReceiver { state: new_receiver(at(0), 1), ..TestReceiver::new() };
    assert_eq!(receiver.observe(0, &[]), ["boot-0 leads"]);
    assert_eq!(receiver.observe(1, &[]), NO_NOTICES);
    let next = Scene { leader: Leadership { create_revision: 9, host: "boot-1".to_owned() }, ..scene(2) };
    assert_eq!(receiver.notify(&next, &Endings::default()), ["boot-1 leads, before: boot-0"]);
    assert_eq!(receiver.notify(&next, &Endings::default()), NO_NOTICES);
}

#[test]
fn a_brief_condition_is_not_notified_and_a_lasting_one_only_once() {
    let mut receiver = TestReceiver::new();
    let stuck = [condition(Kind::Stuck, "stuck/reboots/1/BlockedByPDB", "BlockedByPDB", 30.0)];
    assert_eq!(receiver.observe(0, &stuck), NO_NOTICES);
    assert_eq!(receiver.observe(10, &[]), NO_NOTICES, "it ended before a notice was due");
    assert_eq!(receiver.observe(20, &stuck), NO_NOTICES);
    assert_eq!(receiver.observe(49, &stuck), NO_NOTICES);
    assert_eq!(receiver.observe(50, &stuck), ["stuck/reboots/1/BlockedByPDB is active"]);
    assert_eq!(receiver.observe(500, &stuck), NO_NOTICES);
}

#[test]
fn a_resolved_condition_is_notified_after_a_minute_or_with_the_entrys_end() {
    let mut receiver = TestReceiver::new();
    let key = "stuck/reboots/1/BlockedByPDB";
    let stuck = [condition(Kind::Stuck, key, "BlockedByPDB", 0.0)];
    receiver.observe(0, &stuck);
    let mut there = scene(0);
    let (view, _) = view(&[("reboots/data/0000000000000001", ENTRY_1)]);
    there.store = view.into();
    let quiet = Endings { complete: true, ..Endings::default() };
    let mut observe = |second: i64, there: &Scene| {
        receiver.notify(&Scene { at: at(second), boot: scene(second).boot, ..there.clone() }, &quiet)
    };
    assert_eq!(observe(1, &there), NO_NOTICES);
    assert_eq!(observe(60, &there), NO_NOTICES, "it may return soon");
    assert_eq!(observe(61, &there), [format!("resolved: {key} is active")]);
    assert_eq!(observe(62, &there), NO_NOTICES);
    let mut receiver = TestReceiver::new();
    receiver.observe(0, &stuck);
    assert_eq!(receiver.observe(1, &[]), [format!("resolved: {key} is active")], "the entry no longer exists");
    assert!(receiver.state.marks.is_empty());
}

#[test]
fn retries_of_a_blocked_drain_give_one_notice() {
    let mut receiver = TestReceiver::new();
    let stuck = [condition(Kind::Stuck, "stuck/reboots/1/BlockedByPDB", "BlockedByPDB", 0.0)];
    assert_eq!(receiver.observe(0, &stuck).len(), 1);
    let (view, _) = view(&[("reboots/data/0000000000000001", ENTRY_1)]);
    let waits = Scene { undetermined: ["stuck/reboots/1/".to_owned()].into(), store: view.into(), ..scene(1) };
    for second in [1, 100, 1000] {
        let moment = Scene { at: at(second), boot: scene(second).boot, ..waits.clone() };
        assert_eq!(receiver.notify(&moment, &Endings::default()), NO_NOTICES);
    }
    assert_eq!(receiver.observe(1001, &stuck), NO_NOTICES, "the same blocker, not a new one");
}

#[test]
fn many_conditions_with_one_reason_are_grouped_until_all_are_resolved() {
    let mut receiver = TestReceiver::new();
    let invalid = |n: u32| -> Vec<_> {
        (0..n)
            .map(|i| condition(Kind::Stuck, &format!("stuck/reboots/{i}/InvalidEntry"), "InvalidEntry", 0.0))
            .collect()
    };
    assert_eq!(receiver.observe(0, &invalid(21)), ["21 at once: InvalidEntry"]);
    assert_eq!(receiver.observe(1, &invalid(3)), NO_NOTICES, "these entries are already notified");
    assert_eq!(receiver.observe(2, &[]), NO_NOTICES);
    assert_eq!(receiver.observe(62, &[]), ["resolved: 21 at once: InvalidEntry"]);
    assert_eq!(receiver.observe(63, &invalid(2)).len(), 2);
    // A condition with a notice of its own keeps it.
    assert_eq!(receiver.observe(64, &invalid(30)), ["30 at once: InvalidEntry"]);
    assert_eq!(receiver.state.marks.len(), 3);
}

#[test]
fn a_freeze_is_notified_when_it_starts_changes_and_ends() {
    let mut receiver = TestReceiver::new();
    let mut freeze = |second: i64, freeze: serde_json::Value| {
        let freeze = Some(freeze).filter(|f| !f.is_null());
        receiver.notify(&Scene { freeze, ..scene(second) }, &Endings::default())
    };
    assert_eq!(freeze(0, json!(null)), NO_NOTICES);
    let until = json!({"until": "2026-12-24T00:00:00Z", "reason": "end of year"});
    assert_eq!(freeze(1, until.clone()), ["frozen until 2026-12-24T00:00:00Z: end of year"]);
    assert_eq!(freeze(2, until), NO_NOTICES);
    assert_eq!(freeze(3, json!({"until": "2026-12-27T00:00:00Z"})), ["frozen until 2026-12-27T00:00:00Z"]);
    assert_eq!(freeze(4, json!("opaque")), ["frozen: \"opaque\""]);
    assert_eq!(freeze(5, json!(null)), ["the freeze has ended"]);
}

#[test]
fn approvals_and_broken_keys_are_notified_and_cleared() {
    let mut receiver = TestReceiver::new();
    let conditions = [
        condition(Kind::Approval, "approval/3f9a", "AwaitingApproval", 0.0),
        condition(Kind::Broken, "broken//cke/reboots/data/zz", "broken", 30.0),
    ];
    assert_eq!(receiver.observe(0, &conditions), ["approval/3f9a is active"]);
    assert_eq!(receiver.observe(30, &conditions), ["broken//cke/reboots/data/zz is active"]);
    assert_eq!(
        receiver.observe(31, &conditions[1..]),
        ["resolved: approval/3f9a is active"],
        "an approval is resolved at once"
    );
    assert_eq!(receiver.observe(32, &[]), NO_NOTICES);
    assert_eq!(receiver.observe(92, &[]), ["resolved: broken//cke/reboots/data/zz is active"]);
}

#[test]
fn a_failed_command_is_notified_once_even_if_its_entry_has_ended() {
    let command = |n: u32| {
        let key = format!("failed/reboots/1/{n}");
        (key.clone(), Notice::new(Kind::Failed, key.clone(), format!("{key} failed"), at(0)))
    };
    let mut receiver = TestReceiver::new();
    let there = Scene { commands: [command(1)].into(), ..scene(0) };
    assert_eq!(receiver.notify(&there, &Endings::default()), ["failed/reboots/1/1 failed"]);
    assert_eq!(receiver.notify(&there, &Endings::default()), NO_NOTICES);
    // The second command failed and the entry ended before any pass saw it.
    let end = Notice::new(Kind::Finished, "ended/reboots/1".to_owned(), "reboots/1 ended".to_owned(), at(1));
    let list = vec![(105, vec![command(1).1, command(2).1, end])];
    // The live copy of etcd shows already that the attempts are gone. Their marks are needed until the entry's end is
    // notified.
    assert_eq!(receiver.notify(&scene(1), &Endings::default()), NO_NOTICES);
    let ended = Endings { list, complete: true };
    assert_eq!(receiver.notify(&scene(2), &ended), ["failed/reboots/1/2 failed", "reboots/1 ended"]);
    assert_eq!((receiver.state.cursor, receiver.state.marks.len()), (105, 0));
}

#[test]
fn only_configured_kinds_are_notified() {
    let mut receiver = TestReceiver { kinds: [Kind::Stuck].into(), ..TestReceiver::new() };
    let stuck =
        [condition(Kind::Stuck, "stuck/reboots/1/X", "X", 0.0), condition(Kind::Approval, "approval/1", "A", 0.0)];
    assert_eq!(receiver.observe(0, &stuck), ["stuck/reboots/1/X is active"]);
    assert_eq!(receiver.state.marks.len(), 1, "it may subscribe to approvals later");
    assert_eq!(receiver.observe(100, &[]), NO_NOTICES, "the receiver did not subscribe to resolved notices");
    assert!(receiver.state.marks.is_empty());
    let freeze = Scene { freeze: Some(json!("x")), ..scene(101) };
    assert_eq!(receiver.notify(&freeze, &Endings::default()), NO_NOTICES);
    receiver.kinds = all();
    receiver.observe(102, &stuck[..1]);
    receiver.kinds = [Kind::Cleared].into();
    assert_eq!(receiver.observe(103, &[]), NO_NOTICES, "it subscribes no longer to what has ended");
}

#[test]
fn a_notice_keeps_its_unique_id_until_it_is_delivered() {
    let stuck = |n: u32| condition(Kind::Stuck, &format!("stuck/reboots/{n}/X"), "X", 0.0);
    let first = Scene { conditions: [stuck(1)].into(), ..scene(0) };
    let state = due(&TestReceiver::new().state, &first, &Endings::default(), &all(), &mut Memory::default());
    let mut begun = state.clone();
    let id = begin(&mut begun).unwrap().id;
    assert_eq!(id, "7f0a3c52-1780000000");
    // The leader dies before or after the notice was received; the next one finds this record.
    let later = Scene {
        conditions: [stuck(1), stuck(2)].into(),
        leader: Leadership { create_revision: 9, host: "boot-1".to_owned() },
        ..scene(100)
    };
    let mut next = due(&begun, &later, &Endings::default(), &all(), &mut Memory::default());
    fold(&mut next, &later, 1);
    assert_eq!(begin(&mut next).unwrap().id, id, "the begun notice is neither folded nor recreated");
    let ids: BTreeSet<String> = next.pending.iter().map(|p| p.notice.id.clone()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    remove_delivered(&mut next, &id);
    assert_eq!(next.pending.len(), 2);
}

#[test]
fn a_burst_is_folded_into_one_notice_with_counts() {
    let mut state = TestReceiver::new().state;
    let burst = Scene {
        conditions: (0..8)
            .map(|n| condition(Kind::Stuck, &format!("stuck/reboots/{n}/W{n}"), &format!("W{n}"), 0.0))
            .collect(),
        freeze: Some(json!("x")),
        ..scene(0)
    };
    state = due(&state, &burst, &Endings::default(), &all(), &mut Memory::default());
    assert_eq!(state.pending.len(), 9);
    let mut few = state.clone();
    fold(&mut few, &burst, 9);
    assert_eq!(few.pending.len(), 9, "no more notices than may be delivered");
    fold(&mut state, &burst, 0);
    assert_eq!(state.pending.len(), 9, "while nothing can be delivered, all notices stay");
    let mut two = state.clone();
    two.pending.truncate(2);
    fold(&mut two, &burst, 1);
    assert_eq!((two.pending.len(), two.pending[0].notice.count), (1, 2), "two are the fewest");
    fold(&mut state, &burst, 6);
    let one = &state.pending[0].notice;
    assert_eq!((state.pending.len(), one.kind, one.count), (1, Kind::Many, 9));
    assert_eq!(one.title, "9 notices: 1 freeze, 8 stuck");
    assert_eq!((one.ids.len(), one.text.lines().count()), (9, 9));
    assert_eq!(one.severity, cketerm_model::notice::Severity::Warning);
}

#[test]
fn a_long_outage_leaves_the_begun_notice_and_one_summary() {
    let mut state = TestReceiver::new().state;
    let mut memory = Memory::default();
    for n in 0..500_u32 {
        let key = format!("failed/reboots/{n}/1");
        let notice = Notice::new(Kind::Failed, key.clone(), format!("{key} failed"), at(0));
        let moment = Scene { commands: [(key, notice)].into(), ..scene(i64::from(n)) };
        state = due(&state, &moment, &Endings { complete: true, ..Endings::default() }, &all(), &mut memory);
        fold(&mut state, &moment, 0);
        begin(&mut state);
        assert!(state.pending.len() <= 52, "{}", state.pending.len());
    }
    fold(&mut state, &scene(500), 0);
    let first = state.pending[0].notice.id.clone();
    remove_delivered(&mut state, &first);
    fold(&mut state, &scene(500), 1);
    let summary = &state.pending[0].notice;
    assert_eq!((state.pending.len(), summary.count), (1, 499));
    assert!(summary.text.ends_with("and 479 more"), "{}", summary.text);
    assert!(summary.ids.len() <= 200 && serde_json::to_string(&state).unwrap().len() < 60_000);
}

#[test]
fn deliveries_are_limited_per_minute() {
    let may = |bucket: &mut Bucket, at: f64| bucket.may(BootTime::new(at));
    let mut bucket = Bucket::new(6, BootTime::ZERO);
    for _ in 0..6 {
        assert!(may(&mut bucket, 0.0) > 0);
        bucket.take();
    }
    assert_eq!((may(&mut bucket, 0.0), may(&mut bucket, 9.9), may(&mut bucket, 10.0)), (0, 0, 1));
    bucket.take();
    assert_eq!((may(&mut bucket, 19.0), may(&mut bucket, 1000.0)), (0, 6));
}

const ENTRY_1: &str = r#"{"index":"1","node":"10.0.0.1","status":"queued","drain_backoff_count":3}"#;

fn view(rows: &[(&str, &str)]) -> (StoreView, Keys) {
    let keys = Keys::new("/cke/");
    let mut view = StoreView::default();
    for ((key, value), revision) in rows.iter().zip(1..) {
        view.put(&keys, &Row::new(&format!("/cke/{key}"), value, revision, revision));
    }
    (view, keys)
}

fn seen(rows: &[(&str, &str)], reasons: &[(EntryId, Reason)]) -> Seen {
    let mut seen = Seen::default();
    seen.snapshot.store = view(rows).0.into();
    seen.snapshot.engine.host = "boot-0".to_owned();
    seen.snapshot.engine.leading = Some(Leading {
        key: "/cke/leader//1".to_owned(),
        create_revision: 7,
        since: BootTime::ZERO,
        acknowledged: BootTime::ZERO,
    });
    seen.reasons = std::sync::Arc::new(reasons.iter().cloned().collect());
    seen
}

const CLUSTER: &str = r#"{"name":"c1","nodes":[{"address":"10.0.0.1","hostname":"w1",
    "labels":{"cke.cybozu.com/role":"cs","cke.cybozu.com/rack":"3"}}]}"#;
const REQUEST: &str = r#"{"who":{"user":"anna","host":"ops"},"at":"2026-06-01T00:00:00Z","reason":"INC-1"}"#;

#[test]
fn a_notice_of_a_stuck_entry_names_machine_reason_and_requester() {
    let unknown = Reason::OutcomeUnknown { attempt: None, until: None };
    let rows =
        [("cluster", CLUSTER), ("reboots/data/0000000000000001", ENTRY_1), ("cketerm/requests/reboots/1", REQUEST)];
    let scene = Scene::of(&seen(&rows, &[(EntryId::reboot(1), unknown)])).unwrap();
    let n = &scene.conditions["stuck/reboots/1/OutcomeUnknown"].notice;
    assert_eq!(n.title, "reboots/1 on w1 needs an operator: OutcomeUnknown");
    let (address, node) = (n.address.as_deref().map(str::to_owned), n.node.as_deref().map(str::to_owned));
    let shown = [&n.entry, &n.queue, &address, &node, &n.role, &n.rack, &n.requested_by, &n.request_reason];
    let expected = ["reboots/1", "reboot", "10.0.0.1", "w1", "cs", "3", "anna@ops", "INC-1"];
    assert_eq!(shown.map(|v| v.as_deref().unwrap_or_default()), expected);
    assert_eq!(n.runbook.as_deref(), Some("docs/runbook.md#outcomeunknown"));
    assert!(scene.undetermined.contains("stuck/reboots/1/"), "its drain has backed off before");
    assert_eq!((scene.cluster.as_deref(), scene.leader.host.as_str()), (Some("c1"), "boot-0"));
}

#[test]
fn a_gate_of_a_whole_queue_is_one_condition_and_waiting_for_a_slot_is_none() {
    let gate = Reason::UnreachableGate { count: 3, limit: 1, names: [NodeName::new("w1")].into() };
    let backoff = |count| Reason::Backoff { count, until: at(0), cause: None, tried: None };
    let reasons = [
        (EntryId::reboot(1), gate.clone()),
        (EntryId::reboot(2), gate),
        (EntryId::reboot(3), Reason::QueueDisabled),
        (EntryId::reboot(4), backoff(2)),
        (EntryId::reboot(5), backoff(3)),
    ];
    let scene = Scene::of(&seen(&[], &reasons)).unwrap();
    let keys: Vec<&String> = scene.conditions.keys().collect();
    assert_eq!(keys, ["stuck/*/UnreachableGate", "stuck/reboots/5/Backoff"]);
    assert_eq!(scene.conditions["stuck/*/UnreachableGate"].notice.title, "2 entries wait: UnreachableGate");
}

/// The console, the gauge and the notices agree on which entries are stuck.
#[test]
fn a_transient_condition_is_notified_after_stuck_seconds() {
    let entry = r#"{"index":"1","node":"10.0.0.1","status":"draining","last_transition_time":"1970-01-01T00:00:00Z"}"#;
    let stuck_notices = |why: Reason, seconds: i64| {
        let mut seen = seen(&[("reboots/data/0000000000000001", entry)], &[(EntryId::reboot(1), why)]);
        seen.now.wall = Timestamp::from_second(seconds).unwrap();
        Scene::of(&seen).unwrap().conditions.len()
    };
    let budget = Reason::BlockedByPdb {
        pod: "shop/web-1".to_owned(),
        pdb: "shop/web".to_owned(),
        healthy: 2,
        needed: 2,
        cause: None,
    };
    let again = Reason::CommandFailed { end: Ended::Exit(1), stderr: String::new(), retry: CommandRetry::Scheduled };
    for why in [budget, again] {
        assert_eq!([60, 1799, 1800].map(|seconds| stuck_notices(why.clone(), seconds)), [0, 0, 1], "{why}");
    }
    let last = Reason::CommandFailed { end: Ended::Exit(1), stderr: String::new(), retry: CommandRetry::Never };
    assert_eq!(stuck_notices(last, 1), 1, "only a person can continue");
}

#[test]
fn a_follower_sends_no_notices() {
    let mut seen = seen(&[], &[]);
    seen.snapshot.engine.leading = None;
    assert_eq!(Scene::of(&seen), None);
}

#[test]
fn the_scene_contains_broken_keys_approvals_orphans_and_freezes() {
    let policy = json!({"freeze": {"until": "2026-06-02T00:00:00Z", "reason": "x"}}).to_string();
    let mut seen = seen(&[("reboots/data/zz", "{}"), ("cketerm/policy", &policy)], &[]);
    seen.applying = ApplyState::Approval("3f9a".to_owned(), "12 % of the nodes".to_owned()).into();
    let orphan = Reason::OrphanedCordon { node: "w2".to_owned(), entry: EntryId::reboot(1) };
    seen.orphans = BTreeMap::from([(NodeName::new("w2"), orphan)]).into();
    seen.now.wall = "2026-06-01T00:00:00Z".parse().unwrap();
    let scene = Scene::of(&seen).unwrap();
    let keys: Vec<&String> = scene.conditions.keys().collect();
    assert_eq!(keys, ["approval/3f9a", "broken//cke/reboots/data/zz", "stuck/node/w2/OrphanedCordon"]);
    assert_eq!(scene.conditions["approval/3f9a"].notice.text, "12 % of the nodes");
    assert!(scene.freeze.is_some());
    seen.now.wall = "2026-06-02T00:00:00Z".parse().unwrap();
    assert_eq!(Scene::of(&seen).unwrap().freeze, None, "the freeze has ended");
}

#[test]
fn an_ended_entry_gives_notices_of_its_failed_commands_and_its_outcome() {
    let attempt = |number: u32, end: serde_json::Value| {
        json!({"id": "a", "entry": "repairs/3", "number": number, "step": 1, "address": "10.0.0.1", "lease": 7, "host": "boot-0",
            "argv": ["ipmi", "10.0.0.1"], "bound_seconds": 60, "start": "2026-06-01T00:00:20Z",
            "outcome": {"end": end, "at": "2026-06-01T00:00:21Z", "stderr": "a\nno route\n"}})
    };
    let attempts =
        [attempt(1, json!({"exit": 1})), attempt(2, json!({"exit": 0})), attempt(3, json!({"unknown": "?"}))];
    let ending: Ending = serde_json::from_value(json!({"entry": "repairs/3", "address": "10.0.0.1", "last": {},
        "end": "failed", "outcome": "failed: no step is left", "at": "2026-06-01T00:00:30Z", "attempts": attempts}))
    .unwrap();
    let seen = seen(&[("cluster", CLUSTER)], &[]);
    let notices = ended(&seen.snapshot, &ending, at(0));
    let titles: Vec<(Kind, &str)> = notices.iter().map(|n| (n.kind, n.title.as_str())).collect();
    let expected = [
        (Kind::Failed, "command of step 2 of repairs/3 on w1 failed: exit 1"),
        (Kind::Failed, "repairs/3 on w1 ended: failed: no step is left"),
    ];
    assert_eq!(titles, expected);
    assert_eq!(notices[0].text, "ipmi 10.0.0.1: exit 1: no route");
    // A notice, which goes to a chat or into etcd, contains no password.
    let mut secret = ending.clone();
    secret.attempts[0].argv = ["ipmitool", "-U", "root", "-P", "hunter2", "power", "cycle"].map(str::to_owned).to_vec();
    if let Some(outcome) = &mut secret.attempts[0].outcome {
        outcome.stderr = "password=hunter2 was refused".to_owned();
    }
    let text = serde_json::to_string(&ended(&seen.snapshot, &secret, at(0))).unwrap();
    assert!(!text.contains("hunter2") && text.contains("ipmitool -U root"), "{text}");
    let good = Ending { end: EndKind::Booted, outcome: "booted".to_owned(), attempts: Vec::new(), ..ending };
    assert_eq!(ended(&seen.snapshot, &good, at(0))[0].kind, Kind::Finished);
    assert!(Stored::get(&Stored { key: String::new(), mod_revision: 1, value: Ok(good.into()) }).is_some());
}
