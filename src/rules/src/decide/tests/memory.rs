//! Memory of the leader before a pass: entries that it keeps, and records of other leaders.

use cketerm_model::{boot_time::Seconds, clock::Now, entry::EntryId, repair::RepairStatus};

use super::scene::{BOOT, Scene, now, refused_by_budget};
use crate::{memory::observe, snapshot::Snapshot};

fn observed(scene: &Scene) -> Snapshot {
    let mut snap = scene.snapshot();
    observe(&mut snap, Now { boot: BOOT, wall: now() });
    snap
}

#[test]
fn saf34_the_record_of_another_lease_is_noted_with_the_time_of_its_first_sight() {
    let scene = Scene::new(1).cordoned(11, 0).owner(11, |o| o.lease = 3);
    let noted = |scene: &Scene| observed(scene).foreign.get("10.0.0.11").copied();
    assert_eq!(noted(&scene), Some((3, BOOT)));
    let earlier = BOOT - Seconds::new(40.0);
    assert_eq!(noted(&scene.clone().foreign(11, 3, earlier)), Some((3, earlier)));
    assert_eq!(noted(&scene.foreign(11, 2, earlier)), Some((3, BOOT)), "another leader wrote it since");
    assert_eq!(noted(&Scene::new(1).cordoned(11, 0)), None, "its own record");
}

#[test]
fn the_memory_of_an_entry_lasts_until_it_is_gone_or_finished() {
    let remembers = |scene: &Scene, id: EntryId| observed(scene).work.contains_key(&id);
    let queued = Scene::new(1).queued(&[(0, 11)]).work(0, |_| {});
    assert!(remembers(&queued, EntryId::reboot(0)), "the cause of its backoff");
    let gone = queued.with(|s| drop(s.store.reboots.entries.remove(&0)));
    assert!(!remembers(&gone, EntryId::reboot(0)));
    let repair = Scene::repairing(1).repair(0, 11, "plain");
    assert!(remembers(&repair, EntryId::repair(0)));
    let ended = repair.change_repair(0, |e| e.status = RepairStatus::Succeeded);
    assert!(!remembers(&ended, EntryId::repair(0)), "it stays in the queue until it is deleted");
}

#[test]
fn the_answer_about_a_pod_is_kept_until_the_pod_is_gone() {
    let answers = |scene: &Scene| observed(scene).work[&EntryId::reboot(0)].drain.answers.len();
    let drains = Scene::new(1).draining(0, 11, 5).pod(11, "web", |_| {}).answered(0, "web", refused_by_budget());
    assert_eq!(answers(&drains), 1);
    let left = drains.with(|s| drop(s.kube.pods.get_mut("10.0.0.11").unwrap().pods.remove("uid-web")));
    assert_eq!(answers(&left), 0);
}
