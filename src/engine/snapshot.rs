//! Everything that a decision is made from, as one value that can be cloned, compared and written down.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    decide::{Applying, AutoRepair},
    metal3::Metal3,
    notices::Receivers,
    registry::Registry,
};
pub use crate::model::attempt::CheckAnswer;
use crate::{
    clock::Now,
    fence::NoPermit,
    model::{
        attempt::Outcome,
        drain::{Answer, Preview},
        entry::EntryId,
        etcd::EtcdView,
        kube::{KubeView, NodeRow, PodRow},
        reason::{Reason, TooLarge},
    },
    store::view::StoreView,
};

/// What the engine (or an observing console) knows at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The live copy of etcd.
    pub store: Arc<StoreView>,
    /// The live copy of Kubernetes.
    pub kube: Arc<KubeView>,
    /// Who we are and whether we lead.
    pub engine: Engine,
    /// What we saw of each control plane's probe, by address.
    pub probes: BTreeMap<String, Probe>,
    /// The members of the etcd of Kubernetes.
    #[serde(default)]
    pub etcd: Arc<EtcdView>,
    /// What we remember of entries in work. A cache of observations: a new leader begins with none.
    pub work: BTreeMap<EntryId, Work>,
    /// Effects under way, by machine (Node name, else address): at most one each.
    pub in_flight: BTreeMap<String, InFlight>,
    /// Owner records of other leases, by Node name: the lease, and the boot-time seconds at which we first saw it there.
    pub foreign: BTreeMap<String, (i64, f64)>,
    /// What sabakan answered and what a plan makes of it.
    pub registry: Arc<Registry>,
    /// What our Metal3 controller knows.
    pub metal3: Arc<Metal3>,
    /// The digest of a plan whose definition etcd refused for its size, and the sentence: not tried again.
    pub registry_refused: Option<(String, String)>,
}

/// Who we are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// Host name.
    pub host: String,
    /// Our lease; 0 = none yet.
    pub lease: i64,
    /// Set while we lead.
    pub leading: Option<Leading>,
    /// Why we only observe, in words; empty = fit to lead.
    pub observing: Vec<String>,
    /// Why we do not campaign now although we are fit, in words.
    pub standing_back: Option<String>,
    /// We have the lock, but decide nothing before what an older version wrote is in the form of this one: why it is not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrating: Option<String>,
    /// Why this host can start no program at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    /// Programs of the definition that this host lacks: they bar only the entries that need them.
    pub missing_programs: Vec<String>,
    /// Which BMCs the commands of the definition may speak to.
    #[serde(default)]
    pub bmcs: BmcAccess,
    /// We resign as soon as nothing is in work: nothing new starts.
    pub resigning: Option<String>,
    /// TTL of the lease in seconds.
    pub ttl: u64,
    /// Seed of this leadership's jitter.
    pub seed: u64,
}

/// BMCs that the commands of the definition may speak to, by this host's file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BmcAccess {
    /// Those of its networks, and all that it names; or the commands speak to none themselves.
    #[default]
    Open,
    /// By the address of the machine.
    ByMachine {
        /// The machines whose BMC the file names, where it allows no network; none = it allows networks.
        only: Option<BTreeSet<String>>,
        /// The machines whose BMC it names and refuses, and why.
        refused: BTreeMap<String, String>,
        /// A machine of the definition gets no login.
        lacking: bool,
    },
    /// The file cannot be read: why.
    Unreadable(String),
}

impl BmcAccess {
    /// Whether a command speaks to BMCs itself: `cketerm power …` with the engine's own configuration.
    pub fn concerns(argv: &[String]) -> bool {
        let Some((program, words)) = argv.split_first() else { return false };
        let ours = program.rsplit('/').next() == Some("cketerm");
        let own_file = words.iter().any(|word| word == "--config" || word.starts_with("--config="));
        ours && !own_file && words.iter().any(|word| word == "power")
    }

    /// What the file says of the machines of a definition.
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

    /// Why the BMC of the machine with this address gets no login.
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

