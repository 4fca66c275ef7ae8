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
