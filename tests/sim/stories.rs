//! Parts that the stories share: a site with two engines on a paused clock, crashes of these engines, and the play of
//! one kind of stories for many seeds.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use cketerm_model::clock::Clock;
use cketerm_rules::seen::Seen;
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

#[cfg(feature = "mutations")]
use crate::long_runs::ScenarioResult;
use crate::{
    engines::{Engines, MakeSpawner, Slot},
    observers::record::Breach,
    runtime,
};

/// Number of breaches of one story that are printed.
const SHOWN: usize = 10;

/// Result of one story, or of all of one kind.
#[derive(Default)]
pub struct Story {
    pub breaches: Vec<Breach>,
    /// Counts of events, by name.
    pub counts: BTreeMap<&'static str, usize>,
}

impl Story {
    /// Adds to a count.
    pub fn add(&mut self, name: &'static str, number: usize) {
        *self.counts.entry(name).or_default() += number;
    }

    /// Returns a count.
    pub fn count(&self, name: &str) -> usize {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Reports whether any rule was broken.
    pub fn has_breaches(&self) -> bool {
        !self.breaches.is_empty()
    }
}

/// Count below which the stories prove nothing.
pub enum Least {
    /// For each story.
    Each(usize),
    /// For all of them together.
    All(usize),
}

/// One kind of stories.
pub struct Stories {
    /// Name in the output.
    pub name: &'static str,
    /// Environment variable that plays only this kind. Its value is the number of stories.
    pub variable: &'static str,
    /// Number of seeds in a complete run, from 1.
    pub seeds: u64,
    /// Plays the story of a seed.
    pub play: fn(u64) -> Story,
    /// Reports whether a story fails, and the sum of all of them.
    pub fails: fn(&Story) -> bool,
    /// Counts below which the stories prove nothing.
    pub least: &'static [(&'static str, Least)],
}

impl Stories {
    /// Plays the stories of a complete run, or the first ones of them: one of so many as the variable `STORIES_PART` says.
    pub fn run_all(&self) -> bool {
        let part = std::env::var("STORIES_PART").ok().and_then(|part| part.parse().ok()).unwrap_or(1);
        self.run(1..=self.seeds.div_ceil(part))
    }

    /// Plays the stories of these seeds, prints what happened, and reports whether all went well.
    pub fn run(&self, seeds: RangeInclusive<u64>) -> bool {
        let clock = std::time::Instant::now();
        let (mut total, mut failed, mut played) = (Story::default(), 0, 0);
        // the first one is played twice: a story that does not repeat exactly hides what it found
        let again = (self.play)(*seeds.start());
        let mut repeats = true;
        for seed in seeds {
            played += 1;
            let story = (self.play)(seed);
            repeats &= played > 1 || (story.counts == again.counts && story.breaches.len() == again.breaches.len());
            for breach in story.breaches.iter().take(SHOWN) {
                println!("  {} {seed}: {} at {}: {}", self.name, breach.code, breach.at, breach.what);
            }
            failed += usize::from((self.fails)(&story));
            total.breaches.extend(story.breaches);
            for (name, number) in story.counts {
                *total.counts.entry(name).or_default() += number;
            }
        }
        let counts: Vec<String> = total.counts.iter().map(|(name, number)| format!("{number} {name}")).collect();
        let (counts, seconds) = (counts.join(", "), clock.elapsed().as_secs_f64());
        println!("{:<10} {played} stories, {failed} failed: {counts}, in {seconds:.1} s", self.name);
        if !repeats {
            println!("{:<10} the first story was another one when it was played again", self.name);
        }
        let mut proves = repeats;
        for (name, least) in self.least {
            let least = match least {
                Least::Each(number) => number * played,
                Least::All(number) => *number,
            };
            if total.count(name) < least {
                println!("{:<10} prove nothing: {} {name}, at least {least} are needed", self.name, total.count(name));
                proves = false;
            }
        }
        !(self.fails)(&total) && proves
    }

    /// Plays stories until one breaks one of these rules: first that of the seed that did in an earlier run, because others
    /// would take minutes. Returns the breaches of the last story that was played.
    #[cfg(feature = "mutations")]
    pub fn until_a_breach(&self, remembered: u64, of: &[&str]) -> ScenarioResult {
        let seeds = std::iter::once(remembered).chain((1..=self.seeds).filter(|seed| *seed != remembered));
        let mut last = None;
        for seed in seeds {
            let story = (self.play)(seed);
            let found = (self.fails)(&story) && story.breaches.iter().any(|breach| of.contains(&breach.code));
            last = Some((seed, story.breaches));
            if found {
                break;
            }
        }
        let (seed, breaches) = last.unwrap_or_default();
        let other = if seed == remembered { "" } else { " (to be remembered)" };
        ScenarioResult { breaches, wrong: Vec::new(), summary: format!("{} {seed}{other}", self.name) }
    }
}

/// Repeats an action until it succeeds.
pub async fn insist<T, E, F: Future<Output = Result<T, E>>>(act: impl Fn() -> F) {
    while act().await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
}

/// Reports whether a condition holds within a time limit.
pub async fn reached<F: Future<Output = bool>>(limit: Duration, holds: impl Fn() -> F) -> bool {
    let looks = async {
        while !holds().await {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(limit, looks).await.is_ok()
}

/// A site in which two engines run.
pub struct Site {
    pub began: Instant,
    pub clock: Clock,
    pub stage: Arc<Stage>,
    pub engines: Engines,
}

/// Plays a story on a paused clock.
pub fn block_on<T>(seed: u64, story: impl Future<Output = T>) -> T {
    runtime::seeded(seed).block_on(story)
}

/// Sets up this site, and starts two engines. Everything is recorded.
pub async fn set_up(seed: u64, site: &str, rng: &mut Rng) -> Site {
    set_up_with(seed, site, rng, |_, _| None).await
}

/// Same as [`set_up`], with engines whose commands are run by these spawners.
pub async fn set_up_with(
    seed: u64,
    site: &str,
    rng: &mut Rng,
    spawner: impl FnOnce(&Arc<Stage>, &Clock) -> Option<MakeSpawner>,
) -> Site {
    let (began, clock) =
        (Instant::now(), cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap()));
    let mut options = Options { seed, ..Options::default() };
    options.api.audit = usize::MAX;
    let stage = Stage::set(Scenario::parse(site).unwrap(), options, clock.clone()).await.unwrap();
    stage.sandbox.objects.keep_everything();
    stage.sandbox.etcd.record_txns();
    let stage = Arc::new(stage);
    let spawner = spawner(&stage, &clock);
    let engines: Engines = Arc::default();
    for i in 0..2 {
        let slot = Slot::new(&format!("engine-{i}"), &clock, 10, rng).with_spawner(spawner.clone());
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
