//! Drain of one node.

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::Verb,
    cluster::Reboot,
    drain::Verdict,
    entry::{EntryId, QueueKind},
    kube::NamespaceRow,
    names::Address,
    policy::UnreachableRule,
    reason::{PodHold, Reason},
    reboot::RebootStatus::Draining,
    time::after,
};

use super::scene::{BOOT, Scene, controlled, now, refused_by_budget};
use crate::decide::{Effect, backoff_seconds};

pub(super) fn names(scene: &Scene) -> (Vec<String>, Vec<String>) {
    match scene.effect(0) {
        Some(Effect::Evict { evict, delete, .. }) => {
            (evict.iter().map(|(p, _)| p.name.clone()).collect(), delete.iter().map(|p| p.name.clone()).collect())
        }
        other => panic!("expected evictions, not {other:?}"),
    }
}

pub(super) fn unprotected(scene: Scene) -> Scene {
    scene.with(|s| {
        let selector = serde_json::json!({"matchLabels": {"protected": "true"}});
        s.cluster.reboot.protected_namespaces = Some(serde_json::from_value(selector).unwrap());
        let namespace = NamespaceRow { name: "shop".to_owned(), ..NamespaceRow::default() };
        s.kube.namespaces.insert("shop".to_owned(), std::sync::Arc::new(namespace));
    })
}

#[test]
fn i9_the_cordon_records_its_owner_entry_and_previous_state() {
    let scene = Scene::new(1).entry(0, 11, Draining, 1).work(0, |_| {});
    let Some(Effect::Stamp { owner, cordon: true, mark: true, .. }) = scene.effect(0) else { panic!() };
    assert_eq!((owner.lease, owner.entry.index, owner.schedulable_before), (super::scene::LEASE, 0, true));
    assert_eq!((owner.uid.as_str(), owner.boot_id.as_str()), ("uid-10.0.0.11", "before"));
}

#[test]
fn i11_a_node_unschedulable_before_gets_cketerms_annotation_but_not_ckes() {
    let scene = Scene::new(1).entry(0, 11, Draining, 1).work(0, |_| {}).node(11, |n| n.unschedulable = true);
    let Some(Effect::Stamp { owner, mark: false, .. }) = scene.effect(0) else { panic!() };
    assert!(!owner.schedulable_before);
}

#[test]
fn i9_a_cordon_by_cke_is_taken_over() {
    let scene = Scene::new(1).entry(0, 11, Draining, 1).work(0, |_| {}).node(11, |n| {
        n.unschedulable = true;
        n.cke_mark = true;
    });
    let Some(Effect::Stamp { owner, mark: true, .. }) = scene.effect(0) else { panic!() };
    assert!(owner.schedulable_before);
}

#[test]
fn i23_a_new_leader_records_its_lease_on_the_node_first() {
    let scene = Scene::new(1).draining(0, 11, 1).owner(11, |o| o.lease = 3).pod(11, "web", |_| {});
    let Some(Effect::Stamp { owner, .. }) = scene.effect(0) else { panic!() };
    assert_eq!(owner.lease, super::scene::LEASE);
}

#[test]
fn no_preview_is_sent_before_the_pods_are_listed() {
    let scene = Scene::new(1).draining(0, 11, 1).with(|s| s.kube.pods.get_mut("10.0.0.11").unwrap().synced = false);
    assert_eq!(scene.does(0), None);
    assert!(scene.decide().watch_pods.contains("10.0.0.11"));
}

#[test]
fn i15_a_protected_running_job_backs_off_before_any_preview_or_eviction() {
    let scene = Scene::new(1)
        .with(|s| s.cluster.reboot.evict_retries = Some(5))
        .draining(0, 11, 1)
        .pod(11, "web", |_| {})
        .pod(11, "batch", |p| p.controller = controlled("Job", "nightly"));
    let blocked = Reason::BlockedByJob { pod: "shop/batch".to_owned(), job: "shop/nightly".to_owned() };
    let Some(Effect::BackOff { cause, .. }) = scene.effect(0) else { panic!("{:?}", scene.effect(0)) };
    assert_eq!(cause, blocked, "no preview is sent, whatever evict_retries is");
    // A pod that appeared between two previews does not wait for the next preview either.
    let refused = scene.work(0, |w| {
        let pdb =
            Reason::BlockedByPdb { pod: "shop/web".into(), pdb: "shop/web".into(), healthy: 1, needed: 1, cause: None };
        (w.drain.refusals, w.drain.refused) = (1, Some((BOOT, pdb)));
    });
    assert_eq!(refused.does(0), Some("backing off"));
}

