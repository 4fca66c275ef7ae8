//! What happens is told to receivers: a program or a webhook (docs/notices.md). Whoever leads tells, a task for each receiver,
//! so that none is in the way of another or of the engine.
//!
//! | file | |
//! | --- | --- |
//! | `scene` | what there is to tell about, made from what a pass saw |
//! | `due` | what is new in that for one receiver |
//! | `fold` | too much becomes one; how often one is told |
//! | `worker` | the task: notice, write down, deliver, write down again |
//! | `delivery` | one delivery |

mod delivery;
mod due;
mod fold;
#[cfg(test)]
mod fuzz;
mod scene;
#[cfg(test)]
mod tests;
mod worker;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{sync::watch, task::JoinHandle};

pub use self::delivery::{Delivery, DeliveryResult};
use self::{scene::Scene, worker::NotificationWorker};
use super::{act::Actor, counters::Counters, snapshot::Seen};
use crate::{model::notice::Trouble, notices::Receiver};

/// What the leader knows of its receivers, by name; empty where it does not lead.
pub type Receivers = BTreeMap<String, ReceiverSeen>;

/// What the leader knows of one receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverSeen {
    /// Notices that are not known to be received.
    pub pending: u64,
    /// Why it takes nothing.
    pub trouble: Option<Trouble>,
}

/// Where all see what is known of the receivers.
pub(super) type Board = Arc<watch::Sender<Arc<Receivers>>>;

/// What the criers of one leadership share.
#[derive(Clone)]
pub(super) struct NotifierContext {
    pub actor: Arc<Actor>,
    pub seen: watch::Receiver<Arc<Seen>>,
    pub delivery: Delivery,
    pub board: Board,
    pub counters: Arc<Counters>,
    pub scenes: Scenes,
}

/// The newest scene, and what it was made from.
pub(super) type Scenes = Arc<Mutex<Option<(Arc<Seen>, Option<Arc<Scene>>)>>>;

impl NotifierContext {
    /// What there is to tell about: made once, however many receivers look at it.
    fn scene(&self, seen: &Arc<Seen>) -> Option<Arc<Scene>> {
        let mut newest = self.scenes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, scene)) = newest.as_ref().filter(|(of, _)| Arc::ptr_eq(of, seen)) {
            return scene.clone();
        }
        let scene = Scene::of(seen).map(Arc::new);
        *newest = Some((Arc::clone(seen), scene.clone()));
        scene
    }
}

/// The criers of one leadership. They end when this is dropped; what they have not told, the next leader tells.
pub(super) struct NotificationWorkers(Vec<JoinHandle<()>>);

impl NotificationWorkers {
    /// One for each receiver.
    pub fn start(context: &NotifierContext, receivers: &[Receiver]) -> Self {
        context.board.send_replace(Arc::default());
        let each =
            receivers.iter().map(|r| crate::tasks::spawn(NotificationWorker::new(context.clone(), r.clone()).run()));
        Self(each.collect())
    }
}

impl Drop for NotificationWorkers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
