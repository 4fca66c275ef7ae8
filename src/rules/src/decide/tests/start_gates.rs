//! Gates of the site for new reboots (policy `start_gates`).

use std::sync::Arc;

use cketerm_model::{
    boot_time::Seconds,
    reason::Reason,
    start_gates::{GateAnswer, GateState, StartGateView, StartGates},
};

use super::scene::{BOOT, Scene};
use crate::decide::Effect;

/// Answers of the gates `alerts` and `ceph`, each this many seconds old.
type Answers<'a> = &'a [(&'a str, f64, GateState)];

fn settings() -> StartGates {
    let text = "{prometheus: 'http://p:9090', alerts: {}, queries: [{name: ceph, query: ceph_health_status > 0}]}";
    StartGates::read(text).unwrap()
}

fn closed(why: &str) -> GateState {
    GateState::Closed(why.to_owned())
}

fn failed(why: &str) -> GateState {
    GateState::Failed(why.to_owned())
}

fn view(answers: Answers<'_>) -> Arc<StartGateView> {
    let answer = |(gate, age, state): &(&str, f64, GateState)| {
        ((*gate).to_owned(), GateAnswer { asked: BOOT - Seconds::new(*age), state: state.clone() })
    };
    Arc::new(StartGateView { settings: Some(settings()), answers: answers.iter().map(answer).collect() })
}

/// Three workers, of which two wait for their reboots, with the gates and these answers.
fn scene(answers: Answers<'_>) -> Scene {
    Scene::new(3).queued(&[(0, 11), (1, 12)]).with(|s| {
        s.policy.start_gates = Some(Box::new(settings()));
        s.snap.start_gates = view(answers);
    })
}

#[track_caller]
fn assert_closed(scene: &Scene, gate: &str, text: &str, unknown: bool) {
    assert!(scene.starts().is_empty());
    for index in [0, 1] {
        let Reason::StartGateClosed { gate: found, why, failed } = scene.reason(index) else {
            panic!("{}", scene.reason(index));
        };
        assert_eq!((found.as_str(), failed), (gate, unknown), "{why}");
        assert!(why.contains(text), "{why}");
    }
}

#[test]
fn i72_nothing_starts_unless_every_gate_is_open_by_a_young_answer_of_this_leadership() {
    let open = scene(&[("alerts", 1.0, GateState::Open), ("ceph", 69.9, GateState::Open)]);
    assert_eq!(open.starts(), [0]);
    let fires = scene(&[("alerts", 1.0, closed("HostDown")), ("ceph", 1.0, failed("http://p:9090 answered 500"))]);
    assert_closed(&fires, "alerts", "HostDown", false);
    assert_eq!(fires.reason(0).to_string(), "start gate alerts is closed: HostDown");
    let query = scene(&[("alerts", 1.0, failed("no answer")), ("ceph", 1.0, closed("the query has a result"))]);
    assert_closed(&query, "ceph", "the query has a result", false);
    let error = scene(&[("alerts", 1.0, GateState::Open), ("ceph", 1.0, failed("http://p:9090 answered 500"))]);
    assert_closed(&error, "ceph", "answered 500", true);
    assert_eq!(
        error.reason(0).to_string(),
        "start gate ceph is closed, because its state is not known: http://p:9090 answered 500; `policy set \
         start_gates none` starts without it"
    );
    assert_closed(&scene(&[("alerts", 1.0, GateState::Open)]), "prometheus", "has not answered yet", true);
    // two intervals and a timeout
    let old = scene(&[("alerts", 1.0, GateState::Open), ("ceph", 70.1, GateState::Open)]);
    assert_closed(&old, "prometheus", "older than 70", true);
    // the leadership began 1,000 s ago
    let before = scene(&[("alerts", 1000.1, closed("HostDown")), ("ceph", 1.0, GateState::Open)]);
    assert_closed(&before, "prometheus", "has not answered yet", true);
    let other = open.clone().with(|s| {
        let alerts = StartGates { queries: Vec::new(), ..settings() };
        s.policy.start_gates = Some(Box::new(alerts));
    });
    assert_closed(&other, "prometheus", "has not answered yet", true);
    assert_eq!(open.with(|s| (s.policy.start_gates, s.snap.start_gates) = (None, Arc::default())).starts(), [0]);
}

#[test]
fn the_condition_goes_with_the_start_and_is_checked_again() {
    let open = scene(&[("alerts", 1.0, GateState::Open), ("ceph", 1.0, GateState::Open)]);
    let decision = open.decide();
    assert!(decision.ask_start_gates);
    let start = decision.effects.iter().find(|planned| matches!(planned.effect, Effect::StartDrain { .. })).unwrap();
    let condition = start.guard.start_gates.as_ref().unwrap();
    let open = view(&[("alerts", 1.0, GateState::Open), ("ceph", 1.0, GateState::Open)]);
    assert_eq!(condition.closed(&open, BOOT), None);
    assert!(condition.closed(&open, BOOT + Seconds::new(69.1)).is_some(), "too old");
    let fires = view(&[("alerts", 0.0, closed("HostDown")), ("ceph", 1.0, GateState::Open)]);
    assert!(condition.closed(&fires, BOOT).is_some());
}

#[test]
fn work_in_progress_goes_on_behind_a_closed_gate() {
    let fires: Answers<'_> = &[("alerts", 1.0, closed("HostDown")), ("ceph", 1.0, GateState::Open)];
    let drains = scene(fires).draining(5, 13, 60);
    let guards = |scene: &Scene| -> Vec<bool> {
        scene.decide().effects.iter().map(|planned| planned.guard.start_gates.is_some()).collect()
    };
    assert!(!guards(&drains).is_empty() && !guards(&drains).contains(&true), "{:?}", drains.decide().effects);
    assert!(!matches!(drains.reason(5), Reason::StartGateClosed { .. }), "{}", drains.reason(5));
}

#[test]
fn prometheus_is_asked_only_while_a_reboot_could_start() {
    let open: Answers<'_> = &[("alerts", 1.0, GateState::Open), ("ceph", 1.0, GateState::Open)];
    assert!(scene(open).decide().ask_start_gates);
    let held = scene(&[]).with(|s| s.store.reboots.entries.clear());
    assert!(!held.decide().ask_start_gates, "the queue is empty");
    let disabled = scene(&[]).disabled();
    assert!(!disabled.decide().ask_start_gates, "the queue is disabled");
}

#[test]
fn an_engine_that_does_not_lead_asks_nobody() {
    let observes = scene(&[]).with(|s| s.snap.engine.leading = None);
    let decision = observes.decide();
    assert!(!decision.reasons.values().any(|reason| matches!(reason, Reason::StartGateClosed { .. })));
}
