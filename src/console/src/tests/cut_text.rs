//! Tests of texts that their line cuts: they go on where there is room, and nothing is said twice.

use cketerm_model::{
    entry::EntryId,
    reason::{
        Reason,
        budget_cause::{BudgetCause, Exclusion, Opens, PodTrouble, UnhealthyPod},
    },
    repair::{RepairEntry, RepairStatus, StepStatus},
    time::after,
};

use super::{
    past::load_past,
    world::{World, press, stored, wall},
};
use crate::{
    state::{App, View, short_text},
    terminal::screen,
    views,
};

fn line(app: &App, of: &str) -> String {
    let text = screen::text(app);
    text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of:?}:\n{text}")).to_owned()
}

/// Returns the lines of the panel with this title.
fn panel(app: &App, title: &str) -> String {
    let text = screen::text(app);
    let lines = text.lines().skip_while(|line| !line.contains(title)).skip(1);
    lines.take_while(|line| !line.starts_with('\u{2514}')).collect::<Vec<_>>().join("\n")
}

/// PROGRESS said `again in 6m` and the reason beside it `in 6m`.
#[test]
fn the_end_of_a_backoff_is_said_once() {
    let mut world = World::with_repairs();
    let entry = world.store.repairs.entries[&2].get().unwrap().clone();
    let until = after(wall(), 400);
    let backed = RepairEntry {
        status: RepairStatus::Processing,
        step_status: StepStatus::Waiting,
        drain_backoff_count: 1,
        drain_backoff_expire: Some(until),
        ..entry
    };
    world.store.repairs.entries.insert(2, stored("/cke/repairs/data/0000000000000002", 62, backed));
    let pdb = Reason::BlockedByPdb { pod: "db/pg-0".into(), pdb: "db/pg".into(), healthy: 2, needed: 2, cause: None };
    let backoff = |cause| Reason::Backoff { count: 1, until, cause: Some(Box::new(cause)), tried: None };
    world.reasons.insert(EntryId::repair(2), backoff(pdb));
    for (columns, rows) in [(80, 24), (200, 50)] {
        let app = world.console_in(View::Overview, columns, rows);
        let row = line(&app, "again in 6m");
        assert!(row.contains("pdb db/pg") && row.matches("in 6m").count() == 1, "{row}");
    }
    // a queue that was disabled meanwhile names the remedy, not the time once more
    let mut world = World::usual();
    world.reasons.insert(EntryId::reboot(6), backoff(Reason::QueueDisabled));
    let row = line(&world.console(80, 24), "worker-4");
    assert!(row.contains("again in 6m") && row.matches("in 6m").count() == 1, "{row}");
    assert!(row.contains("reset-backoff"), "{row}");
}

#[test]
fn the_reason_of_a_blocked_entry_goes_on_in_a_second_line_of_the_overview() {
    let mut app = World::usual().console_in(View::Overview, 80, 24);
    load_past(&mut app);
    let work = panel(&app, "In work (2)");
    assert!(work.contains("web-7d9f8b6c5-x2x4z") && !work.contains('~'), "{work}");
    views::check_overview_rows(&app);
    // the keys go from entry to entry
    for _ in 0..20 {
        press(&mut app, "j");
        views::check_overview_rows(&app);
    }
    assert!(!panel(&app, "Latest").is_empty(), "{}", screen::text(&app));
    // without room lesser words are left out
    let app = World::with_repairs().console_in(View::Overview, 80, 24);
    let work = panel(&app, "In work");
    assert!(work.contains("pdb shop/web has 2, needs 2 ") && !work.contains("x2x4z"), "{work}");
}

/// At 200x50 the panel of the latest events had twenty empty lines below `(asked by alic~`.
#[test]
fn the_latest_events_are_whole_where_there_is_room() {
    let mut app = World::usual().console_in(View::Overview, 200, 50);
    load_past(&mut app);
    let text = screen::text(&app);
    for words in ["(asked by alice)", "not healthy after the last step"] {
        let words: Vec<&str> = words.split(' ').collect();
        let last = words.last().unwrap();
        assert!(text.contains(last), "{last}: {text}");
    }
    assert!(!text.contains("alic~") && !text.contains("afte~"), "{text}");
    let work = panel(&app, "In work (2)");
    assert!(work.contains("web-7d9f8b6c5-x2x4z"), "{work}");
    views::check_overview_rows(&app);
}

