//! Redfish behind the interface of power drivers: the reset types of each request.

use std::sync::{Mutex, PoisonError};

use cketerm_model::host::Mode;
use futures::future::{BoxFuture, FutureExt};

use super::{client::Bmc, error::BmcError, system::System};
use crate::power::driver::{Evidence, Machine, PowerDriver, PowerError, PowerRequest, RequestNames, Target};

/// A machine behind a Redfish BMC.
#[derive(Debug)]
pub struct RedfishDriver {
    bmc: Bmc,
    target: Target,
    /// The system that was read last.
    known: Mutex<Option<System>>,
}

/// Returns the reset types that carry out a request, the preferred one first.
fn reset_types(request: PowerRequest) -> &'static [&'static str] {
    match request {
        PowerRequest::Off(Mode::Soft) => &["GracefulShutdown"],
        PowerRequest::Off(Mode::Hard) => &["ForceOff"],
        PowerRequest::On => &["On", "ForceOn"],
    }
}

fn machine_of(system: &System) -> Machine {
    let first = |request| system.first_offered(reset_types(request));
    Machine {
        id: system.path.clone(),
        name: system.name.clone(),
        power: system.power.clone(),
        reset_age: system.reset_age,
        requests: RequestNames {
            soft_off: first(PowerRequest::Off(Mode::Soft)),
            hard_off: first(PowerRequest::Off(Mode::Hard)),
            on: first(PowerRequest::On),
        },
        offered: system.offered().to_vec(),
    }
}

impl RedfishDriver {
    /// Creates the driver of a BMC's machine.
    pub fn new(bmc: Bmc) -> Self {
        let target = Target { kind: "BMC", name: bmc.origin().to_owned() };
        Self { bmc, target, known: Mutex::new(None) }
    }

    /// Discovers and reads the system.
    async fn discover(&self) -> Result<System, BmcError> {
        let system = self.bmc.system().await?;
        self.keep(&system);
        Ok(system)
    }

    fn keep(&self, system: &System) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(system.clone());
    }

    fn known(&self) -> Option<System> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the system, and the reset type that carries out a request.
    async fn offered(&self, request: PowerRequest) -> Result<(System, &'static str), PowerError> {
        let system = match self.known() {
            Some(known) => known,
            None => self.discover().await?,
        };
        let Some(kind) = system.first_offered(reset_types(request)) else {
            let (target, offered) = (self.target.clone(), system.offered().to_vec());
            return Err(PowerError::NotOffered { target, request, offered });
        };
        Ok((system, kind))
    }

    async fn send(&self, request: PowerRequest) -> Result<&'static str, PowerError> {
        let (system, kind) = self.offered(request).await?;
        match self.bmc.reset(&system, kind).await {
            // It may have been taken: the power state decides.
            Ok(()) | Err(BmcError::Silent { .. }) => Ok(kind),
            Err(e) => Err(e.into()),
        }
    }
}

impl PowerDriver for RedfishDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn evidence(&self) -> Evidence {
        Evidence::Bmc
    }

    fn usual_name(&self, request: PowerRequest) -> &'static str {
        reset_types(request).first().copied().unwrap_or_default()
    }

    fn read(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        async { Ok(machine_of(&self.discover().await?)) }.boxed()
    }

    fn read_again(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        async {
            let Some(known) = self.known() else { return self.read().await };
            let system = self.bmc.again(&known).await?;
            self.keep(&system);
            Ok(machine_of(&system))
        }
        .boxed()
    }

    fn ready_for(&self, request: PowerRequest) -> BoxFuture<'_, Result<(), PowerError>> {
        async move { self.offered(request).await.map(drop) }.boxed()
    }

    fn request(&self, request: PowerRequest) -> BoxFuture<'_, Result<&'static str, PowerError>> {
        self.send(request).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.bmc.close().boxed()
    }
}
