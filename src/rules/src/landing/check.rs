//! The landing check of a set of nodes.

use std::collections::{BTreeSet, HashMap, HashSet};

use cketerm_model::{
    names::NodeName,
    placement::{PlacementPod, PlacementView, PodPhase, Preemption, Priority},
};
use foldhash::fast::FixedState;

use super::{
    answer::{Doubt, Landing, LandingAnswer, PodAnswer, PodLanding, Tie, merged},
    class::{missing_volume, static_fit},
    cluster::{ClassId, Cluster, Indexed, index},
    counter::NodeId,
    nodes::Access,
    state::State,
    trial::{Circumstances, Mover, Outcome, Scale, Setting, play},
};

/// Number of trials, at least.
const TRIALS: usize = 24;
/// Number of trials of few pods, which are cheap.
const TRIALS_OF_FEW: usize = 72;
/// Number of pods up to which they are few.
const FEW: usize = 60;
/// Pending pods that are considered, at most.
const MAX_RIVALS: usize = 1_000;
/// Comparisons of a pod with a node, at most.
const MAX_STEPS: u64 = 20_000_000;
/// Number of complete trials below which nothing can be said.
const FEWEST_TRIALS: usize = 6;

type PodSet = HashSet<*const PlacementPod, FixedState>;

/// Checks whether the pods that leave these nodes find a place elsewhere. `moves` excludes pods that the caller knows
/// to stay; mirror pods, pods of a `DaemonSet` and finished ones never count. `also_unavailable` takes no pods either.
pub fn check(
    view: &PlacementView,
    leaving: &BTreeSet<NodeName>,
    moves: impl Fn(&PlacementPod) -> bool,
    also_unavailable: &BTreeSet<NodeName>,
) -> Landing {
    let leaves = |pod: &PlacementPod| {
        let on_node = pod.node.as_ref().is_some_and(|node| leaving.contains(node));
        on_node && !pod.finished() && !pod.belongs_to_node() && moves(pod)
    };
    let mut all: Vec<&PlacementPod> = view.pods.iter().filter(|pod| leaves(pod)).collect();
    all.sort_by(|a, b| (&a.node, &a.namespace, &a.name).cmp(&(&b.node, &b.namespace, &b.name)));
    // The replacement of a pod that terminates exists already, except for a StatefulSet.
    all.retain(|pod| !pod.terminating || pod.controller.is_none() || pod.controlled_by("StatefulSet"));
    let gone: PodSet = view.pods.iter().filter(|pod| leaves(pod)).map(std::ptr::from_ref).collect();
    let returning = all.iter().copied().filter(|pod| pod.controller.is_some());
    let actors: Vec<&PlacementPod> = returning.chain(rivals(view)).collect();
    let closed = |name: &NodeName| leaving.contains(name) || also_unavailable.contains(name);
    let access = |name: &NodeName| if closed(name) { Access::Closed } else { Access::AsIs };
    let Indexed { cluster, class_of } = index(view, &actors, access);
    let trials = Trials::run(&cluster, &actors, &class_of, &gone);
    let mut judged = Judge::new(&cluster, &trials, &gone);
    let answers: Vec<PodAnswer> = (0..trials.leaving).map(|mover| judged.answer(mover)).collect();
    let (answer, elsewhere) = (judged.overall(&answers, false), judged.overall(&answers, true));
    let mut answers = answers.into_iter();
    let pods = all.into_iter().map(|pod| PodLanding {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        controller: pod.controller.clone(),
        node: pod.node.clone().unwrap_or_default(),
        answer: match pod.controller {
            Some(_) => answers.next().unwrap_or(PodAnswer::Uncertain(Doubt::TooLarge)),
            None => PodAnswer::NotRecreated,
        },
    });
    let pods = pods.collect();
    let fewest_pending = trials.played.iter().map(|placed| trials.pending(placed)).min().unwrap_or(trials.leaving);
    Landing { pods, answer, elsewhere, fewest_pending, steps: trials.steps }
}

/// Returns the pending pods that look for a place too, the most important first.
fn rivals(view: &PlacementView) -> impl Iterator<Item = &PlacementPod> {
    let is_rival = |pod: &&PlacementPod| {
        let waits = pod.node.is_none() && pod.phase == PodPhase::Pending && !pod.terminating && !pod.gated;
        waits && pod.unreadable.is_none()
    };
    let mut rivals: Vec<&PlacementPod> = view.pods.iter().filter(is_rival).collect();
    rivals.sort_by_key(|pod| (std::cmp::Reverse(pod.spec.priority), &pod.namespace, &pod.name));
    rivals.into_iter().take(MAX_RIVALS)
}

