//! Tests of notices: each kind, sent once, cleared, folded, limited; and the scene of a pass.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::json;

use super::{
    due::{Endings, Memory, due, stranger},
    fold::{Bucket, begin, done, fold},
    scene::{Level, Scene, ended},
};
use crate::{
    engine::{
        decide::Applying,
        snapshot::{Leading, Seen},
    },
    model::{
        attempt::Ended,
        cketerm_records::{EndKind, Ending},
        entry::{EntryId, Stored},
        notice::{Kind, Leadership, Notice, NotifierState},
        reason::{CommandRetry, Reason},
    },
    store::{apply::Row, keys::Keys, view::StoreView},
};

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
        boot: second as f64,
        leader: Leadership { create_revision: 7, host: "boot-0".to_owned() },
        cluster_uid: Some("7f0a3c52-1f6e".to_owned()),
        ..Scene::default()
    }
}

fn level(kind: Kind, key: &str, word: &str, settle: f64) -> (String, Level) {
    let notice = Notice::new(kind, key.to_owned(), format!("{key} is so"), at(0));
    (key.to_owned(), Level { notice, word: word.to_owned(), settle })
}

/// A receiver that takes every notice at once.
struct Story {
    told: NotifierState,
    memory: Memory,
    kinds: BTreeSet<Kind>,
}

impl Story {
    /// Creates a receiver that knows the leader already.
    fn new() -> Self {
        let leader = Some(Leadership { create_revision: 7, host: "boot-0".to_owned() });
        Self { told: NotifierState { leader, ..stranger(at(0), 100) }, memory: Memory::default(), kinds: all() }
    }

    /// Returns the titles of the new notices at this moment, which are received at once.
    fn tell(&mut self, scene: &Scene, endings: &Endings) -> Vec<String> {
        self.told = due(&self.told, scene, endings, &self.kinds, &mut self.memory);
        std::mem::take(&mut self.told.pending).into_iter().map(|p| p.notice.title).collect()
    }

