//! `cketerm/policy`: everything that changes a decision and is not CKE's (spec/safety.md, Policy).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    freeze::{Freeze, Groups},
    window::Windows,
};

/// Whether our engine campaigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// Never; cketerm is the console of CKE's queues.
    Cke,
    /// Yes, and makes room when a CKE stands behind us.
    #[default]
    Cketerm,
    /// Yes, and stays.
    Always,
}

/// When API servers are rebooted, relative to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiServerOrder {
    /// After all others (newer seed).
    #[default]
    Last,
    /// Before all others (older seed).
    First,
}

/// How unreachable nodes hold the queue back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnreachableRule {
    /// Only nodes outside the reboot process count, and only new drains stop. Was `newer`.
    #[default]
    #[serde(alias = "newer")]
    OutsideReboots,
    /// All unreachable nodes count, and power commands stop too. Was `older`.
    #[serde(alias = "older")]
    All,
}

/// What ends a worker's reboot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerCompletion {
    /// The boot check.
    #[default]
    BootCheck,
    /// The boot check, a new boot id, and Ready.
    BootId,
}

/// Whether API servers in reboot are taken out of the endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ManageEndpoints {
    /// Only where CKE manages them: the `cke-etcd` Endpoints of `kube-system` exist.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Whether the members of the etcd of Kubernetes are asked before a machine that hosts one is disrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EtcdMembers {
    /// Yes; without an answer control planes wait.
    #[default]
    Check,
    /// No: a person answers for the quorum.
    None,
}

/// Which strategy generates the cluster definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// The seed's.
    #[default]
    Weighted,
    /// Today's CKE.
    AllHealthy,
}

/// Whether large registry changes wait for a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// Above `gate_percent`, or a control plane.
    #[default]
    Gate,
    /// Never: CKE's behaviour.
    Never,
}

/// The whole policy; absent fields have their defaults, unknown ones make an engine observe only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Whether our engine campaigns.
    pub engine: EngineChoice,
    /// API servers last or first.
    pub api_server_order: ApiServerOrder,
    /// Newer or older rule of the unreachable limit.
    pub unreachable_rule: UnreachableRule,
    /// URL with `{address}`, or `node` for Ready alone.
    pub control_plane_probe: String,
    /// Seconds for which a rebooted API server's probe must stay good.
    pub settle_seconds: u64,
    /// Whether the members of the etcd of Kubernetes are asked.
    pub etcd_members: EtcdMembers,
    /// Whether a voting member of etcd may be disrupted although the rest is no quorum: one or two members.
    pub allow_quorum_loss: bool,
    /// Whether endpoints are managed.
    pub manage_endpoints: ManageEndpoints,
    /// What ends a worker's reboot.
    pub worker_completion: WorkerCompletion,
    /// Bound in seconds of a command whose timeout is 0.
    pub command_cap_seconds: u64,
    /// Seconds after which a `rebooting` entry, and what holds an entry up, is called stuck (`engine/trouble`).
    pub stuck_seconds: u64,
    /// Which strategy generates the definition.
    pub strategy: Strategy,
    /// Whether large registry changes wait.
    pub approval: Approval,
    /// Percent of the nodes above which they wait.
    pub gate_percent: u64,
    /// Seconds between questions to sabakan.
    pub sabakan_poll_seconds: u64,
    /// Seconds before a machine that vanished is removed.
    pub removal_wait_seconds: u64,
    /// Whether the engine is the Metal3 controller too.
    pub metal3_controller: bool,
    /// When drains may start and power commands may be ordered; none = always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// Nothing new starts until then; none = no freeze.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<Freeze>,
    /// How many racks or other groups may be in work at once; none = any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            engine: EngineChoice::default(),
            api_server_order: ApiServerOrder::default(),
            unreachable_rule: UnreachableRule::default(),
            control_plane_probe: "https://{address}:6443/readyz".to_owned(),
            settle_seconds: 60,
            etcd_members: EtcdMembers::default(),
            allow_quorum_loss: false,
            manage_endpoints: ManageEndpoints::default(),
            worker_completion: WorkerCompletion::default(),
            command_cap_seconds: 3600,
            stuck_seconds: 1800,
            strategy: Strategy::default(),
            approval: Approval::default(),
            gate_percent: 10,
            sabakan_poll_seconds: 60,
            removal_wait_seconds: 300,
            metal3_controller: false,
            windows: None,
            freeze: None,
            groups: None,
            unknown: Map::new(),
        }
    }
}

impl Policy {
    /// Fields of a newer cketerm, by their place: an engine that does not know them only observes.
    pub fn unknown_fields(&self) -> Vec<String> {
        let below = |at: &str, names: Vec<String>| -> Vec<String> {
            names.into_iter().map(|name| format!("{at}.{name}")).collect()
        };
        let keys = |map: &Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
        let mut all = keys(&self.unknown);
        all.extend(self.windows.iter().flat_map(|w| below("windows", w.unknown_fields())));
        all.extend(self.freeze.iter().flat_map(|f| below("freeze", keys(&f.unknown))));
        all.extend(self.groups.iter().flat_map(|g| below("groups", keys(&g.unknown))));
        all
    }
}
