//! Tests of the repair queue on the screen and under the keys.

use cketerm_actions::plan::{Drains, LandingCheck};
use cketerm_model::{
    attempt::{Attempt, CheckAnswer, Ended, Outcome},
    cketerm_records::{Order, Progress, Request, Verb, Who},
    cluster::{Cluster, Members},
    entry::{EntryId, QueueKind},
    names::{Address, NodeName},
    reason::{Awaited, Blocker, PodHold, Reason},
    repair::{RepairEntry, RepairStatus, StepStatus},
    stored::view::Definition,
    time::after,
};
use insta::assert_snapshot;

use super::world::{World, message, press, stored, wall};
use crate::{
    input::update,
    state::{
        App,
        dialog::Focus,
        event::{Action, Effect, Event},
        past::ReadResponse,
    },
    terminal::screen,
};

fn alice() -> Who {
    Who { user: "alice".into(), host: "admin1".into(), ssh_client: None }
}

impl World {
    /// Returns the usual world with a definition that repairs two types of machines, and six repairs: succeeded,
    /// watching, blocked by a budget, queued outside the cluster, failed, and unreadable.
    pub(super) fn with_repairs() -> Self {
        let mut world = Self::usual();
        world.define(|_| {});
        let (queued, processing) = (RepairStatus::Queued, RepairStatus::Processing);
        world.repair(0, "10.0.0.12", RepairStatus::Succeeded, 0, StepStatus::Watching, 4000);
        world.repair(1, "10.0.0.16", processing, 1, StepStatus::Watching, 75);
        world.repair(2, "10.0.0.17", processing, 0, StepStatus::Draining, 130);
        world.repair(3, "10.9.9.9", queued, 0, StepStatus::Waiting, 20);
        world.repair(4, "10.0.0.18", RepairStatus::Failed, 1, StepStatus::Watching, 500);
        let broken = cketerm_model::entry::Stored {
            key: "/cke/repairs/data/0000000000000005".into(),
            mod_revision: 65,
            value: Err("not JSON: expected value at line 1 column 1".into()),
        };
        world.store.repairs.entries.insert(5, broken);
        world.attempt(0, 1, 0, 4100, Ended::Exit(0), "");
        world.attempt(1, 1, 0, 700, Ended::Exit(0), "");
        world.attempt(1, 2, 1, 75, Ended::Exit(0), "");
        world.attempt(4, 1, 0, 900, Ended::Exit(0), "");
        world.attempt(4, 2, 1, 510, Ended::Exit(1), "BMC: power supply 2 is missing\n");
        let held =
            Reason::BlockedByPdb { pod: "db/pg-0".into(), pdb: "db/pg".into(), healthy: 2, needed: 2, cause: None };
        let pdb = PodHold::Budget { budget: "db/pg".into(), healthy: 2, needed: 2, cause: None };
        let blockers = vec![Blocker { pod: "db/pg-0".into(), why: pdb }];
        world.progress(2, "waiting for pods", Some(held.clone()), blockers, None);
        let watch = Reason::WaitingForHealth {
            step: 1,
            until: Some(after(wall(), 525)),
            last: "false".into(),
            awaited: Awaited::Check,
        };
        let health = Some((after(wall(), -700), CheckAnswer::No("false".into())));
        world.progress(1, "watching", Some(watch.clone()), Vec::new(), health);
        let waits = Reason::WaitingForSlot { holder: Some(EntryId::repair(1)), limit: 2, ahead: false };
        let invalid = Reason::InvalidEntry { why: "cannot be read: not JSON".into() };
        for (index, reason) in [(1, watch), (2, held), (3, waits), (5, invalid)] {
            world.reasons.insert(EntryId::repair(index), reason);
        }
        world
    }

    fn define(&mut self, change: impl Fn(&mut serde_json::Value)) {
        let mut repair = serde_json::json!({
            "max_concurrent_repairs": 2,
            "repair_procedures": [
                {"machine_types": ["QEMU", "R640"], "repair_operations": [
                    {"operation": "unreachable", "health_check_command": ["is-healthy"], "success_command": ["tell"],
                     "repair_steps": [
                        {"repair_command": ["power-cycle"], "need_drain": true, "watch_seconds": 600},
                        {"repair_command": ["reinstall", "--force"], "need_drain": true, "watch_seconds": 600}]},
                    {"operation": "unhealthy", "health_check_command": ["is-healthy"],
                     "repair_steps": [{"repair_command": ["restart-agent"]}]}]},
                {"machine_types": ["switch"], "repair_operations": [
                    {"operation": "unreachable", "health_check_command": ["ping"],
                     "repair_steps": [{"repair_command": ["port-cycle"], "watch_seconds": 60}]}]},
            ],
        });
        change(&mut repair);
        let cluster = self.store.definition().unwrap().cluster.clone();
        let cluster = Cluster { repair: serde_json::from_value(repair).unwrap(), ..cluster };
        let members = Members::of(&cluster);
        self.store.cluster = Some(stored("/cke/cluster", 6, Definition { cluster, members }));
    }

