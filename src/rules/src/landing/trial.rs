//! One trial: pods are placed one after another, in one order and with one way to choose among the nodes.

use std::collections::HashMap;

use cketerm_model::placement::{PlacementPod, ResourceName};
use foldhash::fast::FixedState;

use super::{
    cluster::{ClassId, Cluster},
    counter::NodeId,
    random::Random,
    state::State,
};

/// Number of candidates up to which all of them are compared.
const SMALL: usize = 100;
/// Number of nodes that take the pod and are compared, among more candidates. The scheduler samples too.
const SAMPLE: usize = 32;
/// Rounds in which pods that found no place try again, because pods placed later can help them.
const ROUNDS: usize = 4;

/// Pod that looks for a place.
pub(super) struct Mover<'a> {
    pub(super) pod: &'a PlacementPod,
    pub(super) class: ClassId,
    /// Whether it leaves a node. Otherwise it is pending.
    pub(super) leaves: bool,
    /// Index among the bound pods, for one that leaves a node.
    pub(super) bound: Option<usize>,
}

/// Order in which pods look for a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Biggest,
    Smallest,
    Name,
    Shuffled,
}

/// Way to choose among the nodes that take a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The emptiest node, with few pods of the same class: the scheduler's default.
    Emptiest,
    /// The fullest node.
    Fullest,
    /// Any node.
    Any,
}

/// Time at which pending pods look for a place, compared with those that leave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rivals {
    First,
    Mixed,
    Last,
}

/// Circumstances of one trial.
#[derive(Clone, Copy)]
pub(super) struct Circumstances {
    pub(super) order: Order,
    pub(super) choice: Choice,
    pub(super) rivals: Rivals,
    /// Whether pods of higher priority come first.
    pub(super) by_priority: bool,
    /// Whether pods leave one by one, so that those which have not left yet are still counted.
    pub(super) gradual: bool,
    /// Whether pods that terminate on other nodes are gone already.
    pub(super) terminated: bool,
}

impl Circumstances {
    /// Returns the circumstances of the trial with this number.
    pub(super) fn of_trial(number: usize) -> Self {
        let order = match number % 6 {
            0 => Order::Biggest,
            1 => Order::Smallest,
            2 => Order::Name,
            _ => Order::Shuffled,
        };
        let choice = match number % 8 {
            6 => Choice::Fullest,
            7 => Choice::Any,
            _ => Choice::Emptiest,
        };
        let rivals = match number % 5 {
            1 => Rivals::First,
            3 => Rivals::Mixed,
            _ => Rivals::Last,
        };
        let (by_priority, gradual, terminated) =
            (!number.is_multiple_of(3), number % 4 >= 2, !number.is_multiple_of(2));
        Self { order, choice, rivals, by_priority, gradual, terminated }
    }
}

/// Capacity and sizes that all trials of a check share.
pub(super) struct Scale {
    /// Indices of CPU and memory among the cluster's resources.
    scored: Vec<usize>,
    /// Allocatable amounts, by node and resource.
    capacity: Vec<i64>,
    /// Size of each class in thousandths of the largest node, over all resources.
    sizes: Vec<i128>,
}

impl Scale {
    pub(super) fn new(cluster: &Cluster<'_>) -> Self {
        let entries = &cluster.nodes.entries;
        let of_node =
            |node: usize| cluster.resources.iter().map(move |name| entries[node].node.allocatable.get(name).0);
        let capacity: Vec<i64> = (0..entries.len()).flat_map(of_node).collect();
        let width = cluster.resources.len();
        let largest =
            |resource: usize| capacity.iter().skip(resource).step_by(width.max(1)).copied().max().unwrap_or(0);
        let largest: Vec<i64> = (0..width).map(largest).collect();
        let size = |requests: &[i64]| {
            let shares = requests.iter().zip(&largest).map(|(needed, most)| thousandths(*needed, *most));
            shares.sum()
        };
        let is_scored = |name: &&ResourceName| matches!(name.as_str(), ResourceName::CPU | ResourceName::MEMORY);
        let scored = (0..width).filter(|resource| is_scored(&cluster.resources[*resource])).collect();
        Self { scored, sizes: cluster.classes.iter().map(|class| size(&class.requests)).collect(), capacity }
    }
}

fn thousandths(part: i64, of: i64) -> i128 {
    i128::from(part) * 1000 / i128::from(of.max(1))
}

/// Outcome of a trial.
pub(super) struct Outcome<'a> {
    /// Whether each pod found a place.
    pub(super) placed: Vec<bool>,
    /// State at the end.
    pub(super) state: State<'a>,
}

/// Everything that trials read.
pub(super) struct Setting<'c, 'a> {
    pub(super) cluster: &'c Cluster<'a>,
    pub(super) movers: &'c [Mover<'a>],
    pub(super) scale: &'c Scale,
    /// Nodes of each class that pass all filters which other pods cannot make easier.
    pub(super) candidates: &'c [Vec<NodeId>],
    /// Number of comparisons at which a trial gives up.
    pub(super) limit: u64,
}

/// A trial in progress.
struct Trial<'s, 'c, 'a> {
    setting: &'s Setting<'c, 'a>,
    circumstances: Circumstances,
    state: State<'a>,
    random: Random,
    /// Number of placed pods by class and node.
    siblings: HashMap<(ClassId, NodeId), i128, FixedState>,
    /// Classes that cannot find a place any more.
    hopeless: Vec<bool>,
}

