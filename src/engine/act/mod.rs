//! Carrying out what was decided: one effect, for one machine, re-checked right before each step.
//!
//! Every step asks the fence for a permit and compares the live copy with what it was decided from; every write to
//! etcd is one fenced transaction; every write to Kubernetes carries a resourceVersion or a UID (I23, I24).

mod audit_intent;
pub(super) mod drain;
mod etcd_leader;
mod power;
mod queue;
mod record;
mod registry;
mod repair;
mod results;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

pub(super) use self::audit_intent::{AuditIntent, Repeated, named};
use self::{audit_intent::Step, power::Past};
use super::{
    command::Spawner,
    decide::{Effect, Guard, Planned},
    event_recorder::EventRecorder,
    registry::Registry,
    snapshot::{EffectOutcome, FreshRead, StaleCause, secs},
};
use crate::{
    clock::Steady,
    fence::{Fence, NoPermit, Permit},
    kubernetes::{Kube, Live as KubeLive},
    model::{
        cketerm_records::{Audit, Who},
        entry::EntryId,
        etcd::EtcdView,
    },
    store::{
        Store,
        commit::{CommitError, Put, Ranged},
        live::Live,
        members::EtcdMembers,
    },
};

/// How long a task waits for the live copies to show what it has just written.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);
/// Between two tries to read after a lost reply.
const READ_AGAIN: Duration = Duration::from_millis(200);

/// What one leadership acts with.
#[derive(Clone)]
pub(super) struct Actor {
    pub store: Store,
    pub live: Arc<Live>,
    pub kube: Kube,
    pub kube_live: Arc<KubeLive>,
    pub fence: Fence,
    pub steady: Steady,
    pub spawner: Spawner,
    pub registry: tokio::sync::watch::Receiver<Arc<Registry>>,
    /// What etcd's members answered last.
    pub etcd: tokio::sync::watch::Receiver<Arc<EtcdView>>,
    pub etcd_members: EtcdMembers,
    pub who: Who,
    pub seed: u64,
    /// A graceful end has begun: nothing new starts, only what has happened is recorded.
    pub ending: Arc<AtomicBool>,
    /// Records of CKE's kind are written one at a time.
    pub recording: Arc<tokio::sync::Mutex<()>>,
    /// Says on Nodes what is done to them.
    pub recorder: EventRecorder,
    /// How many audit records this leadership has written.
    pub told: Arc<AtomicU64>,
    /// Those of steps that may be tried again.
    pub repeats: Repeated,
}

/// What a command is decided from is as old as the answers about its machine (I24).
fn earlier(decided: Duration, fresh: Option<&FreshRead>) -> Duration {
    let read = fresh.and_then(|fresh| Duration::try_from_secs_f64(fresh.at).ok());
    read.map_or(decided, |read| decided.min(read))
}

