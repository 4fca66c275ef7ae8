//! Quorum of etcd (I46).

use std::sync::Arc;

use cketerm_model::{
    attempt::Ended,
    boot_time::Seconds,
    entry::EntryId,
    etcd::{EtcdView, Member, MemberState, Reported, Source, Status},
    names::Address,
    policy::EtcdMembers,
    reason::Reason,
    reboot::RebootStatus::{Draining, Rebooting},
};

use super::scene::{BOOT, Scene};
use crate::decide::{Effect, can_check_quorum};

/// Three healthy members on the three API servers; the first leads.
fn etcd() -> EtcdView {
    let member = |i: u64| Member {
        name: format!("m{i}"),
        peer_urls: vec![format!("https://10.0.0.{i}:2380")],
        client_urls: vec![format!("https://10.0.0.{i}:2379")],
        state: MemberState::Answered(Status {
            asked: BOOT - Seconds::new(1.0),
            at: BOOT - Seconds::new(0.9),
            leader: 1,
            committed: 500,
            applied: 500,
            errors: Vec::new(),
        }),
        ..Member::default()
    };
    EtcdView {
        source: Source::Configured,
        members: (1..=3).map(|i| (i, member(i))).collect(),
        reported: Some(Reported { leader: 1, index: 500, at: BOOT - Seconds::new(0.9) }),
        ..EtcdView::default()
    }
}

fn with(scene: Scene, how: impl FnOnce(&mut EtcdView)) -> Scene {
    let mut view = etcd();
    how(&mut view);
    scene.with(|s| {
        s.policy.etcd_members = EtcdMembers::Check;
        s.snap.etcd = Arc::new(view);
    })
}

fn state(view: &mut EtcdView, id: u64, how: impl FnOnce(&mut Status)) {
    if let MemberState::Answered(status) = &mut view.members.get_mut(&id).unwrap().state {
        how(status);
    }
}

fn silent(view: &mut EtcdView, id: u64) {
    let why = "connection refused".to_owned();
    view.members.get_mut(&id).unwrap().state = MemberState::Silent { asked: BOOT - Seconds::new(1.0), why };
}

fn unhealthy(scene: &Scene, index: u64, member: &str, words: &str) {
    match scene.reason(index) {
        Reason::EtcdMemberUnhealthy { member: named, why } => {
            assert_eq!(named, member, "{why}");
            assert!(why.contains(words), "{why}");
        }
        other => panic!("{other}"),
    }
}

fn unchecked(scene: &Scene, index: u64, words: &str) {
    match scene.reason(index) {
        Reason::EtcdUnchecked { why } => assert!(why.contains(words), "{why}"),
        other => panic!("{other}"),
    }
}

/// The second API server is next in the queue.
fn next() -> Scene {
    Scene::new(0).queued(&[(0, 2)])
}

#[test]
fn i46_the_drain_starts_while_all_other_members_are_healthy() {
    assert_eq!(with(next(), |_| {}).starts(), [0]);
}

#[test]
fn i46_another_unhealthy_member_is_named_and_blocks_the_start() {
    type Fault = fn(&mut EtcdView);
    let cases: [(Fault, &str); 7] = [
        (|v| silent(v, 3), "no answer: connection refused"),
        (|v| state(v, 3, |s| s.applied = 499), "raft index 499, and the leader is at 500"),
        (|v| state(v, 3, |s| s.at = BOOT + Seconds::new(4.2)), "more than 5 s"),
        (|v| state(v, 3, |s| s.errors.push("memberID:3 alarm:NOSPACE".to_owned())), "it has raised alarm NOSPACE"),
        (|v| state(v, 3, |s| s.errors.push("etcdserver: no leader".to_owned())), "reports etcdserver: no leader"),
        (|v| state(v, 3, |s| s.leader = 0), "it has no leader"),
        (|v| state(v, 3, |s| s.leader = 2), "its leader differs"),
    ];
    for (fault, words) in cases {
        let scene = with(next(), fault);
        assert!(scene.starts().is_empty(), "{words}");
        unhealthy(&scene, 0, "m3", words);
        assert!(scene.decide().ask_etcd);
    }
}

