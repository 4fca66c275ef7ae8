//! Nodes whose pods lack capacity together, although each pod alone finds a place.

use std::{collections::BTreeSet, fmt};

use cketerm_model::names::NodeName;

/// Nodes that a text names, at most.
const MAX_NAMED: usize = 3;

/// Nodes of one wave that cannot be drained at once without pods that stay pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooManyTogether {
    /// The nodes of the wave.
    pub nodes: BTreeSet<NodeName>,
    /// Least number of their pods that find no place, in any order.
    pub pending: usize,
}

impl fmt::Display for TooManyTogether {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<&str> = self.nodes.iter().take(MAX_NAMED).map(NodeName::as_str).collect();
        let named = named.join(", ");
        let more = match self.nodes.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let pods = if self.pending == 1 { "1 pod finds".to_owned() } else { format!("{} pods find", self.pending) };
        write!(f, "at least {pods} no place while {named}{more} are drained at once: drain fewer at a time")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_number_of_pods_and_the_first_nodes() {
        let of = |names: &[&str], pending| {
            let nodes = names.iter().map(|name| NodeName::new(*name)).collect();
            TooManyTogether { nodes, pending }.to_string()
        };
        assert_eq!(
            of(&["w1", "w2"], 1),
            "at least 1 pod finds no place while w1, w2 are drained at once: drain fewer at a time"
        );
        let five = of(&["w1", "w2", "w3", "w4", "w5"], 7);
        assert!(five.starts_with("at least 7 pods find no place while w1, w2, w3 and 2 more are drained"), "{five}");
    }
}
