//! Signals that a Node shows: the reasons why it needs a reboot.

use std::sync::Arc;

use cketerm_model::{
    agent::NEEDED_PREFIX,
    kube::{KubeView, NodeRow},
    names::NodeName,
    policy::{Policy, RebootNeeded},
    reboot_signals::{Preset, REBOOT_NEEDED_ANNOTATION, Signal, Signals, Wanted},
    text::visible,
};
use imbl::{OrdMap, OrdSet, ordmap::DiffItem};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Annotations in which kured notes when it last found that the machine needs a reboot: those of its releases, and of
/// its next version.
const KURED: [&str; 2] = ["weave.works/kured-most-recent-reboot-needed", "kured.dev/kured-most-recent-reboot-needed"];
/// Annotation of the Flatcar Linux update operator.
const FLATCAR: &str = "flatcar-linux-update.v1.flatcar-linux.net/reboot-needed";
/// Conditions of node-problem-detector that a reboot may end.
const PROBLEMS: [&str; 6] = [
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "CorruptDockerOverlay2",
    "FrequentKubeletRestart",
    "FrequentContainerdRestart",
    "FrequentDockerRestart",
];
/// Maximum number of characters of a cause.
const MAX_CAUSE: usize = 80;

/// One signal that is set on a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Cause, for people. Nodes with the same cause are queued as one batch.
    pub cause: String,
    /// Its value, if another one means another reboot.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Time at which it was set, if it says so. Such a signal stays after the reboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Timestamp>,
    /// Whether its Node became Ready after it was set: it is of an earlier boot, or the Node was away for a moment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub past: bool,
}

/// Signals of all Nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShownSignals {
    /// Signals by Node; Nodes without any are left out.
    pub by_node: OrdMap<NodeName, Vec<Shown>>,
    /// Nodes with a signal that is not of the past.
    pub current: OrdSet<NodeName>,
}

impl ShownSignals {
    /// Returns the signals of all Nodes under this policy.
    pub fn of(policy: &Policy, kube: &KubeView) -> Self {
        let mut all = Self::default();
        if policy.reboot_needed != RebootNeeded::Off {
            for node in kube.nodes.values() {
                all.put(&policy.reboot_needed_signals, node);
            }
        }
        all
    }

    /// Returns the signals of a Node.
    pub fn of_node(&self, node: &NodeName) -> &[Shown] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// Reports whether no Node shows a signal.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    fn put(&mut self, signals: &Signals, node: &NodeRow) {
        let shown = shown(signals, node);
        if shown.is_empty() {
            return self.remove(&node.name);
        }
        if shown.iter().any(|signal| !signal.past) {
            self.current.insert(node.name.clone());
        } else {
            self.current.remove(&node.name);
        }
        self.by_node.insert(node.name.clone(), shown);
    }

    fn remove(&mut self, node: &NodeName) {
        self.by_node.remove(node);
        self.current.remove(node);
    }
}

/// Signals of the last look, so that each look costs as much as has changed.
#[derive(Clone, Debug, Default)]
pub struct SignalCache {
    policy: Option<(RebootNeeded, Signals)>,
    nodes: OrdMap<NodeName, Arc<NodeRow>>,
    shown: Arc<ShownSignals>,
}

impl SignalCache {
    /// Returns the signals of all Nodes under this policy.
    pub fn look(&mut self, policy: &Policy, kube: &KubeView) -> Arc<ShownSignals> {
        let is_same = self.policy.as_ref().is_some_and(|(choice, signals)| {
            *choice == policy.reboot_needed && *signals == policy.reboot_needed_signals
        });
        if !is_same {
            self.policy = Some((policy.reboot_needed, policy.reboot_needed_signals.clone()));
            self.shown = Arc::new(ShownSignals::of(policy, kube));
        } else if policy.reboot_needed != RebootNeeded::Off && !self.nodes.ptr_eq(&kube.nodes) {
            for change in self.nodes.diff(&kube.nodes) {
                match change {
                    DiffItem::Add(_, node) | DiffItem::Update { new: (_, node), .. } => {
                        let shown = shown(&policy.reboot_needed_signals, node);
                        if self.shown.of_node(&node.name) != shown.as_slice() {
                            Arc::make_mut(&mut self.shown).put(&policy.reboot_needed_signals, node);
                        }
                    }
                    DiffItem::Remove(name, _) => {
                        if self.shown.by_node.contains_key(name) {
                            Arc::make_mut(&mut self.shown).remove(name);
                        }
                    }
                }
            }
        }
        self.nodes = kube.nodes.clone();
        Arc::clone(&self.shown)
    }
}

