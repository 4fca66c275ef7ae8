//! Landing check: whether the pods that leave some nodes find a place on the others.
//!
//! The rules are those of the default scheduler. Each pod alone is compared with every node first. Then all pods are
//! placed together, many times: in several orders, and with several ways to choose among the nodes. A place that every
//! trial finds is certain, one that no trial finds does not exist, and everything else is uncertain.
//!
//! | file | content |
//! | --- | --- |
//! | `answer` | answers of the check |
//! | `obstacle` | reasons why a node does not take a pod |
//! | `nodes` | nodes of a question, and their topology domains |
//! | `class` | classes of equal pods, filters of the node alone |
//! | `counter`, `counters` | numbers of pods by domain |
//! | `cluster` | index of one question |
//! | `state` | free amounts at one moment, filters that depend on other pods |
//! | `trial` | placing pods one after another |
//! | `check` | the check |
//! | `gate` | drains that wait for places for their pods |
//! | `waits` | pods that wait for nodes, nodes that wait for each other |

mod answer;
mod check;
mod class;
mod cluster;
mod counter;
mod counters;
mod gate;
mod nodes;
mod obstacle;
mod random;
mod state;
mod trial;
mod waits;

#[cfg(test)]
mod tests;

pub use self::{
    answer::{Doubt, Landing, LandingAnswer, PodAnswer, PodLanding, Tie},
    check::check,
    gate::{gate, is_drained},
    obstacle::Obstacle,
    waits::{mutual, waits_only_for, waits_only_for_each},
};
