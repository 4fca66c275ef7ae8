//! Mutations: reports whether the simulation finds faults that were put into the program on purpose, and under the
//! right invariant.

use std::process::ExitCode;
#[cfg(feature = "mutations")]
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use cketerm_model::mutation::{self, Mutation};

use crate::run;
#[cfg(feature = "mutations")]
use crate::{
    agents, breaker, enqueues, found_by_oracle::FOUND_BY_ORACLE, handovers, hooks, long_runs, maintenance_requests,
    membership, node_maintenance, node_signs, observers::record::Breach, other_drainers, outages, reboot_needed,
    refusals, selection::Selection, shrink, start_gates, stories::Stories,
};

/// Number of seeds within which each mutation has to be found, unless fewer are asked for.
const MAX_SEEDS: u64 = 1000;

/// Invariants that a mutation breaks. A breach of another invariant would be found by chance.
fn names(mutation: Mutation) -> &'static [&'static str] {
    match mutation {
        Mutation::CompareNothing | Mutation::UnfencedWrite => &["I23"],
        Mutation::ForgottenCordon => &["I10"],
        Mutation::RetriesInMemory | Mutation::SecondRun => &["I25"],
        Mutation::CancelOverwritten => &["I27", "I28", "I23"],
        Mutation::SharedArguments => &["I26"],
        Mutation::BackoffOverflow | Mutation::ResetIgnored => &["I34"],
        Mutation::UncordonOnDisable | Mutation::SwitchIgnored => &["I13"],
        Mutation::UnreadableEntryTakesSlot => &["I5"],
        Mutation::PowerCycleForgotten | Mutation::ForeignKeyIgnored => &["I44"],
        Mutation::WindowForgotten | Mutation::FreezeForgotten => &["I8"],
        Mutation::TwoApiServers => &["I1"],
        Mutation::WorkersForgotten => &["I2"],
        Mutation::LimitIgnored => &["I3"],
        Mutation::DuplicateStarts => &["I4"],
        Mutation::GateForgotten => &["I6"],
        Mutation::UnhealthyControlPlaneIgnored => &["I7"],
        Mutation::CordonUnrecorded => &["I9"],
        Mutation::ForeignCordonLost => &["I11"],
        Mutation::KeepForgotten => &["I12"],
        Mutation::PreviewIgnored
        | Mutation::PreviewSkipped
        | Mutation::OwnDrainForgotten
        | Mutation::DenialIgnored
        | Mutation::DeferralBlocks => &["I15"],
        Mutation::EarlyUncordon | Mutation::DoneForgotten => &["I14"],
        Mutation::ResultsIgnored | Mutation::ResultOfAnother => &["I47"],
        Mutation::DrainedTooEarly => &["I21"],
        Mutation::PacingIgnored => &["I75"],
        Mutation::EvictionWithoutUid => &["I17"],
        Mutation::DeleteProtected | Mutation::DeferredDeleted => &["I18"],
        Mutation::DaemonSetsEvicted => &["I19"],
        Mutation::ForceDelete | Mutation::GraceForgotten => &["I22"],
        Mutation::LateEffect => &["I24"],
        Mutation::UnknownFieldsLost => &["I29"],
        Mutation::LastFirst => &["I30"],
        Mutation::NonMemberStays => &["I31"],
        Mutation::SilentEntry => &["I32"],
        Mutation::StuckUnreported => &["I35"],
        Mutation::ClockTrusted => &["I37"],
        Mutation::AuditForgotten => &["I38"],
        Mutation::RunsForEver => &["I39"],
        Mutation::SuccessTwice => &["I40"],
        Mutation::OtherEntryForgotten => &["oracle"],
        Mutation::StepTwice | Mutation::StepUnwatched | Mutation::CheckWithinWatch => &["I41"],
        Mutation::RepairLimitIgnored => &["I42"],
        Mutation::RepairBesideReboot => &["I43"],
        Mutation::ReadsWrite | Mutation::DryRunHidden => &["I45"],
        Mutation::UncordonUnseen | Mutation::VolumesForgotten => &["I16"],
        Mutation::RefusalUnnamed | Mutation::FailureFatal => &["I20"],
        Mutation::BackoffForEver => &["I33"],
        Mutation::CancelWaits => &["I36"],
        Mutation::WatchTrusted => &["I6", "I7"],
        Mutation::HeartbeatIgnored => &["heartbeat"],
        Mutation::DescriptionsUnlimited => &["upkeep"],
        Mutation::AllowListForgotten => &["I50"],
        Mutation::QuorumForgotten | Mutation::SilenceTrusted => &["I46"],
        Mutation::StaleUnnamed => &["I51"],
        Mutation::AuditFlooded => &["I48"],
        Mutation::TransactionUnbounded => &["I49"],
        Mutation::OrderAcceptedAnyway => &["I52"],
        Mutation::BatchPauseForgotten | Mutation::UnreadableBatchIgnored => &["I53"],
        Mutation::EnqueueOutlivesCancel => &["I54"],
        Mutation::LostCancelForgotten => &["H3"],
        Mutation::ListOrderIgnored => &["H5"],
        Mutation::NodeGraceIgnored | Mutation::MemberInWorkLeaves => &["I55"],
        Mutation::ControlPlaneLeavesUnasked => &["I56"],
        Mutation::VanishedNodeCounts => &["H6"],
        Mutation::NeededTwice | Mutation::StillSetAsks => &["I57"],
        Mutation::NeededLimitsIgnored => &["I58"],
        Mutation::OtherDrainerIgnored => &["I59"],
        Mutation::AgentRebootsTwice => &["I60"],
        Mutation::OrderBootIgnored | Mutation::WithdrawnOrderObeyed => &["I61"],
        Mutation::AgentBelieved => &["I62"],
        Mutation::AnswerOfAnother => &["I63"],
        Mutation::HookSkipped | Mutation::HookRecordForgotten => &["I64"],
        Mutation::HookFailureIgnored => &["I64", "I65"],
        Mutation::UncordonHookSkipped | Mutation::HookSlotFreed => &["I65"],
        Mutation::HookBesideItself
        | Mutation::HooksEndEarly
        | Mutation::AfterHookForgotten
        | Mutation::RetryReachesCommand => &["I66"],
        Mutation::SignsStay => &["I67", "I68"],
        Mutation::ForeignConditionTaken => &["I67"],
        Mutation::PlannedTaintStays => &["I68"],
        Mutation::SignsOutliveLeader | Mutation::ResignsBeforeUncordon => &["H11"],
        Mutation::ForeignClusterChanged => &["I76"],
        Mutation::BreakerForgotten => &["I70"],
        Mutation::CanariesForgotten => &["I71"],
        Mutation::OutcomeForgotten => &["I69"],
        Mutation::MaintenanceForEver => &["I73"],
        Mutation::DeletedRequestKept | Mutation::RequestQueuedTwice => &["I74"],
        Mutation::StartGateForgotten => &["I72"],
    }
}

