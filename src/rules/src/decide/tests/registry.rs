//! Conditions under which a generated definition is applied (SAB-64 to SAB-74).

use std::sync::Arc;

use cketerm_model::{
    boot_time::Seconds,
    cketerm_records::{Approval, Generated, Hold, Who},
    names::Address,
    policy::{Approval as Gate, Policy, Strategy},
    reboot::RebootStatus,
    stored::view::{StoreView, Switch},
    time::after,
};
use cketerm_sabakan::{Machines, machine};

use super::scene::{BOOT, Scene, now, stored};
use crate::{
    decide::{ApplyState, Decision, Effect, RegistryEffect},
    preflight_fault::PreflightFault,
    registry::{GoodAnswer, QueryState, Registry, descriptions::Undescribed, propose},
    snapshot::Snapshot,
};

const TEMPLATE: &str = "name: test\nnodes:\n- {user: u, control_plane: true}\n- {user: u}\nreboot: {reboot_command: [reboot], boot_check_command: [check]}\n";

fn who() -> Who {
    Who { user: "ann".to_owned(), host: "h".to_owned(), ssh_client: None }
}

/// sabakan's machines: those of the definition, and unused ones from `10.0.0.40` on. States by the last number of the
/// address.
pub(super) fn machines(scene: &Scene, spares: u8, states: &[(u8, &str)]) -> Machines {
    let members = scene.cluster.nodes.iter().map(|n| n.address.rsplit('.').next().unwrap().parse::<u8>().unwrap());
    let all: Vec<String> = members
        .chain(40..40 + spares)
        .map(|i| {
            let state = states.iter().find(|(n, _)| *n == i).map_or("HEALTHY", |(_, s)| s);
            format!(
                r#"{{"spec":{{"serial":"m{i}","rack":{},"indexInRack":{i},"role":"cs","ipv4":["10.0.0.{i}"],
                    "registerDate":"2026-01-01T00:00:00Z","retireDate":"2027-01-01T00:00:00Z","bmc":{{"bmcType":"ipmi"}}}},
                    "status":{{"state":"{state}","timestamp":"2026-07-01T00:00:00Z","duration":9999.5}}}}"#,
                i % 3
            )
        })
        .collect();
    machine::read(&format!("[{}]", all.join(","))).unwrap()
}

pub(super) fn good(machines: Machines) -> GoodAnswer {
    GoodAnswer {
        machines: Arc::new(machines),
        at: BOOT - Seconds::new(5.0),
        wall: after(now(), -5),
        asked: after(now(), -6),
        with: (5, 0),
    }
}

/// A cluster with a complete configuration whose definition was generated once.
pub(super) fn scene() -> Scene {
    let mut scene = Scene::new(20);
    scene.constraints.control_plane_count = 3;
    scene.constraints.minimum_workers = Some(20);
    let settings = &mut scene.store.registry;
    settings.url = Some(stored("url", 5, "http://h/graphql".to_owned()));
    settings.template = Some(stored("template", 6, cketerm_model::cluster::parse(TEMPLATE).unwrap().to_string()));
    settings.cluster_revision = Some(stored("cluster-revision", 7, "6".to_owned()));
    // The definition is the generator's output for the machines, so only a test's own changes are changes.
    let list = machines(&scene, 0, &[]);
    scene.store.registry.cluster_revision = None;
    let made = propose(&scene.snapshot().store, &good(list), None, now()).outcome.unwrap();
    scene.cluster = made.plan.cluster.unwrap();
    scene.store.registry.cluster_revision = Some(stored("cluster-revision", 7, "6".to_owned()));
    scene
}

pub(super) fn snapshot(scene: &Scene, spares: u8, states: &[(u8, &str)]) -> Snapshot {
    let mut snap = scene.snapshot();
    let good = good(machines(scene, spares, states));
    let proposal = propose(&snap.store, &good, None, now());
    let members = QueryState { good: Some(good), error: None, at: Some(BOOT - Seconds::new(5.0)) };
    snap.registry = Arc::new(Registry { members, proposal: Some(Arc::new(proposal)), ..Registry::default() });
    snap.undescribed = Arc::new(Undescribed::of(&snap.store, &snap.kube));
    snap
}

