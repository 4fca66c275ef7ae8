//! Admission of evictions: read once for all drains of a while.

use std::convert::Infallible;

use cketerm_model::drain::EvictionAdmission;

use super::Actor;

impl Actor {
    /// Returns the last read, or reads again after a while. A webhook that was registered since the read gets no dry
    /// run of some pods; it still decides on their evictions.
    pub(super) async fn eviction_admission(&self) -> EvictionAdmission {
        let read = async { Ok::<_, Infallible>(self.kube.eviction_admission().await) };
        let Ok(admission) = self.admission.get(|| self.steady.now().boot, read).await;
        admission
    }
}
