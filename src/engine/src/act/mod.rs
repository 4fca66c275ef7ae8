//! Execution of decisions: one effect for one machine, checked again right before each step.
//!
//! Every step needs a permit of the fence, and compares the live copy with the revisions that the decision was made
//! from. Every write to etcd is one fenced transaction. Every write to Kubernetes carries a `resourceVersion` or a UID
//! (I23, I24; SAF-8 to SAF-11).

mod admission;
mod audit_intent;
pub(super) mod drain;
mod etcd_leader;
mod eviction_pace;
mod explain;
mod hooks;
mod landing;
mod maintenance_requests;
mod node_signs;
mod object_event;
mod output;
mod pod_events;
mod power;
mod queue;
mod reboot_needed;
mod record;
mod registry;
mod repair;
mod results;
mod shared_read;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cketerm_clients::{
    kubernetes::{Kube, Live as KubeLive},
    net::Http,
    store::{Store, commit::CommitError, live::Live, members::EtcdMembers},
};
use cketerm_model::{
    boot_time::BootTime,
    cketerm_records::{Audit, Who},
    clock::Steady,
    drain::EvictionAdmission,
    entry::EntryId,
    etcd::EtcdView,
    fence::{Fence, NoPermit, Permit},
    placement::PlacementView,
    start_gates::StartGateView,
    stored::transaction::{Put, Ranged},
};
use cketerm_rules::{
    decide::{Effect, Guard, Planned},
    registry::Registry,
    snapshot::{EffectOutcome, FreshRead, StaleCause},
    transition::{self, PreviousAttempts},
};

use self::{audit_intent::Step, record::WaitingRecords};
pub(super) use self::{
    audit_intent::{AuditIntent, Repeated, named, write_result},
    eviction_pace::EvictionPace,
    shared_read::SharedRead,
};
use super::{command::Spawner, event_recorder::EventRecorder};

/// Longest wait for the live copies to show a write of this engine.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);
/// Time between two reads after a lost reply.
const READ_AGAIN: Duration = Duration::from_millis(200);

/// Clients and state that one leadership acts with.
#[derive(Clone)]
pub(super) struct Actor {
    pub store: Store,
    pub live: Arc<Live>,
    pub kube: Kube,
    pub kube_live: Arc<KubeLive>,
    pub fence: Fence,
    pub steady: Steady,
    pub spawner: Spawner,
    /// Client for the requests of hooks.
    pub webhooks: Http,
    pub registry: tokio::sync::watch::Receiver<Arc<Registry>>,
    /// Last answers of etcd's members.
    pub etcd: tokio::sync::watch::Receiver<Arc<EtcdView>>,
    /// Last answers of Prometheus.
    pub start_gates: tokio::sync::watch::Receiver<Arc<StartGateView>>,
    pub etcd_members: EtcdMembers,
    pub who: Who,
    pub seed: u64,
    /// Set once a graceful end has begun: nothing new starts, only outcomes are recorded.
    pub ending: Arc<AtomicBool>,
    /// CKE's operation records that are not written yet.
    pub cke_records: Arc<WaitingRecords>,
    /// Records Kubernetes Events on Nodes and Pods.
    pub events: EventRecorder,
    /// Pace of evictions, by the answers of the API server.
    pub eviction_pace: EvictionPace,
    /// Last read of the webhooks and policies that see evictions.
    pub admission: SharedRead<EvictionAdmission>,
    /// Last read of all pods, for the causes behind budgets.
    pub placement: SharedRead<Arc<PlacementView>>,
    /// Number of audit records that this leadership has written.
    pub audit_count: Arc<AtomicU64>,
    /// Audit records of steps that may be tried again.
    pub repeats: Repeated,
}

/// Returns the time of a command's decision. It is as old as the answers about the machine (I24).
fn decision_time(decided: BootTime, fresh: Option<&FreshRead>) -> BootTime {
    fresh.map_or(decided, |fresh| decided.min(fresh.at))
}

/// Reason why an effect ended early; becomes an [`EffectOutcome`].
pub(super) struct Stop(pub EffectOutcome);

impl From<NoPermit> for Stop {
    fn from(no: NoPermit) -> Self {
        Self(match no {
            NoPermit::TooOld { .. } => EffectOutcome::Stale(StaleCause::TooOld(no)),
            NoPermit::NoMargin { .. } => EffectOutcome::Failed(no.to_string()),
        })
    }
}

