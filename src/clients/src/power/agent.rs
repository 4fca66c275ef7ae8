//! The driver of nodes with an agent (`cketerm agent`): the order to reboot is an annotation of the Node, and the agent
//! answers there. It can neither turn a machine off nor on.

mod error;
mod order;
#[cfg(test)]
mod tests;

use std::time::Duration;

use cketerm_model::clock::Clock;
use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::OnceCell,
};

use self::error::AgentError;
pub use self::order::AgentOrder;
use super::{
    connector::Connector,
    driver::{Machine, PowerDriver, PowerError, PowerRequest, Report, Restart, Target},
    fault::Key,
    registration::{Found, Need, Registration},
    settings::{Entry, InventoryError},
};
use crate::kubernetes::{Kube, KubeSettings};

/// Registration of the driver.
pub(super) const REGISTRATION: Registration =
    Registration { name: "agent", for_many: Some(|_| Ok(())), check, needs, create };

/// Time in which an agent has to answer, in seconds, if the file sets none.
const DEADLINE_SECONDS: u64 = 60;
/// Shortest and longest such time. An agent obeys only until 5 s before the deadline.
const DEADLINE_RANGE: std::ops::RangeInclusive<u64> = 15..=1800;
/// Keys of the settings.
const KEYS: &[Key] = &[Key::new("deadline-seconds", "write a number of seconds, 15 to 1800")];

/// Settings in the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Settings {
    deadline_seconds: Option<u64>,
}

/// A machine whose agent reboots it.
#[derive(Debug)]
struct AgentDriver {
    target: Target,
    address: String,
    deadline: Duration,
    settings: KubeSettings,
    /// The order with its connection, made at the first request. So one driver gives at most one order.
    order: OnceCell<AgentOrder>,
}

impl AgentDriver {
    fn of(entry: &Entry<'_>, settings: KubeSettings) -> Result<Self, InventoryError> {
        let Settings { deadline_seconds } = entry.optional_settings(KEYS)?;
        let seconds = deadline_seconds.unwrap_or(DEADLINE_SECONDS);
        if !DEADLINE_RANGE.contains(&seconds) {
            let (least, most) = (DEADLINE_RANGE.start(), DEADLINE_RANGE.end());
            return Err(entry.wrong(format_args!("deadline-seconds must be {least} to {most}")));
        }
        Ok(Self {
            target: Target { kind: "agent", name: format!("of {}", entry.name) },
            address: entry.name.to_owned(),
            deadline: Duration::from_secs(seconds),
            settings,
            order: OnceCell::new(),
        })
    }

    async fn order(&self) -> Result<&AgentOrder, AgentError> {
        let connect = || async {
            let kube = Kube::connect(&self.settings, Clock::host()).await?;
            let id = unique_id(kube.clock());
            let attempt = attempt_id().unwrap_or_else(|| format!("manual-{id}"));
            Ok(AgentOrder::new(kube, &self.address, id, attempt, self.deadline))
        };
        self.order.get_or_try_init(connect).await
    }

    async fn reboot(&self, report: Report<'_>) -> Result<(), PowerError> {
        let mut stop = signal(SignalKind::terminate()).map_err(AgentError::Signal)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(AgentError::Signal)?;
        let cancelled = async {
            tokio::select! {
                _ = stop.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        self.order().await?.give(report, cancelled).await
    }
}

/// Returns the engine's id of this attempt, or `None` for a person's command.
fn attempt_id() -> Option<String> {
    std::env::var("CKETERM_ATTEMPT").ok().filter(|id| !id.is_empty() && id.len() <= 128)
}

/// Returns an id that no other process gives.
fn unique_id(clock: &Clock) -> String {
    format!("{}-{}", clock.wall().as_nanosecond(), std::process::id())
}

impl PowerDriver for AgentDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn usual_name(&self, _: PowerRequest) -> &'static str {
        "reboot"
    }

    fn read(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        async { self.order().await?.machine().await }.boxed()
    }

    fn ready_for(&self, request: PowerRequest) -> BoxFuture<'_, Result<(), PowerError>> {
        std::future::ready(Err(PowerError::only_restarts(&self.target, request))).boxed()
    }

    fn request(&self, request: PowerRequest) -> BoxFuture<'_, Result<&'static str, PowerError>> {
        async move { self.ready_for(request).await.map(|()| "reboot") }.boxed()
    }

    fn as_restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }
}

impl Restart for AgentDriver {
    fn ready(&self) -> BoxFuture<'_, Result<String, PowerError>> {
        async { Ok(self.order().await?.check_ready().await?) }.boxed()
    }

    fn restart<'a>(&'a self, report: Report<'a>) -> BoxFuture<'a, Result<(), PowerError>> {
        self.reboot(report).boxed()
    }
}

fn check(entry: &Entry<'_>) -> Result<Vec<String>, InventoryError> {
    AgentDriver::of(entry, KubeSettings::default()).map(|_| Vec::new())
}

fn needs(_: &Entry<'_>) -> Vec<Need> {
    vec![Need::Agent]
}

fn create(entry: &Entry<'_>, connector: &Connector) -> Result<Found, InventoryError> {
    let driver = AgentDriver::of(entry, connector.kube.clone())?;
    Ok(Found { driver: Box::new(driver), timeouts: entry.timeouts(), warning: None })
}