/// Results of all trials.
struct Trials<'a> {
    movers: Vec<Mover<'a>>,
    /// Number of those that leave; they come first.
    leaving: usize,
    candidates: Vec<Vec<NodeId>>,
    /// State without the pods that leave or terminate: the most room that there can be.
    roomiest: State<'a>,
    /// Pods that found a place, for each trial.
    played: Vec<Vec<bool>>,
    /// State at the end of the last trial.
    last: State<'a>,
    complete: bool,
    steps: u64,
}

impl<'a> Trials<'a> {
    fn run(cluster: &Cluster<'a>, actors: &[&'a PlacementPod], class_of: &[ClassId], gone: &PodSet) -> Self {
        let is_gone = |pod: &PlacementPod| gone.contains(&std::ptr::from_ref(pod));
        let bound: HashMap<*const PlacementPod, usize, FixedState> = cluster
            .bound
            .iter()
            .enumerate()
            .filter(|(_, bound)| is_gone(bound.pod))
            .map(|(id, bound)| (std::ptr::from_ref(bound.pod), id))
            .collect();
        let movers = actors.iter().zip(class_of).map(|(pod, class)| {
            let bound = bound.get(&std::ptr::from_ref(*pod)).copied();
            Mover { pod, class: *class, leaves: pod.node.is_some(), bound }
        });
        let movers: Vec<Mover<'a>> = movers.collect();
        let leaving = movers.iter().filter(|mover| mover.leaves).count();
        let terminates = |pod: &PlacementPod| pod.terminating && !pod.belongs_to_node();
        let roomiest = State::new(cluster, |pod| !is_gone(pod) && !terminates(pod));
        let mut steps = 0;
        let candidates = candidates(cluster, &roomiest, &mut steps);
        let mut trials = Self {
            movers,
            leaving,
            candidates,
            last: roomiest.clone(),
            roomiest,
            played: Vec::new(),
            complete: true,
            steps,
        };
        if leaving > 0 {
            trials.play(cluster, is_gone, terminates);
        }
        trials
    }

    fn play(
        &mut self,
        cluster: &Cluster<'a>,
        is_gone: impl Fn(&PlacementPod) -> bool,
        terminates: impl Fn(&PlacementPod) -> bool,
    ) {
        let moving: PodSet = self.movers.iter().map(|mover| std::ptr::from_ref(mover.pod)).collect();
        let start = |gradual: bool, terminated: bool| {
            State::new(cluster, |pod| {
                if is_gone(pod) {
                    gradual && moving.contains(&std::ptr::from_ref(pod))
                } else {
                    !(terminated && terminates(pod))
                }
            })
        };
        let starts = [start(false, false), start(false, true), start(true, false), start(true, true)];
        let count = if self.movers.len() <= FEW { TRIALS_OF_FEW } else { TRIALS };
        let (scale, mut steps) = (Scale::new(cluster), self.steps);
        let setting =
            Setting { cluster, movers: &self.movers, scale: &scale, candidates: &self.candidates, limit: MAX_STEPS };
        for number in 0..count {
            let circumstances = Circumstances::of_trial(number);
            let start = &starts[usize::from(circumstances.gradual) * 2 + usize::from(circumstances.terminated)];
            let Some(Outcome { placed, state }) = play(&setting, circumstances, start.clone(), number, &mut steps)
            else {
                break;
            };
            self.played.push(placed);
            self.last = state;
        }
        self.steps = steps;
        self.complete = self.played.len() >= FEWEST_TRIALS;
    }

    /// Returns the number of pods that left and found no place in a trial.
    fn pending(&self, placed: &[bool]) -> usize {
        placed.iter().take(self.leaving).filter(|placed| !**placed).count()
    }
}

/// Returns for each class the nodes that pass all filters which other pods cannot make easier.
fn candidates<'a>(cluster: &Cluster<'a>, roomiest: &State<'a>, steps: &mut u64) -> Vec<Vec<NodeId>> {
    let of_class = cluster.classes.iter().map(|class| {
        *steps += u64::try_from(class.eligible.len()).unwrap_or(u64::MAX);
        let fits = |node: &NodeId| {
            roomiest.room(class, *node).and_then(|()| roomiest.exclusion(cluster, class, *node)).is_ok()
        };
        class.eligible.iter().copied().filter(fits).collect()
    });
    of_class.collect()
}

