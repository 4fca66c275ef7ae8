//! All inputs of a decision as one value that can be cloned, compared and serialized.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

pub use cketerm_model::attempt::CheckAnswer;
use cketerm_model::{
    attempt::Outcome,
    clock::Now,
    drain::{Answer, Preview},
    entry::EntryId,
    etcd::EtcdView,
    fence::NoPermit,
    kube::{KubeView, NodeRow, PodRow},
    reason::{Reason, TooLarge},
    stored::view::StoreView,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    decide::{ApplyState, AutoRepair},
    metal3::Metal3,
    notices::Receivers,
    preflight_fault::PreflightFault,
    registry::Registry,
};

/// State known to the engine, or to an observing console, at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Live copy of etcd.
    pub store: Arc<StoreView>,
    /// Live copy of Kubernetes.
    pub kube: Arc<KubeView>,
    /// Identity of this engine and its leadership.
    pub engine: Engine,
    /// Results of the control planes' probes, by address.
    pub probes: BTreeMap<String, Probe>,
    /// Members of the Kubernetes etcd.
    #[serde(default)]
    pub etcd: Arc<EtcdView>,
    /// Memory of entries in progress. It is a cache of observations: a new leader begins with none.
    pub work: BTreeMap<EntryId, Work>,
    /// Effects under way, at most one for each key: a machine (Node name, else address), or for example a health check.
    pub in_flight: BTreeMap<String, InFlight>,
    /// Owner records of other leases, by Node name: the lease, and the boot-time seconds at which this engine first saw
    /// it there.
    pub foreign: BTreeMap<String, (i64, f64)>,
    /// Sabakan's answers and the plan made from them.
    pub registry: Arc<Registry>,
    /// State of this engine's Metal3 controller.
    pub metal3: Arc<Metal3>,
    /// Digest of a plan whose definition etcd refused for its size, and the message. The plan is not tried again.
    pub registry_refused: Option<(String, String)>,
}

/// Identity and state of this engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// Host name.
    pub host: String,
    /// Lease of this engine; 0 = none yet.
    pub lease: i64,
    /// Set while this engine leads.
    pub leading: Option<Leading>,
    /// Faults for which this engine only observes; empty = fit to lead.
    pub observing: Vec<PreflightFault>,
    /// Text of the reason why a fit engine does not campaign now.
    pub standing_back: Option<String>,
    /// Set while the engine holds the lock but decides nothing, because records of an older version are not migrated
    /// yet. Holds the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrating: Option<String>,
    /// Reason why this host cannot start any program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    /// Programs of the definition that this host lacks. They block only the entries that need them.
    pub missing_programs: Vec<String>,
    /// BMCs that the commands of the definition may log in to.
    #[serde(default)]
    pub bmcs: BmcAccess,
    /// Reason why the engine resigns as soon as nothing is in progress. Until then nothing new starts.
    pub resigning: Option<String>,
    /// TTL of the lease in seconds.
    pub ttl: u64,
    /// Seed of this leadership's jitter.
    pub seed: u64,
}

/// BMCs that the commands of the definition may log in to, by this host's file (SAF-38, SAF-39).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BmcAccess {
    /// The BMCs in the file's networks and all that the file names; or the commands log in to no BMC themselves.
    #[default]
    Open,
    /// By the address of the machine.
    ByMachine {
        /// Machines whose BMC the file names, if the file allows no network; none = the file allows networks.
        only: Option<BTreeSet<String>>,
        /// Machines whose BMC the file names and refuses, with the reason.
        refused: BTreeMap<String, String>,
        /// Whether some machine of the definition gets no login.
        lacking: bool,
    },
    /// The file cannot be read. Holds the reason.
    Unreadable(String),
}

impl BmcAccess {
    /// Reports whether a command logs in to BMCs itself: `cketerm power …` with the engine's own configuration.
    pub fn concerns(argv: &[String]) -> bool {
        let Some((program, words)) = argv.split_first() else { return false };
        let is_cketerm = program.rsplit('/').next() == Some("cketerm");
        let own_file = words.iter().any(|word| word == "--config" || word.starts_with("--config="));
        is_cketerm && !own_file && words.iter().any(|word| word == "power")
    }

