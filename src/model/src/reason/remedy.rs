//! Changes without which a pod's budgets never allow its eviction.
#![warn(clippy::wildcard_enum_match_arm)] // a new hold must be decided here

use super::{
    PodHold, Reason,
    budget_cause::{BudgetCause, Exclusion, Opens},
};

impl Reason {
    /// Returns the change without which no retry of the drain helps; of a backoff, the one that its cause needs. `None`
    /// for reasons that may pass by themselves.
    pub fn budget_remedy(&self) -> Option<String> {
        if let Self::Backoff { cause: Some(cause), .. } = self {
            return cause.budget_remedy();
        }
        if let Self::PdbNeverAllows { pdb, needed, cause: None, .. } = self {
            return Some(format!("run more than {needed} replicas, or lower what pdb {pdb} needs"));
        }
        let (_, hold) = self.pod_hold()?;
        hold.budget_remedy()
    }
}

impl PodHold {
    /// Returns the change without which no waiting helps; `None` for holds that may pass by themselves.
    pub fn budget_remedy(&self) -> Option<String> {
        match self {
            Self::Budget { budget, cause: Some(cause), .. } => cause.remedy(budget),
            Self::ManyBudgets { budgets } => {
                Some(format!("change selectors so that only one of the pdbs {} selects the pod", budgets.join(", ")))
            }
            Self::Budget { cause: None, .. }
            | Self::BudgetLag { .. }
            | Self::Job { .. }
            | Self::Deferred { .. }
            | Self::Denied { .. }
            | Self::Failing { .. }
            | Self::NamespaceTerminating
            | Self::Replaced
            | Self::Terminating { .. }
            | Self::Leaving
            | Self::Refused { .. } => None,
        }
    }
}

impl BudgetCause {
    /// Returns the change that lets the budget of this name allow an eviction, if it never does by itself.
    fn remedy(&self, budget: &str) -> Option<String> {
        if let [_, others @ ..] = self.deadlock.as_slice() {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            return Some(format!("cancel this entry or {}", others.join(" or ")));
        }
        match &self.opens {
            Opens::Never { because } => Some(because.remedy(budget)),
            Opens::WhenHealthy { .. } | Opens::Unknown | Opens::WhenCounted => None,
        }
    }
}

impl Exclusion {
    fn remedy(&self, budget: &str) -> String {
        match self {
            Self::NoLimit | Self::NoneUnavailable => format!("set maxUnavailable of pdb {budget} to 1 or more"),
            Self::OneReplica => {
                format!("run 2 replicas, or replace minAvailable of pdb {budget} by maxUnavailable: 1")
            }
            // more replicas do not help: the percentage needs those, too
            Self::AllNeeded { min_available, .. } if min_available.ends_with('%') => {
                format!("replace minAvailable {min_available} of pdb {budget} by maxUnavailable: 1")
            }
            Self::AllNeeded { min_available, pods } => {
                format!("run more than {min_available} replicas, or set minAvailable of pdb {budget} below {pods}")
            }
            Self::NotCounted { .. } => format!("set minAvailable of pdb {budget} to a number"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryId;

    fn budget(opens: Opens) -> Reason {
        let cause = BudgetCause { opens, pods: 3, unhealthy: Vec::new(), more: 0, deadlock: Vec::new() };
        let (pod, pdb) = ("shop/w".to_owned(), "shop/web".to_owned());
        Reason::BlockedByPdb { pod, pdb, healthy: 3, needed: 3, cause: Some(Box::new(cause)) }
    }

    #[test]
    fn the_remedy_is_what_opens_a_budget_that_never_opens_by_itself() {
        let never = |because| budget(Opens::Never { because });
        let all = |min_available: &str| Exclusion::AllNeeded { min_available: min_available.into(), pods: 3 };
        for (because, expected) in [
            (Exclusion::NoLimit, "set maxUnavailable of pdb shop/web to 1 or more"),
            (Exclusion::NoneUnavailable, "set maxUnavailable of pdb shop/web to 1 or more"),
            (Exclusion::OneReplica, "run 2 replicas, or replace minAvailable of pdb shop/web by maxUnavailable: 1"),
            (all("100%"), "replace minAvailable 100% of pdb shop/web by maxUnavailable: 1"),
            (all("3"), "run more than 3 replicas, or set minAvailable of pdb shop/web below 3"),
            (Exclusion::NotCounted { message: "no controller".into() }, "set minAvailable of pdb shop/web to a number"),
        ] {
            assert_eq!(never(because).budget_remedy().as_deref(), Some(expected));
        }
        let pdb = "shop/web".to_owned();
        let unknown = Reason::PdbNeverAllows { pod: "shop/w".into(), pdb, healthy: 3, needed: 3, pods: 3, cause: None };
        let remedy = "run more than 3 replicas, or lower what pdb shop/web needs";
        assert_eq!(unknown.budget_remedy().as_deref(), Some(remedy));
        let until = jiff::Timestamp::UNIX_EPOCH;
        let backoff = Reason::Backoff { count: 1, until, cause: Some(Box::new(unknown)), tried: None };
        assert_eq!(backoff.budget_remedy().as_deref(), Some(remedy));
    }

    #[test]
    fn a_deadlock_and_several_budgets_have_a_remedy_and_a_budget_that_opens_has_none() {
        let mut waits = budget(Opens::WhenHealthy { missing: 1 });
        assert_eq!(waits.budget_remedy(), None);
        assert_eq!(budget(Opens::WhenCounted).budget_remedy(), None);
        if let Reason::BlockedByPdb { cause: Some(cause), .. } = &mut waits {
            cause.deadlock = vec![EntryId::reboot(1), EntryId::reboot(2)];
        }
        assert_eq!(waits.budget_remedy().as_deref(), Some("cancel this entry or reboots/2"));
        let many = Reason::BlockedByManyPdbs { pod: "shop/w".into(), pdbs: vec!["shop/a".into(), "shop/b".into()] };
        let remedy = "change selectors so that only one of the pdbs shop/a, shop/b selects the pod";
        assert_eq!(many.budget_remedy().as_deref(), Some(remedy));
    }
}
