//! Reports of each engine during a run, sampled once a second for the observers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use cketerm_model::{clock::Clock, entry::QueueKind};
use tokio::time::sleep;

use crate::{engines::Engines, observers::record::EngineReport};

/// Reasons why entries do not move, by index.
type Reasons = BTreeMap<u64, serde_json::Value>;

/// Samples the report of each engine once a second.
pub async fn sample(engines: Engines, reports: Arc<Mutex<Vec<EngineReport>>>, clock: Clock) {
    let nothing: Arc<Reasons> = Arc::default();
    // an unchanged report is stored once and shared
    let mut last: BTreeMap<String, (Arc<_>, Arc<Reasons>, Arc<Reasons>)> = BTreeMap::new();
    loop {
        sleep(Duration::from_secs(1)).await;
        for slot in engines.lock().unwrap().iter() {
            let Some(handle) = slot.handle.as_ref().filter(|_| !slot.gate.is_dead()) else { continue };
            let seen = handle.seen().borrow().clone();
            let revision = seen.snapshot.store.revision;
            // of an engine that does not lead, only the fact that it runs is recorded
            if seen.snapshot.engine.leading.is_none() {
                reports.lock().unwrap().push(EngineReport {
                    at: clock.wall(),
                    by: slot.name.clone(),
                    leads: false,
                    revision,
                    reasons: Arc::clone(&nothing),
                    moving: Vec::new(),
                    repairs: Arc::clone(&nothing),
                    moving_repairs: Vec::new(),
                });
                continue;
            }
            let moving = |queue| {
                let all = seen.snapshot.in_flight.values().filter_map(|f| f.entry);
                all.filter(|e| e.queue == queue).map(|e| e.index).collect()
            };
            let reasons = |queue| -> Reasons {
                let all = seen.reasons.iter().filter(|(id, _)| id.queue == queue);
                all.map(|(id, reason)| (id.index, serde_json::to_value(reason).unwrap())).collect()
            };
            let known = last.get(&slot.name).filter(|known| Arc::ptr_eq(&known.0, &seen.reasons)).cloned();
            let written = known.unwrap_or_else(|| {
                let all = (QueueKind::Reboot, QueueKind::Repair);
                (Arc::clone(&seen.reasons), Arc::new(reasons(all.0)), Arc::new(reasons(all.1)))
            });
            last.insert(slot.name.clone(), written.clone());
            reports.lock().unwrap().push(EngineReport {
                at: clock.wall(),
                by: slot.name.clone(),
                leads: true,
                revision,
                reasons: Arc::clone(&written.1),
                moving: moving(QueueKind::Reboot),
                repairs: Arc::clone(&written.2),
                moving_repairs: moving(QueueKind::Repair),
            });
        }
    }
}
