//! Other programs that drain or delete a Node, by the taints and annotations that they set on it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::NodeRow;

/// Program that drains, reboots or deletes Nodes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrainProgram {
    /// cluster-autoscaler removes the Node.
    ClusterAutoscaler,
    /// Karpenter replaces or removes the Node.
    Karpenter,
    /// kured reboots the machine.
    Kured,
    /// The Flatcar Linux update operator reboots the machine.
    FlatcarUpdateOperator,
    /// The Node Maintenance Operator of medik8s keeps the Node drained.
    NodeMaintenanceOperator,
    /// The Machine Config Operator (`OpenShift`) updates the machine.
    MachineConfigOperator,
}

impl fmt::Display for DrainProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterAutoscaler => "cluster-autoscaler",
            Self::Karpenter => "Karpenter",
            Self::Kured => "kured",
            Self::FlatcarUpdateOperator => "the Flatcar update operator",
            Self::NodeMaintenanceOperator => "the Node Maintenance Operator",
            Self::MachineConfigOperator => "the Machine Config Operator",
        })
    }
}

/// Taint or annotation by which a program says that it works on a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainSign {
    /// The program.
    pub program: DrainProgram,
    /// The taint or annotation, for people: `taint KEY`, `annotation KEY`.
    pub sign: String,
}

/// Taints by their key, and the value that counts; none = any.
const TAINTS: [(&str, Option<&str>, DrainProgram); 4] = [
    ("ToBeDeletedByClusterAutoscaler", None, DrainProgram::ClusterAutoscaler),
    ("karpenter.sh/disrupted", None, DrainProgram::Karpenter),
    ("karpenter.sh/disruption", Some("disrupting"), DrainProgram::Karpenter),
    ("medik8s.io/drain", None, DrainProgram::NodeMaintenanceOperator),
];

/// Annotations of kured, with `--annotate-nodes`. It sets them while it waits for its lock, too.
const KURED: [&str; 2] = ["weave.works/kured-reboot-in-progress", "kured.dev/kured-reboot-in-progress"];

/// Annotations by their key, and the beginning of the values that count.
const ANNOTATIONS: [(&str, &str, DrainProgram); 4] = [
    (KURED[0], "", DrainProgram::Kured),
    (KURED[1], "", DrainProgram::Kured),
    ("flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress", "true", DrainProgram::FlatcarUpdateOperator),
    ("machineconfiguration.openshift.io/desiredDrain", "drain-", DrainProgram::MachineConfigOperator),
];

impl NodeRow {
    /// Returns the sign of another program that works on this Node now. kured's annotation alone only says that it wants
    /// to: it counts together with a cordon that is neither cketerm's nor CKE's.
    pub fn drain_sign(&self) -> Option<DrainSign> {
        let described = &self.described;
        let by_taint = TAINTS.iter().find_map(|(key, value, program)| {
            let is =
                |taint: &&crate::cluster::Taint| taint.key == *key && value.is_none_or(|value| taint.value == value);
            described.taints.iter().find(is).map(|_| DrainSign { program: *program, sign: format!("taint {key}") })
        });
        by_taint.or_else(|| {
            let is_cordoned_by_other = self.unschedulable && self.owner.is_none() && !self.cke_mark;
            let works = |program: DrainProgram| program != DrainProgram::Kured || is_cordoned_by_other;
            ANNOTATIONS.iter().filter(|(_, _, program)| works(*program)).find_map(|(key, begins, program)| {
                let is = |(found, value): &(&str, &str)| found == key && value.starts_with(begins);
                let sign = || DrainSign { program: *program, sign: format!("annotation {key}") };
                described.annotations.iter().find(is).map(|_| sign())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Taint;

    #[test]
    fn each_program_is_known_by_its_sign_and_soft_or_past_signs_do_not_count() {
        let taint = |key: &str, value: &str| {
            let mut row = NodeRow::default();
            let (key, value, effect) = (key.to_owned(), value.to_owned(), "NoSchedule".to_owned());
            row.described.taints = vec![Taint { key, value, effect, ..Taint::default() }];
            row.drain_sign().map(|sign| sign.program)
        };
        let annotation = |key: &str, value: &str| {
            let mut row = NodeRow { unschedulable: true, ..NodeRow::default() };
            row.described.annotations = [(key.to_owned(), value.to_owned())].into_iter().collect();
            row.drain_sign().map(|sign| sign.program)
        };
        assert_eq!(taint("ToBeDeletedByClusterAutoscaler", "1795735530"), Some(DrainProgram::ClusterAutoscaler));
        assert_eq!(taint("DeletionCandidateOfClusterAutoscaler", "1795735530"), None, "it may change its mind");
        assert_eq!(taint("karpenter.sh/disrupted", ""), Some(DrainProgram::Karpenter));
        assert_eq!(taint("karpenter.sh/disruption", "disrupting"), Some(DrainProgram::Karpenter));
        assert_eq!(taint("medik8s.io/drain", ""), Some(DrainProgram::NodeMaintenanceOperator));
        assert_eq!(taint("node.kubernetes.io/unschedulable", ""), None, "a cordon names nobody");
        let time = "2026-11-26T10:00:00Z";
        assert_eq!(annotation("weave.works/kured-reboot-in-progress", time), Some(DrainProgram::Kured));
        let mut waits_for_lock = NodeRow::default();
        waits_for_lock.described.annotations = [(KURED[0].to_owned(), time.to_owned())].into_iter().collect();
        assert_eq!(waits_for_lock.drain_sign(), None, "it sets the annotation before it has its lock");
        let ours = NodeRow { unschedulable: true, cke_mark: true, ..waits_for_lock };
        assert_eq!(ours.drain_sign(), None, "the cordon is another program's only if nobody else marked it");
        assert_eq!(annotation("weave.works/kured-most-recent-reboot-needed", time), None, "it stays after the reboot");
        let flatcar = "flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress";
        assert_eq!(annotation(flatcar, "true"), Some(DrainProgram::FlatcarUpdateOperator));
        assert_eq!(annotation(flatcar, "false"), None);
        let openshift = "machineconfiguration.openshift.io/desiredDrain";
        assert_eq!(annotation(openshift, "drain-rendered-1"), Some(DrainProgram::MachineConfigOperator));
        assert_eq!(annotation(openshift, "uncordon-rendered-1"), None);
    }
}
