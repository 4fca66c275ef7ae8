//! Leader election from the loop's side: when to campaign, how to react to winning and losing, and when to resign
//! (SAF-1 to SAF-7).

use std::{sync::Arc, time::Duration};

use cketerm_clients::store::{election::defer_election, migrate};
use cketerm_model::{
    boot_time::{BootTime, Seconds},
    cketerm_records::{EngineMode, EngineRegistration, FirstDaemon, Who},
    clock::{Now, Steady},
    entry::{EntryId, Stored},
    fault,
    fence::Fence,
    maintenance::MaintenanceStatus,
    policy::{ConsoleLeads, EngineChoice},
    reboot::RebootStatus::{Draining, Rebooting},
    time::after,
};
use cketerm_rules::{
    console_leads::NotCampaigning,
    decide::{Effect, Planned, can_check_quorum},
    preflight_fault::PreflightFault,
    snapshot::Leading,
};

use super::{Leader, Loop};
use crate::{
    act::{Actor, EvictionPace, Repeated, SharedRead},
    event_recorder::EventRecorder,
    lead::{Campaign, CandidacyEvent, CandidacyOrder},
    metal3::Controller,
    notices::{Delivery, NotificationWorkers, NotifierContext},
    preflight,
};

/// Time that an incomplete engine waits for a complete one before it campaigns (SAF-5).
const INCOMPLETE_WAIT: Seconds = Seconds::new(60.0);
/// Time after which it announces this wait. A freshly started engine sees the probes within a moment and then never
/// announces it.
const ANNOUNCED_AFTER: Seconds = Seconds::new(5.0);
/// Time between attempts to campaign, to propose an identity, or to create the schema.
const RETRY_INTERVAL: Seconds = Seconds::new(3.0);

/// Time for which a leader without work stays to finish what follows from it, such as uncordons, before it resigns. It
/// begins again with each effect of an entry or for a cordon that succeeds.
const FOLLOW_UP: Seconds = Seconds::new(10.0);

/// Time that the announcement stays in etcd after the end of the wait that it announces.
const ANNOUNCEMENT_MARGIN: Duration = Duration::from_secs(15);

/// Returns the TTL of the announcement that an engine waits so much longer.
pub(super) fn announcement_ttl(left: Seconds) -> Duration {
    Duration::from(left) + ANNOUNCEMENT_MARGIN
}

impl Loop {
    /// Campaigns, resigns, or writes schema and identity, as policy, preflight and other candidates require.
    pub(super) fn update_leadership(&mut self, now: Now) {
        let at = now.boot;
        if self.leader.is_some() {
            self.update_resignation();
            return;
        }
        if self.is_resigning(now) {
            return;
        }
        if !self.options.campaign || !self.snap.store.synced || at < self.next_try {
            return;
        }
        if self.proposing.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (store, who) = (self.store.clone(), self.who());
        if self.snap.store.schema.is_none() {
            self.next_try = at + RETRY_INTERVAL;
            self.proposing = Some(cketerm_runtime::tasks::spawn(async move {
                if let Err(e) = store.ensure_schema(&who).await {
                    tracing::warn!(error = %e, "cketerm/schema could not be created");
                }
            }));
            return;
        }
        if self.snap.store.identity.is_none()
            && let Some(uid) = self.snap.kube.cluster_uid.clone()
        {
            self.next_try = at + RETRY_INTERVAL;
            self.proposing = Some(cketerm_runtime::tasks::spawn(async move {
                if let Err(e) = store.propose_identity(&uid, &who).await {
                    tracing::warn!(error = %e, "cketerm/identity could not be recorded");
                }
            }));
            return;
        }
        let fit = self.snap.engine.observing.is_empty() && preflight::may_campaign(&self.snap.store).is_ok();
        self.snap.engine.not_campaigning = self.not_campaigning().filter(|_| fit);
        let may_lead = fit && self.snap.engine.not_campaigning.is_none();
        let registration = self.registration();
        if self.running_campaign.is_some() {
            if !may_lead {
                self.ask(CandidacyOrder::Resign);
            } else if self.registered.as_ref() != Some(&registration) {
                self.registered = Some(registration.clone());
                self.ask(CandidacyOrder::Register(Box::new(registration)));
            }
            return;
        }
        self.snap.engine.standing_back = match &self.snap.engine.not_campaigning {
            // it is no candidate, so it announces nothing either
            Some(why) => {
                self.announced = None;
                Some(why.to_string())
            }
            None => self.standby_reason(at, &registration),
        };
        self.log_campaign_blockers();
        if !may_lead || self.snap.engine.standing_back.is_some() {
            return;
        }
        self.next_try = at + RETRY_INTERVAL;
        self.announced = None;
        self.registered = Some(registration.clone());
        let migrate = migrate::needed(&self.snap.store).then_some(who);
        let records = (migrate, self.first_daemon(now));
        let (store, ttl) = (&self.store, self.options.ttl);
        self.running_campaign =
            Some(Campaign::begin(store, ttl, &self.options.host, registration, &self.heartbeat, records));
    }

