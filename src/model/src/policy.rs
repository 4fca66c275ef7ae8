//! `cketerm/policy`: all settings that change a decision and are not CKE's.

use std::{collections::BTreeMap, fmt};

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    freeze::{Freeze, Groups},
    hook::Hooks,
    outcomes::{Breaker, Canary},
    reboot_signals::Signals,
    selector::Selector,
    start_gates::StartGates,
    uncordon_gates::UncordonGates,
    window::Windows,
};

/// Whether cketerm's engine campaigns (SAF-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// Never; cketerm is only a console of CKE's queues.
    Cke,
    /// Yes, and it resigns for a CKE candidate.
    #[default]
    Cketerm,
    /// Yes, and it stays leader.
    Always,
}

/// Whether a console's engine campaigns (SAF-5). Daemons do not ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleLeads {
    /// Yes, if an operator of its host has agreed, unless a daemon has ever registered.
    #[default]
    Auto,
    /// Yes.
    Always,
    /// No; consoles only observe.
    Never,
}

/// Order of API servers relative to other machines (REB-13, REB-14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiServerOrder {
    /// After all others.
    #[default]
    Last,
    /// Before all others.
    First,
}

/// Order of the workers of the reboot queue (REB-68).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerOrder {
    /// The order of the queue, as CKE has it.
    #[default]
    Queue,
    /// The order of the queue, but nodes that share an exhausted budget one after the other.
    Budgets,
}

/// Use of the landing check: whether the pods of a node fit on other nodes (REB-69).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LandingCheck {
    /// Plans and previews show it.
    #[default]
    Advise,
    /// A drain also backs off before its first eviction if protected pods fit on no other node.
    Require,
}

/// Rule for unreachable nodes (REB-17).
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

/// Condition for the end of a worker's reboot (REB-39).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerCompletion {
    /// The boot check.
    #[default]
    BootCheck,
    /// The boot check, a new boot id, and Ready.
    BootId,
}

/// Whether API servers in reboot are removed from the endpoints (SAF-32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ManageEndpoints {
    /// Only if CKE manages them: the `cke-etcd` Endpoints exist in `kube-system`.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Whether the members of the Kubernetes etcd are queried before a machine that hosts one is disrupted (SAF-23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EtcdMembers {
    /// Yes; without an answer control planes wait.
    #[default]
    Check,
    /// No: the operator is responsible for the quorum.
    None,
}

/// Strategy that generates the cluster definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Workers by weighted templates (SAB-31 to SAB-46).
    #[default]
    Weighted,
    /// All healthy machines, as in current CKE (SAB-47 to SAB-58).
    AllHealthy,
}

/// Source of the members of the cluster definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Membership {
    /// sabakan if its URL and a template are stored, else operators.
    #[default]
    Auto,
    /// Operators, with `cluster set`.
    Manual,
    /// The machine registry sabakan.
    Sabakan,
    /// The Nodes of Kubernetes that `node_selector` picks.
    Nodes,
}

/// Present source of the members of the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberSource {
    /// Operators, with `cluster set`.
    Operators,
    /// The machine registry sabakan.
    Sabakan,
    /// The Nodes of Kubernetes.
    Nodes,
}

/// Treatment of Nodes that need a reboot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RebootNeeded {
    /// Nobody looks.
    Off,
    /// They are recorded and shown.
    #[default]
    Propose,
    /// The leader also queues them by itself.
    Queue,
}

/// Label selector of the Nodes that are members, in kubectl's form. The empty text picks all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeSelector {
    text: String,
    selector: Selector,
}

impl NodeSelector {
    /// Reports whether it picks a Node with these labels.
    pub fn picks(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }

    /// Returns the text as it was set.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl TryFrom<String> for NodeSelector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let selector = if text.trim().is_empty() { Selector::default() } else { text.parse()? };
        Ok(Self { text, selector })
    }
}

impl From<NodeSelector> for String {
    fn from(selector: NodeSelector) -> Self {
        selector.text
    }
}

/// Whether large changes from the registry wait for an approval (SAB-68, SAB-69).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// Above `gate_percent`, or if a control plane leaves.
    #[default]
    Gate,
    /// Never, as in CKE, except for half of the control planes.
    Never,
}

/// Way to fence a Node whose machine is proven to be off (MET-27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FenceBy {
    /// By the taint `node.kubernetes.io/out-of-service`, which the leader removes after the next boot.
    Taint,
    /// By deletion of the Node.
    #[default]
    Delete,
}

