//! Entries that start, entries that wait, and their reasons.

use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    agent::REPORT_ANNOTATION,
    attempt::Ended,
    boot_time::Seconds,
    cketerm_records::Verb,
    entry::EntryId,
    host::{HostRow, POWER_KEY, RebootAnnotations},
    kube::{HOSTS_SOURCE, SourceState},
    names::{Address, NodeName},
    policy::UnreachableRule,
    reason::{MAX_NAMES, Reason},
    reboot::RebootStatus::{Cancelled, Draining, Queued, Rebooting},
    repair::RepairEntry,
    time::after,
};
use serde_json::json;

use super::scene::{BOOT, Scene, now};
use crate::{preflight_fault::PreflightFault, snapshot::BmcAccess};

#[test]
fn entries_start_in_queue_order_up_to_the_limit() {
    let scene = Scene::new(4).queued(&[(0, 11), (1, 12), (2, 13), (3, 14)]);
    assert_eq!(scene.starts(), [0]);
    let scene = scene.with(|s| s.cluster.reboot.max_concurrent_reboots = Some(3));
    assert_eq!(scene.starts(), [0, 1, 2]);
    assert!(matches!(scene.reason(3), Reason::WaitingForSlot { limit: 3, holder: Some(_), ahead: false }));
}

#[test]
fn i3_draining_and_rebooting_nodes_occupy_slots_and_a_lower_limit_aborts_none() {
    let scene = Scene::new(4)
        .with(|s| s.cluster.reboot.max_concurrent_reboots = Some(2))
        .draining(0, 11, 5)
        .entry(1, 12, Rebooting, 5)
        .queued(&[(2, 13)]);
    assert!(scene.starts().is_empty());
    let lowered = scene.with(|s| s.cluster.reboot.max_concurrent_reboots = Some(1));
    assert!(lowered.starts().is_empty());
    assert_ne!(lowered.does(0), Some("backing off"));
}

#[test]
fn i4_of_two_entries_for_one_node_only_the_smaller_index_is_processed() {
    let scene = Scene::new(2).with(|s| s.cluster.reboot.max_concurrent_reboots = Some(5)).queued(&[(0, 11), (3, 11)]);
    assert_eq!(scene.starts(), [0]);
    assert_eq!(scene.reason(3), Reason::DuplicateOf { index: 0 });
}

#[test]
fn i5_an_unreadable_entry_occupies_no_slot_and_is_reported() {
    let scene = Scene::new(2).queued(&[(0, 11), (1, 12)]).with(|s| {
        s.store.reboots.entries.get_mut(&0).unwrap().value = Err("not JSON".to_owned());
    });
    assert_eq!(scene.starts(), [1]);
    assert_eq!(scene.reason(0), Reason::InvalidEntry { why: "cannot be read: not JSON".to_owned() });
}

#[test]
fn cancelled_and_non_member_entries_are_removed_even_while_disabled() {
    let scene = Scene::new(2).entry(0, 11, Cancelled, 5).queued(&[(1, 99)]).disabled();
    assert_eq!((scene.does(0), scene.does(1)), (Some("removing"), Some("removing")));
}

/// The write may take long, and the node may be a member again in the meantime.
#[test]
fn i28_dequeuing_is_guarded_by_the_definition_that_lacks_the_node() {
    let scene = Scene::new(2).entry(0, 11, Cancelled, 5).queued(&[(1, 99)]);
    let snap = scene.snapshot();
    let at = cketerm_model::clock::Now { boot: BOOT, wall: now() };
    let decision = crate::decide::decide(&snap, at);
    let guard = |index| &decision.effects.iter().find(|p| p.entry == Some(EntryId::reboot(index))).unwrap().guard;
    let revision = snap.store.cluster.as_ref().unwrap().mod_revision;
    assert_eq!(
        (guard(0).cluster, guard(1).cluster),
        (None, Some(revision)),
        "a cancel is not guarded by the definition"
    );
    assert_eq!(guard(1).changed(&snap.store), None);
    let mut store = (*snap.store).clone();
    store.cluster.as_mut().unwrap().mod_revision += 1;
    assert_eq!(guard(1).changed(&store), Some("the cluster definition"));
}

