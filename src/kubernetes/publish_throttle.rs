//! Rate at which subscribers of the live copy are notified: at once for a change that a decision may depend on, within
//! a second otherwise. A reader that looks sees every change at once in any case.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

/// Time in which a burst of events is coalesced into one notification.
const COALESCE: Duration = Duration::from_millis(20);
/// Longest delay of a quiet change. An engine looks at least this often anyway.
const QUIET: Duration = Duration::from_secs(1);

/// Urgency of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// A decision may depend on it.
    Loud,
    /// A sign of life, or a change that can wait for the next look.
    Quiet,
}

impl Urgency {
    pub(super) fn loud_if(loud: bool) -> Self {
        if loud { Self::Loud } else { Self::Quiet }
    }
}

/// Signals when the copy must be published.
#[derive(Default)]
pub(super) struct PublishThrottle {
    loud: Notify,
    quiet: Notify,
    /// Number of callers that wait until the copy shows something. While there is one, every change is loud.
    awaited: AtomicUsize,
}

impl PublishThrottle {
    /// Reports a change.
    pub(super) fn ring(&self, news: Urgency) {
        if news == Urgency::Loud || self.awaited.load(Ordering::SeqCst) > 0 {
            self.loud.notify_one();
        } else {
            self.quiet.notify_one();
        }
    }

    /// Calls `publish` whenever a change is due. Never returns.
    pub(super) async fn heed(&self, publish: impl Fn()) {
        loop {
            tokio::select! {
                biased;
                () = self.loud.notified() => {}
                () = self.quiet.notified() => tokio::select! {
                    biased;
                    () = self.loud.notified() => {}
                    () = sleep(QUIET) => {}
                },
            }
            publish();
            sleep(COALESCE).await;
        }
    }

    /// Makes every change loud for as long as the returned guard lives.
    pub(super) fn awaited(&self) -> Awaited<'_> {
        self.awaited.fetch_add(1, Ordering::SeqCst);
        // a change that was gathered before may be the awaited one
        self.loud.notify_one();
        Awaited(self)
    }
}

/// Guard of a caller that waits until the copy shows something.
pub(super) struct Awaited<'a>(&'a PublishThrottle);

impl Drop for Awaited<'_> {
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
        bell: &Arc<PublishThrottle>,
        times: &Arc<AtomicUsize>,
        millis: u64,
        ring: impl FnOnce(&PublishThrottle),
    ) -> usize {
        let before = times.load(Ordering::SeqCst);
        ring(bell);
        sleep(Duration::from_millis(millis)).await;
        times.load(Ordering::SeqCst) - before
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_decide_is_told_at_once_and_the_rest_within_a_second() {
        let (bell, times) = (Arc::new(PublishThrottle::default()), Arc::new(AtomicUsize::new(0)));
        let (heeded, counted) = (Arc::clone(&bell), Arc::clone(&times));
        tokio::spawn(async move { heeded.heed(|| _ = counted.fetch_add(1, Ordering::SeqCst)).await });
        let loud = |bell: &PublishThrottle| bell.ring(Urgency::Loud);
        let quiet = |bell: &PublishThrottle| bell.ring(Urgency::Quiet);
        assert_eq!(published(&bell, &times, 5, loud).await, 1);
        assert_eq!(published(&bell, &times, 100, |_| {}).await, 0);
        assert_eq!(published(&bell, &times, 900, quiet).await, 0);
        assert_eq!(published(&bell, &times, 200, quiet).await, 1);
        assert_eq!(published(&bell, &times, 1_100, |_| {}).await, 1, "the second of the two");
        assert_eq!(published(&bell, &times, 300, quiet).await, 0);
        assert_eq!(published(&bell, &times, 5, loud).await, 1, "what is loud takes the quiet with it");
        assert_eq!(published(&bell, &times, 2_000, |_| {}).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_quiet_changes_a_second_are_told_about_once_a_second() {
        let (bell, times) = (Arc::new(PublishThrottle::default()), Arc::new(AtomicUsize::new(0)));
        let (heeded, counted) = (Arc::clone(&bell), Arc::clone(&times));
        tokio::spawn(async move { heeded.heed(|| _ = counted.fetch_add(1, Ordering::SeqCst)).await });
        for _ in 0..500 {
            bell.ring(Urgency::Quiet);
            sleep(Duration::from_millis(20)).await;
        }
        let told = times.load(Ordering::SeqCst);
        assert!((8..=10).contains(&told), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn for_whoever_waits_everything_is_told_at_once() {
        let (bell, times) = (Arc::new(PublishThrottle::default()), Arc::new(AtomicUsize::new(0)));
        let (heeded, counted) = (Arc::clone(&bell), Arc::clone(&times));
        tokio::spawn(async move { heeded.heed(|| _ = counted.fetch_add(1, Ordering::SeqCst)).await });
        bell.ring(Urgency::Quiet);
        sleep(Duration::from_millis(100)).await;
        let awaited = bell.awaited();
        sleep(Duration::from_millis(5)).await;
        assert_eq!(times.load(Ordering::SeqCst), 1, "what was gathered before");
        sleep(Duration::from_millis(100)).await;
        assert_eq!(published(&bell, &times, 5, |bell| bell.ring(Urgency::Quiet)).await, 1);
        sleep(Duration::from_millis(100)).await;
        drop(awaited);
        assert_eq!(published(&bell, &times, 500, |bell| bell.ring(Urgency::Quiet)).await, 0);
    }
}