impl Actor {
    /// Executes one planned effect, decided at `decided` (boot time).
    pub(super) async fn execute(&self, planned: Planned, decided: BootTime) -> EffectOutcome {
        let Planned { entry, guard, effect, machine } = planned;
        tracing::debug!(machine, what = effect.as_str(), entry = entry.map(|e| e.to_string()), "effect started");
        let outcome = match effect {
            Effect::StartDrain { entry, node_uid, hooks } => {
                self.start_drain(&guard, decided, &entry, node_uid, hooks.as_ref()).await
            }
            Effect::BackOff { entry, cause } => self.back_off(&guard, decided, &entry, &cause).await,
            Effect::Unwind { entry, cause, never_began } => {
                self.unwind(&guard, decided, &entry, &cause, &never_began).await
            }
            Effect::Remove { end, ready, running } => self.remove(&guard, decided, &end, ready.as_ref(), running).await,
            Effect::Settle { entry } => self.settle_left(decided, &machine, entry).await,
            Effect::Stamp { node, owner, cordon, mark } => {
                self.stamp(&guard, decided, &node, &owner, cordon, mark).await
            }
            Effect::Release { node, uncordon, drop_keep, settle } => {
                self.release(decided, &node, uncordon, drop_keep, settle).await
            }
            Effect::ReturnToService { node } => self.return_to_service(decided, &node).await,
            Effect::Preview { pods, unprotected } => self.preview(&guard, decided, &machine, pods, &unprotected).await,
            Effect::Explain { budgets } => Ok(EffectOutcome::Explained(self.explain(&budgets).await)),
            Effect::Evict { evict, delete, unprotected } => {
                self.evict(&guard, decided, &machine, evict, delete, &unprotected).await
            }
            Effect::Recheck { node, pods, .. } => self.recheck(&guard, decided, &node, pods).await,
            Effect::Power { entry, fresh, force, on_delete, attempt } => {
                let decided = decision_time(decided, fresh.as_ref());
                self.power(&guard, decided, &entry, fresh.as_ref(), force.as_ref(), &on_delete, attempt).await
            }
            Effect::RunAgain { entry, fresh, before, folded, order, attempt } => {
                let decided = decision_time(decided, fresh.as_ref());
                let previous = PreviousAttempts { before: before.as_ref(), folded: &folded };
                self.run_again(&guard, decided, &entry, previous, order.as_ref(), attempt).await
            }
            Effect::RunHook { entry, record, hook, run, order } => {
                self.run_hook(&guard, decided, entry, &record, (&hook, run), order.as_ref()).await
            }
            Effect::EndHooks { entry, record } => self.end_hooks(decided, entry, &record).await,
            Effect::BootCheck { argv, bound } | Effect::HealthCheck { argv, bound, .. } => {
                self.check(&guard, entry, argv, bound).await
            }
            Effect::Finish { entry, end, running } => self.finish_repair(&guard, decided, &entry, &end, running).await,
            Effect::BeginMaintenance { entry } => self.begin_maintenance(&guard, decided, &entry).await,
            Effect::MoveEtcdLeader { member, urls, to, to_name } => {
                self.move_etcd_leader(&guard, decided, &member, &urls, (to, &to_name)).await
            }
            Effect::TakeResult { result, attempt } => self.take_result(decided, &result, attempt.as_ref()).await,
            Effect::Registry(what) => self.register(decided, what).await,
            Effect::RebootNeeded(what) => self.reboot_needed(&guard, decided, what).await,
            Effect::MaintenanceRequest(what) => self.maintenance_request(&guard, decided, what).await,
            Effect::SetNodeSigns { node, conditions, taint } => {
                self.set_node_signs(&guard, decided, &node, &conditions, taint).await
            }
            Effect::SetEndpoints { row, addresses } => self.set_endpoints(decided, &row, &addresses).await,
        };
        match outcome {
            Ok(outcome) | Err(Stop(outcome)) => outcome,
        }
    }

    /// Returns a permit for one step, if the decision's inputs are unchanged and enough of the lease is left (SAF-8).
    pub(crate) fn permit(&self, guard: &Guard, decided: BootTime) -> Result<Permit, Stop> {
        if let Some(why) = self.start_blocker(guard) {
            return Err(Stop(EffectOutcome::Stale(StaleCause::Changed(why))));
        }
        Ok(self.fence.permit(decided)?)
    }

    /// Returns the reason why an effect with this guard may no longer start.
    fn start_blocker(&self, guard: &Guard) -> Option<String> {
        if self.ending.load(Ordering::SeqCst) {
            return Some("this engine is shutting down".to_owned());
        }
        let boot = self.steady.now().boot;
        let quorum = guard.quorum.as_ref().and_then(|quorum| quorum.barred(&self.etcd.borrow(), boot));
        let gates = guard.start_gates.as_ref();
        let barred = quorum.or_else(|| gates.and_then(|gates| gates.closed(&self.start_gates.borrow(), boot)));
        if let Some(barred) = barred {
            return Some(barred.to_string());
        }
        let over = guard.until.filter(|until| self.steady.now().wall >= *until);
        let changed = guard.changed(&self.live.borrow()).map(|what| format!("{what} has changed meanwhile"));
        changed.or_else(|| over.map(|until| format!("its window ended at {until}")))
    }

    /// Returns a permit for a step that finishes something already begun. A graceful end allows it; the lease must
    /// still hold.
    pub(crate) fn permit_to_finish(&self, decided: BootTime) -> Result<Permit, Stop> {
        Ok(self.fence.permit(decided)?)
    }

