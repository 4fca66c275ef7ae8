//! Tests of one host's reconciliation without an answer of any server.

use std::pin::pin;

use cketerm_model::host::{Mode, RebootAnnotations};
use futures::poll;
use tokio::time::{sleep, timeout};

use super::{super::tests as fixture, *};

/// Time in which a machine powers off, by default.
const POWER_OFF: Duration = Duration::from_mins(3);

fn reconciler(shared: &Arc<Shared>, host: &HostRow) -> HostReconciler {
    HostReconciler::new(Arc::clone(shared), watch::channel(Arc::new(host.clone())).1)
}

#[tokio::test(start_paused = true)]
async fn a_request_found_at_the_start_may_be_under_way_while_the_machine_may_still_power_off() {
    let (shared, _views) = fixture::shared(true).await;
    let (host, none) = (fixture::requested(5), fixture::host());
    let found = reconciler(&shared, &host);
    assert!(found.may_be_under_way(&host));
    assert!(!found.may_be_under_way(&fixture::requested(6)), "a later request");
    assert!(!found.may_be_under_way(&none), "no request");
    let over = HostRow { last_powered_on: host.pending_reboot_since, ..host.clone() };
    assert!(!found.may_be_under_way(&over), "the reboot is over");
    assert!(!found.may_be_under_way(&HostRow { deleting: true, ..host.clone() }), "the host is being deleted");
    assert!(!reconciler(&shared, &none).may_be_under_way(&host), "the request came later");
    assert!(!reconciler(&shared, &none).may_be_under_way(&none), "there never was a request");
    sleep(POWER_OFF + Duration::from_secs(1)).await;
    assert!(!found.may_be_under_way(&host), "it would be off by now");
}

/// An earlier engine may have sent the power-off.
#[tokio::test(start_paused = true)]
async fn in_a_shutdown_a_task_ends_once_its_machine_can_no_longer_power_off_and_the_request_waits() {
    let (shared, _views) = fixture::shared(false).await;
    let host = fixture::requested(5);
    let (row, watched) = watch::channel(Arc::new(host.clone()));
    let mut task = pin!(HostReconciler::new(Arc::clone(&shared), watched).run());
    assert!(timeout(POWER_OFF.saturating_sub(Duration::from_secs(1)), &mut task).await.is_err());
    assert!(!shared.interrupted_cycles.borrow().is_empty());
    assert!(!shared.never_began(&host));
    assert!(timeout(Duration::from_secs(20), &mut task).await.is_ok());
    assert!(shared.interrupted_cycles.borrow().is_empty());
    assert!(shared.never_began(&host));
    drop(row);
}

#[tokio::test(start_paused = true)]
async fn in_a_shutdown_a_new_request_is_left_alone() {
    let (shared, _views) = fixture::shared(false).await;
    let asked = RebootAnnotations { base: Some(String::new()), ..RebootAnnotations::default() };
    let host = HostRow { asked, ..fixture::host() };
    let mut reconciler = reconciler(&shared, &host);
    let poll = reconciler.poll();
    assert!(matches!(reconciler.reconcile(&host).await, Ok(rest) if rest == poll));
    assert!(shared.board.borrow().hosts.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_reason_why_nothing_is_done_is_shown() {
    let (shared, _views) = fixture::shared(true).await;
    let host = HostRow { paused: true, ..fixture::requested(5) };
    assert!(matches!(reconciler(&shared, &host).reconcile(&host).await, Ok(IDLE)));
    let shown = shared.board.borrow().hosts[&host.full_name()].clone();
    assert!(shown.doing.contains("the host is paused"), "{shown:?}");
    assert_eq!(shown.error, None);
}

/// An engine that ends must wait for a machine that is about to get a power-off.
#[tokio::test(start_paused = true)]
async fn a_cycle_is_under_way_before_the_audit_of_its_power_off_is_written() {
    let (shared, _views) = fixture::shared(true).await;
    let host = HostRow { resource_version: "1".to_owned(), ..fixture::host() };
    let mut reconciler = reconciler(&shared, &host);
    let host = fixture::requested(5);
    assert!(reconciler.reach(&host).await.is_ok());
    reconciler.last = Some(PowerState::On);
    {
        let mut order = pin!(reconciler.order(&host, "requested", Some(Mode::Soft)));
        assert!(poll!(&mut order).is_pending());
        assert!(shared.interrupted_cycles.borrow().contains_key(&("metal".to_owned(), "w1".to_owned())));
        // etcd does not answer, so nothing was sent.
        assert!(order.await.is_err());
    }
    assert!(shared.interrupted_cycles.borrow().is_empty());
    assert!(reconciler.sent_orders.soft.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_drops_timestamps_is_shown_before_they_are_written() {
    let (shared, _views) = fixture::shared(true).await;
    let host = fixture::host();
    shared.keeps.set(false).unwrap();
    let mut reconciler = reconciler(&shared, &host);
    let times = host.times();
    assert!(reconciler.write_times(&host, "host seen on", "test", times, None, BootTime::ZERO).await.is_err());
    assert!(shared.board.borrow().drops_times);
}

/// The controller waits only for machines that it turns off and on again.
#[tokio::test(start_paused = true)]
async fn neither_a_power_on_nor_a_power_off_without_a_request_is_a_cycle_under_way() {
    let (shared, _views) = fixture::shared(true).await;
    let host = fixture::host();
    let mut reconciler = reconciler(&shared, &host);
    assert!(reconciler.reach(&host).await.is_ok());
    reconciler.last = Some(PowerState::On);
    let stays_off = HostRow { online: false, ..host };
    for (host, mode) in [(fixture::requested(5), None), (stays_off, Some(Mode::Soft))] {
        let mut order = pin!(reconciler.order(&host, "test", mode));
        assert!(poll!(&mut order).is_pending());
        assert!(shared.interrupted_cycles.borrow().is_empty(), "{mode:?}");
    }
}

/// The password in the Secret may have changed.
#[tokio::test(start_paused = true)]
async fn after_a_query_that_failed_the_login_is_read_again() {
    let (shared, _views) = fixture::shared(true).await;
    let host = fixture::host();
    let mut reconciler = reconciler(&shared, &host);
    assert!(reconciler.reach(&host).await.is_ok());
    reconciler.last = Some(PowerState::On);
    assert!(reconciler.query_power(&host).await.is_err());
    assert!(reconciler.bmc.is_none() && reconciler.last.is_none());
}
