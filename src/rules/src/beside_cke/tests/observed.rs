//! Facts that this process remembers of CKE's drains.

use cketerm_model::{entry::EntryId, reason::Reason, time::after};

use super::{RebootStatus::Draining, Scene, wall};

#[test]
fn pods_at_start_are_the_most_that_this_process_saw() {
    let scene = Scene::new().entry(0, 11, Draining, 100).pod(11, "a", |_| {}).pod(11, "b", |_| {}).observe();
    let counts = |scene: &Scene| {
        let progress = &scene.read().progress[&EntryId::reboot(0)];
        (progress.pods_gone, progress.pods_at_start)
    };
    assert_eq!(counts(&scene), (0, 2));
    assert!(scene.observed.observed[&EntryId::reboot(0)].joined_late);
    let gone = scene.with(|s| {
        s.kube.pods.get_mut("10.0.0.11").unwrap().pods.remove("a");
    });
    assert_eq!(counts(&gone.observe()), (1, 2));
    let early = Scene::new().entry(0, 11, Draining, 1).observe();
    assert!(!early.observed.observed[&EntryId::reboot(0)].joined_late);
}

#[test]
fn the_hold_of_the_last_drain_is_the_cause_of_the_backoff() {
    let held = Scene::new().entry(0, 11, Draining, 1).job_pod(11, "report-x").observe();
    let unwatched = held.backed_off(0, 11, 60).with(|s| {
        s.kube.pods.clear();
    });
    let text = unwatched.observe().text(0);
    assert!(text.contains("; when it last tried, at 2") && text.contains("job shop/report"), "{text}");
}

#[test]
fn a_new_drain_forgets_the_hold_of_the_last_one() {
    let held = Scene::new().entry(0, 11, Draining, 100).job_pod(11, "report-x").observe();
    let free = held.backed_off(0, 11, 60).observe().with(|s| {
        let pods = &mut s.kube.pods.get_mut("10.0.0.11").unwrap().pods;
        pods.clear();
    });
    let again = free.entry(0, 11, Draining, 1).pod(11, "a", |_| {}).observe();
    assert_eq!(
        again.backed_off(0, 11, 60).reason(0),
        Reason::Backoff { count: 2, until: after(wall(), 60), cause: None, tried: None }
    );
}
