//! People and engines with exactly the rights of docs/rbac.yaml, on a real API server.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::World;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The documents of docs/rbac.yaml.
fn documented() -> Vec<Value> {
    let text = include_str!("../../../docs/rbac.yaml");
    let documents = serde_yaml::Deserializer::from_str(text);
    documents.map(|d| serde::Deserialize::deserialize(d).expect("docs/rbac.yaml is valid YAML")).collect()
}

impl World {
    /// Grants `user` these roles of docs/rbac.yaml (a `Role` in the namespace `default`) and nothing else. Returns a
    /// kubeconfig of the administrator who impersonates that user.
    pub fn granted(&self, user: &str, roles: &[&str]) -> PathBuf {
        let documents = documented();
        for name in roles {
            let role = documents.iter().find(|d| d["metadata"]["name"] == *name);
            let role = role.unwrap_or_else(|| panic!("docs/rbac.yaml has no {name}"));
            let (base_path, kind) = match role["kind"].as_str() {
                Some("ClusterRole") => (RBAC.to_owned(), "cluster"),
                _ => (format!("{RBAC}/namespaces/default"), ""),
            };
            // another test in this world may have created it already
            let (code, message) = self.call("POST", &format!("{base_path}/{kind}roles"), Some(role));
            assert!(code == 201 || code == 409, "{name}: {code} {message}");
            let binding = json!({
                "metadata": {"name": format!("{name}-{user}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": name},
                "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
            });
            self.ok("POST", &format!("{base_path}/{kind}rolebindings"), Some(&binding));
        }
        let text = std::fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        assert!(text.contains("user: {token:"), "{text}");
        let path = self.dir().join(format!("kubeconfig-{user}"));
        std::fs::write(&path, text.replace("user: {token:", &format!("user: {{as: {user}, token:")))
            .expect("a kubeconfig");
        path
    }

    /// Reports whether the user made such a request so far (with `audit`).
    pub fn asked(&self, user: &str, verb: &str, resource: &str) -> bool {
        let (kind, below) = resource.split_once('/').unwrap_or((resource, ""));
        self.audit().iter().any(|e| {
            let object = &e["objectRef"];
            e["impersonatedUser"]["username"] == user
                && e["verb"] == verb
                && object["resource"] == kind
                && object["subresource"].as_str().unwrap_or_default() == below
        })
    }

    /// Rights of this role of docs/rbac.yaml that the user has not used so far (with `audit`).
    pub fn unused(&self, user: &str, role: &str) -> Vec<String> {
        let documents = documented();
        let role = documents.iter().find(|d| d["metadata"]["name"] == role).expect("a role of docs/rbac.yaml");
        let words = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|w| w.as_str().map(str::to_owned)).collect()
        };
        let mut unused = Vec::new();
        for rule in role["rules"].as_array().expect("rules") {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]).into_iter().filter(|verb| !self.asked(user, verb, &resource)) {
                    unused.push(format!("{verb} {resource}"));
                }
            }
        }
        unused
    }

    /// Requests of that user that the API server refused so far: verb and address (with `audit`).
    pub fn refused(&self, user: &str) -> Vec<String> {
        let of = |e: &&Value| e["impersonatedUser"]["username"] == user && e["responseStatus"]["code"] == 403;
        let words =
            |e: &Value| format!("{} {}", e["verb"].as_str().unwrap_or("?"), e["requestURI"].as_str().unwrap_or("?"));
        self.audit().iter().filter(of).map(words).collect()
    }
}