    /// Returns the reason why this console's engine does not campaign: the policy, a daemon, or the operator's answer
    /// (SAF-5). `None` in every other engine.
    pub(super) fn not_campaigning(&self) -> Option<NotCampaigning> {
        let answer = self.options.answer.as_ref()?;
        NotCampaigning::of(&self.snap.store, *answer.borrow())
    }

    /// Returns the record of this daemon, if it is the first one of the cluster.
    fn first_daemon(&self, now: Now) -> Option<FirstDaemon> {
        let is_first = self.options.mode == EngineMode::Daemon && self.snap.store.daemon.is_none();
        is_first.then(|| FirstDaemon {
            host: self.options.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: now.wall,
        })
    }

    /// Reports whether the engine is resigning. This lasts until its lease is revoked, or half a TTL if the candidacy
    /// does not react.
    fn is_resigning(&mut self, now: Now) -> bool {
        let Some(until) = self.giving_up else { return false };
        if now.boot >= until {
            tracing::warn!("the lock was not released in time; it expires with its lease");
            self.lose_leadership("its lease expires");
        }
        true
    }

    /// Resigns: all work stops, and the candidacy stays until its lease is revoked.
    pub(super) fn give_up(&mut self, why: &str) {
        self.stop_leading(why);
        self.ask(CandidacyOrder::Resign);
        self.giving_up = self.running_campaign.is_some().then(|| self.clock.boot() + self.options.ttl / 2);
    }

    /// Logs the reason why this engine does not campaign, once for each reason.
    fn log_campaign_blockers(&mut self) {
        let engine = &self.snap.engine;
        // The same fault with another number of seconds is not logged again.
        let kinds = engine.observing.iter().map(std::mem::discriminant).collect();
        let standing_back = engine.standing_back.as_ref().map(|why| why.replace(|c: char| c.is_ascii_digit(), ""));
        let barred = (kinds, standing_back);
        if barred != self.barred {
            let faults = engine.observing.iter().map(PreflightFault::to_string);
            let why = faults.chain(engine.standing_back.clone()).collect::<Vec<_>>().join("; ");
            if !why.is_empty() {
                tracing::info!(why, "not campaigning");
            }
            self.barred = barred;
        }
    }

    /// Returns the reason why this engine does not campaign now: the policy, or a complete engine that may come first.
    /// An incomplete engine campaigns only after 60 s without a registration of a complete one (SAF-5).
    fn standby_reason(&mut self, at: BootTime, registration: &EngineRegistration) -> Option<String> {
        if let Err(why) = preflight::may_campaign(&self.snap.store) {
            return Some(why);
        }
        if registration.complete() {
            return None;
        }
        let settings = registration.missing_settings.iter().map(ToString::to_string);
        let missing: Vec<String> = registration.missing_programs.iter().cloned().chain(settings).collect();
        let lacks = match can_check_quorum(&self.snap) {
            _ if registration.unable.is_some() => {
                format!("a working host ({})", registration.unable.as_deref().unwrap_or_default())
            }
            _ if !missing.is_empty() => format!("{} on its host", missing.join("; ")),
            _ if !registration.probes_seen => "a good probe of every control plane".to_owned(),
            Err(why) => format!("access to the members of the Kubernetes etcd ({why})"),
            Ok(()) => "a complete list of etcd members".to_owned(),
        };
        let own_lease = (self.snap.engine.lease != 0).then_some(self.snap.engine.lease);
        if preflight::has_complete_engine(&self.snap.store, own_lease) {
            (self.incomplete_since, self.announced) = (None, None);
            return Some(format!("deferring to another candidate: this one lacks {lacks}"));
        }
        let left = INCOMPLETE_WAIT - (at - *self.incomplete_since.get_or_insert(at));
        if (Seconds::ZERO..INCOMPLETE_WAIT - ANNOUNCED_AFTER).contains(&left) && self.announced.is_none() {
            self.announce(registration, left, &lacks);
        }
        (left > Seconds::ZERO)
            .then(|| format!("campaigning in {left:.0} unless a complete engine appears: this one lacks {lacks}"))
    }