#[test]
fn i18_a_drain_waits_for_a_protected_job_within_its_grace_and_evicts_nothing() {
    let drain = |age| {
        Scene::new(1).with(|s| s.policy.job_grace_seconds = 300).draining(0, 11, age).pod(11, "web", |_| {}).pod(
            11,
            "batch",
            |p| p.controller = controlled("Job", "nightly"),
        )
    };
    let within = drain(299);
    assert_eq!(within.does(0), None);
    let blocked = Reason::BlockedByJob { pod: "shop/batch".to_owned(), job: "shop/nightly".to_owned() };
    assert_eq!(within.reason(0), blocked);
    let wake = (within.decide().wake.unwrap() - BOOT).get();
    assert!((1.0..1.1).contains(&wake), "the end of the grace wakes the engine: {wake}");
    assert_eq!(drain(300).does(0), Some("backing off"));
    let ended = drain(299).with(|s| {
        let pods = s.kube.pods.get_mut("10.0.0.11").unwrap();
        pods.pods.remove("uid-batch").unwrap();
    });
    assert_eq!(ended.does(0), Some("previewing"), "the Job has ended, and the drain goes on");
}

#[test]
fn a_refused_preview_is_retried_evict_retries_times_at_evict_interval() {
    let blocked = Reason::BlockedByPdb {
        pod: "shop/web".to_owned(),
        pdb: "shop/web".to_owned(),
        healthy: 1,
        needed: 1,
        cause: None,
    };
    let scene = Scene::new(1)
        .with(|s| {
            s.cluster.reboot.evict_retries = Some(2);
            s.cluster.reboot.evict_interval = Some(10);
        })
        .draining(0, 11, 1)
        .pod(11, "web", |_| {})
        .budget("web", "web");
    let refused = |n, ago: f64| {
        scene.clone().work(0, |w| {
            w.drain.refusals = n;
            w.drain.refused = Some((BOOT - Seconds::new(ago), blocked.clone()));
        })
    };
    assert_eq!(refused(1, 5.0).does(0), None);
    assert_eq!(refused(1, 11.0).does(0), Some("previewing"));
    assert_eq!(refused(3, 5.0).does(0), Some("backing off"));
}

#[test]
fn i15_dry_runs_are_sent_for_every_pod_that_will_be_evicted() {
    let scene = Scene::new(1)
        .draining(0, 11, 1)
        .pod(11, "web", |_| {})
        .pod(11, "free", |_| {})
        .pod(11, "agent", |p| p.controller = controlled("DaemonSet", "agent"))
        .pod(11, "gone", |p| p.terminating_since = Some(now()))
        .budget("web", "web");
    let asked = |scene: &Scene| {
        let Some(Effect::Preview { pods, unprotected }) = scene.effect(0) else { panic!() };
        (pods.iter().map(|(p, _)| p.name.clone()).collect::<Vec<_>>(), unprotected.len())
    };
    // A webhook may deny the eviction of any of them.
    assert_eq!(asked(&scene), (vec!["free".to_owned(), "web".to_owned()], 0));
    assert_eq!(asked(&unprotected(scene)).1, 2);
}

#[test]
fn i19_mirror_daemonset_and_finished_pods_and_pending_jobs_never_block() {
    let scene = Scene::new(1)
        .draining(0, 11, 1)
        .pod(11, "static", |p| p.mirror = true)
        .pod(11, "agent", |p| p.controller = controlled("DaemonSet", "agent"))
        .pod(11, "done", |p| p.phase = "Succeeded".to_owned())
        .pod(11, "failed", |p| {
            p.phase = "Failed".to_owned();
            p.controller = controlled("Job", "j");
        })
        .pod(11, "soon", |p| {
            p.phase = "Pending".to_owned();
            p.controller = controlled("Job", "j");
        });
    assert_eq!(scene.does(0), Some("rebooting"));
}

#[test]
fn i18_unprotected_running_jobs_are_deleted_while_other_pods_are_evicted() {
    let scene = Scene::new(1)
        .with(|s| {
            let selector = serde_json::json!({"matchLabels": {"keep": "yes"}});
            s.cluster.reboot.protected_job_pods = Some(serde_json::from_value(selector).unwrap());
        })
        .draining(0, 11, 1)
        .work(0, |w| w.drain.previewed = true)
        .pod(11, "batch", |p| p.controller = controlled("Job", "nightly"))
        .pod(11, "db", |_| {})
        .pod(11, "web", |_| {});
    assert_eq!(names(&scene), (vec!["db".to_owned(), "web".to_owned()], vec!["batch".to_owned()]));
}