/// Returns the verdicts that a mutation needs: each is a list of rules, one of which has to break. The oracle is asked
/// beside the invariants, on the same run, because observers change nothing.
#[cfg(feature = "mutations")]
fn verdicts(mutation: Mutation) -> Vec<&'static [&'static str]> {
    const ORACLE: &[&str] = &["oracle"];
    let mut verdicts = vec![names(mutation)];
    if FOUND_BY_ORACLE.contains(&mutation) && names(mutation) != ORACLE {
        verdicts.push(ORACLE);
    }
    verdicts
}

/// Seed that found it in an earlier run. It is tried first, because others would take minutes.
fn remembered_seed(mutation: Mutation) -> u64 {
    match mutation {
        Mutation::UncordonOnDisable
        | Mutation::UnreadableEntryTakesSlot
        | Mutation::FreezeForgotten
        | Mutation::SwitchIgnored
        | Mutation::NonMemberStays
        | Mutation::DenialIgnored
        | Mutation::ResetIgnored
        | Mutation::BackoffOverflow
        | Mutation::DeferralBlocks
        | Mutation::CancelWaits
        | Mutation::RefusalUnnamed => 2,
        Mutation::WindowForgotten
        | Mutation::QuorumForgotten
        | Mutation::DrainedTooEarly
        | Mutation::HeartbeatIgnored => 3,
        Mutation::RepairLimitIgnored => 4,
        Mutation::GateForgotten
        | Mutation::PreviewIgnored
        | Mutation::PreviewSkipped
        | Mutation::StuckUnreported
        | Mutation::RepairBesideReboot => 5,
        Mutation::BatchPauseForgotten | Mutation::AuditForgotten => 7,
        Mutation::StepTwice | Mutation::StepUnwatched | Mutation::DuplicateStarts => 8,
        Mutation::VolumesForgotten => 9,
        Mutation::SecondRun | Mutation::PowerCycleForgotten => 10,
        Mutation::FailureFatal | Mutation::UnreadableBatchIgnored => 11,
        Mutation::SilenceTrusted => 16,
        Mutation::KeepForgotten => 20,
        Mutation::BackoffForEver => 21,
        Mutation::SharedArguments => 22,
        Mutation::DeferredDeleted => 29,
        Mutation::UncordonUnseen => 55,
        Mutation::DeleteProtected => 41,
        Mutation::OrderAcceptedAnyway => 63,
        Mutation::OtherEntryForgotten => 212,
        Mutation::UnhealthyControlPlaneIgnored => 132,
        Mutation::LateEffect => 177,
        Mutation::ClockTrusted => 345,
        Mutation::RetriesInMemory => 355,
        Mutation::DoneForgotten => 5720,
        _ => 1,
    }
}