    /// Registers that this engine stands back. Commands that explain why nobody leads then do not advise to start an
    /// engine.
    fn announce(&mut self, registration: &EngineRegistration, left: Seconds, lacks: &str) {
        let until = after(self.steady.now().wall, left.whole());
        let why = format!(
            "the engine on {} campaigns at {until:.0} unless a complete one appears: it lacks {lacks}",
            registration.host
        );
        let registration = EngineRegistration { standing_back: Some(why), ..registration.clone() };
        let (hold, over) = tokio::sync::oneshot::channel();
        self.announced = Some(hold);
        let ttl = announcement_ttl(left);
        cketerm_runtime::tasks::spawn(defer_election(self.store.clone(), ttl, registration, over));
    }

    /// Decides while leading whether to finish and resign: for a CKE candidate, a changed policy, or a failed preflight
    /// (SAF-4, SAF-5). [`Loop::resign_after_work`] resigns once the work has ended.
    fn update_resignation(&mut self) {
        let store = &self.snap.store;
        let lease = self.snap.engine.lease;
        let why = match store.policy().engine {
            EngineChoice::Cke => Some("policy engine is `cke`: finishing work first".to_owned()),
            EngineChoice::Cketerm => preflight::cke_candidate(store, Some(lease))
                .map(|host| format!("CKE on {host} waits for the lock: finishing work first")),
            EngineChoice::Always => None,
        };
        // a daemon that registers later stands by; the policy alone ends a console's leadership
        let by_policy = self.options.answer.is_some() && store.policy().console_leads == ConsoleLeads::Never;
        let why = why.or_else(|| by_policy.then(|| "policy console_leads is `never`: finishing work first".to_owned()));
        // Stale copies are no fault: nothing new starts while they last, and that is enough.
        let fault = self.snap.engine.observing.iter().find(|fault| fault.ends_leadership());
        let may_not_decide = fault.is_some();
        self.snap.engine.resigning = why.or_else(|| fault.map(PreflightFault::to_string));
        let entries = store.reboots.entries.values().filter_map(Stored::get);
        let repairs = store.repairs.entries.values().filter_map(Stored::get);
        let maintenance = store.maintenance.entries.values().filter_map(Stored::get);
        let queues = entries.into_iter().any(|e| matches!(e.status, Draining | Rebooting))
            || repairs.into_iter().any(|e| e.unfinished() && e.claims_machine())
            // a Node that is kept needs no leader
            || maintenance.into_iter().any(|e| e.status == MaintenanceStatus::Draining);
        if self.pass_lock_if_unable() || self.pass_lock_before_own_drain() {
            return;
        }
        // A machine between off and on must not stay off.
        let retires = self.snap.engine.resigning.is_some();
        if !retires || queues {
            self.follow_up_until = None;
        }
        let cycles = self.leader.as_mut().and_then(|leader| leader.metal3.retire(retires, queues));
        if let (Some(resigning), Some(cycles)) = (&mut self.snap.engine.resigning, &cycles) {
            *resigning = format!("{resigning}; {cycles}");
        }
        let recorded = self.leader.as_ref().is_none_or(|leader| leader.actor.cke_records.is_empty());
        fault!(ResignsBeforeUncordon => recorded = true);
        let ended = retires && cycles.is_none() && !queues && recorded;
        if ended && may_not_decide && self.tasks.is_empty() {
            // Nothing more may be changed: the cluster is another one, or its rules cannot be read.
            self.resign();
            return;
        }
        self.work_ended = ended;
    }

    /// Resigns if the leader retires and its work has ended, and if nothing follows from the end of that work: no effect
    /// runs or waits to be retried, the present pass planned none, and the Nodes carry no signs. After [`FOLLOW_UP`]
    /// without progress it resigns nevertheless.
    pub(super) fn resign_after_work(&mut self, planned: &[Planned]) {
        let ended = std::mem::take(&mut self.work_ended) && self.leader.is_some() && self.tasks.is_empty();
        if ended && !self.follows_up(planned) {
            self.resign();
        }
    }

    /// Gives the lock back without work under way.
    fn resign(&mut self) {
        self.ask(CandidacyOrder::Resign);
        self.leader = None;
        self.snap.engine.leading = None;
    }

