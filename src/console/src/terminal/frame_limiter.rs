//! Limit on the frame rate.

use std::time::Duration;

use tokio::time::Instant;

/// Average time between two frames: thirty a second.
const FRAME_INTERVAL: Duration = Duration::from_millis(34);
/// Frames that may come earlier, so that a key is answered at once although a new state was just drawn.
const BURST: u32 = 3;

/// Token bucket for frames: thirty a second on average, a few at once.
#[derive(Debug)]
pub struct FrameLimiter {
    /// Time up to which the frames so far have used up the rate.
    spent_until: Instant,
}

impl FrameLimiter {
    /// Creates a limiter with no frame drawn yet.
    pub fn new() -> Self {
        Self { spent_until: Instant::now() }
    }

    /// Returns the earliest time of the next frame.
    pub fn next(&self) -> Instant {
        self.spent_until.checked_sub(FRAME_INTERVAL * BURST).unwrap_or(self.spent_until)
    }

    /// Counts a frame as drawn now.
    pub fn record_frame(&mut self) {
        self.spent_until = self.spent_until.max(Instant::now()) + FRAME_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_frame_after_an_update_is_immediate_and_the_rate_stays_near_thirty_per_second() {
        let mut limiter = FrameLimiter::new();
        limiter.record_frame();
        assert!(limiter.next() <= Instant::now(), "the next update is drawn at once");
        let (began, mut frames) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(1) {
            if Instant::now() >= limiter.next() {
                limiter.record_frame();
                frames += 1;
            }
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!((25..=33).contains(&frames), "{frames}");
    }
}