    /// Access that the file gives to the machines of a definition.
    pub fn by_machine<'a>(
        machines: impl IntoIterator<Item = &'a str>,
        only: Option<BTreeSet<String>>,
        refused: BTreeMap<String, String>,
    ) -> Self {
        if only.is_none() && refused.is_empty() {
            return Self::Open;
        }
        let mut access = Self::ByMachine { only, refused, lacking: false };
        let lacks = machines.into_iter().any(|address| access.refusal(address).is_some());
        if let Self::ByMachine { lacking, .. } = &mut access {
            *lacking = lacks;
        }
        access
    }

    /// Reason why the BMC of the machine with this address gets no login.
    pub fn refusal(&self, address: &str) -> Option<BmcRefusal<'_>> {
        match self {
            Self::Open => None,
            Self::ByMachine { only, refused, .. } => match refused.get(address) {
                Some(why) => Some(BmcRefusal::Fault(why)),
                None => only.as_ref().filter(|only| !only.contains(address)).map(|_| BmcRefusal::NotNamed),
            },
            Self::Unreadable(why) => Some(BmcRefusal::Fault(why)),
        }
    }

    /// Reports whether a machine of the definition needs more than the file gives.
    pub fn lacks_networks(&self) -> bool {
        match self {
            Self::Open => false,
            Self::ByMachine { lacking, .. } => *lacking,
            Self::Unreadable(_) => true,
        }
    }
}

/// Reason why a BMC gets no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcRefusal<'a> {
    /// The file allows no network and does not name the BMC.
    NotNamed,
    /// The file cannot be read, or its entry for the BMC cannot be used. Holds the reason.
    Fault(&'a str),
}

/// Leadership of this engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leading {
    /// The key below `leader/`.
    pub key: String,
    /// Create revision of the key, which fences every write.
    pub create_revision: i64,
    /// Boot-time seconds of the win. The wait for attempts of dead leaders counts from here (SAF-16).
    pub since: f64,
    /// Boot-time seconds at which the last acknowledged keep-alive was sent. This engine led at that time.
    #[serde(default)]
    pub acknowledged: f64,
}

/// Observed results of one control plane's probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Boot-time seconds of the last good answer.
    pub last_good: Option<f64>,
    /// Boot-time seconds since which every answer was good; none after a bad one.
    pub good_since: Option<f64>,
    /// The last bad answer, until another one.
    pub error: Option<String>,
    /// Reason why the last answer proves nothing about the server, until another answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// The URL probed.
    pub url: String,
}

/// Memory of an entry in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The drain, as far as this leader has seen it.
    pub drain: DrainWork,
    /// The last boot or health check, with the boot-time seconds at which it ended.
    pub check: Option<(f64, CheckAnswer)>,
    /// Boot-time seconds at which the entry's last command ended. Checks that began earlier do not count.
    #[serde(default)]
    pub commanded: Option<f64>,
    /// Boot-time seconds since which boot check, boot id, Ready and probe have all been good without a break.
    pub sound_since: Option<f64>,
    /// Boot-time seconds before which the entry is not retried after a failed effect, and the reason of the failure.
    pub pause: Option<(f64, String)>,
    /// The effect whose transaction was refused last for its size, and the size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_large: Option<(String, TooLarge)>,
    /// Whether this leader has written its lease to the entry's Node. Another lease there is then a newer leader's.
    #[serde(default)]
    pub stamped: bool,
    /// Reason of the last backoff, kept for display while the entry is queued.
    pub backoff_cause: Option<Box<Reason>>,
    /// The last fresh read of its machine, made for its next command.
    #[serde(default)]
    pub fresh: Option<FreshRead>,
    /// Effects that came to nothing in a row, since the last success.
    #[serde(default)]
    pub retries: Option<Retries>,
}

/// Answers of the API server about one machine, requested for its next command. They never come from a watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreshRead {
    /// Boot-time seconds at which the last answer came.
    pub at: f64,
    /// The machine's Node; none = there is no such Node.
    pub node: Option<Arc<NodeRow>>,
    /// All pods bound to the Node; none = they were not requested.
    pub pods: Option<Vec<Arc<PodRow>>>,
}

/// Effects that came to nothing, one after the other (SAF-12).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Retries {
    /// Number of such effects.
    pub count: u32,
    /// Reason of the last one.
    pub why: String,
}

/// A drain, as far as this leader has seen it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainWork {
    /// Whether this leader took the drain over from another one. Such a drain counts as one with an accepted eviction
    /// (REB-28).
    pub taken_over: bool,
    /// Number of pods to leave when this leader first saw all of them.
    pub pods_at_start: Option<u32>,
    /// Whether the preview was clean, so that evictions may be sent.
    pub previewed: bool,
    /// UIDs of the pods that have passed the preview; empty again once all have passed.
    #[serde(default)]
    pub passed: BTreeSet<String>,
    /// Set if the last round of the preview decided nothing about some pods.
    #[serde(default)]
    pub undecided: Option<UndecidedPreview>,
    /// Number of refused previews and refused first rounds of evictions (REB-28).
    pub refusals: u32,
    /// Boot-time seconds of the last refusal, and its reason.
    pub refused: Option<(f64, Reason)>,
    /// Whether an eviction or deletion was accepted.
    pub accepted: bool,
    /// Last answers to evictions and deletions, by pod UID.
    pub answers: BTreeMap<String, Answer>,
    /// Time at which this leader first saw that somebody else uncordoned the Node.
    pub uncordoned: Option<Timestamp>,
    /// Boot-time seconds at which the leader of etcd was asked to hand over, before this machine's command (SAF-26).
    #[serde(default)]
    pub leader_moved: Option<f64>,
}

