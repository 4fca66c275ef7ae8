//! The end of the controller role: nothing is begun any more, and what was begun is finished, because a machine between
//! off and on must not stay off (spec/safety.md, Losing the lock, or a graceful end). The same for whoever finds a cycle
//! that an engine before it has left.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use super::{Controller, Shared};
use crate::{
    engine::act::named,
    model::host::{Hindrance, HostRow},
    mutation::{self, Mutation},
    power::controller::MANAGER,
};

/// How long an end waits at most until the hosts have been looked through for cycles that nobody has taken up.
const SURVEY: Duration = Duration::from_secs(5);

/// How long a resignation waits for them at most: a machine is worth more than a moment, but not that nobody leads for ever
/// because a BMC is dead, or nobody can see whether another controller is there.
const TIMEOUT: Duration = Duration::from_mins(10);

/// A resignation that is about to be.
pub(super) struct Retiring {
    since: Instant,
    /// Tells what is left, once that was too long.
    told: Option<JoinHandle<()>>,
}

/// The hosts whose power cycle is under way, by namespace and name.
pub(in crate::engine) type Halves = BTreeMap<(String, String), InterruptedPowerCycle>;

/// How far one of them is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum InterruptedPowerCycle {
    /// It was told to go off, is about to be, or is to be turned on.
    Moving,
    /// It stays off for now, whoever wants to finish it: why.
    Stays(String),
}

/// The resource shows a cycle that is not over, and nobody but us has ever written its power. That is all that a dead
/// engine leaves behind.
pub(super) fn unfinished(host: &HostRow) -> bool {
    let ours = host.power_writers.iter().all(|(manager, _)| manager == MANAGER);
    let known = ours && host.pending() && host.powered_on.is_some() && stands(host);
    known && !mutation::on(Mutation::HalfForgotten)
}

/// It is there and has its image: a machine that is wiped or given away belongs to somebody else's work.
pub(super) fn stands(host: &HostRow) -> bool {
    host.provisioned() && !host.deleting
}

impl InterruptedPowerCycle {
    /// How far a host is whose cycle is under way; none = it is where it belongs.
    fn of(host: &HostRow) -> Option<Self> {
        let off = host.powered_on == Some(false);
        if off && !host.online {
            return None;
        }
        Some(match host.hindrance() {
            Some(why @ (Hindrance::Paused | Hindrance::Detached | Hindrance::PowerOffDisabled)) => {
                Self::Stays(why.to_string())
            }
            _ if off && !host.asked.keys.is_empty() => {
                let keys: Vec<&str> = host.asked.keys.keys().map(String::as_str).collect();
                let keys = keys.join(", ");
                Self::Stays(format!(
                    "it is held off by {keys}, and no engine is left to turn it on when they release it"
                ))
            }
            _ => Self::Moving,
        })
    }
}

impl Shared {
    /// The policy asks for it no longer, or this engine ends or resigns.
    pub(super) fn ends(&self) -> bool {
        let ends = self.actor.ending.load(Ordering::SeqCst) || self.retires.load(Ordering::SeqCst);
        ends || !self.actor.live.borrow().policy().metal3_controller
    }

    /// Nothing is begun any more: it ends, or another controller is there or may be. Asked right before every effect, after
    /// [`Self::note_half`]: whoever has wound this down and then finds no host noted knows that none is told to go off.
    pub(super) fn winds_down(&self) -> bool {
        self.barred_by().is_some() || self.ends()
    }

    fn barred_by(&self) -> Option<String> {
        self.barred.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wakes all hands when that has changed; the answer is whether it is so.
    pub(super) fn wind(&self) -> bool {
        let winds = self.winds_down();
        self.wound.send_if_modified(|wound| std::mem::replace(wound, winds) != winds);
        winds
    }

    /// Notes how far this host is; `begun` = its cycle is under way, or is about to be.
    pub(super) fn note_half(&self, host: &HostRow, begun: bool) {
        let place = (host.namespace.clone(), host.name.clone());
        let interrupted = if begun { InterruptedPowerCycle::of(host) } else { None };
        self.halves.send_if_modified(|halves| match interrupted {
            Some(interrupted) => halves.insert(place, interrupted.clone()).as_ref() != Some(&interrupted),
            None => halves.remove(&place).is_some(),
        });
    }

    /// A hand has seen that the machine was never told to go off for the request that is there.
    pub(super) fn note_waiting(&self, host: &HostRow) {
        if let Some(since) = host.pending_reboot_since.filter(|_| host.pending()) {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.insert((host.namespace.clone(), host.name.clone()), since);
        }
    }

    pub(super) fn never_began(&self, host: &HostRow) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (host.namespace.clone(), host.name.clone());
        waiting.get(&place).is_some_and(|since| Some(*since) == host.pending_reboot_since)
    }

