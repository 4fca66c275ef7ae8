//! Pods, budgets and volumes that hold a drain, and the state of a boot.

use std::sync::Arc;

use cketerm_model::{
    entry::EntryId,
    kube::{NamespaceRow, PodRow},
    reason::Reason,
    time::after,
};

use super::{
    RebootStatus::{Draining, Rebooting},
    Scene, wall,
};

#[test]
fn a_protected_job_blocks_before_a_budget() {
    let scene = Scene::new().entry(0, 11, Draining, 5).pod(11, "db", |_| {}).budget("db", "db", [0, 2, 2, 3]);
    assert_eq!(scene.text(0), "pod shop/db blocked by pdb shop/db (healthy 2, needs 2)");
    let job = scene.job_pod(11, "report-x");
    assert_eq!(job.text(0), "pod shop/report-x belongs to running protected job shop/report");
    let progress = &job.read().progress[&EntryId::reboot(0)];
    let blockers: Vec<String> = progress.blockers.iter().map(|b| format!("{}: {}", b.pod, b.why)).collect();
    assert_eq!(blockers, ["shop/db: pdb shop/db (healthy 2, needs 2)", "shop/report-x: protected job shop/report"]);
    let selector = serde_json::from_value(serde_json::json!({"matchLabels": {"keep": "true"}})).unwrap();
    let free = job.with(|s| s.cluster.reboot.protected_job_pods = Some(selector));
    assert!(matches!(free.reason(0), Reason::BlockedByPdb { .. }), "a Job that is not protected is deleted");
}

#[test]
fn a_budget_holds_only_pods_of_protected_namespaces_that_it_refuses() {
    let scene = Scene::new().entry(0, 11, Draining, 5).pod(11, "db", |_| {});
    let reason = |scene: Scene| scene.reason(0).name();
    assert_eq!(reason(scene), "PodsLeaving");
    let with = |numbers| Scene::new().entry(0, 11, Draining, 5).pod(11, "db", |_| {}).budget("db", "db", numbers);
    assert_eq!(reason(with([1, 3, 2, 3])), "PodsLeaving");
    assert_eq!(reason(with([0, 2, 2, 3])), "BlockedByPDB");
    let never = with([0, 3, 3, 3]);
    assert_eq!(
        never.text(0),
        "pod shop/db blocked by pdb shop/db, which never allows an eviction (healthy 3, needs 3 of 3): scale up or \
         relax it"
    );
    assert_eq!(reason(with([0, 2, 2, 3]).budget("all", "db", [1, 3, 2, 3])), "BlockedByManyPDBs");
    let pending = |pod: &mut PodRow| pod.phase = "Pending".to_owned();
    assert_eq!(reason(with([0, 2, 2, 3]).pod(11, "db", pending)), "PodsLeaving", "the API server evicts it");
    assert_eq!(reason(with([0, 2, 2, 3]).pod(11, "db", |pod| pod.ready = false)), "PodsLeaving");
    let selector = serde_json::from_value(serde_json::json!({"matchLabels": {"team": "prod"}})).unwrap();
    let unprotected = with([0, 2, 2, 3]).with(|s| {
        s.cluster.reboot.protected_namespaces = Some(selector);
        let row = NamespaceRow { name: "shop".to_owned(), ..NamespaceRow::default() };
        s.kube.namespaces.insert("shop".to_owned(), Arc::new(row));
    });
    assert_eq!(reason(unprotected), "PodsLeaving", "CKE deletes the pod");
}

#[test]
fn a_drain_waits_for_stuck_pods_then_volumes_until_its_deadline() {
    let terminating = |seconds: i64| {
        move |pod: &mut PodRow| {
            (pod.terminating_since, pod.grace_ends) = (Some(after(wall(), -500)), Some(after(wall(), -seconds)));
        }
    };
    let draining = || Scene::new().entry(0, 11, Draining, 100);
    assert_eq!(draining().pod(11, "a", terminating(30)).reason(0).name(), "PodsLeaving");
    assert_eq!(draining().pod(11, "a", terminating(90)).reason(0).name(), "TerminatingStuck");
    let volumes = draining().node(11, |n| n.volumes_in_use = vec!["csi^v1".to_owned()]);
    assert_eq!(volumes.text(0), "volumes still in use: csi^v1");
    assert_eq!(draining().text(0), "drained: CKE runs its command next");
    let progress = &draining().read().progress[&EntryId::reboot(0)];
    assert_eq!(progress.next, Some(after(wall(), 500)), "600 s after its start");
    let late = Scene::new().entry(0, 11, Draining, 601).pod(11, "a", |_| {});
    assert!(late.text(0).contains("past the drain's deadline"));
}

#[test]
fn the_boot_shows_the_boot_id_and_the_node() {
    let drained = Scene::new().entry(0, 11, Draining, 5).observe();
    let rebooting = drained.entry(0, 11, Rebooting, 90).observe();
    assert!(
        rebooting.text(0).contains("(old boot id, Node Ready; a failed command is only in CKE"),
        "{}",
        rebooting.text(0)
    );
    let down = rebooting.node(11, |n| (n.ready, n.ready_since) = (false, Some(after(wall(), -60))));
    assert!(down.text(0).contains("(old boot id, Node not Ready since 11:59:00Z;"), "{}", down.text(0));
    let up = down.node(11, |n| (n.ready, n.ready_since, n.boot_id) = (true, None, "after".to_owned()));
    assert!(up.text(0).contains("(new boot id, Node Ready;"), "{}", up.text(0));
    let late = Scene::new().entry(0, 11, Rebooting, 90).observe();
    assert!(late.text(0).contains("(Node Ready;"), "the boot id from before is not known: {}", late.text(0));
    let stuck = Scene::new().entry(0, 11, Rebooting, 1800);
    assert!(stuck.text(0).starts_with("STUCK: "));
}

#[test]
fn of_several_refused_pods_the_first_that_the_api_server_lists_is_named() {
    let numbers = [0, 2, 2, 3];
    let scene = Scene::new().entry(0, 11, Draining, 5).budget("a", "a", numbers).budget("b", "b", numbers);
    let scene = scene.pod(11, "b", |pod| pod.uid = "0".to_owned()).pod(11, "a", |pod| pod.uid = "1".to_owned());
    assert_eq!(scene.text(0), "pod shop/a blocked by pdb shop/a (healthy 2, needs 2)");
}
