//! The driver of nodes with an agent (`cketerm agent`): the order to reboot is an annotation of the Node, and the agent
//! answers there. It can neither turn a machine off nor on.

mod error;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use cketerm_model::{
    agent::{AgentAnnotations, Answer, ORDER_ANNOTATION, Order, json},
    clock::Clock,
    kube::NodeRow,
    power_state::PowerState,
};
use futures::future::{BoxFuture, FutureExt};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::OnceCell,
    time::sleep,
};

use self::error::AgentError;
use super::{
    connector::Connector,
    driver::{Machine, PowerDriver, PowerError, PowerRequest, Report, RequestNames, Restart, Target},
    fault::Key,
    registration::{Found, Need, Registration},
    settings::{Entry, InventoryError},
};
use crate::kubernetes::{Carry, Kube, KubeSettings, WriteError, agent_annotations};

/// Registration of the driver.
pub(super) const REGISTRATION: Registration =
    Registration { name: "agent", for_many: Some(|_| Ok(())), check, needs, create };

/// Time in which an agent has to answer, in seconds, if the file sets none.
const DEADLINE_SECONDS: u64 = 60;
/// Shortest and longest such time. An agent obeys only until 5 s before the deadline.
const DEADLINE_RANGE: std::ops::RangeInclusive<u64> = 15..=1800;
/// Number of attempts of a write. A kubelet writes its Node's status meanwhile.
const TRIES: u32 = 8;
/// Interval between two looks for the answer.
const POLL: Duration = Duration::from_secs(1);
/// Number of looks after an order was obeyed: a reboot that fails at once is reported in this time.
const OBEYED_POLLS: u32 = 8;

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
    /// Id of the attempt. An order with the same id is never given again.
    attempt: String,
    deadline: Duration,
    settings: KubeSettings,
    /// The connection, made at the first request.
    kube: OnceCell<Kube>,
}

