//! Tests of what an operator beside CKE objected to: counts and words that said what cketerm would do, not CKE.

use cketerm_model::{
    batch::{Batch, BatchId},
    cketerm_records::{AcceptedCancel, Audit, EndKind, Request, Stopped, Who},
    entry::{EntryId, QueueKind},
    names::Address,
    reason::Reason,
    reboot::RebootStatus,
    record::Record,
    stored::{keys::Folder, view::Switch},
    time::after,
};

use super::{
    beside_cke::cke_drains,
    dialogs::refresh,
    past::page,
    world::{World, press, stored, wall},
};
use crate::{
    input::update,
    state::{App, View, event::Event, past::ReadResponse, short_text},
    terminal::{plain::ChangeReporter, screen},
};

fn who(user: &str) -> Who {
    Who { user: user.into(), host: "admin1".into(), ssh_client: None }
}

fn disabled() -> Switch {
    Switch { raw: Some("true".into()), mod_revision: 899 }
}

fn line_with(app: &App, words: &str) -> String {
    let text = screen::text(app);
    text.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {text}")).to_owned()
}

/// `:stop` said nothing of drains that CKE keeps and goes on with after `:resume`.
#[test]
fn stop_and_resume_say_that_cke_keeps_its_drains() {
    let mut app = cke_drains().console(80, 24);
    press(&mut app, ": \"stop\" enter");
    let text = screen::text(&app);
    assert!(text.contains("1 draining: CKE may go on with their commands at the next enable"), "{text}");
    let mut app = World::usual().console(80, 24);
    press(&mut app, ": \"stop\" enter");
    assert!(screen::text(&app).contains("1 draining: backed off and uncordoned"), "{}", screen::text(&app));
    let mut world = cke_drains();
    world.store.reboots.switch = disabled();
    let queues = vec![QueueKind::Reboot];
    world.store.stopped =
        Some(stored("s", 899, Stopped { who: who("bob"), at: after(wall(), -60), reason: None, queues }));
    let mut app = world.console(80, 24);
    press(&mut app, ": \"resume\" enter");
    let goes_on = "1 draining: CKE goes on with them and may run their commands";
    assert!(screen::text(&app).contains(goes_on), "{}", screen::text(&app));
    world.entry(3, "10.0.0.14", RebootStatus::Queued, 1, 900);
    refresh(&mut app, &world);
    assert!(!screen::text(&app).contains(goes_on), "the counts are those of now");
    world.entry(3, "10.0.0.14", RebootStatus::Draining, 1, 901);
    let mut app = world.console(80, 24);
    press(&mut app, "1 E");
    assert!(screen::text(&app).contains(goes_on), "{}", screen::text(&app));
}

/// *DISABLED, 2 in work finish* counted drains: cketerm gives them up, and CKE leaves them as they are.
#[test]
fn a_disabled_queue_counts_no_drain_as_work_that_finishes() {
    let title = |world: &World, width: u16| {
        let mut app = world.console_in(View::Overview, width, 36);
        let audit = Audit {
            at: after(wall(), -900),
            who: who("root"),
            what: "disable".into(),
            on: "reboot queue".into(),
            reason: Some("the storage of rack 3 is replaced".into()),
            result: "done".into(),
            failed: false,
            entry: None,
            repeats: None,
        };
        let mut read = page(vec![audit], false);
        read.values[0].mod_revision = 899;
        let read = ReadResponse::Audit(cketerm_clients::store::pages::Part::Newest, Ok(read));
        update(&mut app, Event::ReadFinished(Box::new(read)));
        line_with(&app, "Reboots: ")
    };
    let mut ours = World::usual();
    ours.store.reboots.switch = disabled();
    let text = title(&ours, 120);
    assert!(text.contains("1 in work finishes, 1 drain given up"), "{text}");
    let mut cke = cke_drains();
    cke.store.reboots.switch = disabled();
    let text = title(&cke, 120);
    assert!(
        text.contains("DISABLED by root 09:45Z (") && text.contains("1 in work finishes, 1 stays draining"),
        "{text}"
    );
    // a long reason pushed the state out of the title
    let text = title(&cke, 80);
    assert!(text.contains("DISABLED by root 09:45Z, 1 in work finishes, 1 stays draining"), "{text}");
    ours.store.candidates.clear();
    ours.store.engines.clear();
    ours.engine.leading = None;
    let text = title(&ours, 80);
    assert!(text.contains("2 in work wait for a leader"), "{text}");
}

