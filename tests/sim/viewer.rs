//! A read-only process (I45): lists, plans and previews at any moment. Observers would see all its writes.

use std::time::Duration;

use cketerm_actions::preview::Preview;
use cketerm_clients::{kubernetes::Kube, store::Store};
use cketerm_model::{entry::QueueKind, names::NodeName};
use fastrand::Rng;
use tokio::time::{Instant, sleep_until};

use crate::{plan::FAULT_PERIOD, selection::Selection};

/// Name of the process, by which observers know it.
pub const VIEWER: &str = "viewer";

/// Reads until the end of the day.
pub async fn read_all(
    store: Store,
    kube: Kube,
    names: Vec<String>,
    mut rng: Rng,
    began: Instant,
    selection: &Selection,
) {
    let (mut at, mut n) = (began, 0);
    loop {
        at += Duration::from_millis(rng.u64(5_000..120_000));
        if at >= began + FAULT_PERIOD {
            return;
        }
        sleep_until(at).await;
        let name = &names[rng.usize(..names.len())];
        if selection.has(&format!("v{n}")) {
            read_once(&store, &kube, name).await;
        }
        n += 1;
    }
}

async fn read_once(store: &Store, kube: &Kube, name: &str) {
    let Ok(view) = store.read_view().await else { return };
    let (Ok(Some(node)), Ok(facts)) = (kube.node(&NodeName::new(name)).await, kube.read_drain_objects().await) else {
        return;
    };
    let Some(definition) = view.definition() else { return };
    for queue in QueueKind::QUEUES {
        let _ = Preview::of(kube, &node, definition.cluster.eviction(queue), &facts).await;
    }
}
