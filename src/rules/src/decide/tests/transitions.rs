//! Transactions by which entries end: their history, and the attempts that they leave (I14, REP-10).

use cketerm_model::{
    attempt::{Attempt, Ended as CommandEnd},
    cketerm_records::Verb,
    entry::EntryId,
    repair::RepairStatus,
    stored::keys::Keys,
};

use super::scene::{LEASE, Scene, now};
use crate::{
    decide::{Effect, End, Guard},
    transition::{Ended, Transition},
};

fn remove(scene: &Scene, id: EntryId, end: &End) -> Ended {
    remove_cordoned(scene, id, end, true)
}

fn remove_cordoned(scene: &Scene, id: EntryId, end: &End, cordoned: bool) -> Ended {
    let (keys, snap) = (Keys::new("/cke/"), scene.snapshot());
    let transition = Transition { keys: &keys, view: &snap.store, now: now() };
    transition.remove(&Guard::of_entry(id, 10), end, cordoned, false).unwrap()
}

/// Reports whether the transaction writes the history of an entry.
fn has_history(ended: &Ended, id: EntryId) -> bool {
    let key = Keys::new("/cke/").history_of(id);
    ended.ranged.change.puts.iter().any(|put| put.key == key)
}

#[test]
fn the_attempts_of_a_machine_that_booted_are_cleared_and_those_of_a_cancelled_entry_stay() {
    let scene = Scene::new(1).rebooting(0, 11, 30, Some(CommandEnd::Exit(0)));
    let id = EntryId::reboot(0);
    for (end, cleared) in [(End::Booted, 1), (End::Cancelled, 0), (End::NotMember, 0)] {
        let ended = remove(&scene, id, &end);
        assert_eq!(ended.ranged.cleared.len(), cleared, "{end:?}");
        assert!(has_history(&ended, id), "{end:?}");
    }
}

#[test]
fn a_finished_repair_has_its_history_before_it_is_deleted() {
    let repair = Scene::repairing(1).repair(0, 11, "plain").tried(0, 1, 0, LEASE, 5, Some(CommandEnd::Exit(0)));
    let id = EntryId::repair(0);
    let unfinished = remove(&repair, id, &End::Deleted);
    assert!(has_history(&unfinished, id));
    assert_eq!(unfinished.ranged.cleared.len(), 0, "its machine may be off");
    let finished = remove(&repair.change_repair(0, |e| e.status = RepairStatus::Failed), id, &End::Deleted);
    assert!(!has_history(&finished, id));
    assert_eq!(finished.ranged.cleared.len(), 1, "they are in the history");
}

/// The Node may go down before its uncordon. The mark then shows that an operator called the machine back.
#[test]
fn i14_the_last_attempt_is_marked_as_done_while_the_cordon_is_there() {
    let scene = Scene::new(1).rebooting(0, 11, 30, Some(CommandEnd::Exit(1))).order(0, Verb::Done, 10);
    let id = EntryId::reboot(0);
    let end = End::DoneBy(scene.store.orders[&id].get().unwrap().clone());
    let key = Keys::new("/cke/").attempt(id, 1);
    let ended = remove_cordoned(&scene, id, &end, true).ranged;
    assert!(ended.change.compares.contains(&(key.clone(), 11)), "{:?}", ended.change.compares);
    let put = ended.change.puts.iter().find(|put| put.key == key).expect("the attempt");
    let attempt: Attempt = serde_json::from_str(&put.value).unwrap();
    assert_eq!((attempt.done_by.as_deref(), ended.cleared.len()), (Some("ann@h"), 0));
    let uncordoned = remove_cordoned(&scene, id, &end, false).ranged;
    assert!(uncordoned.change.puts.iter().all(|put| put.key != key));
    assert_eq!(uncordoned.cleared.len(), 1);
}

#[test]
fn a_command_is_written_as_an_attempt_that_was_not_there_unless_the_entry_is_held() {
    let scene = Scene::new(1).draining(0, 11, 5);
    let id = EntryId::reboot(0);
    let Some(Effect::Power { entry, attempt, .. }) = scene.effect(0) else { panic!("{:?}", scene.reason(0)) };
    let (keys, guard) = (Keys::new("/cke/"), Guard::of_entry(id, 10));
    let written = |scene: &Scene| {
        let snap = scene.snapshot();
        Transition { keys: &keys, view: &snap.store, now: now() }.command(&guard, &entry, None, &attempt)
    };
    let change = written(&scene).expect("a change");
    let puts: Vec<&str> = change.puts.iter().map(|put| put.key.as_str()).collect();
    assert_eq!(puts, [keys.entry(id), keys.attempt(id, 1)]);
    assert!(change.compares.contains(&(keys.attempt(id, 1), 0)), "{:?}", change.compares);
    assert!(written(&scene.order(0, Verb::Hold, 10)).is_none());
}
