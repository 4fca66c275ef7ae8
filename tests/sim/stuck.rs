//! An engine whose main loop gets stuck for good, while everything else of its process goes on. One seed in four has
//! one.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm::clock::Clock;
use fastrand::Rng;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use crate::{engines::Engines, keep::Keep, plan::TROUBLE};

/// Engines that got stuck, and when.
#[derive(Clone, Default)]
pub struct Stuck(Arc<Mutex<Vec<(String, Timestamp)>>>);

impl Stuck {
    pub fn all(&self) -> Vec<(String, Timestamp)> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for its moment, if this seed has one. A separate generator keeps the rest of the seed's scenario
    /// unchanged.
    pub async fn befall(self, seed: u64, engines: Engines, keep: Arc<Keep>, clock: Clock, began: Instant) {
        let mut dice = Rng::with_seed(seed ^ 0x0073_7475_636b);
        let count = engines.lock().unwrap().len();
        let (chosen, engine, at) = (dice.u8(0..4) == 0, dice.usize(..count), dice.u64(20..TROUBLE.as_secs() - 120));
        if !chosen || !keep.has("s0") {
            return;
        }
        sleep_until(began + Duration::from_secs(at)).await;
        let slots = engines.lock().unwrap();
        let slot = &slots[engine];
        // a dead one restarts with another gate
        if !slot.gate.is_dead() {
            slot.gate.freeze_main();
            self.0.lock().unwrap().push((slot.name.clone(), clock.wall()));
        }
    }
}

/// Times in which a stuck engine counts as paused for the observers: until its process has ended.
pub fn silent(stuck: &[(String, Timestamp)], ttl: u64) -> impl Iterator<Item = (String, Timestamp, Timestamp)> {
    let long = Duration::from_secs(ttl.max(20) / 2 + 15);
    stuck.iter().map(move |(name, at)| (name.clone(), *at, *at + long))
}