/// Returns the signals that are set on a Node, in the order of the policy.
pub fn shown(signals: &Signals, node: &NodeRow) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for signal in &signals.0 {
        match signal {
            Signal::Preset(Preset::Kured) => all.extend(kured(node)),
            Signal::Preset(Preset::Flatcar) => {
                let is_set = node.described.annotations.get(FLATCAR) == Some("true");
                all.extend(is_set.then(|| lasting("Flatcar update", "")));
            }
            Signal::Preset(Preset::NodeProblemDetector) => {
                let set = PROBLEMS.iter().filter(|problem| node.conditions.get(problem) == Some("True"));
                all.extend(set.map(|problem| lasting(problem, "")));
            }
            Signal::Condition { condition, status } => {
                let is_set = node.conditions.get(condition) == Some(status.as_str());
                let cause = if status == "True" { condition.clone() } else { format!("{condition} is {status}") };
                all.extend(is_set.then(|| lasting(&cause, "")));
            }
            Signal::Annotation(wanted) => all.extend(pair(wanted, node.described.annotations.get(&wanted.key))),
            Signal::Label(wanted) => all.extend(pair(wanted, node.described.labels.get(&wanted.key))),
            // The version that runs now is no part of the identity: a reboot that brings a third version helps no more
            // than one that brings none.
            Signal::Kernel(version) => all.extend(other("kernel", version, &node.kernel)),
            Signal::OsImage(image) => all.extend(other("OS image", image, &node.os_image)),
        }
    }
    // two sources may name the same cause
    let mut unique: Vec<Shown> = Vec::with_capacity(all.len());
    for signal in all {
        if !unique.iter().any(|known| (&known.cause, &known.value) == (&signal.cause, &signal.value)) {
            unique.push(signal);
        }
    }
    unique
}

/// Returns a signal that is set until the reason is gone.
fn lasting(cause: &str, value: &str) -> Shown {
    let cause: String = visible(cause.trim(), false).chars().take(MAX_CAUSE).collect();
    Shown { cause, value: value.to_owned(), set_at: None, past: false }
}

/// Returns kured's signal. Its annotation stays after the reboot, so its value counts: a time.
fn kured(node: &NodeRow) -> Option<Shown> {
    let value = KURED.iter().find_map(|key| node.described.annotations.get(key))?;
    let set_at = value.parse::<Timestamp>().ok();
    let past = node.ready && set_at.zip(node.ready_since).is_some_and(|(set_at, ready_since)| ready_since > set_at);
    Some(Shown { set_at, past, ..lasting("kured", value) })
}

fn pair(wanted: &Wanted, value: Option<&str>) -> Option<Shown> {
    let value = value?;
    // The agent names the packages. They differ from machine to machine and change, and ask for one reboot in one batch.
    if wanted.key == REBOOT_NEEDED_ANNOTATION
        && wanted.value.is_none()
        && value.starts_with(NEEDED_PREFIX)
        && let Some((cause, _)) = value.split_once(": ")
    {
        return Some(lasting(cause, ""));
    }
    let cause = match &wanted.value {
        Some(wanted_value) if wanted_value != value => return None,
        None if value == "false" => return None,
        None if wanted.key == REBOOT_NEEDED_ANNOTATION && !matches!(value.trim(), "" | "true") => value.to_owned(),
        None if value.is_empty() => wanted.key.clone(),
        Some(_) | None => format!("{}={value}", wanted.key),
    };
    Some(lasting(&cause, ""))
}

fn other(what: &str, wanted: &str, present: &str) -> Option<Shown> {
    // an empty text: the kubelet has not reported yet
    (!present.is_empty() && present != wanted).then(|| lasting(&format!("{what} {wanted}"), ""))
}