/// Entries that CKE removed after their cancel counted as done.
#[test]
fn a_batch_counts_cancelled_entries_apart_under_cke() {
    let mut world = cke_drains();
    let at = after(wall(), -900);
    let (id, batch) = (BatchId::at(at), Batch::new(QueueKind::Reboot, who("alice"), at, Some("kernel".into()), 4));
    world.store.batches.insert(id, stored("/cke/cketerm/batches/x", 20, Batch { added: 4, ..batch }));
    for index in [3, 5, 20, 21] {
        let request = Request { who: who("alice"), at, reason: None, node_uid: None, batch: Some(id) };
        world.store.requests.insert(EntryId::reboot(index), stored("/cke/cketerm/requests/x", 20, request));
    }
    // CKE has removed 20 and 21; 21 had been cancelled
    let cancel = AcceptedCancel {
        who: who("alice"),
        at: after(wall(), -60),
        reason: None,
        address: Address::new("10.0.0.18"),
        created: 9,
        end: Some(EndKind::Cancelled),
    };
    world.store.cancels.insert(EntryId::reboot(21), stored("/cke/cketerm/cancels/reboots/21", 60, cancel));
    let mut app = world.console(160, 36);
    press(&mut app, "v");
    let line = line_with(&app, &id.to_string());
    assert!(line.contains("1/4"), "{line}");
    press(&mut app, "v g g enter");
    assert!(line_with(&app, "batch  ").contains("1/4 done, 1 cancelled"), "{}", screen::text(&app));
}

/// An entry that backs off because of a budget that never allows an eviction: a reset helps nobody.
fn never_allowed() -> World {
    let mut world = cke_drains();
    let cause = Reason::PdbNeverAllows {
        pod: "shop/web".into(),
        pdb: "shop/web".into(),
        healthy: 3,
        needed: 3,
        pods: 3,
        cause: None,
    };
    let (until, tried) = (after(wall(), 400), Some(after(wall(), -300)));
    world.reasons.insert(EntryId::reboot(6), Reason::Backoff { count: 2, until, cause: Some(Box::new(cause)), tried });
    world
}

#[test]
fn needs_you_offers_the_blockers_where_no_reset_helps() {
    let mut world = never_allowed();
    // alone with its cause
    world.store.reboots.entries.remove(&3);
    world.store.progress.clear();
    world.reasons.remove(&EntryId::reboot(3));
    let app = world.console_in(View::Overview, 80, 24);
    let line = line_with(&app, "never allows");
    assert!(line.contains("b blockers") && !line.contains("B reset"), "{line}");
    let budget =
        Reason::BlockedByPdb { pod: "db/pg-0".into(), pdb: "db/pg".into(), healthy: 2, needed: 2, cause: None };
    let until = after(wall(), 400);
    let backoff = Reason::Backoff { count: 9, until, cause: Some(Box::new(budget)), tried: None };
    world.reasons.insert(EntryId::reboot(6), backoff);
    let line = line_with(&world.console_in(View::Overview, 80, 24), "db/pg has 2");
    assert!(line.contains("B reset backoff"), "{line}");
}

/// The bar of keys of a backed-off entry lacked the list of what keeps its pods.
#[test]
fn a_backed_off_entry_offers_the_blockers_in_its_detail_and_in_the_footer() {
    let mut world = never_allowed();
    for index in [3, 4, 5, 7, 8] {
        world.store.reboots.entries.remove(&index);
        world.reasons.remove(&EntryId::reboot(index));
    }
    let mut app = world.console(100, 40);
    press(&mut app, "g g enter");
    let can = line_with(&app, "you can");
    assert!(can.contains("b blockers") && !can.contains("reset backoff"), "{can}");
    assert!(screen::text(&app).lines().rev().take(2).any(|line| line.contains("b blockers")), "{}", screen::text(&app));
}