fn budget() -> Reason {
    let pod = "kube-system/cluster-dns-7d9f8b6c5-x2x4z".to_owned();
    Reason::BlockedByPdb { pod, pdb: "kube-system/cluster-dns".into(), healthy: 1, needed: 1, cause: None }
}

/// A row of 80 columns showed `pdb kube-system/cluster-dns has 1,~`.
#[test]
fn the_name_of_a_budget_and_its_numbers_outlive_lesser_words() {
    let forms = short_text::row_forms(&World::usual().seen(), &budget(), wall());
    for (width, text) in [
        (90, "pdb kube-system/cluster-dns has 1, needs 1: cluster-dns-7d9f8b6c5-x2x4z"),
        (50, "pdb kube-system/cluster-dns has 1, needs 1"),
        (34, "pdb cluster-dns has 1, needs 1"),
        (28, "cluster-dns has 1, needs 1"),
        (20, "cluster-dns 1 of 1"),
        (10, "cluster-dns 1 of 1"),
    ] {
        assert_eq!(forms.within(width), text, "{width}");
    }
    let mut world = World::with_repairs();
    world.reasons.insert(EntryId::reboot(3), budget());
    world.reasons.insert(EntryId::repair(2), budget());
    for (view, row) in [(View::Reboots, "worker-1"), (View::Repairs, "worker-4")] {
        let row = line(&world.console_in(view, 80, 24), row);
        assert!(row.contains("cluster-dns has 1, needs 1") || row.contains("cluster-dns 1 of 1"), "{row}");
    }
}

/// The cause of a backoff was shown as if it held now.
#[test]
fn the_cause_of_a_backoff_has_its_age() {
    let world = World::usual();
    let cause = Some(Box::new(budget()));
    let tried = Some(after(wall(), -240));
    let why = Reason::Backoff { count: 1, until: after(wall(), 360), cause, tried };
    let forms = short_text::reason_forms(&world.seen(), &why, wall());
    assert!(forms.whole.starts_with("again in 6m; 4m ago: pdb kube-system/cluster-dns has 1"), "{}", forms.whole);
    assert_eq!(forms.within(40), "4m ago: pdb cluster-dns has 1, needs 1");
    let reboots = line(&world.console(80, 24), "worker-4");
    assert!(reboots.contains("5m ago: pdb db/pg has 2"), "{reboots}");
    let mut app = world.console(80, 24);
    press(&mut app, "j j j enter");
    let text = screen::text(&app);
    assert!(text.contains("when it last tried"), "{text}");
}

/// A line of *Needs you* ended in `~` above an empty panel.
#[test]
fn needs_you_goes_on_in_a_second_line_where_there_is_room() {
    let mut world = World::usual();
    world.store.reboots.entries.remove(&8);
    let answer = "admission webhook \"guard.example.com\" denied the request: the last replica of payments".to_owned();
    world.reasons.insert(EntryId::reboot(3), Reason::EvictionRefused { pod: "shop/web-1".into(), answer });
    let app = world.console_in(View::Overview, 80, 24);
    let needs = panel(&app, "Needs you");
    let words = needs.replace('\u{2502}', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the last replica of payments") && !needs.contains('~'), "{needs}");
    views::check_overview_rows(&app);
}

/// PROGRESS said `again in 6m` while nobody was there to try again.
#[test]
fn nothing_is_tried_again_while_nobody_leads() {
    let mut world = World::usual();
    (world.store.candidates, world.store.engines) = (imbl::OrdMap::new(), imbl::OrdMap::new());
    (world.engine.leading, world.engine.lease) = (None, 0);
    for view in [View::Reboots, View::Overview] {
        let text = screen::text(&world.console_in(view, 80, 24));
        assert!(!text.contains("again") && text.contains("6m left"), "{text}");
    }
}

/// Three entries that one budget kept were three lines of *Needs you*, each about another pod.
#[test]
fn entries_kept_by_a_budget_that_never_allows_are_one_line() {
    let mut world = World::usual();
    for index in [3, 6] {
        let pod = format!("db/mysql-1-{index}");
        let why = Reason::PdbNeverAllows { pod, pdb: "db/mysql-1".into(), healthy: 3, needed: 3, pods: 3, cause: None };
        world.reasons.insert(EntryId::reboot(index), why);
    }
    let app = world.console_in(View::Overview, 80, 24);
    let row = line(&app, "pdb db/mysql-1 never allows");
    assert!(row.contains("worker-4 +1") || row.contains("worker-1 +1"), "{row}");
}

/// A cause behind a budget: one pod in `CrashLoopBackOff`.
fn crashing() -> BudgetCause {
    let why = PodTrouble::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() };
    let pod = UnhealthyPod { pod: "shop/web-7d9f8b6c5-q8v2k".into(), node: None, why };
    let opens = Opens::WhenHealthy { missing: 1 };
    BudgetCause { opens, pods: 3, unhealthy: vec![pod], more: 2, deadlock: Vec::new() }
}