    /// Returns the keys and revisions that a transition compares.
    fn compares(&self, guard: &Guard) -> Vec<(String, i64)> {
        transition::compares(self.store.keys(), guard)
    }

    /// Commits one fenced transaction; returns its revision once the live copy shows it. After a lost reply, nothing
    /// else happens before etcd was read again. Until then the machine stays in flight and keeps its slot (SAF-10).
    async fn commit(&self, permit: &Permit, change: impl Into<Ranged>) -> Result<i64, Stop> {
        let ranged: Ranged = change.into();
        // Every transition carries an audit record. After a lost reply, the record shows whether the transaction went
        // through.
        let proof = self.proof(&ranged);
        let revision = match self.store.commit(permit, ranged).await {
            Ok(revision) => revision,
            Err(CommitError::LostLeadership) => return Err(Stop(EffectOutcome::Lost)),
            Err(CommitError::Conflict { keys }) => {
                return Err(Stop(EffectOutcome::Stale(StaleCause::Conflict { keys })));
            }
            Err(CommitError::Refused(why)) => return Err(Stop(EffectOutcome::Failed(why))),
            Err(CommitError::TooLarge(size)) => return Err(Stop(EffectOutcome::TooLarge(size))),
            Err(CommitError::Unknown(why)) => {
                tracing::warn!(why, "no answer to a transaction, reading again");
                self.read_again(proof.as_ref()).await?.ok_or(Stop(EffectOutcome::Failed(why)))?
            }
        };
        self.repeats.committed(proof.as_ref(), revision);
        self.shown(revision).await?;
        Ok(revision)
    }

    /// Returns the audit record in a transaction.
    fn proof(&self, ranged: &Ranged) -> Option<Put> {
        let audits = self.store.keys().audit_prefix();
        ranged.change.puts.iter().find(|p| p.key.starts_with(&audits)).cloned()
    }

    /// Reads until etcd shows whether the transaction went through. Returns the revision of the audit record if the
    /// record is there.
    async fn read_again(&self, proof: Option<&Put>) -> Result<Option<i64>, Stop> {
        let asked = async |proof: Option<&Put>| match proof {
            None => self.store.current_revision().await.map(|_| None),
            // The text contains the try and its time, so an earlier record under the same key differs.
            Some(put) => {
                let raw = self.store.raw(&put.key).await?;
                Ok(raw.filter(|raw| raw.text == put.value).map(|raw| raw.mod_revision))
            }
        };
        loop {
            if let Ok(revision) = asked(proof).await {
                return Ok(revision);
            }
            if self.fence.life().remaining().is_zero() {
                return Err(Stop(EffectOutcome::Lost));
            }
            tokio::time::sleep(READ_AGAIN).await;
        }
    }

    /// Waits until the live copy of etcd has reached this revision, as long as this engine leads.
    async fn shown(&self, revision: i64) -> Result<(), Stop> {
        let mut live = self.live.subscribe();
        loop {
            let shown = live.wait_for(|view| view.revision >= revision);
            if let Ok(Ok(_)) = tokio::time::timeout(SHOWN_WITHIN, shown).await {
                return Ok(());
            }
            if self.fence.life().remaining().is_zero() {
                return Err(Stop(EffectOutcome::Lost));
            }
        }
    }

    /// Returns an audit record of the engine, for the transaction that it describes (I38).
    fn audit(&self, what: &str, on: &str, reason: Option<String>, result: &str) -> Put {
        let (key, audit) = self.audit_record(what, on, reason, result);
        Put::json(key, &audit)
    }

    /// Returns an audit record of a step that may be tried again for this entry. All tries share one record.
    fn audit_again(&self, what: &str, id: EntryId, reason: Option<String>, result: &str) -> Put {
        let (on, at) = (id.to_string(), self.steady.now().wall);
        match self.repeats.known(&Step::new(what, &on), at) {
            Some(known) => Put::json(known.key, &known.audit.again(at, reason, result)),
            None => self.audit(what, &on, reason, result),
        }
    }

    /// Returns the audit record of a step with its result, if this leadership wrote it when the step began.
    fn audited_end(&self, what: &str, id: EntryId, result: String, failed: bool) -> Option<Put> {
        let known = self.repeats.known(&Step::new(what, &id.to_string()), self.steady.now().wall)?;
        Some(Put::json(known.key, &Audit { result, failed, ..known.audit }))
    }

    fn audit_record(&self, what: &str, on: &str, reason: Option<String>, result: &str) -> (String, Audit) {
        let at = self.steady.now().wall;
        let audit = Audit {
            at,
            who: self.who.clone(),
            what: what.to_owned(),
            on: on.to_owned(),
            reason,
            result: result.to_owned(),
            failed: false,
            entry: None,
            repeats: None,
        };
        // The number distinguishes two records of the same instant.
        let number = self.audit_count.fetch_add(1, Ordering::Relaxed);
        let on = on.replace(['/', ' '], "-");
        let id = format!("{:020}-{:x}-{on}-{number}", at.as_nanosecond(), self.fence.lease());
        (self.store.keys().audit(&id), audit)
    }
}
