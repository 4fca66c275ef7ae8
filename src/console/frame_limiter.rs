//! Limit on the frame rate.

use std::time::Duration;

use tokio::time::Instant;

/// Average time between two frames: thirty a second.
const FRAME: Duration = Duration::from_millis(34);
/// Frames that may come earlier, so that a key is answered at once although a new state was just drawn.
const BURST: u32 = 3;

/// Token bucket for frames: thirty a second on average, a few at once.
#[derive(Debug)]
pub struct FrameLimiter {
    /// Time up to which the frames so far have used up the rate.
    paid: Instant,
}

impl FrameLimiter {
    /// Creates a limiter with no frame drawn yet.
    pub fn new() -> Self {
        Self { paid: Instant::now() }
    }

    /// Returns the earliest time of the next frame.
    pub fn next(&self) -> Instant {
        self.paid.checked_sub(FRAME * BURST).unwrap_or(self.paid)
    }

    /// Counts a frame as drawn now.
    pub fn spend(&mut self) {
        self.paid = self.paid.max(Instant::now()) + FRAME;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_after_news_is_answered_at_once_and_thirty_frames_a_second_are_never_exceeded_for_long() {
        let mut pace = FrameLimiter::new();
        pace.spend();
        assert!(pace.next() <= Instant::now(), "right after a frame");
        let (began, mut frames) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(1) {
            if Instant::now() >= pace.next() {
                pace.spend();
                frames += 1;
            }
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!((25..=33).contains(&frames), "{frames}");
    }
}