    /// A machine of the definition needs more than the file gives.
    pub fn lacks_networks(&self) -> bool {
        match self {
            Self::Open => false,
            Self::ByMachine { lacking, .. } => *lacking,
            Self::Unreadable(_) => true,
        }
    }
}

/// Why a BMC gets no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcRefusal<'a> {
    /// The file allows no network and does not name it.
    NotNamed,
    /// The file cannot be read, or what it says of it cannot be used: why.
    Fault(&'a str),
}

/// Our leadership.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leading {
    /// The key in `leader/`.
    pub key: String,
    /// Its create revision, which fences every write.
    pub create_revision: i64,
    /// Boot-time seconds of the win: from here the attempts of dead leaders are waited out.
    pub since: f64,
    /// Boot-time seconds of the sending of the last acknowledged keep-alive: we led then.
    #[serde(default)]
    pub acknowledged: f64,
}

/// What we saw of one control plane's probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Boot-time seconds of the last good answer.
    pub last_good: Option<f64>,
    /// Boot-time seconds since which every answer was good; none after a bad one.
    pub good_since: Option<f64>,
    /// The last bad answer, until another one.
    pub error: Option<String>,
    /// Why the last answer said nothing of the server, until another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// The address probed.
    pub url: String,
}

/// What we remember of an entry in work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The drain, as far as this leader has seen it.
    pub drain: DrainWork,
    /// The last boot or health check and when it ended (boot-time seconds).
    pub check: Option<(f64, CheckAnswer)>,
    /// Boot-time seconds at which its last command ended: what was asked before says nothing.
    #[serde(default)]
    pub commanded: Option<f64>,
    /// Boot-time seconds since which boot check, boot id, Ready and probe have all been good without a break.
    pub sound_since: Option<f64>,
    /// Boot-time seconds before which the entry is not tried again after an effect failed, and why it failed.
    pub pause: Option<(f64, String)>,
    /// Its last effect was refused for the size of its transaction: what, and the size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_large: Option<(String, TooLarge)>,
    /// We have put our lease on its Node in this leadership: another lease there now is a newer leader's.
    #[serde(default)]
    pub stamped: bool,
    /// Why the drain was backed off last (kept while queued, for display).
    pub backoff_cause: Option<String>,
    /// The last fresh read of its machine, made for its next command.
    #[serde(default)]
    pub fresh: Option<FreshRead>,
    /// Effects that came to nothing one after the other, since the last that succeeded.
    #[serde(default)]
    pub retries: Option<Retries>,
}

/// What the API server answered about one machine when it was asked for its next command: never from a watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreshRead {
    /// Boot-time seconds at which the last answer came.
    pub at: f64,
    /// Its Node; none = there is no such Node.
    pub node: Option<Arc<NodeRow>>,
    /// All pods bound to it; none = they were not asked for.
    pub pods: Option<Vec<Arc<PodRow>>>,
}

/// Effects that came to nothing, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Retries {
    /// How many.
    pub count: u32,
    /// Why the last one.
    pub why: String,
}

/// A drain, as far as this leader has seen it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainWork {
    /// We took the drain over from another leader: it counts as having evicted (spec/safety.md, Drains).
    pub taken_over: bool,
    /// Pods to leave when we first saw them all.
    pub pods_at_start: Option<u32>,
    /// The preview was clean; evictions may be sent.
    pub previewed: bool,
    /// UIDs of the pods that have passed the preview; empty again once all have.
    #[serde(default)]
    pub passed: BTreeSet<String>,
    /// The last round of the preview decided nothing about some pods.
    #[serde(default)]
    pub undecided: Option<UndecidedPreview>,
    /// Previews and first rounds of evictions that were refused as a whole.
    pub refusals: u32,
    /// Boot-time seconds of the last refusal, and what refused.
    pub refused: Option<(f64, Reason)>,
    /// Some eviction or deletion was accepted.
    pub accepted: bool,
    /// Last answers to evictions and deletions by pod UID.
    pub answers: BTreeMap<String, Answer>,
    /// When we first saw that somebody uncordoned the node.
    pub uncordoned: Option<Timestamp>,
    /// Boot-time seconds at which the leader of etcd was asked to hand over, for this machine is next.
    #[serde(default)]
    pub leader_moved: Option<f64>,
}

