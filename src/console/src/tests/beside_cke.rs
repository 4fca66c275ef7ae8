//! Screens while CKE leads: reasons, progress and blockers that cketerm reads from CKE's rules.

use std::sync::Arc;

use cketerm_clients::store::pages::{Page, Part};
use cketerm_model::{
    cketerm_records::Status,
    entry::EntryId,
    kube::{BudgetRow, NodePods, PodRow},
    names::NodeName,
    record::{Record, RecordCommand},
    stored::{keys::Folder, view::Candidate},
    time::after,
};
use cketerm_rules::{beside_cke, snapshot::Engine};

use super::{
    past::load_past,
    world::{World, at, press, stored, wall},
};
use crate::{
    input::update,
    state::{
        App, Target, View,
        event::{Effect, Event},
        past::{ReadRequest, ReadResponse},
    },
    terminal::screen,
};

/// CKE leads and drains worker-1, where a budget that never allows an eviction keeps a pod.
pub(super) fn cke_drains() -> World {
    let mut world = World::usual();
    world.store.engines.clear();
    world.store.progress.clear();
    world.store.attempts.clear();
    world.store.candidates.clear();
    let key = "/cke/leader//694d77aa9e38260f".to_owned();
    let cke = Candidate { key, lease: 0x694d_77aa_9e38_260f, host: "boot-0".into(), create_revision: 1 };
    world.store.candidates.insert(1, cke);
    let status = Status { phase: "reboot-nodes".into(), timestamp: "2026-08-01T12:00:00Z".into() };
    world.store.status = Some(stored("/cke/status", 9, status));
    world.engine = Engine { leading: None, lease: 0, ..world.engine };
    let mut definition = world.store.definition().unwrap().clone();
    definition.cluster.reboot.reboot_command = Some(vec!["reboot".into()]);
    definition.cluster.reboot.boot_check_command = Some(vec!["check".into()]);
    definition.cluster.reboot.max_concurrent_reboots = Some(2);
    world.store.cluster = Some(stored("/cke/cluster", 5, definition));
    let selector = serde_json::from_value(serde_json::json!({"matchLabels": {"app": "web"}})).unwrap();
    let (namespace, name) = ("shop".to_owned(), "web".to_owned());
    let row = BudgetRow {
        namespace: namespace.clone(),
        name: name.clone(),
        selector: Some(selector),
        healthy: 3,
        needed: 3,
        pods: 3,
        ..BudgetRow::default()
    };
    world.kube.budgets.insert((namespace, name), Arc::new(row));
    let pod = |name: &str| {
        let labels = [("app".to_owned(), name.to_owned())].into();
        let (namespace, phase) = ("shop".to_owned(), "Running".to_owned());
        Arc::new(PodRow {
            namespace,
            name: name.into(),
            uid: name.into(),
            phase,
            ready: true,
            labels,
            ..PodRow::default()
        })
    };
    let pods = ["web", "cache"].into_iter().map(|name| (name.to_owned(), pod(name))).collect();
    world.kube.pods.insert(NodeName::new("worker-1"), NodePods { synced: true, pods, ..NodePods::default() });
    let snapshot = world.seen().snapshot.clone();
    let (decision, reading) = beside_cke::decision(&snapshot, at(world.boot));
    world.reasons = decision.reasons;
    world.store = (*beside_cke::with_progress(&snapshot.store, &reading.unwrap())).clone();
    world
}

#[test]
fn blockers_of_a_drain_of_cke_are_named_and_labelled() {
    let mut app = cke_drains().console_in(View::Reboots, 80, 24);
    press(&mut app, "b");
    let text = screen::text(&app);
    assert!(
        text.contains("pdb shop/web: 3 of 3 needed healthy, 0 may be disrupted") && text.contains("pods: shop/web"),
        "{text}"
    );
    assert!(text.contains("Drain blockers (as cketerm reads CKE's rules)"), "{text}");
}