    pub(super) fn repair(
        &mut self,
        index: u64,
        address: &str,
        status: RepairStatus,
        step: i64,
        step_status: StepStatus,
        ago: i64,
    ) {
        let of = if address == "10.9.9.9" { "switch" } else { "QEMU" };
        let mut entry = RepairEntry::queued(index, &Address::new(address), of, "unreachable", Some("SN7"));
        (entry.status, entry.step, entry.step_status) = (status, step, step_status);
        entry.last_transition_time = Some(after(wall(), -ago));
        let key = format!("/cke/repairs/data/{index:016x}");
        self.store.repairs.entries.insert(index, stored(&key, 60 + index.cast_signed(), entry));
        let request = Request {
            who: alice(),
            at: after(wall(), -ago - 900),
            reason: Some("INC-9".into()),
            node_uid: None,
            batch: None,
        };
        self.store.requests.insert(EntryId::repair(index), stored("/cke/cketerm/requests", 9, request));
    }

    fn attempt(&mut self, index: u64, number: u32, step: i64, ago: i64, end: Ended, stderr: &str) {
        let entry = EntryId::repair(index);
        let outcome = Outcome { end, at: after(wall(), -ago + 3), stdout: String::new(), stderr: stderr.into() };
        let command = if step == 0 { "power-cycle" } else { "reinstall" };
        let attempt = Attempt {
            id: format!("repairs-{index}-{number}"),
            entry,
            number,
            step: Some(step),
            success: false,
            machine_type: Some("QEMU".into()),
            operation: Some("unreachable".into()),
            address: Address::new("10.0.0.16"),
            node: Some(NodeName::new("worker-3")),
            control_plane: false,
            lease: 77,
            host: "admin1".into(),
            argv: vec![command.into(), "10.0.0.16".into()],
            bound_seconds: 30,
            boot_id: None,
            not_ready: false,
            node_uid: None,
            start: after(wall(), -ago),
            drain_start: None,
            forced: false,
            ordered_by: None,
            done_by: None,
            folded: 0,
            outcome: Some(outcome),
        };
        self.store.attempts.insert((entry, number), stored("a", 43, attempt));
    }

    fn progress(
        &mut self,
        index: u64,
        phase: &str,
        reason: Option<Reason>,
        blockers: Vec<Blocker>,
        check: Option<(jiff::Timestamp, CheckAnswer)>,
    ) {
        let drains = phase == "waiting for pods";
        let progress = Progress {
            phase: phase.into(),
            since: after(wall(), -75),
            pods_at_start: if drains { 12 } else { 0 },
            pods_gone: if drains { 11 } else { 0 },
            reason,
            blockers,
            next: None,
            step: Some((1, 2)),
            check,
        };
        self.store.progress.insert(EntryId::repair(index), stored("p", 40, progress));
    }
}

fn console(columns: u16, rows: u16, keys: &str) -> App {
    let mut app = World::with_repairs().console(columns, rows);
    press(&mut app, keys);
    app
}

fn shown(columns: u16, rows: u16, keys: &str) -> String {
    screen::text(&console(columns, rows, keys))
}

#[test]
fn screens() {
    assert_snapshot!("repairs_80x24", shown(80, 24, "3 j"));
    assert_snapshot!("repairs_60x15", shown(60, 15, "3"));
    assert_snapshot!("repairs_200x50", shown(200, 50, "3 j space"));
    assert_snapshot!("repair_watching_80x24", shown(80, 24, "3 j enter"));
    assert_snapshot!("repair_watching_200x50", shown(200, 50, "3 j enter"));
    assert_snapshot!("repair_blocked_80x24", shown(80, 24, "3 j j enter"));
    assert_snapshot!("repair_failed_200x50", shown(200, 50, "3 j j j j enter"));
    assert_snapshot!("nodes_with_repairs_80x24", shown(80, 24, "2"));
    assert_snapshot!("node_of_both_queues_200x50", shown(200, 50, "2 G k k enter"));
}

#[test]
fn dialogs() {
    assert_snapshot!("dialog_repair", shown(80, 24, "2 G P"));
    assert_snapshot!("dialog_repair_chosen", shown(80, 24, "2 G k k k k P right tab right"));
    assert_snapshot!("dialog_delete_finished", shown(80, 24, "3 Z"));
    assert_snapshot!("dialog_delete_unfinished", shown(80, 24, "3 : \"delete-unfinished\" enter"));
    assert_snapshot!("dialog_done_repair", shown(80, 24, "3 j D"));
    assert_snapshot!("dialog_disable_repairs", shown(80, 24, "3 E"));
    assert_snapshot!("dialog_hold", shown(80, 24, "H"));
}

