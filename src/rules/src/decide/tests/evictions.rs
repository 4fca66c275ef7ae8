//! Evictions answered by a webhook, a failing server or two budgets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cketerm_model::{
    boot_time::Seconds,
    drain::{Answer, EvictionAdmission, Finding, Undecided, Verdict},
    entry::EntryId,
    kube::{BudgetRow, PodRow},
    names::{Address, NodeName},
    reason::{
        PodHold, Reason,
        budget_cause::{AwaitedNode, BudgetCause, Exclusion, Opens, PodTrouble, UnhealthyPod},
    },
    time::after,
};

use super::{
    drain::{names, unprotected},
    scene::{BOOT, Scene, now, refused_by_budget},
};
use crate::{
    decide::{Budgeted, Effect, dry_runs, preview_result, saves_dry_runs},
    snapshot::{InFlight, KnownCause},
};

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
    let since = |age: i64| asked.clone().change(0, |e| e.last_transition_time = Some(after(now(), -age)));
    assert_eq!(since(599).does(0), None, "the deadline has not passed");
    let over = since(600);
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

/// A drain after a clean preview, with these pods under the budget `web`, which allows so many evictions.
fn budgeted(pods: &[&str], allowed: i32) -> Scene {
    let draining = Scene::new(2).draining(0, 11, 1).draining(1, 12, 1).budget("web", "web");
    let all = pods.iter().fold(draining, |scene, name| scene.pod(11, name, shop_web));
    all.with(|s| allow(s, allowed)).work(0, |w| w.drain.previewed = true).work(1, |w| w.drain.previewed = true)
}

fn shop_web(pod: &mut PodRow) {
    pod.labels = [("app".to_owned(), "web".to_owned())].into();
}

fn allow(scene: &mut Scene, allowed: i32) {
    web_budget(scene).allowed = allowed;
}

fn web_budget(scene: &mut Scene) -> &mut BudgetRow {
    Arc::make_mut(scene.kube.budgets.get_mut(&("shop".to_owned(), "web".to_owned())).unwrap())
}

fn named(pods: &[Budgeted]) -> Vec<String> {
    pods.iter().map(|(pod, _)| pod.name.clone()).collect()
}

fn evicted(scene: &Scene, index: u64) -> Vec<String> {
    let Some(Effect::Evict { evict, .. }) = scene.effect(index) else { return Vec::new() };
    named(&evict)
}

#[test]
fn a_drain_sends_as_many_evictions_as_the_budget_allows() {
    let five = ["a", "b", "c", "d", "e"];
    assert_eq!(evicted(&budgeted(&five, 2), 0), ["a", "b"]);
    assert_eq!(evicted(&budgeted(&five, 9), 0).len(), 5);
    assert_eq!(evicted(&budgeted(&five, 0), 0), ["a"], "the first round asks about one pod");
    let accepted = budgeted(&five, 2).answered(0, "a", Verdict::Accepted).work(0, |w| w.drain.accepted = true);
    assert_eq!(evicted(&accepted, 0), ["b"], "the first eviction is not seen yet");
    let seen = accepted.with(|s| {
        let budget = s.kube.budgets.get_mut(&("shop".to_owned(), "web".to_owned())).unwrap();
        Arc::make_mut(budget).resource_version = "6".to_owned();
        let pods = s.kube.pods.get_mut("10.0.0.11").unwrap();
        Arc::make_mut(pods.pods.get_mut("uid-a").unwrap()).terminating_since = Some(now());
    });
    assert_eq!(evicted(&seen, 0), ["b", "c"]);
}

#[test]
fn a_pod_whose_refusing_budget_is_gone_is_asked_about_again() {
    let refused = budgeted(&["a"], 0).answered(0, "a", refused_by_budget()).work(0, |w| w.drain.accepted = true);
    assert_eq!(evicted(&refused, 0), [""; 0], "the budget has not changed");
    let deleted = refused.with(|s| drop(s.kube.budgets.remove(&("shop".to_owned(), "web".to_owned()))));
    assert_eq!(evicted(&deleted, 0), ["a"]);
}

