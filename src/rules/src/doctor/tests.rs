use std::{collections::BTreeMap, sync::Arc};

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    cluster::Cluster,
    constraints::Constraints,
    entry::{EntryId, Stored},
    etcd::{EtcdView, Member, MemberState, Source, Status},
    kube::{CONTROL_PLANE_PODS, EndpointsRow, KubeView, NodeRow, SourceState},
    names::{Address, NodeName},
    policy::{EtcdMembers, Membership, Policy},
    reason::Reason,
    stored::view::{Definition, StoreView},
};

use super::*;
use crate::{
    preflight_fault::PreflightFault,
    snapshot::{BmcAccess, Engine, Probe, Snapshot},
};

fn stored<T>(value: T) -> Stored<T> {
    Stored { key: String::new(), mod_revision: 1, value: Ok(Arc::new(value)) }
}

/// One control plane and one worker, both Ready, and nothing to complain about but the lack of a leader.
fn site() -> (StoreView, KubeView, BTreeMap<Address, Probe>) {
    let text = "name: test\nnodes:\n- {address: 10.0.0.1, hostname: cp1, user: root, control_plane: true}\n\
                - {address: 10.0.0.2, hostname: w1, user: root}\n\
                reboot: {reboot_command: [reboot], boot_check_command: [booted]}\n";
    let cluster: Cluster = serde_yaml::from_str(text).unwrap();
    let policy = Policy { etcd_members: EtcdMembers::None, membership: Membership::Manual, ..Policy::default() };
    let store = StoreView {
        synced: true,
        cluster: Some(stored(Definition::from(cluster))),
        policy: Some(stored(policy)),
        ..StoreView::default()
    };
    let mut kube = KubeView {
        cluster_uid: Some("uid".to_owned()),
        clock_ahead: Some(Seconds::new(0.2)),
        rights_known: true,
        ..KubeView::default()
    };
    for source in ["nodes", "pods", "namespaces", "daemonsets", "poddisruptionbudgets"] {
        kube.sources.insert(source.to_owned(), SourceState { synced: true, ..SourceState::default() });
    }
    kube.put_node(node("cp1", "10.0.0.1"));
    kube.put_node(node("w1", "10.0.0.2"));
    let probe = Probe { last_good: Some(BootTime::new(1.0)), good_since: Some(BootTime::new(1.0)), ..Probe::default() };
    (store, kube, BTreeMap::from([(Address::new("10.0.0.1"), probe)]))
}

fn node(name: &str, address: &str) -> NodeRow {
    NodeRow { name: NodeName::new(name), addresses: vec![Address::new(address)], ready: true, ..NodeRow::default() }
}

fn seen((store, kube, probes): (StoreView, KubeView, BTreeMap<Address, Probe>), engine: Engine) -> Seen {
    let snapshot = Snapshot { store: Arc::new(store), kube: Arc::new(kube), probes, engine, ..Snapshot::default() };
    let now = cketerm_model::clock::Now { boot: BootTime::new(10.0), ..Seen::default().now };
    Seen { snapshot, now, ..Seen::default() }
}

/// Everything that is not as it should be, besides the lack of a leader and the policy of this site.
fn problems(seen: &Seen) -> Vec<(Subject, Outcome, String)> {
    let all = checks(seen, true).0.into_iter().filter(|check| check.outcome != Outcome::Ok);
    let own = |check: &Check| !matches!(check.subject, Subject::Leader | Subject::EtcdMembers);
    all.filter(own).map(|check| (check.subject, check.outcome, check.text)).collect()
}

#[test]
fn a_fit_site_has_no_problem_but_that_nobody_leads() {
    let seen = seen(site(), Engine::default());
    assert_eq!(problems(&seen), []);
    let all = checks(&seen, true);
    assert_eq!(all.count(Outcome::Failed), 0, "{all:?}");
    let leader = all.0.iter().find(|check| check.subject == Subject::Leader).unwrap();
    assert!(leader.outcome == Outcome::Warning && leader.remedy.as_ref().unwrap().contains("--daemon"), "{leader:?}");
}

