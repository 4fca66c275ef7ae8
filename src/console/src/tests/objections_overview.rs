//! Tests of what an operator objected to on the Overview: numbers of others under a batch's title, and work called done
//! that was not.

use std::sync::Arc;

use cketerm_clients::store::pages::{Page, Part};
use cketerm_model::{
    batch::{Batch, BatchId},
    boot_time::Seconds,
    cketerm_records::{Audit, Request, Who},
    cluster::{Members, Node},
    entry::{EntryId, QueueKind},
    freeze::Freeze,
    host::HostRow,
    kube::NodeRow,
    names::{Address, NodeName},
    policy::Policy,
    reason::Reason,
    reboot::{RebootEntry, RebootStatus},
    repair::{RepairStatus, StepStatus},
    stored::view::Definition,
    time::after,
};

use super::{
    past::{ending, page},
    world::{BOOT, World, at, message, press, stored, wall},
};
use crate::{
    input::update,
    state::{
        App, View,
        event::Event,
        object::Object,
        overview::OverviewRow,
        past::{Ended, ReadResponse},
    },
    terminal::screen,
};

fn who(user: &str) -> Who {
    Who { user: user.into(), host: "admin1".into(), ssh_client: None }
}

/// Stores a batch of these entries, asked for so many seconds ago.
fn batch(world: &mut World, ago: i64, reason: &str, entries: &[EntryId]) -> BatchId {
    let at = after(wall(), -ago);
    let (id, added) = (BatchId::at(at), entries.len() as u64);
    let batch = Batch { added, ..Batch::new(entries[0].queue, who("alice"), at, Some(reason.into()), added) };
    world.store.batches.insert(id, stored("/cke/cketerm/batches/x", 20, batch));
    for entry in entries {
        let request = Request { who: who("alice"), at, reason: Some(reason.into()), node_uid: None, batch: Some(id) };
        world.store.requests.insert(*entry, stored("/cke/cketerm/requests/x", 20, request));
    }
    id
}

/// Returns the lines of the panel whose title has these words.
fn panel(app: &App, words: &str) -> String {
    let text = screen::text(app);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {text}"));
    lines[first..first + 3].join("\n")
}

/// A world with one open repair that waits, of a batch, beside failed repairs of older batches.
fn repairs() -> World {
    let mut world = World::with_repairs();
    for index in [0, 1, 2, 5] {
        world.store.repairs.entries.remove(&index);
        world.reasons.remove(&EntryId::repair(index));
    }
    world.repair(6, "10.0.0.17", RepairStatus::Failed, 1, StepStatus::Watching, 900);
    batch(&mut world, 90_000, "last week", &[EntryId::repair(4), EntryId::repair(6)]);
    batch(&mut world, 60, "disk CHG-7", &[EntryId::repair(3)]);
    world
}

/// Failed repairs of other batches made a new batch look stuck and failed.
#[test]
fn the_panel_of_a_batch_counts_its_own_entries_only() {
    for (columns, rows) in [(120, 36), (80, 24)] {
        let app = repairs().console_in(View::Overview, columns, rows);
        let text = panel(&app, "disk CHG-7");
        let (title, rest) = text.split_once('\n').unwrap();
        assert!(!title.contains("STUCK"), "{text}");
        assert!(!rest.replace("others: 2 failed", "").contains("failed"), "{text}");
        assert!(!rest.contains("stuck"), "{text}");
        if columns == 120 {
            assert!(rest.contains("others: 2 failed"), "{text}");
        }
    }
}

/// At 80x24 the line with a queue's limits is left out while both queues have work, and the failed repairs of other
/// batches went with it.
#[test]
fn failed_entries_of_other_batches_are_counted_while_both_queues_have_batches() {
    let mut world = repairs();
    batch(&mut world, 3000, "kernel", &[3, 4, 5, 6, 7].map(EntryId::reboot));
    for (columns, rows) in [(60, 20), (80, 24), (120, 36), (200, 50)] {
        let app = world.console_in(View::Overview, columns, rows);
        let text = screen::text(&app);
        assert!(text.contains("others: 2 failed"), "{columns}x{rows}: {text}");
    }
    // two open batches of repairs, which have a line each
    world.repair(7, "10.0.0.13", RepairStatus::Queued, 0, StepStatus::Waiting, 30);
    batch(&mut world, 50, "disk CHG-8", &[EntryId::repair(7)]);
    for (columns, rows) in [(80, 24), (120, 36), (200, 50)] {
        let app = world.console_in(View::Overview, columns, rows);
        let text = screen::text(&app);
        assert!(text.contains("others: 2 failed"), "{columns}x{rows}: {text}");
    }
}

