//! Nodes of one wave of which each has pods that only the other one takes.

use std::fmt;

use cketerm_model::names::NodeName;

/// Two such nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutualNodes {
    /// One of them.
    pub a: NodeName,
    /// The other one.
    pub b: NodeName,
    /// Result of draining both at once.
    pub outcome: MutualOutcome,
}

/// Result of draining two such nodes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutualOutcome {
    /// Budgets hold pods of both, so each drain waits for the other node.
    Deadlock,
    /// Both drains end, and the pods wait for one of the nodes to return.
    Pending,
}

impl MutualNodes {
    /// Judges a pair of nodes. `has_budgets` tells whether budgets select pods of a node.
    pub(crate) fn of((a, b): &(NodeName, NodeName), has_budgets: impl Fn(&NodeName) -> bool) -> Self {
        let outcome = if has_budgets(a) && has_budgets(b) { MutualOutcome::Deadlock } else { MutualOutcome::Pending };
        Self { a: a.clone(), b: b.clone(), outcome }
    }
}

impl fmt::Display for MutualNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b, outcome } = self;
        let pair = format!("pods of {a} fit only on {b}, and pods of {b} only on {a}");
        match outcome {
            MutualOutcome::Deadlock => write!(f, "deadlock: {pair}: drain them one after the other"),
            MutualOutcome::Pending => write!(f, "{pair}: they stay Pending until one of the nodes is back"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_wait_for_each_other_are_a_deadlock_if_budgets_hold_pods_of_both() {
        let pair = (NodeName::new("w1"), NodeName::new("w2"));
        let both = MutualNodes::of(&pair, |_| true);
        assert_eq!(
            both.to_string(),
            "deadlock: pods of w1 fit only on w2, and pods of w2 only on w1: drain them one after the other"
        );
        let one = MutualNodes::of(&pair, |node| *node == pair.0);
        assert_eq!(one.outcome, MutualOutcome::Pending);
        assert!(one.to_string().ends_with("they stay Pending until one of the nodes is back"), "{one}");
    }
}
