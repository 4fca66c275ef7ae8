//! Shape of CKE's cluster definition as one table, which `check` walks and `written` fills in.

/// Type of a value.
#[derive(Debug)]
pub(super) enum Shape {
    /// A string.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number,
    /// Any value, which is kept as it is.
    Free,
    /// A list of values of this type.
    List(&'static Shape),
    /// A map from arbitrary names to values of this type.
    Map(&'static Shape),
    /// A structure with known fields.
    Object(&'static Object),
}

/// A structure of CKE.
#[derive(Debug)]
pub(super) struct Object {
    /// Whether an unknown field is an error (under `nodes`, `reboot`, `repair`) or kept with a warning.
    pub strict: bool,
    /// Fields in CKE's order.
    pub fields: &'static [Field],
}

/// A field of a structure.
#[derive(Debug)]
pub(super) struct Field {
    /// Its name.
    pub name: &'static str,
    /// Type of its value.
    pub shape: Shape,
    /// Value that CKE writes if nothing was given.
    pub absent: Absent,
}

/// Value that CKE writes for a field that was not given.
#[derive(Clone, Copy, Debug)]
pub(super) enum Absent {
    /// No field: CKE marks it as optional.
    Omit,
    /// The zero value: `null` for lists, maps and numbers, `""`, `false`, a structure of zero values.
    Zero,
    /// This text.
    Literal(&'static str),
}

const fn always(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, absent: Absent::Zero }
}

const fn optional(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, absent: Absent::Omit }
}

const fn strict(fields: &'static [Field]) -> Object {
    Object { strict: true, fields }
}

const fn lenient(fields: &'static [Field]) -> Object {
    Object { strict: false, fields }
}

use Shape::{Flag, Free, List, Map, Number, Text};

const TEXTS: Shape = List(&Text);
const LABELS: Shape = Map(&Text);

/// The whole definition.
pub(super) static CLUSTER: Object = lenient(&[
    always("name", Text),
    always("nodes", List(&Shape::Object(&NODE))),
    always("taint_control_plane", Flag),
    always("control_plane_tolerations", TEXTS),
    always("service_subnet", Text),
    // It is in CKE's example. CKE's programs keep its value, and write nothing if it was not given.
    optional("pod_subnet", Text),
    always("dns_servers", TEXTS),
    always("dns_service", Text),
    always("reboot", Shape::Object(&REBOOT)),
    always("repair", Shape::Object(&REPAIR)),
    always("sabakan", Shape::Object(&SABAKAN)),
    optional("trusted_rest_mappings", List(&Shape::Object(&REST_MAPPING))),
    always("options", Shape::Object(&OPTIONS)),
]);

static NODE: Object = strict(&[
    always("address", Text),
    always("hostname", Text),
    always("user", Text),
    always("control_plane", Flag),
    always("annotations", LABELS),
    always("labels", LABELS),
    always("taints", List(&Shape::Object(&TAINT))),
]);

static TAINT: Object =
    strict(&[always("key", Text), optional("value", Text), always("effect", Text), optional("timeAdded", Text)]);

static REBOOT: Object = strict(&[
    always("reboot_command", TEXTS),
    always("boot_check_command", TEXTS),
    optional("max_concurrent_reboots", Number),
    optional("eviction_timeout_seconds", Number),
    optional("command_timeout_seconds", Number),
    always("command_retries", Number),
    always("command_interval", Number),
    always("evict_retries", Number),
    always("evict_interval", Number),
    optional("protected_namespaces", Shape::Object(&SELECTOR)),
    optional("protected_job_pods", Shape::Object(&SELECTOR)),
]);

static REPAIR: Object = strict(&[
    always("repair_procedures", List(&Shape::Object(&PROCEDURE))),
    optional("max_concurrent_repairs", Number),
    optional("protected_namespaces", Shape::Object(&SELECTOR)),
    optional("protected_job_pods", Shape::Object(&SELECTOR)),
    optional("evict_retries", Number),
    optional("evict_interval", Number),
    optional("eviction_timeout_seconds", Number),
]);

static PROCEDURE: Object =
    strict(&[always("machine_types", TEXTS), always("repair_operations", List(&Shape::Object(&OPERATION)))]);

static OPERATION: Object = strict(&[
    always("operation", Text),
    always("repair_steps", List(&Shape::Object(&STEP))),
    always("health_check_command", TEXTS),
    optional("command_timeout_seconds", Number),
    optional("success_command", TEXTS),
    optional("success_command_timeout", Number),
]);

static STEP: Object = strict(&[
    always("repair_command", TEXTS),
    optional("command_timeout_seconds", Number),
    optional("command_retries", Number),
    optional("command_interval", Number),
    optional("need_drain", Flag),
    optional("watch_seconds", Number),
]);

static SELECTOR: Object =
    strict(&[optional("matchLabels", LABELS), optional("matchExpressions", List(&Shape::Object(&REQUIREMENT)))]);

static REQUIREMENT: Object = strict(&[always("key", Text), always("operator", Text), optional("values", TEXTS)]);

static SABAKAN: Object = lenient(&[always("spare_node_taint_key", Text)]);

static REST_MAPPING: Object = lenient(&[
    always("group", Text),
    always("version", Text),
    always("kind", Text),
    always("resource", Text),
    always("namespaced", Flag),
]);

/// Options of the programs that CKE runs.
pub(super) static OPTIONS: Object = lenient(&[
    always("etcd", Shape::Object(&ETCD)),
    always("rivers", Shape::Object(&SERVICE)),
    always("etcd-rivers", Shape::Object(&SERVICE)),
    always("kube-api", Shape::Object(&KUBE_API)),
    always("kube-controller-manager", Shape::Object(&SERVICE)),
    always("kube-scheduler", Shape::Object(&SCHEDULER)),
    always("kube-proxy", Shape::Object(&PROXY)),
    always("kubelet", Shape::Object(&KUBELET)),
]);

static MOUNT: Object = lenient(&[
    always("source", Text),
    always("destination", Text),
    always("read_only", Flag),
    always("propagation", Text),
    always("selinux_label", Text),
]);

const EXTRA_ARGS: Field = always("extra_args", TEXTS);
static MOUNTS: Shape = Shape::Object(&MOUNT);
const EXTRA_BINDS: Field = always("extra_binds", List(&MOUNTS));
const EXTRA_ENV: Field = always("extra_env", LABELS);

static SERVICE: Object = lenient(&[EXTRA_ARGS, EXTRA_BINDS, EXTRA_ENV]);

static ETCD: Object = lenient(&[
    EXTRA_ARGS,
    EXTRA_BINDS,
    EXTRA_ENV,
    Field { name: "volume_name", shape: Text, absent: Absent::Literal("etcd-cke") },
]);

static KUBE_API: Object = lenient(&[
    EXTRA_ARGS,
    EXTRA_BINDS,
    EXTRA_ENV,
    always("audit_log_enabled", Flag),
    always("audit_log_policy", Text),
    always("audit_log_path", Text),
]);

static SCHEDULER: Object = lenient(&[EXTRA_ARGS, EXTRA_BINDS, EXTRA_ENV, optional("config", Free)]);

static PROXY: Object =
    lenient(&[EXTRA_ARGS, EXTRA_BINDS, EXTRA_ENV, optional("disable", Flag), optional("config", Free)]);

static KUBELET: Object = lenient(&[
    EXTRA_ARGS,
    EXTRA_BINDS,
    EXTRA_ENV,
    always("boot_taints", List(&Shape::Object(&BOOT_TAINT))),
    always("cni_conf_file", Shape::Object(&CNI_CONF)),
    optional("config", Free),
    always("cri_endpoint", Text),
    always("in_place_update", Flag),
]);

static BOOT_TAINT: Object =
    lenient(&[always("key", Text), optional("value", Text), always("effect", Text), optional("timeAdded", Text)]);

static CNI_CONF: Object = lenient(&[always("name", Text), always("content", Text)]);
