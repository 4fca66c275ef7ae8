//! Metal3's controller role, for sites without the baremetal-operator, enabled by the policy `metal3_controller`
//! (MET-28). The leader runs it with one task for each host; the rules are in `power::controller`.
//!
//! It begins nothing beside another controller: while the upstream operator's Lease is held, or while another field
//! manager wrote a `status.poweredOn` within ten minutes. If it cannot find out, it acts as if another one ran (MET-29
//! to MET-31). It still ends the power cycles that it has begun (`shutdown`).

mod host_action;
mod host_reconciler;
mod shutdown;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use imbl::OrdMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{OnceCell, Semaphore, watch},
    task::JoinHandle,
};

use self::{
    host_reconciler::HostReconciler,
    shutdown::{Halves, Retiring, unfinished},
};
use super::act::Actor;
use crate::{
    model::{host::HostRow, kube::HOSTS_SOURCE},
    power::{BmcClients, controller},
};

/// Time between two searches for the upstream operator.
const LOOK: Duration = Duration::from_secs(20);
/// Time before the next search after a failed one.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Time between two checks for changes that no watch reports.
const TICK: Duration = Duration::from_secs(5);
/// Number of BMCs queried at once for hosts without a request (MET-54).
const ASKED_AT_ONCE: usize = 64;

/// State of this engine's controller role; empty if it does not run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metal3 {
    /// Whether the role runs now.
    pub runs: bool,
    /// Reason why it does not run although the policy enables it.
    pub barred: Option<String>,
    /// Whether the server drops the two timestamps, so that cketerm's annotation keeps them (MET-51).
    pub drops_times: bool,
    /// Hosts by `namespace/name`.
    pub hosts: OrdMap<String, HostSeen>,
}

/// State of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSeen {
    /// Power state reported by the BMC; none = no answer yet.
    pub power: Option<String>,
    /// The current step, or the reason why nothing is done.
    pub doing: String,
    /// The last error, until a step succeeds.
    pub error: Option<String>,
}

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
    /// Signal that no cycle may begin any more, which wakes the host tasks. [`Shared::winds_down`] is authoritative.
    wound: watch::Sender<bool>,
    /// Whether all hosts have been searched, since the shutdown began, for cycles without a task.
    surveyed: watch::Sender<bool>,
    /// Hosts whose power cycle is under way.
    halves: watch::Sender<Halves>,
    /// Requests, by host and time, for which no machine was ordered to power off. They wait until cycles may begin
    /// again (MET-58).
    waiting: Mutex<BTreeMap<(String, String), Timestamp>>,
}

