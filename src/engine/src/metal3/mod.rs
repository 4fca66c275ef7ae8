//! Metal3's controller role, for sites without the baremetal-operator, enabled by the policy `metal3_controller`
//! (MET-28). The leader runs it with one task for each host; the rules are in `cketerm_rules::metal3`.
//!
//! It begins nothing beside another controller: while the upstream operator's Lease is held, or while another field
//! manager wrote a `status.poweredOn` within ten minutes. If it cannot find out, it acts as if another one ran (MET-29
//! to MET-31). It still ends the power cycles that it has begun (`shutdown`).

mod host_reconciler;
mod shutdown;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use cketerm_clients::power::BmcClients;
use cketerm_model::{boot_time::BootTime, host::HostRow, kube::HOSTS_SOURCE};
use cketerm_rules::metal3::{Metal3, controller};
use cketerm_runtime::tasks::OwnedTask;
use imbl::OrdMap;
use jiff::Timestamp;
use tokio::sync::{OnceCell, Semaphore, watch};

use self::{
    host_reconciler::HostReconciler,
    shutdown::{InterruptedPowerCycles, Retiring, unfinished},
};
use super::act::Actor;

/// Time between two searches for the upstream operator.
const SEARCH_INTERVAL: Duration = Duration::from_secs(20);
/// Time before the next search after a failed one.
const SEARCH_RETRY: Duration = Duration::from_secs(5);
/// Time between two checks for changes that no watch reports.
const TICK: Duration = Duration::from_secs(5);
/// Number of BMCs queried at once for hosts without a request (MET-54).
const ASKED_AT_ONCE: usize = 64;

/// Published state of the controller role.
pub(super) type Board = Arc<watch::Sender<Arc<Metal3>>>;

/// State shared by the tasks of all hosts.
struct Shared {
    actor: Arc<Actor>,
    reach: BmcClients,
    board: Board,
    /// Whether the server keeps the two timestamps; found out once.
    keeps: OnceCell<bool>,
    asked_at_once: Semaphore,
    /// Evidence that another controller runs, or may run.
    barred: Mutex<Option<String>>,
    /// Whether this engine is about to resign.
    retires: AtomicBool,
    /// Signal that no cycle may begin any more, which wakes the host tasks. [`Shared::is_shutting_down`] is
    /// authoritative.
    shutdown_signal: watch::Sender<bool>,
    /// Whether all hosts have been searched, since the shutdown began, for cycles without a task.
    surveyed: watch::Sender<bool>,
    /// Hosts whose power cycle is under way.
    interrupted_cycles: watch::Sender<InterruptedPowerCycles>,
    /// Requests, by host and time, for which no machine was ordered to power off. They wait until cycles may begin
    /// again (MET-58).
    waiting: Mutex<BTreeMap<(String, String), Timestamp>>,
}

impl Shared {
    fn new(actor: Arc<Actor>, reach: BmcClients, board: Board) -> Self {
        Self {
            actor,
            reach,
            board,
            keeps: OnceCell::new(),
            asked_at_once: Semaphore::new(ASKED_AT_ONCE),
            barred: Mutex::default(),
            retires: AtomicBool::new(false),
            shutdown_signal: watch::channel(false).0,
            surveyed: watch::channel(false).0,
            interrupted_cycles: watch::Sender::default(),
            waiting: Mutex::default(),
        }
    }

    /// Publishes a change of the state; wakes no subscriber if nothing changed.
    fn show(&self, change: impl FnOnce(&mut Metal3)) {
        self.board.send_if_modified(|seen| {
            let mut new = (**seen).clone();
            change(&mut new);
            let differs = **seen != new;
            if differs {
                *seen = Arc::new(new);
            }
            differs
        });
    }
}

/// Controller role of one leadership. It ends when dropped. Cycles under way are not undone, and the next leader
/// decides from the resource alone.
pub(super) struct Controller {
    shared: Arc<Shared>,
    _task: OwnedTask,
    /// Set while this engine is about to resign.
    retiring: Option<Retiring>,
}

