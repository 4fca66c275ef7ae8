//! Tests of queries to sabakan and of plans.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use bytes::Bytes;
use cketerm_rules::{membership, registry::Proposed};
use cketerm_runtime::tokio_clock;
use cketerm_sabakan::{
    Action, Plan, State,
    change::{Change, Missing},
};
use http::Response;
use tokio::time::sleep;

use super::*;
use crate::tests::stored;

/// Time that sabakan takes.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// Returns a view with sabakan's URL.
fn view() -> Arc<StoreView> {
    let mut view = StoreView { synced: true, ..StoreView::default() };
    view.registry.url = Some(stored("sabakan/url", "http://sabakan/graphql".to_owned()));
    Arc::new(view)
}

/// Sabakan that fails once, and has no machines.
fn recovering() -> Http {
    let asked = Arc::new(AtomicU32::new(0));
    Http::by(move |_| {
        let status = if asked.fetch_add(1, SeqCst) == 0 { 500 } else { 200 };
        Box::pin(async move {
            sleep(ANSWER_TIME).await;
            let body = Bytes::from_static(br#"{"data": {"searchMachines": []}}"#);
            Ok(Response::builder().status(status).body(body).unwrap())
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_good_answer_ends_the_error_and_shows_how_long_sabakan_took() {
    let views = watch::channel(view()).0;
    let live = Arc::new(Live::from_views(views.subscribe()));
    let poll = Duration::from_secs(views.borrow().policy().sabakan_poll_seconds);
    let poller = InventoryPoller::start(live, None, recovering(), tokio_clock::starting_at(Timestamp::UNIX_EPOCH));
    poller.want(true, Plans::Shown, None);
    sleep(ANSWER_TIME + Duration::from_millis(100)).await;
    let failed = poller.seen();
    assert!(failed.members.error.as_ref().is_some_and(|why| why.contains("500")), "{:?}", failed.members.error);
    assert!(failed.members.good.is_none());
    assert_eq!(failed.took, 3);
    sleep(poll + ANSWER_TIME).await;
    let good = poller.seen();
    assert_eq!(good.members.error, None);
    assert!(good.members.good.is_some());
    assert_eq!(good.took, 3);
}

#[test]
fn a_plan_that_no_query_was_needed_for_is_dropped_once_when_none_is_wanted() {
    let views = watch::channel(view()).0;
    let live = Arc::new(Live::from_views(views.subscribe()));
    let (publish, mut seen) = watch::channel(Arc::<Registry>::default());
    let mut task = PollerTask::new(live, None, recovering(), Clock::host(), publish);
    let plan = membership::propose(&view(), &KubeView::default(), Timestamp::UNIX_EPOCH);
    task.registry.proposal = Some(Arc::new(plan));
    task.publish_state();
    assert!(seen.borrow_and_update().proposal.is_some());
    task.forget_members();
    assert!(seen.has_changed().unwrap());
    assert!(seen.borrow_and_update().proposal.is_none());
    task.forget_members();
    assert!(!seen.has_changed().unwrap());
}

/// Returns an answer at this wall time with one machine, which has been in its state for `seconds`.
fn answer(state: State, seconds: f64, wall: Timestamp) -> GoodAnswer {
    let text = format!(
        r#"{{"data": {{"searchMachines": [{{"spec": {{"serial": "s1", "labels": [], "rack": 0, "indexInRack": 4,
        "role": "cs", "ipv4": ["10.0.0.4"], "registerDate": "2026-01-01T00:00:00Z",
        "retireDate": "2031-01-01T00:00:00Z", "bmc": {{"bmcType": "iDRAC-9", "ipv4": ""}}}},
        "status": {{"state": "{state}", "timestamp": "2026-01-01T00:00:00Z", "duration": {seconds}}}}}]}}}}"#,
        state = state.as_str().to_uppercase()
    );
    let machines = Arc::new(cketerm_sabakan::machine::read(&text).unwrap());
    GoodAnswer { machines, at: BootTime::new(seconds), wall, asked: wall, with: Basis::of(&view()).question }
}

/// An outcome that no plan of these tests has, with this definition and this warning.
fn marked(changed: bool, warnings: Vec<String>) -> Proposed {
    let plan = Plan { action: Action::None, reason: String::new(), changed, cluster: None, nodes: vec![], warnings };
    let none = Change::default();
    let gate = none.gate(None, Missing::Machines(0), 10);
    Proposed { plan, change: Change::default(), gate, digest: "marked".to_owned(), json: String::new() }
}

#[test]
fn an_answer_that_differs_only_in_durations_costs_no_plan() {
    let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
    let plans_again = |outcome: Proposed, newer: GoodAnswer| {
        let views = watch::channel(view()).0;
        let live = Arc::new(Live::from_views(views.subscribe()));
        let mut task = PollerTask::new(live, None, recovering(), Clock::host(), watch::channel(Arc::default()).0);
        let first = answer(State::Healthy, 100.0, early);
        task.planned = Some((Basis::of(&view()), first.at, None));
        task.planned_machines = Some((Arc::clone(&first.machines), early));
        let basis = Basis::of(&view());
        task.registry.proposal = Some(Arc::new(Proposal { basis, asked: early, outcome: Ok(outcome) }));
        task.registry.members.good = Some(newer);
        task.plan(&view(), Plans::Applied);
        let proposal = task.registry.proposal.clone().unwrap();
        assert_eq!(proposal.asked, late, "the plan is as good as one from the newer answer");
        // there is no template, so a new plan has no outcome
        proposal.outcome.is_err()
    };
    assert!(!plans_again(marked(false, vec![]), answer(State::Healthy, 160.0, late)));
    assert!(plans_again(marked(false, vec![]), answer(State::Unhealthy, 160.0, late)), "the state changed");
    assert!(plans_again(marked(true, vec![]), answer(State::Healthy, 160.0, late)), "its texts name durations");
    assert!(plans_again(marked(false, vec!["w".into()]), answer(State::Healthy, 160.0, late)), "so does a warning");
}

/// A plan that the leader applies must not be kept.
#[test]
fn an_applied_plan_is_recomputed_at_once_and_a_displayed_one_is_cached() {
    assert_eq!(remaining_cache_time(true, Plans::Applied, true, Seconds::ZERO), None);
    let whole = Some(Duration::from(CACHE_TIME));
    assert_eq!(remaining_cache_time(false, Plans::Applied, true, Seconds::ZERO), whole, "the plan changes nothing");
    assert_eq!(
        remaining_cache_time(true, Plans::Shown, true, Seconds::ZERO),
        whole,
        "this engine does not apply the plan"
    );
    assert_eq!(remaining_cache_time(true, Plans::Shown, false, Seconds::ZERO), None, "another input has changed, too");
    assert_eq!(remaining_cache_time(true, Plans::Shown, true, CACHE_TIME), None, "the cache time has passed");
    assert_eq!(remaining_cache_time(true, Plans::Shown, true, Seconds::new(-9.0)), whole, "the clock went back");
}
