//! BareMetalHosts: reads, and writes of the reboot interface's annotations. A patch names one annotation, cketerm's own
//! or the basic one, and no other (I44).

use cketerm_model::{
    host::{
        DETACHED_ANNOTATION, HOLD_PREFIX, HostRow, NODE_ANNOTATION, PAUSED_ANNOTATION, REBOOT_ANNOTATION,
        RebootAnnotations, TIMES_ANNOTATION, Times,
    },
    names::{Address, NodeName},
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    call::{percent_encode, with_body},
    connect::Kube,
    custom_resource::CustomResource,
    error::KubeError,
    nodes::{MERGE_PATCH, WriteError},
    wire::{Meta, Wire, time_or_max, time_or_nearest},
};

pub(super) const GROUP: &str = "/apis/metal3.io/v1alpha1";
/// The kind, which a cluster without Metal3 has not.
pub(super) const HOSTS: CustomResource = CustomResource {
    group: GROUP,
    path: "/apis/metal3.io/v1alpha1/baremetalhosts",
    absent: "it has no BareMetalHosts: Metal3's CRD is not installed",
};

#[derive(Clone, Deserialize)]
pub(super) struct Host {
    metadata: HostMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Deserialize)]
struct HostMeta {
    #[serde(flatten)]
    meta: Meta,
    #[serde(default, rename = "managedFields")]
    managed: Vec<Managed>,
}

impl Wire for Host {
    fn meta(&self) -> &Meta {
        &self.metadata.meta
    }
}

/// A field manager with the fields that it wrote last.
#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct Managed {
    manager: String,
    #[serde(deserialize_with = "time_or_max")]
    time: Option<Timestamp>,
    #[serde(rename = "fieldsV1")]
    fields: Value,
}