/// The timeline called a refused drain one that began.
#[test]
fn the_timeline_tells_refused_drains_from_others() {
    let mut app = never_allowed().console(100, 60);
    press(&mut app, "g g j j j enter");
    let record = |id: u64, info: &str| {
        let start = after(wall(), -400);
        let record = Record::completed(id, "reboot-drain-start", "10.0.0.17", "", start, after(start, 3));
        stored(&format!("/cke/records/{id:016x}"), i64::try_from(id).unwrap(), Record { info: info.into(), ..record })
    };
    let values = vec![record(12, "failed to drain some nodes: [10.0.0.17]"), record(11, "")];
    let page = cketerm_clients::store::pages::Page { revision: 50, more: false, values };
    let read = ReadResponse::Records(cketerm_clients::store::pages::Part::Newest, Ok(page));
    update(&mut app, Event::ReadFinished(Box::new(read)));
    let text = screen::text(&app);
    assert!(text.contains("CKE: drain refused, took 3s") && text.contains("CKE: drain began, took 3s"), "{text}");
}

/// A cancelled entry had the time of the transition before its cancel.
#[test]
fn a_cancelled_entry_has_the_time_of_its_cancel() {
    let mut world = cke_drains();
    world.entry(7, "10.0.0.11", RebootStatus::Cancelled, 900, 60);
    let since = |world: &World| crate::state::queries::since(&world.seen(), EntryId::reboot(7));
    assert_eq!(since(&world), None, "ckecli writes no time");
    let cancel = AcceptedCancel {
        who: who("bob"),
        at: after(wall(), -20),
        reason: Some("wrong rack".into()),
        address: Address::new("10.0.0.11"),
        created: 9,
        end: None,
    };
    world.store.cancels.insert(EntryId::reboot(7), stored("/cke/cketerm/cancels/reboots/7", 60, cancel));
    assert_eq!(since(&world), Some(after(wall(), -20)));
    let mut app = world.console(100, 60);
    press(&mut app, "g g j j j j enter");
    let text = screen::text(&app);
    assert!(text.contains("20s ago  cancelled by bob@admin1: wrong rack"), "{text}");
    assert!(text.contains("cancelled since 09:59:40") && !text.contains("15m ago  cancelled"), "{text}");
}

/// Nothing is tried again in a disabled queue.
#[test]
fn a_disabled_queue_announces_no_retry() {
    for world in [World::usual(), cke_drains()] {
        let mut world = world;
        world.store.reboots.switch = disabled();
        world.reasons.insert(EntryId::reboot(6), Reason::QueueDisabled);
        for width in [80, 120] {
            let text = screen::text(&world.console_in(View::Overview, width, 36));
            assert!(text.contains("queue disabled") || text.contains("the queue is disabled"), "{text}");
            assert!(!text.contains("again at") && !text.contains("again 10:06"), "{text}");
        }
        let text = screen::text(&world.console(120, 36));
        assert!(text.contains("6m left") && !text.contains("again in"), "{text}");
        let mut app = world.console(100, 60);
        press(&mut app, "g g j j j enter");
        assert!(line_with(&app, "backed off").contains("left; the queue is disabled"), "{}", screen::text(&app));
    }
}

/// *waits for a slot, 3 in use* stood beside a gauge of 0/3.
#[test]
fn a_wait_behind_free_slots_names_who_starts_first() {
    let mut world = cke_drains();
    let why = Reason::WaitingForSlot { holder: Some(EntryId::reboot(6)), limit: 3, ahead: true };
    world.reasons.insert(EntryId::reboot(5), why);
    let text = screen::text(&world.console(120, 36));
    assert!(text.contains("waits for a slot: worker-4 starts first") && !text.contains("3 in use"), "{text}");
}