impl fmt::Display for FenceBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Taint => "taint",
            Self::Delete => "delete",
        })
    }
}

/// Check of a control plane by an engine (SAF-30). Stored as one text: `node`, or the URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ControlPlaneProbe {
    /// By its Node's condition Ready alone.
    Node,
    /// By requests to this URL too, in which `{address}` stands for the address of the control plane.
    Url(String),
}

impl ControlPlaneProbe {
    /// Returns the URL to probe, or `None` if control planes are judged by their Node alone.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Node => None,
            Self::Url(url) => Some(url),
        }
    }

    /// Checks that a URL can be probed.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Node => Ok(()),
            Self::Url(url) => {
                let http = url.starts_with("http://") || url.starts_with("https://");
                if http && url.contains("{address}") {
                    Ok(())
                } else {
                    Err(format!("must be `node`, or an http(s) URL with {{address}} in it, not {url:?}"))
                }
            }
        }
    }
}

impl Default for ControlPlaneProbe {
    fn default() -> Self {
        Self::Url("https://{address}:6443/readyz".to_owned())
    }
}

impl From<String> for ControlPlaneProbe {
    fn from(text: String) -> Self {
        if text == "node" { Self::Node } else { Self::Url(text) }
    }
}

impl From<ControlPlaneProbe> for String {
    fn from(probe: ControlPlaneProbe) -> Self {
        match probe {
            ControlPlaneProbe::Node => "node".to_owned(),
            ControlPlaneProbe::Url(url) => url,
        }
    }
}

