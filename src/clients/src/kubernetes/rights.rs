//! The account's permissions, checked in advance: a missing one is named before a drain runs into it (SAF-4).

use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::json;

use super::{call::with_body, connect::Kube, error::KubeError};

/// Permissions that the queues need: verbs, group, resource. Events are for operators only. Without that permission
/// cketerm logs it once and goes on.
const REQUIRED_RIGHTS: &[Rights] = &[
    (&["get", "list", "watch", "patch"], "", "nodes"),
    (&["list", "watch", "delete"], "", "pods"),
    (&["create"], "", "pods/eviction"),
    (&["list", "watch"], "apps", "daemonsets"),
    (&["get", "list", "watch"], "", "namespaces"),
    (&["list", "watch"], "policy", "poddisruptionbudgets"),
];
/// Verb, group, resource.
type Right = (&'static str, &'static str, &'static str);
/// Verbs, group, resource.
type Rights = (&'static [&'static str], &'static str, &'static str);

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: Allowed,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Allowed {
    allowed: bool,
}

impl Kube {
    /// Returns the permissions that the queues need and this account lacks, like `create pods/eviction`. Empty if none
    /// is missing.
    pub async fn missing_rights(&self) -> Result<Vec<String>, KubeError> {
        // Administrators may do everything: one request instead of thirty.
        if self.may("*", "*", "*").await? {
            return Ok(Vec::new());
        }
        let mut required: Vec<Right> = Vec::new();
        for (verbs, group, resource) in REQUIRED_RIGHTS {
            required.extend(verbs.iter().map(|verb| (*verb, *group, *resource)));
        }
        let mut missing = Vec::new();
        for chunk in required.chunks(8) {
            let answers = chunk.iter().map(|(verb, group, resource)| self.may(verb, group, resource));
            for ((verb, group, resource), allowed) in chunk.iter().zip(try_join_all(answers).await?) {
                if !allowed {
                    let dot = if group.is_empty() { "" } else { "." };
                    missing.push(format!("{verb} {resource}{dot}{group}"));
                }
            }
        }
        Ok(missing)
    }

    /// Reports whether this account may use the verb on objects of this kind in every namespace
    /// (`SelfSubjectAccessReview`).
    pub async fn may(&self, verb: &str, group: &str, resource: &str) -> Result<bool, KubeError> {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes":
                {"verb": verb, "group": group, "resource": resource, "subresource": subresource}},
        });
        let answer: Result<Review, _> = self.send(with_body("POST", path, "application/json", &body)).await;
        answer.map(|r| r.status.allowed).map_err(|fault| self.error(&format!("POST {path}"), fault))
    }
}