#[test]
fn i46_an_alarm_names_the_member_that_raised_it() {
    // by etcd up to 3.6, and by etcd 3.7
    for text in ["memberID:3 alarm:CORRUPT ", "memberID:3  alarm:CORRUPT"] {
        let reported = |v: &mut EtcdView| {
            for id in 1..=3 {
                state(v, id, |s| s.errors.push(text.to_owned()));
            }
        };
        unhealthy(&with(next(), reported), 0, "m3", "it has raised alarm CORRUPT");
    }
}

#[test]
fn i46_stale_or_missing_answers_do_not_count() {
    unchecked(&with(next(), |v| state(v, 1, |s| s.asked = BOOT - Seconds::new(5.1))), 0, "older than 5 s");
    unchecked(&with(next(), |v| v.members.get_mut(&1).unwrap().state = MemberState::Unasked), 0, "not been asked");
    unchecked(&with(next(), |v| v.reported = None), 0, "being the leader");
    unchecked(&with(next(), |v| *v = EtcdView { source: Source::Configured, ..EtcdView::default() }), 0, "asked yet");
    let error = |v: &mut EtcdView| {
        *v = EtcdView { source: Source::Configured, error: Some("bad certificate".to_owned()), ..EtcdView::default() };
    };
    unchecked(&with(next(), error), 0, "bad certificate");
}

#[test]
fn i46_a_machine_whose_own_member_is_down_or_a_learner_is_exempt() {
    assert_eq!(with(next(), |v| silent(v, 2)).starts(), [0]);
    assert_eq!(with(next(), |v| v.members.get_mut(&2).unwrap().learner = true).starts(), [0]);
    // A learner that lags behind keeps no machine from starting.
    let learner = |v: &mut EtcdView| {
        v.members.insert(4, Member { name: "m4".to_owned(), learner: true, ..Member::default() });
    };
    assert_eq!(with(next(), learner).starts(), [0]);
    // If no member answers, this engine's own connection may be down.
    let all = |v: &mut EtcdView| (1..=3).for_each(|id| silent(v, id));
    assert!(with(next(), all).starts().is_empty());
    // Without this member no quorum answers, yet there is a leader. So the member votes, but this engine cannot
    // reach it.
    let two = |v: &mut EtcdView| [2, 3].into_iter().for_each(|id| silent(v, id));
    unhealthy(&with(next(), two), 0, "m3", "no answer");
    let one_of_two = |v: &mut EtcdView| {
        v.members.remove(&3);
        silent(v, 2);
    };
    assert_eq!(
        with(next(), one_of_two).reason(0),
        Reason::EtcdQuorumWouldBeLost { member: "m2".to_owned(), voters: 2 }
    );
}

#[test]
fn i46_a_member_list_that_can_no_longer_be_read_is_not_enough() {
    let refused = |v: &mut EtcdView| v.error = Some("etcd members: connection refused".to_owned());
    unchecked(&with(next(), refused), 0, "connection refused");
    let down = |v: &mut EtcdView| {
        refused(v);
        silent(v, 2);
    };
    assert_eq!(with(next(), down).starts(), [0], "the machine's own endpoint may be the configured one");
}

#[test]
fn i46_one_or_two_voting_members_need_allow_quorum_loss() {
    let two = |v: &mut EtcdView| v.members.get_mut(&3).unwrap().learner = true;
    let scene = with(next(), two);
    assert_eq!(scene.reason(0), Reason::EtcdQuorumWouldBeLost { member: "m2".to_owned(), voters: 2 });
    assert!(scene.starts().is_empty());
    assert_eq!(scene.with(|s| s.policy.allow_quorum_loss = true).starts(), [0]);
    // The other member must still be healthy.
    let scene = with(next().with(|s| s.policy.allow_quorum_loss = true), |v| {
        two(v);
        silent(v, 1);
    });
    unhealthy(&scene, 0, "m1", "no answer");
}

#[test]
fn i46_without_etcd_endpoints_only_control_planes_wait() {
    let nothing = |v: &mut EtcdView| *v = EtcdView::default();
    let scene = with(Scene::new(1).queued(&[(0, 1)]), nothing);
    unchecked(&scene, 0, "policy set etcd_members none");
    assert_eq!(with(Scene::new(1).queued(&[(0, 11)]), nothing).starts(), [0]);
    assert_eq!(scene.with(|s| s.policy.etcd_members = EtcdMembers::None).starts(), [0]);
    // A managed cluster: its control planes are not in the definition.
    let managed = |s: &mut Scene| s.cluster.nodes.retain(|node| !node.control_plane);
    assert_eq!(with(Scene::new(1).queued(&[(0, 11)]), nothing).with(managed).starts(), [0]);
}

