//! Conditions and a taint on Nodes, by which cketerm tells other programs and people of its work. No rule of cketerm
//! depends on them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::NodeRow;
use crate::{cluster::Taint, entry::QueueKind};

/// Key of the taint on Nodes that are rebooted soon. The Events and the documents name it, too.
pub const PLANNED_TAINT: &str = "cketerm.io/reboot-planned";
/// Effect of that taint: new pods go elsewhere if they can, and no pod has to leave.
const PLANNED_TAINT_EFFECT: &str = "PreferNoSchedule";

/// Condition of a Node's life cycle, after KEP-5683.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LifecycleCondition {
    /// An entry of a queue is for the machine, and its turn comes soon.
    MaintenancePlanned,
    /// The Node is being drained.
    DrainInProgress,
    /// The Node was drained for the command that runs or has run.
    Drained,
    /// The machine is being rebooted or repaired.
    MaintenanceInProgress,
}

impl LifecycleCondition {
    /// All of them with their types in `status.conditions`, in the order in which a Node goes through them. The KEP is
    /// young: a new name of its is changed here only.
    pub const NAMES: [(Self, &'static str); 4] = [
        (Self::MaintenancePlanned, "MaintenancePlanned"),
        (Self::DrainInProgress, "DrainInProgress"),
        (Self::Drained, "Drained"),
        (Self::MaintenanceInProgress, "MaintenanceInProgress"),
    ];

    /// Returns the type in `status.conditions`.
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(condition, _)| *condition == self).map_or("", |(_, name)| name)
    }

    /// Returns the condition of this type, if it is one of these.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(condition, _)| *condition)
    }
}

impl fmt::Display for LifecycleCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reasons of cketerm's conditions, by kind of work. They are also the mark by which cketerm knows its own.
const REASONS: [(QueueKind, &str); 3] = [
    (QueueKind::Reboot, "CketermReboot"),
    (QueueKind::Repair, "CketermRepair"),
    (QueueKind::Maintenance, "CketermMaintenance"),
];

/// Returns the reason of a condition for an entry of this queue.
pub fn condition_reason(queue: QueueKind) -> &'static str {
    REASONS.iter().find(|(known, _)| *known == queue).map_or("", |(_, reason)| reason)
}

/// A condition of the life cycle on a Node, of cketerm or of another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundCondition {
    /// The condition.
    pub condition: LifecycleCondition,
    /// `status`.
    pub status: Box<str>,
    /// `reason`.
    pub reason: Box<str>,
    /// `message`.
    pub message: Box<str>,
}

impl FoundCondition {
    /// Reports whether cketerm wrote it.
    pub fn is_own(&self) -> bool {
        is_own_reason(&self.reason)
    }
}

/// Reports whether a condition with this reason is cketerm's.
pub fn is_own_reason(reason: &str) -> bool {
    REASONS.iter().any(|(_, own)| *own == reason)
}

/// Returns the taint on Nodes that are rebooted soon.
pub fn planned_taint() -> Taint {
    Taint {
        key: PLANNED_TAINT.to_owned(),
        value: String::new(),
        effect: PLANNED_TAINT_EFFECT.to_owned(),
        ..Taint::default()
    }
}

/// Reports whether it is that taint. One with the same key and another effect is somebody else's.
pub fn is_planned_taint(taint: &Taint) -> bool {
    taint.key == PLANNED_TAINT && taint.effect == PLANNED_TAINT_EFFECT
}

/// Change of one condition on a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionChange {
    /// The condition.
    pub condition: LifecycleCondition,
    /// New content; none = it is removed.
    pub content: Option<ConditionContent>,
}

/// Content of a condition that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionContent {
    /// Whether the condition did not hold before, so that its transition is now.
    pub begins: bool,
    /// `reason`.
    pub reason: &'static str,
    /// `message`.
    pub message: String,
}

impl NodeRow {
    /// Returns this condition, whoever wrote it.
    pub fn lifecycle_condition(&self, condition: LifecycleCondition) -> Option<&FoundCondition> {
        self.lifecycle.iter().find(|found| found.condition == condition)
    }

    /// Reports whether the Node has the taint of Nodes that are rebooted soon.
    pub fn has_planned_taint(&self) -> bool {
        self.described.taints.iter().any(is_planned_taint)
    }

    /// Reports whether the Node has a condition of cketerm, or that taint.
    pub fn has_signs(&self) -> bool {
        self.lifecycle.iter().any(FoundCondition::is_own) || self.has_planned_taint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_has_a_name_of_its_own() {
        for (condition, name) in LifecycleCondition::NAMES {
            assert_eq!((condition.as_str(), LifecycleCondition::named(name)), (name, Some(condition)));
        }
        assert_eq!(LifecycleCondition::named("Ready"), None);
    }

    #[test]
    fn only_conditions_with_a_reason_of_cketerm_and_its_own_taint_are_signs() {
        let found = |reason: &str| FoundCondition {
            condition: LifecycleCondition::Drained,
            status: "True".into(),
            reason: reason.into(),
            message: "m".into(),
        };
        let with = |conditions: Vec<FoundCondition>, taints: Vec<Taint>| {
            let mut row = NodeRow { lifecycle: conditions, ..NodeRow::default() };
            row.described.taints = taints;
            row.has_signs()
        };
        assert!(with(vec![found("SomebodyElse"), found(condition_reason(QueueKind::Repair))], Vec::new()));
        assert!(!with(vec![found("SomebodyElse")], Vec::new()));
        assert!(with(Vec::new(), vec![planned_taint()]));
        assert!(!with(Vec::new(), vec![Taint { effect: "NoSchedule".to_owned(), ..planned_taint() }]));
    }
}
