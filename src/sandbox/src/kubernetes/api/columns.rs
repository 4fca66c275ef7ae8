//! Columns of `kubectl get` for each kind, as in kube-apiserver's printers.

use super::{cells as c, table::Column};
use crate::kubernetes::Resource;

/// Returns the columns of a kind.
pub(super) fn of(kind: &'static Resource) -> &'static [Column] {
    match kind.plural {
        "nodes" => NODES,
        "pods" => PODS,
        "namespaces" => NAMESPACES,
        "poddisruptionbudgets" => BUDGETS,
        "jobs" => JOBS,
        "deployments" => DEPLOYMENTS,
        "replicasets" => REPLICA_SETS,
        "daemonsets" => DAEMON_SETS,
        "statefulsets" => STATEFUL_SETS,
        "events" => EVENTS,
        "leases" => LEASES,
        "endpoints" => ENDPOINTS,
        "endpointslices" => SLICES,
        "services" => SERVICES,
        "configmaps" => CONFIG_MAPS,
        "volumeattachments" => ATTACHMENTS,
        "baremetalhosts" => HOSTS,
        _ => PLAIN,
    }
}

const fn text(name: &'static str, cell: super::table::Cell) -> Column {
    Column(name, "string", "", 0, cell)
}

const fn wide(name: &'static str, cell: super::table::Cell) -> Column {
    Column(name, "string", "", 1, cell)
}

const fn number(name: &'static str, cell: super::table::Cell) -> Column {
    Column(name, "integer", "", 0, cell)
}

const NAME: Column = Column("Name", "string", "name", 0, |o, _| o["metadata"]["name"].clone());
const AGE: Column = text("Age", c::age);
const CONTAINERS: Column = wide("Containers", |o, _| c::containers(o, "name"));
const IMAGES: Column = wide("Images", |o, _| c::containers(o, "image"));
const SELECTOR: Column = wide("Selector", |o, _| c::selector(&o["spec"]["selector"]));

const PLAIN: &[Column] = &[NAME, AGE];

const NODES: &[Column] = &[
    NAME,
    text("Status", |o, _| c::node_status(o)),
    text("Roles", |o, _| c::node_roles(o)),
    AGE,
    text("Version", |o, _| o["status"]["nodeInfo"]["kubeletVersion"].clone()),
    wide("Internal-IP", |o, _| c::node_address(o, "InternalIP")),
    wide("External-IP", |o, _| c::node_address(o, "ExternalIP")),
    wide("OS-Image", |o, _| c::or(&o["status"]["nodeInfo"]["osImage"], "<unknown>")),
    wide("Kernel-Version", |o, _| c::or(&o["status"]["nodeInfo"]["kernelVersion"], "<unknown>")),
    wide("Container-Runtime", |o, _| c::or(&o["status"]["nodeInfo"]["containerRuntimeVersion"], "<unknown>")),
];

const PODS: &[Column] = &[
    NAME,
    text("Ready", |o, _| c::pod_ready(o)),
    text("Status", |o, _| c::pod_status(o)),
    text("Restarts", c::pod_restarts),
    AGE,
    wide("IP", |o, _| c::or(&o["status"]["podIP"], "<none>")),
    wide("Node", |o, _| c::or(&o["spec"]["nodeName"], "<none>")),
    wide("Nominated Node", |o, _| c::or(&o["status"]["nominatedNodeName"], "<none>")),
    wide("Readiness Gates", |_, _| "<none>".into()),
];

const NAMESPACES: &[Column] = &[NAME, text("Status", |o, _| o["status"]["phase"].clone()), AGE];

const BUDGETS: &[Column] = &[
    NAME,
    text("Min Available", |o, _| c::or(&o["spec"]["minAvailable"], "N/A")),
    text("Max Unavailable", |o, _| c::or(&o["spec"]["maxUnavailable"], "N/A")),
    number("Allowed Disruptions", |o, _| c::count(&o["status"]["disruptionsAllowed"])),
    AGE,
];

const JOBS: &[Column] = &[
    NAME,
    text("Status", |o, _| c::job_status(o)),
    text("Completions", |o, _| c::job_completions(o)),
    text("Duration", c::job_duration),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const DEPLOYMENTS: &[Column] = &[
    NAME,
    text("Ready", |o, _| c::ready_replicas(o)),
    number("Up-to-date", |o, _| c::count(&o["status"]["updatedReplicas"])),
    number("Available", |o, _| c::count(&o["status"]["availableReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REPLICA_SETS: &[Column] = &[
    NAME,
    number("Desired", |o, _| c::count(&o["spec"]["replicas"])),
    number("Current", |o, _| c::count(&o["status"]["replicas"])),
    number("Ready", |o, _| c::count(&o["status"]["readyReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const DAEMON_SETS: &[Column] = &[
    NAME,
    number("Desired", |o, _| c::count(&o["status"]["desiredNumberScheduled"])),
    number("Current", |o, _| c::count(&o["status"]["currentNumberScheduled"])),
    number("Ready", |o, _| c::count(&o["status"]["numberReady"])),
    number("Up-to-date", |o, _| c::count(&o["status"]["updatedNumberScheduled"])),
    number("Available", |o, _| c::count(&o["status"]["numberAvailable"])),
    text("Node Selector", |o, _| c::labels(&o["spec"]["template"]["spec"]["nodeSelector"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const STATEFUL_SETS: &[Column] = &[NAME, text("Ready", |o, _| c::ready_replicas(o)), AGE, CONTAINERS, IMAGES];

const EVENTS: &[Column] = &[
    text("Last Seen", c::event_last),
    text("Type", |o, _| o["type"].clone()),
    text("Reason", |o, _| o["reason"].clone()),
    text("Object", |o, _| c::event_object(o)),
    wide("Subobject", |o, _| c::or(&c::event(o, "involvedObject", "regarding")["fieldPath"], "")),
    wide("Source", |o, _| c::event_source(o)),
    text("Message", |o, _| c::event_message(o)),
    wide("First Seen", c::event_first),
    wide("Count", |o, _| c::event_count(o)),
    Column("Name", "string", "name", 1, |o, _| o["metadata"]["name"].clone()),
];

const LEASES: &[Column] = &[NAME, text("Holder", |o, _| c::or(&o["spec"]["holderIdentity"], "")), AGE];

const ENDPOINTS: &[Column] = &[NAME, text("Endpoints", |o, _| c::endpoints(o)), AGE];

const SLICES: &[Column] = &[
    NAME,
    text("AddressType", |o, _| o["addressType"].clone()),
    text("Ports", |o, _| c::slice_ports(o)),
    text("Endpoints", |o, _| c::slice_endpoints(o)),
    AGE,
];

const SERVICES: &[Column] = &[
    NAME,
    text("Type", |o, _| c::or(&o["spec"]["type"], "ClusterIP")),
    text("Cluster-IP", |o, _| c::or(&o["spec"]["clusterIP"], "<none>")),
    text("External-IP", |_, _| "<none>".into()),
    text("Port(s)", |o, _| c::service_ports(o)),
    AGE,
    wide("Selector", |o, _| c::labels(&o["spec"]["selector"])),
];

const CONFIG_MAPS: &[Column] =
    &[NAME, text("Data", |o, _| o["data"].as_object().map_or(0, serde_json::Map::len).into()), AGE];

const ATTACHMENTS: &[Column] = &[
    NAME,
    Column("Attacher", "string", "name", 0, |o, _| o["spec"]["attacher"].clone()),
    text("PV", |o, _| c::or(&o["spec"]["source"]["persistentVolumeName"], "")),
    text("Node", |o, _| o["spec"]["nodeName"].clone()),
    Column("Attached", "boolean", "", 0, |o, _| o["status"]["attached"].as_bool().unwrap_or(false).into()),
    AGE,
];

const HOSTS: &[Column] = &[
    NAME,
    wide("Status", |o, _| c::or(&o["status"]["operationalStatus"], "")),
    text("State", |o, _| c::or(&o["status"]["provisioning"]["state"], "")),
    text("Consumer", |o, _| c::or(&o["spec"]["consumerRef"]["name"], "")),
    wide("BMC", |o, _| c::or(&o["spec"]["bmc"]["address"], "")),
    text("Online", |o, _| c::or(&o["spec"]["online"], "")),
    text("Error", |o, _| c::or(&o["status"]["errorType"], "")),
    AGE,
];