/// The pass that dequeues such an entry must not count its slot as free.
#[test]
fn i3_a_removed_machine_keeps_its_slot_until_its_command_has_ended() {
    let scene = |last: u8, end: Option<Ended>| {
        Scene::new(2).rebooting(0, last, 3, end).queued(&[(1, 12), (2, 2)]).with(|s| {
            s.cluster.reboot.max_concurrent_reboots = Some(1);
            // An attempt of a leader that has just ended may still run.
            s.snap.engine.leading.as_mut().unwrap().since = BOOT - Seconds::new(5.0);
            s.cluster.nodes.retain(|n| n.address != Scene::address(last).as_str());
        })
    };
    assert_eq!(scene(11, None).starts(), Vec::<u64>::new());
    assert_eq!(scene(11, Some(Ended::Exit(0))).starts(), [1]);
    assert_eq!(scene(1, None).starts(), Vec::<u64>::new(), "an API server does not start (I1)");
}

#[test]
fn without_a_readable_definition_no_entry_changes() {
    let scene = Scene::new(2).queued(&[(0, 99)]).entry(1, 11, Draining, 5);
    let mut snap = scene.snapshot();
    let mut store = (*snap.store).clone();
    store.cluster.as_mut().unwrap().value = Err("not JSON".to_owned());
    snap.store = std::sync::Arc::new(store);
    let at = cketerm_model::clock::Now { boot: super::scene::BOOT, wall: now() };
    let decision = crate::decide::decide(&snap, at);
    assert!(decision.effects.is_empty(), "{:?}", decision.effects);
    assert!(
        matches!(&decision.reasons[&EntryId::reboot(0)], Reason::NoCommand { field } if field.contains("definition"))
    );
}

#[test]
fn a_disabled_queue_starts_nothing_and_is_reported() {
    let scene = Scene::new(2).queued(&[(0, 11)]).disabled();
    assert!(scene.starts().is_empty());
    assert_eq!(scene.reason(0), Reason::QueueDisabled);
}

#[test]
fn only_the_exact_value_true_disables_the_queue() {
    for odd in ["TRUE", "1", "yes", "true\n", ""] {
        let scene = Scene::new(1).queued(&[(0, 11)]).with(|s| s.store.reboots.switch.raw = Some(odd.to_owned()));
        assert_eq!(scene.starts(), [0], "{odd:?}");
    }
}

#[test]
fn nothing_starts_without_both_commands() {
    let scene = Scene::new(1).queued(&[(0, 11)]).with(|s| s.cluster.reboot.boot_check_command = None);
    assert!(scene.starts().is_empty());
    assert_eq!(scene.reason(0), Reason::NoCommand { field: "reboot.boot_check_command".to_owned() });
}

#[test]
fn i50_without_bmc_networks_entries_that_need_them_wait_before_the_drain() {
    let with = |command: &[&str], only: Option<&[&str]>, refused: &[(&str, &str)]| {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let only = only.map(|named| named.iter().map(|address| Address::new(*address)).collect());
        let refused = refused.iter().map(|(address, why)| (Address::new(*address), (*why).to_owned())).collect();
        let scene = Scene::new(1).queued(&[(0, 11)]).with(|s| {
            s.cluster.reboot.reboot_command = Some(command);
            s.snap.engine.bmcs = BmcAccess::by_machine([], only, refused, BTreeMap::new());
        });
        (scene.reason(0), scene.starts())
    };
    let of = |command: &[&str], named: &[&str]| with(command, Some(named), &[]);
    let waits = Reason::BmcNotAllowed { address: Address::new("10.0.0.11"), fault: None };
    for command in [&["cketerm", "power", "cycle"][..], &["/usr/bin/cketerm", "-v", "power", "cycle", "--hard"]] {
        assert_eq!(of(command, &["10.0.0.12"]), (waits.clone(), vec![]), "{command:?}");
        assert_ne!(of(command, &["10.0.0.11"]).0, waits, "the file names this BMC");
    }
    for other in
        [&["ipmitool", "power", "cycle"][..], &["cketerm", "hosts", "reboot"], &["cketerm", "--config", "x", "power"]]
    {
        assert_ne!(of(other, &[]).0, waits, "{other:?} needs no BMC permission");
    }
    // The power command would refuse this entry of the file.
    let power = &["cketerm", "power", "cycle"][..];
    let refused = Reason::BmcNotAllowed { address: Address::new("10.0.0.11"), fault: Some("outside".to_owned()) };
    for only in [None, Some(&["10.0.0.11"][..])] {
        assert_eq!(with(power, only, &[("10.0.0.11", "outside")]), (refused.clone(), vec![]), "{only:?}");
        assert_ne!(with(power, only, &[("10.0.0.12", "outside")]).0, refused, "the fault is another machine's");
    }
}

