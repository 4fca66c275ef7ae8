//! The end of the controller role: nothing is begun any more, and what was begun is finished, because a machine between
//! off and on must not stay off (spec/safety.md, Losing the lock, or a graceful end).

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{Controller, Shared};
use crate::model::host::HostRow;

/// The hosts whose power cycle is under way, by namespace and name.
pub(in crate::engine) type Halves = BTreeMap<(String, String), Half>;

/// How far one of them is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Half {
    /// It was told to go off, or is to be turned on.
    Moving,
    /// It stays off until its clients release it: nobody can finish that for them.
    Held(Vec<String>),
}

impl Shared {
    /// Nothing is begun any more: the policy asks for it no longer, or this engine ends.
    pub(super) fn winds_down(&self) -> bool {
        let actor = &self.actor;
        let ends = *self.wound.borrow() || actor.ending.load(Ordering::SeqCst);
        ends || !actor.live.borrow().policy().metal3_controller
    }

    /// Wakes all hands when that has changed; the answer is whether it is so.
    pub(super) fn wind(&self) -> bool {
        let policy = self.actor.live.borrow().policy().metal3_controller;
        let ends = !policy || self.actor.ending.load(Ordering::SeqCst);
        self.wound.send_if_modified(|wound| std::mem::replace(wound, ends) != ends);
        ends
    }

    /// Notes how far this host is; `begun` = its cycle is under way.
    pub(super) fn note_half(&self, host: &HostRow, begun: bool) {
        let place = (host.namespace.clone(), host.name.clone());
        // One that is to be off is where it belongs.
        let stays = host.powered_on == Some(false) && !host.online;
        let half = (begun && !stays).then(|| {
            let held = host.powered_on == Some(false) && !host.asked.keys.is_empty();
            if held { Half::Held(host.asked.keys.keys().cloned().collect()) } else { Half::Moving }
        });
        self.halves.send_if_modified(|halves| match half {
            Some(half) => halves.insert(place, half.clone()).as_ref() != Some(&half),
            None => halves.remove(&place).is_some(),
        });
    }
}

impl Controller {
    /// Cycles are under way that can be finished.
    pub(in crate::engine) fn moves(&self) -> bool {
        self.shared.halves.borrow().values().any(|half| *half == Half::Moving)
    }

    /// Begins nothing more, and waits so long at most until what was begun is finished. What is left is told: in the log,
    /// and in the audit of the host.
    pub(in crate::engine) async fn finish(&self, long: Duration) {
        let shared = &self.shared;
        shared.wind();
        let mut halves = shared.halves.subscribe();
        let none_moves = halves.wait_for(|halves| !halves.values().any(|half| *half == Half::Moving));
        let _ = tokio::time::timeout(long, none_moves).await;
        let left = shared.halves.borrow().clone();
        for ((namespace, name), half) in left {
            let host = format!("{namespace}/{name}");
            let why = match half {
                Half::Held(keys) => format!(
                    "it is held off by {}, and no engine is left to turn it on when they release it",
                    keys.join(", ")
                ),
                Half::Moving => "its power cycle is not over, and no engine is left to turn it on".to_owned(),
            };
            tracing::error!(host, why, "HOST STAYS OFF until an engine with the policy metal3_controller leads");
            let decided = shared.actor.steady.now().boot;
            let Ok(permit) = shared.actor.permit_to_finish(decided) else { continue };
            let actor = Arc::clone(&shared.actor);
            if let Ok(told) = actor.tell(&permit, "host left off", &format!("host {host}"), Some(why)).await {
                actor.came_of(told, "this engine ends".to_owned());
            }
        }
    }
}
