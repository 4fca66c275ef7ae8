//! Metal3's controller role, carried out: for sites without the baremetal-operator, where the policy
//! `metal3_controller` asks for it (spec/metal3.md; spec/safety.md, Metal3). Whoever leads plays it, a task for each
//! host; the rules are `power::controller`'s.
//!
//! It refuses to run beside another controller: while the upstream operator's Lease is held, or another field manager
//! wrote a `status.poweredOn` within ten minutes. What it cannot find out it takes for a yes.

mod deed;
mod hand;
mod winding;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{OnceCell, Semaphore, watch},
    task::JoinHandle,
};

use self::hand::Hand;
pub(super) use self::winding::Halves;
use super::act::Actor;
use crate::{
    model::host::HostRow,
    power::{Reach, controller},
};

/// Between looks for the upstream operator.
const LOOK: Duration = Duration::from_secs(20);
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
    reach: Reach,
    board: Board,
    /// Whether the server keeps the two timestamps; asked once.
    keeps: OnceCell<bool>,
    asked_at_once: Semaphore,
    /// Nothing is begun any more.
    wound: watch::Sender<bool>,
    /// The hosts whose power cycle is under way.
    halves: watch::Sender<Halves>,
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
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Controller {
    /// Starts; does nothing until the policy asks for it.
    pub fn start(actor: Arc<Actor>, reach: Reach, board: Board) -> Self {
        let shared = Arc::new(Shared {
            actor,
            reach,
            board,
            keeps: OnceCell::new(),
            asked_at_once: Semaphore::new(ASKED_AT_ONCE),
            wound: watch::channel(false).0,
            halves: watch::Sender::default(),
        });
        let warden = Warden {
            shared: Arc::clone(&shared),
            told: Hosts::new(),
            hands: BTreeMap::new(),
            looked: None,
            operator: None,
        };
        Self { shared, task: crate::tasks::spawn(warden.run()) }
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

struct Warden {
    shared: Arc<Shared>,
    /// The hosts that the hands were told of: most news are of other things.
    told: Hosts,
    hands: BTreeMap<(String, String), Under>,
    /// Boot time of the last look for the operator.
    looked: Option<Duration>,
    /// What it found, or why it could not look.
    operator: Option<String>,
}

impl Warden {
    /// Until the task is aborted.
    async fn run(mut self) {
        let mut kube = self.shared.actor.kube_live.subscribe();
        let mut store = self.shared.actor.live.subscribe();
        loop {
            self.mind().await;
            tokio::select! {
                biased;
                _ = kube.changed() => {}
                _ = store.changed() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    async fn mind(&mut self) {
        let actor = Arc::clone(&self.shared.actor);
        let winds_down = self.shared.wind();
        self.hands.retain(|_, under| !under.task.is_finished());
        if winds_down && self.hands.is_empty() {
            self.told = Hosts::new();
            self.looked = None;
            self.shared.show(|seen| *seen = Metal3::default());
            return;
        }
        let now = actor.steady.now();
        if self.looked.is_none_or(|at| now.boot.saturating_sub(at) >= LOOK) {
            self.operator = match actor.kube.operator(now.wall).await {
                Ok(found) => found,
                Err(e) => Some(format!("it cannot be seen whether the baremetal-operator runs: {e}")),
            };
            self.looked = Some(now.boot);
        }
        let hosts = actor.kube_live.borrow().hosts.clone();
        let runs = self.shared.board.borrow().runs && self.operator.is_none();
        if runs && !winds_down && self.hands.len() == hosts.len() && self.told.ptr_eq(&hosts) {
            return;
        }
        let beside = || hosts.values().find_map(|host| controller::beside(host, now.wall));
        if let Some(why) = self.operator.clone().or_else(beside) {
            self.bar(why);
            return;
        }
        self.hands.retain(|place, _| hosts.contains_key(place));
        self.shared.halves.send_if_modified(|halves| {
            let all = halves.len();
            halves.retain(|place, _| hosts.contains_key(place));
            all != halves.len()
        });
        for (place, row) in &hosts {
            match self.hands.get(place) {
                Some(under) => {
                    under.row.send_if_modified(|old| {
                        let differs = old.resource_version != row.resource_version;
                        if differs {
                            *old = Arc::clone(row);
                        }
                        differs
                    });
                }
                // What was begun is finished, and nothing else begins.
                None if winds_down => {}
                None => {
                    self.hands.insert(place.clone(), self.take(Arc::clone(row)));
                }
            }
        }
        self.told = hosts.clone();
        let drops = self.shared.keeps.get() == Some(&false);
        self.shared.show(|seen| {
            (seen.runs, seen.barred, seen.drops_times) = (true, None, drops);
            let known = hosts.values().map(|host| host.full_name());
            seen.hosts = known.filter_map(|name| seen.hosts.get(&name).cloned().map(|seen| (name, seen))).collect();
        });
    }

    fn take(&self, row: Arc<HostRow>) -> Under {
        let (row, watched) = watch::channel(row);
        let hand = Hand::new(Arc::clone(&self.shared), watched);
        Under { row, task: crate::tasks::spawn(hand.run()) }
    }

    /// Lets go of every host, and says why.
    fn bar(&mut self, why: String) {
        if self.shared.board.borrow().barred.as_ref() != Some(&why) {
            tracing::warn!(why, "the Metal3 controller does not run (policy metal3_controller)");
        }
        self.hands.clear();
        self.shared.halves.send_replace(Halves::new());
        self.told = Hosts::new();
        self.shared.show(|seen| *seen = Metal3 { barred: Some(why), ..Metal3::default() });
    }
}