#[test]
fn i46_ready_static_pods_are_shown_but_not_sufficient() {
    let pods = |v: &mut EtcdView| {
        *v = EtcdView { static_pods: [("etcd-cp1".to_owned(), true)].into(), ..EtcdView::default() };
    };
    unchecked(&with(next(), pods), 0, "etcd-cp1 Ready");
}

#[test]
fn i46_cketerms_own_etcd_counts_only_on_control_planes() {
    let own = |v: &mut EtcdView| {
        v.source = Source::OwnStore;
        v.own_store_is_kubernetes = true;
    };
    assert_eq!(with(next(), own).starts(), [0]);
    let elsewhere = |v: &mut EtcdView| {
        own(v);
        v.members.get_mut(&3).unwrap().peer_urls = vec!["https://10.9.9.9:2380".to_owned()];
        v.members.get_mut(&3).unwrap().client_urls.clear();
    };
    unchecked(&with(next(), elsewhere), 0, "not that of Kubernetes");
    // a small etcd of cketerm's own on the control planes says nothing about that of Kubernetes
    unchecked(&with(next(), |v| v.source = Source::OwnStore), 0, "not that of Kubernetes");
}

#[test]
fn i46_a_worker_that_hosts_a_member_is_checked_like_an_api_server() {
    let on_workers = |v: &mut EtcdView| {
        for (id, host) in [(2, 11), (3, 12)] {
            let member = v.members.get_mut(&id).unwrap();
            member.peer_urls = vec![format!("https://10.0.0.{host}:2380")];
            member.client_urls = vec![format!("https://10.0.0.{host}:2379")];
        }
    };
    let wide = |workers: u8| Scene::new(workers).with(|s| s.cluster.reboot.max_concurrent_reboots = Some(5));
    // Of two entries in one pass, the second finds the first in progress.
    let scene = with(wide(3).queued(&[(0, 11), (1, 12), (2, 13)]), on_workers);
    assert_eq!(scene.starts(), [0, 2]);
    unhealthy(&scene, 1, "m2", "is in work for reboots/0");
    let sick = |v: &mut EtcdView| {
        on_workers(v);
        silent(v, 1);
    };
    unhealthy(&with(wide(3).queued(&[(0, 11)]), sick), 0, "m1", "no answer");
}

#[test]
fn i46_a_machine_in_progress_counts_as_down_but_a_manual_cordon_does_not() {
    let base = || Scene::new(1).queued(&[(5, 11)]);
    let on_worker = |v: &mut EtcdView| {
        let member = v.members.get_mut(&2).unwrap();
        member.peer_urls = vec!["https://10.0.0.11:2380".to_owned()];
        member.client_urls.clear();
    };
    let open = base().attempt(9, 1, 1, 3, 100_000, None);
    unhealthy(&with(open, on_worker), 5, "m1", "unknown outcome, from reboots/9");
    let orphan = base().cordoned(1, 9);
    unhealthy(&with(orphan, on_worker), 5, "m1", "still cordoned for reboots/9");
    let administrator = base().node(1, |n| n.unschedulable = true);
    assert_eq!(with(administrator, on_worker).starts(), [5]);
}

#[test]
fn i46_unhealthy_before_power_waits_and_backs_off_at_the_deadline() {
    let sick = |v: &mut EtcdView| silent(v, 3);
    let scene = with(Scene::new(0).draining(0, 2, 10), sick);
    unhealthy(&scene, 0, "m3", "no answer");
    assert_eq!(scene.does(0), None);
    let late = with(Scene::new(0).draining(0, 2, 100_000), sick);
    assert_eq!(late.does(0), Some("backing off"));
    assert_eq!(with(Scene::new(0).draining(0, 2, 10), |_| {}).does(0), Some("rebooting"));
}

#[test]
fn i46_the_quorum_is_rechecked_before_a_missing_cordon_is_made() {
    let drains = || Scene::new(0).entry(0, 2, Draining, 10).work(0, |_| {});
    unhealthy(&with(drains(), |v| silent(v, 3)), 0, "m3", "no answer");
    assert_eq!(with(drains(), |v| silent(v, 3)).does(0), None);
    assert_eq!(with(drains(), |_| {}).does(0), Some("cordoning"));
    // The owner annotation of its own cordon is still updated.
    let stamped = Scene::new(0).draining(0, 2, 10).owner(2, |o| o.lease = 3);
    assert_eq!(with(stamped, |v| silent(v, 3)).does(0), Some("cordoning"));
}