/// Preview round in which some answers decided nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UndecidedPreview {
    /// Boot-time seconds of the last such round.
    pub at: f64,
    /// Number of such rounds in a row.
    pub times: u32,
    /// Seconds to wait, if the server sent them.
    pub retry_after: Option<u64>,
    /// The answer and the pod that it was about.
    pub reason: Reason,
}

/// An effect under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// Short name of the effect, for display.
    pub what: String,
    /// The entry that it belongs to, if any.
    pub entry: Option<EntryId>,
    /// Whether it starts work on the machine. The machine then counts as in progress already.
    pub starts: bool,
    /// The attempt whose command this engine is running.
    pub attempt: Option<String>,
    /// Boot-time seconds at which it began.
    pub since: f64,
}

/// Reason why an effect was not carried out although nothing failed: the decision is outdated. An old cache is
/// `Reason::Stale`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleCause {
    /// Too much time has passed since the decision: servers answer slowly.
    #[error("servers answer too slowly: {0}")]
    TooOld(NoPermit),
    /// Something has changed since the decision. Holds a description.
    #[error("{0}")]
    Changed(String),
    /// The transaction compares the keys that the decision was made from, and some of them have changed in etcd.
    #[error("changed meanwhile in etcd: {}", .keys.join(", "))]
    Conflict {
        /// The compared keys that may have changed.
        keys: Vec<String>,
    },
    /// A Kubernetes object has another version, or is gone. Holds its name.
    #[error("{0} has changed meanwhile")]
    Object(String),
}

/// Result of an effect. The loop records it in [`Work`].
#[derive(Clone, Debug, PartialEq)]
pub enum EffectOutcome {
    /// Done.
    Done,
    /// Not done, nothing changed. Holds the reason.
    Failed(String),
    /// The decision's inputs have changed. The next pass decides again, a little later each time.
    Stale(StaleCause),
    /// Fresh read of the machine.
    Rechecked(FreshRead),
    /// Result of a preview.
    Previewed(Preview),
    /// Answers to evictions and deletions, by pod UID.
    Answers(BTreeMap<String, Answer>),
    /// Answer of the boot check or the health check.
    Check(CheckAnswer),
    /// A command ended.
    Command(Outcome),
    /// The transaction exceeds etcd's limits; nothing was written.
    TooLarge(TooLarge),
    /// Leadership is lost.
    Lost,
}

impl Snapshot {
    /// Returns the Node of a machine: by the definition's name, else by address.
    pub fn node_of(&self, address: &str) -> Option<&Arc<NodeRow>> {
        let by_name = self.store.definition().and_then(|d| {
            let member = d.members.by_address(&d.cluster, address)?;
            self.kube.by_name.get(member.node_name())
        });
        by_name.or_else(|| self.kube.by_address.get(address).and_then(|name| self.kube.by_name.get(name)))
    }

    /// Returns the name under which a machine's effects are kept apart: its Node's name, else the address.
    pub fn machine(&self, address: &str) -> String {
        self.machine_ref(address).to_owned()
    }

    /// Returns the same name without a copy.
    pub(super) fn machine_ref<'a>(&'a self, address: &'a str) -> &'a str {
        let member = self.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
        let node = || self.kube.by_address.get(address).map(String::as_str);
        member.map(cketerm_model::cluster::Node::node_name).or_else(node).unwrap_or(address)
    }
}

/// Converts boot time to the seconds that snapshots hold.
pub fn secs(boot: Duration) -> f64 {
    boot.as_secs_f64()
}

/// Inputs and results of a pass, for screens, commands and metrics. The loop publishes it after every pass, whether it
/// leads or not.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Snapshot that the pass used.
    pub snapshot: Snapshot,
    /// Time of the snapshot.
    pub now: Now,
    /// Reason why each unfinished entry does not move, or `Ready`. If another engine leads, its published progress is
    /// merged in.
    pub reasons: Arc<BTreeMap<EntryId, Reason>>,
    /// Nodes that stay cordoned after their entry is gone, by Node name.
    pub orphans: Arc<BTreeMap<String, Reason>>,
    /// State of applying the definition that is generated from the registry.
    pub applying: Arc<ApplyState>,
    /// State of automatic repair.
    pub auto_repair: Arc<AutoRepair>,
    /// The leader's state of the receivers of notices.
    pub notices: Arc<Receivers>,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            snapshot: Snapshot::default(),
            now: Now { boot: Duration::ZERO, wall: Timestamp::UNIX_EPOCH },
            reasons: Arc::default(),
            orphans: Arc::default(),
            applying: Arc::default(),
            auto_repair: Arc::default(),
            notices: Arc::default(),
        }
    }
}
