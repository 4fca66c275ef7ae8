//! One order to a node's agent: given, then answered or withdrawn. The answer and the withdrawal exclude each other,
//! because each compares the Node's resourceVersion.

use std::{collections::BTreeMap, time::Duration};

use cketerm_model::{
    agent::{AgentAnnotations, Answer, ORDER_ANNOTATION, Order, json},
    fault,
    kube::NodeRow,
    power_state::PowerState,
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;

use super::error::AgentError;
use crate::{
    kubernetes::{Carry, Kube, WriteError, agent_annotations},
    power::driver::{Machine, PowerError, Report, RequestNames},
};

/// Number of attempts of a write. A kubelet writes its Node's status meanwhile.
const TRIES: u32 = 8;
/// Interval between two looks for the answer.
const POLL: Duration = Duration::from_secs(1);
/// Number of looks after an order was obeyed: a reboot that fails at once is reported in this time.
const OBEYED_POLLS: u32 = 8;

/// An order to the agent of one machine. Its times are by the clock of the connection.
#[derive(Debug)]
pub struct AgentOrder {
    kube: Kube,
    address: String,
    id: String,
    attempt: String,
    /// Time in which the agent has to answer.
    timeout: Duration,
}

/// State of an order on its Node.
enum Standing {
    /// The agent obeys it.
    Obeyed,
    /// It has no answer yet.
    Open,
}

impl AgentOrder {
    /// Creates an order that is not given yet, for the machine with this address. No other order may have the id.
    pub fn new(kube: Kube, address: &str, id: String, attempt: String, timeout: Duration) -> Self {
        Self { kube, address: address.to_owned(), id, attempt, timeout }
    }

    /// Reads the machine's Node.
    pub(super) async fn node(&self) -> Result<NodeRow, AgentError> {
        self.kube.node_at(&self.address).await?.map_err(AgentError::Node)
    }

    /// Reads the Node again by its name. Errors: it is gone, or another one has its name.
    async fn again(&self, node: &NodeRow) -> Result<NodeRow, AgentError> {
        let found = self.kube.node(&node.name).await?.filter(|row| row.uid == node.uid);
        found.ok_or_else(|| AgentError::Node(format!("Node {} was deleted meanwhile", node.name)))
    }

    /// Checks that an agent reports for this boot of the machine. Returns the agent's version.
    fn check_agent(node: &NodeRow) -> Result<String, AgentError> {
        let name = node.name.to_string();
        let report = agent_annotations(node).report().ok_or_else(|| AgentError::NoAgent { node: name.clone() })?;
        if report.boot_id != node.boot_id || node.boot_id.is_empty() {
            let (agent, kubelet) = (report.boot_id, node.boot_id.clone());
            return Err(AgentError::BootIds { node: name, agent, kubelet });
        }
        Ok(report.version)
    }

    /// Returns the answer to this order. One for another boot is none: the kubelet shows whether the machine has booted.
    fn answer_to(annotations: &AgentAnnotations, order: &Order) -> Option<Answer> {
        fault!(AnswerOfAnother => return annotations.answer());
        let boot_id = &order.boot_id;
        annotations.answer().filter(|answer| answer.is_to(order, &[boot_id]) && answer.boot_id == *boot_id)
    }

    /// Returns the state of the order. Errors: the agent refused it, or somebody replaced it.
    fn standing(node: &NodeRow, order: &Order) -> Result<Standing, AgentError> {
        let (annotations, name) = (agent_annotations(node), node.name.to_string());
        if let Some(answer) = Self::answer_to(&annotations, order) {
            if answer.obeyed {
                return Ok(Standing::Obeyed);
            }
            return Err(AgentError::Refused { node: name, why: answer.why.unwrap_or_default() });
        }
        match annotations.order() {
            Some(Ok(found)) if found.id == order.id && found.attempt == order.attempt => Ok(Standing::Open),
            Some(_) | None => Err(AgentError::Replaced { node: name }),
        }
    }

    /// Writes the order, and returns it with its Node. If it is there already, it is left as it is.
    async fn write(&self, deadline: Timestamp) -> Result<(NodeRow, Order), AgentError> {
        let (mut last, mut unsure) = (None, false);
        for _ in 0..TRIES {
            let node = self.node().await?;
            Self::check_agent(&node)?;
            let annotations = agent_annotations(&node);
            let (id, attempt, boot_id) = (self.id.clone(), self.attempt.clone(), node.boot_id.clone());
            let order = Order { id, attempt, boot_id, deadline };
            // An answer may come before the driver learns that the order was written.
            if unsure && Self::answer_to(&annotations, &order).is_some() {
                return Ok((node, order));
            }
            match annotations.order() {
                Some(Ok(found)) if found.id == self.id && found.attempt == self.attempt => return Ok((node, found)),
                Some(Ok(found)) if found.deadline > self.kube.clock().wall() => {
                    let boot_ids = [found.boot_id.as_str(), &node.boot_id];
                    if !annotations.answer().is_some_and(|answer| answer.is_to(&found, &boot_ids)) {
                        let (node, deadline) = (node.name.to_string(), found.deadline);
                        return Err(AgentError::Pending { node, attempt: found.attempt, deadline });
                    }
                }
                Some(_) | None => {}
            }
            let change = BTreeMap::from([(ORDER_ANNOTATION, Some(json(&order)))]);
            match self.kube.annotate_node(&node, &change, Carry::Out).await {
                Ok(written) => return Ok((written, order)),
                // After a lost answer, the Node shows whether the order is there.
                Err(e @ (WriteError::Conflict | WriteError::NoAnswer(_))) => {
                    unsure |= matches!(e, WriteError::NoAnswer(_));
                    last = Some(e);
                }
                Err(e @ (WriteError::NotFound | WriteError::Refused { .. })) => {
                    return Err(AgentError::Write { node: node.name.to_string(), why: e });
                }
            }
        }
        let why = last.unwrap_or(WriteError::Conflict);
        Err(AgentError::Write { node: format!("of {}", self.address), why })
    }

    /// Waits for the answer. Returns false if there is none at the deadline.
    async fn is_obeyed_in_time(&self, node: &NodeRow, order: &Order) -> Result<bool, AgentError> {
        let mut seen = Ok(node.clone());
        loop {
            match &seen {
                Ok(row) if row.boot_id != node.boot_id => return Ok(true),
                Ok(row) => match Self::standing(row, order)? {
                    Standing::Obeyed => return self.is_under_way(node, order).await.map(|()| true),
                    Standing::Open => {}
                },
                // The API server may be back in time.
                Err(AgentError::Kube(_)) => {}
                Err(_) => return seen.map(|_| false),
            }
            if self.kube.clock().wall() >= order.deadline {
                return Ok(false);
            }
            sleep(POLL).await;
            seen = self.again(node).await;
        }
    }

    /// Watches an obeyed order for a moment. Errors: the agent says that the reboot failed. A machine that no longer
    /// reports is going down.
    async fn is_under_way(&self, node: &NodeRow, order: &Order) -> Result<(), AgentError> {
        for _ in 0..OBEYED_POLLS {
            sleep(POLL).await;
            match self.again(node).await {
                Ok(row) if row.boot_id != node.boot_id => break,
                Ok(row) => match Self::standing(&row, order)? {
                    Standing::Obeyed | Standing::Open => {}
                },
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Removes the order unless the agent has answered. Returns whether the agent obeyed it before.
    pub(super) async fn withdraw(&self, node: &NodeRow, order: &Order) -> Result<bool, AgentError> {
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
            match Self::standing(&row, order)? {
                Standing::Obeyed => return Ok(true),
                Standing::Open => {}
            }
            let change = BTreeMap::from([(ORDER_ANNOTATION, None)]);
            match self.kube.annotate_node(&row, &change, Carry::Out).await {
                Ok(_) => return Ok(false),
                Err(e) => last = e.to_string(),
            }
        }
        Err(AgentError::NotWithdrawn { node: node.name.to_string(), deadline: order.deadline, why: last })
    }

    /// Gives the order and waits until the agent obeys it. Without an answer in time, or when `cancelled` completes, the
    /// order is withdrawn.
    pub async fn give(&self, report: Report<'_>, cancelled: impl Future<Output = ()>) -> Result<(), PowerError> {
        Ok(self.obeyed(report, cancelled).await?)
    }

    async fn obeyed(&self, report: Report<'_>, cancelled: impl Future<Output = ()>) -> Result<(), AgentError> {
        let timeout = SignedDuration::try_from(self.timeout).unwrap_or(SignedDuration::MAX);
        let deadline = self.kube.clock().wall().saturating_add(timeout).unwrap_or(Timestamp::MAX);
        let (node, order) = self.write(deadline).await?;
        let name = node.name.to_string();
        tracing::info!(node = name, attempt = self.attempt, id = self.id, "ordered the node's agent to reboot");
        report(&format!("order {} given to the agent of Node {name}; waiting until {deadline:.0}", self.attempt));
        let is_cancelled = tokio::select! {
            // a known answer counts even if the command is cancelled in the same moment
            biased;
            obeyed = self.is_obeyed_in_time(&node, &order) => {
                if obeyed? {
                    return Ok(());
                }
                false
            }
            () = cancelled => true,
        };
        match (self.withdraw(&node, &order).await?, is_cancelled) {
            // The answer came at the last moment. An agent that notices that it was too late takes it back.
            (true, false) => self.is_under_way(&node, &order).await,
            (true, true) => Err(AgentError::CancelledTooLate { node: name }),
            (false, true) => Err(AgentError::Cancelled { node: name }),
            (false, false) => Err(AgentError::Silent { node: name, seconds: self.timeout.as_secs() }),
        }
    }

    /// Checks the agent and the right to give it an order, by a write that the server does not carry out.
    pub(super) async fn check_ready(&self) -> Result<String, AgentError> {
        let node = self.node().await?;
        let version = Self::check_agent(&node)?;
        let change = BTreeMap::from([(ORDER_ANNOTATION, None)]);
        match self.kube.annotate_node(&node, &change, Carry::DryRun).await {
            Ok(_) | Err(WriteError::Conflict) => {
                Ok(format!("the agent of Node {} (version {version}) can be given an order", node.name))
            }
            Err(why) => Err(AgentError::Write { node: node.name.to_string(), why }),
        }
    }

    /// Reads the machine, as far as its Node shows it.
    pub async fn machine(&self) -> Result<Machine, PowerError> {
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
}