/// The title of one batch says how this batch moves, whatever the others do.
#[test]
fn each_batch_has_its_own_state() {
    let mut world = World::usual();
    world.store.reboots.entries.remove(&8);
    world.reasons.remove(&EntryId::reboot(8));
    let stuck = [EntryId::reboot(3)];
    batch(&mut world, 3000, "kernel", &stuck);
    batch(&mut world, 2000, "BIOS", &[4, 5, 6, 7].map(EntryId::reboot));
    let app = world.console_in(View::Overview, 120, 40);
    assert!(panel(&app, "kernel").contains("STUCK"), "{}", screen::text(&app));
    assert!(panel(&app, "BIOS").contains("moving"), "{}", screen::text(&app));
}

/// A cancelled reboot whose machine still boots leaves a cordon: the queues are empty, but not done with.
#[test]
fn a_cordon_that_ends_after_the_boot_is_shown_until_then() {
    let idle = |names: &[&str], others: bool| {
        let mut world = World::usual();
        if others {
            for index in [3, 4, 6, 7, 8] {
                world.store.reboots.entries.remove(&index);
            }
        } else {
            world.store.reboots.entries.clear();
        }
        world.reasons.retain(|id, _| world.store.reboots.entries.contains_key(&id.index));
        for name in names {
            let reason = Reason::OrphanedCordon { node: (*name).into(), entry: EntryId::reboot(1) };
            world.orphans.insert(NodeName::new(*name), reason);
            world.cordon(name, 1);
            let mut node = NodeRow::clone(&world.kube.nodes[*name]);
            if let Some(Ok(owner)) = &mut node.owner {
                owner.since = Some(after(wall(), -10));
            }
            world.kube.put_node(node);
        }
        screen::text(&world.console_in(View::Overview, 80, 24))
    };
    let one = idle(&["cp-2"], false);
    assert!(one.contains("both queues are empty; cp-2 is uncordoned after its boot"), "{one}");
    assert!(!one.contains("nothing is queued or in work"), "{one}");
    let two = idle(&["cp-2", "cp-3"], false);
    assert!(two.contains("2 nodes are uncordoned after their boots"), "{two}");
    assert!(idle(&["cp-2"], true).contains("cp-2 is uncordoned after its boot"));
    assert!(idle(&[], false).contains("nothing is queued or in work"));
}

/// One operator may cancel what another one asked for.
#[test]
fn the_past_names_who_cancelled_not_only_who_asked() {
    let ended = |index, by: Option<&str>| {
        let by = by.map(who);
        Ended::from(&ending(index, "cancelled", i64::try_from(index).unwrap()).withdrawn_by(by.as_ref()))
    };
    // 2 and 4 were asked by alice, 3 by bob, whom nobody recorded as the one who cancelled
    let rows = vec![ended(2, Some("bob")), ended(3, None), ended(4, Some("alice"))];
    let mut app = World::usual().console_in(View::Overview, 160, 50);
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::History(Part::Newest, Ok(page(rows, false))))));
    let text = screen::text(&app);
    for words in ["cancelled by bob (asked by alice)", "cancelled by ? (asked by bob)", "cancelled by alice "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    press(&mut app, "7");
    assert!(screen::text(&app).contains("cancelled by bob@admin1"), "{}", screen::text(&app));
    press(&mut app, "enter");
    assert!(screen::text(&app).contains("outcome    cancelled by bob@admin1"), "{}", screen::text(&app));
    // the action of the other one is not known: neither bob, who asked for it, nor nobody cancelled it
    press(&mut app, "esc j enter");
    let text = screen::text(&app);
    assert!(text.contains("outcome    cancelled, by whom is not recorded"), "{text}");
}

/// A line that names several machines acted on the first of them only.
#[test]
fn the_keys_of_a_line_act_on_all_machines_that_it_names() {
    let on_line = |keys: &str| {
        let mut app = repairs().console_in(View::Overview, 120, 36);
        let line = app.knowledge.needs_you.iter().find(|line| line.count == 2).unwrap();
        let row = OverviewRow::NeedsYou(line.object.clone());
        assert!(app.lists.overview_rows.select_id(&row));
        press(&mut app, keys);
        app
    };
    for (key, words) in [("P", "2 machines"), ("X", "2 repairs")] {
        let text = screen::text(&on_line(key));
        assert!(text.contains(words), "{key}: {text}");
        assert!(text.contains("worker-4") && text.contains("worker-5"), "{key}: {text}");
    }
    let app = on_line("enter");
    assert_eq!(app.navigation.view, View::Repairs);
    assert_eq!(message(&app), "worker-4: 1 of 2 with this cause; also worker-5");
}