/// The end of a batch is not about an entry that waits behind another batch's.
#[test]
fn a_batch_whose_rest_waits_for_another_batch_does_not_back_off() {
    let (mut world, [_, kernel, late]) = super::batches::world(false);
    // the only entry of the late batch is the same machine's as one that is stuck
    world.store.reboots.entries.remove(&8);
    world.entry(6, "10.0.0.14", RebootStatus::Queued, 300, 33);
    let request = Request { who: who("alice"), at: wall(), reason: None, node_uid: None, batch: Some(late) };
    world.store.requests.insert(EntryId::reboot(6), stored("/cke/cketerm/requests/x", 20, request));
    world.reasons.insert(EntryId::reboot(6), Reason::DuplicateOf { index: 3 });
    let app = world.console_in(View::Overview, 160, 50);
    let part = app.knowledge.summary.reboots.sections.iter().find(|part| part.batch == Some(late)).unwrap();
    assert_eq!((part.motion.behind, part.motion.resting()), (1, 1));
    let text = screen::text(&app);
    assert!(text.contains("waits for its machine") && !text.contains("in backoff"), "{text}");
    let part = app.knowledge.summary.reboots.sections.iter().find(|part| part.batch == Some(kernel)).unwrap();
    assert_eq!(part.motion.resting(), 1, "the stuck one");
}

#[test]
fn a_typed_node_name_proposes_goto_and_key_names_the_configuration() {
    let mut app = World::usual().console(120, 24);
    press(&mut app, ": \"worker-3\" enter");
    assert!(screen::text(&app).contains("did you mean `goto worker-3`?"), "{}", screen::text(&app));
    press(&mut app, "esc : \"key X hold\" enter");
    assert!(screen::text(&app).contains("console.keys"), "{}", screen::text(&app));
}

#[test]
fn the_title_of_the_blockers_keeps_its_way_back() {
    let mut app = cke_drains().console(80, 24);
    press(&mut app, "b");
    assert!(line_with(&app, "Drain blockers").contains("Esc closes"), "{}", screen::text(&app));
}

#[test]
fn the_header_is_short_about_a_new_leader() {
    let mut world = World::usual();
    world.engine.leading.as_mut().unwrap().since = super::world::BOOT;
    let header = screen::text(&world.console(80, 24)).lines().next().unwrap().to_owned();
    assert!(header.contains("leading <1m  ") && header.contains("reboots on"), "{header}");
}

/// `--plain` called a machine's entry gone that CKE's record calls rebooted.
#[test]
fn plain_mode_reads_ckes_record_of_an_end() {
    let mut world = cke_drains();
    let mut reporter = ChangeReporter::default();
    let seen = world.seen();
    reporter.report(&seen, seen.now);
    let record = |operation: &str, address: &str| {
        let record = Record::completed(70, operation, address, "", wall(), wall());
        let command = cketerm_model::record::RecordCommand { name: "c".into(), ..record.command.clone() };
        serde_json::to_vec(&Record { command, ..record }).unwrap()
    };
    let recent = &mut world.store.recent;
    recent.record_value(Folder::Records, 60, &record("reboot-dequeue", "10.0.0.15"));
    recent.record_value(Folder::Records, 61, &record("reboot-cancel", "10.0.0.11"));
    // of an entry of the machine before
    recent.record_value(Folder::Records, 20, &record("reboot-dequeue", "10.0.0.16"));
    for index in [4, 5, 7] {
        world.store.reboots.entries.remove(&index);
    }
    let seen = world.seen();
    let lines = reporter.report(&seen, seen.now).join("\n");
    assert!(lines.contains("reboots/4 worker-2: ended: rebooted, by CKE's record"), "{lines}");
    assert!(lines.contains("reboots/7 cp-1: ended: cancelled, by CKE's record"), "{lines}");
    assert!(lines.contains("reboots/5 worker-3: gone, it was queued"), "{lines}");
}

/// Parts of a Node's state ran into each other: `needs 2 38/40`.
#[test]
fn the_parts_of_a_nodes_state_are_separated() {
    let (state, _) = short_text::node_state(&World::usual().console(80, 24), "worker-1");
    assert_eq!(state, "Ready, cordoned, draining, stuck: pdb shop/web has 2, needs 2, 38/40 pods");
}

#[test]
fn an_unreadable_entry_is_named_by_those_that_wait_for_it() {
    let world = cke_drains();
    assert!(world.store.reboots.entries[&8].get().is_none());
    let text = screen::text(&world.console(120, 36));
    assert!(text.contains("reboots/8 is unreadable: every pass of CKE fails"), "{text}");
}