/// The whole policy. Absent fields have their defaults. With unknown fields an engine only observes.
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Whether cketerm's engine campaigns.
    pub engine: EngineChoice,
    /// Whether a console's engine campaigns.
    pub console_leads: ConsoleLeads,
    /// Order of API servers: last or first.
    pub api_server_order: ApiServerOrder,
    /// Order of workers: as queued, or by budgets.
    pub worker_order: WorkerOrder,
    /// Most entries that may overtake one that waits for a budget (`worker_order: budgets`).
    pub max_overtakes: u64,
    /// Use of the landing check: shown, or required.
    pub landing_check: LandingCheck,
    /// Rule for unreachable nodes.
    pub unreachable_rule: UnreachableRule,
    /// Check of control planes.
    pub control_plane_probe: ControlPlaneProbe,
    /// Seconds for which a rebooted API server's probe must stay good.
    pub settle_seconds: u64,
    /// Whether the members of the Kubernetes etcd are queried.
    pub etcd_members: EtcdMembers,
    /// Whether a voting etcd member may be disrupted although the rest has no quorum, which concerns one or two voting
    /// members.
    pub allow_quorum_loss: bool,
    /// Whether API servers in reboot are removed from the endpoints.
    pub manage_endpoints: ManageEndpoints,
    /// Condition for the end of a worker's reboot.
    pub worker_completion: WorkerCompletion,
    /// Bound in seconds of a command whose timeout is 0.
    pub command_cap_seconds: u64,
    /// Seconds after which a `rebooting` entry, or a condition that holds an entry up, counts as stuck
    /// (`src/rules/src/trouble.rs`).
    pub stuck_seconds: u64,
    /// Strategy that generates the definition.
    pub strategy: Strategy,
    /// Source of the members of the definition.
    pub membership: Membership,
    /// Nodes that are members if `membership` is `nodes`.
    pub node_selector: NodeSelector,
    /// Seconds after which a member without a Node leaves the definition if `membership` is `nodes`.
    pub node_grace_seconds: u64,
    /// Percentage of the members that may be unreachable if `membership` is `nodes`.
    pub unreachable_percent: u64,
    /// Treatment of Nodes that need a reboot.
    pub reboot_needed: RebootNeeded,
    /// Signals that a Node needs a reboot.
    pub reboot_needed_signals: Signals,
    /// Number of open entries that the leader may have queued by itself, if `reboot_needed` is `queue`.
    pub reboot_needed_at_once: u64,
    /// Number of entries that the leader queues by itself in 24 hours; 0 = no limit.
    pub reboot_needed_per_day: u64,
    /// Seconds from the start of a drain in which it waits for protected running Jobs before it backs off; 0 = it backs
    /// off at once, as CKE does.
    pub job_grace_seconds: u64,
    /// Commands or requests of the site around drains.
    #[serde(skip_serializing_if = "Hooks::is_empty")]
    pub hooks: Hooks,
    /// Conditions for the uncordon of a rebooted worker.
    #[serde(skip_serializing_if = "UncordonGates::is_empty")]
    pub uncordon_gates: UncordonGates,
    /// Whether Nodes get conditions that tell of cketerm's work on them.
    pub node_conditions: bool,
    /// Number of waves of reboots to come whose Nodes get a taint that new pods avoid; 0 = none.
    pub planned_taint_waves: u64,
    /// Whether Events are written about pods that a drain evicts, and about those that block it.
    pub pod_events: bool,
    /// Whether the leader queues what `MaintenanceRequest`s ask for.
    pub maintenance_requests: bool,
    /// Whether large changes of the members wait for an approval.
    pub approval: Approval,
    /// Percentage of the nodes above which they wait.
    pub gate_percent: u64,
    /// Seconds between requests to sabakan.
    pub sabakan_poll_seconds: u64,
    /// Seconds for which sabakan must report a machine as retiring or retired before its worker is removed from the
    /// definition (SAB-44, SAB-58).
    pub removal_wait_seconds: u64,
    /// Whether the leader runs the Metal3 controller.
    pub metal3_controller: bool,
    /// Way to fence a Node.
    pub fence: FenceBy,
    /// Windows in which drains may start and power commands may run; none = always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// Freeze; none = no freeze.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<Freeze>,
    /// Limit of racks or other groups in progress at once; none = any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
    /// Breaker after machines that ended badly; none = no breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
    /// Machines of a batch that are rebooted before the others; none = all are alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// Gates of the site for new reboots; none = no gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_gates: Option<Box<StartGates>>,
    /// Fields of a newer cketerm.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            engine: EngineChoice::default(),
            console_leads: ConsoleLeads::default(),
            api_server_order: ApiServerOrder::default(),
            unreachable_rule: UnreachableRule::default(),
            control_plane_probe: ControlPlaneProbe::default(),
            settle_seconds: 60,
            etcd_members: EtcdMembers::default(),
            allow_quorum_loss: false,
            manage_endpoints: ManageEndpoints::default(),
            worker_completion: WorkerCompletion::default(),
            command_cap_seconds: 3600,
            stuck_seconds: 1800,
            worker_order: WorkerOrder::default(),
            max_overtakes: 20,
            landing_check: LandingCheck::default(),
            strategy: Strategy::default(),
            membership: Membership::default(),
            node_selector: NodeSelector::default(),
            node_grace_seconds: 3600,
            unreachable_percent: 10,
            reboot_needed: RebootNeeded::default(),
            reboot_needed_signals: Signals::default(),
            reboot_needed_at_once: 1,
            reboot_needed_per_day: 0,
            job_grace_seconds: 0,
            hooks: Hooks::default(),
            uncordon_gates: UncordonGates::default(),
            node_conditions: false,
            planned_taint_waves: 0,
            pod_events: false,
            maintenance_requests: false,
            approval: Approval::default(),
            gate_percent: 10,
            sabakan_poll_seconds: 60,
            removal_wait_seconds: 300,
            metal3_controller: false,
            fence: FenceBy::default(),
            windows: None,
            freeze: None,
            groups: None,
            breaker: None,
            canary: None,
            start_gates: None,
            unknown: Map::new(),
        }
    }
}

impl Policy {
    /// Returns the zone in which people write and read times: the zone of the general window. `None` = UTC.
    pub fn time_zone(&self) -> Option<TimeZone> {
        self.windows.as_ref()?.all().next().map(|(_, window)| window.zone.clone())
    }

    /// Returns the fields of a newer cketerm, by place. An engine that does not know them only observes.
    pub fn unknown_fields(&self) -> Vec<String> {
        let below = |at: &str, names: Vec<String>| -> Vec<String> {
            names.into_iter().map(|name| format!("{at}.{name}")).collect()
        };
        let keys = |map: &Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
        let mut all = keys(&self.unknown);
        all.extend(self.windows.iter().flat_map(|w| below("windows", w.unknown_fields())));
        all.extend(self.freeze.iter().flat_map(|f| below("freeze", keys(&f.unknown))));
        all.extend(self.groups.iter().flat_map(|g| below("groups", keys(&g.unknown))));
        all.extend(self.breaker.iter().flat_map(|b| below("breaker", keys(&b.unknown))));
        all.extend(self.canary.iter().flat_map(|c| below("canary", keys(&c.unknown))));
        all.extend(self.start_gates.iter().flat_map(|g| below("start_gates", g.unknown_fields())));
        all.extend(below("hooks", self.hooks.unknown_fields()));
        all.extend(below("uncordon_gates", keys(&self.uncordon_gates.unknown)));
        all
    }
}
