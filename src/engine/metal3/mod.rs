//! Metal3's controller role, carried out: for sites without the baremetal-operator, where the policy
//! `metal3_controller` asks for it (spec/metal3.md; spec/safety.md, Metal3). Whoever leads plays it, a task for each
//! host; the rules are `power::controller`'s.
//!
//! It refuses to run beside another controller: while the upstream operator's Lease is held, or another field manager
//! wrote a `status.poweredOn` within ten minutes. What it cannot find out it takes for a yes. What it has begun it ends all
//! the same (`winding`).

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

/// Between looks for the upstream operator.
const LOOK: Duration = Duration::from_secs(20);
/// The same after one that did not succeed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Between looks at what has changed without news.
const TICK: Duration = Duration::from_secs(5);
/// So many BMCs are asked at once how their machines are, where nothing is asked of them.
const ASKED_AT_ONCE: usize = 64;

/// What the controller role of this engine knows; empty where it does not play it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metal3 {
    /// It plays it now.
    pub runs: bool,
    /// Why it does not, although the policy asks for it.
    pub barred: Option<String>,
    /// The server drops the two timestamps, so that our annotation keeps them.
    pub drops_times: bool,
    /// By `namespace/name`.
    pub hosts: OrdMap<String, HostSeen>,
}

/// What it knows of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSeen {
    /// The BMC's word, in ours; none = none yet.
    pub power: Option<String>,
    /// What is being done, or why nothing is.
    pub doing: String,
    /// What went wrong last, until something went right again.
    pub error: Option<String>,
}

/// Where all see what it knows.
pub(super) type Board = Arc<watch::Sender<Arc<Metal3>>>;

/// What the hands share.
struct Shared {
    actor: Arc<Actor>,
    reach: BmcClients,
    board: Board,
    /// Whether the server keeps the two timestamps; asked once.
    keeps: OnceCell<bool>,
    asked_at_once: Semaphore,
    /// Another controller is there, or may be: how that is known.
    barred: Mutex<Option<String>>,
    /// This engine is about to resign.
    retires: AtomicBool,
    /// Nothing is begun any more: wakes the hands when that changes ([`Shared::winds_down`] is the truth).
    wound: watch::Sender<bool>,
    /// Since then the hosts have been looked through for cycles that nobody has taken up.
    surveyed: watch::Sender<bool>,
    /// The hosts whose power cycle is under way.
    halves: watch::Sender<Halves>,
    /// Requests, by host and time, for which no machine was told to go off: they wait until something is begun again.
    waiting: Mutex<BTreeMap<(String, String), Timestamp>>,
}

impl Shared {
    /// Shows something new, and wakes nobody for nothing.
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

/// The controller of one leadership. Ends when it is dropped: nothing that is under way is undone, and the next one
/// decides from the resource alone.
pub(super) struct Controller {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    /// Since when this engine is about to resign.
    retiring: Option<Retiring>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Controller {
    /// Starts; does nothing until the policy asks for it.
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

/// A host's task, and what it is told of the host.
struct Under {
    row: watch::Sender<Arc<HostRow>>,
    task: JoinHandle<()>,
}

impl Drop for Under {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Another controller.
#[derive(Clone)]
enum Beside {
    Nobody,
    /// One is there: how it is known.
    Somebody(String),
    /// That cannot be seen: why.
    Unknown(String),
}

struct Warden {
    shared: Arc<Shared>,
    /// The hosts that the hands were told of: most news are of other things.
    told: Hosts,
    hands: BTreeMap<(String, String), Under>,
    /// Boot time of the last look for the operator.
    looked: Option<Duration>,
    /// What it found.
    beside: Beside,
    /// How it was when the hands were minded last: whether nothing was to be begun, and what kept us from running. None =
    /// nothing was left to be minded.
    minded: Option<(bool, Option<String>)>,
}

impl Warden {
    /// Until the task is aborted.
    async fn run(mut self) {
        let mut kube = self.shared.actor.kube_live.subscribe();
        let mut store = self.shared.actor.live.subscribe();
        let mut wound = self.shared.wound.subscribe();
        loop {
            let winds = self.mind().await;
            // Who has just begun to lead has not read them yet.
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

    /// Gives each host that is ours its hand; whether nothing was to be begun any more.
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
        // A copy that is being read anew lacks hosts that are there.
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

    /// Tells this host's hand what is new, or takes the host up.
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
        // What an engine before us has begun is finished, whatever the policy says by now, and nothing else begins. Another
        // controller that is there does that itself.
        let left = self.left(row) && !matches!(beside, Beside::Somebody(_));
        self.shared.note_half(row, left);
        if !winds || left && matches!(beside, Beside::Nobody) {
            self.hands.insert(place.clone(), self.take(Arc::clone(row)));
        }
    }

    /// Its cycle is not over, and none of our hands has found that it never began.
    fn left(&self, host: &HostRow) -> bool {
        unfinished(host) && (host.powered_on == Some(false) || !self.shared.never_began(host))
    }

    /// Looks for another controller, now and then.
    async fn look(&mut self) {
        let (actor, now) = (&self.shared.actor, self.shared.actor.steady.now());
        let rest = if matches!(self.beside, Beside::Unknown(_)) { LOOK_AGAIN } else { LOOK };
        if self.looked.is_none_or(|at| now.boot.saturating_sub(at) >= rest) {
            self.beside = match actor.kube.operator(now.wall).await {
                Ok(None) => Beside::Nobody,
                Ok(Some(found)) => Beside::Somebody(found),
                Err(e) => Beside::Unknown(format!("it cannot be seen whether the baremetal-operator runs: {e}")),
            };
            self.looked = Some(now.boot);
        }
    }

    fn take(&self, row: Arc<HostRow>) -> Under {
        let (row, watched) = watch::channel(row);
        let hand = HostReconciler::new(Arc::clone(&self.shared), watched);
        Under { row, task: crate::tasks::spawn(hand.run()) }
    }

    /// Whether something keeps us from running. No hand is stopped: who has begun something ends it, and the others go by
    /// themselves.
    fn bar(&self, why: Option<String>) {
        self.shared.barred.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&why);
        self.shared.wind();
        if let Some(why) = why.filter(|_| !self.shared.ends())
            && self.shared.board.borrow().barred.as_ref() != Some(&why)
        {
            tracing::warn!(why, "the Metal3 controller does not run (policy metal3_controller)");
        }
    }
}
