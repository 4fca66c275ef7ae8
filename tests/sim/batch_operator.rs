//! Operator who pauses, resumes and cancels batches at the worst moments. A pause is ended before the day ends, because a
//! permanent one would block the queue, and the engine would not be at fault.

use std::time::Duration;

use cketerm_actions::Operator;
use cketerm_model::{batch::BatchId, entry::QueueKind};
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{plan::FAULT_PERIOD, selection::Selection};

/// Returns the generator of this seed, if the operator works in it: in every second one.
pub fn random_generator(seed: u64) -> Option<Rng> {
    let mut rng = Rng::with_seed(seed ^ 0x6261_7463_6865);
    rng.bool().then(|| rng.fork())
}

/// Acts until the end of the day.
pub async fn work(operator: Operator, mut rng: Rng, began: Instant, selection: &Selection) {
    let (mut at, mut n) = (began, 0);
    loop {
        at += Duration::from_millis(rng.u64(2_000..60_000));
        if at >= began + FAULT_PERIOD {
            return;
        }
        sleep_until(at).await;
        let mut random = rng.fork();
        if selection.has(&format!("b{n}")) {
            act(&operator, &mut random).await;
        }
        n += 1;
    }
}

async fn act(operator: &Operator, rng: &mut Rng) {
    let Ok(view) = operator.store.read_view().await else { return };
    let known = view.batches.iter().filter_map(|(id, stored)| Some((*id, stored.get()?)));
    // those that still have entries, so that a pause matters
    let open: Vec<(BatchId, QueueKind)> = known
        .filter(|(id, _)| view.entries_of_batch(*id).next().is_some())
        .map(|(id, batch)| (id, batch.queue))
        .collect();
    let Some(&(id, queue)) = (!open.is_empty()).then(|| &open[rng.usize(..open.len())]) else { return };
    match rng.u32(0..10) {
        0..8 => {
            if operator.pause_batch(queue, id, Some("simulated")).await.is_ok() {
                sleep(Duration::from_secs(rng.u64(1..60))).await;
                let _ = operator.resume_batch(queue, id, None).await;
            }
        }
        8 => {
            let _ = operator.resume_batch(queue, id, None).await;
        }
        _ => {
            let _ = operator.cancel_batch(queue, id, Some("simulated")).await;
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
                left -= usize::from(operator.resume_batch(queue, id, None).await.is_ok());
            }
            if left == 0 {
                return;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}