#[test]
fn i18_after_a_pdb_refusal_a_pod_is_deleted_only_in_an_unprotected_namespace() {
    let scene = Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).budget("web", "web").answered(
        0,
        "web",
        refused_by_budget(),
    );
    assert_eq!(scene.does(0), None, "a protected pod makes the drain wait");
    let free = unprotected(scene);
    assert_eq!(names(&free), (vec![], vec!["web".to_owned()]));
}

#[test]
fn after_an_accepted_eviction_a_refused_pod_waits_until_its_budget_changes() {
    let scene = Scene::new(1)
        .draining(0, 11, 1)
        .pod(11, "web", |_| {})
        .budget("web", "web")
        .answered(0, "web", refused_by_budget())
        .work(0, |w| w.drain.accepted = true);
    assert_eq!(scene.does(0), None);
    assert_eq!(
        scene.reason(0),
        Reason::BlockedByPdb {
            pod: "shop/web".to_owned(),
            pdb: "shop/web".to_owned(),
            healthy: 1,
            needed: 1,
            cause: None
        }
    );
    let changed = scene.with(|s| {
        let budget = s.kube.budgets.get_mut(&("shop".to_owned(), "web".to_owned())).unwrap();
        std::sync::Arc::make_mut(budget).resource_version = "6".to_owned();
    });
    assert_eq!(changed.does(0), None, "it changed and still allows nothing");
    let opened = changed.with(|s| {
        let budget = s.kube.budgets.get_mut(&("shop".to_owned(), "web".to_owned())).unwrap();
        std::sync::Arc::make_mut(budget).allowed = 1;
    });
    assert_eq!(names(&opened).0, ["web"]);
}

#[test]
fn without_an_accepted_eviction_the_drain_backs_off() {
    let scene = Scene::new(1)
        .draining(0, 11, 1)
        .pod(11, "web", |_| {})
        .budget("web", "web")
        .answered(0, "web", refused_by_budget())
        .work(0, |w| {
            w.drain.refusals = 1;
            w.drain.refused = Some((
                BOOT,
                Reason::BlockedByPdb {
                    pod: "shop/web".to_owned(),
                    pdb: "shop/web".to_owned(),
                    healthy: 1,
                    needed: 1,
                    cause: None,
                },
            ));
        });
    assert_eq!(scene.does(0), Some("backing off"));
}

#[test]
fn a_drain_taken_over_is_treated_as_having_evicted_pods() {
    let scene = Scene::new(1)
        .draining(0, 11, 1)
        .pod(11, "web", |_| {})
        .pod(11, "batch", |p| p.controller = controlled("Job", "nightly"))
        .work(0, |w| w.drain.taken_over = true);
    assert_eq!(scene.does(0), None, "it waits for the Job, without a preview or a backoff");
    assert!(matches!(scene.reason(0), Reason::BlockedByJob { .. }));
}

#[test]
fn i20_retry_after_delays_the_retry_and_each_answer_has_its_reason() {
    let lag = Verdict::Held { hold: PodHold::BudgetLag { budget: "shop/web".to_owned() }, retry_after: Some(10) };
    let scene = Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).budget("web", "web").answered(0, "web", lag);
    assert_eq!(scene.does(0), None);
    let later = scene.with(|s| {
        let later = BOOT + Seconds::new(10.0);
        (s.boot, s.store.last_seen) = (later, later);
        for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
            s.kube.sources.get_mut(source).unwrap().fresh_as_of = later;
        }
    });
    assert_eq!(names(&later).0, ["web"]);
    for (hold, does) in [
        (PodHold::ManyBudgets { budgets: vec!["shop/a".to_owned(), "shop/b".to_owned()] }, Some("backing off")),
        (PodHold::NamespaceTerminating, None),
        (PodHold::Replaced, None),
    ] {
        let verdict = Verdict::Held { hold: hold.clone(), retry_after: None };
        let scene =
            Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).budget("web", "web").answered(0, "web", verdict);
        assert_eq!(scene.does(0), does, "{hold:?}");
    }
    let other = Verdict::Failed("403: forbidden".to_owned());
    let scene = Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).answered(0, "web", other);
    assert_eq!(scene.does(0), Some("backing off"), "any other error makes the drain back off");
}

#[test]
fn i21_an_accepted_eviction_still_waits_for_the_pod_to_disappear() {
    let scene = Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).answered(0, "web", Verdict::Accepted);
    assert_eq!(scene.does(0), None);
    assert!(matches!(scene.reason(0), Reason::PodsLeaving { left: 1, .. }));
}