impl Managed {
    fn is_power_writer(&self) -> bool {
        !self.fields["f:status"]["f:poweredOn"].is_null()
    }
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    online: bool,
    externally_provisioned: bool,
    disable_power_off: bool,
    bmc: Bmc,
    consumer_ref: Option<Named>,
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Bmc {
    address: String,
    credentials_name: String,
    disable_certificate_verification: bool,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    powered_on: Option<bool>,
    provisioning: Provisioning,
    error_type: String,
    error_message: String,
    hardware: Option<Hardware>,
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Provisioning {
    state: String,
    #[serde(deserialize_with = "time_or_nearest")]
    last_powered_on: Option<Timestamp>,
    #[serde(deserialize_with = "time_or_nearest")]
    pending_reboot_since: Option<Timestamp>,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct Hardware {
    hostname: String,
    nics: Vec<Nic>,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct Nic {
    ip: String,
}

impl From<Host> for HostRow {
    fn from(Host { metadata, spec, status }: Host) -> Self {
        let HostMeta { meta: metadata, managed } = metadata;
        let writers = managed.into_iter().filter(Managed::is_power_writer);
        let power_writers = writers.filter_map(|m| Some((m.manager, m.time?))).collect();
        let hardware = status.hardware.unwrap_or_default();
        let saved_times = metadata.annotations.get(TIMES_ANNOTATION);
        let saved_times: Times = saved_times.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self {
            power_writers,
            deleting: metadata.deleting(),
            paused: metadata.annotations.contains_key(PAUSED_ANNOTATION),
            detached: metadata.annotations.contains_key(DETACHED_ANNOTATION),
            node: metadata.annotations.get(NODE_ANNOTATION).map(NodeName::new).unwrap_or_default(),
            asked: RebootAnnotations::from_annotations(&metadata.annotations),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            online: spec.online,
            externally_provisioned: spec.externally_provisioned,
            disable_power_off: spec.disable_power_off,
            bmc_address: spec.bmc.address,
            credentials: spec.bmc.credentials_name,
            any_certificate: spec.bmc.disable_certificate_verification,
            consumer: spec.consumer_ref.unwrap_or_default().name,
            powered_on: status.powered_on,
            provisioning: status.provisioning.state,
            last_powered_on: status.provisioning.last_powered_on.or(saved_times.last_powered_on),
            pending_reboot_since: status.provisioning.pending_reboot_since.or(saved_times.pending_reboot_since),
            error_type: status.error_type,
            error: status.error_message,
            hostname: hardware.hostname,
            addresses: hardware
                .nics
                .into_iter()
                .map(|nic| nic.ip)
                .filter(|ip| !ip.is_empty())
                .map(Address::new)
                .collect(),
        }
    }
}

impl Kube {
    /// Reads all BareMetalHosts. A cluster without Metal3 is an error that says so.
    pub async fn hosts(&self) -> Result<Vec<HostRow>, KubeError> {
        match self.list::<Host, HostRow>(HOSTS.path, "").await {
            Ok((rows, _)) => Ok(rows),
            Err(fault) => Err(self.custom_error(&HOSTS, HOSTS.path, fault)),
        }
    }

    /// Reads all BareMetalHosts; none for a cluster without Metal3. Errors: no definite answer.
    pub async fn hosts_if_served(&self) -> Result<Vec<HostRow>, KubeError> {
        if self.serves(&HOSTS).await? { self.hosts().await } else { Ok(Vec::new()) }
    }

    /// Reads one BareMetalHost. Returns none if it does not exist.
    pub async fn host(&self, namespace: &str, name: &str) -> Result<Option<HostRow>, KubeError> {
        Ok(self.get::<Host>(&host_path(namespace, name)).await?.map(HostRow::from))
    }

    /// Reads one BareMetalHost as the server stores it, for display. Returns none if it does not exist.
    pub async fn host_document(&self, namespace: &str, name: &str) -> Result<Option<Value>, KubeError> {
        self.get(&host_path(namespace, name)).await
    }

    /// Requests one power cycle for an operator. Errors: [`WriteError::Conflict`] if the host has changed since `host`
    /// was read.
    pub async fn request_reboot(&self, host: &HostRow, value: &str) -> Result<HostRow, WriteError> {
        self.annotate_host(host, REBOOT_ANNOTATION, json!(value)).await
    }

    /// Sets an operator's hold under this key. The host is turned off and stays off until the last key is gone.
    pub async fn hold_host(&self, host: &HostRow, key: &str, value: &str) -> Result<HostRow, WriteError> {
        self.annotate_host(host, &format!("{HOLD_PREFIX}{key}"), json!(value)).await
    }

    /// Removes this key and no other.
    pub async fn release_host(&self, host: &HostRow, key: &str) -> Result<HostRow, WriteError> {
        self.annotate_host(host, &format!("{HOLD_PREFIX}{key}"), Value::Null).await
    }

    /// Sets `spec.online` for an operator.
    pub async fn set_online(&self, host: &HostRow, online: bool) -> Result<HostRow, WriteError> {
        let body = json!({
            "metadata": {"resourceVersion": host.resource_version, "uid": host.uid}, "spec": {"online": online},
        });
        let path = host_path(&host.namespace, &host.name);
        Ok(self.send::<Host>(with_body("PATCH", &path, MERGE_PATCH, &body)).await?.into())
    }

    async fn annotate_host(&self, host: &HostRow, annotation: &str, value: Value) -> Result<HostRow, WriteError> {
        let body = json!({
            "metadata": {"resourceVersion": host.resource_version, "uid": host.uid, "annotations": {annotation: value}}
        });
        let path = host_path(&host.namespace, &host.name);
        Ok(self.send::<Host>(with_body("PATCH", &path, MERGE_PATCH, &body)).await?.into())
    }
}

pub(super) fn host_path(namespace: &str, name: &str) -> String {
    format!("{GROUP}/namespaces/{}/baremetalhosts/{}", percent_encode(namespace), percent_encode(name))
}