    fn look(&mut self, second: i64, levels: &[(String, Level)]) -> Vec<String> {
        let scene = Scene { levels: levels.iter().cloned().collect(), ..scene(second) };
        self.tell(&scene, &Endings { complete: true, ..Endings::default() })
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_new_leader_is_told_once_and_the_one_before_is_named() {
    let mut story = Story { told: stranger(at(0), 1), ..Story::new() };
    assert_eq!(story.look(0, &[]), ["boot-0 leads"]);
    assert_eq!(story.look(1, &[]), NOTHING);
    let next = Scene { leader: Leadership { create_revision: 9, host: "boot-1".to_owned() }, ..scene(2) };
    assert_eq!(story.tell(&next, &Endings::default()), ["boot-1 leads, before: boot-0"]);
    assert_eq!(story.tell(&next, &Endings::default()), NOTHING);
}

#[test]
fn what_passes_by_itself_is_not_told_and_what_stays_is_told_once() {
    let mut story = Story::new();
    let stuck = [level(Kind::Stuck, "stuck/reboots/1/BlockedByPDB", "BlockedByPDB", 30.0)];
    assert_eq!(story.look(0, &stuck), NOTHING);
    assert_eq!(story.look(10, &[]), NOTHING, "it was gone before it was worth a word");
    assert_eq!(story.look(20, &stuck), NOTHING);
    assert_eq!(story.look(49, &stuck), NOTHING);
    assert_eq!(story.look(50, &stuck), ["stuck/reboots/1/BlockedByPDB is so"]);
    assert_eq!(story.look(500, &stuck), NOTHING);
}

#[test]
fn what_is_over_is_told_after_a_minute_or_at_once_where_the_entry_has_gone() {
    let mut story = Story::new();
    let key = "stuck/reboots/1/BlockedByPDB";
    let stuck = [level(Kind::Stuck, key, "BlockedByPDB", 0.0)];
    story.look(0, &stuck);
    let mut there = scene(0);
    let (view, _) = view(&[("reboots/data/0000000000000001", ENTRY_1)]);
    there.store = view.into();
    let quiet = Endings { complete: true, ..Endings::default() };
    let mut look = |second: i64, there: &Scene| {
        story.tell(&Scene { at: at(second), boot: f64::from(i32::try_from(second).unwrap()), ..there.clone() }, &quiet)
    };
    assert_eq!(look(1, &there), NOTHING);
    assert_eq!(look(60, &there), NOTHING, "it may be back in a moment");
    assert_eq!(look(61, &there), [format!("resolved: {key} is so")]);
    assert_eq!(look(62, &there), NOTHING);
    let mut story = Story::new();
    story.look(0, &stuck);
    assert_eq!(story.look(1, &[]), [format!("resolved: {key} is so")], "no such entry any more");
    assert!(story.told.marks.is_empty());
}

#[test]
fn a_blocked_drain_that_is_tried_again_is_one_story() {
    let mut story = Story::new();
    let stuck = [level(Kind::Stuck, "stuck/reboots/1/BlockedByPDB", "BlockedByPDB", 0.0)];
    assert_eq!(story.look(0, &stuck).len(), 1);
    let (view, _) = view(&[("reboots/data/0000000000000001", ENTRY_1)]);
    let waits = Scene { unsure: ["stuck/reboots/1/".to_owned()].into(), store: view.into(), ..scene(1) };
    for second in [1, 100, 1000] {
        let moment = Scene { at: at(second), boot: f64::from(i32::try_from(second).unwrap()), ..waits.clone() };
        assert_eq!(story.tell(&moment, &Endings::default()), NOTHING);
    }
    assert_eq!(story.look(1001, &stuck), NOTHING, "the same blocker, not a new one");
}

#[test]
fn many_of_one_word_are_one_until_the_last_is_over() {
    let mut story = Story::new();
    let invalid = |n: u32| -> Vec<_> {
        (0..n).map(|i| level(Kind::Stuck, &format!("stuck/reboots/{i}/InvalidEntry"), "InvalidEntry", 0.0)).collect()
    };
    assert_eq!(story.look(0, &invalid(21)), ["21 at once: InvalidEntry"]);
    assert_eq!(story.look(1, &invalid(3)), NOTHING, "these were told of");
    assert_eq!(story.look(2, &[]), NOTHING);
    assert_eq!(story.look(62, &[]), ["resolved: 21 at once: InvalidEntry"]);
    assert_eq!(story.look(63, &invalid(2)).len(), 2);
    // A condition with a notice of its own keeps it.
    assert_eq!(story.look(64, &invalid(30)), ["30 at once: InvalidEntry"]);
    assert_eq!(story.told.marks.len(), 3);
}

#[test]
fn a_freeze_is_told_when_it_comes_changes_and_goes() {
    let mut story = Story::new();
    let mut freeze = |second: i64, freeze: serde_json::Value| {
        let freeze = Some(freeze).filter(|f| !f.is_null());
        story.tell(&Scene { freeze, ..scene(second) }, &Endings::default())
    };
    assert_eq!(freeze(0, json!(null)), NOTHING);
    let until = json!({"until": "2026-12-24T00:00:00Z", "reason": "end of year"});
    assert_eq!(freeze(1, until.clone()), ["frozen until 2026-12-24T00:00:00Z: end of year"]);
    assert_eq!(freeze(2, until), NOTHING);
    assert_eq!(freeze(3, json!({"until": "2026-12-27T00:00:00Z"})), ["frozen until 2026-12-27T00:00:00Z"]);
    assert_eq!(freeze(4, json!("opaque")), ["frozen: \"opaque\""]);
    assert_eq!(freeze(5, json!(null)), ["the freeze has ended"]);
}

#[test]
fn approvals_and_broken_keys_are_told_and_cleared() {
    let mut story = Story::new();
    let levels = [
        level(Kind::Approval, "approval/3f9a", "AwaitingApproval", 0.0),
        level(Kind::Broken, "broken//cke/reboots/data/zz", "broken", 30.0),
    ];
    assert_eq!(story.look(0, &levels), ["approval/3f9a is so"]);
    assert_eq!(story.look(30, &levels), ["broken//cke/reboots/data/zz is so"]);
    assert_eq!(story.look(31, &levels[1..]), ["resolved: approval/3f9a is so"], "an approval is over at once");
    assert_eq!(story.look(32, &[]), NOTHING);
    assert_eq!(story.look(92, &[]), ["resolved: broken//cke/reboots/data/zz is so"]);
}

#[test]
fn a_failed_command_is_told_once_whether_its_entry_is_there_or_ended() {
    let command = |n: u32| {
        let key = format!("failed/reboots/1/{n}");
        (key.clone(), Notice::new(Kind::Failed, key.clone(), format!("{key} failed"), at(0)))
    };
    let mut story = Story::new();
    let there = Scene { commands: [command(1)].into(), ..scene(0) };
    assert_eq!(story.tell(&there, &Endings::default()), ["failed/reboots/1/1 failed"]);
    assert_eq!(story.tell(&there, &Endings::default()), NOTHING);
    // The second command failed and the entry ended before any pass saw it.
    let end = Notice::new(Kind::Finished, "ended/reboots/1".to_owned(), "reboots/1 ended".to_owned(), at(1));
    let list = vec![(105, vec![command(1).1, command(2).1, end])];
    // The live copy of etcd shows already that the attempts are gone. Their marks are needed until the entry's end is
    // notified.
    assert_eq!(story.tell(&scene(1), &Endings::default()), NOTHING);
    let ended = Endings { list, complete: true };
    assert_eq!(story.tell(&scene(2), &ended), ["failed/reboots/1/2 failed", "reboots/1 ended"]);
    assert_eq!((story.told.cursor, story.told.marks.len()), (105, 0));
}

#[test]
fn only_the_kinds_that_were_asked_for_are_told() {
    let mut story = Story { kinds: [Kind::Stuck].into(), ..Story::new() };
    let stuck = [level(Kind::Stuck, "stuck/reboots/1/X", "X", 0.0), level(Kind::Approval, "approval/1", "A", 0.0)];
    assert_eq!(story.look(0, &stuck), ["stuck/reboots/1/X is so"]);
    assert_eq!(story.look(100, &[]), NOTHING, "cleared was not asked for");
    assert!(story.told.marks.is_empty());
    let freeze = Scene { freeze: Some(json!("x")), ..scene(101) };
    assert_eq!(story.tell(&freeze, &Endings::default()), NOTHING);
}

#[test]
fn a_notice_keeps_its_id_until_it_is_received_and_no_two_have_the_same() {
    let stuck = |n: u32| level(Kind::Stuck, &format!("stuck/reboots/{n}/X"), "X", 0.0);
    let first = Scene { levels: [stuck(1)].into(), ..scene(0) };
    let told = due(&Story::new().told, &first, &Endings::default(), &all(), &mut Memory::default());
    let mut begun = told.clone();
    let id = begin(&mut begun).unwrap().id;
    assert_eq!(id, "7f0a3c52-1780000000");
    // The leader dies before or after the notice was received; the next one finds this record.
    let later = Scene {
        levels: [stuck(1), stuck(2)].into(),
        leader: Leadership { create_revision: 9, host: "boot-1".to_owned() },
        ..scene(100)
    };
    let mut next = due(&begun, &later, &Endings::default(), &all(), &mut Memory::default());
    fold(&mut next, &later, 1);
    assert_eq!(begin(&mut next).unwrap().id, id, "as it was, neither folded nor anew");
    let ids: BTreeSet<String> = next.pending.iter().map(|p| p.notice.id.clone()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    done(&mut next, &id);
    assert_eq!(next.pending.len(), 2);
}

#[test]
fn a_burst_is_folded_into_one_with_counts() {
    let mut told = Story::new().told;
    let burst = Scene {
        levels: (0..8).map(|n| level(Kind::Stuck, &format!("stuck/reboots/{n}/W{n}"), &format!("W{n}"), 0.0)).collect(),
        freeze: Some(json!("x")),
        ..scene(0)
    };
    told = due(&told, &burst, &Endings::default(), &all(), &mut Memory::default());
    assert_eq!(told.pending.len(), 9);
    let mut few = told.clone();
    fold(&mut few, &burst, 9);
    assert_eq!(few.pending.len(), 9, "as many as may be delivered");
    fold(&mut told, &burst, 0);
    assert_eq!(told.pending.len(), 9, "nothing is delivered now: it may be possible later");
    fold(&mut told, &burst, 6);
    let one = &told.pending[0].notice;
    assert_eq!((told.pending.len(), one.kind, one.count), (1, Kind::Many, 9));
    assert_eq!(one.title, "9 notices: 1 freeze, 8 stuck");
    assert_eq!((one.ids.len(), one.text.lines().count()), (9, 9));
    assert_eq!(one.severity, crate::model::notice::Severity::Warning);
}

#[test]
fn a_long_outage_leaves_the_one_that_was_begun_and_one_summary() {
    let mut told = Story::new().told;
    let mut memory = Memory::default();
    for n in 0..500_u32 {
        let key = format!("failed/reboots/{n}/1");
        let notice = Notice::new(Kind::Failed, key.clone(), format!("{key} failed"), at(0));
        let moment = Scene { commands: [(key, notice)].into(), ..scene(i64::from(n)) };
        told = due(&told, &moment, &Endings { complete: true, ..Endings::default() }, &all(), &mut memory);
        fold(&mut told, &moment, 0);
        begin(&mut told);
        assert!(told.pending.len() <= 52, "{}", told.pending.len());
    }
    fold(&mut told, &scene(500), 0);
    let first = told.pending[0].notice.id.clone();
    done(&mut told, &first);
    fold(&mut told, &scene(500), 1);
    let summary = &told.pending[0].notice;
    assert_eq!((told.pending.len(), summary.count), (1, 499));
    assert!(summary.text.ends_with("and 479 more"), "{}", summary.text);
    assert!(summary.ids.len() <= 200 && serde_json::to_string(&told).unwrap().len() < 60_000);
}

#[test]
fn a_receiver_is_told_so_often_a_minute() {
    let mut bucket = Bucket::new(6, 0.0);
    for _ in 0..6 {
        assert!(bucket.may(0.0) > 0);
        bucket.take();
    }
    assert_eq!((bucket.may(0.0), bucket.may(9.9), bucket.may(10.0)), (0, 0, 1));
    bucket.take();
    assert_eq!((bucket.may(19.0), bucket.may(1000.0)), (0, 6));
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
    seen.snapshot.engine.leading =
        Some(Leading { key: "/cke/leader//1".to_owned(), create_revision: 7, since: 0.0, acknowledged: 0.0 });
    seen.reasons = std::sync::Arc::new(reasons.iter().cloned().collect());
    seen
}

const CLUSTER: &str = r#"{"name":"c1","nodes":[{"address":"10.0.0.1","hostname":"w1",
    "labels":{"cke.cybozu.com/role":"cs","cke.cybozu.com/rack":"3"}}]}"#;
