//! An engine whose main loop gets stuck for good, while everything else of its process goes on. One seed in four has
//! one.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_model::clock::Clock;
use fastrand::Rng;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use crate::{engines::Engines, plan::FAULT_PERIOD, selection::Selection};

/// Engines that got stuck, and when.
#[derive(Clone, Default)]
pub struct Stuck(Arc<Mutex<Vec<(String, Timestamp)>>>);

impl Stuck {
    pub fn all(&self) -> Vec<(String, Timestamp)> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for its moment, if this seed has one. A separate generator keeps the rest of the seed's scenario
    /// unchanged.
    pub async fn freeze_later(
        self,
        seed: u64,
        engines: Engines,
        selection: Arc<Selection>,
        clock: Clock,
        began: Instant,
    ) {
        let mut random = Rng::with_seed(seed ^ 0x0073_7475_636b);
        let count = engines.lock().unwrap().len();
        let (chosen, engine, at) =
            (random.u8(0..4) == 0, random.usize(..count), random.u64(20..FAULT_PERIOD.as_secs() - 120));
        if !chosen || !selection.has("s0") {
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