pub(super) fn decide(snap: &Snapshot) -> Decision {
    crate::decide::decide(snap, cketerm_model::clock::Now { boot: BOOT, wall: now() })
}

fn applies(decision: &Decision) -> bool {
    decision.effects.iter().any(|p| matches!(&p.effect, Effect::Registry(RegistryEffect::Apply(_))))
}

/// Returns the state with these machine states, and whether the definition is applied.
fn apply_state(scene: &Scene, spares: u8, states: &[(u8, &str)]) -> (ApplyState, bool) {
    let decision = decide(&snapshot(scene, spares, states));
    let applied = applies(&decision);
    (decision.registry, applied)
}

fn assert_mentions(applying: &ApplyState, words: &str) {
    let text = format!("{applying:?}");
    assert!(text.contains(words), "{words:?} is missing: {text}");
}

#[test]
fn an_unchanged_definition_is_settled_and_an_unhealthy_worker_is_tainted() {
    assert_eq!(apply_state(&scene(), 0, &[]), (ApplyState::Settled, false));
    let mut less = scene();
    less.constraints.minimum_workers = Some(19);
    assert_eq!(apply_state(&less, 0, &[(12, "UNHEALTHY")]), (ApplyState::Applies, true));
}

#[test]
fn nothing_is_applied_while_disabled_on_hold_or_not_leading() {
    let one = [(12, "UNHEALTHY")];
    let mut scene = scene();
    scene.constraints.minimum_workers = Some(19);
    let off = scene.clone().with(|s| s.store.sabakan = Switch { raw: Some("true".to_owned()), mod_revision: 9 });
    assert_mentions(&apply_state(&off, 0, &one).0, "sabakan enable");
    let held = scene.clone().with(|s| {
        let hold = Hold { who: who(), at: now(), reason: Some("audit".to_owned()) };
        s.store.registry.hold = Some(stored("hold", 9, hold));
    });
    let (why, applied) = apply_state(&held, 0, &one);
    assert_mentions(&why, "on hold by ann@h: audit");
    assert!(!applied);
    let follower = scene.clone().with(|s| s.snap.engine.leading = None);
    let decision = decide(&snapshot(&follower, 0, &one));
    assert!(decision.effects.is_empty());
    assert_mentions(&decision.registry, "cketerm --daemon");
    let stale = scene.clone().with(|s| s.store.last_seen = BOOT - Seconds::new(11.0));
    assert!(!apply_state(&stale, 0, &one).1, "a stale copy starts nothing new");
}

/// Between the decision and the write, the live copy is looked at again.
#[test]
fn a_decided_change_is_not_written_once_its_input_has_changed() {
    let mut scene = scene();
    scene.constraints.minimum_workers = Some(19);
    let snap = snapshot(&scene, 0, &[(12, "UNHEALTHY")]);
    let apply = decide(&snap).effects.into_iter().find_map(|planned| match planned.effect {
        Effect::Registry(RegistryEffect::Apply(apply)) => Some(apply),
        _ => None,
    });
    let apply = apply.unwrap();
    assert_eq!(apply.changed_input(&snap.store, &snap.kube), None);
    let changed = |how: &dyn Fn(&mut StoreView)| {
        let mut store = StoreView::clone(&snap.store);
        how(&mut store);
        apply.changed_input(&store, &snap.kube)
    };
    let input = Some("the input of the definition");
    assert_eq!(changed(&|s| s.sabakan = Switch { raw: Some("true".to_owned()), mod_revision: 9 }), input);
    let hold = Hold { who: who(), at: now(), reason: None };
    assert_eq!(changed(&|s| s.registry.hold = Some(stored("hold", 9, hold.clone()))), input);
    assert_eq!(changed(&|s| s.constraints.as_mut().unwrap().mod_revision += 1), input);
}

#[test]
fn removing_half_of_etcd_at_once_needs_an_approval() {
    let mut scene = scene();
    scene.policy.approval = Gate::Never;
    scene.constraints.control_plane_count = 2;
    assert_eq!(apply_state(&scene, 0, &[]), (ApplyState::Applies, true), "removing one of three needs no approval");
    scene.constraints.control_plane_count = 1;
    assert!(
        matches!(apply_state(&scene, 0, &[]), (ApplyState::Approval(..), false)),
        "removing two of three needs an approval"
    );
}