const REQUEST: &str = r#"{"who":{"user":"anna","host":"ops"},"at":"2026-06-01T00:00:00Z","reason":"INC-1"}"#;

#[test]
fn an_entry_that_waits_for_a_person_is_told_with_machine_reason_and_who_asked() {
    let unknown = Reason::OutcomeUnknown { attempt: None, until: None };
    let rows =
        [("cluster", CLUSTER), ("reboots/data/0000000000000001", ENTRY_1), ("cketerm/requests/reboots/1", REQUEST)];
    let scene = Scene::of(&seen(&rows, &[(EntryId::reboot(1), unknown)])).unwrap();
    let n = &scene.levels["stuck/reboots/1/OutcomeUnknown"].notice;
    assert_eq!(n.title, "reboots/1 on w1 needs an operator: OutcomeUnknown");
    let shown = [&n.entry, &n.queue, &n.address, &n.node, &n.role, &n.rack, &n.requested_by, &n.request_reason];
    let wanted = ["reboots/1", "reboot", "10.0.0.1", "w1", "cs", "3", "anna@ops", "INC-1"];
    assert_eq!(shown.map(|v| v.as_deref().unwrap_or_default()), wanted);
    assert_eq!(n.runbook.as_deref(), Some("docs/runbook.md#outcomeunknown"));
    assert!(scene.unsure.contains("stuck/reboots/1/"), "its drain has been given up before");
    assert_eq!((scene.cluster.as_deref(), scene.leader.host.as_str()), (Some("c1"), "boot-0"));
}