impl Controller {
    /// Starts the controller. It does nothing until the policy enables it.
    pub fn start(actor: Arc<Actor>, reach: BmcClients, board: Board) -> Self {
        let shared = Arc::new(Shared::new(actor, reach, board));
        let supervisor = HostSupervisor {
            shared: Arc::clone(&shared),
            known_hosts: Hosts::new(),
            host_tasks: BTreeMap::new(),
            last_search: None,
            foreign_writer: OtherController::Nobody,
            last_update: None,
        };
        Self { shared, _task: OwnedTask::spawn(supervisor.run()), retiring: None }
    }
}

type Hosts = OrdMap<(String, String), Arc<HostRow>>;

/// Task of a host, with the channel for the host's changes.
struct HostTask {
    row: watch::Sender<Arc<HostRow>>,
    task: OwnedTask,
}

/// Evidence of another controller.
#[derive(Clone)]
enum OtherController {
    Nobody,
    /// Another controller runs. Holds the evidence.
    Somebody(String),
    /// It cannot be found out. Holds the reason.
    Unknown(String),
}

struct HostSupervisor {
    shared: Arc<Shared>,
    /// Hosts that the tasks were last informed of. Most changes of the view are about other objects.
    known_hosts: Hosts,
    host_tasks: BTreeMap<(String, String), HostTask>,
    /// Boot time of the last search for the operator.
    last_search: Option<BootTime>,
    /// Result of that search.
    foreign_writer: OtherController,
    /// State when the tasks were last updated: whether no cycle could begin, and the reason why the role could not run.
    /// None = there was nothing left to do.
    last_update: Option<(bool, Option<String>)>,
}

