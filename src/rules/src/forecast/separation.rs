//! Reasons why the order by budgets puts a node into a later wave than a node ahead of it (REB-68).

use std::fmt;

use serde::Serialize;

/// Nodes that a text names, at most.
const MAX_NAMED: usize = 3;

/// Reason why a node starts after others, although a slot is free for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Separation {
    /// A budget does not allow the pods of this node beside those of the others.
    Budget {
        /// `namespace/name` of the budget.
        budget: String,
        /// Evictions that it allows now.
        allowed: i32,
        /// Nodes of the wave before that have pods of the budget.
        nodes: Vec<String>,
    },
    /// It may not overtake a node that waits for a budget any more often (policy `max_overtakes`).
    Overtakes {
        /// The node that waits.
        node: String,
    },
}

impl fmt::Display for Separation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { budget, allowed, nodes } => {
                let named: Vec<&str> = nodes.iter().take(MAX_NAMED).map(String::as_str).collect();
                write!(f, "waits for {}", named.join(", "))?;
                if nodes.len() > MAX_NAMED {
                    write!(f, " and {} more", nodes.len() - MAX_NAMED)?;
                }
                let who = if nodes.len() > 1 { "all" } else { "both" };
                write!(f, ": {who} have pods of pdb {budget}, which allows ")?;
                match allowed {
                    ..=0 => f.write_str("no disruption now"),
                    1 => f.write_str("1 disruption"),
                    more => write!(f, "{more} disruptions"),
                }
            }
            Self::Overtakes { node } => {
                write!(f, "waits behind {node}, which it may not overtake again (policy max_overtakes)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separation_names_the_nodes_and_the_budget() {
        let budget = |allowed, nodes: &[&str]| Separation::Budget {
            budget: "shop/web".to_owned(),
            allowed,
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        };
        for (separation, expected) in [
            (budget(1, &["n1"]), "waits for n1: both have pods of pdb shop/web, which allows 1 disruption"),
            (budget(0, &["n1"]), "waits for n1: both have pods of pdb shop/web, which allows no disruption now"),
            (
                budget(4, &["n1", "n2", "n3", "n4", "n5"]),
                "waits for n1, n2, n3 and 2 more: all have pods of pdb shop/web, which allows 4 disruptions",
            ),
            (
                Separation::Overtakes { node: "n2".to_owned() },
                "waits behind n2, which it may not overtake again (policy max_overtakes)",
            ),
        ] {
            assert_eq!(separation.to_string(), expected);
        }
    }
}
