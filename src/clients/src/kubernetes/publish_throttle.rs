//! Rate at which subscribers of the live copy are notified: at once for a change that a decision may depend on, within
//! a second otherwise. A reader that looks sees every change at once in any case.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

/// Time in which a burst of events is coalesced into one notification.
const COALESCE_DELAY: Duration = Duration::from_millis(20);
/// Longest delay of a quiet change. An engine looks at least this often anyway.
const DEFER_DELAY: Duration = Duration::from_secs(1);

/// Urgency of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// A decision may depend on it.
    Immediate,
    /// A sign of life, or a change that can wait for the next look.
    Deferred,
}

impl Urgency {
    pub(super) fn immediate_if(immediate: bool) -> Self {
        if immediate { Self::Immediate } else { Self::Deferred }
    }
}

/// Signals when the copy must be published.
#[derive(Default)]
pub(super) struct PublishThrottle {
    immediate: Notify,
    deferred: Notify,
    /// Number of callers that wait until the copy shows something. While there is one, every change is loud.
    awaited: AtomicUsize,
}

impl PublishThrottle {
    /// Reports a change.
    pub(super) fn signal(&self, urgency: Urgency) {
        if urgency == Urgency::Immediate || self.awaited.load(Ordering::SeqCst) > 0 {
            self.immediate.notify_one();
        } else {
            self.deferred.notify_one();
        }
    }

    /// Calls `publish` whenever a change is due. Never returns.
    pub(super) async fn publish_loop(&self, publish: impl Fn()) {
        loop {
            tokio::select! {
                biased;
                () = self.immediate.notified() => {}
                () = self.deferred.notified() => tokio::select! {
                    biased;
                    () = self.immediate.notified() => {}
                    () = sleep(DEFER_DELAY) => {}
                },
            }
            publish();
            sleep(COALESCE_DELAY).await;
        }
    }

    /// Makes every change loud for as long as the returned guard lives.
    pub(super) fn awaited(&self) -> WaiterGuard<'_> {
        self.awaited.fetch_add(1, Ordering::SeqCst);
        // a change that was gathered before may be the awaited one
        self.immediate.notify_one();
        WaiterGuard(self)
    }
}

/// Guard of a caller that waits until the copy shows something.
pub(super) struct WaiterGuard<'a>(&'a PublishThrottle);

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Rings, and returns how often the copy was published within that many milliseconds.
    async fn published(
        throttle: &Arc<PublishThrottle>,
        times: &Arc<AtomicUsize>,
        millis: u64,
        signal: impl FnOnce(&PublishThrottle),
    ) -> usize {
        let before = times.load(Ordering::SeqCst);
        signal(throttle);
        sleep(Duration::from_millis(millis)).await;
        times.load(Ordering::SeqCst) - before
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_changes_are_published_at_once_and_others_within_a_second() {
        let (throttle, times) = (Arc::new(PublishThrottle::default()), Arc::new(AtomicUsize::new(0)));
        let (publisher, counted) = (Arc::clone(&throttle), Arc::clone(&times));
        tokio::spawn(async move { publisher.publish_loop(|| _ = counted.fetch_add(1, Ordering::SeqCst)).await });
        let immediate = |throttle: &PublishThrottle| throttle.signal(Urgency::Immediate);
        let deferred = |throttle: &PublishThrottle| throttle.signal(Urgency::Deferred);
        assert_eq!(published(&throttle, &times, 5, immediate).await, 1);
        assert_eq!(published(&throttle, &times, 100, |_| {}).await, 0);
        assert_eq!(published(&throttle, &times, 900, deferred).await, 0);
        assert_eq!(published(&throttle, &times, 200, deferred).await, 1);
        assert_eq!(published(&throttle, &times, 1_100, |_| {}).await, 1, "the second deferred change");
        assert_eq!(published(&throttle, &times, 300, deferred).await, 0);
        assert_eq!(published(&throttle, &times, 5, immediate).await, 1, "both changes are published at once");
        assert_eq!(published(&throttle, &times, 2_000, |_| {}).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_deferred_changes_a_second_are_published_about_once_a_second() {
        let (throttle, times) = (Arc::new(PublishThrottle::default()), Arc::new(AtomicUsize::new(0)));
        let (publisher, counted) = (Arc::clone(&throttle), Arc::clone(&times));
        tokio::spawn(async move { publisher.publish_loop(|| _ = counted.fetch_add(1, Ordering::SeqCst)).await });
        for _ in 0..500 {
            throttle.signal(Urgency::Deferred);
            sleep(Duration::from_millis(20)).await;
        }
        let published_count = times.load(Ordering::SeqCst);
        assert!((8..=10).contains(&published_count), "{published_count}");
    }

    #[tokio::test(start_paused = true)]
    async fn every_change_is_published_at_once_while_a_waiter_exists() {
        let (throttle, times) = (Arc::new(PublishThrottle::default()), Arc::new(AtomicUsize::new(0)));
        let (publisher, counted) = (Arc::clone(&throttle), Arc::clone(&times));
        tokio::spawn(async move { publisher.publish_loop(|| _ = counted.fetch_add(1, Ordering::SeqCst)).await });
        throttle.signal(Urgency::Deferred);
        sleep(Duration::from_millis(100)).await;
        let awaited = throttle.awaited();
        sleep(Duration::from_millis(5)).await;
        assert_eq!(times.load(Ordering::SeqCst), 1, "the changes from before are published");
        sleep(Duration::from_millis(100)).await;
        assert_eq!(published(&throttle, &times, 5, |throttle| throttle.signal(Urgency::Deferred)).await, 1);
        sleep(Duration::from_millis(100)).await;
        drop(awaited);
        assert_eq!(published(&throttle, &times, 500, |throttle| throttle.signal(Urgency::Deferred)).await, 0);
    }
}
