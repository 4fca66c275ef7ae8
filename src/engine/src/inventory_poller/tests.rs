//! Tests of queries to sabakan and of plans.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use bytes::Bytes;
use cketerm_rules::membership;
use cketerm_runtime::tokio_clock;
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
