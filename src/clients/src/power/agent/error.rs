//! Failures of an order to a node's agent.

use jiff::Timestamp;

use crate::{
    kubernetes::{KubeError, WriteError},
    power::driver::PowerError,
};

/// Failure of an order to a node's agent. Each text says whether the machine may reboot nevertheless.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    /// Kubernetes does not answer, or refuses.
    #[error("{0}")]
    Kube(#[from] KubeError),
    /// No single Node belongs to the machine.
    #[error("{0}; nothing was ordered: correct the Nodes or the definition")]
    Node(String),
    /// No agent has reported.
    #[error("no agent reports on Node {node}, so nothing was ordered: run `cketerm agent` there (docs/agent.md)")]
    NoAgent {
        /// The Node.
        node: String,
    },
    /// The agent or the kubelet still shows another boot.
    #[error(
        "Node {node}: the agent reports boot {agent} and the kubelet boot {kubelet}, so nothing was ordered; look at \
         the one that is not running"
    )]
    BootIds {
        /// The Node.
        node: String,
        /// Boot id that the agent reports.
        agent: String,
        /// Boot id that the kubelet reports.
        kubelet: String,
    },
    /// Another order is open.
    #[error("Node {node} has another order ({attempt}) until {deadline}, so nothing was ordered; wait for its end")]
    Pending {
        /// The Node.
        node: String,
        /// Attempt of that order.
        attempt: String,
        /// Its deadline.
        deadline: Timestamp,
    },
    /// The order could not be written.
    #[error("Node {node}: the order was not written: {why}")]
    Write {
        /// The Node.
        node: String,
        /// The reason.
        #[source]
        why: WriteError,
    },
    /// The agent refused.
    #[error("the agent of Node {node} refused to reboot: {why}")]
    Refused {
        /// The Node.
        node: String,
        /// The agent's reason.
        why: String,
    },
    /// Somebody removed or replaced the order.
    #[error("Node {node}: somebody removed or replaced the order before it was answered; nothing was rebooted by it")]
    Replaced {
        /// The Node.
        node: String,
    },
    /// The agent did not answer.
    #[error(
        "the agent of Node {node} did not answer within {seconds} s; the order was withdrawn and nothing was rebooted: \
         look at the agent there"
    )]
    Silent {
        /// The Node.
        node: String,
        /// The time that was waited.
        seconds: u64,
    },
    /// The command was cancelled.
    #[error("cancelled: the order to the agent of Node {node} was withdrawn and nothing was rebooted")]
    Cancelled {
        /// The Node.
        node: String,
    },
    /// The command was cancelled after the agent had obeyed.
    #[error("cancelled too late: the agent of Node {node} has taken the order, and the machine reboots")]
    CancelledTooLate {
        /// The Node.
        node: String,
    },
    /// The order may still be obeyed.
    #[error("Node {node}: the order could not be withdrawn and may be obeyed until {deadline}: {why}")]
    NotWithdrawn {
        /// The Node.
        node: String,
        /// Its deadline.
        deadline: Timestamp,
        /// The reason.
        why: String,
    },
    /// Signals cannot be received, so an order could not be withdrawn.
    #[error("signals cannot be received, so nothing was ordered: {0}")]
    Signal(#[source] std::io::Error),
}

impl From<AgentError> for PowerError {
    fn from(e: AgentError) -> Self {
        match e {
            AgentError::NoAgent { .. } | AgentError::BootIds { .. } | AgentError::Node(_) => Self::Refused(e.into()),
            AgentError::Kube(_)
            | AgentError::Pending { .. }
            | AgentError::Write { .. }
            | AgentError::Refused { .. }
            | AgentError::Replaced { .. }
            | AgentError::Silent { .. }
            | AgentError::Cancelled { .. }
            | AgentError::CancelledTooLate { .. }
            | AgentError::NotWithdrawn { .. }
            | AgentError::Signal(_) => Self::Failed(e.into()),
        }
    }
}