/// Activates one mutation, or `all` of them one by one, and plays seeds until each is found.
#[cfg(feature = "mutations")]
pub fn find_mutations(name: &str, seeds: u64, from: u64, threads: u64) -> ExitCode {
    let most = seeds.min(MAX_SEEDS);
    let mut selected: Vec<Mutation> = mutation::ALL
        .iter()
        .copied()
        .filter(|m| name == "all" || format!("{m:?}").eq_ignore_ascii_case(name))
        .collect();
    if selected.is_empty() {
        println!("MUTATION={name}: unknown; known: all, {:?}", mutation::ALL);
        return ExitCode::FAILURE;
    }
    // scenarios take longer than seeds: begun last, one of them would keep one thread busy while the others idle
    selected.sort_by_key(|mutation| scenario_for(*mutation).is_none());
    let (began, next) = (Instant::now(), AtomicUsize::new(0));
    let found: Mutex<Vec<(Mutation, u64)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(mutation) = selected.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let seed = find_one(*mutation, from, most);
                    found.lock().unwrap().extend(seed.map(|seed| (*mutation, seed)));
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let missed: Vec<_> = selected.iter().filter(|mutation| found.iter().all(|(other, _)| other != *mutation)).collect();
    let mut not_found = missed.len();
    println!("mutations found {}/{} in {:.0} s", found.len(), selected.len(), began.elapsed().as_secs_f64());
    // once more at the end, because the rest of the output is long
    for mutation in missed {
        println!("MISSED {mutation:?}");
    }
    if name == "all" {
        let seed = found.iter().find(|(mutation, _)| *mutation == Mutation::EvictionWithoutUid);
        not_found += usize::from(!seed.is_some_and(|(_, seed)| shrinks_well(*seed)));
    }
    if not_found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Scenario or stories in place of seeds, for effects that grow for days or need one fault at one moment. No seed shows them.
#[cfg(feature = "mutations")]
enum Played {
    /// One scenario.
    Scenario(fn() -> long_runs::ScenarioResult),
    /// Stories, from the seed that found the mutation in an earlier run.
    Stories(&'static Stories, u64),
}

#[cfg(feature = "mutations")]
fn scenario_for(mutation: Mutation) -> Option<Played> {
    use Played::Scenario;
    let stories = |stories, seed| Some(Played::Stories(stories, seed));
    match mutation {
        Mutation::TransactionUnbounded | Mutation::AuditFlooded => Some(Scenario(long_runs::days)),
        Mutation::StaleUnnamed => Some(Scenario(outages::api_server_outage)),
        Mutation::GraceForgotten => Some(Scenario(outages::long_grace_period)),
        Mutation::PacingIgnored => Some(Scenario(outages::shared_budget)),
        Mutation::OwnDrainForgotten => Some(Scenario(outages::closed_budget)),
        Mutation::DescriptionsUnlimited => Some(Scenario(outages::many_descriptions)),
        Mutation::WatchTrusted => Some(Scenario(outages::silent_node_watch)),
        Mutation::CheckWithinWatch => Some(Scenario(outages::hanging_health_check)),
        Mutation::ResultsIgnored | Mutation::ResultOfAnother => Some(Scenario(outages::failover)),
        Mutation::EnqueueOutlivesCancel => Some(Scenario(enqueues::cancelled)),
        Mutation::LostCancelForgotten => stories(&handovers::STORIES, 39),
        Mutation::ListOrderIgnored => stories(&refusals::STORIES, 18),
        Mutation::NodeGraceIgnored => stories(&membership::STORIES, 2),
        Mutation::MemberInWorkLeaves | Mutation::ControlPlaneLeavesUnasked => stories(&membership::STORIES, 1),
        Mutation::VanishedNodeCounts => stories(&membership::STORIES, 5),
        Mutation::NeededTwice | Mutation::StillSetAsks | Mutation::NeededLimitsIgnored => {
            stories(&reboot_needed::STORIES, 1)
        }
        Mutation::OtherDrainerIgnored => stories(&other_drainers::STORIES, 1),
        Mutation::AgentRebootsTwice | Mutation::AgentBelieved => stories(&agents::STORIES, 1),
        Mutation::WithdrawnOrderObeyed => stories(&agents::STORIES, 18),
        Mutation::AnswerOfAnother => stories(&agents::STORIES, 5),
        Mutation::OrderBootIgnored => stories(&agents::STORIES, 14),
        Mutation::HookSkipped
        | Mutation::HookFailureIgnored
        | Mutation::UncordonHookSkipped
        | Mutation::HookRecordForgotten
        | Mutation::HookSlotFreed
        | Mutation::AfterHookForgotten => stories(&hooks::STORIES, 1),
        Mutation::HookBesideItself | Mutation::HooksEndEarly | Mutation::RetryReachesCommand => {
            stories(&hooks::STORIES, 3)
        }
        Mutation::SignsStay
        | Mutation::ForeignConditionTaken
        | Mutation::PlannedTaintStays
        | Mutation::SignsOutliveLeader => stories(&node_signs::STORIES, 1),
        Mutation::ResignsBeforeUncordon => stories(&node_signs::STORIES, 9),
        Mutation::ForeignClusterChanged => stories(&node_signs::STORIES, 5),
        Mutation::BreakerForgotten | Mutation::CanariesForgotten => stories(&breaker::STORIES, 1),
        Mutation::OutcomeForgotten => stories(&breaker::STORIES, 3),
        Mutation::MaintenanceForEver => stories(&node_maintenance::STORIES, 1),
        Mutation::DeletedRequestKept | Mutation::RequestQueuedTwice => stories(&maintenance_requests::STORIES, 1),
        Mutation::StartGateForgotten => stories(&start_gates::STORIES, 1),
        _ => None,
    }
}

/// Returns the rules that a seed breaks without the mutation, which is active again afterwards. Each seed is played once
/// for all mutations.
#[cfg(feature = "mutations")]
fn codes_without_mutation(mutation: Mutation, seed: u64) -> Arc<BTreeSet<&'static str>> {
    static PLAYED: Mutex<BTreeMap<u64, Arc<BTreeSet<&'static str>>>> = Mutex::new(BTreeMap::new());
    if let Some(codes) = PLAYED.lock().unwrap().get(&seed) {
        return Arc::clone(codes);
    }
    mutation::set(None);
    let codes: Arc<BTreeSet<_>> = Arc::new(run::seed(seed).breaches.into_iter().map(|b| b.code).collect());
    mutation::set(Some(mutation));
    PLAYED.lock().unwrap().insert(seed, Arc::clone(&codes));
    codes
}

/// Plays seeds until every verdict on the mutation is found, and returns a seed that found the first one.
#[cfg(feature = "mutations")]
fn find_one(mutation: Mutation, from: u64, most: u64) -> Option<u64> {
    mutation::set(Some(mutation));
    let found = match scenario_for(mutation) {
        Some(played) => find_in_scenario(mutation, &played).then_some(0),
        None => find_in_seeds(mutation, from, most),
    };
    mutation::set(None);
    found
}

#[cfg(feature = "mutations")]
fn find_in_scenario(mutation: Mutation, played: &Played) -> bool {
    let began = Instant::now();
    let mut all_found = true;
    let mut result: Option<long_runs::ScenarioResult> = None;
    for codes in verdicts(mutation) {
        let breaks = |result: &long_runs::ScenarioResult| result.breaches.iter().any(|b| codes.contains(&b.code));
        // most runs show both verdicts
        let shown = match (result.take_if(|shown| breaks(shown)), played) {
            (Some(shown), _) => shown,
            (None, Played::Scenario(scenario)) => scenario(),
            (None, Played::Stories(stories, seed)) => stories.until_a_breach(*seed, codes),
        };
        // each simulation also runs this scenario without a mutation, which shows that the scenario itself breaks
        // nothing
        let seconds = began.elapsed().as_secs_f64();
        if let Some(Breach { code, what, .. }) = shown.breaches.iter().find(|b| codes.contains(&b.code)) {
            println!("found  {mutation:?} by {code} in {} in {seconds:.1} s: {what}", shown.summary);
        } else {
            all_found = false;
            println!(
                "MISSED {mutation:?}: not by {codes:?} in its scenario, {seconds:.1} s {}",
                shown.wrong.join("; ")
            );
        }
        result = Some(shown);
    }
    all_found
}

#[cfg(feature = "mutations")]
fn find_in_seeds(mutation: Mutation, from: u64, most: u64) -> Option<u64> {
    let began = Instant::now();
    let remembered = remembered_seed(mutation);
    let mut missing = verdicts(mutation);
    let mut first = None;
    for seed in std::iter::once(remembered).chain((from..from + most).filter(|seed| *seed != remembered)) {
        let breaches = run::seed(seed).breaches;
        missing.retain(|codes| {
            let Some(breach) = breaches.iter().find(|b| codes.contains(&b.code)) else { return true };
            // the seed must break the rule because of the mutation, and not without it
            if codes_without_mutation(mutation, seed).contains(breach.code) {
                println!("seed {seed} breaks {} even without {mutation:?}", breach.code);
                return true;
            }
            let (code, what, seconds) = (breach.code, &breach.what, began.elapsed().as_secs_f64());
            let other = if seed == remembered { "" } else { " (to be remembered)" };
            println!("found  {mutation:?} by {code} with seed {seed}{other} in {seconds:.1} s: {what}");
            first = first.or(Some(seed));
            false
        });
        if missing.is_empty() {
            return first;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("MISSED {mutation:?}: not by {missing:?} within {most} seeds, {seconds:.1} s");
    None
}

/// Reports whether a seed that fails for a mutation shrinks well: a handful of some sixty names is left.
#[cfg(feature = "mutations")]
fn shrinks_well(seed: u64) -> bool {
    mutation::set(Some(Mutation::EvictionWithoutUid));
    let Some(shrunk) = shrink::shrink(seed, "I17", 40) else {
        println!("SHRINKING failed: seed {seed} does not break I17 again");
        return false;
    };
    println!(
        "shrunk     {} of seed {seed} from {} to {} names in {} replays; again: {}",
        shrunk.code,
        shrunk.of,
        shrunk.names.len(),
        shrunk.replays,
        shrunk.line(seed)
    );
    let again = run::seed_with(seed, &Selection::only(&shrunk.names));
    mutation::set(None);
    shrunk.names.len() * 4 <= shrunk.of && again.breaches.iter().any(|b| b.code == shrunk.code)
}

/// Fails: this build has no mutations.
#[cfg(not(feature = "mutations"))]
pub fn find_mutations(name: &str, _: u64, _: u64, _: u64) -> ExitCode {
    let _ = (mutation::ALL, crate::found_by_oracle::FOUND_BY_ORACLE, names, remembered_seed, run::seed, MAX_SEEDS);
    println!("MUTATION={name} needs --features mutations");
    ExitCode::FAILURE
}