/// Plays one trial from this state. Returns none if it takes too many steps.
pub(super) fn play<'a>(
    setting: &Setting<'_, 'a>,
    circumstances: Circumstances,
    state: State<'a>,
    number: usize,
    steps: &mut u64,
) -> Option<Outcome<'a>> {
    let seed = u64::try_from(number).unwrap_or(0);
    let mut trial = Trial {
        setting,
        circumstances,
        state,
        random: Random::new(seed),
        siblings: HashMap::default(),
        hopeless: setting.candidates.iter().map(Vec::is_empty).collect(),
    };
    let mut placed = vec![false; setting.movers.len()];
    let mut waiting = trial.ordered();
    for round in 0..ROUNDS {
        let before = waiting.len();
        let mut left = Vec::new();
        for mover in waiting {
            let Mover { class, bound, .. } = &setting.movers[mover];
            if let Some(bound) = bound.filter(|_| circumstances.gradual && round == 0) {
                trial.state.uncount(setting.cluster, &setting.cluster.bound[bound]);
            }
            if *steps > setting.limit {
                return None;
            }
            if trial.place(*class, steps) {
                placed[mover] = true;
            } else {
                left.push(mover);
            }
        }
        waiting = left;
        let done = waiting.is_empty() || waiting.iter().all(|mover| trial.hopeless[setting.movers[*mover].class]);
        if done || (round > 0 && waiting.len() == before) {
            break;
        }
    }
    Some(Outcome { placed, state: trial.state })
}

impl Trial<'_, '_, '_> {
    /// Returns the pods in the order of this trial.
    fn ordered(&mut self) -> Vec<usize> {
        let Setting { movers, scale, .. } = self.setting;
        let Circumstances { order, rivals, by_priority, .. } = self.circumstances;
        let mut all: Vec<usize> = (0..movers.len()).collect();
        self.random.shuffle(&mut all);
        let size = |mover: usize| scale.sizes[movers[mover].class];
        match order {
            Order::Biggest => all.sort_by_key(|mover| std::cmp::Reverse(size(*mover))),
            Order::Smallest => all.sort_by_key(|mover| size(*mover)),
            Order::Name => all.sort_by_key(|mover| (&movers[*mover].pod.namespace, &movers[*mover].pod.name)),
            Order::Shuffled => {}
        }
        if by_priority {
            all.sort_by_key(|mover| std::cmp::Reverse(movers[*mover].pod.spec.priority));
        }
        let is_rival = |mover: &usize| !movers[*mover].leaves;
        match rivals {
            Rivals::First => all.sort_by_key(|mover| !is_rival(mover)),
            Rivals::Mixed => {}
            Rivals::Last => all.sort_by_key(is_rival),
        }
        all
    }

    fn place(&mut self, class: ClassId, steps: &mut u64) -> bool {
        if self.hopeless[class] {
            return false;
        }
        if let Some(node) = self.choose(class, steps) {
            self.state.place(self.setting.cluster, class, node);
            *self.siblings.entry((class, node)).or_default() += 1;
            return true;
        }
        let row = &self.setting.cluster.classes[class];
        self.hopeless[class] = row.is_plain() || (row.only_gets_harder() && !self.circumstances.gradual);
        false
    }

    fn choose(&mut self, class: ClassId, steps: &mut u64) -> Option<NodeId> {
        let cluster = self.setting.cluster;
        let candidates = &self.setting.candidates[class];
        let enough = match self.circumstances.choice {
            Choice::Any => 1,
            Choice::Emptiest | Choice::Fullest if candidates.len() <= SMALL => SMALL,
            Choice::Emptiest | Choice::Fullest => SAMPLE,
        };
        let start = self.random.below(candidates.len());
        let (mut best, mut found) = (None, 0);
        for node in candidates[start..].iter().chain(&candidates[..start]) {
            *steps += 1;
            if self.state.fit(cluster, &cluster.classes[class], *node).is_err() {
                continue;
            }
            let score = self.score(class, *node);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, *node));
            }
            found += 1;
            if found >= enough {
                break;
            }
        }
        best.map(|(_, node)| node)
    }

    fn score(&self, class: ClassId, node: NodeId) -> i128 {
        let Setting { cluster, scale, .. } = self.setting;
        let requests = &cluster.classes[class].requests;
        let free = |resource: &usize| {
            let after = self.state.free(node, *resource).saturating_sub(requests[*resource]);
            thousandths(after, scale.capacity[node * cluster.resources.len() + resource])
        };
        let (mut sum, mut least, mut most) = (0, 1000, 0);
        for share in scale.scored.iter().map(free) {
            (sum, least, most) = (sum + share, share.min(least), share.max(most));
        }
        let count = i128::try_from(scale.scored.len()).unwrap_or(1).max(1);
        match self.circumstances.choice {
            Choice::Emptiest => {
                let siblings = self.siblings.get(&(class, node)).copied().unwrap_or(0);
                sum / count - (most - least).max(0) / 2 - 300 * siblings
            }
            Choice::Fullest => -sum,
            Choice::Any => 0,
        }
    }
}
