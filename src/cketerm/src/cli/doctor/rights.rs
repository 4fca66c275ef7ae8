//! Check of the rights that policies need and the queues do not.

use cketerm_clients::kubernetes::Kube;
use cketerm_model::policy::Policy;
use cketerm_rules::doctor::{Checks, Subject};

/// Adds the rights that the policies in force need.
pub(super) async fn add(policy: &Policy, kube: &Kube, found: &mut Checks) {
    if !policy.node_conditions {
        return;
    }
    match kube.may("patch", "", "nodes/status").await {
        Ok(true) => {}
        Ok(false) => found.warning(
            Subject::Kubernetes,
            "policy node_conditions is on, but this account must not patch nodes/status: no condition is set or removed",
            "bind the role cketerm-conditions of docs/rbac.yaml (chart: rbac.conditions: true)",
        ),
        Err(e) => found.unknown(
            Subject::Kubernetes,
            format!("the right to patch nodes/status, which policy node_conditions needs: {e}"),
            "let the API server answer",
        ),
    }
}
