//! Evictions answered by a webhook, a failing server or two budgets.

use cketerm_model::{
    boot_time::Seconds,
    drain::{Undecided, Verdict},
    names::NodeName,
    reason::{PodHold, Reason},
    time::after,
};

use super::{
    drain::{names, unprotected},
    scene::{BOOT, Scene, now},
};
use crate::decide::Effect;

fn deferred(retry_after: Option<u64>) -> Verdict {
    let hold = PodHold::Deferred { webhook: "vm.example.com".to_owned(), message: "evacuates".to_owned() };
    Verdict::Held { hold, retry_after }
}

fn failing(by: Undecided, retry_after: Option<u64>) -> Verdict {
    Verdict::Undecided { by, answer: "500: etcdserver: leader changed".to_owned(), retry_after }
}

fn many() -> Verdict {
    let hold = PodHold::ManyBudgets { budgets: vec!["shop/a".to_owned(), "shop/b".to_owned()] };
    Verdict::Held { hold, retry_after: None }
}

/// A drain after a clean preview, with one pod whose eviction was answered half a second ago.
fn draining(verdict: Verdict) -> Scene {
    Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).answered(0, "web", verdict)
}

fn later(scene: &Scene, seconds: f64) -> Scene {
    let span = Seconds::new(seconds);
    scene.clone().with(|s| {
        (s.boot, s.store.last_seen) = (s.boot + span, s.store.last_seen + span);
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
            let source = s.kube.sources.get_mut(source).unwrap();
            (source.last_seen, source.fresh_as_of) = (source.last_seen + span, source.fresh_as_of + span);
        }
        let nodes: Vec<NodeName> = s.kube.pods.keys().cloned().collect();
        for node in nodes {
            let pods = s.kube.pods.get_mut(node.as_str()).unwrap();
            pods.fresh_as_of = pods.fresh_as_of + span;
        }
    })
}

#[test]
fn i18_an_eviction_deferred_by_a_webhook_is_retried_and_never_a_deletion() {
    let expected = Reason::DeferredToWebhook {
        pod: "shop/web".to_owned(),
        webhook: "vm.example.com".to_owned(),
        message: "evacuates".to_owned(),
    };
    for scene in [draining(deferred(None)), unprotected(draining(deferred(None)))] {
        assert_eq!((scene.does(0), scene.reason(0)), (None, expected.clone()));
        assert_eq!(later(&scene, 9.0).does(0), None);
        assert_eq!(
            names(&later(&scene, 9.6)),
            (vec!["web".to_owned()], vec![]),
            "the pod is evicted again, not deleted"
        );
    }
    let asked = draining(deferred(Some(30)));
    assert_eq!(later(&asked, 29.0).does(0), None, "Retry-After has not passed");
    assert_eq!(names(&later(&asked, 30.0)).0, ["web"]);
    let over = asked.change(0, |e| e.last_transition_time = Some(after(now(), -601)));
    let Some(Effect::BackOff { cause, .. }) = over.effect(0) else { panic!("{:?}", over.effect(0)) };
    assert_eq!(cause, expected, "at the deadline it backs off with its cause");
}

#[test]
fn i20_inconclusive_answers_are_retried_with_backoff_until_the_deadline() {
    let mut scene = draining(failing(Undecided::Server, None));
    scene.cluster.reboot.evict_retries = Some(0);
    let answered =
        |times: u32| scene.clone().work(0, |w| w.drain.answers.values_mut().for_each(|a| a.undecided = times));
    for (times, wait) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (u32::MAX, 10.0)] {
        let scene = answered(times);
        assert!(matches!(scene.reason(0), Reason::EvictionFailing { .. }), "{:?}", scene.reason(0));
        assert_eq!(later(&scene, wait - 0.6).does(0), None, "after {times}");
        assert_eq!(later(&scene, wait - 0.4).does(0), Some("evicting"), "after {times}");
    }
    let overload = draining(failing(Undecided::Overload, Some(5)));
    assert_eq!((later(&overload, 4.4).does(0), later(&overload, 4.6).does(0)), (None, Some("evicting")));
    let over = answered(3).change(0, |e| e.last_transition_time = Some(after(now(), -601)));
    assert_eq!(over.does(0), Some("backing off"));
}

#[test]
fn i20_an_inconclusive_preview_is_retried_only_for_its_undecided_pods() {
    let scene = Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).pod(11, "free", |_| {}).work(0, |w| {
        w.drain.passed = ["uid-free".to_owned()].into();
        let reason = Reason::EvictionFailing { pod: "shop/web".to_owned(), answer: "503: no".to_owned() };
        w.drain.undecided = Some(crate::snapshot::UndecidedPreview { at: BOOT, times: 3, retry_after: None, reason });
    });
    assert_eq!(scene.does(0), None);
    assert!(matches!(scene.reason(0), Reason::EvictionFailing { .. }));
    let Some(Effect::Preview { pods, .. }) = later(&scene, 4.1).effect(0) else { panic!() };
    assert_eq!(pods.iter().map(|(p, _)| p.name.as_str()).collect::<Vec<_>>(), ["web"]);
    let over = scene.change(0, |e| e.last_transition_time = Some(after(now(), -601)));
    let Some(Effect::BackOff { cause: Reason::EvictionFailing { .. }, .. }) = over.effect(0) else { panic!() };
}

#[test]
fn i18_a_pod_with_two_budgets_is_deleted_only_in_an_unprotected_namespace() {
    let scene = draining(many());
    let Some(Effect::BackOff { cause: Reason::BlockedByManyPdbs { pdbs, .. }, .. }) = scene.effect(0) else { panic!() };
    assert_eq!(pdbs, ["shop/a", "shop/b"]);
    assert_eq!(names(&unprotected(scene)), (vec![], vec!["web".to_owned()]));
}

#[test]
fn i15_a_webhook_that_denies_an_eviction_ends_the_drain() {
    let hold = PodHold::Denied { webhook: "vm.example.com".to_owned(), message: "not now".to_owned() };
    let scene = unprotected(draining(Verdict::Held { hold, retry_after: None }));
    let Some(Effect::BackOff { cause, .. }) = scene.effect(0) else { panic!("{:?}", scene.effect(0)) };
    assert_eq!(cause.to_string(), "eviction of shop/web was denied by webhook vm.example.com: not now");
}
