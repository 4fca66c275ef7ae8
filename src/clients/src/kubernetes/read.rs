//! Fresh reads, answered from a quorum and never from a cache.

use std::{sync::Arc, time::Duration};

use cketerm_model::{
    boot_time::Seconds,
    kube::{BudgetRow, KubeView, NamespaceRow, NodeRow, PodRow},
    names::NodeName,
};
use jiff::Timestamp;

use super::{
    call::{CALL_TIMEOUT, get, percent_encode},
    connect::Kube,
    error::{Fault, KubeError},
    wire::{Budget, Namespace, Node, Pod},
};

impl Kube {
    /// Reads the UID of the namespace `kube-system`, which identifies the cluster.
    pub async fn cluster_uid(&self) -> Result<String, KubeError> {
        let path = "/api/v1/namespaces/kube-system";
        self.get::<Namespace>(path).await?.map(String::from).ok_or_else(|| KubeError::Refused {
            origin: self.origin.to_string(),
            what: format!("GET {path}"),
            code: 404,
            message: "no kube-system namespace, so this is not a complete cluster".to_owned(),
        })
    }

    /// Reads the API server's version, for example `v1.35.4`.
    pub async fn version(&self) -> Result<String, KubeError> {
        let path = "/version";
        let answer = self.get::<serde_json::Value>(path).await?.unwrap_or_default();
        Ok(answer["gitVersion"].as_str().unwrap_or("unknown version").to_owned())
    }

    /// Returns the API server's clock minus the local one, from the `Date` of an answer. `Date` has whole
    /// seconds, truncated. So the result is exact to half a second and half the round trip.
    pub async fn clock_ahead(&self) -> Result<Seconds, KubeError> {
        let what = "GET /readyz";
        match self.query_server_time().await {
            Ok(Some(ahead)) => Ok(ahead),
            Ok(None) => Err(KubeError::Refused {
                origin: self.origin.to_string(),
                what: what.to_owned(),
                code: 200,
                message: "the answer has no readable Date header".to_owned(),
            }),
            Err(fault) => Err(self.error(what, fault)),
        }
    }

    /// Sends a cheap request that any account may send. Any answer shows that the server answers, and brings its time.
    /// The server's own judgement of its health does not matter.
    pub(super) async fn query_server_time(&self) -> Result<Option<Seconds>, Fault> {
        let request = get("/readyz").map_err(|e| Fault::Silent(e.to_string()))?;
        let (sent, from) = (self.clock.boot(), self.clock.wall());
        let answer = tokio::time::timeout(CALL_TIMEOUT, self.client.send(request.map(kube::client::Body::from)))
            .await
            .map_err(|_| Fault::Silent(format!("no answer within {} s", CALL_TIMEOUT.as_secs())))?
            .map_err(Fault::from)?;
        let round_trip = self.clock.boot().saturating_duration_since(sent);
        let date = answer.headers().get("date").and_then(|d| d.to_str().ok()).and_then(http_date);
        Ok(date.map(|date| ahead(date, from, round_trip)))
    }

    /// Reads one Node. Returns none if it does not exist.
    pub async fn node(&self, name: &NodeName) -> Result<Option<NodeRow>, KubeError> {
        Ok(self.get::<Node>(&node_path(name)).await?.map(NodeRow::from))
    }

    /// Reads one Node as the server stores it, for display. Returns none if it does not exist.
    pub async fn node_document(&self, name: &NodeName) -> Result<Option<serde_json::Value>, KubeError> {
        self.get(&node_path(name)).await
    }

    /// Reads all Nodes.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, KubeError> {
        let path = "/api/v1/nodes";
        let rows = self.list::<Node, NodeRow>(path, "").await;
        Ok(rows.map_err(|fault| self.error(&format!("GET {path}"), fault))?.0)
    }

    /// Reads what drains depend on beside the pods: all namespaces and all budgets, in a view that holds nothing else.
    pub async fn read_drain_objects(&self) -> Result<KubeView, KubeError> {
        let (namespaces_path, budgets_path) = ("/api/v1/namespaces", "/apis/policy/v1/poddisruptionbudgets");
        let (namespaces, budgets) = tokio::join!(
            self.list::<Namespace, NamespaceRow>(namespaces_path, ""),
            self.list::<Budget, BudgetRow>(budgets_path, "")
        );
        let mut view = KubeView::default();
        for row in namespaces.map_err(|fault| self.error(&format!("GET {namespaces_path}"), fault))?.0 {
            view.namespaces.insert(row.name.clone(), Arc::new(row));
        }
        for row in budgets.map_err(|fault| self.error(&format!("GET {budgets_path}"), fault))?.0 {
            view.budgets.insert((row.namespace.clone(), row.name.clone()), Arc::new(row));
        }
        Ok(view)
    }

    /// Reads all pods bound to this Node, in any phase.
    pub async fn pods_on(&self, node: &NodeName) -> Result<Vec<PodRow>, KubeError> {
        let rows = self.list::<Pod, PodRow>("/api/v1/pods", &on_node(node)).await;
        Ok(rows.map_err(|fault| self.error(&format!("GET pods on {node}"), fault))?.0)
    }
}

/// Returns the path of a Node.
pub(super) fn node_path(name: &NodeName) -> String {
    format!("/api/v1/nodes/{}", percent_encode(name))
}

/// Returns the query for the pods of a Node.
pub(super) fn on_node(node: &NodeName) -> String {
    format!("fieldSelector=spec.nodeName%3D{}", percent_encode(node))
}

/// Returns the server's clock minus the local one. The server's time lies in the second that `date` begins;
/// the local time is taken in the middle of the round trip.
fn ahead(date: Timestamp, sent: Timestamp, round_trip: Duration) -> Seconds {
    Seconds::from(date.duration_since(sent)) + Seconds::new(0.5) - Seconds::from(round_trip) / 2.0
}

/// Parses an HTTP date like `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    let plain = text.strip_suffix(" GMT")?;
    jiff::fmt::rfc2822::parse(&format!("{plain} +0000")).ok().map(|z| z.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_header_is_parsed() {
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap().as_second(), 784_111_777);
        assert!(http_date("yesterday").is_none());
    }

    #[test]
    fn equal_clocks_differ_by_at_most_half_a_second_and_half_a_round_trip() {
        let second = Timestamp::from_second(1_000).unwrap();
        for millis in [0, 250, 999] {
            let sent = second.checked_add(jiff::SignedDuration::from_millis(millis)).unwrap();
            assert!(ahead(second, sent, Duration::from_millis(10)).abs() <= Seconds::new(0.506));
        }
        assert!(
            ahead(second, second.checked_sub(jiff::SignedDuration::from_secs(20)).unwrap(), Duration::ZERO)
                > Seconds::new(19.0)
        );
    }
}