/// Judgement of the trials.
struct Judge<'t, 'a> {
    cluster: &'t Cluster<'a>,
    trials: &'t Trials<'a>,
    gone: &'t PodSet,
    /// Amounts that pods of lower priority have on each node, by priority; none for nodes without such pods.
    lower: HashMap<Priority, HashMap<NodeId, Vec<i64>, FixedState>, FixedState>,
    rescues: HashMap<ClassId, Option<Doubt>, FixedState>,
}

impl<'t, 'a> Judge<'t, 'a> {
    fn new(cluster: &'t Cluster<'a>, trials: &'t Trials<'a>, gone: &'t PodSet) -> Self {
        Self { cluster, trials, gone, lower: HashMap::default(), rescues: HashMap::default() }
    }

    fn answer(&mut self, mover: usize) -> PodAnswer {
        let Mover { class, .. } = self.trials.movers[mover];
        let doubt = self.cluster.classes[class].doubt.clone();
        let placed = self.trials.played.iter().filter(|placed| placed[mover]).count();
        match doubt {
            Some(doubt) if placed > 0 || !doubt.only_restricts() => return PodAnswer::Uncertain(doubt),
            Some(_) | None => {}
        }
        if !self.trials.complete && !self.trials.candidates[class].is_empty() {
            return PodAnswer::Uncertain(Doubt::TooLarge);
        }
        if placed > 0 {
            let always = placed == self.trials.played.len();
            return if always { PodAnswer::Fits } else { PodAnswer::Uncertain(Doubt::Order) };
        }
        if let Some(tie) = self.tie(mover) {
            return PodAnswer::OnlyHere { tie };
        }
        match self.rescue(class) {
            Some(doubt) => PodAnswer::Uncertain(doubt),
            None => PodAnswer::Cannot(self.obstacles(class)),
        }
    }

    /// Returns the answer for all pods, or for all but those that can only return.
    fn overall(&mut self, answers: &[PodAnswer], elsewhere: bool) -> LandingAnswer {
        let counts = |answer: &PodAnswer| !(elsewhere && matches!(answer, PodAnswer::OnlyHere { .. }));
        let impossible = |answer: &PodAnswer| match answer {
            PodAnswer::Cannot(_) | PodAnswer::OnlyHere { .. } => counts(answer),
            PodAnswer::Fits | PodAnswer::NotRecreated | PodAnswer::Uncertain(_) => false,
        };
        if answers.iter().any(impossible) {
            return LandingAnswer::Cannot;
        }
        let open = |answer: &PodAnswer| match answer {
            PodAnswer::Uncertain(_) => true,
            PodAnswer::Fits | PodAnswer::NotRecreated | PodAnswer::OnlyHere { .. } | PodAnswer::Cannot(_) => false,
        };
        if !answers.iter().any(open) {
            return LandingAnswer::Fits;
        }
        // Each pod may find a place, yet not all of them together.
        let decided = |answer: &PodAnswer| match answer {
            PodAnswer::Fits | PodAnswer::Uncertain(Doubt::Order) => true,
            PodAnswer::NotRecreated | PodAnswer::OnlyHere { .. } | PodAnswer::Cannot(_) | PodAnswer::Uncertain(_) => {
                false
            }
        };
        let required: Vec<usize> = (0..answers.len()).filter(|mover| decided(&answers[*mover])).collect();
        let trials = self.trials;
        let all_placed = trials.played.iter().any(|placed| required.iter().all(|mover| placed[*mover]));
        let mut failing = required.iter().filter(|mover| trials.played.iter().any(|placed| !placed[**mover]));
        let saved = failing.any(|mover| self.rescue(trials.movers[*mover].class).is_some());
        if all_placed || saved || !trials.complete { LandingAnswer::Uncertain } else { LandingAnswer::Cannot }
    }