#[test]
fn what_holds_a_whole_queue_is_one_condition_and_turns_are_none() {
    let gate = Reason::UnreachableGate { count: 3, limit: 1, names: ["w1".to_owned()].into() };
    let backoff = |count| Reason::Backoff { count, until: at(0), cause: None };
    let reasons = [
        (EntryId::reboot(1), gate.clone()),
        (EntryId::reboot(2), gate),
        (EntryId::reboot(3), Reason::QueueDisabled),
        (EntryId::reboot(4), backoff(2)),
        (EntryId::reboot(5), backoff(3)),
    ];
    let scene = Scene::of(&seen(&[], &reasons)).unwrap();
    let keys: Vec<&String> = scene.levels.keys().collect();
    assert_eq!(keys, ["stuck/*/UnreachableGate", "stuck/reboots/5/Backoff"]);
    assert_eq!(scene.levels["stuck/*/UnreachableGate"].notice.title, "2 entries wait: UnreachableGate");
}

/// The console, the gauge and the notices agree on which entries are stuck.
#[test]
fn what_may_pass_by_itself_is_told_once_it_has_lasted_for_the_policys_time() {
    let entry = r#"{"index":"1","node":"10.0.0.1","status":"draining","last_transition_time":"1970-01-01T00:00:00Z"}"#;
    let told = |why: Reason, seconds: i64| {
        let mut seen = seen(&[("reboots/data/0000000000000001", entry)], &[(EntryId::reboot(1), why)]);
        seen.now.wall = Timestamp::from_second(seconds).unwrap();
        Scene::of(&seen).unwrap().levels.len()
    };
    let budget =
        Reason::BlockedByPdb { pod: "shop/web-1".to_owned(), pdb: "shop/web".to_owned(), healthy: 2, needed: 2 };
    let again = Reason::CommandFailed { end: Ended::Exit(1), stderr: String::new(), retry: CommandRetry::Scheduled };
    for why in [budget, again] {
        assert_eq!([60, 1799, 1800].map(|seconds| told(why.clone(), seconds)), [0, 0, 1], "{why}");
    }
    let last = Reason::CommandFailed { end: Ended::Exit(1), stderr: String::new(), retry: CommandRetry::Never };
    assert_eq!(told(last, 1), 1, "only a person goes on from there");
}