#[test]
fn an_entry_whose_bare_metal_host_cannot_be_cycled_waits_before_the_drain() {
    let host = HostRow {
        namespace: "metal3".to_owned(),
        name: "w34".to_owned(),
        online: true,
        powered_on: Some(true),
        provisioning: "provisioned".to_owned(),
        ..HostRow::default()
    };
    let held_by = |key: &str| {
        let keys = BTreeMap::from([(key.to_owned(), String::new())]);
        HostRow { asked: RebootAnnotations { base: None, keys }, ..host.clone() }
    };
    let with = |host: Option<HostRow>, synced: bool| {
        let hosts = BTreeMap::from([(Address::new("10.0.0.11"), ("metal3".to_owned(), "w34".to_owned()))]);
        let scene = Scene::new(1).queued(&[(0, 11)]).with(|s| {
            s.cluster.reboot.reboot_command = Some(["cketerm", "power", "cycle"].map(str::to_owned).to_vec());
            s.snap.engine.bmcs = BmcAccess::by_machine([], None, BTreeMap::new(), hosts);
            s.kube.sources.insert(HOSTS_SOURCE.to_owned(), SourceState { synced, ..SourceState::default() });
            s.kube.hosts.extend(host.map(|host| ((host.namespace.clone(), host.name.clone()), Arc::new(host))));
        });
        (scene.reason(0).to_string(), scene.starts())
    };
    let unregistered = HostRow { provisioning: String::new(), ..host.clone() };
    for (host, synced, why) in [
        (None, true, "BareMetalHost metal3/w34 not found"),
        (None, false, "BareMetalHosts cannot be read: they were not listed yet"),
        (Some(unregistered), true, "BareMetalHost metal3/w34: the host is not registered"),
        (
            Some(held_by("cketerm-foo")),
            true,
            "held off by cketerm-foo: it stays off until `cketerm hosts release metal3/w34 --as foo`",
        ),
    ] {
        let (reason, starts) = with(host, synced);
        assert!(reason.contains(why) && starts.is_empty(), "{reason}");
    }
    // An earlier cycle is not over: the next one releases the host.
    for host in [host.clone(), held_by(POWER_KEY)] {
        assert_eq!(with(Some(host), true).1, [0]);
    }
}

#[test]
fn an_entry_whose_agent_has_not_reported_since_the_boot_waits_before_the_drain() {
    let with = |report: Option<&str>, agents: &[&str]| {
        let scene = Scene::new(1).queued(&[(0, 11)]).with(|s| {
            s.cluster.reboot.reboot_command = Some(["cketerm", "power", "cycle"].map(str::to_owned).to_vec());
            let agents = agents.iter().map(|address| Address::new(*address)).collect();
            s.snap.engine.bmcs = BmcAccess::Open.with_agents(agents);
            let address = Address::new("10.0.0.11");
            let node = s.kube.nodes.values().find(|node| node.addresses.contains(&address)).cloned();
            let mut node = Arc::unwrap_or_clone(node.expect("a Node"));
            node.boot_id = "b1".to_owned();
            let report = report.map(|boot_id| (REPORT_ANNOTATION, json!({"boot_id": boot_id, "version": "1"})));
            let annotations = report.into_iter().map(|(name, value)| (name.to_owned(), value.to_string()));
            node.described.annotations = annotations.collect();
            s.kube.put_node(node);
        });
        (scene.reason(0).to_string(), scene.starts())
    };
    let machine = &["10.0.0.11"][..];
    for (report, why) in [(None, "no agent reports on Node"), (Some("b0"), "has not reported since the last boot")] {
        let (reason, starts) = with(report, machine);
        assert!(reason.contains(why) && starts.is_empty(), "{reason}");
    }
    assert_eq!(with(Some("b1"), machine).1, [0]);
    assert_eq!(with(None, &["10.0.0.12"]).1, [0], "another machine has the agent");
}

#[test]
fn a_program_missing_on_this_host_blocks_the_entries_that_need_it() {
    let scene = Scene::new(1).queued(&[(0, 11)]).with(|s| s.snap.engine.missing_programs = vec!["reboot".to_owned()]);
    assert_eq!(scene.reason(0), Reason::ProgramMissing { path: "reboot".to_owned() });
}

#[test]
fn i30_an_entry_in_backoff_is_skipped_until_the_backoff_ends() {
    let scene = Scene::new(2).queued(&[(0, 11), (1, 12)]).change(0, |e| {
        e.drain_backoff_count = 2;
        e.drain_backoff_expire = Some(after(now(), 10));
    });
    assert_eq!(scene.starts(), [1]);
    assert!(matches!(scene.reason(0), Reason::Backoff { count: 2, .. }));
    let wake = (scene.decide().wake.unwrap() - super::scene::BOOT).get();
    assert!((9.9..10.1).contains(&wake), "the engine wakes when the backoff ends: {wake}");
    let later = scene.change(0, |e| e.drain_backoff_expire = Some(after(now(), -1)));
    assert_eq!(later.starts(), [0]);
}

