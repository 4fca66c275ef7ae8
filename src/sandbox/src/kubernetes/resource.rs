//! The kinds of objects that the sandbox serves.

/// One kind as in discovery.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version of the group.
    pub version: &'static str,
    /// Plural name, as in paths.
    pub plural: &'static str,
    /// Singular name in lower case.
    pub singular: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// Short names for `kubectl`.
    pub short: &'static [&'static str],
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Whether the status has its own path.
    pub status: bool,
    /// Whether a change of the spec increments `metadata.generation`.
    pub generations: bool,
}

macro_rules! resources {
    ($($name:ident: $group:literal $version:literal $plural:literal $singular:literal $kind:literal $short:expr,
        $namespaced:literal $status:literal $generations:literal;)*) => {
        $(
            #[doc = concat!("`", $kind, "`.")]
            pub static $name: Resource = Resource {
                group: $group, version: $version, plural: $plural, singular: $singular, kind: $kind, short: &$short,
                namespaced: $namespaced, status: $status, generations: $generations,
            };
        )*
        /// Every kind, in the order of discovery.
        pub static ALL: &[&Resource] = &[$(&$name),*];
    };
}

resources! {
    NODES: "" "v1" "nodes" "node" "Node" ["no"], false true false;
    PODS: "" "v1" "pods" "pod" "Pod" ["po"], true true true;
    NAMESPACES: "" "v1" "namespaces" "namespace" "Namespace" ["ns"], false true false;
    ENDPOINTS: "" "v1" "endpoints" "endpoints" "Endpoints" ["ep"], true false false;
    SERVICES: "" "v1" "services" "service" "Service" ["svc"], true true false;
    CONFIG_MAPS: "" "v1" "configmaps" "configmap" "ConfigMap" ["cm"], true false false;
    SERVICE_ACCOUNTS: "" "v1" "serviceaccounts" "serviceaccount" "ServiceAccount" ["sa"], true false false;
    CORE_EVENTS: "" "v1" "events" "event" "Event" ["ev"], true false false;
    DEPLOYMENTS: "apps" "v1" "deployments" "deployment" "Deployment" ["deploy"], true true true;
    REPLICA_SETS: "apps" "v1" "replicasets" "replicaset" "ReplicaSet" ["rs"], true true true;
    DAEMON_SETS: "apps" "v1" "daemonsets" "daemonset" "DaemonSet" ["ds"], true true true;
    STATEFUL_SETS: "apps" "v1" "statefulsets" "statefulset" "StatefulSet" ["sts"], true true true;
    JOBS: "batch" "v1" "jobs" "job" "Job" [], true true true;
    BUDGETS: "policy" "v1" "poddisruptionbudgets" "poddisruptionbudget" "PodDisruptionBudget" ["pdb"], true true true;
    ENDPOINT_SLICES: "discovery.k8s.io" "v1" "endpointslices" "endpointslice" "EndpointSlice" [], true false true;
    EVENTS: "events.k8s.io" "v1" "events" "event" "Event" ["ev"], true false false;
    LEASES: "coordination.k8s.io" "v1" "leases" "lease" "Lease" [], true false false;
    VALIDATING_WEBHOOKS: "admissionregistration.k8s.io" "v1" "validatingwebhookconfigurations" "validatingwebhookconfiguration" "ValidatingWebhookConfiguration" [], false false true;
    VOLUME_ATTACHMENTS: "storage.k8s.io" "v1" "volumeattachments" "volumeattachment" "VolumeAttachment" [], false true false;
    BARE_METAL_HOSTS: "metal3.io" "v1alpha1" "baremetalhosts" "baremetalhost" "BareMetalHost" ["bmh", "bmhost"], true true true;
    MAINTENANCE_REQUESTS: "cketerm.io" "v1alpha1" "maintenancerequests" "maintenancerequest" "MaintenanceRequest" ["mreq"], false true true;
}

impl Resource {
    /// Returns the kind that a path names.
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        ALL.iter().copied().find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    /// Returns the API version: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the name in the API server's messages: `pods` or `poddisruptionbudgets.policy`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}