    /// What is under way and can be finished, in words; none = nothing.
    fn waits_for(&self) -> Option<String> {
        let halves = self.halves.borrow();
        let moving = halves.iter().filter(|(_, interrupted)| **interrupted == InterruptedPowerCycle::Moving);
        let hosts: Vec<String> = moving.map(|((namespace, name), _)| format!("{namespace}/{name}")).collect();
        if hosts.is_empty() {
            return (!*self.surveyed.borrow()).then(|| "looks for power cycles that are left".to_owned());
        }
        let barred = self.barred_by().map(|why| format!(" ({why})")).unwrap_or_default();
        Some(format!("waits for the power cycle of {}{barred}", named(hosts.into_iter())))
    }

    /// What is left half-way is told: in the log, and in the audit of the host.
    async fn tell_what_is_left(self: Arc<Self>) {
        let left = self.halves.borrow().clone();
        for ((namespace, name), interrupted) in left {
            let host = format!("{namespace}/{name}");
            let why = match interrupted {
                InterruptedPowerCycle::Stays(why) => why,
                InterruptedPowerCycle::Moving => {
                    "its power cycle is not over, and no engine is left to turn it on".to_owned()
                }
            };
            tracing::error!(host, why, "HOST STAYS OFF until an engine leads again");
            let decided = self.actor.steady.now().boot;
            let Ok(permit) = self.actor.permit_to_finish(decided) else { continue };
            if let Ok(told) = self.actor.tell(&permit, "host left off", &format!("host {host}"), Some(why)).await {
                self.actor.came_of(told, "this engine ends".to_owned());
            }
        }
    }
}

impl Controller {
    /// Whether this engine is about to resign: begins nothing more then. The answer says which cycles are under way that are
    /// finished first, within [`TIMEOUT`]; whoever resigns asks again until there is none.
    ///
    /// While the queues are in work the resignation waits for them, and no patience is lost.
    pub(in crate::engine) fn retire(&mut self, retires: bool, queues_in_work: bool) -> Option<String> {
        self.shared.retires.store(retires, Ordering::SeqCst);
        if !retires || queues_in_work {
            self.retiring = None;
        }
        if !self.shared.wind() {
            return None;
        }
        let waits = self.shared.waits_for()?;
        if !retires || queues_in_work {
            return Some(waits);
        }
        let retiring = self.retiring.get_or_insert_with(|| Retiring { since: Instant::now(), told: None });
        if retiring.since.elapsed() < TIMEOUT {
            return Some(waits);
        }
        let shared = &self.shared;
        let told = retiring.told.get_or_insert_with(|| crate::tasks::spawn(Arc::clone(shared).tell_what_is_left()));
        (!told.is_finished()).then_some(waits)
    }

    /// Begins nothing more, and waits so long at most until what was begun is finished. What is left is told: in the log,
    /// and in the audit of the host.
    pub(in crate::engine) async fn finish(&self, long: Duration) {
        let shared = &self.shared;
        let until = Instant::now() + long;
        shared.wind();
        let _ = timeout(SURVEY, shared.surveyed.subscribe().wait_for(|surveyed| *surveyed)).await;
        let mut halves = shared.halves.subscribe();
        let none_moves =
            halves.wait_for(|halves| !halves.values().any(|interrupted| *interrupted == InterruptedPowerCycle::Moving));
        let _ = timeout_at(until, none_moves).await;
        Arc::clone(shared).tell_what_is_left().await;
    }
}
