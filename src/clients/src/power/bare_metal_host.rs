//! The driver of BareMetalHosts: it turns a machine off and on through Metal3's reboot interface. A key of its own holds
//! the host off, and it adds and removes no other key (I44, MET-16). The controller of the hosts does the rest.

use cketerm_model::{
    clock::Clock,
    host::{Hindrance, HostRow, Mode, POWER_KEY, held_by},
    power_state::PowerState,
};
use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::OnceCell;

use super::{
    connector::Connector,
    driver::{Evidence, Machine, PowerDriver, PowerError, PowerRequest, RequestNames, Target},
    fault::Key,
    registration::{Found, Need, Registration},
    settings::{Entry, InventoryError},
};
use crate::kubernetes::{Kube, KubeError, KubeSettings, WriteError};

/// Registration of the driver.
pub(super) const REGISTRATION: Registration =
    Registration { name: "bare-metal-host", for_many: None, check, needs, create };

/// Number of attempts of a write. Metal3's operator writes hosts frequently.
const TRIES: u32 = 8;

/// Keys of the settings.
const KEYS: &[Key] = &[Key::new("host", "write NAMESPACE/NAME")];

/// Settings in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// `NAMESPACE/NAME`.
    host: String,
}

/// Failure of a request to a BareMetalHost.
#[derive(Debug, thiserror::Error)]
enum HostError {
    /// Kubernetes cannot be reached, or refuses the request.
    #[error("BareMetalHost {0}: {1}")]
    Kube(String, #[source] KubeError),
    /// There is no such host.
    #[error("BareMetalHost {0} not found; see `hosts list`")]
    Missing(String),
    /// The host would not carry out the request (MET-17).
    #[error("BareMetalHost {name}: cannot {} the host: {why}", .request.verb())]
    Hindered {
        /// The host.
        name: String,
        /// The request.
        request: PowerRequest,
        /// The reason.
        #[source]
        why: Hindrance,
    },
    /// Other clients hold the host off.
    #[error("BareMetalHost {name} is {}", held_by(.name, .keys))]
    Held {
        /// The host.
        name: String,
        /// The keys of the clients.
        keys: Vec<String>,
    },
    /// The write was refused.
    #[error("BareMetalHost {0}: {1}")]
    Write(String, #[source] WriteError),
    /// Every attempt of the write met a change by somebody else, or got no answer.
    #[error("BareMetalHost {0} kept changing or did not answer; check `hosts list`, then try again")]
    KeepsChanging(String),
}

impl From<HostError> for PowerError {
    fn from(e: HostError) -> Self {
        match e {
            HostError::Kube(..)
            | HostError::Write(..)
            | HostError::KeepsChanging(_)
            // The controller may recover while the machine must be turned on.
            | HostError::Hindered { request: PowerRequest::On, why: Hindrance::Error(_), .. } => Self::Failed(e.into()),
            HostError::Missing(_) | HostError::Hindered { .. } | HostError::Held { .. } => Self::Refused(e.into()),
        }
    }
}

/// A machine that is a BareMetalHost.
#[derive(Debug)]
struct BareMetalHostDriver {
    namespace: String,
    name: String,
    target: Target,
    settings: KubeSettings,
    /// The connection, made at the first request.
    kube: OnceCell<Kube>,
}

impl BareMetalHostDriver {
    fn of(entry: &Entry<'_>, settings: KubeSettings) -> Result<Self, InventoryError> {
        let Settings { host } = entry.driver_settings(KEYS)?;
        let Some((namespace, name)) = host.split_once('/').filter(|(n, m)| !n.is_empty() && !m.is_empty()) else {
            return Err(entry.wrong("host: write NAMESPACE/NAME"));
        };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let target = Target { kind: "BareMetalHost", name: host };
        Ok(Self { namespace, name, target, settings, kube: OnceCell::new() })
    }

    fn full_name(&self) -> String {
        self.target.name.clone()
    }

    async fn kube(&self) -> Result<&Kube, HostError> {
        let connected = self.kube.get_or_try_init(|| Kube::connect(&self.settings, Clock::host())).await;
        connected.map_err(|e| HostError::Kube(self.full_name(), e))
    }

    async fn host(&self) -> Result<HostRow, HostError> {
        let host = self.kube().await?.host(&self.namespace, &self.name).await;
        host.map_err(|e| HostError::Kube(self.full_name(), e))?.ok_or_else(|| HostError::Missing(self.full_name()))
    }

    /// Holds the host off under cketerm's key. A soft hold becomes hard if `mode` is hard, and a hard one stays.
    async fn hold(&self, mode: Mode) -> Result<(), HostError> {
        let value = json!({"mode": mode, "by": "cketerm power"}).to_string();
        for _ in 0..TRIES {
            let host = self.host().await?;
            self.check(&host, PowerRequest::Off(mode))?;
            if host.asked.keys.get(POWER_KEY).is_some_and(|value| Mode::of(value) >= mode) {
                return Ok(());
            }
            let written = self.kube().await?.hold_host(&host, POWER_KEY, &value).await;
            if self.is_written(written)? {
                return Ok(());
            }
        }
        Err(HostError::KeepsChanging(self.full_name()))
    }

    /// Removes cketerm's key. The host stays off while other clients hold it, or if it should be off.
    async fn release(&self) -> Result<(), HostError> {
        for _ in 0..TRIES {
            let host = self.host().await?;
            if !host.asked.keys.contains_key(POWER_KEY) {
                return self.check(&host, PowerRequest::On);
            }
            let written = self.kube().await?.release_host(&host, POWER_KEY).await;
            if self.is_written(written)? {
                return Ok(());
            }
        }
        Err(HostError::KeepsChanging(self.full_name()))
    }

    /// Checks that the host would carry out a request.
    fn check(&self, host: &HostRow, request: PowerRequest) -> Result<(), HostError> {
        let name = self.full_name();
        if let Some(why) = host.hindrance() {
            return Err(HostError::Hindered { name, request, why });
        }
        let keys = host.other_holders();
        match request {
            PowerRequest::On if !keys.is_empty() => Err(HostError::Held { name, keys }),
            PowerRequest::On | PowerRequest::Off(_) => Ok(()),
        }
    }

    /// Reports whether a write was done. After a conflict or a lost answer the host is read again first.
    fn is_written(&self, written: Result<HostRow, WriteError>) -> Result<bool, HostError> {
        match written {
            Ok(_) => Ok(true),
            Err(WriteError::Conflict | WriteError::NoAnswer(_)) => Ok(false),
            Err(e @ (WriteError::NotFound | WriteError::Refused { .. })) => Err(HostError::Write(self.full_name(), e)),
        }
    }

    async fn send(&self, request: PowerRequest) -> Result<&'static str, PowerError> {
        match request {
            PowerRequest::Off(mode) => self.hold(mode).await?,
            PowerRequest::On => self.release().await?,
        }
        Ok(self.usual_name(request))
    }
}

impl PowerDriver for BareMetalHostDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn evidence(&self) -> Evidence {
        Evidence::Reported
    }