    /// Returns the bond of a pod whose labels and volumes accept only nodes that take no pods now, its own among them.
    fn tie(&self, mover: usize) -> Option<Tie> {
        let Mover { pod, class, bound, .. } = self.trials.movers[mover];
        let own = self.cluster.bound[bound?].node;
        let volumes = &self.cluster.classes[class].volumes;
        let entries = &self.cluster.nodes.entries;
        let missing = |id: NodeId| missing_volume(volumes, &entries[id].node.name, &entries[id].node.labels);
        let accepts = |id: NodeId| pod.spec.node_rules.accept(&entries[id].node.name, &entries[id].node.labels);
        let open = || (0..entries.len()).filter(|id| entries[*id].open());
        if missing(own).is_some() || !accepts(own) || open().any(|id| accepts(id) && missing(id).is_none()) {
            return None;
        }
        let nowhere = volumes
            .iter()
            .find(|volume| !open().any(|id| volume.affinity.matches(&entries[id].node.name, &entries[id].node.labels)));
        Some(match nowhere {
            Some(volume) => Tie::Volume(volume.name.to_owned()),
            None if open().any(accepts) => Tie::Volume(volumes.first()?.name.to_owned()),
            None => Tie::NodeRules,
        })
    }

    /// Returns the fact that may give a place to a class that found none.
    fn rescue(&mut self, class: ClassId) -> Option<Doubt> {
        if let Some(known) = self.rescues.get(&class) {
            return known.clone();
        }
        let rescue = if self.could_preempt(class) {
            Some(Doubt::Preemption)
        } else if self.cluster.classes[class].tolerates_cordon() {
            Some(Doubt::ToleratesCordon)
        } else {
            self.unknown_place(class)
        };
        self.rescues.insert(class, rescue.clone());
        rescue
    }

    /// Returns the doubt about the first open node that cannot be understood and is not excluded by what is known.
    fn unknown_place(&self, class: ClassId) -> Option<Doubt> {
        let row = &self.cluster.classes[class];
        let possible = self.cluster.unknown.iter().find(|(node, _)| {
            let entry = &self.cluster.nodes.entries[**node];
            entry.node.unreadable.is_some() || static_fit(row.pod, &row.volumes, entry).is_ok()
        });
        possible.map(|(_, doubt)| doubt.clone())
    }

    /// Reports whether a node has room for the class without its pods of lower priority.
    fn could_preempt(&mut self, class: ClassId) -> bool {
        let class = &self.cluster.classes[class];
        let spec = &class.pod.spec;
        let never = match spec.preemption {
            Preemption::Never => true,
            Preemption::LowerPriority => self.cluster.lowest_priority().is_none_or(|lowest| lowest >= spec.priority),
        };
        if never {
            return false;
        }
        let (cluster, gone, roomiest) = (self.cluster, self.gone, &self.trials.roomiest);
        let lower = self.lower.entry(spec.priority).or_insert_with(|| {
            let mut lower: HashMap<NodeId, Vec<i64>, FixedState> = HashMap::default();
            let below = cluster.bound.iter().filter(|bound| bound.pod.spec.priority < spec.priority);
            for bound in below.filter(|bound| !gone.contains(&std::ptr::from_ref(bound.pod))) {
                let sums = lower.entry(bound.node).or_insert_with(|| vec![0; cluster.resources.len()]);
                for (sum, amount) in sums.iter_mut().zip(bound.requests.iter()) {
                    *sum = sum.saturating_add(*amount);
                }
            }
            lower
        });
        class.eligible.iter().any(|node| {
            let Some(sums) = lower.get(node) else { return false };
            let enough = |(resource, needed): (usize, &i64)| {
                *needed <= 0 || *needed <= roomiest.free(*node, resource).saturating_add(sums[resource])
            };
            class.requests.iter().enumerate().all(enough)
        })
    }

    /// Returns the obstacles of a class on all open nodes.
    fn obstacles(&self, class: ClassId) -> Vec<(super::obstacle::Obstacle, usize)> {
        let row = &self.cluster.classes[class];
        let entries = self.cluster.nodes.entries.iter().enumerate().filter(|(_, entry)| entry.open());
        // Without a candidate the state that is easiest to understand is the one before anything was placed.
        let state = if self.trials.candidates[class].is_empty() { &self.trials.roomiest } else { &self.trials.last };
        merged(entries.filter_map(|(id, entry)| {
            let fit = static_fit(row.pod, &row.volumes, entry).and_then(|()| state.fit(self.cluster, row, id));
            fit.err().map(|blocked| state.name(self.cluster, class, id, blocked))
        }))
    }
}
