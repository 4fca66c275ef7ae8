//! Tests of the definition from sabakan's machines, on the screen and under the keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    cketerm_records::{Hold, Who},
    constraints::Constraints,
    names::Address,
    stored::view::Switch,
};
use cketerm_rules::{
    decide::ApplyState,
    registry::{Basis, Proposal, Proposed, Registry},
    seen::Seen,
};
use cketerm_sabakan::{
    Action, Plan,
    change::{Change, Gate, Kind, NodeChange},
};
use insta::assert_snapshot;

use super::world::{World, press, stored, wall};
use crate::{
    input::update,
    keys::{Keymap, TABLE},
    state::{
        App,
        event::{Effect, Event, RegistryAction},
    },
    terminal::screen,
};

/// Returns a snapshot with this plan and state of applying.
fn seen(world: &World, outcome: Option<Result<Plan, String>>, applying: ApplyState) -> Arc<Seen> {
    let mut seen = Seen::clone(&world.seen());
    let outcome = outcome.map(|made| {
        made.map(|plan| Proposed {
            plan,
            change: Change::default(),
            gate: Gate::default(),
            digest: "d1".into(),
            json: String::new(),
        })
    });
    let proposal = outcome.map(|outcome| Arc::new(Proposal { basis: Basis::default(), asked: wall(), outcome }));
    seen.snapshot.registry = Arc::new(Registry { proposal, ..Registry::default() });
    let mut store = world.store.clone();
    store.registry.url = Some(stored("url", 5, "http://sabakan/graphql".to_owned()));
    seen.snapshot.store = Arc::new(store);
    seen.applying = Arc::new(applying);
    Arc::new(seen)
}

/// Returns a snapshot in which a change of the definition waits for approval.
pub(super) fn gated() -> Arc<Seen> {
    let approval = ApplyState::Approval("d1".into(), "a rack has gone".into());
    seen(&World::usual(), Some(Ok(plan(true, &[]))), approval)
}

fn plan(changed: bool, warnings: &[&str]) -> Plan {
    Plan {
        action: if changed { Action::TaintNodes } else { Action::None },
        reason: if changed { "worker-1 is unhealthy" } else { "nothing is to do" }.into(),
        changed,
        cluster: None,
        nodes: Vec::new(),
        warnings: warnings.iter().map(|w| (*w).to_owned()).collect(),
    }
}

fn console(columns: u16, rows: u16, seen: Arc<Seen>) -> App {
    let mut app = World::usual().console(columns, rows);
    update(&mut app, Event::Seen(seen));
    press(&mut app, "5");
    app
}

fn shown(outcome: Option<Result<Plan, String>>, applying: ApplyState) -> String {
    screen::text(&console(100, 30, seen(&World::usual(), outcome, applying)))
}

const ALL_CLEAR: &str = "the definition matches template, constraints and machines";
const TOO_FEW_WORKERS: &str =
    "at least 51 healthy workers are wanted and 50 are there: no unused healthy machine of role ss";

/// The all-clear is a promise: if the plan has a warning, the warning is shown instead.
#[test]
fn an_unchanged_plan_with_a_warning_shows_the_warning() {
    let text = shown(Some(Ok(plan(false, &[]))), ApplyState::Settled);
    assert!(text.contains(ALL_CLEAR) && text.contains("nothing would change"), "{text}");
    let app = console(100, 30, seen(&World::usual(), Some(Ok(plan(false, &[TOO_FEW_WORKERS]))), ApplyState::Settled));
    let text = screen::text(&app);
    assert!(!text.contains(ALL_CLEAR), "{text}");
    assert!(text.contains(&format!("! {TOO_FEW_WORKERS}")), "{text}");
    let lines = crate::views::registry_lines(&app, 100);
    let style = lines.iter().find(|(line, _)| line.contains(TOO_FEW_WORKERS)).map(|(_, style)| *style);
    assert_eq!(style, Some(app.config.theme.trouble));
    assert!(lines.iter().all(|(_, style)| *style != app.config.theme.good), "{lines:?}");
    // so are the warnings of a plan that changes something
    let text = shown(Some(Ok(plan(true, &[TOO_FEW_WORKERS]))), ApplyState::Applies);
    assert!(text.contains(TOO_FEW_WORKERS) && text.contains("worker-1 is unhealthy"), "{text}");
}

/// "nothing would change" is only for plans. Without a plan, the table gives the reason.
#[test]
fn without_a_plan_the_empty_table_shows_the_reason() {
    for (outcome, applying, expected_text) in [
        (None, ApplyState::Error("sabakan answered 500".into()), "sabakan answered 500"),
        (Some(Err("no template".into())), ApplyState::Error("no template".into()), "no template"),
        (None, ApplyState::Waits("sabakan has not answered yet".into()), "sabakan has not answered yet"),
        (None, ApplyState::Disabled("not set up: `cketerm sabakan set-url URL`".into()), "not set up"),
    ] {
        let text = shown(outcome, applying.clone());
        assert!(text.contains("there is no plan") && !text.contains("nothing would change"), "{applying:?}: {text}");
        assert_eq!(text.matches(expected_text).count(), 2, "above the table and in it: {text}");
    }
}