    /// Notes that an effect succeeded: what follows from it gets its own time.
    pub(super) fn note_progress(&mut self, entry: Option<EntryId>, effect: &Effect) {
        if entry.is_some() || effect.patches_node() {
            self.follow_up_until = None;
        }
    }

    /// Passes the lock to another engine, because the Node of the engine's own pod is to be drained next and none of its
    /// commands runs (SAF-41). The next leader continues from etcd, as after a crash.
    fn pass_lock_before_own_drain(&mut self) -> bool {
        let Some(to) = self.pass_lock_to.take() else { return false };
        if self.snap.in_flight.values().any(|flight| flight.attempt.is_some()) {
            return false;
        }
        tracing::info!(to, "passing the lock: the Node of this engine's pod is to be drained");
        self.give_up("the Node of its own pod is to be drained");
        true
    }

    /// Reports whether the leader should stay a moment longer: effects are planned or wait to be retried, such as the
    /// uncordon after the last entry, or Nodes still carry signs that another leader may not know.
    fn follows_up(&mut self, planned: &[Planned]) -> bool {
        let is_undone = !planned.is_empty() || !self.paused.is_empty();
        fault!(ResignsBeforeUncordon => is_undone = false);
        if self.snap.kube.signed.is_empty() && !is_undone {
            return false;
        }
        let now = self.steady.now().boot;
        let until = *self.follow_up_until.get_or_insert(now + FOLLOW_UP);
        now < until
    }

    /// Passes the lock to a complete engine if this host cannot start programs and none of its commands runs (SAF-5).
    /// The next leader continues from etcd, as after a crash. Without a complete engine, this one keeps the lock and
    /// starts nothing new.
    fn pass_lock_if_unable(&mut self) -> bool {
        let Some(why) = self.snap.engine.unable.clone() else { return false };
        let commands = self.snap.in_flight.values().any(|flight| flight.attempt.is_some());
        let own_lease = Some(self.snap.engine.lease);
        if commands || !preflight::has_complete_engine(&self.snap.store, own_lease) {
            return false;
        }
        tracing::error!(why, "passing the lock to an engine that can start programs");
        self.give_up("this host cannot start programs");
        // The other engine is complete, so this one stands back again before it campaigns.
        self.incomplete_since = None;
        true
    }

    pub(super) fn ask(&self, order: CandidacyOrder) {
        if let Some(running_campaign) = &self.running_campaign {
            running_campaign.ask(order);
        }
    }

    pub(super) fn lead_event(&mut self, event: Option<CandidacyEvent>) {
        match event {
            Some(CandidacyEvent::Campaign(lease)) => self.snap.engine.lease = lease,
            Some(CandidacyEvent::Migrating(why)) => self.snap.engine.migrating = Some(why),
            Some(CandidacyEvent::Won(fence)) => self.won = Some((fence, self.clock.boot() + self.options.ttl / 2)),
            Some(CandidacyEvent::Lost) => self.lose_leadership("the lease or the key in leader/ is gone"),
            Some(CandidacyEvent::Failed(why)) => {
                tracing::warn!(why, "could not campaign for the lock");
                self.lose_leadership("could not campaign");
            }
            Some(CandidacyEvent::Resigned) | None => self.lose_leadership("resigned"),
        }
    }

    /// Starts leading once the live copy shows this engine as the leader (SAF-3). The deletion of the previous leader's
    /// key comes after all that its owner wrote. A comparison of revisions would show less: in a shared etcd, other
    /// programs raise the revision all the time.
    pub(super) fn confirm_win(&mut self) {
        let Some((fence, until)) = self.won.take() else { return };
        let lease = fence.lease();
        if self.live.borrow().leader().is_none_or(|leader| leader.lease != lease) {
            if self.clock.boot() < until {
                self.won = Some((fence, until));
            } else {
                tracing::warn!("won the lock, but the copy of etcd does not show it; resigning");
                self.ask(CandidacyOrder::Resign);
            }
            return;
        }
        self.start_leading(fence);
    }