#[test]
fn i1_an_api_server_starting_in_this_pass_blocks_a_definition_change() {
    let mut scene = scene();
    scene.constraints.minimum_workers = Some(19);
    let starting = scene.queued(&[(0, 1)]);
    let decision = decide(&snapshot(&starting, 0, &[(12, "UNHEALTHY")]));
    assert_eq!(starting.starts(), [0]);
    assert!(!applies(&decision));
    assert_mentions(&decision.registry, "API server 10.0.0.1 is in work");
    // An entry that waits for another reason is compared, in case it starts meanwhile.
    let waiting = starting.node(3, |n| n.ready = false);
    let decision = decide(&snapshot(&waiting, 0, &[(12, "UNHEALTHY")]));
    let compared = decision.effects.iter().find_map(|p| match &p.effect {
        Effect::Registry(RegistryEffect::Apply(apply)) => Some(apply.waiting.len()),
        _ => None,
    });
    assert_eq!(compared, Some(1), "{:?}", decision.registry);
}

#[test]
fn an_observer_or_an_engine_without_policy_or_nodes_applies_nothing() {
    let one = [(12, "UNHEALTHY")];
    let mut scene = scene();
    scene.constraints.minimum_workers = Some(19);
    let observing =
        scene.clone().with(|s| s.snap.engine.observing = vec![PreflightFault::SchemaTooNew { found: 9, known: 2 }]);
    let (why, applied) = apply_state(&observing, 0, &one);
    assert_mentions(&why, "newer than 2");
    assert!(!applied);
    let mut old = snapshot(&scene, 0, &one);
    assert!(applies(&decide(&old)));
    Arc::make_mut(&mut old.kube).sources["nodes"].fresh_as_of = BOOT - Seconds::new(60.0);
    assert!(!applies(&decide(&old)), "Ready comes from a stale copy");
    let mut store = (*scene.snapshot().store).clone();
    store.policy = Some(cketerm_model::entry::Stored {
        key: "policy".to_owned(),
        mod_revision: 9,
        value: Err("no JSON".to_owned()),
    });
    let outcome = |store: &cketerm_model::stored::view::StoreView| {
        propose(store, &good(machines(&scene, 0, &one)), None, now()).outcome
    };
    assert!(outcome(&store).unwrap_err().contains("policy cannot be read"));
    let by_nodes = Policy { strategy: Strategy::AllHealthy, ..Policy::default() };
    store.policy = Some(stored("policy", 9, by_nodes));
    assert!(outcome(&store).unwrap_err().contains("no Nodes read yet"), "taints decide who becomes a control plane");
}

#[test]
fn failed_or_stale_answers_and_outdated_plans_are_never_applied() {
    let mut scene = scene();
    scene.constraints.minimum_workers = Some(19);
    let snap = snapshot(&scene, 0, &[(12, "UNHEALTHY")]);
    assert!(applies(&decide(&snap)));
    let with = |how: &dyn Fn(&mut Registry)| {
        let mut registry = Registry::clone(&snap.registry);
        how(&mut registry);
        decide(&Snapshot { registry: Arc::new(registry), ..snap.clone() })
    };
    let failed = with(&|r| r.members.error = Some("sabakan at x answered 500".to_owned()));
    assert!(!applies(&failed));
    assert_mentions(&failed.registry, "answered 500");
    let old = with(&|r| r.members.good.as_mut().unwrap().at = BOOT - Seconds::new(1000.0));
    assert!(!applies(&old));
    assert_mentions(&old.registry, "1000 s old");
    // Somebody changed the constraints after the plan was made.
    let mut changed = snap.clone();
    let mut store = (*changed.store).clone();
    store.constraints.as_mut().unwrap().mod_revision += 1;
    changed.store = Arc::new(store);
    assert!(!applies(&decide(&changed)));
    assert_mentions(&decide(&changed).registry, "updated after a change");
}

