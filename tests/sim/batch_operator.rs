//! Operator who pauses, resumes and cancels batches at the worst moments, and a program that destroys their records. A
//! pause is ended before the day ends, and a record repaired, because otherwise the queue would be blocked, and the
//! engine would not be at fault.

use std::time::Duration;

use cketerm_actions::Operator;
use cketerm_model::batch::{Batch, BatchId};
use cketerm_sandbox::etcd::Etcd;
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{plan::FAULT_PERIOD, selection::Selection};

/// Returns the generator of this seed, if the operator works in it: in every second one.
pub fn random_generator(seed: u64) -> Option<Rng> {
    let mut rng = Rng::with_seed(seed ^ 0x6261_7463_6865);
    rng.bool().then(|| rng.fork())
}

/// Record of a batch that cannot be read.
const UNREADABLE: &str = r#"{"queue":"reboot","who":"#;

/// Acts until the end of the day.
pub async fn work(operator: Operator, etcd: Etcd, mut rng: Rng, began: Instant, selection: &Selection) {
    let (mut at, mut n) = (began, 0);
    loop {
        at += Duration::from_millis(rng.u64(2_000..60_000));
        if at >= began + FAULT_PERIOD {
            return;
        }
        sleep_until(at).await;
        let mut random = rng.fork();
        if selection.has(&format!("b{n}")) {
            act(&operator, &etcd, &mut random).await;
        }
        n += 1;
    }
}

async fn act(operator: &Operator, etcd: &Etcd, rng: &mut Rng) {
    let Ok(view) = operator.store.read_view().await else { return };
    let known = view.batches.iter().filter_map(|(id, stored)| Some((*id, stored.get()?)));
    // those that still have entries, so that a pause matters
    let open: Vec<(BatchId, &Batch)> = known.filter(|(id, _)| view.entries_of_batch(*id).next().is_some()).collect();
    let Some(&(id, batch)) = (!open.is_empty()).then(|| &open[rng.usize(..open.len())]) else { return };
    let queue = batch.queue;
    match rng.u32(0..10) {
        0..6 => {
            if operator.pause_batch(queue, id, Some("simulated")).await.is_ok() {
                sleep(Duration::from_secs(rng.u64(1..60))).await;
                let _ = operator.resume_batch(queue, id, None, None).await;
            }
        }
        6 | 7 => {
            let key = operator.store.keys().batch(id);
            etcd.put(&key, UNREADABLE);
            sleep(Duration::from_secs(rng.u64(1..60))).await;
            if etcd.get(&key).as_deref() == Some(UNREADABLE.as_bytes()) {
                etcd.put(&key, serde_json::to_vec(batch).unwrap());
            }
        }
        8 => {
            let _ = operator.resume_batch(queue, id, None, None).await;
        }
        _ => {
            let _ = operator.cancel_batch(queue, id, None, Some("simulated")).await;
        }
    }
}

/// Resumes every batch.
pub async fn resume_all(operator: &Operator) {
    loop {
        if let Ok(view) = operator.store.read_view().await {
            let known = view.batches.iter().filter_map(|(id, stored)| Some((*id, stored.get()?)));
            let paused: Vec<_> = known.filter(|(_, b)| b.paused.is_some()).map(|(id, b)| (id, b.queue)).collect();
            let mut left = paused.len();
            for (id, queue) in paused {
                left -= usize::from(operator.resume_batch(queue, id, None, None).await.is_ok());
            }
            if left == 0 {
                return;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}
