//! Cause behind a budget that allows no eviction: which of its pods are not healthy and why, whether it can ever allow
//! one, and what would change that.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{entry::EntryId, names::NodeName};

/// Maximum number of pods that a cause names; `more` counts the others.
pub const MAX_UNHEALTHY_PODS: usize = 3;
/// Maximum number of nodes that a waiting pod names.
pub const MAX_AWAITED_NODES: usize = 3;

/// Cause behind a budget that allows no eviction. Found from the budget, its pods and their Nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetCause {
    /// Condition under which the budget allows an eviction.
    pub opens: Opens,
    /// Number of pods that the budget counts.
    pub pods: i32,
    /// Pods of the budget that are not healthy, the longest-lasting troubles first; at most [`MAX_UNHEALTHY_PODS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy: Vec<UnhealthyPod>,
    /// Number of further pods that are not healthy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// Drains that wait for each other because of this budget, this entry first. Empty if there is no such circle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deadlock: Vec<EntryId>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Condition under which a budget allows an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Opens {
    /// Never, even with all pods healthy: somebody has to change the budget or the workload.
    Never {
        /// The setting that excludes every eviction.
        because: Exclusion,
    },
    /// Once so many more pods are healthy.
    WhenHealthy {
        /// Number of pods.
        missing: i32,
    },
    /// Perhaps never: it needs all present pods, and its `StatefulSet` makes further ones only once these are healthy.
    Unknown,
    /// Once its controller has counted again: enough pods are healthy, or an eviction has just used it up.
    WhenCounted,
}

/// Setting that excludes every eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Exclusion {
    /// Neither `minAvailable` nor `maxUnavailable` is set.
    NoLimit,
    /// `maxUnavailable` is 0 or 0 %.
    NoneUnavailable,
    /// The workload has one pod, and the budget needs it.
    OneReplica,
    /// `minAvailable` is as many pods as there are, or more.
    AllNeeded {
        /// `minAvailable` as written: a number or a percentage.
        min_available: String,
        /// Number of pods that the budget counts.
        pods: i32,
    },
    /// The controller cannot count the pods (condition `DisruptionAllowed`, reason `SyncFailed`).
    NotCounted {
        /// Its message.
        message: String,
    },
}

/// Pod that its budget does not count as healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnhealthyPod {
    /// `namespace/name`.
    pub pod: String,
    /// Its node; none while it is not scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Reason why it is not healthy.
    pub why: PodTrouble,
}

/// Reason why a pod is not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PodTrouble {
    /// A container waits (`state.waiting`).
    Waiting {
        /// For example `CrashLoopBackOff`.
        reason: String,
        /// The kubelet's message; may be empty.
        message: String,
    },
    /// The scheduler finds no node for it.
    Unschedulable {
        /// The scheduler's message.
        message: String,
        /// Cordoned nodes that it may run on, as far as node selector, affinity and taints tell.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waits_for: Vec<AwaitedNode>,
    },
    /// Its node is not Ready.
    NodeNotReady,
    /// Its node does not exist any longer.
    NodeGone,
    /// It is being deleted.
    Terminating,
    /// It has not started yet.
    Starting,
    /// It runs, and its readiness checks fail.
    NotReady,
}

/// Cordoned node that a pod waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedNode {
    /// The node.
    pub node: NodeName,
    /// The entry that cordoned it; none = somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryId>,
}

impl BudgetCause {
    /// Reports whether no eviction will be allowed until somebody changes the budget or the workload.
    pub fn is_permanent(&self) -> bool {
        match self.opens {
            Opens::Never { .. } => true,
            Opens::WhenHealthy { .. } | Opens::WhenCounted | Opens::Unknown => false,
        }
    }
}

impl BudgetCause {
    /// Returns the cause in few words, for a row: `web-1 CrashLoopBackOff`. None if no pod and no setting is to blame.
    pub fn in_short(&self) -> Option<String> {
        self.short_forms().into_iter().next()
    }

    /// Returns [`in_short`](Self::in_short), and shorter forms that still name the trouble, the longest first.
    pub fn short_forms(&self) -> Vec<String> {
        if let [_, other, ..] = self.deadlock.as_slice() {
            return vec![format!("deadlock with {other}"), "deadlock".to_owned()];
        }
        if let Opens::Never { because } = &self.opens {
            return vec![because.in_short()];
        }
        let Some(first) = self.unhealthy.first() else { return Vec::new() };
        let (whole, trouble) = (first.in_short(), first.why.in_short());
        match self.unhealthy.len() + self.more - 1 {
            0 => vec![whole, trouble],
            others => vec![format!("{whole} and {others} more"), whole, trouble],
        }
    }
}

