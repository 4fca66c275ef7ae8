//! Notices to receivers: a program or a webhook (`docs/notices.md`). The leader sends them with one task for each
//! receiver, so that no receiver delays another or the engine.
//!
//! | module | contents |
//! | --- | --- |
//! | `worker` | the task: detect, record, deliver, record again |
//! | `delivery` | one delivery |

mod delivery;
#[cfg(test)]
mod fuzz;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};

use cketerm_clients::notices::Receiver;
use cketerm_rules::{
    notices::{Receivers, scene::Scene},
    seen::Seen,
};
use cketerm_runtime::tasks::OwnedTask;
use tokio::sync::watch;

pub use self::delivery::{Delivery, DeliveryResult};
use self::worker::NotificationWorker;
use super::{act::Actor, counters::Counters};

/// Published state of the receivers.
pub(super) type Board = Arc<watch::Sender<Arc<Receivers>>>;

/// State shared by the workers of one leadership.
#[derive(Clone)]
pub(super) struct NotifierContext {
    pub actor: Arc<Actor>,
    pub seen: watch::Receiver<Arc<Seen>>,
    pub delivery: Delivery,
    pub board: Board,
    pub counters: Arc<Counters>,
    pub scenes: Scenes,
}

/// The newest scene, and the pass that it was made from.
pub(super) type Scenes = Arc<Mutex<Option<(Arc<Seen>, Option<Arc<Scene>>)>>>;

impl NotifierContext {
    /// Returns the scene of a pass. It is made once for all receivers.
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

/// Workers of one leadership. They end when this is dropped; the next leader sends their remaining notices.
pub(super) struct NotificationWorkers {
    _tasks: Vec<OwnedTask>,
}

impl NotificationWorkers {
    /// Starts one worker for each receiver.
    pub fn start(context: &NotifierContext, receivers: &[Receiver]) -> Self {
        context.board.send_replace(Arc::default());
        let each =
            receivers.iter().map(|r| OwnedTask::spawn(NotificationWorker::new(context.clone(), r.clone()).run()));
        Self { _tasks: each.collect() }
    }
}