#[test]
fn a_repair_is_added_from_nodes_by_selecting_type_and_operation() {
    let mut app = console(80, 24, "2 g g j j j j P");
    assert_eq!(app.dialog.as_ref().unwrap().focus, Focus::Type, "with three types none is preselected");
    assert_eq!(press(&mut app, "enter enter enter"), [], "nothing is chosen yet");
    assert!(message(&app).contains("choose the machine type first"), "{}", message(&app));
    let effects = press(&mut app, "right right tab left tab \"agent hangs\" enter enter");
    let action = Action::AddRepairs {
        addresses: vec![Address::new("10.0.0.15")],
        machine_type: "R640".into(),
        operation: "unhealthy".into(),
        reason: Some("agent hangs".into()),
    };
    assert_eq!(effects, [Effect::Act(action)]);
}

#[test]
fn the_previous_machine_type_and_a_single_operation_are_preselected() {
    let mut app = console(80, 24, "3 j j j P");
    let action = Action::AddRepairs {
        addresses: vec![Address::new("10.9.9.9")],
        machine_type: "switch".into(),
        operation: "unreachable".into(),
        reason: None,
    };
    assert_eq!(press(&mut app, "enter y"), [Effect::Act(action)]);
}

#[test]
fn a_repair_of_an_api_server_requires_the_cluster_name() {
    let mut app = console(80, 24, "2 g g P");
    assert!(screen::text(&app).contains("1 API server among them"), "{}", screen::text(&app));
    press(&mut app, "left");
    assert_eq!(press(&mut app, "enter enter enter enter"), []);
    assert!(message(&app).contains("tokyo0 1"), "{}", message(&app));
    let effects = press(&mut app, "\"tokyo0 1\" enter enter");
    assert!(matches!(&effects[..], [Effect::Act(Action::AddRepairs { addresses, .. })] if addresses == &["10.0.0.11"]));
}