fn crash(pod: &str, cause: Option<BudgetCause>) -> Reason {
    let (pod, cause) = (format!("shop/{pod}"), cause.map(Box::new));
    Reason::BlockedByPdb { pod, pdb: "shop/web".into(), healthy: 2, needed: 2, cause }
}

/// A row of 80 columns kept `web has 2, needs 2` and dropped the pod that was the cause.
#[test]
fn the_cause_behind_a_budget_outlives_its_numbers() {
    let seen = World::usual().seen();
    let forms = short_text::row_forms(&seen, &crash("web-7d9f8b6c5-x2x4z", Some(crashing())), wall());
    for (width, text) in [
        (100, "pdb shop/web has 2, needs 2 (web-7d9f8b6c5-q8v2k CrashLoopBackOff and 2 more): web-7d9f8b6c5-x2x4z"),
        (80, "pdb shop/web has 2, needs 2 (web-7d9f8b6c5-q8v2k CrashLoopBackOff and 2 more)"),
        (70, "pdb shop/web: web-7d9f8b6c5-q8v2k CrashLoopBackOff and 2 more"),
        (42, "web: web-7d9f8b6c5-q8v2k CrashLoopBackOff"),
        (30, "web: CrashLoopBackOff"),
    ] {
        assert_eq!(forms.within(width), text, "{width}");
    }
    let opens = Opens::Never { because: Exclusion::NoneUnavailable };
    let cause = BudgetCause { opens, pods: 3, unhealthy: Vec::new(), more: 0, deadlock: Vec::new() };
    let (pod, pdb) = ("kube-system/cluster-dns-1".into(), "kube-system/cluster-dns".into());
    let never = Reason::PdbNeverAllows { pod, pdb, healthy: 2, needed: 2, pods: 2, cause: Some(Box::new(cause)) };
    let forms = short_text::row_forms(&seen, &never, wall());
    for (width, text) in [
        (60, "pdb kube-system/cluster-dns never allows (maxUnavailable 0)"),
        (50, "pdb cluster-dns never allows (maxUnavailable 0)"),
        (30, "cluster-dns: maxUnavailable 0"),
        (25, "cluster-dns never allows"),
    ] {
        assert_eq!(forms.within(width), text, "{width}");
    }
}

/// The state of a node told the budget's numbers only.
#[test]
fn entries_stuck_on_one_budget_are_one_line_with_its_cause() {
    assert_eq!(
        short_text::stuck_on(&crash("web-1", Some(crashing())), wall()),
        "web-7d9f8b6c5-q8v2k CrashLoopBackOff and 2 more (pdb shop/web has 2, needs 2)"
    );
    assert_eq!(short_text::stuck_on(&crash("web-1", None), wall()), "pdb shop/web has 2, needs 2");
    // whichever of them knows the cause
    for causes in [[None, Some(crashing())], [Some(crashing()), None]] {
        let mut world = World::usual();
        for (index, cause) in [3, 6].into_iter().zip(causes) {
            world.reasons.insert(EntryId::reboot(index), crash("web-1", cause));
        }
        for (columns, expected) in
            [(120, "pdb shop/web: web-7d9f8b6c5-q8v2k CrashLoopBackOff"), (80, "CrashLoopBackOff")]
        {
            let needs = panel(&world.console_in(View::Overview, columns, 30), "Needs you");
            assert_eq!(needs.matches("CrashLoopBackOff").count(), 1, "{needs}");
            assert!(needs.contains(expected), "{needs}");
        }
    }
}