#[test]
fn a_control_plane_is_replaced_only_after_approval_of_exactly_this_change() {
    let mut scene = scene();
    let retired = [(2, "RETIRED")];
    let (waits, applied) = apply_state(&scene, 2, &retired);
    let ApplyState::Approval(digest, why) = waits else { panic!("{waits:?}") };
    assert!(!applied && why.contains("10.0.0.2"), "{why}");
    let approval =
        |minutes: i64| Approval { who: who(), at: after(now(), -60), until: after(now(), minutes * 60), reason: None };
    let with = |digest: &str, minutes| {
        let mut scene = scene.clone();
        scene.store.registry.approvals.insert(digest.to_owned(), stored("approval", 9, approval(minutes)));
        snapshot(&scene, 2, &retired)
    };
    let decision = decide(&with(&digest, 10));
    let apply = decision.effects.iter().find_map(|p| match &p.effect {
        Effect::Registry(RegistryEffect::Apply(apply)) => Some(apply),
        _ => None,
    });
    let apply = apply.unwrap();
    assert_eq!(apply.approval, Some((digest.clone(), 9)), "the change consumes the approval");
    assert_eq!(apply.generated.approved_by, Some(who()));
    assert_eq!(apply.generated.joining.len(), 1);
    assert!(!applies(&decide(&with(&digest, -1))), "the approval has expired");
    let other = decide(&with("0000", 10));
    assert!(!applies(&other), "the approval is for another change");
    let dropped = other
        .effects
        .iter()
        .any(|p| matches!(&p.effect, Effect::Registry(RegistryEffect::DropApprovals(d)) if d[0].0 == "0000"));
    assert!(dropped, "any change deletes the approval");
    scene.policy.approval = Gate::Never;
    assert_eq!(apply_state(&scene, 2, &retired), (ApplyState::Applies, true));
}

#[test]
fn work_on_an_api_server_blocks_all_changes_on_a_worker_only_its_own() {
    let mut base = scene();
    base.constraints.minimum_workers = Some(19);
    let one = [(12, "UNHEALTHY")];
    let busy = base.clone().entry(0, 1, RebootStatus::Draining, 10).cordoned(1, 0);
    let (why, applied) = apply_state(&busy, 0, &one);
    assert_mentions(&why, "API server 10.0.0.1 is in work (reboots/0)");
    assert!(!applied);
    let elsewhere = base.clone().entry(0, 15, RebootStatus::Rebooting, 10).cordoned(15, 0);
    assert_eq!(apply_state(&elsewhere, 0, &one), (ApplyState::Applies, true));
    let itself = base.clone().entry(0, 12, RebootStatus::Rebooting, 10).cordoned(12, 0);
    let (_, applied) = apply_state(&itself, 0, &one);
    assert!(!applied, "a change of the machine's own state waits for the work's end");
    let looks = apply_state(&itself, 0, &[(12, "UNREACHABLE")]);
    assert!(!looks.1, "a rebooting machine that looks unreachable is not tainted: {looks:?}");
}

#[test]
fn no_further_change_until_added_control_planes_are_ready() {
    let mut base = scene();
    base.constraints.minimum_workers = Some(19);
    let one = [(12, "UNHEALTHY")];
    let joining = |address: &str| Generated {
        at: now(),
        action: "replace-control-plane".to_owned(),
        reason: String::new(),
        joining: vec![Address::new(address)],
        approved_by: None,
    };
    base.store.registry.generated = Some(stored("generated", 8, joining("10.0.0.2")));
    assert_eq!(apply_state(&base, 0, &one).0, ApplyState::Applies, "the new control plane is Ready and answers");
    let away = base.clone().with(|s| {
        s.kube.by_name.remove("10.0.0.2");
        s.kube.by_address.remove("10.0.0.2");
    });
    assert_mentions(&apply_state(&away, 0, &one).0, "waits for 10.0.0.2 to join");
    let not_ready = base.clone().node(2, |n| n.ready = false);
    assert_mentions(&apply_state(&not_ready, 0, &one).0, "is not Ready");
    let silent = base.clone().with(|s| {
        let probe = s.snap.probes.get_mut("10.0.0.2").unwrap();
        (probe.good_since, probe.error) = (None, Some("500".to_owned()));
    });
    assert_mentions(&apply_state(&silent, 0, &one).0, "probe of 10.0.0.2: 500");
    // A control plane that became unhealthy or was removed does not count.
    let bad = [(12, "UNHEALTHY"), (2, "UNHEALTHY")];
    assert!(!format!("{:?}", apply_state(&away, 2, &bad).0).contains("to join"));
    base.store.registry.generated = Some(stored("generated", 8, joining("10.0.0.99")));
    assert_eq!(apply_state(&base, 0, &one).0, ApplyState::Applies);
}

