//! Tests of *Needs you*, of the keys that it and the footer offer, and of the Overview's panels at every size.

use std::sync::Arc;

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::{Hold, Order, Verb, Who},
    entry::EntryId,
    freeze::Freeze,
    names::{Address, NodeName},
    policy::Policy,
    reason::Reason,
    reboot::RebootStatus,
    stored::keys::Folder,
    time::after,
};
use cketerm_rules::{
    decide::{ApplyState, AutoRepair},
    registry::{Basis, GoodAnswer, Proposal, Proposed, QueryState, Registry},
    seen::Seen,
};
use cketerm_sabakan::{
    Action, Machine, Machines, Plan, State,
    change::{Change, Gate, Kind, NodeChange},
    machine::Date,
};
use insta::assert_snapshot;

use super::{
    past::load_past,
    world::{BOOT, World, at, press, stored, wall},
};
use crate::{
    input::update,
    keys::{self, Command, TABLE},
    state::{App, Target, View, available, event::Event, object::Object, overview::OverviewRow},
    terminal::screen,
    theme::{Theme, charset::Charset},
    views,
};

const SIZES: [(u16, u16); 4] = [(60, 20), (80, 24), (120, 36), (200, 50)];

pub(super) fn overview(world: &World, columns: u16, rows: u16) -> App {
    let mut app = world.console_in(View::Overview, columns, rows);
    load_past(&mut app);
    app
}

/// Returns a world with repairs and hosts.
fn full_world() -> World {
    let (mut world, hosts) = (World::with_repairs(), World::with_hosts());
    world.kube.hosts = hosts.kube.hosts.clone();
    let source = hosts.kube.sources.get("baremetalhosts").cloned();
    world.kube.sources.insert("baremetalhosts".into(), source.unwrap());
    world
}

/// Returns a snapshot in which a plan changes this many machines.
pub(super) fn with_plan(world: &World, changes: usize, applying: ApplyState) -> Seen {
    let mut seen = Seen::clone(&world.seen());
    let nodes = (0..changes).map(|n| NodeChange {
        address: Address::new(format!("10.0.0.{}", 11 + n)),
        kind: if n == 0 { Kind::Removed } else { Kind::Changed },
        control_plane: false,
        fields: Vec::new(),
        evicts: false,
        taints: false,
    });
    let plan = Plan {
        action: Action::TaintNodes,
        reason: "worker-1 is unhealthy".into(),
        changed: true,
        cluster: None,
        nodes: Vec::new(),
        warnings: Vec::new(),
    };
    let proposed = Proposed {
        plan,
        change: Change { nodes: nodes.collect(), ..Change::default() },
        gate: Gate::default(),
        digest: "d1".into(),
        json: String::new(),
    };
    let proposal = Arc::new(Proposal { basis: Basis::default(), asked: wall(), outcome: Ok(proposed) });
    seen.snapshot.registry = Arc::new(Registry { proposal: Some(proposal), ..Registry::default() });
    let mut store = world.store.clone();
    store.registry.url = Some(stored("url", 5, "http://sabakan/graphql".to_owned()));
    seen.snapshot.store = Arc::new(store);
    seen.applying = Arc::new(applying);
    seen
}

fn lines(app: &App) -> Vec<(Object, String)> {
    app.knowledge.needs_you.iter().map(|line| (line.object.clone(), line.what.clone())).collect()
}