impl Shared {
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
    task: JoinHandle<()>,
    /// Set while this engine is about to resign.
    retiring: Option<Retiring>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Controller {
    /// Starts the controller. It does nothing until the policy enables it.
    pub fn start(actor: Arc<Actor>, reach: BmcClients, board: Board) -> Self {
        let shared = Arc::new(Shared {
            actor,
            reach,
            board,
            keeps: OnceCell::new(),
            asked_at_once: Semaphore::new(ASKED_AT_ONCE),
            barred: Mutex::default(),
            retires: AtomicBool::new(false),
            wound: watch::channel(false).0,
            surveyed: watch::channel(false).0,
            halves: watch::Sender::default(),
            waiting: Mutex::default(),
        });
        let warden = Warden {
            shared: Arc::clone(&shared),
            told: Hosts::new(),
            hands: BTreeMap::new(),
            looked: None,
            beside: Beside::Nobody,
            minded: None,
        };
        Self { shared, task: crate::tasks::spawn(warden.run()), retiring: None }
    }
}

type Hosts = OrdMap<(String, String), Arc<HostRow>>;

/// Task of a host, with the channel for the host's changes.
struct Under {
    row: watch::Sender<Arc<HostRow>>,
    task: JoinHandle<()>,
}

impl Drop for Under {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Evidence of another controller.
#[derive(Clone)]
enum Beside {
    Nobody,
    /// Another controller runs. Holds the evidence.
    Somebody(String),
    /// It cannot be found out. Holds the reason.
    Unknown(String),
}

struct Warden {
    shared: Arc<Shared>,
    /// Hosts that the tasks were last informed of. Most changes of the view are about other objects.
    told: Hosts,
    hands: BTreeMap<(String, String), Under>,
    /// Boot time of the last search for the operator.
    looked: Option<Duration>,
    /// Result of that search.
    beside: Beside,
    /// State when the tasks were last updated: whether no cycle could begin, and the reason why the role could not run.
    /// None = there was nothing left to do.
    minded: Option<(bool, Option<String>)>,
}

impl Warden {
    /// Runs until the task is aborted.
    async fn run(mut self) {
        let mut kube = self.shared.actor.kube_live.subscribe();
        let mut store = self.shared.actor.live.subscribe();
        let mut wound = self.shared.wound.subscribe();
        loop {
            let winds = self.mind().await;
            // A new leader has not read the hosts yet.
            let source = self.shared.actor.kube_live.borrow().sources.get(HOSTS_SOURCE).cloned();
            let seen = winds && source.is_some_and(|source| source.synced || source.error.is_some());
            self.shared.surveyed.send_if_modified(|surveyed| std::mem::replace(surveyed, seen) != seen);
            tokio::select! {
                biased;
                _ = kube.changed() => {}
                _ = store.changed() => {}
                _ = wound.changed() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    /// Starts or updates the task of each host that cketerm controls; reports whether no cycle may begin any more.
    async fn mind(&mut self) -> bool {
        let all = self.hands.len();
        self.hands.retain(|_, under| !under.task.is_finished());
        let kube = self.shared.actor.kube_live.borrow();
        let hosts = &kube.hosts;
        let same = self.told.ptr_eq(hosts) && self.hands.len() == all;
        let settled = same && self.minded.is_none();
        if self.shared.ends() && self.hands.is_empty() && (settled || !hosts.values().any(|host| self.left(host))) {
            self.told = hosts.clone();
            (self.looked, self.minded) = (None, None);
            self.bar(None);
            self.shared.halves.send_if_modified(|halves| !std::mem::take(halves).is_empty());
            self.shared.show(|seen| *seen = Metal3::default());
            return self.shared.winds_down();
        }
        self.look().await;
        let runs = self.shared.board.borrow().runs && matches!(self.beside, Beside::Nobody);
        if runs && !self.shared.wind() && self.hands.len() == hosts.len() && same {
            return false;
        }
        let now = self.shared.actor.steady.now().wall;
        let beside = match self.beside.clone() {
            Beside::Nobody => {
                hosts.values().find_map(|h| controller::beside(h, now)).map_or(Beside::Nobody, Beside::Somebody)
            }
            known => known,
        };
        let barred = match &beside {
            Beside::Nobody => None,
            Beside::Somebody(why) | Beside::Unknown(why) => Some(why.clone()),
        };
        self.bar(barred.clone());
        let winds = self.shared.winds_down();
        let minded = Some((winds, barred.clone()));
        if same && self.minded == minded && (winds || self.hands.len() == hosts.len()) {
            return winds;
        }
        self.minded = minded;
        // A live copy that is being read again lacks existing hosts.
        if kube.sources.get(HOSTS_SOURCE).is_some_and(|source| source.synced) {
            self.hands.retain(|place, _| hosts.contains_key(place));
            self.shared.halves.send_if_modified(|halves| {
                let all = halves.len();
                halves.retain(|place, _| hosts.contains_key(place));
                all != halves.len()
            });
        }
        for (place, row) in hosts {
            self.mind_host(place, row, &beside, winds);
        }
        self.told = hosts.clone();
        let drops = self.shared.keeps.get() == Some(&false);
        let (hands, asked) = (&self.hands, !self.shared.ends());
        self.shared.show(|seen| {
            (seen.runs, seen.drops_times) = (barred.is_none(), drops);
            seen.barred = barred.filter(|_| asked);
            let known = hosts.iter().filter(|(place, _)| hands.contains_key(*place)).map(|(_, host)| host.full_name());
            seen.hosts = known.filter_map(|name| seen.hosts.get(&name).cloned().map(|seen| (name, seen))).collect();
        });
        winds
    }

    /// Sends a change to the host's task, or starts the task.
    fn mind_host(&mut self, place: &(String, String), row: &Arc<HostRow>, beside: &Beside, winds: bool) {
        if let Some(under) = self.hands.get(place) {
            under.row.send_if_modified(|old| {
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
        let left = self.left(row) && !matches!(beside, Beside::Somebody(_));
        self.shared.note_half(row, left);
        if !winds || left && matches!(beside, Beside::Nobody) {
            self.hands.insert(place.clone(), self.take(Arc::clone(row)));
        }
    }

    /// Reports whether the host's cycle is unfinished, and no task has found that it never began.
    fn left(&self, host: &HostRow) -> bool {
        unfinished(host) && (host.powered_on == Some(false) || !self.shared.never_began(host))
    }

    /// Searches for another controller from time to time.
    async fn look(&mut self) {
        let (actor, now) = (&self.shared.actor, self.shared.actor.steady.now());
        let rest = if matches!(self.beside, Beside::Unknown(_)) { LOOK_AGAIN } else { LOOK };
        if self.looked.is_none_or(|at| now.boot.saturating_sub(at) >= rest) {
            self.beside = match actor.kube.operator(now.wall).await {
                Ok(None) => Beside::Nobody,
                Ok(Some(found)) => Beside::Somebody(found),
                Err(e) => Beside::Unknown(format!("cannot check whether the baremetal-operator runs: {e}")),
            };
            self.looked = Some(now.boot);
        }
    }

    fn take(&self, row: Arc<HostRow>) -> Under {
        let (row, watched) = watch::channel(row);
        let hand = HostReconciler::new(Arc::clone(&self.shared), watched);
        Under { row, task: crate::tasks::spawn(hand.run()) }
    }

    /// Sets or clears the reason why the role may not run. No task is stopped: a task with a cycle under way ends the
    /// cycle, and the others end by themselves.
    fn bar(&self, why: Option<String>) {
        self.shared.barred.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&why);
        self.shared.wind();
        if let Some(why) = why.filter(|_| !self.shared.ends())
            && self.shared.board.borrow().barred.as_ref() != Some(&why)
        {
            tracing::warn!(why, "the Metal3 controller is not running (policy metal3_controller)");
        }
    }
}