impl UnhealthyPod {
    /// Returns the object with its trouble: the node if that is the trouble, else the pod.
    fn in_short(&self) -> String {
        let name = self.pod.rsplit('/').next().unwrap_or_default();
        match (&self.why, &self.node) {
            (PodTrouble::NodeNotReady, Some(node)) => format!("node {node} NotReady"),
            (PodTrouble::NodeGone, Some(node)) => format!("node {node} is gone"),
            (why, _) => format!("{name} {}", why.in_short()),
        }
    }
}

impl PodTrouble {
    fn in_short(&self) -> String {
        match self {
            Self::Waiting { reason, .. } => reason.clone(),
            Self::Unschedulable { waits_for, .. } => match waits_for.as_slice() {
                [] => "unschedulable".to_owned(),
                [first, ..] => format!("waits for {first}"),
            },
            Self::NodeNotReady => "node NotReady".to_owned(),
            Self::NodeGone => "node is gone".to_owned(),
            Self::NotReady => "NotReady".to_owned(),
            Self::Terminating => "terminating".to_owned(),
            Self::Starting => "starting".to_owned(),
        }
    }
}

impl Exclusion {
    fn in_short(&self) -> String {
        match self {
            Self::NoLimit => "no limit set".to_owned(),
            Self::NoneUnavailable => "maxUnavailable 0".to_owned(),
            Self::OneReplica => "needs its one pod".to_owned(),
            Self::AllNeeded { min_available, .. } => format!("minAvailable {min_available}"),
            Self::NotCounted { .. } => "cannot be counted".to_owned(),
        }
    }
}

/// Writes the cause as the end of a sentence about the budget: the trouble first, the remedy last.
impl fmt::Display for BudgetCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [_, others @ ..] = self.deadlock.as_slice() {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            let others = others.join(", ");
            write!(f, "deadlock with {others}, each waits for the node of another: cancel one of them; ")?;
        }
        if let Opens::Never { because } = &self.opens {
            return write!(f, "{because}");
        }
        for (i, pod) in self.unhealthy.iter().enumerate() {
            write!(f, "{}{pod}", if i == 0 { "" } else { "; " })?;
        }
        if self.more > 0 {
            write!(f, "; {} more", self.more)?;
        }
        match (&self.opens, self.unhealthy.is_empty()) {
            (Opens::WhenHealthy { missing: 1 }, false) => f.write_str("; opens with one more healthy pod"),
            (Opens::WhenHealthy { missing }, false) => write!(f, "; opens with {missing} more healthy pods"),
            (Opens::WhenHealthy { missing: 1 }, true) => f.write_str("needs one more healthy pod"),
            (Opens::WhenHealthy { missing }, true) => write!(f, "needs {missing} more healthy pods"),
            (Opens::Unknown, is_empty) => {
                let separator = if is_empty { "" } else { "; " };
                write!(f, "{separator}may open once its StatefulSet has made all pods")
            }
            (Opens::WhenCounted | Opens::Never { .. }, _) => f.write_str("opens once its controller has counted again"),
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => f.write_str("it has no limit: set maxUnavailable to 1 or more"),
            Self::NoneUnavailable => f.write_str("maxUnavailable is 0: set it to 1 or more"),
            Self::OneReplica => {
                f.write_str("its one pod is needed: run 2 replicas, or replace minAvailable by maxUnavailable: 1")
            }
            Self::AllNeeded { min_available, .. } if min_available == "100%" => f.write_str(
                "minAvailable 100% needs every pod, however many there are: replace it by maxUnavailable: 1",
            ),
            Self::AllNeeded { min_available, pods } => {
                write!(f, "minAvailable {min_available} needs all {pods} pods: lower it, or run more replicas")
            }
            Self::NotCounted { message } => {
                write!(f, "it cannot count its pods: {message}: set minAvailable to a number")
            }
        }
    }
}

impl fmt::Display for UnhealthyPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pod)?;
        match (&self.node, &self.why) {
            (Some(node), PodTrouble::NodeNotReady | PodTrouble::NodeGone) => write!(f, ": node {node} {}", self.why),
            (Some(node), _) => write!(f, " on {node} {}", self.why),
            (None, _) => write!(f, " {}", self.why),
        }
    }
}