fn footer(app: &App) -> String {
    screen::text(app).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn overview_at_four_sizes() {
    for (columns, rows) in SIZES {
        let mut app = overview(&full_world(), columns, rows);
        assert_snapshot!(format!("overview_full_{columns}x{rows}"), screen::text(&app));
        app.config.blocks = true;
        assert_snapshot!(format!("overview_blocks_{columns}x{rows}"), screen::text(&app));
    }
}

#[test]
fn an_overview_without_trouble_is_one_green_line_and_teaches_one_step() {
    let mut world = World::usual();
    world.store.reboots.entries.clear();
    world.store.progress.clear();
    world.reasons.clear();
    let mut node = (*world.kube.by_name["worker-5"]).clone();
    node.ready = true;
    world.kube.put_node(node);
    for (columns, rows) in SIZES {
        let app = overview(&world, columns, rows);
        let text = screen::text(&app);
        assert!(text.contains("nothing needs you") && !text.contains("Needs you"), "{text}");
        assert!(
            text.contains("nothing is queued or in work") && text.contains("to reboot machines: 2 nodes"),
            "{text}"
        );
        assert!(!footer(&app).contains("n next"), "{text}");
    }
}

/// A kubelet that has just started is not Ready for a moment: after each reboot, a line of *Needs you* came and went. A
/// node whose cordon has a line of its own has only that one.
#[test]
fn a_node_that_has_just_become_not_ready_needs_nobody_and_no_node_has_two_lines() {
    let mut world = World::usual();
    let mut names = |seconds: i64, orphan: bool| {
        let mut node = (*world.kube.by_name["worker-5"]).clone();
        node.ready_since = Some(after(wall(), -seconds));
        world.kube.put_node(node);
        if orphan {
            let reason = Reason::OrphanedCordon { node: "worker-5".into(), entry: EntryId::reboot(1) };
            world.orphans.insert(NodeName::new("worker-5"), reason);
        }
        let app = world.console(80, 24);
        let of_node = app.knowledge.needs_you.iter().filter(|line| line.object == Object::Node("worker-5".into()));
        of_node.map(|line| line.what.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(119, false), [""; 0]);
    assert_eq!(names(120, false), ["not Ready, and nothing restarts it"]);
    assert_eq!(names(120, true).len(), 1);
}

/// Shape and letters carry the state, not colour alone.
#[test]
fn the_overview_reads_the_same_without_colours_and_in_ascii() {
    for (columns, rows) in SIZES {
        let mut app = overview(&full_world(), columns, rows);
        let text = screen::text(&app);
        app.config.theme = Theme::named("terminal", false).unwrap();
        assert_eq!(screen::text(&app), text);
        assert_eq!(screen::colours(&app).0, 0);
        app.config.charset = Charset::Ascii;
        let plain = screen::text(&app);
        assert!(plain.is_ascii() && plain.contains("#=") || plain.contains("##"), "{plain}");
        let letters = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        assert_eq!(letters(&plain), letters(&text));
        app.config.blocks = true;
        assert!(screen::text(&app).is_ascii());
    }
}

#[test]
fn every_line_that_can_be_opened_is_reachable_and_clickable() {
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    for (columns, rows) in SIZES {
        let mut app = overview(&full_world(), columns, rows);
        let all = app.lists.overview_rows.rows.clone();
        for (at, row) in all.iter().enumerate() {
            assert_eq!(app.lists.overview_rows.cursor.as_ref(), Some(row), "{columns}x{rows} {at}");
            let text = screen::text(&app);
            assert_eq!(text.matches("\u{2502}>").count(), 1, "the cursor is visible: {text}");
            let mut opened = app.clone();
            press(&mut opened, "enter");
            assert!(opened.navigation.view != View::Overview, "{row:?}");
            press(&mut opened, "esc");
            assert_eq!(opened.navigation.view, View::Overview, "{row:?}: {}", screen::text(&opened));
            press(&mut app, "j");
        }
        for y in 0..rows {
            for x in [5, columns / 2 + 10] {
                let Some(row) = views::overview_row_at(&app, x, y) else { continue };
                let kind = MouseEventKind::Down(MouseButton::Left);
                update(&mut app, Event::Mouse(MouseEvent { kind, column: x, row: y, modifiers: KeyModifiers::NONE }));
                assert_eq!(app.lists.overview_rows.cursor, Some(row.clone()), "{columns}x{rows} {x},{y}");
                assert!(all.contains(&row));
            }
        }
    }
}

/// Each offered key opens a dialog about that line's object, and about nothing else.
#[test]
fn the_keys_of_a_line_act_on_its_object_only() {
    for world in [World::usual(), full_world()] {
        let app = overview(&world, 120, 36);
        let mut offered = 0;
        for line in &app.knowledge.needs_you {
            for command in line.keys(&app) {
                let mut app = app.clone();
                app.lists.overview_rows.moved = true;
                app.lists.overview_rows.select_id(&OverviewRow::NeedsYou(line.object.clone()));
                let binding = TABLE.iter().find(|b| b.command == command).unwrap();
                if !binding.changes {
                    continue;
                }
                offered += 1;
                let key = app.config.keymap.key(binding.name).unwrap().to_owned();
                assert!(
                    footer(&app).contains(&format!("{} ", keys::title(&key))),
                    "{}: {}",
                    binding.name,
                    footer(&app)
                );
                press(&mut app, &key);
                let dialog = app.dialog.as_ref().unwrap_or_else(|| panic!("{command:?} {line:?}"));
                let action = format!("{:?}", dialog.action);
                let named = match &line.object {
                    Object::Entry(id) if command == Command::Repair => {
                        world.seen().snapshot.store.entry(*id).unwrap().address().to_string()
                    }
                    Object::Entry(id) => format!("index: {}", id.index),
                    Object::Node(name) => queries_address(&app, name),
                    Object::Host(id) => id.1.clone(),
                    other => panic!("{other:?}"),
                };
                assert!(action.contains(&named), "{command:?} on {:?}: {action}", line.object);
                assert_eq!(app.navigation.view, View::Overview);
            }
        }
        assert!(offered > 3, "{offered}");
    }
}

fn queries_address(app: &App, name: &str) -> String {
    crate::state::queries::address(&app.seen, name).map_or_else(|| name.to_owned(), |address| address.to_string())
}

/// A command that the footer offers works, and one that it does not offer is refused.
#[test]
fn a_command_is_available_exactly_when_its_key_does_something() {
    let changing = || TABLE.iter().filter(|b| b.changes && b.name != "lead");
    for world in [World::usual(), full_world(), World::with_hosts()] {
        for view in View::ALL {
            let mut app = world.console_in(view, 120, 36);
            super::past::load_past(&mut app);
            for _ in 0..12 {
                for binding in changing() {
                    let Some(key) = app.config.keymap.key(binding.name).map(str::to_owned) else { continue };
                    let mut pressed = app.clone();
                    let effects = press(&mut pressed, &key);
                    let acts = pressed.dialog.is_some()
                        || effects.iter().any(|e| matches!(e, crate::state::event::Effect::Act(_)));
                    assert_eq!(
                        available::here(&app, binding.command),
                        acts,
                        "{} in {view:?} on {:?}: {:?}",
                        binding.name,
                        app.target(),
                        pressed.session.message
                    );
                }
                press(&mut app, "j");
            }
        }
    }
}

#[test]
fn an_approval_is_offered_unless_applying_is_on_hold() {
    let world = World::usual();
    let approval = || ApplyState::Approval("d1".into(), "a worker leaves".into());
    let mut app = overview(&world, 100, 30);
    update(&mut app, Event::Seen(Arc::new(with_plan(&world, 11, approval()))));
    let (object, what) = lines(&app).into_iter().find(|(object, _)| *object == Object::Definition).unwrap();
    assert!(what.starts_with("10 machines change, 1 leave: waits for approval"), "{what}");
    press(&mut app, "n");
    while app.lists.overview_rows.cursor != Some(OverviewRow::NeedsYou(object.clone())) {
        press(&mut app, "n");
    }
    let text = screen::text(&app);
    assert!(text.contains("Y approve") && text.contains("sabakan gated"), "{text}");
    press(&mut app, "Y");
    assert!(app.dialog.is_some() && screen::text(&app).contains("Approve"), "{}", screen::text(&app));
    // on hold: the hold is what waits, and the key that ends it is offered
    let mut world = World::usual();
    let who = Who { user: "ann".into(), host: "ops2".into(), ssh_client: None };
    let hold = Hold { who, at: after(wall(), -600), reason: Some("storage".into()) };
    world.store.registry.hold = Some(stored("hold", 7, hold));
    let mut app = overview(&world, 100, 30);
    let waits = ApplyState::Waits("on hold by ann".into());
    update(&mut app, Event::Seen(Arc::new(with_plan(&world, 11, waits))));
    let line = app.knowledge.needs_you.iter().find(|line| line.object == Object::Definition).unwrap();
    assert_eq!(line.what, "10 machines change, 1 leave: on hold by ann");
    assert_eq!(line.keys(&app), [Command::Unhold]);
    for view in ["0", "4", "5"] {
        press(&mut app, view);
        let text = screen::text(&app);
        assert!(!text.contains("Y approve") && text.contains("ON HOLD"), "{view}: {text}");
    }
    assert!(footer(&app).contains("L resume applying"), "{}", footer(&app));
}

#[test]
fn an_unhealthy_machine_of_the_registry_is_listed_unless_it_is_repaired() {
    let mut world = World::usual();
    let listed_since = |world: &World, off: Option<&str>, since: Option<i64>| {
        let mut seen = with_plan(world, 0, ApplyState::Settled);
        let machine = Machine {
            serial: "S4".into(),
            labels: Vec::new(),
            rack: 1,
            index_in_rack: 1,
            role: "cs".into(),
            address: Address::new("10.0.0.14"),
            ipv4: vec!["10.0.0.14".into()],
            register_date: Date::utc(wall()),
            retire_date: Date::utc(wall()),
            bmc_type: String::new(),
            bmc_ipv4: String::new(),
            state: State::Unhealthy,
            since: since.map(|ago| after(wall(), -ago)),
            duration: Seconds::new(300.0),
        };
        let machines = Arc::new(Machines { list: vec![machine], ..Machines::default() });
        let good = GoodAnswer { machines, at: BOOT, wall: wall(), asked: wall(), with: (0, 0) };
        let registry =
            Registry { members: QueryState { good: Some(good), ..QueryState::default() }, ..Registry::default() };
        seen.snapshot.registry = Arc::new(registry);
        seen.auto_repair = Arc::new(AutoRepair { off: off.map(str::to_owned), ..AutoRepair::default() });
        let mut app = overview(world, 100, 30);
        update(&mut app, Event::Seen(Arc::new(seen)));
        app
    };
    let listed = |world: &World, off| listed_since(world, off, None);
    world.store.reboots.entries.remove(&3);
    let app = listed(&world, Some("disabled"));
    let object = Object::Machine(Address::new("10.0.0.14"));
    let line = app.knowledge.needs_you.iter().find(|line| line.object == object);
    assert_eq!(line.map(|line| line.what.as_str()), Some("unhealthy in the registry"), "{:?}", lines(&app));
    assert!(screen::text(&app).contains("worker-1"), "{}", screen::text(&app));
    // on the line of one machine, H stopped all applying
    let mut on_line = listed(&world, Some("disabled"));
    on_line.lists.overview_rows.cursor = Some(OverviewRow::NeedsYou(object.clone()));
    assert_eq!(on_line.acting_view(), View::Machines);
    let offers = |command| available::here(&on_line, command);
    assert!(!offers(Command::Hold) && !offers(Command::Unhold));
    press(&mut on_line, "H");
    assert!(on_line.dialog.is_none(), "{}", screen::text(&on_line));
    let is_listed = |app: &App| lines(app).iter().any(|(listed, _)| *listed == object);
    assert!(!is_listed(&listed(&world, None)), "automatic repair will add it");
    assert!(!is_listed(&listed_since(&world, Some("disabled"), Some(20))), "its reboot has just ended");
    assert!(is_listed(&listed_since(&world, Some("disabled"), Some(200))));
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 20, 30);
    assert!(!is_listed(&listed(&world, Some("disabled"))), "it is in work");
}

#[test]
fn the_header_is_not_green_while_the_queues_are_frozen() {
    let mut world = World::usual();
    let freeze = Freeze {
        until: after(wall(), 9000),
        reason: "quarter end".into(),
        who: Who::default(),
        unknown: serde_json::Map::new(),
    };
    world.store.policy = Some(stored("/p", 12, Policy { freeze: Some(freeze), ..Policy::default() }));
    for view in View::ALL {
        let app = world.console_in(view, 120, 30);
        let buffer = screen::buffer(&app);
        let line: String = (0..120).map(|x| buffer[(x, 0)].symbol().to_owned()).collect();
        let at = line.find("reboots FROZEN").unwrap_or_else(|| panic!("{view:?}: {line}"));
        assert_eq!(buffer[(u16::try_from(at).unwrap(), 0)].fg, app.config.theme.trouble.fg.unwrap(), "{view:?}");
    }
}

#[test]
fn work_that_waits_while_nobody_leads_needs_a_person() {
    let mut world = World::usual();
    (world.engine.leading, world.engine.lease) = (None, 0);
    world.store.candidates.clear();
    let app = overview(&world, 100, 30);
    let first = &app.knowledge.needs_you[0];
    assert_eq!(first.object, Object::Leadership);
    assert!(first.what.starts_with("nobody leads: 5 entries wait"), "{}", first.what);
    world.store.reboots.entries.clear();
    let app = overview(&world, 100, 30);
    assert!(!lines(&app).iter().any(|(object, _)| *object == Object::Leadership), "no work waits");
}

#[test]
fn a_lost_source_is_listed_by_time_alone_and_goes_when_it_is_back() {
    let world = World::usual();
    let mut app = overview(&world, 100, 30);
    let sources = |app: &App| lines(app).into_iter().filter(|(o, _)| matches!(o, Object::Source(_))).count();
    assert_eq!(sources(&app), 0);
    update(&mut app, Event::Tick(at(BOOT + Seconds::new(60.0))));
    assert_eq!(sources(&app), 2, "{:?}", lines(&app));
    assert!(screen::text(&app).contains("9 logs"), "{}", screen::text(&app));
    // nothing can be written: no line offers a verb
    let changing = |c: &Command| TABLE.iter().any(|b| b.command == *c && b.changes);
    assert!(app.knowledge.needs_you.iter().all(|line| !line.keys(&app).iter().any(changing)));
}

#[test]
fn an_entry_on_hold_offers_its_release_and_not_another_hold() {
    let mut world = World::usual();
    let who = Who { user: "ann".into(), host: "ops2".into(), ssh_client: None };
    let order = Order { verb: Verb::Hold, who, at: wall(), reason: None, entry_revision: 32 };
    world.store.orders.insert(EntryId::reboot(5), stored("o", 50, order));
    world.reasons.insert(EntryId::reboot(5), Reason::OnHold { who: "ann".into(), why: None });
    let mut app = world.console(120, 30);
    press(&mut app, "home j j");
    assert_eq!(app.target(), Some(Target::Entry(EntryId::reboot(5))));
    let hints = footer(&app);
    assert!(hints.contains("L unhold") && !hints.contains("H hold"), "{hints}");
    press(&mut app, "k");
    let hints = footer(&app);
    assert!(hints.contains("A retry") && !hints.contains("H hold") && !hints.contains("F force"), "{hints}");
}

#[test]
fn at_80_columns_the_tabs_keep_counts_and_marks() {
    let mut world = full_world();
    for n in 0..60 {
        let row = cketerm_model::kube::NodeRow {
            name: NodeName::new(format!("node-{n:03}")),
            ready: true,
            ..cketerm_model::kube::NodeRow::default()
        };
        world.kube.put_node(row);
    }
    let approval = ApplyState::Approval("d1".into(), "a worker leaves".into());
    for (columns, words) in [
        (80, ["1 Reb 6!", "2 Nod 68!", "3 Rep 6!", "4 Mac 0", "5 Dif 1!", "6 Hos 5!", "7 His", "9 Log"]),
        (60, ["1Reb 6!", "2Nod 68!", "3Rep 6!", "4Mac 0", "5Dif 1!", "6Hos 5!", "7", "9"]),
    ] {
        let mut app = overview(&world, columns, 24);
        update(&mut app, Event::Seen(Arc::new(with_plan(&world, 11, approval.clone()))));
        let text = screen::text(&app);
        let tabs = text.lines().nth(1).unwrap();
        for word in words {
            assert!(tabs.contains(word), "{word}: {tabs}");
        }
    }
}

#[test]
fn the_actions_that_set_up_a_sandbox_are_not_among_the_latest() {
    let mut app = World::usual().console_in(View::Overview, 120, 36);
    load_past(&mut app);
    let setup: Vec<_> = app.knowledge.past.audit.rows.keys().cloned().collect();
    for id in setup {
        let mut audit = (**app.knowledge.past.audit.rows[&id].as_ref().unwrap()).clone();
        audit.who.user = "sandbox".into();
        app.knowledge.past.audit.rows.insert(id, Ok(Arc::new(audit)));
    }
    let count = |app: &mut App, sandbox: bool| {
        app.config.sandbox = sandbox;
        crate::state::overview::refresh(app);
        let rows = app.knowledge.summary.latest.iter();
        rows.filter(|row| matches!(row.target(), Some(Target::Past(Folder::Audit, _)))).count()
    };
    assert_eq!((count(&mut app, true), count(&mut app, false)), (0, 4));
}

/// The list walks only the entries in work, not the whole queue.
#[test]
fn totals_know_the_entries_in_work() {
    let mut world = World::usual();
    let app = world.console(80, 24);
    let in_work = |app: &crate::state::App| {
        let ids = app.knowledge.totals.in_work.iter();
        ids.filter(|id| id.queue == cketerm_model::entry::QueueKind::Reboot).map(|id| id.index).collect::<Vec<_>>()
    };
    assert_eq!(in_work(&app), [3, 4]);
    world.entry(5, "10.0.0.16", cketerm_model::reboot::RebootStatus::Draining, 0, 50);
    assert_eq!(in_work(&world.console(80, 24)), [3, 4, 5]);
}
