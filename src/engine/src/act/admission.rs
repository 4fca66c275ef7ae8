//! Admission of evictions: read once for all drains of a while.

use std::sync::Arc;

use cketerm_model::{
    boot_time::{BootTime, Seconds},
    drain::EvictionAdmission,
};

use super::Actor;

/// Time for which all drains share one read. A webhook that was registered since then gets no dry run of some pods; it
/// still decides on their evictions.
const SHARED_FOR: Seconds = Seconds::new(30.0);

/// Last read of the webhooks and policies that see evictions, and its time.
#[derive(Clone, Debug, Default)]
pub struct SharedAdmission(Arc<tokio::sync::Mutex<Option<(BootTime, EvictionAdmission)>>>);

impl Actor {
    /// Returns the last read, or reads again after a while.
    pub(super) async fn eviction_admission(&self) -> EvictionAdmission {
        let mut shared = self.admission.0.lock().await;
        let fresh = shared.filter(|(at, _)| self.steady.now().boot - *at < SHARED_FOR);
        if let Some((_, admission)) = fresh {
            return admission;
        }
        let admission = self.kube.eviction_admission().await;
        *shared = Some((self.steady.now().boot, admission));
        admission
    }
}