#[test]
fn i22_a_pod_stuck_terminating_is_named_sixty_seconds_after_its_grace_period() {
    let stuck = |ago: i64| {
        Scene::new(1).draining(0, 11, 100).node(11, |n| n.ready = false).pod(11, "web", |p| {
            p.terminating_since = Some(after(now(), -ago));
            p.grace_ends = Some(after(now(), 200 - ago));
        })
    };
    assert!(matches!(stuck(259).reason(0), Reason::PodsLeaving { .. }), "the pod has a grace period of 200 s");
    let wake = (stuck(259).decide().wake.unwrap() - BOOT).get();
    assert!((1.0..1.1).contains(&wake), "it is named as soon as it is stuck: {wake}");
    let named = Reason::TerminatingStuck { pod: "shop/web".to_owned(), since: after(now(), -60), node_ready: false };
    assert_eq!(stuck(260).reason(0), named, "the pod is stuck after its grace period");
    assert_eq!(stuck(500).does(0), None, "the deletion is never forced");
}

#[test]
fn i16_volumes_in_use_delay_the_power_command() {
    let scene = Scene::new(1).draining(0, 11, 1).node(11, |n| n.volumes_in_use = vec!["vol-1".to_owned()]);
    assert_eq!(scene.does(0), None);
    assert_eq!(scene.reason(0), Reason::VolumeAttached { names: vec!["vol-1".to_owned()] });
}

#[test]
fn a_drain_that_timed_out_backs_off_with_the_blocking_reason() {
    let scene = Scene::new(1).draining(0, 11, 600).pod(11, "web", |_| {});
    assert_eq!(scene.does(0), Some("backing off"));
    let default = Reboot::default();
    assert_eq!(default.eviction_timeout(), 600);
    let empty = Scene::new(1).draining(0, 11, 601);
    assert_eq!(empty.does(0), Some("rebooting"), "a drain that completes late is not discarded");
}

#[test]
fn i12_a_foreign_uncordon_is_reverted_once_and_then_reported() {
    let scene = Scene::new(1).draining(0, 11, 1).node(11, |n| n.unschedulable = false);
    let Some(Effect::Stamp { owner, cordon: true, .. }) = scene.effect(0) else { panic!() };
    assert_eq!(owner.recordoned, 1);
    let again = scene.owner(11, |o| o.recordoned = 1);
    assert_eq!(again.does(0), None);
    assert!(matches!(again.reason(0), Reason::UncordonedByOther { .. }));
}

#[test]
fn disabling_the_queue_backs_off_draining_entries() {
    let scene = Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).disabled();
    assert_eq!(scene.does(0), Some("backing off"));
}

#[test]
fn i26_a_drain_stops_when_the_node_has_a_new_uid() {
    let scene = Scene::new(1).draining(0, 11, 1).owner(11, |o| o.uid = "another".to_owned());
    assert_eq!(scene.does(0), None);
    assert!(matches!(scene.reason(0), Reason::NodeMismatch { .. }));
}

#[test]
fn i6_rule_all_also_blocks_power_commands() {
    let scene = Scene::new(2)
        .draining(0, 11, 1)
        .node(12, |n| n.ready = false)
        .with(|s| s.policy.unreachable_rule = UnreachableRule::All);
    assert_eq!(scene.does(0), None);
    assert!(matches!(scene.reason(0), Reason::UnreachableGate { .. }));
    let newer = scene.with(|s| s.policy.unreachable_rule = UnreachableRule::OutsideReboots);
    assert_eq!(newer.does(0), Some("rebooting"));
}

#[test]
fn i7_an_api_server_is_not_powered_off_while_another_fails_its_probe() {
    let scene = Scene::new(0)
        .draining(0, 1, 1)
        .with(|s| s.snap.probes.get_mut("10.0.0.2").unwrap().error = Some("503".to_owned()));
    assert_eq!(scene.does(0), None);
    assert!(matches!(scene.reason(0), Reason::ControlPlaneUnhealthy { .. }));
}

/// `anonymous-auth=false` answers 401 in every state. That proves neither that the server is up nor that it is down.
#[test]
fn i7_an_api_server_of_unknown_state_blocks_the_others_and_is_not_called_down() {
    let why = "401: credentials not sent, because its certificate lacks this address";
    let not_known = |s: &mut Scene| s.snap.probes.get_mut("10.0.0.2").unwrap().not_known = Some(why.to_owned());
    let scene = Scene::new(0).draining(0, 1, 1).with(not_known);
    assert_eq!(scene.does(0), None);
    assert!(matches!(scene.reason(0), Reason::ControlPlaneUnhealthy { why, .. } if why.contains("certificate")));
    let queued = Scene::new(0).queued(&[(0, 1)]).with(not_known);
    assert!(queued.starts().is_empty());
    let by_readiness = queued.with(|s| s.policy.control_plane_probe = cketerm_model::policy::ControlPlaneProbe::Node);
    assert_eq!(by_readiness.starts(), [0]);
}