#[test]
fn every_fault_of_the_preflight_fails_and_names_a_remedy() {
    let text = || "x".to_owned();
    let seconds = Seconds::new(9.0);
    for fault in [
        PreflightFault::EtcdUnread { error: None },
        PreflightFault::SchemaTooNew { found: 9, known: 1 },
        PreflightFault::SchemaUnreadable { error: text() },
        PreflightFault::PolicyUnreadable { error: text() },
        PreflightFault::PolicyTooNew { fields: vec![text()] },
        PreflightFault::KubernetesNotConfigured,
        PreflightFault::IdentityUnreadable { error: text() },
        PreflightFault::IdentityUnknown,
        PreflightFault::IdentityNotProposed,
        PreflightFault::IdentityMismatch { recorded: text(), found: text() },
        PreflightFault::IdentityUnconfirmed { uid: text() },
        PreflightFault::ClockDiffers { seconds },
        PreflightFault::ClockWasSet { seconds },
        PreflightFault::RightsMissing { rights: vec![text()] },
        PreflightFault::RightsUnknown,
    ] {
        let seen = seen(site(), Engine { observing: vec![fault.clone()], ..Engine::default() });
        let all = checks(&seen, true);
        let found = all.0.iter().find(|check| check.text == fault.to_string()).unwrap();
        assert_eq!(found.outcome, Outcome::Failed, "{fault:?}");
        let words = ["run", "upgrade", "correct", "set", "configur", "apply", "restore", "delete", "check"];
        let remedy = found.remedy.clone().unwrap_or_else(|| found.text.clone());
        assert!(words.iter().any(|word| remedy.contains(word)), "{fault:?}: {remedy}");
    }
}

#[test]
fn without_a_definition_the_remedy_is_init() {
    let (mut store, kube, probes) = site();
    store.cluster = None;
    let all = checks(&seen((store, kube, probes), Engine::default()), true);
    let found = all.0.iter().find(|check| check.subject == Subject::Definition).unwrap();
    assert!(found.outcome == Outcome::Failed && found.remedy.as_ref().unwrap().contains("cketerm init"), "{found:?}");
}

#[test]
fn missing_commands_and_programs_fail() {
    let (mut store, kube, probes) = site();
    let cluster: Cluster =
        serde_yaml::from_str("name: test\nnodes: [{address: 10.0.0.1, user: root, control_plane: true}]\n").unwrap();
    store.cluster = Some(stored(Definition::from(cluster)));
    let engine = Engine { missing_programs: vec!["neco".to_owned()], ..Engine::default() };
    let found = problems(&seen((store, kube, probes), engine));
    let failed = |subject: Subject, words: &str| {
        found.iter().any(|(of, outcome, text)| *of == subject && *outcome == Outcome::Failed && text.contains(words))
    };
    assert!(failed(Subject::Definition, "reboot_command"), "{found:?}");
    assert!(failed(Subject::Definition, "boot_check_command"), "{found:?}");
    assert!(failed(Subject::Programs, "neco"), "{found:?}");
}

#[test]
fn members_without_a_node_and_nodes_that_are_no_members_are_named() {
    let (store, mut kube, probes) = site();
    kube.put_node(node("w2", "10.0.0.3"));
    kube.remove_node(&NodeName::new("w1"));
    let found = problems(&seen((store, kube, probes), Engine::default()));
    let texts: Vec<&str> = found.iter().map(|(_, _, text)| text.as_str()).collect();
    assert_eq!(texts, ["members without a Node: w1", "Nodes that are no members, so they cannot be queued: w2"]);
}