    fn usual_name(&self, request: PowerRequest) -> &'static str {
        match request {
            PowerRequest::Off(Mode::Soft) => "soft hold",
            PowerRequest::Off(Mode::Hard) => "hard hold",
            PowerRequest::On => "release",
        }
    }

    fn read(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        async {
            let host = self.host().await?;
            let power = power_state(&host);
            let name = |request| Some(self.usual_name(request));
            Ok(Machine {
                id: self.full_name(),
                name: host.name,
                power,
                reset_age: None,
                requests: RequestNames {
                    soft_off: name(PowerRequest::Off(Mode::Soft)),
                    hard_off: name(PowerRequest::Off(Mode::Hard)),
                    on: name(PowerRequest::On),
                },
                offered: Vec::new(),
            })
        }
        .boxed()
    }

    fn read_again(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        self.read()
    }

    fn ready_for(&self, request: PowerRequest) -> BoxFuture<'_, Result<(), PowerError>> {
        async move { Ok(self.check(&self.host().await?, request)?) }.boxed()
    }

    fn request(&self, request: PowerRequest) -> BoxFuture<'_, Result<&'static str, PowerError>> {
        self.send(request).boxed()
    }
}

/// Returns the power of a host, with Redfish's names of what is about to change. The status alone would call a machine
/// on that cketerm's key is about to turn off, and one off that the controller is about to turn on.
fn power_state(host: &HostRow) -> PowerState {
    match host.powered_on {
        Some(true) if host.asked.keys.contains_key(POWER_KEY) => PowerState::Other("PoweringOff".to_owned()),
        Some(true) => PowerState::On,
        Some(false) if host.asked.keys.is_empty() && host.hindrance().is_none() => {
            PowerState::Other("PoweringOn".to_owned())
        }
        Some(false) => PowerState::Off,
        None => PowerState::Unknown,
    }
}

fn check(entry: &Entry<'_>) -> Result<Vec<String>, InventoryError> {
    BareMetalHostDriver::of(entry, KubeSettings::default()).map(|_| Vec::new())
}

fn needs(entry: &Entry<'_>) -> Vec<Need> {
    let driver = BareMetalHostDriver::of(entry, KubeSettings::default());
    driver.map(|driver| Need::Host { namespace: driver.namespace, name: driver.name }).into_iter().collect()
}

fn create(entry: &Entry<'_>, connector: &Connector) -> Result<Found, InventoryError> {
    let driver = BareMetalHostDriver::of(entry, connector.kube.clone())?;
    Ok(Found { driver: Box::new(driver), timeouts: entry.timeouts(), warning: None })
}

#[cfg(test)]
mod tests;
