//! Check of the rights that policies need and the queues do not.

use cketerm_clients::kubernetes::Kube;
use cketerm_model::policy::Policy;
use cketerm_rules::doctor::{Checks, Subject};

/// A right that a policy needs.
struct Needed {
    policy: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    /// The loss without it.
    lost: &'static str,
    remedy: &'static str,
}

const CONDITIONS: Needed = Needed {
    policy: "node_conditions",
    verb: "patch",
    group: "",
    resource: "nodes/status",
    lost: "no condition is set or removed",
    remedy: "bind the role cketerm-conditions of docs/rbac.yaml (chart: rbac.conditions: true)",
};
const REQUESTS: Needed = Needed {
    policy: "maintenance_requests",
    verb: "patch",
    group: "cketerm.io",
    resource: "maintenancerequests",
    lost: "no request is accepted",
    remedy: "bind the role cketerm-maintenance-requests of docs/rbac.yaml (chart: rbac.maintenanceRequests: true)",
};
const REQUEST_STATUS: Needed =
    Needed { resource: "maintenancerequests/status", lost: "the status of requests is not written", ..REQUESTS };

/// Adds the rights that the policies in force need, and the custom resource of one of them.
pub(super) async fn add(policy: &Policy, kube: &Kube, found: &mut Checks) {
    if policy.node_conditions {
        check(&CONDITIONS, kube, found).await;
    }
    if policy.maintenance_requests {
        check(&REQUESTS, kube, found).await;
        check(&REQUEST_STATUS, kube, found).await;
        match kube.serves_maintenance_requests().await {
            Ok(true) => {}
            Ok(false) => found.warning(
                Subject::Kubernetes,
                "policy maintenance_requests is on, but the cluster has no MaintenanceRequests",
                "apply docs/maintenance-request-crd.yaml, or turn the policy off",
            ),
            Err(e) => found.unknown(Subject::Kubernetes, format!("MaintenanceRequests: {e}"), REQUESTS.remedy),
        }
    }
}

async fn check(right: &Needed, kube: &Kube, found: &mut Checks) {
    let Needed { policy, verb, group, resource, lost, remedy } = right;
    match kube.may(verb, group, resource).await {
        Ok(true) => {}
        Ok(false) => found.warning(
            Subject::Kubernetes,
            format!("policy {policy} is on, but this account must not {verb} {resource}: {lost}"),
            *remedy,
        ),
        Err(e) => found.unknown(
            Subject::Kubernetes,
            format!("the right to {verb} {resource}, which policy {policy} needs: {e}"),
            "let the API server answer",
        ),
    }
}
