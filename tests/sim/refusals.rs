//! The cause that cketerm names while CKE leads is the refusal that the API server gave CKE (H5).
//!
//! Each story is a site of its own on a paused clock: random budgets, Jobs and queued machines, a CKE that processes them,
//! and an observing cketerm.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use cketerm_model::{cketerm_records::EngineMode, entry::EntryId, reason::Reason};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::cke::{Refusal, RefusalCause};
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

#[cfg(feature = "mutations")]
use crate::long_runs::ScenarioResult;
use crate::observers::record::Breach;

/// Seeds of a complete run.
pub const SEEDS: RangeInclusive<u64> = 1..=60;
/// Share of refusals that may be named wrongly.
const MOST_UNNAMED_PERCENT: usize = 1;
/// Length of a story.
const LENGTH: Duration = Duration::from_mins(6);
/// Time within which the cause is named.
const NAMED_WITHIN: Duration = Duration::from_secs(5);

/// Result of some stories.
#[derive(Default)]
struct Refusals {
    /// Refusals that CKE met.
    met: usize,
    /// One breach for each that cketerm named wrongly, or not at all.
    unnamed: Vec<Breach>,
}

impl Refusals {
    fn too_many_unnamed(&self) -> bool {
        self.unnamed.len() * 100 > self.met * MOST_UNNAMED_PERCENT
    }
}

/// Draws the site of a story.
fn site(rng: &mut Rng) -> String {
    let protected_job = rng.bool();
    let job = if protected_job { ", protected_job_pods: {matchLabels: {app: report}}" } else { "" };
    let mut steps: Vec<(u16, String)> = Vec::new();
    for budget in ["mysql-1", "mysql-2", "mysql-3"] {
        if rng.u8(0..3) == 0 {
            steps.push((rng.u16(0..90), format!("by: bob, tight: {{namespace: db, name: {budget}}}")));
        }
    }
    let workers = rng.u8(3..11);
    steps.push((rng.u16(1..40), format!("by: alice, queue: {{nodes: {{workers: {workers}}}}}")));
    steps.push((rng.u16(100..240), "by: alice, reset_backoff: true".to_owned()));
    steps.sort();
    let steps: Vec<String> = steps.into_iter().map(|(at, what)| format!("- {{after: {at}, {what}}}")).collect();
    let slots = rng.u8(1..4);
    format!(
        "name: test\nabout: A test.\npopulation: {{nodes: 14}}\ncke: {{host: boot-0, interval: {}}}\n\
         reboot: {{max_concurrent_reboots: {slots}, eviction_timeout_seconds: 60{job}}}\nscript:\n{}\n",
        rng.u8(1..6),
        steps.join("\n")
    )
}

/// Pod that the reason of an entry names.
fn named(reason: &Reason) -> Option<(RefusalCause, &str)> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these name a pod that CKE is refused for")]
    match reason {
        Reason::Backoff { cause: Some(cause), .. } => named(cause),
        Reason::BlockedByPdb { pod, .. } | Reason::PdbNeverAllows { pod, .. } => {
            Some((RefusalCause::TooManyRequests, pod))
        }
        Reason::BlockedByJob { pod, .. } => Some((RefusalCause::Job, pod)),
        _ => None,
    }
}

fn names(reason: Option<&Reason>, refusal: &Refusal) -> bool {
    reason.and_then(named) == Some((refusal.cause, refusal.pod.as_str()))
}

/// Plays the story of a seed.
fn story(seed: u64) -> Refusals {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(seed))
}

async fn play(seed: u64) -> Refusals {
    let mut rng = Rng::with_seed(seed);
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
    let scenario = Scenario::parse(&site(&mut rng)).unwrap();
    let stage = Arc::new(Stage::set(scenario, Options { seed, ..Options::default() }, clock.clone()).await.unwrap());
    let gate = Gate::default();
    let observer = stage.backends("observer");
    let handle = gate.hold(async move { observer.start(EngineMode::Console, false, None) }).await;
    let player = Arc::clone(&stage);
    let script = tokio::spawn(async move { player.play().await });
    let began = Instant::now();
    let (mut open, mut met): (BTreeMap<usize, Instant>, usize) = (BTreeMap::new(), 0);
    let mut unnamed = Vec::new();
    while began.elapsed() < LENGTH {
        let refusals = stage.cke().unwrap().log().refusals;
        for i in met..refusals.len() {
            open.insert(i, Instant::now());
        }
        met = refusals.len();
        let view = Arc::clone(&handle.seen().borrow());
        open.retain(|i, at| {
            let reason = view.reasons.get(&EntryId::reboot(refusals[*i].entry));
            let is_named = names(reason, &refusals[*i]);
            if !is_named && at.elapsed() > NAMED_WITHIN {
                let what = format!("CKE: {:?}; cketerm: {reason:?}", refusals[*i]);
                unnamed.push(Breach { code: "H5", at: clock.wall(), what });
                return false;
            }
            !is_named
        });
        sleep(Duration::from_millis(200)).await;
    }
    script.abort();
    gate.kill();
    // the last ones had no time to be named
    Refusals { met: met - open.len(), unnamed }
}

/// Plays stories until too many refusals are named wrongly.
#[cfg(feature = "mutations")]
pub fn until_a_breach() -> ScenarioResult {
    let wrong = SEEDS.map(story).find(Refusals::too_many_unnamed);
    let breaches = wrong.map(|stories| stories.unnamed).unwrap_or_default();
    ScenarioResult { breaches, wrong: Vec::new(), summary: "refusals".to_owned() }
}

/// Plays the stories of these seeds, prints the refusals that were not named, and reports whether they are few enough.
pub fn run(seeds: RangeInclusive<u64>) -> bool {
    let clock = std::time::Instant::now();
    let (mut total, mut played) = (Refusals::default(), 0);
    for seed in seeds {
        played += 1;
        let story = story(seed);
        for breach in &story.unnamed {
            println!("  refusal {seed}: {} at {}: {}", breach.code, breach.at, breach.what);
        }
        total.met += story.met;
        total.unnamed.extend(story.unnamed);
    }
    println!(
        "refusals   {played} stories: CKE met {}, cketerm did not name {}, in {:.1} s",
        total.met,
        total.unnamed.len(),
        clock.elapsed().as_secs_f64()
    );
    // fewer refusals than stories prove nothing
    total.met >= played && !total.too_many_unnamed()
}