#[test]
fn the_detail_of_a_drain_of_cke_shows_its_pods_and_its_deadline() {
    let mut app = cke_drains().console_in(View::Reboots, 80, 24);
    press(&mut app, "g g enter");
    let text = screen::text(&app);
    assert!(text.contains("which never allows an") && text.contains("Pods: 0 of 2 gone"), "{text}");
    assert!(text.contains("cketerm reads CKE's rules)") && text.contains("next       in 6m"), "{text}");
}

#[test]
fn the_detail_and_the_list_of_blockers_offer_only_what_the_leader_honours() {
    let mut app = cke_drains().console_in(View::Reboots, 80, 40);
    press(&mut app, "g g enter");
    let text = screen::text(&app);
    let can = text.lines().find(|line| line.contains("you can")).unwrap();
    assert!(can.contains("X cancel") && !can.contains("hold") && !can.contains("force"), "{text}");
    // once CKE has stopped, nothing is evaluated
    let mut stopped = cke_drains();
    stopped.store.candidates.clear();
    stopped.store.progress.clear();
    stopped.reasons.clear();
    let mut app = stopped.console_in(View::Reboots, 80, 24);
    press(&mut app, "b");
    let text = screen::text(&app);
    assert!(text.contains("not evaluated") && !text.contains("nothing blocks"), "{text}");
}

#[test]
fn overview_names_ckes_lease_and_phase_and_a_budget_that_never_allows_needs_a_person() {
    let mut idle = cke_drains();
    idle.store.reboots.entries.clear();
    let idle = screen::text(&idle.console_in(View::Overview, 120, 36));
    assert!(idle.contains("lease 694d77aa9e38260f, reboot-nodes)"), "{idle}");
    let text = screen::text(&cke_drains().console_in(View::Overview, 120, 36));
    assert!(text.contains("In work (2), 1 backing off, by CKE's rules"), "{text}");
    assert!(text.contains("pdb shop/web never allows"), "{text}");
    let wide = screen::text(&cke_drains().console_in(View::Reboots, 200, 50));
    assert!(wide.contains("CKE on boot-0 leads") && wide.contains("260f  reboot-nodes"), "{wide}");
    let small = screen::text(&cke_drains().console_in(View::Overview, 80, 24));
    assert!(small.contains("pdb shop/web never allows") && small.contains("by CKE's rules"), "{small}");
}

#[test]
fn rows_say_how_far_a_boot_is_and_what_waits_for_what() {
    let world = cke_drains();
    let text = screen::text(&world.console_in(View::Reboots, 120, 36));
    assert!(text.contains("Node Ready") && !text.contains("leads and processes the queue"), "{text}");
    assert!(world.reasons.contains_key(&EntryId::reboot(5)), "{text}");
}

/// The timeline of an entry under CKE lacked its drains, which CKE's records have.
#[test]
fn the_timeline_has_the_drains_of_ckes_records() {
    let world = cke_drains();
    let mut app = world.console_in(View::Reboots, 100, 60);
    let asked = press(&mut app, "g g enter");
    let page = Effect::Ask(ReadRequest::Page(Folder::Records, Part::Newest));
    assert!(asked.contains(&page), "{asked:?}");
    assert!(screen::text(&app).contains("reading CKE's records of its drains"), "{}", screen::text(&app));
    let record = |id: u64, operation: &str, target: &str, ago: i64, took: i64| {
        let start = after(wall(), -ago);
        let record = Record::completed(id, operation, target, "", start, after(start, took));
        stored(&format!("/cke/records/{id:016x}"), i64::try_from(id).unwrap(), record)
    };
    // of an entry before, of another machine, and of this entry
    let values = [
        (9, "reboot-dequeue", "10.0.0.14", 4000, 1),
        (10, "reboot-drain-start", "10.0.0.15", 700, 3),
        (11, "reboot-drain-start", "10.0.0.14", 600, 3),
        (12, "reboot-drain-timeout", "10.0.0.14", 300, 1),
        (8, "reboot-drain-start", "10.0.0.14", 5000, 3),
    ];
    let mut values: Vec<_> =
        values.into_iter().map(|(id, what, of, ago, took)| record(id, what, of, ago, took)).collect();
    values.sort_by_key(|stored| std::cmp::Reverse(stored.mod_revision));
    let records = Page { revision: 50, more: false, values };
    update(&mut app, Event::ReadFinished(Box::new(ReadResponse::Records(Part::Newest, Ok(records)))));
    let text = screen::text(&app);
    for words in ["CKE: drain began, took 3s", "CKE: drain given up after its time limit"] {
        assert_eq!(text.matches(words).count(), 1, "{words}: {text}");
    }
    assert!(!text.contains("reading CKE's records"), "{text}");
}