    fn start_leading(&mut self, fence: Fence) {
        let Some((kube, kube_live)) = self.kube.clone() else { return };
        self.steady = Steady::new(&self.clock);
        // All times of this leadership count from this moment.
        if let Some(why) = preflight::clock_was_set(&kube_live.borrow(), self.steady.now()) {
            tracing::warn!(%why, "won the lock, but may not lead; resigning");
            self.ask(CandidacyOrder::Resign);
            return;
        }
        let lease = fence.lease();
        let seed = lease.unsigned_abs() ^ u64::from(self.options.pid);
        self.snap.engine.lease = lease;
        self.snap.engine.seed = seed;
        self.snap.engine.resigning = None;
        self.snap.engine.not_campaigning = None;
        (self.work_ended, self.follow_up_until) = (false, None);
        if self.snap.engine.migrating.take().is_some() {
            let registration = self.registration();
            self.registered = Some(registration.clone());
            self.ask(CandidacyOrder::Register(Box::new(registration)));
        }
        self.snap.engine.leading = Some(Leading {
            key: fence.key().to_owned(),
            create_revision: fence.create_revision(),
            since: self.clock.boot(),
            acknowledged: fence.life().acknowledged(),
        });
        self.clear();
        let host = self.options.host.clone();
        let actor = Actor {
            events: EventRecorder::start(kube.clone(), fence.clone(), self.steady.clone(), host),
            store: self.store.clone(),
            live: Arc::clone(&self.live),
            kube,
            kube_live,
            fence: fence.clone(),
            steady: self.steady.clone(),
            spawner: self.options.spawner.clone(),
            webhooks: self.options.webhooks.clone(),
            registry: self.inventory_poller.subscribe(),
            etcd: self.etcd.subscribe(),
            start_gates: self.start_gates.subscribe(),
            etcd_members: self.options.etcd_members.clone(),
            who: self.who(),
            seed,
            ending: Arc::default(),
            cke_records: Arc::default(),
            audit_count: Arc::default(),
            repeats: Repeated::default(),
            eviction_pace: EvictionPace::default(),
            admission: SharedRead::default(),
            placement: SharedRead::default(),
        };
        let actor = Arc::new(actor);
        let records = Arc::clone(&actor);
        cketerm_runtime::tasks::spawn(async move { records.cancel_running_records().await });
        let metal3 = Controller::start(Arc::clone(&actor), self.options.bmcs.clone(), Arc::clone(&self.metal3));
        let context = NotifierContext {
            actor: Arc::clone(&actor),
            seen: self.seen_sender.subscribe(),
            delivery: Delivery { http: self.options.webhooks.clone(), spawner: self.options.spawner.clone() },
            board: Arc::clone(&self.notice_board),
            counters: Arc::clone(&self.counters),
            scenes: Arc::default(),
        };
        let workers = NotificationWorkers::start(&context, &self.options.notices);
        self.leader = Some(Leader { actor, fence, metal3, _workers: workers });
        tracing::info!(lease = format!("{lease:x}"), "became the leader");
    }

    /// Handles the loss of the lock.
    pub(super) fn lose_leadership(&mut self, why: &str) {
        self.stop_leading(why);
        self.snap.engine.lease = 0;
        self.snap.engine.migrating = None;
        self.running_campaign = None;
        self.giving_up = None;
        self.registered = None;
        self.next_try = self.clock.boot() + Seconds::new(0.5);
    }

    /// Stops everything that needs the lock. Power commands run to their end by themselves; checks are aborted.
    fn stop_leading(&mut self, why: &str) {
        if self.leader.take().is_some() {
            tracing::warn!(why, "no longer leading");
        }
        self.metal3.send_replace(Arc::default());
        self.notice_board.send_replace(Arc::default());
        self.snap.engine.leading = None;
        self.snap.engine.resigning = None;
        self.won = None;
        self.clear();
    }

    fn who(&self) -> Who {
        Who { user: "engine".to_owned(), host: self.options.host.clone(), ssh_client: None }
    }

    fn registration(&self) -> EngineRegistration {
        let control_planes = self.snap.store.definition().map_or(0, |d| d.members.control_planes(&d.cluster).count());
        let good = self.snap.probes.values().filter(|p| p.last_good.is_some()).count();
        let by_node = self.snap.store.policy().control_plane_probe.url().is_none();
        EngineRegistration {
            host: self.options.host.clone(),
            pid: self.options.pid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: self.options.mode.clone(),
            http: self.options.http.clone(),
            node: self.options.node.clone(),
            missing_programs: self.snap.engine.missing_programs.clone(),
            missing_settings: self.snap.engine.bmcs.missing_settings(),
            standing_back: None,
            migrating: self.snap.engine.migrating.clone(),
            unable: self.snap.engine.unable.clone(),
            probes_seen: by_node || good >= control_planes,
            etcd_members_seen: can_check_quorum(&self.snap).is_ok(),
        }
    }
}