/// A machine that was added to the definition a moment ago is on its way.
#[test]
fn a_new_member_without_a_node_needs_nobody_at_first() {
    let is_listed = |app: &App| app.knowledge.needs_you.iter().any(|line| line.object == Object::Node("new-1".into()));
    let with_member = |world: &mut World| {
        let mut cluster = world.store.definition().unwrap().cluster.clone();
        let (address, hostname) = (Address::new("10.0.0.99"), NodeName::new("new-1"));
        cluster.nodes.push(Node { address, hostname, ..Node::default() });
        let members = Members::of(&cluster);
        world.store.cluster = Some(stored("/cke/cluster", 60, Definition { cluster, members }));
    };
    let mut world = World::usual();
    let mut app = world.console_in(View::Overview, 120, 36);
    with_member(&mut world);
    update(&mut app, Event::Seen(world.seen()));
    assert!(!is_listed(&app), "it has just joined");
    let patience = f64::from(u32::try_from(world.store.policy().stuck_seconds).unwrap());
    world.boot = world.boot + Seconds::new(patience + 1.0);
    (world.store.last_seen, world.store.revision) = (world.boot, 43);
    world.each_source(|source| source.last_seen = at(BOOT + Seconds::new(patience + 1.0)).boot);
    update(&mut app, Event::Seen(world.seen()));
    assert!(is_listed(&app), "{}", screen::text(&app));
    // a console that has just started does not know since when
    let mut world = World::usual();
    with_member(&mut world);
    assert!(is_listed(&world.console_in(View::Overview, 120, 36)));
}

/// The client writes a record before an action on a host and one after it: they are one action.
#[test]
fn an_action_on_a_host_is_one_line_of_latest() {
    let record = |revision: i64, result: &str| {
        let (what, on, who) = ("host power off".into(), "metal3/m1".into(), who("alice"));
        let at = after(wall(), revision - 100);
        let audit =
            Audit { at, who, what, on, reason: None, result: result.into(), failed: false, entry: None, repeats: None };
        stored(&format!("/cke/cketerm/audit/{revision}"), revision, audit)
    };
    let values = vec![record(51, "done"), record(50, Audit::BEGUN)];
    let page = Page { revision: 60, more: false, values };
    let mut app = World::usual().console_in(View::Overview, 120, 50);
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Audit(Part::Newest, Ok(page)))));
    assert_eq!(screen::text(&app).matches("host power off").count(), 1, "{}", screen::text(&app));
}

/// A host that was asked to be off is not simply on.
#[test]
fn a_host_that_is_turned_off_says_so() {
    let mut world = World::with_hosts();
    let host = world.kube.hosts.values().find(|host| host.name == "m1").unwrap();
    let host = HostRow { online: false, ..HostRow::clone(host) };
    world.kube.hosts.insert((host.namespace.clone(), host.name.clone()), Arc::new(host));
    let text = screen::text(&world.console_in(View::Hosts, 120, 24));
    let line = text.lines().find(|line| line.contains(" m1 ")).unwrap();
    assert!(line.contains("turning off"), "{text}");
    assert_eq!(text.matches("turning off").count(), 1, "a paused host does not act: {text}");
}

/// A narrow header keeps who leads and the freeze; the clock is the first to go.
#[test]
fn a_narrow_header_keeps_the_leader_and_the_freeze_but_not_the_clock() {
    let mut world = World::with_repairs();
    world.engine.missing_programs = vec!["ipmitool".to_owned(), "racadm".to_owned()];
    let policy = Policy::clone(&world.store.policy());
    let freeze = Freeze {
        until: after(wall(), 3600),
        reason: "night".into(),
        who: who("carol"),
        unknown: serde_json::Map::new(),
    };
    world.store.policy = Some(stored("/cke/cketerm/policy", 6, Policy { freeze: Some(freeze), ..policy }));
    for columns in [60, 80, 100, 200] {
        let text = screen::text(&world.console_in(View::Overview, columns, 24));
        let header = text.lines().next().unwrap();
        assert!(header.contains("leading") && header.contains("reboots FROZEN"), "{header}");
        assert!(header.contains("need you"), "{header}");
        assert!(columns < 200 || header.contains("10:00Z"), "{header}");
    }
}

/// Beside the cursor's line, which has no detail, a third of a very wide screen was an empty frame.
#[test]
fn the_detail_of_a_very_wide_screen_is_never_empty_while_work_runs() {
    let mut world = World::usual();
    let waits = |e: &RebootEntry| e.status == RebootStatus::Queued;
    let entries = world.store.reboots.entries.clone();
    for (index, _) in entries.iter().filter(|(_, stored)| stored.get().is_some_and(waits)) {
        world.store.reboots.entries.remove(index);
    }
    world.reasons.retain(|id, _| world.store.reboots.entries.contains_key(&id.index));
    let mut app = world.console_in(View::Overview, 200, 50);
    app.lists.overview_rows.cursor = Some(OverviewRow::Progress(QueueKind::Reboot));
    let longest = app.knowledge.summary.work[0];
    let (text, title) = (screen::text(&app), format!("─ {longest} "));
    assert!(!text.contains("─ Detail ─") && text.contains(&title), "{title}{text}");
}
