//! Tests of what a third operator objected to: words that said more than had happened, and keys with another reach than
//! their row.

use cketerm_model::{
    batch::{Batch, BatchEnds, BatchId},
    cketerm_records::{Request, Who},
    entry::{EntryId, QueueKind},
    freeze::Freeze,
    kube::NodeRow,
    names::NodeName,
    policy::Policy,
    reason::Reason,
    reboot::RebootStatus,
    stored::view::Switch,
    time::after,
};

use super::{
    dialogs::refresh,
    world::{World, press, stored, wall},
};
use crate::{state::object::Object, terminal::screen};

fn who(user: &str) -> Who {
    Who { user: user.into(), host: "admin1".into(), ssh_client: None }
}

/// A batch that is over is done only if all its entries reached their goal.
#[test]
fn a_batch_with_cancelled_or_failed_entries_is_not_called_done() {
    let cases = [
        (BatchEnds { done: 6, failed: 0, withdrawn: 6 }, ["ended", "6/12"]),
        (BatchEnds { done: 11, failed: 1, withdrawn: 0 }, ["failed", "11/12"]),
        (BatchEnds { done: 12, failed: 0, withdrawn: 0 }, ["done", "12/12"]),
    ];
    for (ends, words) in cases {
        let mut world = World::usual();
        let at = after(wall(), -900);
        let batch = Batch { added: 12, ends, ..Batch::new(QueueKind::Reboot, who("alice"), at, None, 12) };
        let batch = Batch { ended: Some(wall()), ..batch };
        let id = BatchId::at(at);
        world.store.batches.insert(id, stored("/cke/cketerm/batches/x", 20, batch));
        let mut app = world.console(120, 24);
        press(&mut app, "v");
        let text = screen::text(&app);
        let line = text.lines().find(|line| line.contains(&id.to_string())).unwrap().to_owned();
        assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
        let is_full = line.contains("██████████");
        assert_eq!(is_full, ends.withdrawn == 0, "{line}");
    }
}

/// A cordon that ends by itself needs nobody before its machine has had time to boot.
#[test]
fn a_cordon_that_ends_after_the_boot_needs_nobody_at_first() {
    let listed = |seconds: i64| {
        let mut world = World::usual();
        let reason = Reason::OrphanedCordon { node: "worker-5".into(), entry: EntryId::reboot(1) };
        world.orphans.insert(NodeName::new("worker-5"), reason);
        world.cordon("worker-5", 1);
        let mut node = NodeRow::clone(&world.kube.nodes["worker-5"]);
        if let Some(Ok(owner)) = &mut node.owner {
            owner.since = Some(after(wall(), -seconds));
        }
        world.kube.put_node(node);
        let app = world.console(80, 24);
        app.knowledge.needs_you.iter().any(|line| line.object == Object::Node("worker-5".into()))
    };
    let patience = i64::try_from(World::usual().store.policy().stuck_seconds).unwrap();
    assert!(!listed(10));
    assert!(listed(patience + 1));
}

/// Keys meant for a row became the reason of the next dialog.
#[test]
fn keys_typed_into_an_expired_dialog_without_a_reason_are_no_reason() {
    let mut world = World::usual();
    let mut app = world.console(80, 24);
    press(&mut app, "F");
    world.entry(3, "10.0.0.14", RebootStatus::Rebooting, 0, 50);
    refresh(&mut app, &world);
    press(&mut app, "0 1 v X");
    assert!(!screen::text(&app).contains("kept for the next try"), "{}", screen::text(&app));
    world.entry(3, "10.0.0.14", RebootStatus::Draining, 0, 51);
    refresh(&mut app, &world);
    press(&mut app, "esc F");
    assert_eq!(super::dialogs::reason(&app), "");
}