#[test]
fn tries_count_without_requests_while_the_refusing_budget_is_the_same() {
    let cause = Reason::BlockedByPdb {
        pod: "shop/a".to_owned(),
        pdb: "shop/web".to_owned(),
        healthy: 2,
        needed: 2,
        cause: None,
    };
    let after = |seconds: f64| {
        let scene = budgeted(&["a"], 0).with(|s| {
            (s.cluster.reboot.evict_retries, s.cluster.reboot.evict_interval) = (Some(2), Some(10));
        });
        scene.work(0, |w| {
            w.drain.refusals = 1;
            w.drain.refused = Some((BOOT - Seconds::new(seconds), cause.clone()));
            let version = "5".to_owned();
            w.drain.refused_by = Some(("shop/web".to_owned(), version));
        })
    };
    let version = |scene: Scene, version: &str| {
        scene.with(|s| {
            let budget = s.kube.budgets.get_mut(&("shop".to_owned(), "web".to_owned())).unwrap();
            Arc::make_mut(budget).resource_version = version.to_owned();
        })
    };
    let soon = version(after(15.0), "5");
    assert!(soon.effect(0).is_none() && soon.reason(0) == cause, "{:?}", soon.effect(0));
    let late = version(after(20.0), "5");
    assert!(matches!(late.effect(0), Some(Effect::BackOff { .. })), "{:?}", late.effect(0));
    let changed = version(after(15.0), "6");
    assert!(
        matches!(changed.effect(0), Some(Effect::Preview { .. } | Effect::Evict { .. })),
        "{:?}",
        changed.effect(0)
    );
}

#[test]
fn a_pod_without_a_request_is_named_with_the_budget_that_is_full() {
    let blockers = |scene: &Scene| {
        let named = crate::publish::blockers(&scene.snapshot(), EntryId::reboot(0), &Address::new("10.0.0.11"));
        named.into_iter().map(|blocker| (blocker.pod, blocker.why)).collect::<Vec<_>>()
    };
    let full = budgeted(&["a"], 0).work(0, |w| w.drain.accepted = true);
    assert!(
        matches!(&blockers(&full)[..], [(pod, PodHold::Budget { budget, .. })] if pod == "shop/a" && budget == "shop/web"),
        "{:?}",
        blockers(&full)
    );
    assert_eq!(blockers(&unprotected(full)), [("shop/a".to_owned(), PodHold::Leaving)]);
    let room = budgeted(&["a"], 1).work(0, |w| w.drain.accepted = true);
    assert_eq!(blockers(&room), [("shop/a".to_owned(), PodHold::Leaving)]);
}

#[test]
fn drains_share_what_a_budget_allows() {
    let scene = budgeted(&["a", "b"], 1).pod(12, "c", shop_web);
    let both = [evicted(&scene, 0), evicted(&scene, 1)].concat();
    assert_eq!(both.len(), 2, "the second drain's first round asks about one pod: {both:?}");
    let begun = scene.work(0, |w| w.drain.accepted = true).work(1, |w| w.drain.accepted = true);
    assert_eq!([evicted(&begun, 0), evicted(&begun, 1)].concat(), ["a"]);
    let sent = begun.with(|s| {
        let flight = InFlight {
            what: "evicting".to_owned(),
            entry: None,
            starts: false,
            patches_node: false,
            upkeep: None,
            evictions: [("shop/web".to_owned(), 1)].into(),
            attempt: None,
            since: BOOT,
        };
        s.snap.in_flight.insert("10.0.0.12".to_owned(), flight);
    });
    assert_eq!(evicted(&sent, 0), [""; 0], "the other drain's request is under way");
}

#[test]
fn the_api_server_decides_about_pods_that_are_not_ready_and_about_unprotected_ones() {
    let begun = |scene: Scene| scene.work(0, |w| w.drain.accepted = true);
    let not_ready = begun(budgeted(&[], 0).pod(11, "a", |p| (shop_web(p), p.ready = false).0));
    assert_eq!(evicted(&not_ready, 0), ["a"]);
    let too_few = not_ready.with(|s| {
        let budget = s.kube.budgets.get_mut(&("shop".to_owned(), "web".to_owned())).unwrap();
        Arc::make_mut(budget).healthy = 0;
    });
    assert_eq!(evicted(&too_few, 0), [""; 0], "the budget has too few healthy pods");
    let always = too_few.with(|s| {
        let budget = s.kube.budgets.get_mut(&("shop".to_owned(), "web".to_owned())).unwrap();
        Arc::make_mut(budget).always_allows_unhealthy = true;
    });
    assert_eq!(evicted(&always, 0), ["a"]);
    assert_eq!(evicted(&begun(unprotected(budgeted(&["a", "b"], 0))), 0), ["a", "b"]);
}