#[test]
fn an_entry_on_hold_does_not_start_and_blocks_no_other() {
    let scene = Scene::new(2).queued(&[(0, 11), (1, 12)]).order(0, Verb::Hold, 1);
    assert_eq!(scene.starts(), [1]);
    assert!(matches!(scene.reason(0), Reason::OnHold { .. }));
}

#[test]
fn i6_rule_outside_reboots_blocks_only_new_drains() {
    let scene = Scene::new(4)
        .with(|s| s.cluster.reboot.max_concurrent_reboots = Some(2))
        .entry(0, 11, Rebooting, 5)
        .node(11, |n| n.ready = false)
        .queued(&[(1, 12)]);
    assert_eq!(scene.starts(), [1], "the node under reboot does not count");
    let scene = scene.node(13, |n| n.ready = false);
    assert!(scene.starts().is_empty());
    assert_eq!(
        scene.reason(1),
        Reason::UnreachableGate { count: 1, limit: 0, names: [NodeName::new("10.0.0.13")].into() }
    );
    let scene = scene.with(|s| s.constraints.maximum_unreachable_nodes_for_reboot = 1);
    assert_eq!(scene.starts(), [1], "only more than the limit holds the queue");
}

#[test]
fn an_unreachable_cluster_is_counted_and_names_only_its_first_nodes() {
    let mut scene = Scene::new(60).queued(&[(0, 11), (1, 12)]);
    for i in 11..71 {
        scene = scene.node(i, |n| n.ready = false);
    }
    let reasons = [scene.reason(0), scene.reason(1)];
    let details = reasons.each_ref().map(|reason| match reason {
        Reason::UnreachableGate { count, names, .. } => (*count, names.clone()),
        other => panic!("{other}"),
    });
    assert_eq!((details[0].0, details[0].1.len()), (60, MAX_NAMES));
    assert!(reasons[0].to_string().ends_with("and 57 more"), "{}", reasons[0]);
}

#[test]
fn i6_rule_all_counts_every_unreachable_node() {
    let scene = Scene::new(4)
        .with(|s| {
            s.cluster.reboot.max_concurrent_reboots = Some(2);
            s.policy.unreachable_rule = UnreachableRule::All;
        })
        .entry(0, 11, Rebooting, 5)
        .node(11, |n| n.ready = false)
        .queued(&[(1, 12)]);
    assert!(scene.starts().is_empty());
}

#[test]
fn a_member_without_a_node_object_is_unreachable() {
    let scene = Scene::new(3).queued(&[(0, 11)]).with(|s| s.kube.remove_node(&NodeName::new("10.0.0.13")));
    assert!(matches!(scene.reason(0), Reason::UnreachableGate { count: 1, .. }));
}

#[test]
fn i26_a_mismatched_node_is_not_drained() {
    let scene = Scene::new(2).queued(&[(0, 11)]).node(11, |n| n.addresses = vec![Address::new("10.0.0.77")]);
    assert!(scene.starts().is_empty());
    assert!(matches!(scene.reason(0), Reason::NodeMismatch { .. }));
}

#[test]
fn no_new_work_starts_while_a_watch_is_older_than_10_seconds() {
    let etcd = Scene::new(1).queued(&[(0, 11)]).with(|s| s.store.last_seen = super::scene::BOOT - Seconds::new(11.0));
    assert!(etcd.starts().is_empty());
    assert!(matches!(etcd.reason(0), Reason::Stale { .. }));
    // An answer on another connection proves nothing about this watch.
    for source in ["nodes", "namespaces", "poddisruptionbudgets", "daemonsets"] {
        let dead = Scene::new(1).queued(&[(0, 11)]).with(|s| {
            s.kube.sources.get_mut(source).unwrap().fresh_as_of = super::scene::BOOT - Seconds::new(11.0);
        });
        assert!(dead.starts().is_empty());
        assert!(matches!(dead.reason(0), Reason::Stale { source: named, .. } if named == source), "{source}");
    }
}

#[test]
fn a_drain_with_a_stale_pod_watch_waits_while_others_continue() {
    let scene = Scene::new(2).draining(0, 11, 1).draining(1, 12, 1).with(|s| {
        s.kube.pods.get_mut("10.0.0.11").unwrap().fresh_as_of = super::scene::BOOT - Seconds::new(11.0);
    });
    assert_eq!((scene.does(0), scene.does(1)), (None, Some("rebooting")));
    assert!(matches!(scene.reason(0), Reason::Stale { source, .. } if source == "pods on 10.0.0.11"));
}