/// An operator forced a drain and waited: a gate that the order leaves in place held the machine.
#[test]
fn force_names_the_gates_that_still_hold() {
    let dialog = |change: &dyn Fn(&mut World), key: &str| {
        let mut world = World::with_repairs();
        change(&mut world);
        let mut app = world.console(120, 40);
        press(&mut app, key);
        assert!(app.dialog.is_some(), "{}", screen::text(&app));
        app.dialog.as_ref().unwrap().lines.iter().filter(|line| line.starts_with('!')).cloned().collect::<Vec<_>>()
    };
    let (reboot, repair) = ("1 g g F", "3 g g j j F");
    for key in [reboot, repair] {
        assert_eq!(dialog(&|_| {}, key), Vec::<String>::new(), "force overcomes a budget");
    }
    // the gate is the entry's own reason
    let names = || vec![NodeName::new("w1"), NodeName::new("w2")];
    let gates = [
        Reason::UnreachableGate { count: 2, limit: 1, names: names().into() },
        Reason::ControlPlaneUnhealthy { node: NodeName::new("cp-1"), why: "etcd".into() },
        Reason::EtcdUnchecked { why: "no answer".into() },
        Reason::MachineInRepair { entry: EntryId::repair(2) },
        Reason::UncordonedByOther { since: wall() },
    ];
    for gate in gates {
        let held = |world: &mut World| {
            world.reasons.insert(EntryId::reboot(3), gate.clone());
            world.reasons.insert(EntryId::repair(2), gate.clone());
        };
        for key in [reboot, repair] {
            let lines = dialog(&held, key);
            assert!(lines.iter().any(|line| line.contains("force does not overcome this")), "{gate:?}: {lines:?}");
        }
    }
    // the entry's reason is a budget, and a gate holds besides
    let frozen = |world: &mut World| {
        let freeze = Freeze {
            until: after(wall(), 3600),
            reason: "night".into(),
            who: Who::default(),
            unknown: serde_json::Map::new(),
        };
        world.store.policy = Some(stored("p", 70, Policy { freeze: Some(freeze), ..Policy::default() }));
    };
    let disabled = |world: &mut World| {
        world.store.reboots.switch = Switch { raw: Some("true".into()), mod_revision: 50 };
        world.store.repairs.switch = Switch { raw: Some("true".into()), mod_revision: 50 };
    };
    for (change, words) in [
        (&frozen as &dyn Fn(&mut World), "nothing starts before 11:00Z (freeze)"),
        (&disabled, "the queue is disabled"),
    ] {
        for key in [reboot, repair] {
            let lines = dialog(change, key);
            let is_said = lines.iter().any(|line| line.contains("despite force") && line.contains(words));
            assert!(is_said, "{words} {key}: {lines:?}");
        }
    }
    // a queued entry of a paused batch
    let paused = |world: &mut World| {
        let (batches, [_, kernel, _]) = super::batches::world(true);
        world.store.batches = batches.store.batches;
        let request = Request { who: Who::default(), at: wall(), reason: None, node_uid: None, batch: Some(kernel) };
        world.store.requests.insert(EntryId::reboot(6), stored("/cke/cketerm/requests/x", 20, request));
    };
    let lines = dialog(&paused, "1 g g j j j F");
    assert!(lines.iter().any(|line| line.contains("despite force") && line.contains("paused by carol")), "{lines:?}");
}

/// The dialog of `force` says what the order does not overcome, and whose hold it ends.
#[test]
fn force_says_what_it_does_not_overcome() {
    let hold = Reason::OnHold { who: "bob@admin1".into(), why: None };
    let frozen = Reason::Frozen { until: after(wall(), 3600), why: "night".into() };
    for (why, words) in [(hold, "force ends this hold"), (frozen, "force does not overcome this")] {
        let mut world = World::usual();
        world.reasons.insert(EntryId::reboot(3), why);
        let mut app = world.console(120, 36);
        press(&mut app, "F");
        assert!(screen::text(&app).contains(words), "{words}: {}", screen::text(&app));
    }
}

/// After a cancel and a new enqueue, the cancelled entry hid the live one, and a new reboot warned of it.
#[test]
fn a_cancelled_entry_hides_no_live_one_and_counts_for_no_warning() {
    let mut world = World::usual();
    world.entry(30, "10.0.0.18", RebootStatus::Cancelled, 60, 95);
    let mut app = world.console(80, 24);
    press(&mut app, "2 G R");
    assert!(!screen::text(&app).contains("already in the queue"), "{}", screen::text(&app));
    press(&mut app, "esc");
    world.entry(31, "10.0.0.18", RebootStatus::Queued, 10, 96);
    refresh(&mut app, &world);
    let text = screen::text(&app);
    assert!(text.contains("queued") && text.contains("#31") && !text.contains("#30"), "{text}");
}

/// A reset of a cancelled entry's backoff was offered, and reported although nothing was written.
#[test]
fn the_backoff_of_a_cancelled_entry_cannot_be_reset() {
    let mut world = World::usual();
    let mut cancelled = world.store.reboots.entries[&6].get().unwrap().clone();
    assert!(cancelled.drain_backoff_count > 0);
    cancelled.status = RebootStatus::Cancelled;
    world.store.reboots.entries.insert(6, stored("/cke/reboots/data/0000000000000006", 97, cancelled));
    let mut app = world.console(80, 24);
    press(&mut app, "1 : \"6\" enter B");
    assert!(app.dialog.is_none(), "{}", screen::text(&app));
}

/// Disabling promised that CKE backs its drains off; it keeps them, and goes on with the next enable.
#[test]
fn disabling_under_cke_promises_nothing_about_its_drains() {
    let mut app = World::usual().console(80, 24);
    press(&mut app, "1 E");
    assert!(screen::text(&app).contains("draining: backed off and uncordoned"), "{}", screen::text(&app));
    let mut app = super::beside_cke::cke_drains().console(80, 24);
    press(&mut app, "1 E");
    let text = screen::text(&app);
    assert!(text.contains("CKE may go on with their commands at the next enable"), "{text}");
}