#[test]
fn i46_a_command_retry_checks_the_quorum_unless_the_machine_is_down() {
    let again = || {
        let scene = Scene::new(0).rebooting(0, 2, 60, Some(Ended::Exit(1)));
        scene.with(|s| s.cluster.reboot.command_retries = Some(3)).checked(
            0,
            cketerm_model::attempt::CheckAnswer::No(String::new()),
            None,
        )
    };
    assert_eq!(with(again(), |_| {}).does(0), Some("rebooting"));
    assert_ne!(with(again(), |v| silent(v, 3)).does(0), Some("rebooting"));
    assert_eq!(with(again(), |v| silent(v, 2)).does(0), Some("rebooting"));
}

#[test]
fn etcd_leadership_is_moved_once_before_the_power_command() {
    let leads = |v: &mut EtcdView| {
        for id in 1..=3 {
            state(v, id, |s| s.leader = 2);
        }
        state(v, 3, |s| s.applied = 501);
        v.reported = Some(Reported { leader: 2, index: 500, at: BOOT - Seconds::new(0.9) });
    };
    let scene = with(Scene::new(0).draining(0, 2, 10), leads);
    assert_eq!(scene.does(0), Some("moving etcd's leader"));
    match scene.effect(0) {
        Some(Effect::MoveEtcdLeader { member, to, urls, .. }) => {
            assert_eq!((member.as_str(), to, urls.len()), ("m2", 3, 1));
        }
        other => panic!("{other:?}"),
    }
    // Before the members have answered again, and afterwards.
    let scene = scene.work(0, |w| w.drain.leader_moved = Some(BOOT - Seconds::new(0.5)));
    assert_eq!(scene.does(0), None);
    let scene = scene.work(0, |w| w.drain.leader_moved = Some(BOOT - Seconds::new(2.0)));
    assert_eq!(scene.does(0), Some("rebooting"));
}

#[test]
fn i46_a_planned_command_stops_when_a_newer_answer_forbids_it() {
    let scene = with(Scene::new(0).draining(0, 2, 10), |_| {});
    let planned = scene.decide().effects.into_iter().find(|p| p.entry == Some(EntryId::reboot(0))).unwrap();
    let quorum = planned.guard.quorum.unwrap();
    assert_eq!(quorum.barred(&etcd(), BOOT), None);
    let mut since = etcd();
    silent(&mut since, 3);
    assert!(quorum.barred(&since, BOOT).is_some());
    assert!(quorum.barred(&etcd(), BOOT + Seconds::new(5.0)).is_some(), "the answers are too old");
}

#[test]
fn a_control_plane_with_an_unknown_etcd_member_waits() {
    let unplaced = |v: &mut EtcdView| {
        let member = v.members.get_mut(&2).unwrap();
        member.peer_urls = vec!["https://etcd-b.site:2380".to_owned()];
        member.client_urls.clear();
    };
    unchecked(&with(next(), unplaced), 0, "etcd-b.site");
    // Its name resolves to the machine's address.
    let resolved = |v: &mut EtcdView| {
        unplaced(v);
        v.members.get_mut(&2).unwrap().resolved = vec!["10.0.0.2".to_owned()];
        silent(v, 3);
    };
    unhealthy(&with(next(), resolved), 0, "m3", "no answer");
    // Or the Node has that name.
    let named = next().node(2, |n| n.addresses.push(Address::new("etcd-b.site")));
    unhealthy(
        &with(named, |v| {
            unplaced(v);
            silent(v, 3);
        }),
        0,
        "m3",
        "no answer",
    );
}

#[test]
fn members_are_polled_only_while_one_of_their_hosts_is_next_or_in_progress() {
    assert!(with(next(), |_| {}).decide().ask_etcd);
    assert!(with(Scene::new(1).entry(0, 2, Rebooting, 10), |_| {}).decide().ask_etcd);
    assert!(!with(Scene::new(1).queued(&[(0, 11)]), |_| {}).decide().ask_etcd);
    assert!(!with(Scene::new(1), |_| {}).decide().ask_etcd);
}