impl HostSupervisor {
    /// Runs until the task is aborted.
    async fn run(mut self) {
        let mut kube = self.shared.actor.kube_live.subscribe();
        let mut store = self.shared.actor.live.subscribe();
        let mut shutdown_signal = self.shared.shutdown_signal.subscribe();
        loop {
            let shutting_down = self.update_tasks().await;
            // A new leader has not read the hosts yet.
            let source = self.shared.actor.kube_live.borrow().sources.get(HOSTS_SOURCE).cloned();
            let seen = shutting_down && source.is_some_and(|source| source.synced || source.error.is_some());
            self.shared.surveyed.send_if_modified(|surveyed| std::mem::replace(surveyed, seen) != seen);
            tokio::select! {
                biased;
                _ = kube.changed() => {}
                _ = store.changed() => {}
                _ = shutdown_signal.changed() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    /// Starts or updates the task of each host that cketerm controls; reports whether no cycle may begin any more.
    async fn update_tasks(&mut self) -> bool {
        let all = self.host_tasks.len();
        self.host_tasks.retain(|_, host_task| !host_task.task.is_finished());
        let kube = self.shared.actor.kube_live.borrow();
        let hosts = &kube.hosts;
        let same = self.known_hosts.ptr_eq(hosts) && self.host_tasks.len() == all;
        let settled = same && self.last_update.is_none();
        if self.shared.is_ending()
            && self.host_tasks.is_empty()
            && (settled || !hosts.values().any(|host| self.unfinished_cycle(host)))
        {
            self.known_hosts = hosts.clone();
            (self.last_search, self.last_update) = (None, None);
            self.set_barred(None);
            self.shared
                .interrupted_cycles
                .send_if_modified(|interrupted_cycles| !std::mem::take(interrupted_cycles).is_empty());
            self.shared.show(|seen| *seen = Metal3::default());
            return self.shared.is_shutting_down();
        }
        self.search_operator().await;
        let runs = self.shared.board.borrow().runs && matches!(self.foreign_writer, OtherController::Nobody);
        if runs && !self.shared.signal_shutdown() && self.host_tasks.len() == hosts.len() && same {
            return false;
        }
        let now = self.shared.actor.steady.now().wall;
        let foreign_writer = match self.foreign_writer.clone() {
            OtherController::Nobody => hosts
                .values()
                .find_map(|h| controller::foreign_writer(h, now))
                .map_or(OtherController::Nobody, OtherController::Somebody),
            known => known,
        };
        let barred = match &foreign_writer {
            OtherController::Nobody => None,
            OtherController::Somebody(why) | OtherController::Unknown(why) => Some(why.clone()),
        };
        self.set_barred(barred.clone());
        let shutting_down = self.shared.is_shutting_down();
        let last_update = Some((shutting_down, barred.clone()));
        if same && self.last_update == last_update && (shutting_down || self.host_tasks.len() == hosts.len()) {
            return shutting_down;
        }
        self.last_update = last_update;
        // A live copy that is being read again lacks existing hosts.
        if kube.sources.get(HOSTS_SOURCE).is_some_and(|source| source.synced) {
            self.host_tasks.retain(|key, _| hosts.contains_key(key));
            self.shared.interrupted_cycles.send_if_modified(|interrupted_cycles| {
                let all = interrupted_cycles.len();
                interrupted_cycles.retain(|key, _| hosts.contains_key(key));
                all != interrupted_cycles.len()
            });
        }
        for (key, row) in hosts {
            self.update_task(key, row, &foreign_writer, shutting_down);
        }
        self.known_hosts = hosts.clone();
        let drops = self.shared.keeps.get() == Some(&false);
        let (host_tasks, is_active) = (&self.host_tasks, !self.shared.is_ending());
        self.shared.show(|seen| {
            (seen.runs, seen.drops_times) = (barred.is_none(), drops);
            seen.barred = barred.filter(|_| is_active);
            let known = hosts.iter().filter(|(key, _)| host_tasks.contains_key(*key)).map(|(_, host)| host.full_name());
            seen.hosts = known.filter_map(|name| seen.hosts.get(&name).cloned().map(|seen| (name, seen))).collect();
        });
        shutting_down
    }

    /// Sends a change to the host's task, or starts the task.
    fn update_task(
        &mut self,
        key: &(String, String),
        row: &Arc<HostRow>,
        foreign_writer: &OtherController,
        shutting_down: bool,
    ) {
        if let Some(host_task) = self.host_tasks.get(key) {
            host_task.row.send_if_modified(|old| {
                let differs = old.resource_version != row.resource_version;
                if differs {
                    *old = Arc::clone(row);
                }
                differs
            });
            return;
        }
        // A cycle that an earlier engine began is finished, whatever the policy says now, and nothing else begins
        // (MET-57). If another controller runs, it finishes the cycle itself.
        let unfinished_cycle = self.unfinished_cycle(row) && !matches!(foreign_writer, OtherController::Somebody(_));
        self.shared.note_power_cycle(row, unfinished_cycle);
        if !shutting_down || unfinished_cycle && matches!(foreign_writer, OtherController::Nobody) {
            self.host_tasks.insert(key.clone(), self.take(Arc::clone(row)));
        }
    }

    /// Reports whether the host's cycle is unfinished, and no task has found that it never began.
    fn unfinished_cycle(&self, host: &HostRow) -> bool {
        unfinished(host) && (host.powered_on == Some(false) || !self.shared.never_began(host))
    }

    /// Searches for another controller from time to time.
    async fn search_operator(&mut self) {
        let (actor, now) = (&self.shared.actor, self.shared.actor.steady.now());
        let rest =
            if matches!(self.foreign_writer, OtherController::Unknown(_)) { SEARCH_RETRY } else { SEARCH_INTERVAL };
        if self.last_search.is_none_or(|at| now.boot.saturating_duration_since(at) >= rest) {
            self.foreign_writer = match actor.kube.operator(now.wall).await {
                Ok(None) => OtherController::Nobody,
                Ok(Some(found)) => OtherController::Somebody(found),
                Err(e) => OtherController::Unknown(format!("cannot check whether the baremetal-operator runs: {e}")),
            };
            self.last_search = Some(now.boot);
        }
    }

    fn take(&self, row: Arc<HostRow>) -> HostTask {
        let (row, watched) = watch::channel(row);
        let reconciler = HostReconciler::new(Arc::clone(&self.shared), watched);
        HostTask { row, task: OwnedTask::spawn(reconciler.run()) }
    }

    /// Sets or clears the reason why the role may not run. No task is stopped: a task with a cycle under way ends the
    /// cycle, and the others end by themselves.
    fn set_barred(&self, why: Option<String>) {
        self.shared.barred.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&why);
        self.shared.signal_shutdown();
        if let Some(why) = why.filter(|_| !self.shared.is_ending())
            && self.shared.board.borrow().barred.as_ref() != Some(&why)
        {
            tracing::warn!(why, "the Metal3 controller is not running (policy metal3_controller)");
        }
    }
}