fn title_or_message(app: &App) -> String {
    let message = app.session.message.as_ref().map(|m| m.text.clone());
    app.dialog.as_ref().map(|d| d.title.clone()).or(message).unwrap_or_default()
}

/// Every verb of the key table does what its name says in every view: none is dropped, and none starts another action.
#[test]
fn every_command_of_the_key_table_triggers_its_action() {
    let expected = BTreeMap::from([
        ("cancel", "Cancel 1 reboot"),
        ("cancel-all", "Cancel all 5 reboots"),
        ("reboot", "add reboots in the Nodes view"),
        ("repair", "no repair operation"),
        ("reset-backoff", "has a backoff"),
        ("hold", "Hold 1 reboot"),
        ("unhold", "reboots/3 is not on hold"),
        ("switch", "Disable the reboot queue"),
        ("stop", "Stop both queues"),
        ("resume", "nothing is stopped"),
        ("approve", "nothing waits for approval"),
        ("constraint", "Set 1 constraint"),
        ("auto-repair", "Disable automatic repair"),
        ("retry", "retry needs an entry"),
        ("done", "done needs an entry"),
        ("force", "Force the reboot of worker-1"),
        ("delete-finished", "only in the Repairs view"),
        ("delete-unfinished", "only in the Repairs view"),
        ("keep-cordoned", "Keep worker-1 cordoned"),
        ("release", "uncordon nodes in the Nodes view"),
        ("host-power", "only in the Hosts view"),
        ("fence", "only in the Hosts view"),
        ("lead", "this console leads already"),
    ]);
    let verbs: Vec<_> = TABLE.iter().filter(|b| b.changes).collect();
    let names: BTreeSet<_> = verbs.iter().map(|b| b.name).collect();
    assert_eq!(names, expected.keys().copied().collect(), "this test must cover every verb");
    for verb in verbs {
        let mut app = World::usual().console(100, 30);
        press(&mut app, &verb.keys.first().map_or_else(|| format!(": \"{}\" enter", verb.name), |k| (*k).to_owned()));
        let (title_or_message, expected) = (title_or_message(&app), expected[verb.name]);
        assert!(title_or_message.contains(expected), "{}: {title_or_message:?} instead of {expected:?}", verb.name);
    }
}

/// The key that is named is the one in force.
#[test]
fn the_approval_hint_names_the_bound_key() {
    let waits = || ApplyState::Approval("d1".into(), "a rack has gone".into());
    assert!(shown(Some(Ok(plan(true, &[]))), waits()).contains("waits for approval of d1 (key Y): a rack has gone"));
    for (keys, expected_text) in
        [(vec!["f9".to_owned()], "of d1 (key f9): a rack"), (Vec::new(), "of d1: a rack has gone")]
    {
        let mut app = console(100, 30, seen(&World::usual(), Some(Ok(plan(true, &[]))), waits()));
        app.config.keymap = Keymap::new(&BTreeMap::from([("approve".to_owned(), keys)])).unwrap();
        let text = screen::text(&app);
        assert!(text.contains(expected_text) && !text.contains("(key Y)"), "{text}");
    }
}

fn registering(what: RegistryAction, reason: Option<&str>) -> [Effect; 1] {
    [Effect::Act(crate::state::event::Action::Registry { what, reason: reason.map(str::to_owned) })]
}

/// A release of the hold is bound to the hold and to the plan that were shown.
#[test]
fn resuming_the_registry_expires_when_the_hold_or_the_plan_changes() {
    let held = |revision: i64, plan: Option<Result<Plan, String>>| {
        let mut world = World::usual();
        let hold = Hold { who: Who { user: "ann".into(), ..Who::default() }, at: wall(), reason: None };
        world.store.registry.hold = Some(stored("hold", revision, hold));
        seen(&world, plan, ApplyState::Settled)
    };
    let before = held(30, Some(Ok(plan(true, &[]))));
    let mut another = Seen::clone(&before);
    let mut proposal = Proposal::clone(another.snapshot.registry.proposal.as_ref().unwrap());
    proposal.outcome = proposal.outcome.map(|made| Proposed { digest: "d2".into(), ..made });
    another.snapshot.registry = Arc::new(Registry { proposal: Some(Arc::new(proposal)), ..Registry::default() });
    for (later, expiry) in [
        (held(31, Some(Ok(plan(true, &[])))), "somebody held or resumed applying"),
        (held(30, None), "the plan changed"),
        (Arc::new(another), "the plan changed"),
    ] {
        let mut app = console(100, 30, Arc::clone(&before));
        press(&mut app, "L");
        update(&mut app, Event::Seen(later));
        let expired = app.dialog.as_ref().and_then(|d| d.expired.clone()).unwrap_or_default();
        assert!(expired.contains(expiry), "{expired}");
    }
    let mut app = console(100, 30, Arc::clone(&before));
    press(&mut app, "L");
    update(&mut app, Event::Seen(before));
    assert_eq!(press(&mut app, "enter y"), registering(RegistryAction::Hold(false, 30), None));
}