/// Why an effect ended early; becomes a [`EffectOutcome`].
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
    /// Carries out one planned effect, decided at `decided` (boot time).
    pub(super) async fn carry_out(&self, planned: Planned, decided: Duration) -> EffectOutcome {
        let Planned { entry, guard, effect, machine } = planned;
        tracing::debug!(machine, what = effect.word(), entry = entry.map(|e| e.to_string()), "effect starts");
        let came = match effect {
            Effect::StartDrain { entry, node_uid } => self.start_drain(&guard, decided, &entry, node_uid).await,
            Effect::BackOff { entry, cause } => self.back_off(&guard, decided, &entry, &cause).await,
            Effect::Unwind { entry, cause, never_began } => {
                self.unwind(&guard, decided, &entry, &cause, &never_began).await
            }
            Effect::Remove { end, ready, running } => {
                self.remove(&guard, decided, &end, ready.as_deref(), running).await
            }
            Effect::Settle { entry } => self.settle_left(decided, &machine, entry).await,
            Effect::Stamp { node, owner, cordon, mark } => {
                self.stamp(&guard, decided, &node, &owner, cordon, mark).await
            }
            Effect::Release { node, uncordon, drop_keep, settle } => {
                self.release(decided, &node, uncordon, drop_keep, settle).await
            }
            Effect::Preview { pods, unprotected } => self.preview(&guard, decided, pods, &unprotected).await,
            Effect::Evict { evict, delete, .. } => self.evict(&guard, decided, &machine, evict, delete).await,
            Effect::Recheck { node, pods, .. } => self.recheck(&guard, decided, &node, pods).await,
            Effect::Power { entry, fresh, force, on_delete, attempt } => {
                let decided = earlier(decided, fresh.as_ref());
                self.power(&guard, decided, &entry, fresh.as_ref(), force.as_ref(), &on_delete, attempt).await
            }
            Effect::RunAgain { entry, fresh, before, folded, order, attempt } => {
                let decided = earlier(decided, fresh.as_ref());
                let past = Past { before: before.as_ref(), folded: &folded };
                self.run_again(&guard, decided, &entry, past, order.as_ref(), attempt).await
            }
            Effect::BootCheck { argv, bound } | Effect::HealthCheck { argv, bound, .. } => {
                self.check(&guard, entry, argv, bound).await
            }
            Effect::Finish { entry, end, running } => self.finish_repair(&guard, decided, &entry, &end, running).await,
            Effect::MoveEtcdLeader { member, urls, to, to_name } => {
                self.move_etcd_leader(&guard, decided, &member, &urls, (to, &to_name)).await
            }
            Effect::TakeResult { result, attempt } => self.take_result(decided, &result, attempt.as_ref()).await,
            Effect::Registry(what) => self.register(decided, what).await,
            Effect::SetEndpoints { row, addresses } => self.set_endpoints(decided, &row, &addresses).await,
        };
        match came {
            Ok(came) | Err(Stop(came)) => came,
        }
    }

    /// Leave for one step: what it was decided from still holds, and so does the lease.
    pub(in crate::engine) fn permit(&self, guard: &Guard, decided: Duration) -> Result<Permit, Stop> {
        if let Some(why) = self.no_longer(guard) {
            return Err(Stop(EffectOutcome::Stale(StaleCause::Changed(why))));
        }
        Ok(self.fence.permit(decided)?)
    }

    /// Why what was decided under this guard may not start any more.
    fn no_longer(&self, guard: &Guard) -> Option<String> {
        if self.ending.load(Ordering::SeqCst) {
            return Some("this engine ends".to_owned());
        }
        let quorum = guard.quorum.as_ref();
        if let Some(barred) = quorum.and_then(|q| q.barred(&self.etcd.borrow(), secs(self.steady.now().boot))) {
            return Some(barred.to_string());
        }
        let over = guard.until.filter(|until| self.steady.now().wall >= *until);
        let changed = guard.changed(&self.live.borrow()).map(|what| format!("{what} was changed meanwhile"));
        changed.or_else(|| over.map(|until| format!("its window ended at {until}")))
    }

    /// Leave for one step that ends what was begun, which a graceful end lets happen: the lease holds.
    pub(in crate::engine) fn permit_to_finish(&self, decided: Duration) -> Result<Permit, Stop> {
        Ok(self.fence.permit(decided)?)
    }

    /// The keys and revisions that a transition compares.
    fn compares(&self, guard: &Guard) -> Vec<(String, i64)> {
        let keys = self.store.keys();
        let mut compares = Vec::new();
        if let Some((id, revision)) = guard.entry {
            compares.push((keys.entry(id), revision));
        }
        if let Some((key, revision)) = &guard.attempt {
            compares.push((key.clone(), *revision));
        }
        if let Some(cluster) = guard.cluster {
            compares.push((keys.cluster(), cluster));
        }
        if let Some(start) = guard.start {
            compares.push((keys.switch(start.queue.into()), start.switch));
            compares.push((keys.cluster(), start.cluster));
            compares.push((keys.constraints(), start.constraints));
            compares.push((keys.policy(), start.policy));
        }
        compares
    }

    /// One fenced transaction; returns its revision when the live copy shows it. After a lost reply nothing else happens
    /// before etcd has been read again: the machine stays in flight, with its slot, until then.
    async fn commit(&self, permit: &Permit, change: impl Into<Ranged>) -> Result<i64, Stop> {
        let ranged: Ranged = change.into();
        // Every transition carries an audit record: whether it is there as it was to be written tells what happened.
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

    /// The audit record in a transaction.
    fn proof(&self, ranged: &Ranged) -> Option<Put> {
        let audits = self.store.keys().audit_prefix();
        ranged.change.puts.iter().find(|p| p.key.starts_with(&audits)).cloned()
    }

    /// Asks until etcd answers whether the transaction went through; if so, the live copy shows it before anything else
    /// happens. Returns the witness's revision if it is there.
    async fn read_again(&self, proof: Option<&Put>) -> Result<Option<i64>, Stop> {
        let asked = async |proof: Option<&Put>| match proof {
            None => self.store.head().await.map(|_| None),
            // its text says which try it is of and when: that of an earlier one under the same key is another one
            Some(put) => {
                let raw = self.store.raw(&put.key).await?;
                Ok(raw.filter(|raw| raw.text == put.value).map(|raw| raw.mod_revision))
            }
        };
        loop {
            match asked(proof).await {
                Ok(Some(revision)) => {
                    self.shown(revision).await?;
                    return Ok(Some(revision));
                }
                Ok(None) => return Ok(None),
                Err(_) => {}
            }
            if self.fence.life().remaining().is_zero() {
                return Err(Stop(EffectOutcome::Lost));
            }
            tokio::time::sleep(READ_AGAIN).await;
        }
    }

    /// Waits until the live copy of etcd is at this revision; for as long as we lead.
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

    /// An audit record of the engine, to be put into the transaction of what it tells (I38).
    fn audit(&self, what: &str, on: &str, reason: Option<String>, result: &str) -> Put {
        let (key, audit) = self.audit_record(what, on, reason, result);
        Put::json(key, &audit)
    }

    /// The same for a step that may be tried again for this entry: one record tells of all its tries.
    fn audit_again(&self, what: &str, id: EntryId, reason: Option<String>, result: &str) -> Put {
        let (on, at) = (id.to_string(), self.steady.now().wall);
        match self.repeats.known(&Step::new(what, &on), at) {
            Some(known) => Put::json(known.key, &known.audit.again(at, reason, result)),
            None => self.audit(what, &on, reason, result),
        }
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
            repeats: None,
        };
        // Two of one moment are told apart by their number.
        let number = self.told.fetch_add(1, Ordering::Relaxed);
        let on = on.replace(['/', ' '], "-");
        let id = format!("{:020}-{:x}-{on}-{number}", at.as_nanosecond(), self.fence.lease());
        (self.store.keys().audit(&id), audit)
    }
}