#[test]
fn a_drain_that_a_budget_holds_looks_up_the_cause_and_shows_it() {
    let held = budgeted(&["a", "b"], 0).answered(0, "a", Verdict::Accepted).work(0, |w| w.drain.accepted = true);
    assert_eq!(held.does(0), None, "the pod before has only just left");
    let wake = (held.decide().wake.unwrap() - held.boot).get();
    assert!((0.1..=5.0).contains(&wake), "it is looked up as soon as it may: {wake}");
    let asks = later(&held, 6.0);
    let Some(Effect::Explain { budgets }) = asks.effect(0) else { panic!("{:?}", asks.effect(0)) };
    assert_eq!(budgets[0].full_name(), "shop/web");
    let because = Exclusion::NoneUnavailable;
    let opens = Opens::Never { because };
    let cause = BudgetCause { opens, pods: 2, unhealthy: Vec::new(), more: 0, deadlock: Vec::new() };
    let known = KnownCause { version: "5".to_owned(), at: asks.boot, cause };
    let told = asks.work(0, |w| drop(w.drain.causes.insert("shop/web".to_owned(), known)));
    assert_eq!(told.does(0), None);
    let reason = told.reason(0).to_string();
    assert!(
        reason.contains("never allows") && reason.ends_with("maxUnavailable is 0: set it to 1 or more"),
        "{reason}"
    );
    assert_eq!(later(&told, 61.0).does(0), Some("explaining"), "causes pass");
}

#[test]
fn a_preview_asks_once_about_a_budget_that_allows_nothing() {
    let scene = budgeted(&["a", "b", "c"], 0).pod(11, "other", |_| {}).work(0, |w| w.drain.previewed = false);
    let Some(Effect::Preview { pods, .. }) = scene.effect(0) else { panic!("{:?}", scene.effect(0)) };
    assert_eq!(named(&dry_runs(&pods, &BTreeSet::new(), EvictionAdmission::EachPod)), ["a", "other"]);
    let open = scene.with(|s| allow(s, 1));
    let Some(Effect::Preview { pods, .. }) = open.effect(0) else { panic!() };
    assert_eq!(dry_runs(&pods, &BTreeSet::new(), EvictionAdmission::EachPod).len(), 4);
}

#[test]
fn a_preview_without_webhooks_asks_once_about_pods_that_are_judged_alike() {
    let scene = budgeted(&["a", "b", "c"], 1)
        .pod(11, "other", |_| {})
        .pod(11, "another", |_| {})
        .pod(11, "elsewhere", |pod| pod.namespace = "far".to_owned())
        .pod(11, "ill", |pod| {
            shop_web(pod);
            (pod.phase, pod.ready) = ("Pending".to_owned(), false);
        })
        .work(0, |w| w.drain.previewed = false);
    let Some(Effect::Preview { pods, .. }) = scene.effect(0) else { panic!("{:?}", scene.effect(0)) };
    assert!(saves_dry_runs(&pods));
    let asked = |admission| dry_runs(&pods, &BTreeSet::new(), admission);
    let alone = asked(EvictionAdmission::BudgetsOnly);
    // one that its budget counts, and one that it does not count; none of the pods without a budget
    assert_eq!(named(&alone), ["a", "ill"]);
    assert_eq!(asked(EvictionAdmission::EachPod).len(), pods.len());

    let answer = |verdict| Answer { verdict, at: BOOT, budgets: BTreeMap::new(), undecided: 0 };
    let uid = |name: &str| pods.iter().find(|(pod, _)| pod.name == name).map(|(pod, _)| pod.uid.clone()).unwrap();
    let passed = |admission, answers: &[(&str, Verdict)]| {
        let answers = answers.iter().map(|(name, verdict)| (uid(name), answer(verdict.clone()))).collect();
        let preview = preview_result(&pods, &BTreeSet::new(), admission, &answers);
        let names = pods.iter().filter(|(pod, _)| preview.passed.contains(&pod.uid)).map(|(pod, _)| pod.name.clone());
        (names.collect::<Vec<_>>(), preview.finding)
    };
    let both = [("a", Verdict::Accepted), ("ill", Verdict::Accepted)];
    let (names, finding) = passed(EvictionAdmission::BudgetsOnly, &both);
    assert_eq!((names.len(), finding), (pods.len(), Finding::Clean));
    let (names, finding) = passed(EvictionAdmission::EachPod, &both);
    assert_eq!((names, finding), (vec!["a".to_owned(), "ill".to_owned()], Finding::Unfinished));
    // a pod that is gone answers for no other
    let (names, finding) = passed(EvictionAdmission::BudgetsOnly, &[("a", Verdict::Gone), ("ill", Verdict::Accepted)]);
    assert_eq!(
        (names, finding),
        (["a", "another", "elsewhere", "ill", "other"].map(String::from).to_vec(), Finding::Unfinished)
    );
    let (_, finding) =
        passed(EvictionAdmission::BudgetsOnly, &[("a", refused_by_budget()), ("ill", Verdict::Accepted)]);
    assert!(matches!(finding, Finding::Blocked(_)), "{finding:?}");
}