#[test]
fn an_api_server_is_judged_by_its_node_and_its_probe() {
    for (probe, ready, expected) in [
        (Probe { error: Some("503".to_owned()), ..Probe::default() }, true, Some(Outcome::Failed)),
        (Probe { not_known: Some("401: grant it".to_owned()), ..Probe::default() }, true, Some(Outcome::Failed)),
        (Probe::default(), true, Some(Outcome::Unknown)),
        (Probe { last_good: Some(BootTime::new(1.0)), ..Probe::default() }, false, Some(Outcome::Failed)),
        (Probe { last_good: Some(BootTime::new(1.0)), ..Probe::default() }, true, None),
    ] {
        let (store, mut kube, _) = site();
        kube.put_node(NodeRow { ready, ..node("cp1", "10.0.0.1") });
        let probes = BTreeMap::from([(Address::new("10.0.0.1"), probe.clone())]);
        let found = problems(&seen((store, kube, probes), Engine::default()));
        assert_eq!(found.first().map(|(_, outcome, _)| *outcome), expected, "{probe:?}: {found:?}");
    }
}

#[test]
fn without_etcd_nothing_else_is_judged() {
    let (_, kube, probes) = site();
    let engine = Engine { observing: vec![PreflightFault::EtcdUnread { error: None }], ..Engine::default() };
    let all = checks(&seen((StoreView::default(), kube, probes), engine), true);
    assert_eq!(all.0.iter().map(|check| check.subject).collect::<Vec<_>>(), [Subject::Etcd]);
}

#[test]
fn conditions_of_another_program_are_named_while_cketerm_would_set_them() {
    use cketerm_model::kube::{FoundCondition, LifecycleCondition};
    let condition = LifecycleCondition::Drained;
    let foreign =
        FoundCondition { condition, status: "True".into(), reason: "SomebodyElse".into(), message: "m".into() };
    for node_conditions in [true, false] {
        let (mut store, mut kube, probes) = site();
        let policy = Policy {
            node_conditions,
            etcd_members: EtcdMembers::None,
            membership: Membership::Manual,
            ..Policy::default()
        };
        store.policy = Some(stored(policy));
        kube.put_node(NodeRow { lifecycle: vec![foreign.clone()], ..node("w1", "10.0.0.2") });
        let found = problems(&seen((store, kube, probes), Engine::default()));
        let named = found.iter().any(|(subject, outcome, text)| {
            *subject == Subject::Kubernetes
                && *outcome == Outcome::Warning
                && text.contains("Drained on w1 (SomebodyElse)")
        });
        assert_eq!((named, found.len()), (node_conditions, usize::from(node_conditions)), "{found:?}");
    }
}

fn of_subject(seen: &Seen, subject: Subject) -> Check {
    checks(seen, true).0.into_iter().find(|check| check.subject == subject).unwrap()
}

#[test]
fn members_of_etcd_that_nobody_checks_are_a_warning_and_those_that_cannot_be_checked_a_fault() {
    let none = of_subject(&seen(site(), Engine::default()), Subject::EtcdMembers);
    assert_eq!(none.outcome, Outcome::Warning);
    assert!(none.remedy.as_ref().unwrap().contains("policy set etcd_members check"), "{none:?}");
    let (mut store, kube, probes) = site();
    let policy = Policy { etcd_members: EtcdMembers::Check, membership: Membership::Manual, ..Policy::default() };
    store.policy = Some(stored(policy));
    let unable = of_subject(&seen((store, kube, probes), Engine::default()), Subject::EtcdMembers);
    assert_eq!(unable.outcome, Outcome::Failed);
    assert!(unable.text.contains("cluster_etcd"), "{unable:?}");
}

#[test]
fn a_definition_that_contradicts_the_constraints_fails() {
    let (mut store, kube, probes) = site();
    store.constraints = Some(stored(Constraints { control_plane_count: 3, ..Constraints::default() }));
    let found = of_subject(&seen((store, kube, probes), Engine::default()), Subject::Definition);
    assert_eq!(found.outcome, Outcome::Failed, "{found:?}");
    assert!(found.remedy.as_ref().unwrap().contains("cketerm cluster set FILE"), "{found:?}");
}