/// State of an order on its Node.
enum Standing {
    /// The agent obeys it.
    Obeyed,
    /// It has no answer yet.
    Open,
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
            attempt: attempt_id(),
            deadline: Duration::from_secs(seconds),
            settings,
            kube: OnceCell::new(),
        })
    }

    async fn kube(&self) -> Result<&Kube, AgentError> {
        Ok(self.kube.get_or_try_init(|| Kube::connect(&self.settings, Clock::host())).await?)
    }

    /// Reads the machine's Node.
    async fn node(&self) -> Result<NodeRow, AgentError> {
        self.kube().await?.node_at(&self.address).await?.map_err(AgentError::Node)
    }

    /// Reads the Node again by its name. Errors: it is gone, or another one has its name.
    async fn again(&self, node: &NodeRow) -> Result<NodeRow, AgentError> {
        let found = self.kube().await?.node(&node.name).await?.filter(|row| row.uid == node.uid);
        found.ok_or_else(|| AgentError::Node(format!("Node {} was deleted meanwhile", node.name)))
    }

    /// Checks that an agent reports for this boot of the machine.
    fn check_agent(node: &NodeRow) -> Result<String, AgentError> {
        let name = node.name.to_string();
        let report = agent_annotations(node).report().ok_or_else(|| AgentError::NoAgent { node: name.clone() })?;
        if report.boot_id != node.boot_id || node.boot_id.is_empty() {
            let (agent, kubelet) = (report.boot_id, node.boot_id.clone());
            return Err(AgentError::BootIds { node: name, agent, kubelet });
        }
        Ok(report.version)
    }

    /// Returns the answer to this driver's order. One for another boot is of an earlier queue, in which an attempt had the
    /// same name.
    fn answer_in(&self, annotations: &AgentAnnotations, boot_id: &str) -> Option<Answer> {
        annotations.answer().filter(|answer| answer.attempt == self.attempt && answer.boot_id == boot_id)
    }

    /// Returns the state of this driver's order, which was given in the boot `boot_id`. Errors: the agent refused it, or
    /// somebody replaced it.
    fn standing(&self, node: &NodeRow, boot_id: &str) -> Result<Standing, AgentError> {
        let (annotations, name) = (agent_annotations(node), node.name.to_string());
        if let Some(answer) = self.answer_in(&annotations, boot_id) {
            if answer.obeyed {
                return Ok(Standing::Obeyed);
            }
            return Err(AgentError::Refused { node: name, why: answer.why.unwrap_or_default() });
        }
        match annotations.order() {
            Some(Ok(order)) if order.attempt == self.attempt => Ok(Standing::Open),
            Some(_) | None => Err(AgentError::Replaced { node: name }),
        }
    }

    /// Writes the order. An order of the same attempt that is there already is left as it is.
    async fn give(&self, deadline: Timestamp) -> Result<NodeRow, AgentError> {
        let mut last = None;
        for _ in 0..TRIES {
            let node = self.node().await?;
            Self::check_agent(&node)?;
            let annotations = agent_annotations(&node);
            let answered = |attempt: &str| annotations.answer().is_some_and(|answer| answer.attempt == attempt);
            if self.answer_in(&annotations, &node.boot_id).is_some() {
                return Ok(node);
            }
            match annotations.order() {
                Some(Ok(order)) if order.attempt == self.attempt => return Ok(node),
                Some(Ok(order)) if !answered(&order.attempt) && order.deadline > Clock::host().wall() => {
                    let (node, deadline) = (node.name.to_string(), order.deadline);
                    return Err(AgentError::Pending { node, attempt: order.attempt, deadline });
                }
                Some(_) | None => {}
            }
            let order = Order { attempt: self.attempt.clone(), boot_id: node.boot_id.clone(), deadline };
            let change = BTreeMap::from([(ORDER_ANNOTATION, Some(json(&order)))]);
            match self.kube().await?.annotate_node(&node, &change, Carry::Out).await {
                Ok(written) => return Ok(written),
                // After a lost answer, the Node shows whether the order is there.
                Err(e @ (WriteError::Conflict | WriteError::NoAnswer(_))) => last = Some(e),
                Err(e @ (WriteError::NotFound | WriteError::Refused { .. })) => {
                    return Err(AgentError::Write { node: node.name.to_string(), why: e });
                }
            }
        }
        let why = last.unwrap_or(WriteError::Conflict);
        Err(AgentError::Write { node: format!("of {}", self.address), why })
    }

    /// Waits for the answer. Returns false if there is none at the deadline.
    async fn is_obeyed_in_time(&self, node: &NodeRow, deadline: Timestamp) -> Result<bool, AgentError> {
        let mut seen = Ok(node.clone());
        loop {
            match &seen {
                Ok(row) if row.boot_id != node.boot_id => return Ok(true),
                Ok(row) => match self.standing(row, &node.boot_id)? {
                    Standing::Obeyed => return self.is_under_way(node).await.map(|()| true),
                    Standing::Open => {}
                },
                // The API server may be back in time.
                Err(AgentError::Kube(_)) => {}
                Err(_) => return seen.map(|_| false),
            }
            if Clock::host().wall() >= deadline {
                return Ok(false);
            }
            sleep(POLL).await;
            seen = self.again(node).await;
        }
    }

    /// Watches an obeyed order for a moment. Errors: the agent says that the reboot failed. A machine that no longer
    /// reports is going down.
    async fn is_under_way(&self, node: &NodeRow) -> Result<(), AgentError> {
        for _ in 0..OBEYED_POLLS {
            sleep(POLL).await;
            match self.again(node).await {
                Ok(row) if row.boot_id != node.boot_id => break,
                Ok(row) => match self.standing(&row, &node.boot_id)? {
                    Standing::Obeyed | Standing::Open => {}
                },
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Removes the order unless the agent has answered. Returns whether the agent obeyed it before.
    async fn withdraw(&self, node: &NodeRow, deadline: Timestamp) -> Result<bool, AgentError> {
        let left = |why: String| AgentError::NotWithdrawn { node: node.name.to_string(), deadline, why };
        let mut last = String::new();
        for _ in 0..TRIES {
            let row = match self.again(node).await {
                Ok(row) => row,
                Err(e) => {
                    last = e.to_string();
                    sleep(POLL / 4).await;
                    continue;
                }
            };
            match self.standing(&row, &node.boot_id)? {
                Standing::Obeyed => return Ok(true),
                Standing::Open => {}
            }
            let change = BTreeMap::from([(ORDER_ANNOTATION, None)]);
            match self.kube().await?.annotate_node(&row, &change, Carry::Out).await {
                Ok(_) => return Ok(false),
                Err(e) => last = e.to_string(),
            }
        }
        Err(left(last))
    }

    async fn reboot(&self, report: Report<'_>) -> Result<(), AgentError> {
        let seconds = SignedDuration::try_from(self.deadline).unwrap_or(SignedDuration::MAX);
        let deadline = Clock::host().wall().saturating_add(seconds).unwrap_or(Timestamp::MAX);
        let mut stop = signal(SignalKind::terminate()).map_err(AgentError::Signal)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(AgentError::Signal)?;
        let node = self.give(deadline).await?;
        let name = node.name.to_string();
        tracing::info!(node = name, attempt = self.attempt, "ordered the node's agent to reboot");
        report(&format!("order {} given to the agent of Node {name}; waiting until {deadline:.0}", self.attempt));
        let cancelled = tokio::select! {
            obeyed = self.is_obeyed_in_time(&node, deadline) => {
                if obeyed? {
                    return Ok(());
                }
                false
            }
            _ = stop.recv() => true,
            _ = interrupt.recv() => true,
        };
        match (self.withdraw(&node, deadline).await?, cancelled) {
            // The answer came at the last moment.
            (true, false) => Ok(()),
            (true, true) => Err(AgentError::CancelledTooLate { node: name }),
            (false, true) => Err(AgentError::Cancelled { node: name }),
            (false, false) => Err(AgentError::Silent { node: name, seconds: self.deadline.as_secs() }),
        }
    }

    /// Checks the agent and the right to give it an order, by a write that the server does not carry out.
    async fn check_ready(&self) -> Result<String, AgentError> {
        let node = self.node().await?;
        let version = Self::check_agent(&node)?;
        let change = BTreeMap::from([(ORDER_ANNOTATION, None)]);
        match self.kube().await?.annotate_node(&node, &change, Carry::DryRun).await {
            Ok(_) | Err(WriteError::Conflict) => {
                Ok(format!("the agent of Node {} (version {version}) can be given an order", node.name))
            }
            Err(why) => Err(AgentError::Write { node: node.name.to_string(), why }),
        }
    }
}

/// Returns the id of this attempt: the engine's, or a new one for a person's command.
fn attempt_id() -> String {
    let given = std::env::var("CKETERM_ATTEMPT").ok().filter(|id| !id.is_empty() && id.len() <= 128);
    given.unwrap_or_else(|| format!("manual-{}-{}", Clock::host().wall().as_nanosecond(), std::process::id()))
}

impl PowerDriver for AgentDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn usual_name(&self, _: PowerRequest) -> &'static str {
        "reboot"
    }

    fn read(&self) -> BoxFuture<'_, Result<Machine, PowerError>> {
        async {
            let node = self.node().await?;
            Ok(Machine {
                id: node.boot_id,
                name: node.name.to_string(),
                // A Node that is not Ready may be off, or not.
                power: if node.ready { PowerState::On } else { PowerState::Unknown },
                reset_age: None,
                requests: RequestNames::default(),
                offered: vec!["reboot".to_owned()],
            })
        }
        .boxed()
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
        async { Ok(self.check_ready().await?) }.boxed()
    }

    fn restart<'a>(&'a self, report: Report<'a>) -> BoxFuture<'a, Result<(), PowerError>> {
        async move { Ok(self.reboot(report).await?) }.boxed()
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