#[test]
fn a_preview_without_webhooks_asks_nothing_about_a_budget_that_allows_all_its_pods() {
    let asked = |scene: Scene, admission| {
        let scene = scene.work(0, |w| w.drain.previewed = false);
        let Some(Effect::Preview { pods, .. }) = scene.effect(0) else { panic!("{:?}", scene.effect(0)) };
        let asked = dry_runs(&pods, &BTreeSet::new(), admission);
        let preview = preview_result(&pods, &BTreeSet::new(), admission, &BTreeMap::new());
        (named(&asked), saves_dry_runs(&pods), preview.finding)
    };
    let web = ["a", "b", "c"];
    let only = EvictionAdmission::BudgetsOnly;
    assert_eq!(asked(budgeted(&web, 3), only), (Vec::new(), true, Finding::Clean));
    assert_eq!(asked(budgeted(&["a"], 1), only), (Vec::new(), true, Finding::Clean));
    // too few for the node's pods, or numbers that the controller has not counted yet
    assert_eq!(asked(budgeted(&web, 2), only), (vec!["a".to_owned()], true, Finding::Unfinished));
    let lagging = budgeted(&["a"], 1).with(|s| web_budget(s).status_lags = true);
    assert_eq!(asked(lagging, only), (vec!["a".to_owned()], false, Finding::Unfinished));
    // the API server evicts no pod with two budgets, whatever they allow
    let twice = budgeted(&["a"], 1).budget("other", "web");
    assert_eq!(asked(twice, only).0, ["a"]);
    // a webhook may decide otherwise
    assert_eq!(asked(budgeted(&web, 3), EvictionAdmission::EachPod).0, ["a", "b", "c"]);
}

#[test]
fn two_drains_that_wait_for_each_other_are_named() {
    let cause = |node: &str, entry: u64| BudgetCause {
        opens: Opens::WhenHealthy { missing: 1 },
        pods: 2,
        unhealthy: vec![UnhealthyPod {
            pod: "shop/new".to_owned(),
            node: None,
            why: PodTrouble::Unschedulable {
                message: "0/2 nodes".to_owned(),
                waits_for: vec![AwaitedNode { node: NodeName::new(node), entry: Some(EntryId::reboot(entry)) }],
            },
        }],
        more: 0,
        deadlock: Vec::new(),
    };
    let knows = |scene: Scene, index: u64, cause: BudgetCause| {
        let known = KnownCause { version: "5".to_owned(), at: scene.boot, cause };
        scene.work(index, |w| {
            w.drain.accepted = true;
            w.drain.causes.insert("shop/web".to_owned(), known);
        })
    };
    let scene = budgeted(&["a"], 0).pod(12, "b", shop_web);
    let one = knows(scene, 0, cause("10.0.0.12", 1));
    assert!(!one.reason(0).to_string().contains("deadlock"), "{}", one.reason(0));
    let both = knows(one, 1, cause("10.0.0.11", 0));
    let text = both.reason(0).to_string();
    assert!(text.contains("deadlock with reboots/1, each waits for the node of another"), "{text}");
    assert!(text.contains("waits for cordoned 10.0.0.12 (reboots/1)"), "{text}");
}

/// The budget was gone before the answer came, so that no change of it can be waited for.
#[test]
fn an_eviction_that_an_unknown_budget_refused_is_sent_again_after_ten_seconds() {
    let refused = draining(refused_by_budget()).work(0, |w| {
        w.drain.accepted = true;
        w.drain.answers.get_mut("uid-web").unwrap().budgets.clear();
    });
    assert_eq!(refused.does(0), None);
    assert_eq!(later(&refused, 9.0).does(0), None);
    assert_eq!(names(&later(&refused, 10.0)).0, ["web"]);
}
