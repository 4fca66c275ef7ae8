//! The console without a screen (`--plain`): prints a line for each change, for logs, screen readers and terminals that
//! cannot draw. A line has the time, the object, its new state and the reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use cketerm_model::{
    boot_time::BootTime,
    clock::{Now, Steady},
    entry::{EntryId, QueueKind, Stored},
    entry_ref::EntryRef,
    names::{Address, NodeName},
    reason::Reason,
    stored::recent::Removal,
    time::whole_seconds,
};
use cketerm_rules::{
    console_leads::{LeadAnswer, NotCampaigning},
    decide::ApplyState,
    preflight_fault::PreflightFault,
    seen::Seen,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use super::options::ConsoleOptions;
use crate::{
    input::audit_messages,
    state::{
        lost,
        queries::{self, Leader},
        settings::{self, Settings},
        short_text,
    },
};

/// Reports whether this program's engine campaigns for the lock.
fn campaigns(seen: &Seen) -> bool {
    let engine = &seen.snapshot.engine;
    engine.not_campaigning.is_none() && engine.observing.is_empty() && engine.lease != 0
}

/// Longest wait for Kubernetes before the entries are printed.
const KUBERNETES_WAIT: Duration = Duration::from_secs(5);

/// Reports whether everything that reasons depend on was read of Kubernetes.
fn has_kubernetes(seen: &Seen) -> bool {
    let sources = &seen.snapshot.kube.sources;
    !sources.is_empty() && sources.values().all(|source| source.synced)
}

/// The last printed state of an entry, and the reason why it does not move.
type ReportedState = (String, String);

/// An entry that was printed.
#[derive(Debug)]
struct Reported {
    machine: String,
    state: ReportedState,
    /// Its machine's address, if it could be read.
    address: Option<Address>,
    /// Revision of its last write that was seen.
    revision: i64,
}

/// Returns how an entry ended that is gone.
fn outcome(seen: &Seen, id: EntryId, reported: &Reported) -> String {
    let recent = &seen.snapshot.store.recent;
    if let Some(outcome) = recent.ended(id) {
        return format!("ended: {outcome}");
    }
    let (state, _) = &reported.state;
    let address = reported.address.as_ref().filter(|_| id.queue == QueueKind::Reboot);
    match address.and_then(|address| recent.removed_by_cke(address, reported.revision)) {
        Some(Removal::Dequeued) if state == "rebooting" => "ended: rebooted, by CKE's record".to_owned(),
        Some(Removal::Dequeued) => format!("ended: removed by CKE, it was {state}"),
        Some(Removal::Cancelled) => "ended: cancelled, by CKE's record".to_owned(),
        None => format!("gone, it was {state} (ended, cancelled or deleted)"),
    }
}

/// Prints the changes between two states.
#[derive(Debug, Default)]
pub struct ChangeReporter {
    /// Time of the first state that etcd gave.
    began: Option<BootTime>,
    /// Whether the entries are printed: not before Kubernetes was read.
    has_entries: bool,
    /// Whether the entries were printed once; those that appear later are new.
    prints_new: bool,
    /// Whether a leader was seen.
    had_leader: bool,
    entries: BTreeMap<EntryId, Reported>,
    states: BTreeMap<&'static str, String>,
    orphans: BTreeSet<NodeName>,
    lost: BTreeMap<&'static str, BootTime>,
    reported_revision: i64,
}

impl ChangeReporter {
    /// Returns the lines for the changes. Empty until etcd was read.
    pub fn report(&mut self, seen: &Seen, now: Now) -> Vec<String> {
        let store = &seen.snapshot.store;
        if !store.synced {
            return Vec::new();
        }
        let mut lines = Vec::new();
        if self.reported_revision == 0 {
            // The audit records have the earlier actions.
            self.reported_revision = store.revision;
        }
        lines.extend(
            audit_messages::omitted_notice(&store.recent, self.reported_revision)
                .map(|omitted| format!("{omitted}: see `cketerm audit`")),
        );
        for (_, audit) in store.recent.actions_after(self.reported_revision) {
            lines.push(audit_messages::sentence(seen, audit));
        }
        self.sources(seen, now, &mut lines);
        self.states(seen, &mut lines);
        let began = *self.began.get_or_insert(now.boot);
        // reasons from before Kubernetes was read would be printed twice
        self.has_entries |= has_kubernetes(seen) || now.boot.saturating_duration_since(began) >= KUBERNETES_WAIT;
        if self.has_entries {
            self.entries(seen, now, &mut lines);
            self.prints_new = true;
        }
        for (node, why) in seen.orphans.iter().filter(|(node, _)| !self.orphans.contains(*node)) {
            lines.push(format!("node {node}: {why}"));
        }
        self.orphans = seen.orphans.keys().cloned().collect();
        self.reported_revision = store.revision;
        let at = whole_seconds(now.wall);
        lines.into_iter().map(|line| format!("{at} {}", short_text::safe(&line))).collect()
    }

    fn sources(&mut self, seen: &Seen, now: Now, lines: &mut Vec<String>) {
        let boot = now.boot;
        let sources = [lost::etcd_lost(seen, boot), lost::kube_lost(seen, boot), lost::sabakan_lost(seen)];
        let lost: Vec<lost::Lost> = sources.into_iter().flatten().collect();
        for one in &lost {
            if self.lost.insert(one.source, one.last_seen.unwrap_or(boot)).is_none() {
                let why = one.error.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
                lines.push(format!("{} is LOST{why}", one.source));
            }
        }
        self.lost.retain(|source, since| {
            let still = lost.iter().any(|one| one.source == *source);
            if !still {
                lines.push(format!("{source} is back after {}", crate::state::when::seconds(boot - *since)));
            }
            still
        });
    }

    /// Adds the changes of things that exist once: the leader, the switches, the freeze, the gate.
    fn states(&mut self, seen: &Seen, lines: &mut Vec<String>) {
        let store = &seen.snapshot.store;
        let found = queries::leader(seen);
        self.had_leader |= !matches!(found, Leader::Nobody | Leader::Unknown);
        let leader = match found {
            Leader::Us => "this program".to_owned(),
            Leader::Other(host) => format!("{host} (another cketerm)"),
            Leader::Cke(host) => format!("{host} (CKE)"),
            // at the start it is about to lead: two lines in one second must not contradict each other
            Leader::Nobody if !self.had_leader && campaigns(seen) => "none yet, this program campaigns".to_owned(),
            Leader::Nobody => "NONE, nothing moves".to_owned(),
            Leader::Unknown => "unknown, etcd is lost".to_owned(),
        };
        let on = |enabled: bool| if enabled { "enabled" } else { "DISABLED" }.to_owned();
        let freeze = store.policy().freeze.clone().filter(|freeze| freeze.holds(seen.now.wall));
        let frozen = freeze.map(|f| format!("FROZEN until {}: {}", whole_seconds(f.until), f.reason));
        let observing = PreflightFault::joined(&seen.snapshot.engine.observing);
        let gate = match &*seen.applying {
            ApplyState::Approval(digest, why) => format!("waits for approval of {digest}: {why}"),
            ApplyState::Error(why) => why.clone(),
            _ => String::new(),
        };
        let registry = store.registry.url.is_some();
        let all = [
            ("leader", leader),
            ("reboots", on(store.reboots.switch.enabled())),
            ("repairs", on(store.repairs.switch.enabled())),
            ("sabakan", if registry { on(store.sabakan.enabled()) } else { String::new() }),
            ("automatic repair", if registry { on(store.auto_repair.enabled()) } else { String::new() }),
            ("queues", frozen.unwrap_or_default()),
            ("observing", observing),
            (
                "this console",
                seen.snapshot.engine.not_campaigning.as_ref().map(ToString::to_string).unwrap_or_default(),
            ),
            ("definition", gate),
        ];
        for (name, now) in all {
            let before = self.states.insert(name, now.clone()).unwrap_or_default();
            match (before.is_empty(), now.is_empty()) {
                _ if before == now => {}
                (false, true) => lines.push(format!("{name}: no longer {before}")),
                _ => lines.push(format!("{name}: {now}")),
            }
        }
    }

    fn entries(&mut self, seen: &Seen, now: Now, lines: &mut Vec<String>) {
        let store = &seen.snapshot.store;
        let reboots = store.reboots.entries.keys().map(|index| EntryId::reboot(*index));
        let repairs = store.repairs.entries.keys().map(|index| EntryId::repair(*index));
        let present: Vec<EntryId> = reboots.chain(repairs).collect();
        let removed: Vec<EntryId> =
            self.entries.keys().filter(|id| present.binary_search(id).is_err()).copied().collect();
        for id in removed {
            let Some(reported) = self.entries.remove(&id) else { continue };
            lines.push(format!("{id} {}: {}", reported.machine, outcome(seen, id, &reported)));
        }
        for id in present {
            let state = match (queries::entry(seen, id), queries::repair(seen, id)) {
                (Some(entry), _) => short_text::status(entry, now.wall).to_owned(),
                (_, Some(entry)) => {
                    let step = short_text::step(seen, entry);
                    let step = if step.is_empty() { step } else { format!(" step {step}") };
                    format!("{} {}{step}", entry.operation, short_text::repair_status(entry, now.wall))
                }
                _ => "broken".to_owned(),
            };
            let why = seen.reasons.get(&id);
            let reason_kind = why.map(reason_kind).unwrap_or_default();
            let machine = queries::machine(seen, id).unwrap_or_else(|| "?".to_owned());
            let revision = queries::stored_at(seen, id).map_or(0, |(_, revision)| revision);
            if let Some(reported) = self.entries.get_mut(&id) {
                reported.revision = revision;
            }
            let known = self.entries.get(&id).map(|reported| &reported.state);
            if known.is_some_and(|reported| *reported == (state.clone(), reason_kind.clone())) {
                continue;
            }
            // between two passes an entry that waits may be next for a moment, again and again
            let waits = store.entry(id).is_some_and(EntryRef::is_waiting);
            if waits && reason_kind.is_empty() && known.is_some_and(|(before, _)| *before == state) {
                continue;
            }
            let new = known.is_none() && self.prints_new;
            let asked = store.requests.get(&id).and_then(Stored::get).filter(|_| new).map(|r| {
                let why = r.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                format!(" (requested by {}{why})", r.who)
            });
            let why = why.filter(|_| !reason_kind.is_empty()).map(|why| format!(": {why}")).unwrap_or_default();
            lines.push(format!("{id} {machine} {state}{why}{}", asked.unwrap_or_default()));
            let address = queries::address_of(seen, id).cloned();
            self.entries.insert(id, Reported { machine, state: (state, reason_kind), address, revision });
        }
    }
}

/// Returns a reason without its counters. If only these change, nothing is printed.
#[warn(clippy::wildcard_enum_match_arm)]
fn reason_kind(why: &Reason) -> String {
    match why {
        Reason::Ready | Reason::Working { .. } => String::new(),
        Reason::PodsLeaving { .. } => "pods are leaving".to_owned(),
        Reason::WaitingForSlot { .. } => "waits for a slot".to_owned(),
        Reason::WaitingForWorkers { .. } => "waits for the workers".to_owned(),
        Reason::WaitingForBoot { stuck: true, .. } => "STUCK, no boot".to_owned(),
        Reason::WaitingForBoot { .. } => "booting".to_owned(),
        Reason::Stale { source, .. } => format!("{source} is stale"),
        Reason::Backoff { count, cause, .. } => {
            format!("backed off {count}x{}", if cause.is_some() { " for a cause" } else { "" })
        }
        Reason::Settling { node, .. } => format!("settling {node}"),
        other @ (Reason::WaitingForControlPlane { .. }
        | Reason::WaitingForRepairs { .. }
        | Reason::UnreachableGate { .. }
        | Reason::BreakerOpen { .. }
        | Reason::StartGateClosed { .. }
        | Reason::LeaderOnNode { .. }
        | Reason::CanaryPending { .. }
        | Reason::ControlPlaneUnhealthy { .. }
        | Reason::EtcdMemberUnhealthy { .. }
        | Reason::EtcdQuorumWouldBeLost { .. }
        | Reason::EtcdUnchecked { .. }
        | Reason::OutsideWindow { .. }
        | Reason::WaitingForBudget { .. }
        | Reason::WaitingForGroup { .. }
        | Reason::BlockedByPdb { .. }
        | Reason::BlockedByManyPdbs { .. }
        | Reason::PdbNeverAllows { .. }
        | Reason::BlockedByJob { .. }
        | Reason::PodsCannotLand { .. }
        | Reason::LandingUnknown { .. }
        | Reason::EvictionRefused { .. }
        | Reason::DeferredToWebhook { .. }
        | Reason::DeniedByWebhook { .. }
        | Reason::EvictionFailing { .. }
        | Reason::TerminatingStuck { .. }
        | Reason::VolumeAttached { .. }
        | Reason::UncordonedByOther { .. }
        | Reason::CommandRunning { .. }
        | Reason::CommandFailed { .. }
        | Reason::HookRunning { .. }
        | Reason::HookFailed { .. }
        | Reason::UncordonGateClosed { .. }
        | Reason::OutcomeUnknown { .. }
        | Reason::CheckUnavailable { .. }
        | Reason::NodeMismatch { .. }
        | Reason::OrphanedCordon { .. }
        | Reason::AwaitingApproval { .. }
        | Reason::Frozen { .. }
        | Reason::EngineElsewhere { .. }
        | Reason::EngineObserving { .. }
        | Reason::NoEngine { .. }
        | Reason::OnHold { .. }
        | Reason::BatchPaused { .. }
        | Reason::BatchUnreadable { .. }
        | Reason::ControlPlaneUnclear { .. }
        | Reason::DrainedByOther { .. }
        | Reason::OrderIgnored { .. }
        | Reason::BatchPauseIgnored { .. }
        | Reason::ProgramMissing { .. }
        | Reason::BmcNotAllowed { .. }
        | Reason::DuplicateOf { .. }
        | Reason::InMaintenance { .. }
        | Reason::MachineInRepair { .. }
        | Reason::MachineInReboot { .. }
        | Reason::WaitingForHealth { .. }
        | Reason::WaitingForJoin { .. }
        | Reason::PowerError { .. }
        | Reason::HeldByOtherKey { .. }
        | Reason::QueueDisabled
        | Reason::NoCommand { .. }
        | Reason::NotMember { .. }
        | Reason::InvalidEntry { .. }
        | Reason::EffectFailed { .. }
        | Reason::TransactionTooLarge { .. }) => other.to_string(),
    }
}

/// Prints until a signal arrives or the reader closes the output.
pub async fn run(mut seen: watch::Receiver<Arc<Seen>>, options: ConsoleOptions) -> anyhow::Result<()> {
    let steady = Steady::new(&options.clock);
    let mut signals = Signals::new()?;
    let mut stop = signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let (mut reporter, mut publisher) = (ChangeReporter::default(), true);
    if !print(&[format!("{} connecting to {}", whole_seconds(steady.now().wall), options.endpoints.join(" "))])? {
        return Ok(());
    }
    let saved = options.settings.as_deref().and_then(|path| settings::read(path).ok()).unwrap_or_default();
    loop {
        tokio::select! {
            biased;
            () = signals.wait_for_end() => return Ok(()),
            _ = stop.recv() => {
                eprintln!("cketerm: a suspended engine would keep the lock: it keeps running; Ctrl-C ends it");
                continue;
            }
            changed = seen.changed(), if publisher => publisher = changed.is_ok(),
            _ = tick.tick() => {}
        }
        let latest = Arc::clone(&seen.borrow_and_update());
        answer_engine(&latest, &saved, &options);
        if !print(&reporter.report(&latest, steady.now()))? {
            return Ok(());
        }
    }
}

/// Answers the engine that waits for it, if an operator has answered in a console of this host. Nobody can be asked
/// here.
fn answer_engine(seen: &Seen, saved: &Settings, options: &ConsoleOptions) {
    let waits = seen.snapshot.engine.not_campaigning == Some(NotCampaigning::Unasked);
    let identity = seen.snapshot.store.identity.as_ref().and_then(Stored::get).filter(|_| waits);
    let answer = identity.and_then(|identity| saved.lead_answer(&identity.uid));
    if let (Some(yes), Some(lead_answer)) = (answer, &options.lead_answer) {
        // The send fails if the engine has ended.
        let _ = lead_answer.send(if yes { LeadAnswer::Yes } else { LeadAnswer::No });
    }
}

/// Prints lines. Returns false if the reader has closed the output.
fn print(lines: &[String]) -> io::Result<bool> {
    if lines.is_empty() {
        return Ok(true);
    }
    let mut out = io::stdout().lock();
    let written = lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait_for_end(&mut self) {
        tokio::select! {
            _ = self.hangup.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