#[test]
fn an_engine_that_cannot_list_the_members_is_incomplete() {
    let can = |scene: &Scene| can_check_quorum(&scene.snapshot());
    assert_eq!(can(&with(Scene::new(1), |_| {})), Ok(()));
    let none = with(Scene::new(1), |v| *v = EtcdView::default());
    assert!(can(&none).unwrap_err().contains("cluster_etcd"));
    let refused = with(Scene::new(1), |v| v.error = Some("certificate required".to_owned()));
    assert!(can(&refused).unwrap_err().contains("certificate"));
    assert_eq!(can(&none.clone().with(|s| s.policy.etcd_members = EtcdMembers::None)), Ok(()));
    assert_eq!(can(&none.with(|s| s.cluster.nodes.retain(|node| !node.control_plane))), Ok(()));
}

#[test]
fn i46_a_member_may_take_five_seconds_to_apply_the_raft_index() {
    let applied_after = |seconds: f64| {
        with(next(), |v| {
            v.reported.as_mut().unwrap().at = BOOT - Seconds::new(1.0);
            state(v, 3, |s| s.at = BOOT + Seconds::new(seconds - 1.0));
        })
    };
    assert_eq!(applied_after(5.0).starts(), [0]);
    assert!(applied_after(5.5).starts().is_empty());
}

/// Adds a member beside those of [`etcd`].
fn add(view: &mut EtcdView, id: u64, host: u64) {
    let first = view.members[&1].clone();
    let peer_urls = vec![format!("https://10.0.0.{host}:2390")];
    view.members.insert(id, Member { name: format!("m{id}"), peer_urls, client_urls: Vec::new(), ..first });
}

#[test]
fn i46_a_machine_is_exempt_only_if_all_of_its_members_are_silent() {
    let five = |silent_members: &'static [u64]| {
        with(next(), move |v| {
            add(v, 4, 2);
            add(v, 5, 3);
            state(v, 5, |s| s.applied = 499);
            for id in silent_members {
                silent(v, *id);
            }
        })
    };
    unhealthy(&five(&[2]), 0, "m5", "raft index 499");
    assert_eq!(five(&[2, 4]).starts(), [0]);
}

#[test]
fn i46_a_control_plane_with_a_learner_does_not_wait_for_a_member_of_an_unknown_machine() {
    let scene = |is_learner: bool| {
        with(next(), |v| {
            v.members.get_mut(&2).unwrap().peer_urls = vec!["https://etcd-b.site:2380".to_owned()];
            v.members.get_mut(&2).unwrap().client_urls.clear();
            if is_learner {
                add(v, 4, 2);
                v.members.get_mut(&4).unwrap().learner = true;
            }
        })
    };
    unchecked(&scene(false), 0, "etcd-b.site");
    assert_eq!(scene(true).starts(), [0]);
}

#[test]
fn i46_an_administrators_cordon_saves_no_check_of_the_quorum() {
    let cordoned = || Scene::new(0).entry(0, 2, Draining, 10).work(0, |_| {}).node(2, |n| n.unschedulable = true);
    assert_eq!(with(cordoned(), |_| {}).does(0), Some("cordoning"));
    unhealthy(&with(cordoned(), |v| silent(v, 3)), 0, "m3", "no answer");
}

#[test]
fn etcd_leadership_is_moved_only_from_a_member_that_answers_and_to_one_that_votes() {
    let leads = |v: &mut EtcdView| {
        for id in 1..=3 {
            state(v, id, |s| s.leader = 2);
        }
        state(v, 3, |s| s.applied = 501);
        v.reported = Some(Reported { leader: 2, index: 500, at: BOOT - Seconds::new(0.9) });
    };
    let learner = |v: &mut EtcdView| {
        leads(v);
        add(v, 4, 1);
        v.members.get_mut(&4).unwrap().learner = true;
        state(v, 4, |s| s.applied = 900);
    };
    let moves = with(Scene::new(0).draining(0, 2, 10), learner).effect(0);
    assert!(matches!(moves, Some(Effect::MoveEtcdLeader { to: 3, .. })), "{moves:?}");
    let old = |v: &mut EtcdView| {
        leads(v);
        state(v, 2, |s| s.asked = BOOT - Seconds::new(6.0));
    };
    assert_eq!(with(Scene::new(0).draining(0, 2, 10), old).does(0), Some("rebooting"));
}
