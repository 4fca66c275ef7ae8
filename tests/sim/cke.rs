//! A CKE beside the engines: a candidate without a registration, which waits for the lock, holds it for a while and
//! leaves. It processes nothing. Observers judge what cketerm accepts from people meanwhile (I52), and that work goes
//! on afterwards.

use std::time::Duration;

use cketerm_clients::store::Store;
use fastrand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{plan::FAULT_PERIOD, selection::Selection};

/// Lease of CKE; no engine has this one.
const LEASE: i64 = 0x0cce_0cce;

/// Random generator of CKE for one seed in eight. It is separate, so that the rest of the seed's scenario does not
/// change.
pub fn random_generator(seed: u64) -> Option<Rng> {
    let mut random = Rng::with_seed(seed ^ 0x0063_6b65_6c65_6164);
    (random.u8(0..8) == 0).then_some(random)
}

/// Campaigns once or twice, and is gone at the end of the day.
pub async fn campaign(store: &Store, mut rng: Rng, began: Instant, selection: &Selection) {
    // the first engine decides by the present candidates whether it may campaign, so CKE joins later
    let mut from = Duration::from_secs(rng.u64(90..400));
    for n in 0..rng.u32(1..3) {
        let long = Duration::from_secs(rng.u64(60..300));
        let wait = Duration::from_secs(rng.u64(60..400));
        let until = from + long;
        if until >= FAULT_PERIOD {
            return;
        }
        if selection.has(&format!("l{n}")) {
            sleep_until(began + from).await;
            let key = store.keys().leader(LEASE);
            while store.client().put(key.clone(), "boot-0", None).await.is_err() {
                sleep(Duration::from_secs(1)).await;
            }
            sleep_until(began + until).await;
            while store.client().delete(key.clone(), None).await.is_err() {
                sleep(Duration::from_secs(1)).await;
            }
        }
        from = until + wait;
    }
}