/// A preview of which some answers decided nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UndecidedPreview {
    /// Boot-time seconds of the last such round.
    pub at: f64,
    /// Such rounds in a row.
    pub times: u32,
    /// Seconds to wait, if the server said so.
    pub retry_after: Option<u64>,
    /// What was answered, and about which pod.
    pub reason: Reason,
}

/// An effect under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// What, in a word that screens may show.
    pub what: String,
    /// For which entry, where there is one.
    pub entry: Option<EntryId>,
    /// It begins work on the machine: counts as in progress already.
    pub starts: bool,
    /// The attempt whose command is running under us.
    pub attempt: Option<String>,
    /// Boot-time seconds since when.
    pub since: f64,
}

/// Why an effect was not carried out although nothing failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleCause {
    /// Too much time has passed since the decision: servers answer slowly.
    #[error("servers answer too slowly: {0}")]
    TooOld(NoPermit),
    /// Something was changed after the decision: what.
    #[error("{0}")]
    Changed(String),
    /// The transaction compares what it was decided from, and etcd had something else under these keys.
    #[error("changed meanwhile in etcd: {}", .keys.join(", "))]
    Conflict {
        /// Those of the compared keys.
        keys: Vec<String>,
    },
    /// A Kubernetes object has another version, or is gone: which.
    #[error("{0} was changed meanwhile")]
    Object(String),
}

/// What came of an effect; the loop puts it into [`Work`].
#[derive(Clone, Debug, PartialEq)]
pub enum EffectOutcome {
    /// Done.
    Done,
    /// Not done, nothing changed: why.
    Failed(String),
    /// What it was decided from does not hold any more: decided again, a little later each time.
    Stale(StaleCause),
    /// A fresh read of the machine.
    Rechecked(FreshRead),
    /// The result of a preview.
    Previewed(Preview),
    /// Answers to evictions and deletions by pod UID.
    Answers(BTreeMap<String, Answer>),
    /// The boot check's answer.
    Check(CheckAnswer),
    /// A command ended.
    Command(Outcome),
    /// More than etcd takes in one transaction: nothing was written.
    TooLarge(TooLarge),
    /// Leadership is lost.
    Lost,
}

impl Snapshot {
    /// The Node of a machine: by the definition's name, else by address.
    pub fn node_of(&self, address: &str) -> Option<&Arc<NodeRow>> {
        let by_name = self.store.definition().and_then(|d| {
            let member = d.members.by_address(&d.cluster, address)?;
            self.kube.by_name.get(member.node_name())
        });
        by_name.or_else(|| self.kube.by_address.get(address).and_then(|name| self.kube.by_name.get(name)))
    }

    /// The name under which a machine's effects are kept apart: its Node's name, else the address.
    pub fn machine(&self, address: &str) -> String {
        self.machine_ref(address).to_owned()
    }

    /// The same without a copy.
    pub(super) fn machine_ref<'a>(&'a self, address: &'a str) -> &'a str {
        let member = self.store.definition().and_then(|d| d.members.by_address(&d.cluster, address));
        let node = || self.kube.by_address.get(address).map(String::as_str);
        member.map(crate::model::cluster::Node::node_name).or_else(node).unwrap_or(address)
    }
}

/// Boot time as the seconds that snapshots hold.
pub fn secs(boot: Duration) -> f64 {
    boot.as_secs_f64()
}

/// What a pass saw and concluded: what screens, words and metrics show. Published after every pass, leading or not.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the pass saw.
    pub snapshot: Snapshot,
    /// The moment it was made for.
    pub now: Now,
    /// Why each unfinished entry does not move, or `Ready`; where another engine leads, its published progress has
    /// been put in already.
    pub reasons: Arc<BTreeMap<EntryId, Reason>>,
    /// Nodes that stay cordoned after their entry went, by Node name.
    pub orphans: Arc<BTreeMap<String, Reason>>,
    /// Where applying what is generated from the registry stands.
    pub applying: Arc<Applying>,
    /// Where automatic repair stands.
    pub auto_repair: Arc<AutoRepair>,
    /// What the leader knows of the receivers of notices.
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
