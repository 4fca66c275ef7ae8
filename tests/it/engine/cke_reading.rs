//! The cause that cketerm names while CKE leads is the refusal that the API server gave CKE.
//!
//! Each story is a site of its own on a paused clock: random budgets, Jobs and queued machines, a CKE that processes them,
//! and an observing cketerm. `STORIES=1000` plays more of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_model::{cketerm_records::EngineMode, entry::EntryId, reason::Reason};
use cketerm_rules::seen::Seen;
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::cke::{Refusal, RefusalCause};
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

/// Stories of a normal run.
const STORIES: u64 = 8;
/// Share of refusals that may be named wrongly.
const MOST_UNNAMED_PERCENT: usize = 1;
/// Length of a story.
const LENGTH: Duration = Duration::from_mins(6);
/// Time within which the cause is named.
const NAMED_WITHIN: Duration = Duration::from_secs(5);

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

fn names(seen: &Seen, refusal: &Refusal) -> bool {
    let reason = seen.reasons.get(&EntryId::reboot(refusal.entry));
    reason.and_then(named) == Some((refusal.cause, refusal.pod.as_str()))
}

/// Plays one story. Returns the number of refusals, and those that were not named.
async fn story(seed: u64) -> (usize, Vec<String>) {
    let mut rng = Rng::with_seed(seed);
    let clock = cketerm_runtime::tokio_clock::starting_at("2026-08-01T12:00:00Z".parse().unwrap());
    let scenario = Scenario::parse(&site(&mut rng)).unwrap();
    let stage = Arc::new(Stage::set(scenario, Options { seed, ..Options::default() }, clock).await.unwrap());
    let gate = Gate::default();
    let observer = stage.backends("observer");
    let handle = gate.hold(async move { observer.start(EngineMode::Console, false, None) }).await;
    let player = Arc::clone(&stage);
    let script = tokio::spawn(async move { player.play().await });
    let began = Instant::now();
    let (mut open, mut refused): (BTreeMap<usize, Instant>, usize) = (BTreeMap::new(), 0);
    let mut unnamed = Vec::new();
    while began.elapsed() < LENGTH {
        let refusals = stage.cke().unwrap().log().refusals;
        for i in refused..refusals.len() {
            open.insert(i, Instant::now());
        }
        refused = refusals.len();
        let view = Arc::clone(&handle.seen().borrow());
        open.retain(|i, at| {
            let is_named = names(&view, &refusals[*i]);
            if !is_named && at.elapsed() > NAMED_WITHIN {
                let said = view.reasons.get(&EntryId::reboot(refusals[*i].entry));
                unnamed.push(format!("seed {seed}: {:?}; cketerm: {said:?}", refusals[*i]));
                return false;
            }
            !is_named
        });
        sleep(Duration::from_millis(200)).await;
    }
    script.abort();
    gate.kill();
    (refused - open.len(), unnamed)
}

#[test]
fn the_refusals_that_cke_meets_are_named() {
    let stories = std::env::var("STORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(STORIES);
    let (mut refused, mut unnamed) = (0, Vec::new());
    for seed in 1..=stories {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (met, missed) = runtime.block_on(story(seed));
        refused += met;
        unnamed.extend(missed);
    }
    println!("{refused} refusals in {stories} stories, {} not named", unnamed.len());
    assert!(refused as u64 >= stories, "{refused} refusals prove nothing");
    assert!(
        unnamed.len() * 100 <= refused * MOST_UNNAMED_PERCENT,
        "{} of {refused}:\n{}",
        unnamed.len(),
        unnamed.join("\n")
    );
}