/// A record of CKE that ended `ago` seconds ago.
fn record(id: u64, operation: &str, address: &str, info: &str, ago: i64) -> Record {
    let record = Record::completed(id, operation, address, "", after(wall(), -ago - 4), after(wall(), -ago));
    let command = RecordCommand { name: "rebootCommand".to_owned(), ..record.command };
    Record { info: info.to_owned(), command, ..record }
}

fn load_records(app: &mut App, records: Vec<Record>) {
    let stored = |record: Record| {
        let revision = i64::try_from(record.id).unwrap();
        stored(&format!("/cke/records/{:016x}", record.id), revision, record)
    };
    let mut values: Vec<_> = records.into_iter().map(stored).collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.mod_revision));
    let page = Page { revision: 9_999, values, more: false };
    update(app, Event::ReadFinished(Box::new(ReadResponse::Records(Part::Newest, Ok(page)))));
}

#[test]
fn latest_shows_what_ckes_records_tell() {
    let mut app = cke_drains().console_in(View::Overview, 120, 36);
    load_past(&mut app);
    let info = |verb: &str| format!("failed to {verb} some nodes: [10.0.0.15]");
    let mut records = vec![
        record(1, "reboot-drain-start", "10.0.0.14", "", 150),
        record(2, "reboot-reboot", "10.0.0.14", "", 100),
        record(3, "reboot-dequeue", "10.0.0.14", "", 50),
        record(4, "reboot-uncordon", "10.0.0.14", "", 45),
        record(90, "reboot-reboot", "10.0.0.15", &info("reboot"), 3),
    ];
    // CKE tries a drain for hours
    records.extend(
        (10..80)
            .map(|id| record(id, "reboot-drain-start", "10.0.0.15", &info("drain"), 90 - i64::try_from(id).unwrap())),
    );
    load_records(&mut app, records);
    let text = screen::text(&app);
    let names = |address: &str| app.seen.snapshot.machine(&cketerm_model::names::Address::new(address));
    let (rebooted, failed) = (names("10.0.0.14"), names("10.0.0.15"));
    assert!(text.contains(&format!("CKE: {rebooted} rebooted, 1m")), "{text}");
    assert!(text.contains(&format!("CKE: reboot command failed on {failed}")), "{text}");
    assert!(text.contains(&format!("CKE: drain of {failed} refused (70")), "{text}");
    assert_eq!(text.matches("CKE: ").count(), 3, "{text}");
    // a line opens its record
    let of_record =
        |row: &crate::state::overview::OverviewRow| matches!(row.target(), Some(Target::Past(Folder::Records, _)));
    let row = app.knowledge.summary.latest.iter().find(|row| of_record(row)).cloned().unwrap();
    app.lists.overview_rows.select_id(&row);
    press(&mut app, "enter");
    let text = screen::text(&app);
    assert!(text.contains("record 90 reboot-reboot") && text.contains("failed to reboot some nodes"), "{text}");
}

