//! Nodes, pods and namespaces as stored in Kubernetes.

use std::collections::BTreeMap;

use cketerm_model::{
    agent::AgentAnnotations,
    kube::{CKE_ANNOTATION, KEEP_CORDONED_ANNOTATION, MAINTENANCE_ANNOTATION, OWNER_ANNOTATION, Owner},
    reboot_signals::REBOOT_NEEDED_ANNOTATION,
};
use jiff::Timestamp;
use serde_json::Value;

use super::timeline::Timeline;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A Node at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// `metadata.uid`.
    pub uid: String,
    /// `status.addresses`.
    pub addresses: Vec<String>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// `status.nodeInfo.bootID`.
    pub boot_id: String,
    /// Whether `status.volumesInUse` names any.
    pub volumes: bool,
    /// Whether CKE's annotation is `true`.
    pub marked: bool,
    /// The owner annotation: absent, readable, or unreadable.
    pub owner: Option<Result<Owner, ()>>,
    /// Whether an administrator keeps the cordon.
    pub keep: bool,
    /// Whether a taint or an annotation says that another program drains it.
    pub drained_by_other: bool,
    /// Value of the annotation that asks for a reboot.
    pub asks: Option<String>,
    /// Annotations of its agent.
    pub agent: AgentAnnotations,
}

impl Node {
    /// Reads the relevant fields of a Node.
    pub fn of(object: &Value) -> Self {
        let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
        let texts = |list: &Value, field: &str| -> Vec<String> {
            let items = list.as_array().into_iter().flatten();
            items.filter_map(|i| i[field].as_str().map(str::to_owned)).collect()
        };
        let conditions = object["status"]["conditions"].as_array();
        let ready = conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
        let taints = object["spec"]["taints"].as_array();
        let autoscaler = |taint: &Value| taint["key"] == "ToBeDeletedByClusterAutoscaler";
        let drained_by_other = taints.is_some_and(|taints| taints.iter().any(autoscaler))
            || (annotation("weave.works/kured-reboot-in-progress").is_some()
                && object["spec"]["unschedulable"] == true
                && annotation(OWNER_ANNOTATION).is_none()
                && annotation(MAINTENANCE_ANNOTATION).is_none()
                && annotation(CKE_ANNOTATION) != Some("true"));
        let owner = annotation(OWNER_ANNOTATION).or_else(|| annotation(MAINTENANCE_ANNOTATION));
        Self {
            uid: text(&object["metadata"]["uid"]),
            drained_by_other,
            addresses: texts(&object["status"]["addresses"], "address"),
            unschedulable: object["spec"]["unschedulable"] == true,
            ready,
            boot_id: text(&object["status"]["nodeInfo"]["bootID"]),
            volumes: object["status"]["volumesInUse"].as_array().is_some_and(|v| !v.is_empty()),
            marked: annotation(CKE_ANNOTATION) == Some("true"),
            owner: owner.map(|o| serde_json::from_str(o).map_err(|_| ())),
            keep: annotation(KEEP_CORDONED_ANNOTATION).is_some(),
            asks: annotation(REBOOT_NEEDED_ANNOTATION).map(str::to_owned),
            agent: AgentAnnotations::of(annotation),
        }
    }

    /// Returns the owner record, if it can be read.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()?.as_ref().ok()
    }

    /// Reports whether the owner record names this entry of the reboot queue.
    pub fn owned_by(&self, index: u64) -> bool {
        self.owner().is_some_and(|o| o.entry == cketerm_model::entry::EntryId::reboot(index))
    }
}

/// A pod at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct PodState {
    /// Node that it is bound to.
    pub node: String,
    /// `status.phase`.
    pub phase: String,
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// Time at which its deletion was requested.
    pub terminating: Option<Timestamp>,
    /// End of its grace period.
    pub grace_ends: Option<Timestamp>,
    /// Whether it is a static pod's mirror.
    pub mirror: bool,
    /// Kind and UID of its controller.
    pub controller: Option<(String, String)>,
    /// Labels of the pod.
    pub labels: Labels,
}

impl PodState {
    /// Reads the relevant fields of a Pod.
    pub fn of(object: &Value) -> Self {
        let meta = &object["metadata"];
        let owners = meta["ownerReferences"].as_array().into_iter().flatten();
        let mut owners = owners.filter(|o| o["controller"] == true);
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let grace = meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        let requested = meta["deletionTimestamp"].as_str().and_then(|t| t.parse::<Timestamp>().ok());
        Self {
            node: text(&object["spec"]["nodeName"]),
            phase: text(&object["status"]["phase"]),
            ready: conditions.any(|c| c["type"] == "Ready" && c["status"] == "True"),
            terminating: requested.map(|at| at.checked_sub(jiff::SignedDuration::from_secs(grace)).unwrap_or(at)),
            grace_ends: requested,
            mirror: meta["annotations"].get("kubernetes.io/config.mirror").is_some(),
            controller: owners.next().map(|o| (text(&o["kind"]), text(&o["uid"]))),
            labels: labels(&meta["labels"]),
        }
    }

    /// Reports whether a controller of this kind owns it.
    pub fn of_kind(&self, kind: &str) -> bool {
        self.controller.as_ref().is_some_and(|(k, _)| k == kind)
    }

    /// Reports whether it ended by itself.
    pub fn finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Reports whether it has to leave before its Node is rebooted (I19).
    pub fn blocks(&self) -> bool {
        !self.mirror
            && !self.finished()
            && !self.of_kind("DaemonSet")
            && !(self.of_kind("Job") && self.phase == "Pending")
    }
}

/// A pod from its creation to its end.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// States of the pod over time.
    pub states: Timeline<PodState>,
}

/// Returns a string value, or an empty string.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns labels as a map.
pub fn labels(value: &Value) -> Labels {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}
