//! Writes of the Metal3 controller to BareMetalHosts, and its further reads: BMC passwords, and the upstream operator's
//! Lease. Every write needs a permit and carries a resourceVersion (MET-50; I23, I24).

use cketerm_model::{
    fence::Permit,
    host::{HOLD_PREFIX, HostRow, REBOOT_ANNOTATION, TIMES_ANNOTATION, Times},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    call::{percent_encode, with_body},
    connect::Kube,
    error::{Fault, KubeError},
    hosts::{Host, host_path},
    nodes::{MERGE_PATCH, WriteError},
};

/// Name of the baremetal-operator's Lease, in any namespace.
const OPERATOR: &str = "baremetal-operator";
/// cketerm's name in `managedFields`.
const FIELD_MANAGER: &str = "fieldManager=cketerm";

/// User name and password from a Secret. `Debug` shows neither.
pub struct Credentials {
    /// `username`.
    pub username: String,
    /// `password`.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: std::collections::BTreeMap<String, ByteString>,
}

#[derive(Deserialize)]
struct Lease {
    metadata: super::wire::Meta,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<Timestamp>,
    lease_duration_seconds: Option<i64>,
}

impl Lease {
    /// Describes the present holder. Returns none if nobody holds the Lease, or if it was not renewed for four times
    /// its duration (MET-29).
    fn holder(&self, now: Timestamp) -> Option<String> {
        let holder = self.spec.holder_identity.as_ref().filter(|h| !h.is_empty())?;
        let max_age = SignedDuration::from_secs(self.spec.lease_duration_seconds.unwrap_or(60).max(15) * 4);
        let is_fresh = self.spec.renew_time.is_some_and(|at| now.duration_since(at) < max_age);
        let place = &self.metadata.namespace;
        is_fresh.then(|| format!("the baremetal-operator runs ({holder} holds Lease {place}/{OPERATOR})"))
    }
}

impl Kube {
    /// Writes this part of the host's status. Errors: [`WriteError::Conflict`] if the host has changed since `host` was
    /// read.
    pub async fn set_host_status(&self, _: &Permit, host: &HostRow, status: &Value) -> Result<HostRow, WriteError> {
        self.patch_host(host, &format!("/status?{FIELD_MANAGER}"), json!({"status": status})).await
    }

    /// Keeps the two timestamps in cketerm's annotation, for servers whose resource definition drops them (MET-51).
    pub async fn annotate_times(&self, _: &Permit, host: &HostRow, times: Times) -> Result<HostRow, WriteError> {
        let text = serde_json::to_string(&times).unwrap_or_default();
        let annotations = json!({"metadata": {"annotations": {TIMES_ANNOTATION: text}}});
        self.patch_host(host, &format!("?{FIELD_MANAGER}"), annotations).await
    }

    /// Removes the basic annotation, or with `all` every annotation of the interface. `all` is for deprovisioned hosts
    /// only.
    pub async fn remove_reboot_requests(&self, _: &Permit, host: &HostRow, all: bool) -> Result<HostRow, WriteError> {
        let keys = host.asked.keys.keys().filter(|_| all).map(|key| format!("{HOLD_PREFIX}{key}"));
        let removed: Map<String, Value> =
            keys.chain([REBOOT_ANNOTATION.to_owned()]).map(|name| (name, Value::Null)).collect();
        self.patch_host(host, &format!("?{FIELD_MANAGER}"), json!({"metadata": {"annotations": removed}})).await
    }

    /// Reports whether the resource definition keeps both timestamps, by a dry run. The upstream definition drops them
    /// silently.
    pub async fn crd_keeps_times(&self, host: &HostRow, now: Timestamp) -> Result<bool, WriteError> {
        let times = Times { pending_reboot_since: Some(now), last_powered_on: Some(now) };
        let body = json!({"status": {"provisioning": times}});
        let place = format!("{}/status?dryRun=All&{FIELD_MANAGER}", host_path(&host.namespace, &host.name));
        let answer: Value = self.send(with_body("PATCH", &place, MERGE_PATCH, &body)).await?;
        let kept = &answer["status"]["provisioning"];
        Ok(kept["pendingRebootSince"].is_string() && kept["lastPoweredOn"].is_string())
    }

    /// Describes the holder of the upstream operator's Lease. Returns none if nobody holds it.
    pub async fn operator(&self, now: Timestamp) -> Result<Option<String>, KubeError> {
        let path = "/apis/coordination.k8s.io/v1/leases";
        let query = format!("fieldSelector=metadata.name%3D{OPERATOR}");
        let leases = self.list::<Lease, Lease>(path, &query).await;
        let (leases, _) = leases.map_err(|fault| self.error(&format!("GET {path}"), fault))?;
        // a server that does not support the selector returns all Leases
        Ok(leases.iter().filter(|lease| lease.metadata.name == OPERATOR).find_map(|lease| lease.holder(now)))
    }

    /// Reads a BMC's user name and password. Returns none if the Secret does not exist or lacks one of them. `name`
    /// comes from a BareMetalHost. If it is no object name, nothing is requested, so it never reaches outside this
    /// namespace.
    pub async fn credentials(&self, namespace: &str, name: &str) -> Result<Option<Credentials>, KubeError> {
        if !is_object_name(name) {
            return Ok(None);
        }
        let path = format!("/api/v1/namespaces/{}/secrets/{}", percent_encode(namespace), percent_encode(name));
        let Some(secret) = self.get::<Secret>(&path).await? else { return Ok(None) };
        let text = |key: &str| {
            let bytes = secret.data.get(key)?.0.clone();
            Some(String::from_utf8(bytes).ok()?.trim_end_matches('\n').to_owned())
        };
        let both = text("username").zip(text("password"));
        Ok(both.map(|(username, password)| Credentials { username, password }))
    }

    /// Sends one merge patch, conditioned on the host's resourceVersion and UID.
    async fn patch_host(&self, host: &HostRow, place: &str, mut patch: Value) -> Result<HostRow, WriteError> {
        patch["metadata"]["resourceVersion"] = json!(host.resource_version);
        patch["metadata"]["uid"] = json!(host.uid);
        let place = format!("{}{place}", host_path(&host.namespace, &host.name));
        let answer: Result<Host, Fault> = self.send(with_body("PATCH", &place, MERGE_PATCH, &patch)).await;
        Ok(answer?.into())
    }
}

/// Reports whether this is a DNS subdomain, as the names of Secrets are.
fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        ends(label.chars().next())
            && ends(label.chars().next_back())
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_name_cannot_escape_its_path() {
        assert!(["bmc", "bmc-1.rack.2", "0"].into_iter().all(is_object_name));
        let invalid =
            ["", ".", "..", "../kube-system/secrets/x", "a/b", "a%2fb", "A", "a..b", "-a", "a-", "a?b", "a\n"];
        assert!(!invalid.into_iter().any(is_object_name));
    }

    #[test]
    fn a_lease_that_is_not_renewed_has_no_holder() {
        let lease = |holder: &str, renewed: &str| -> Lease {
            let spec = json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15});
            serde_json::from_value(json!({"metadata": {"name": OPERATOR, "namespace": "bmo"}, "spec": spec})).unwrap()
        };
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let held = lease("pod-1", "2026-01-01T00:00:01.000000Z").holder(now).unwrap();
        assert!(held.contains("pod-1 holds Lease bmo/baremetal-operator"), "{held}");
        assert!(lease("pod-1", "2026-01-01T00:00:00Z").holder(now).is_none(), "the Lease has expired");
        assert!(lease("", "2026-01-01T00:00:59Z").holder(now).is_none(), "the Lease is released");
    }
}
