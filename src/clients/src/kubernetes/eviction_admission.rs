//! Admission webhooks and policies that see evictions.
//!
//! The server passes an eviction to admission as the creation of the subresource `pods/eviction`. Selectors of objects
//! and namespaces, and conditions, are not evaluated here: a registration that may see some evictions counts for all.

use cketerm_model::drain::EvictionAdmission;
use serde::Deserialize;

use super::{connect::Kube, error::Fault};

/// Lists of all registrations. A server without one of them (404) has no such registrations.
const LISTS: [&str; 4] = [
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
];

/// The rules of a webhook configuration, or of a policy.
#[derive(Deserialize)]
struct Registration {
    #[serde(default)]
    webhooks: Vec<Webhook>,
    #[serde(default)]
    spec: Option<PolicySpec>,
}

#[derive(Deserialize)]
struct Webhook {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicySpec {
    #[serde(default)]
    match_constraints: Option<MatchConstraints>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MatchConstraints {
    #[serde(default)]
    resource_rules: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(default)]
    operations: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
}

impl Rule {
    fn matches_evictions(&self) -> bool {
        let creates = self.operations.iter().any(|operation| matches!(operation.as_str(), "*" | "CREATE"));
        // `*` alone stands for all resources without their subresources
        let evictions =
            |resource: &String| matches!(resource.as_str(), "*/*" | "pods/*" | "*/eviction" | "pods/eviction");
        creates && self.resources.iter().any(evictions)
    }
}

impl Registration {
    fn matches_evictions(&self) -> bool {
        let constraints = self.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
        let policy = constraints.and_then(|constraints| constraints.resource_rules.as_ref()).into_iter().flatten();
        self.webhooks.iter().flat_map(|webhook| &webhook.rules).chain(policy).any(Rule::matches_evictions)
    }
}

impl Kube {
    /// Reads which webhooks and policies are registered. If that cannot be read, for example without the permission, each
    /// pod counts as judged by itself.
    pub async fn eviction_admission(&self) -> EvictionAdmission {
        let reads = LISTS.iter().map(|path| async move {
            let some = |found: &mut bool, registration: Registration| *found |= registration.matches_evictions();
            match self.fold_list(path, "", some).await {
                Ok((found, _)) => !found,
                Err(Fault::Answered(status)) if status.code == 404 => true,
                Err(why) => {
                    tracing::debug!(%why, path, "admission of evictions is not known");
                    false
                }
            }
        });
        if futures::future::join_all(reads).await.into_iter().all(|none| none) {
            EvictionAdmission::BudgetsOnly
        } else {
            EvictionAdmission::EachPod
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn matches(registration: Value) -> bool {
        serde_json::from_value::<Registration>(registration).unwrap().matches_evictions()
    }

    #[test]
    fn webhooks_and_policies_for_the_creation_of_evictions_are_found() {
        let rule = |operation: &str, resource: &str| json!({"operations": [operation], "resources": [resource]});
        for (operation, resource, sees) in [
            ("CREATE", "pods/eviction", true),
            ("*", "*/*", true),
            ("CREATE", "pods/*", true),
            ("CREATE", "*/eviction", true),
            ("CREATE", "pods", false),
            ("CREATE", "*", false),
            ("DELETE", "pods/eviction", false),
            ("CREATE", "deployments/*", false),
        ] {
            let other = json!({"name": "other", "rules": [rule("CREATE", "nodes")]});
            let webhooks = json!([other, {"name": "w", "rules": [rule(operation, resource)]}]);
            assert_eq!(matches(json!({"webhooks": webhooks})), sees, "webhook: {operation} {resource}");
            let policy = json!({"spec": {"matchConstraints": {"resourceRules": [rule(operation, resource)]}}});
            assert_eq!(matches(policy), sees, "policy: {operation} {resource}");
        }
        assert!(!matches(json!({})));
        assert!(!matches(json!({"webhooks": [{"name": "w"}], "spec": {"matchConstraints": {"resourceRules": null}}})));
    }
}
