//! Warnings of the order `force`: it skips pods, volumes and the backoff, and nothing else.

use cketerm_model::{entry::EntryId, entry_ref::EntryRef, reason::Reason};
use cketerm_rules::start::Bar;

use crate::state::{App, calendar, leaders, overview, queries, short_text};

/// Returns warnings about gates that hold the entry besides its own reason, and that `force` leaves in place.
pub(super) fn gates(app: &App, id: EntryId) -> Vec<String> {
    let reason = app.seen.reasons.get(&id);
    let bar = overview::start(app, id.queue, queries::address_of(&app.seen, id)).bar;
    let bar = bar.filter(|bar| !reason.is_some_and(|why| says(why, bar)));
    let bar = bar.map(|bar| format!("nothing starts {}", bar.described(|at| calendar::moment(app, at))));
    let pause = paused(app, id).filter(|_| !matches!(reason, Some(Reason::BatchPaused { .. })));
    let gates = bar.into_iter().chain(pause);
    gates.map(|gate| short_text::safe(&format!("! still holds despite force: {gate}"))).collect()
}

/// Returns the pause of the entry's batch. Entries in work finish in spite of it.
fn paused(app: &App, id: EntryId) -> Option<String> {
    app.seen.snapshot.store.entry(id).filter(|entry| EntryRef::is_queued(*entry))?;
    let batch = app.knowledge.batches.of_entry(&app.seen, id)?;
    let paused = leaders::pause_in_force(app, batch)?;
    Some(format!("batch {} is paused by {}", batch.id, paused.who.user))
}

/// Reports whether a reason is the one that bars the queue.
fn says(why: &Reason, bar: &Bar) -> bool {
    match bar {
        Bar::Disabled => matches!(why, Reason::QueueDisabled),
        Bar::Before(..) => matches!(why, Reason::Frozen { .. } | Reason::OutsideWindow { .. }),
        Bar::Held(_) => {
            matches!(why, Reason::UnreachableGate { .. } | Reason::BreakerOpen { .. } | Reason::StartGateClosed { .. })
        }
        Bar::Not(_) => matches!(
            why,
            Reason::NoEngine { .. }
                | Reason::EngineObserving { .. }
                | Reason::OutsideWindow { .. }
                | Reason::QueueDisabled
        ),
    }
}

/// Returns the warning about a reason that the order does not overcome, or that it ends.
pub(super) fn warning(why: &Reason) -> Option<&'static str> {
    match why {
        Reason::OnHold { .. } => Some("! force ends this hold, because an entry has one order:"),
        Reason::Frozen { .. } | Reason::OutsideWindow { .. } | Reason::BatchPaused { .. } | Reason::QueueDisabled => {
            Some("! force does not overcome this; it acts once this has ended, unless you cancel the entry:")
        }
        Reason::WaitingForSlot { .. } | Reason::WaitingForWorkers { .. } | Reason::WaitingForControlPlane { .. } => {
            Some("! force does not overcome this; the entry keeps its turn:")
        }
        Reason::UnreachableGate { .. }
        | Reason::BreakerOpen { .. }
        | Reason::StartGateClosed { .. }
        | Reason::LeaderOnNode { .. }
        | Reason::CanaryPending { .. }
        | Reason::ControlPlaneUnhealthy { .. }
        | Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::WaitingForBudget { .. }
        | Reason::WaitingForGroup { .. }
        | Reason::WaitingForRepairs { .. }
        | Reason::UncordonedByOther { .. }
        | Reason::OutcomeUnknown { .. }
        | Reason::NodeMismatch { .. }
        | Reason::OrphanedCordon { .. }
        | Reason::AwaitingApproval { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::EngineObserving { .. }
        | Reason::NoEngine { .. }
        | Reason::BatchUnreadable { .. }
        | Reason::ControlPlaneUnclear { .. }
        | Reason::DrainedByOther { .. }
        | Reason::HookRunning { .. }
        | Reason::HookFailed { .. }
        | Reason::UncordonGateClosed { .. }
        | Reason::Stale { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::DuplicateOf { .. }
        | Reason::InMaintenance { .. }
        | Reason::MachineInRepair { .. }
        | Reason::MachineInReboot { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::Settling { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. }
        | Reason::NoCommand { .. }
        | Reason::NotMember { .. }
        | Reason::InvalidEntry { .. }
        | Reason::TransactionTooLarge { .. } => {
            Some("! force does not overcome this; the entry waits until it clears:")
        }
        Reason::Backoff { .. }
        | Reason::BlockedByPdb { .. }
        | Reason::PdbNeverAllows { .. }
        | Reason::BlockedByManyPdbs { .. }
        | Reason::BlockedByJob { .. }
        | Reason::PodsLeaving { .. }
        | Reason::PodsCannotLand { .. }
        | Reason::LandingUnknown { .. }
        | Reason::EvictionRefused { .. }
        | Reason::DeferredToWebhook { .. }
        | Reason::DeniedByWebhook { .. }
        | Reason::EvictionFailing { .. }
        | Reason::TerminatingStuck { .. }
        | Reason::VolumeAttached { .. }
        | Reason::CommandRunning { .. }
        | Reason::CommandFailed { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::OrderIgnored { .. }
        | Reason::BatchPauseIgnored { .. }
        | Reason::WaitingForHealth { .. }
        | Reason::WaitingForBoot { .. }
        | Reason::EffectFailed { .. }
        | Reason::Working { .. }
        | Reason::Ready => None,
    }
}