#[test]
fn ckes_records_are_read_for_the_overview_only_while_cke_leads_and_only_when_they_grow() {
    let asks = |effects: &[Effect]| {
        let records = |effect: &&Effect| matches!(effect, Effect::Ask(ReadRequest::Page(Folder::Records, _)));
        effects.iter().filter(records).count()
    };
    let mut ours = World::usual().console_in(View::Overview, 120, 36);
    let seen = std::sync::Arc::clone(&ours.seen);
    assert_eq!(asks(&update(&mut ours, Event::Seen(seen))), 0, "cketerm leads");
    let mut world = cke_drains();
    let mut app = world.console_in(View::Reboots, 120, 36);
    assert_eq!(asks(&press(&mut app, "j")), 0, "another view");
    let seen = world.seen();
    assert_eq!(asks(&press(&mut app, "0")), 1);
    load_records(&mut app, vec![record(1, "reboot-dequeue", "10.0.0.14", "", 50)]);
    for _ in 0..5 {
        assert_eq!(asks(&update(&mut app, Event::Seen(std::sync::Arc::clone(&seen)))), 0, "nothing was written");
    }
    world.store.grown.insert(Folder::Records, 10_001);
    world.boot = world.boot + std::time::Duration::from_secs(5);
    assert_eq!(asks(&update(&mut app, Event::Seen(world.seen()))), 1);
}

#[test]
fn the_header_at_80_columns_tells_two_programs_of_one_host_apart_and_shows_ckes_phase() {
    let line = |world: &World, view| screen::text(&world.console_in(view, 80, 24)).lines().next().unwrap().to_owned();
    let mut world = cke_drains();
    for view in [View::Overview, View::Reboots] {
        let header = line(&world, view);
        assert!(header.contains("CKE on boot-0 leads  lease \u{2026}260f  reboot-nodes"), "{header}");
    }
    // however little room there is
    let mut definition = world.store.definition().unwrap().clone();
    definition.cluster.name = "a-cluster-with-a-rather-long-name".to_owned();
    world.store.cluster = Some(stored("/cke/cluster", 5, definition));
    let other = Candidate {
        key: "/cke/leader//694d77aa9e384444".to_owned(),
        lease: 0x694d_77aa_9e38_4444,
        host: "boot-0".into(),
        create_revision: 7,
    };
    world.store.candidates.insert(7, other);
    let header = line(&world, View::Reboots);
    assert!(header.contains("lease \u{2026}260f"), "{header}");
    let wide = screen::text(&world.console_in(View::Overview, 200, 50));
    assert!(wide.contains("CKE, lease \u{2026}4444"), "{wide}");
}

#[test]
fn the_tour_beside_cke_leads_from_the_reason_to_a_confirmed_cancel_and_the_handover() {
    let mut world = cke_drains();
    let mut app = world.console_in(View::Overview, 80, 24);
    app.config.sandbox = true;
    let at = |app: &App| app.session.tour.as_ref().map(|tour| tour.at + 1);
    press(&mut app, ": \"tour\" enter");
    assert!(screen::text(&app).contains("Tour 1 of 7"), "{}", screen::text(&app));
    press(&mut app, "1");
    assert_eq!(at(&app), Some(2));
    press(&mut app, "G enter");
    assert_eq!(at(&app), Some(2), "this entry waits for nothing that has a name");
    press(&mut app, "esc g g enter");
    assert_eq!(at(&app), Some(3), "{}", screen::text(&app));
    press(&mut app, "esc b");
    assert_eq!(at(&app), Some(4));
    // above the one that cannot be read
    press(&mut app, "esc G k X enter y");
    assert_eq!(at(&app), Some(4), "CKE has not removed the entry yet");
    let cancelled = 7_u64;
    world.store.reboots.entries.remove(&cancelled);
    update(&mut app, Event::Done(Ok(format!("cancelled reboots/{cancelled}").into())));
    update(&mut app, Event::Seen(world.seen()));
    assert_eq!(at(&app), Some(5), "{}", screen::text(&app));
    press(&mut app, "8");
    assert!(at(&app) == Some(6) && screen::text(&app).contains("engine take --check"), "{}", screen::text(&app));
    press(&mut app, "0");
    assert_eq!(at(&app), Some(7));
    press(&mut app, "esc esc esc");
    assert_eq!(at(&app), None);
}