impl fmt::Display for PodTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // for these the message only repeats the name of the pod
            Self::Waiting { reason, message }
                if message.is_empty() || matches!(reason.as_str(), "CrashLoopBackOff" | "ImagePullBackOff") =>
            {
                write!(f, "waits: {reason}")
            }
            Self::Waiting { reason, message } => write!(f, "waits: {reason}: {message}"),
            Self::Unschedulable { message, waits_for } if waits_for.is_empty() => {
                write!(f, "cannot be scheduled: {message}")
            }
            Self::Unschedulable { message, waits_for } => {
                let nodes: Vec<String> = waits_for.iter().map(ToString::to_string).collect();
                write!(f, "waits for cordoned {}: {message}", nodes.join(", "))
            }
            Self::NodeNotReady => f.write_str("is not Ready"),
            Self::NodeGone => f.write_str("does not exist"),
            Self::Terminating => f.write_str("is terminating"),
            Self::Starting => f.write_str("is starting"),
            Self::NotReady => f.write_str("runs but is not Ready"),
        }
    }
}

impl fmt::Display for AwaitedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(entry) => write!(f, "{} ({entry})", self.node),
            None => write!(f, "{}", self.node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(opens: Opens, unhealthy: Vec<UnhealthyPod>) -> BudgetCause {
        BudgetCause { opens, pods: 3, unhealthy, more: 0, deadlock: Vec::new() }
    }

    fn pod(name: &str, node: Option<&str>, why: PodTrouble) -> UnhealthyPod {
        UnhealthyPod { pod: format!("shop/{name}"), node: node.map(NodeName::new), why }
    }

    #[test]
    fn a_cause_names_the_trouble_first_and_the_remedy_last() {
        let waiting = PodTrouble::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() };
        let awaited = AwaitedNode { node: NodeName::new("n2"), entry: Some(EntryId::reboot(7)) };
        let unschedulable = PodTrouble::Unschedulable { message: "0/3 nodes".into(), waits_for: vec![awaited] };
        let healthy = |missing| Opens::WhenHealthy { missing };
        let never = |because| Opens::Never { because };
        let table = [
            (
                cause(healthy(1), vec![pod("web-1", Some("n1"), waiting)]),
                "shop/web-1 on n1 waits: CrashLoopBackOff; opens with one more healthy pod",
            ),
            (
                cause(healthy(2), vec![pod("web-1", None, unschedulable)]),
                "shop/web-1 waits for cordoned n2 (reboots/7): 0/3 nodes; opens with 2 more healthy pods",
            ),
            (
                cause(healthy(1), vec![pod("web-1", Some("n1"), PodTrouble::NodeNotReady)]),
                "shop/web-1: node n1 is not Ready; opens with one more healthy pod",
            ),
            (cause(healthy(1), Vec::new()), "needs one more healthy pod"),
            (cause(never(Exclusion::NoneUnavailable), Vec::new()), "maxUnavailable is 0: set it to 1 or more"),
            (
                cause(never(Exclusion::AllNeeded { min_available: "100%".into(), pods: 3 }), Vec::new()),
                "minAvailable 100% needs every pod, however many there are: replace it by maxUnavailable: 1",
            ),
            (cause(Opens::WhenCounted, Vec::new()), "opens once its controller has counted again"),
        ];
        for (cause, expected) in table {
            assert_eq!(cause.to_string(), expected);
            let stored = serde_json::to_string(&cause).unwrap();
            assert_eq!(serde_json::from_str::<BudgetCause>(&stored).unwrap(), cause, "{stored}");
        }
    }

    #[test]
    fn a_cause_has_a_short_form() {
        let waiting = PodTrouble::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() };
        let table = [
            (vec![pod("web-1", Some("n1"), waiting.clone())], "web-1 CrashLoopBackOff"),
            (
                vec![pod("web-1", Some("n1"), PodTrouble::NodeNotReady), pod("w", None, waiting)],
                "node n1 NotReady and 1 more",
            ),
        ];
        for (pods, expected) in table {
            assert_eq!(cause(Opens::WhenHealthy { missing: 1 }, pods).in_short().as_deref(), Some(expected));
        }
        let pods = vec![pod("web-1", None, PodTrouble::Starting), pod("web-2", None, PodTrouble::Starting)];
        let forms = cause(Opens::WhenHealthy { missing: 1 }, pods).short_forms();
        assert_eq!(forms, ["web-1 starting and 1 more", "web-1 starting", "starting"]);
        let never = cause(Opens::Never { because: Exclusion::NoneUnavailable }, Vec::new());
        assert_eq!(never.in_short().as_deref(), Some("maxUnavailable 0"));
    }

    #[test]
    fn a_deadlock_names_the_other_drains() {
        let mut cause = cause(Opens::WhenHealthy { missing: 1 }, Vec::new());
        cause.deadlock = vec![EntryId::reboot(1), EntryId::reboot(2)];
        assert!(
            cause
                .to_string()
                .starts_with("deadlock with reboots/2, each waits for the node of another: cancel one of them; ")
        );
    }
}