#[test]
fn a_member_of_etcd_with_an_alarm_or_without_an_answer_fails() {
    let (mut store, kube, probes) = site();
    let policy = Policy { etcd_members: EtcdMembers::Check, membership: Membership::Manual, ..Policy::default() };
    store.policy = Some(stored(policy));
    let answered = |errors: &[&str]| {
        let at = BootTime::new(9.0);
        let errors = errors.iter().map(|error| (*error).to_owned()).collect();
        MemberState::Answered(Status { asked: at, at, leader: 1, committed: 5, applied: 5, errors })
    };
    let silent = MemberState::Silent { asked: BootTime::new(9.0), why: "refused".to_owned() };
    let states = [answered(&[]), answered(&["memberID:2 alarm:NOSPACE"]), silent];
    let member = |(id, state): (u64, MemberState)| (id, Member { name: format!("m{id}"), state, ..Member::default() });
    let members = (1..).zip(states).map(member).collect();
    let mut seen = seen((store, kube, probes), Engine::default());
    seen.snapshot.etcd = Arc::new(EtcdView { source: Source::Configured, members, ..EtcdView::default() });
    let all = checks(&seen, true).0.into_iter().filter(|check| check.subject == Subject::EtcdMembers);
    let found: Vec<(Outcome, String)> = all.map(|check| (check.outcome, check.text)).collect();
    let expected = [
        (Outcome::Failed, "m2 reports memberID:2 alarm:NOSPACE".to_owned()),
        (Outcome::Failed, "m3 does not answer: refused".to_owned()),
        (Outcome::Ok, "healthy: m1".to_owned()),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_node_that_stays_cordoned_is_named_with_its_remedy() {
    let mut seen = seen(site(), Engine::default());
    let entry = EntryId::reboot(3);
    let orphan = Reason::OrphanedCordon { node: "w1".to_owned(), entry };
    seen.orphans = BTreeMap::from([(NodeName::new("w1"), orphan)]).into();
    let found =
        checks(&seen, true).0.into_iter().find(|check| check.text.starts_with("Node w1 stays cordoned")).unwrap();
    assert_eq!((found.subject, found.outcome), (Subject::Queues, Outcome::Warning));
    assert!(found.remedy.unwrap().contains("cketerm nodes uncordon w1"));
}

#[test]
fn a_file_of_bmcs_that_cannot_be_read_fails() {
    let engine = Engine { bmcs: BmcAccess::Unreadable("no such file".to_owned()), ..Engine::default() };
    assert_eq!(of_subject(&seen(site(), engine), Subject::Power).outcome, Outcome::Failed);
}

/// An endpoint says that w1 is an API server, and no label does.
#[test]
fn a_member_whose_signals_disagree_fails_if_the_definition_follows_the_nodes() {
    let found = |membership: Membership| {
        let (mut store, mut kube, probes) = site();
        store.policy = Some(stored(Policy { etcd_members: EtcdMembers::None, membership, ..Policy::default() }));
        for source in ["endpoints", CONTROL_PLANE_PODS] {
            kube.sources.insert(source.to_owned(), SourceState { synced: true, ..SourceState::default() });
        }
        let mut plane = node("cp1", "10.0.0.1");
        let label = ("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        plane.described.labels = [label].into_iter().collect();
        kube.put_node(plane);
        kube.endpoints.push(EndpointsRow {
            kind: "EndpointSlice".to_owned(),
            namespace: "default".to_owned(),
            name: "kubernetes".to_owned(),
            addresses: vec![Address::new("10.0.0.1"), Address::new("10.0.0.2")],
            ..EndpointsRow::default()
        });
        let found = problems(&seen((store, kube, probes), Engine::default()));
        found.into_iter().any(|(subject, outcome, text)| {
            subject == Subject::Membership
                && outcome == Outcome::Failed
                && text.ends_with("these are control planes: w1")
        })
    };
    assert_eq!((found(Membership::Nodes), found(Membership::Manual)), (true, false));
}