#[test]
fn an_engine_that_does_not_lead_has_nothing_to_tell() {
    let mut seen = seen(&[], &[]);
    seen.snapshot.engine.leading = None;
    assert_eq!(Scene::of(&seen), None);
}

#[test]
fn broken_keys_approvals_orphans_and_freezes_are_seen() {
    let policy = json!({"freeze": {"until": "2026-06-02T00:00:00Z", "reason": "x"}}).to_string();
    let mut seen = seen(&[("reboots/data/zz", "{}"), ("cketerm/policy", &policy)], &[]);
    seen.applying = Applying::Approval("3f9a".to_owned(), "12 % of the nodes".to_owned()).into();
    let orphan = Reason::OrphanedCordon { node: "w2".to_owned(), entry: EntryId::reboot(1) };
    seen.orphans = BTreeMap::from([("w2".to_owned(), orphan)]).into();
    seen.now.wall = "2026-06-01T00:00:00Z".parse().unwrap();
    let scene = Scene::of(&seen).unwrap();
    let keys: Vec<&String> = scene.levels.keys().collect();
    assert_eq!(keys, ["approval/3f9a", "broken//cke/reboots/data/zz", "stuck/node/w2/OrphanedCordon"]);
    assert_eq!(scene.levels["approval/3f9a"].notice.text, "12 % of the nodes");
    assert!(scene.freeze.is_some());
    seen.now.wall = "2026-06-02T00:00:00Z".parse().unwrap();
    assert_eq!(Scene::of(&seen).unwrap().freeze, None, "its time is over");
}

#[test]
fn the_end_of_an_entry_tells_its_failed_commands_and_how_it_ended() {
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
    let said: Vec<(Kind, &str)> = notices.iter().map(|n| (n.kind, n.title.as_str())).collect();
    let wanted = [
        (Kind::Failed, "command of step 2 of repairs/3 on w1 failed: exit 1"),
        (Kind::Failed, "repairs/3 on w1 ended: failed: no step is left"),
    ];
    assert_eq!(said, wanted);
    assert_eq!(notices[0].text, "ipmi 10.0.0.1: exit 1: no route");
    // A notice, which goes to a chat or into etcd, contains no password.
    let mut secret = ending.clone();
    secret.attempts[0].argv = ["ipmitool", "-U", "root", "-P", "hunter2", "power", "cycle"].map(str::to_owned).to_vec();
    if let Some(outcome) = &mut secret.attempts[0].outcome {
        outcome.stderr = "password=hunter2 was refused".to_owned();
    }
    let told = serde_json::to_string(&ended(&seen.snapshot, &secret, at(0))).unwrap();
    assert!(!told.contains("hunter2") && told.contains("ipmitool -U root"), "{told}");
    let good = Ending { end: EndKind::Booted, outcome: "booted".to_owned(), attempts: Vec::new(), ..ending };
    assert_eq!(ended(&seen.snapshot, &good, at(0))[0].kind, Kind::Finished);
    assert!(Stored::get(&Stored { key: String::new(), mod_revision: 1, value: Ok(good.into()) }).is_some());
}
