//! The election: the recipe of Go's `concurrency.Election` over `leader/`, so that CKE and cketerm never both lead.

use std::time::Duration;

use super::{connect::Store, error::StoreError};
use crate::{
    fence::{Fence, Life},
    model::ours::EngineRegistration,
};

/// Our place in the line, held by a lease that is kept alive until this is dropped or resigned.
#[derive(Debug)]
pub struct Candidacy {
    lease: i64,
    life: Life,
}

impl Candidacy {
    /// Takes a lease and writes, in one transaction under it, the key in `leader/` and the registration.
    pub async fn stand(
        store: &Store,
        ttl: Duration,
        host: &str,
        registration: EngineRegistration,
    ) -> Result<Self, StoreError> {
        let _ = (store, ttl, host, registration);
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Our lease.
    pub fn lease(&self) -> i64 {
        self.lease
    }

    /// Waits until every candidate before us is gone.
    pub async fn elected(&mut self) -> Result<Fence, StoreError> {
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// The lease's clock.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Resolves once the lease or the key in `leader/` is gone.
    pub async fn lost(&self) {
        std::future::pending().await
    }

    /// Writes the registration anew (programs found, probes seen).
    pub async fn register_again(&self, registration: EngineRegistration) -> Result<(), StoreError> {
        let _ = registration;
        Err(StoreError::Settings("not yet".to_owned()))
    }

    /// Gives the place up: nothing may begin any more, then the lease is revoked.
    pub async fn resign(self) {
        self.life.end();
    }
}
