//! Tests of the loop: changes that a pass has taken.

use super::*;

/// The registration of an engine that waits must not vanish while it still waits.
#[test]
fn an_announcement_outlives_the_wait_by_fifteen_seconds() {
    assert_eq!(leadership::announcement_ttl(Seconds::new(54.5)), Duration::from_millis(69_500));
    assert_eq!(leadership::announcement_ttl(Seconds::ZERO), Duration::from_secs(15));
}

/// A change that a pass has already taken must not start another pass.
#[tokio::test(start_paused = true)]
async fn a_view_that_was_already_read_starts_no_pass() {
    let (sender, mut receiver) = watch::channel(Arc::new(KubeView::default()));
    let seen = Arc::clone(&receiver.borrow());
    sender.send_modify(|_| {});
    let wakes = tokio::time::timeout(Duration::from_secs(1), maybe_changed(Some(&mut receiver), &seen)).await;
    assert!(wakes.is_err());
    sender.send_replace(Arc::new(KubeView::default()));
    let wakes = tokio::time::timeout(Duration::from_secs(1), maybe_changed(Some(&mut receiver), &seen)).await;
    assert!(wakes.is_ok());
}

#[test]
fn news_are_gathered_only_after_a_slow_pass_and_never_for_long() {
    let gathered = |micros: u64| gather_time(Duration::from_micros(micros)).map(|time| time.as_micros());
    assert_eq!(gathered(0), None, "a simulation's pass takes no time");
    assert_eq!(gathered(1_600), None);
    assert_eq!(gathered(2_000), Some(6_000));
    assert_eq!(gathered(4_500), Some(13_500), "a quarter of a processor");
    assert_eq!(gathered(3_000_000), Some(50_000), "the process stood still");
}
