//! One Node and the annotations that a node's agent and its power driver exchange on it: a watch of this Node alone, and
//! patches that name only these annotations. Each is conditioned on the Node's resourceVersion and UID.

use std::{collections::BTreeMap, time::Duration};

use cketerm_model::{agent::AgentAnnotations, kube::NodeRow, names::NodeName};
use futures::StreamExt;
use kube::core::WatchEvent;
use serde_json::json;
use tokio::sync::watch;

use super::{
    call::{CALL_TIMEOUT, get, percent_encode, with_body},
    connect::Kube,
    error::{Fault, KubeError},
    nodes::{MERGE_PATCH, WriteError},
    read::node_path,
    wire::Node,
};

/// Timeout in seconds after which the server is asked to end the watch.
const WATCH_SECONDS: u64 = 290;
/// A watch that is silent for this long is reopened. The server sends a bookmark about once a minute.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// First and longest wait after a failure.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// State of the watched Node.
#[derive(Clone, Debug, Default)]
pub enum Watched {
    /// It was not read yet.
    #[default]
    Starting,
    /// It cannot be read now; the reason.
    Failed(String),
    /// There is no such Node.
    Missing,
    /// The Node.
    Present(Box<NodeRow>),
}

/// Returns the agent's annotations of a Node.
pub fn agent_annotations(node: &NodeRow) -> AgentAnnotations {
    AgentAnnotations::of(|name| node.described.annotations.get(name))
}

/// Whether a write is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// It is carried out.
    Out,
    /// The server only checks that it could be.
    DryRun,
}

impl Kube {
    /// Sets and removes (`None`) these annotations of a Node, and nothing else. Errors: [`WriteError::Conflict`] if the
    /// Node has changed since `node` was read.
    pub async fn annotate_node(
        &self,
        node: &NodeRow,
        changes: &BTreeMap<&'static str, Option<String>>,
        carry: Carry,
    ) -> Result<NodeRow, WriteError> {
        let body = json!({
            "metadata": {"resourceVersion": node.resource_version, "uid": node.uid, "annotations": changes},
        });
        let query = match carry {
            Carry::Out => "",
            Carry::DryRun => "?dryRun=All",
        };
        let path = format!("{}{query}", node_path(&node.name));
        let answer: Node = self.send(with_body("PATCH", &path, MERGE_PATCH, &body)).await?;
        Ok(answer.into())
    }

    /// Follows one Node until the future is dropped: one read and one watch of it, again after each end. Failures are
    /// sent too, and retried with growing pauses.
    pub async fn follow_node(&self, name: &NodeName, to: &watch::Sender<Watched>) {
        let mut pause = RETRY_DELAY.0;
        loop {
            let failed = match self.node(name).await {
                Ok(Some(row)) => {
                    let version = row.resource_version.clone();
                    to.send_replace(Watched::Present(Box::new(row)));
                    pause = RETRY_DELAY.0;
                    match self.watch_node(name, &version, to).await {
                        Ok(()) => None,
                        Err(fault) => Some(self.error(&format!("watch of Node {name}"), fault).to_string()),
                    }
                }
                Ok(None) => {
                    to.send_replace(Watched::Missing);
                    None
                }
                Err(e) => Some(e.to_string()),
            };
            if let Some(why) = failed {
                to.send_replace(Watched::Failed(why));
            }
            // Many agents must not come back at the same moment.
            let jitter = self.clock.wall().subsec_nanosecond().unsigned_abs() % 256;
            tokio::time::sleep(pause.mul_f64(0.75 + f64::from(jitter) / 512.0)).await;
            pause = (pause * 2).min(RETRY_DELAY.1);
        }
    }

    /// Follows one watch to its end.
    async fn watch_node(&self, name: &NodeName, version: &str, to: &watch::Sender<Watched>) -> Result<(), Fault> {
        let url = format!(
            "/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}\
             &fieldSelector=metadata.name%3D{}",
            percent_encode(name)
        );
        let request = get(&url).map_err(|e| Fault::Silent(e.to_string()))?;
        let opening = self.client.request_events::<Node>(request);
        let stream = tokio::time::timeout(CALL_TIMEOUT, opening)
            .await
            .map_err(|_| Fault::Silent(format!("no answer within {} s", CALL_TIMEOUT.as_secs())))??;
        let mut stream = std::pin::pin!(stream);
        while let Ok(next) = tokio::time::timeout(IDLE_TIMEOUT, stream.next()).await {
            match next.transpose()? {
                None => return Ok(()),
                Some(WatchEvent::Added(node) | WatchEvent::Modified(node)) => {
                    to.send_replace(Watched::Present(Box::new(NodeRow::from(node))));
                }
                Some(WatchEvent::Deleted(_)) => {
                    to.send_replace(Watched::Missing);
                }
                Some(WatchEvent::Bookmark(_)) => {}
                // The history is gone: read again.
                Some(WatchEvent::Error(status)) if status.code == 410 => return Ok(()),
                Some(WatchEvent::Error(status)) => return Err(Fault::Answered(status)),
            }
        }
        Ok(())
    }

    /// Reads the one Node with this address. Errors: several Nodes claim it.
    pub async fn node_at(&self, address: &str) -> Result<Result<NodeRow, String>, KubeError> {
        let has = |row: &NodeRow| row.addresses.iter().any(|a| a == address);
        let mut found: Vec<NodeRow> = self.nodes().await?.into_iter().filter(has).collect();
        Ok(match (found.pop(), found.as_slice()) {
            (None, _) => Err(format!("no Node has the address {address}")),
            (Some(row), []) => Ok(row),
            (Some(row), others) => {
                let names: Vec<&str> = others.iter().chain([&row]).map(|row| row.name.as_str()).collect();
                Err(format!("Nodes {} all claim the address {address}", names.join(", ")))
            }
        })
    }
}