#[test]
fn repairs_are_deleted_one_all_finished_or_all_unfinished() {
    let cancel = |entries: &[u64]| {
        let entries = entries.iter().map(|i| EntryId::repair(*i)).collect();
        Effect::Act(Action::Cancel { entries, reason: None })
    };
    assert_eq!(press(&mut console(80, 24, "3 X"), "enter y"), [cancel(&[0])]);
    assert_eq!(press(&mut console(80, 24, "3 Z"), "enter y"), [cancel(&[0, 4])]);
    assert_eq!(press(&mut console(80, 24, "3 K"), "enter enter"), [], "it has no key any more");
    let mut app = console(80, 24, "3 : \"delete-unfinished\" enter");
    assert!(screen::text(&app).contains("Delete all 3 UNFINISHED repairs?"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter enter"), [cancel(&[1, 2, 3])]);
    let app = console(80, 24, "1 Z");
    assert!(app.dialog.is_none() && message(&app).contains("press 3"));
}

#[test]
fn repair_orders_are_refused_in_unsuitable_states() {
    let mut app = console(80, 24, "3 j A");
    let effects = press(&mut app, "\"disk was swapped\" enter enter");
    let order = |index: u64, verb, reason: &str| {
        let (entry, seen) = (EntryId::repair(index), Some(60 + index.cast_signed()));
        Effect::Act(Action::Order { entry, verb, seen, reason: Some(reason.into()) })
    };
    assert_eq!(effects, [order(1, Verb::Retry, "disk was swapped")]);
    let effects = press(&mut console(80, 24, "3 j j F"), "\"db is gone\" enter enter");
    assert_eq!(effects, [order(2, Verb::Force, "db is gone")]);
    for (keys, expected) in [
        ("3 j F", "force needs an entry that is queued or draining; repairs/1 is watching"),
        ("3 D", "done needs an entry that is watching; repairs/0 is succeeded"),
        ("3 j j j j A", "repairs/4 is failed (delete it with X, repair it again with P)"),
        ("3 G A", "cannot be read"),
    ] {
        let app = console(80, 24, keys);
        assert!(app.dialog.is_none() && message(&app).contains(expected), "{keys}: {}", message(&app));
    }
}

#[test]
fn entries_of_both_queues_can_be_held_and_released() {
    let hold = |id, revision, hold| Effect::Act(Action::Hold { entries: vec![(id, revision)], hold, reason: None });
    assert_eq!(press(&mut console(80, 24, "j j H"), "enter y"), [hold(EntryId::reboot(5), None, true)]);
    assert_eq!(press(&mut console(80, 24, "3 j j j H"), "enter y"), [hold(EntryId::repair(3), None, true)]);
    let app = console(80, 24, "3 j H");
    assert!(message(&app).contains("repairs/1 cannot be held"), "{}", message(&app));
    let mut world = World::with_repairs();
    let order = Order { verb: Verb::Hold, who: alice(), at: wall(), reason: Some("Anna".into()), entry_revision: 63 };
    world.store.orders.insert(EntryId::repair(3), stored("o", 70, order));
    let mut app = world.console(80, 24);
    press(&mut app, "3 j j j H");
    assert!(message(&app).contains("on hold already"), "{}", message(&app));
    press(&mut app, "L");
    assert!(screen::text(&app).contains("held by alice@admin1: Anna"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter y"), [hold(EntryId::repair(3), Some(63), false)]);
}

#[test]
fn e_toggles_the_queue_of_the_current_view() {
    let switch = |queue| [Effect::Act(Action::Switch { queue, enabled: false, reason: None })];
    assert_eq!(press(&mut console(80, 24, "3 E"), "enter y"), switch(QueueKind::Repair));
    assert_eq!(press(&mut console(80, 24, "2 E"), "enter y"), switch(QueueKind::Reboot));
}

#[test]
fn an_unrecognized_health_check_output_is_shown() {
    let mut world = World::with_repairs();
    let odd = Some((wall(), CheckAnswer::No("OK\n".into())));
    world.progress(1, "watching", None, Vec::new(), odd);
    let watch =
        Reason::WaitingForHealth { step: 1, until: None, last: "\"OK\", not true".into(), awaited: Awaited::Check };
    world.reasons.insert(EntryId::repair(1), watch);
    let mut app = world.console(80, 24);
    press(&mut app, "3");
    assert!(screen::text(&app).contains("not healthy yet: \"OK\""), "{}", screen::text(&app));
    press(&mut app, "j enter");
    assert!(screen::text(&app).contains("prints \"OK\": only `true` counts as healthy"), "{}", screen::text(&app));
}

#[test]
fn definition_errors_are_shown_in_every_view_with_their_field() {
    let mut world = World::with_repairs();
    world.define(|repair| {
        repair["repair_procedures"][1]["machine_types"] = serde_json::json!(["QEMU"]);
        repair["repair_procedures"][1]["repair_operations"][0]["repair_steps"] = serde_json::json!([]);
    });
    let mut app = world.console(80, 24);
    for view in ["1", "2", "3"] {
        press(&mut app, view);
        let text = screen::text(&app).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("repair_procedures[1].machine_types[0] QEMU is already listed"), "{text}");
        assert!(text.contains("(and 1 more)"), "{text}");
    }
}

#[test]
fn a_repair_dialog_expires_when_its_entry_changes_and_ignores_typing() {
    let mut world = World::with_repairs();
    let mut app = world.console(80, 24);
    press(&mut app, "3 j D");
    world.repair(1, "10.0.0.16", RepairStatus::Succeeded, 1, StepStatus::Watching, 0);
    let entry = world.store.repairs.entries.get_mut(&1).unwrap();
    entry.mod_revision = 90;
    update(&mut app, Event::Seen(world.seen()));
    assert!(
        screen::text(&app).contains("EXPIRED: repairs/1 changed meanwhile (now succeeded)"),
        "{}",
        screen::text(&app)
    );
    assert_eq!(press(&mut app, "\"no quick Xylophone\""), []);
    assert!(app.dialog.is_some(), "the letters were meant for the field");
    press(&mut app, "esc");
    assert!(app.dialog.is_none());
}

/// A machine that the table shows as blocked must not read as free in the dialog.
#[test]
fn a_repair_of_a_machine_in_work_is_marked_and_names_what_holds_it() {
    let mut app = World::with_repairs().console(80, 24);
    press(&mut app, "2 / \"worker-1\" enter P");
    let text = screen::text(&app);
    assert!(text.contains("! worker-1 is in work already: reboots/3 draining"), "{text}");
    assert!(text.contains("held up: pdb shop/web"), "{text}");
    let number = app.dialog.as_ref().and_then(|d| d.plan.as_ref()).unwrap().number;
    let free = Drains {
        nodes: 1,
        evict: 5,
        delete: 0,
        stay: 2,
        blocked: Vec::new(),
        unread: Vec::new(),
        more: 0,
        unexplained: 0,
        landing: LandingCheck::NotMade,
    };
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Plan(number, Ok(free)))));
    let text = screen::text(&app);
    assert!(text.contains("nothing else blocks a drain now"), "{text}");
}