/// A change took the joining control plane away again, and the next one adds it.
#[test]
fn a_control_plane_that_is_no_member_any_more_is_not_awaited() {
    let mut scene = scene();
    scene.policy.approval = Gate::Never;
    let generated = Generated {
        at: now(),
        action: "replace-control-plane".to_owned(),
        reason: String::new(),
        joining: [40, 41].map(|last| Address::new(Scene::address(last))).into(),
        approved_by: None,
    };
    scene.store.registry.generated = Some(stored("generated", 8, generated));
    assert_eq!(apply_state(&scene, 2, &[(2, "RETIRED")]), (ApplyState::Applies, true));
}

#[test]
fn a_too_large_definition_is_an_error_with_size_limit_and_remedy() {
    let mut scene = scene();
    scene.constraints.minimum_workers = Some(19);
    let mut snap = snapshot(&scene, 0, &[(12, "UNHEALTHY")]);
    let mut registry = Registry::clone(&snap.registry);
    let mut proposal = (**registry.proposal.as_ref().unwrap()).clone();
    let digest = proposal.outcome.as_ref().unwrap().digest.clone();
    proposal.outcome.as_mut().unwrap().json = "x".repeat(2 << 20);
    registry.proposal = Some(Arc::new(proposal));
    let large = Snapshot { registry: Arc::new(registry), ..snap.clone() };
    assert!(!applies(&decide(&large)));
    for words in ["2097159", "1568768", "maximum-workers"] {
        assert_mentions(&decide(&large).registry, words);
    }
    snap.registry_refused = Some((digest, "etcd refuses the definition of 9 bytes".to_owned()));
    assert!(!applies(&decide(&snap)), "etcd's own size limit may be lower");
    assert_mentions(&decide(&snap).registry, "9 bytes");
}

#[test]
fn starting_work_keeps_a_settled_definition_and_stops_a_pending_change() {
    let begins = |scene: Scene, states: &[(u8, &str)]| {
        let mut snap = snapshot(&scene, 0, states);
        snap.store = scene.entry(1, 9, RebootStatus::Draining, 10).snapshot().store;
        decide(&snap).registry
    };
    assert_eq!(begins(scene(), &[]), ApplyState::Settled);
    let less = scene().with(|s| s.constraints.minimum_workers = Some(19));
    assert_mentions(&begins(less.clone(), &[(12, "UNHEALTHY")]), "the plan is being updated after a change");
    // A follower only shows the plan, and does not plan again for each machine.
    let follower = less.with(|s| s.snap.engine.leading = None);
    let shown = begins(follower, &[(12, "UNHEALTHY")]);
    assert!(matches!(&shown, ApplyState::Waits(why) if !why.contains("being updated")), "{shown:?}");
}

/// ckecli stores JSON. Other text is not expanded, whatever its YAML aliases stand for.
#[test]
fn an_invalid_template_in_etcd_is_reported_with_its_remedy() {
    let mut scene = scene();
    let bomb = format!("a: &a [{}]\nb: [{}]\n", vec!["x"; 5_000].join(","), vec!["*a"; 5_000].join(","));
    scene.store.registry.template = Some(stored("template", 6, bomb));
    let made = propose(&scene.snapshot().store, &good(machines(&scene, 0, &[])), None, now()).outcome;
    let why = made.err().unwrap();
    assert!(why.contains("is not JSON") && why.contains("set-template FILE"), "{why}");
}

#[test]
fn with_two_control_planes_a_replacement_needs_no_approval_and_a_removal_does() {
    let mut scene = scene();
    scene.policy.approval = Gate::Never;
    scene.constraints.control_plane_count = 2;
    scene.cluster.nodes.retain(|node| node.address != "10.0.0.3");
    assert_eq!(apply_state(&scene, 2, &[(2, "RETIRED")]), (ApplyState::Applies, true));
    scene.constraints.control_plane_count = 1;
    assert!(matches!(apply_state(&scene, 0, &[]), (ApplyState::Approval(..), false)));
}
