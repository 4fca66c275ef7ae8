//! How often the screen is drawn.

use std::time::Duration;

use tokio::time::Instant;

/// Between two frames on average: thirty a second.
const FRAME: Duration = Duration::from_millis(34);
/// How many frames may come sooner than that, so that a key is answered at once although news were just drawn.
const BURST: u32 = 3;

/// Lets frames through: thirty a second on average, a few at once.
#[derive(Debug)]
pub struct FrameLimiter {
    /// Until when the frames so far have used up the time.
    paid: Instant,
}

impl FrameLimiter {
    /// Nothing was drawn yet.
    pub fn new() -> Self {
        Self { paid: Instant::now() }
    }

    /// When the next frame may be drawn.
    pub fn next(&self) -> Instant {
        self.paid.checked_sub(FRAME * BURST).unwrap_or(self.paid)
    }

    /// A frame is drawn now.
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
