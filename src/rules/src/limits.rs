//! Limits that stop drains, by the policy and the constraints that are stored: as numbers for the rules, and as sentences
//! for a person who checks a definition.

use cketerm_model::{
    cluster::Cluster,
    constraints::Constraints,
    policy::{Membership, Policy},
};

/// Returns how many nodes may be unreachable before new drains stop (REB-17). In a definition that follows the Nodes,
/// a share of the members counts too.
pub(crate) fn unreachable_limit(policy: &Policy, constraints: &Constraints, members: u64) -> i64 {
    let limit = constraints.maximum_unreachable_nodes_for_reboot;
    match policy.membership {
        Membership::Nodes => {
            limit.max(i64::try_from(members.saturating_mul(policy.unreachable_percent) / 100).unwrap_or(i64::MAX))
        }
        Membership::Auto | Membership::Manual | Membership::Sabakan => limit,
    }
}

/// Explains the limits that hold for the drains of this definition, one sentence each.
pub fn explained(cluster: &Cluster, policy: &Policy, constraints: &Constraints) -> Vec<String> {
    let members = cluster.nodes.len() as u64;
    let limit = unreachable_limit(policy, constraints, members);
    let constraint = constraints.maximum_unreachable_nodes_for_reboot;
    let source = match policy.membership {
        Membership::Nodes => format!(
            "{} % of {members} members by policy `unreachable_percent`, at least the constraint \
             `maximum-unreachable-nodes-for-reboot` of {constraint}",
            policy.unreachable_percent
        ),
        Membership::Auto | Membership::Manual | Membership::Sabakan => {
            "constraint `maximum-unreachable-nodes-for-reboot`".to_owned()
        }
    };
    let mut all = vec![match limit {
        ..=0 => format!("no drain starts while any node is unreachable ({source})"),
        1 => format!("drains start while at most one node is unreachable ({source})"),
        limit => format!("drains start while at most {limit} nodes are unreachable ({source})"),
    }];
    let jobs = match &cluster.reboot.protected_job_pods {
        Some(_) => "a running Job that `protected_job_pods` selects",
        None => "any running Job, because `protected_job_pods` is not set,",
    };
    all.push(match policy.job_grace_seconds {
        0 => format!("a drain backs off at once from {jobs} and never evicts its pods (policy `job_grace_seconds`)"),
        seconds => {
            let seconds = seconds.min(u64::try_from(cluster.reboot.eviction_timeout()).unwrap_or_default());
            format!(
                "a drain waits up to {seconds} s for {jobs} then backs off, and never evicts its pods (policy \
                 `job_grace_seconds`)"
            )
        }
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_explained_with_their_source() {
        let text = format!("name: t\nnodes: [{}]\n", vec!["{address: 10.0.0.1}"; 25].join(", "));
        let mut cluster: Cluster = serde_yaml::from_str(&text).unwrap();
        let (mut policy, constraints) = (Policy::default(), Constraints::default());
        let [nodes, jobs] = explained(&cluster, &policy, &constraints).try_into().unwrap();
        assert_eq!(
            nodes,
            "no drain starts while any node is unreachable (constraint `maximum-unreachable-nodes-for-reboot`)"
        );
        assert!(jobs.starts_with("a drain backs off at once from any running Job"), "{jobs}");
        (policy.membership, policy.job_grace_seconds) = (Membership::Nodes, 900);
        cluster.reboot.eviction_timeout_seconds = Some(600);
        let [nodes, jobs] = explained(&cluster, &policy, &constraints).try_into().unwrap();
        assert!(nodes.starts_with("drains start while at most 2 nodes are unreachable (10 % of 25 members"), "{nodes}");
        assert!(jobs.starts_with("a drain waits up to 600 s for any running Job"), "{jobs}");
    }
}