/// A proof costs a request for each watch every few seconds, so watches prove nothing while no work needs it.
#[test]
fn watches_verify_their_connections_only_while_work_is_pending_or_running() {
    let proves = |scene: Scene| scene.decide().prove_watches;
    assert!(!proves(Scene::new(2)), "there is no work");
    assert!(!proves(Scene::new(1).queued(&[(0, 11)]).disabled()), "the queue is disabled");
    let waits = Scene::new(1).queued(&[(0, 11)]).change(0, |e| e.drain_backoff_expire = Some(after(now(), 500)));
    assert!(!proves(waits), "it backs off");
    assert!(!proves(Scene::new(1).queued(&[(0, 11)]).order(0, Verb::Hold, 10)), "a person holds it");
    assert!(proves(Scene::new(1).queued(&[(0, 11)])), "next");
    assert!(proves(Scene::new(1).draining(0, 11, 1).pod(11, "web", |_| ())), "drains");
    assert!(proves(Scene::new(1).rebooting(0, 11, 5, Some(Ended::Exit(0)))), "reboots");
    let elsewhere = Scene::new(1).queued(&[(0, 11)]).with(|s| s.snap.engine.leading = None);
    assert!(!proves(elsewhere), "only the leader proves its watches");
}

#[test]
fn i43_a_machine_under_repair_is_not_rebooted_but_others_are() {
    let repair = |address: &str| -> RepairEntry {
        serde_json::from_value(
            serde_json::json!({"index": "4", "address": address, "machine_type": "t", "operation": "o",
            "status": "processing", "step_status": "watching"}),
        )
        .unwrap()
    };
    let scene = Scene::new(2).queued(&[(0, 11), (1, 12)]).with(|s| {
        let stored = cketerm_model::entry::Stored {
            key: "k".to_owned(),
            mod_revision: 9,
            value: Ok(std::sync::Arc::new(repair("10.0.0.11"))),
        };
        s.store.repairs.entries.insert(4, stored);
    });
    assert_eq!(scene.starts(), [1]);
    assert_eq!(scene.reason(0), Reason::MachineInRepair { entry: EntryId::repair(4) });
}

#[test]
fn a_follower_plans_no_effects_and_names_the_leader() {
    let scene = Scene::new(1).queued(&[(0, 11)]).with(|s| s.snap.engine.leading = None);
    assert!(scene.decide().effects.is_empty());
    assert!(matches!(scene.reason(0), Reason::NoEngine { .. }));
    let cke = scene.with(|s| {
        let candidate = cketerm_model::stored::view::Candidate {
            key: "leader//9".to_owned(),
            lease: 9,
            host: "boot-0".to_owned(),
            create_revision: 3,
        };
        s.store.candidates.insert(3, candidate);
    });
    assert_eq!(cke.reason(0), Reason::EngineElsewhere { holder: "CKE on boot-0".to_owned() });
}

#[test]
fn i32_every_entry_has_a_reason() {
    let mut scene = Scene::new(8);
    for (index, status) in [Queued, Draining, Rebooting, Queued, Queued, Draining].into_iter().enumerate() {
        scene = scene.entry(index as u64, 11 + u8::try_from(index).unwrap(), status, 100);
    }
    for index in 0..6 {
        scene.reason(index);
    }
}

#[test]
fn a_preflight_fault_while_leading_starts_nothing_new() {
    let scene = Scene::new(1)
        .queued(&[(0, 11)])
        .with(|s| s.snap.engine.observing = vec![PreflightFault::PolicyUnreadable { error: "bad".to_owned() }]);
    assert!(scene.starts().is_empty());
    assert!(matches!(scene.reason(0), Reason::EngineObserving { why } if why.contains("policy")));
}

#[test]
fn i26_the_uid_in_etcd_takes_precedence_over_the_node_annotation() {
    let scene = Scene::new(1).draining(0, 11, 1).with(|s| {
        let request = cketerm_model::cketerm_records::Request {
            who: cketerm_model::cketerm_records::Who::default(),
            at: now(),
            reason: None,
            node_uid: Some("another".to_owned()),
            batch: None,
        };
        let stored = cketerm_model::entry::Stored {
            key: "r".to_owned(),
            mod_revision: 3,
            value: Ok(std::sync::Arc::new(request)),
        };
        s.store.requests.insert(EntryId::reboot(0), stored);
    });
    assert!(matches!(scene.reason(0), Reason::NodeMismatch { .. }));
    assert_eq!(scene.does(0), None);
}
