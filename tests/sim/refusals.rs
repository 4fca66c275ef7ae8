//! The cause that cketerm names while CKE leads is the refusal that the API server gave CKE (H5).
//!
//! Each story is a site of its own on a paused clock: random budgets, Jobs and queued machines, a CKE that processes them,
//! and an observing cketerm.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cketerm_model::{cketerm_records::EngineMode, entry::EntryId, reason::Reason};
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::cke::{Refusal, RefusalCause};
use cketerm_scenario::{Options, Scenario, Stage};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

use crate::{
    observers::record::Breach,
    runtime,
    stories::{Least, Stories, Story},
};

/// Share of refusals that may be named wrongly.
const MOST_UNNAMED_PERCENT: usize = 1;
/// Length of a story.
const LENGTH: Duration = Duration::from_mins(6);
/// Time within which the cause is named.
const NAMED_WITHIN: Duration = Duration::from_secs(5);

/// The stories.
pub const STORIES: Stories = Stories {
    name: "refusals",
    variable: "REFUSALS",
    seeds: 60,
    play: story,
    fails: |story| story.breaches.len() * 100 > story.count(MET) * MOST_UNNAMED_PERCENT,
    // fewer refusals than stories prove nothing
    least: &[(MET, Least::Each(1))],
};
/// Name of the count of refusals that CKE met. Each that cketerm named wrongly, or not at all, is a breach.
const MET: &str = "refusals met by CKE";

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
fn story(seed: u64) -> Story {
    runtime::seeded(seed).block_on(play(seed))
}

async fn play(seed: u64) -> Story {
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
    let mut story = Story::default();
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
                story.breaches.push(Breach { code: "H5", at: clock.wall(), what });
                return false;
            }
            !is_named
        });
        sleep(Duration::from_millis(200)).await;
    }
    script.abort();
    gate.kill();
    // the last ones had no time to be named
    story.add(MET, met - open.len());
    story
}