#[test]
fn force_skips_pods_and_volumes_but_not_api_server_rules() {
    let scene = Scene::new(1)
        .draining(0, 11, 1)
        .pod(11, "web", |_| {})
        .node(11, |n| n.volumes_in_use = vec!["v".to_owned()])
        .order(0, Verb::Force, 10);
    let Some(Effect::Power { force: Some(_), .. }) = scene.effect(0) else { panic!() };
    let queued = Scene::new(1).queued(&[(0, 11)]).order(0, Verb::Force, 10).change(0, |e| {
        e.drain_backoff_expire = Some(after(now(), 500));
    });
    assert_eq!(queued.starts(), [0], "force ends the backoff");
    let api = Scene::new(0)
        .draining(0, 1, 1)
        .pod(1, "web", |_| {})
        .order(0, Verb::Force, 10)
        .with(|s| s.snap.probes.get_mut("10.0.0.2").unwrap().error = Some("503".to_owned()));
    assert_eq!(api.does(0), None);
}

#[test]
fn i26_the_attempt_has_the_nodes_address_appended() {
    let Some(Effect::Power { attempt, .. }) = Scene::new(1).draining(0, 11, 1).effect(0) else { panic!() };
    assert_eq!(attempt.argv, ["reboot", "10.0.0.11"]);
    assert_eq!((attempt.number, attempt.bound_seconds), (1, 3600));
}

/// The transition overwrites the start of the drain, which usual durations and estimates need.
#[test]
fn the_attempt_records_the_start_of_its_drain() {
    let Some(Effect::Power { attempt, .. }) = Scene::new(1).draining(0, 11, 41).effect(0) else { panic!() };
    assert_eq!(attempt.drain_start, Some(after(now(), -41)));
}

#[test]
fn i34_the_backoff_lies_between_its_base_and_the_cap_plus_jitter() {
    let table = [(1, 300), (2, 600), (3, 1200), (4, 1200), (64, 1200), (1_000_000, 1200), (i64::MAX, 1200)];
    for (count, base) in table {
        assert_eq!(backoff_seconds(QueueKind::Reboot, count, 0), base, "count {count}");
        assert_eq!(backoff_seconds(QueueKind::Reboot, count, 299), base + 299);
        assert_eq!(backoff_seconds(QueueKind::Reboot, count, 300), base, "the jitter is below 300");
    }
}

/// A hold keeps an entry from starting. A draining entry unwinds before its command, with the reason.
#[test]
fn i10_a_hold_reverts_a_drain_and_removes_its_cordon() {
    let scene = Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {});
    assert_ne!(scene.does(0), Some("unwinding"));
    let held = scene.order(0, Verb::Hold, 10);
    let Some(Effect::Unwind { cause: Reason::OnHold { .. }, .. }) = held.effect(0) else {
        panic!("{:?}", held.effect(0))
    };
    let empty = Scene::new(1).draining(0, 11, 1);
    assert_eq!(empty.does(0), Some("rebooting"));
    assert_eq!(empty.order(0, Verb::Hold, 10).does(0), Some("unwinding"));
    let back = Scene::new(1).queued(&[(0, 11)]).cordoned(11, 0).order(0, Verb::Hold, 10);
    let effects = back.decide().effects;
    // The operator's order is not completed with the cordon: the entry still exists.
    assert!(effects.iter().any(|p| matches!(p.effect, Effect::Release { uncordon: true, settle: None, .. })));
}

/// While a preview is refused, no pod was evicted, so no pod counts as leaving.
#[test]
fn i15_no_pod_is_reported_as_leaving_before_the_preview_succeeded() {
    let scene = Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| {}).pod(11, "free", |_| {}).budget("web", "web");
    let blocked = |scene: &Scene| {
        let named = crate::publish::blockers(&scene.snapshot(), EntryId::reboot(0), &Address::new("10.0.0.11"));
        named.into_iter().map(|b| (b.pod, b.why == PodHold::Leaving)).collect::<Vec<_>>()
    };
    let refused = scene.answered(0, "web", refused_by_budget()).work(0, |w| w.drain.previewed = false);
    assert_eq!(blocked(&refused), [("shop/web".to_owned(), false)]);
    let evicting = refused.work(0, |w| w.drain.previewed = true);
    assert_eq!(blocked(&evicting), [("shop/web".to_owned(), false), ("shop/free".to_owned(), true)]);
}
