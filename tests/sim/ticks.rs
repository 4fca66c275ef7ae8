//! Times at which people act.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep_until};

use crate::plan::FAULT_PERIOD;

/// Moments at which a person acts, until the end of the day. A moment does not depend on the duration of earlier
/// actions, unless an action lasts beyond it.
pub struct Ticks {
    at: Instant,
    n: usize,
    every: std::ops::Range<u64>,
    end: Instant,
}

impl Ticks {
    pub fn new(began: Instant, every: std::ops::Range<u64>) -> Self {
        Self { at: began, n: 0, every, end: began + FAULT_PERIOD }
    }

    /// Waits for the next moment, and returns its number.
    pub async fn next(&mut self, rng: &mut Rng) -> Option<usize> {
        self.at += Duration::from_millis(rng.u64(self.every.clone()));
        if self.at >= self.end {
            return None;
        }
        sleep_until(self.at).await;
        self.n += 1;
        Some(self.n - 1)
    }
}