/// A constraint is validated as in `constraints set`, and bound to what was shown.
#[test]
fn a_constraint_is_selected_and_its_value_validated() {
    let world = World::usual();
    let open = || {
        let mut app = console(80, 24, seen(&world, None, ApplyState::Settled));
        press(&mut app, "S");
        app
    };
    let mut app = open();
    assert_snapshot!("dialog_constraint", screen::text(&app));
    assert_eq!(press(&mut app, "enter enter enter"), []);
    assert!(title_or_message(&app).starts_with("Set 1 constraint"), "nothing is chosen yet");
    press(&mut app, "right right");
    assert!(screen::text(&app).contains("minimum-workers-rate is 80 now"), "{}", screen::text(&app));
    for (value, expected_text) in
        [("", "a whole number"), ("many", "a whole number"), ("101", "at most 100"), ("-1", "negative")]
    {
        let mut app = open();
        assert_eq!(press(&mut app, &format!("right right tab \"{value}\" enter enter")), []);
        let message = app.session.message.as_ref().map(|m| m.text.clone()).unwrap_or_default();
        assert!(message.contains(expected_text) && app.dialog.is_some(), "{value}: {message}");
    }
    let effects = press(&mut app, "tab \"70\" tab \"fewer\" enter enter");
    let set = |value: &str| RegistryAction::Constraint { name: "minimum-workers-rate".into(), value: value.into() };
    assert_eq!(effects, registering(set("70"), Some("fewer")));
    // typed digits go into the value even without the focus
    assert_eq!(press(&mut open(), "right right 6 5 enter enter enter"), registering(set("65"), None));
    // another operator was faster
    let mut app = open();
    let mut other = World::usual();
    other.store.constraints = Some(stored("/cke/constraints", 77, Constraints::default()));
    update(&mut app, Event::Seen(seen(&other, None, ApplyState::Settled)));
    let expired = app.dialog.as_ref().and_then(|d| d.expired.clone()).unwrap_or_default();
    assert!(expired.contains("somebody set a constraint meanwhile"), "{expired}");
}

/// Automatic repair can be enabled and disabled too.
#[test]
fn automatic_repair_has_a_key_of_its_own() {
    let mut app = console(100, 30, seen(&World::usual(), None, ApplyState::Settled));
    assert_eq!(press(&mut app, "M enter y"), registering(RegistryAction::AutoRepair(false), None));
    let mut world = World::usual();
    world.store.auto_repair = Switch { raw: Some("true".into()), mod_revision: 5 };
    let mut app = console(100, 30, seen(&world, None, ApplyState::Settled));
    press(&mut app, "M");
    assert!(screen::text(&app).contains("! maximum-repair-queue-entries is 0"), "{}", screen::text(&app));
    assert_eq!(press(&mut app, "enter y"), registering(RegistryAction::AutoRepair(true), None));
}

/// A message that is cut has a mark, and is shown in full if there is space.
#[test]
fn a_long_error_is_truncated_with_a_mark_and_shown_in_full_below() {
    let why = format!("the definition cannot be read: {}the very end", "nodes[3] has no address, ".repeat(12));
    let app = console(80, 40, seen(&World::usual(), None, ApplyState::Error(why)));
    let lines = crate::views::registry_lines(&app, 80);
    assert!(lines[1].0.ends_with('~') && lines[1].0.len() <= 80, "{lines:?}");
    let text = screen::text(&app);
    assert_eq!(text.matches("the very end").count(), 1, "{text}");
    assert!(text.contains('~'), "{text}");
}

/// Measurement, no test: `cargo test --release --lib -- --ignored --nocapture a_frame_of_five_thousand`. A release
/// build should take less than 1 ms.
#[test]
#[ignore = "a measurement"]
fn a_frame_of_five_thousand_changed_nodes_costs_one_screenful() {
    let with = |count: usize| {
        let mut seen = Seen::clone(&seen(&World::usual(), Some(Ok(plan(true, &[]))), ApplyState::Applies));
        let nodes = (0..count).map(|i| NodeChange {
            address: Address::new(format!("10.7.{}.{}", i / 250, i % 250 + 1)),
            control_plane: false,
            kind: Kind::Changed,
            fields: Vec::new(),
            taints: true,
            evicts: false,
        });
        let change = Change { nodes: nodes.collect(), ..Change::default() };
        let proposal = seen.snapshot.registry.proposal.clone().unwrap();
        let proposed = proposal.outcome.clone().map(|p| Proposed { change, ..p });
        let proposal = Some(Arc::new(Proposal { outcome: proposed, ..Proposal::clone(&proposal) }));
        seen.snapshot.registry = Arc::new(Registry { proposal, ..Registry::default() });
        console(200, 50, Arc::new(seen))
    };
    let frame = |app: &App| {
        let began = std::time::Instant::now();
        (0..20).for_each(|_| drop(screen::buffer(app)));
        began.elapsed() / 20
    };
    let (few, many) = (frame(&with(50)), frame(&with(5000)));
    eprintln!("a frame of the Diff view: 50 changed nodes {few:?}, 5,000 {many:?}");
}
