//! Parts that the stories share: a site with two engines on a paused clock, and crashes of these engines.

use std::{sync::Arc, time::Duration};

use cketerm_model::clock::Clock;
use cketerm_rules::seen::Seen;
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

use crate::engines::{Engines, Slot};

/// A site in which two engines run.
pub struct Site {
    pub began: Instant,
    pub clock: Clock,
    pub stage: Arc<Stage>,
    pub engines: Engines,
}

/// Plays a story on a paused clock.
pub fn block_on<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(story)
}

/// Sets up this site, and starts two engines. Everything is recorded.
pub async fn set_up(seed: u64, site: &str, rng: &mut Rng) -> Site {
    let (began, clock) =
        (Instant::now(), cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap()));
    let mut options = Options { seed, ..Options::default() };
    options.api.audit = usize::MAX;
    let stage = Stage::set(Scenario::parse(site).unwrap(), options, clock.clone()).await.unwrap();
    stage.sandbox.objects.keep_everything();
    stage.sandbox.etcd.record_txns();
    let stage = Arc::new(stage);
    let engines: Engines = Arc::default();
    for i in 0..2 {
        let slot = Slot::new(&format!("engine-{i}"), &clock, 10, rng);
        engines.lock().unwrap().push(slot);
        Slot::start(&engines, i, &stage).await;
    }
    Site { began, clock, stage, engines }
}

impl Site {
    /// Begins to kill engines at random times, and to start them again. One of the two always runs.
    pub fn crashes(&self, rng: &mut Rng, last: Duration) -> JoinHandle<()> {
        tokio::spawn(crash(Arc::clone(&self.engines), Arc::clone(&self.stage), rng.fork(), self.began, last))
    }
}

async fn crash(engines: Engines, stage: Arc<Stage>, mut rng: Rng, began: Instant, last: Duration) {
    let mut at = Duration::from_secs(rng.u64(30..200));
    while at < last {
        sleep_until(began + at).await;
        let engine = rng.usize(..2);
        engines.lock().unwrap()[engine].gate.kill();
        let down = Duration::from_secs(rng.u64(1..40));
        sleep(down).await;
        Slot::start(&engines, engine, &stage).await;
        at += down + Duration::from_secs(rng.u64(60..400));
    }
}

/// The leader's latest pass; none while nobody leads.
pub fn leader(engines: &Engines) -> Option<Arc<Seen>> {
    let slots = engines.lock().unwrap();
    slots.iter().find_map(|slot| {
        let seen = slot.handle.as_ref()?.seen().borrow().clone();
        seen.snapshot.engine.leading.is_some().then_some(seen)
    })
}
