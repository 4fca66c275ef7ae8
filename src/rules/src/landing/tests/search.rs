//! Comparison with a complete search on tiny clusters: requests, allowed nodes, pods that keep apart.

use super::scene::*;
use crate::landing::LandingAnswer;

/// Number of clusters.
const CASES: usize = 800;

/// Pods that leave and nodes that stay, as plain numbers.
struct Tiny {
    free: Vec<i64>,
    /// Amount, allowed nodes, and whether no other pod of this kind may be on the node.
    pods: Vec<(i64, Vec<bool>, bool)>,
}

impl Tiny {
    fn random(dice: &mut fastrand::Rng) -> Self {
        let nodes = dice.usize(1..4);
        let free = (0..nodes).map(|_| dice.i64(1..8)).collect();
        let pod = |dice: &mut fastrand::Rng| {
            (dice.i64(1..5), (0..nodes).map(|_| dice.u8(..5) > 0).collect(), dice.u8(..4) == 0)
        };
        let pods = (0..dice.usize(1..5)).map(|_| pod(dice)).collect();
        Self { free, pods }
    }

    fn view(&self) -> cketerm_model::placement::PlacementView {
        let hosts: Vec<String> = (0..self.free.len()).map(|i| format!("b{i}")).collect();
        let mut nodes = vec![node("a1", 100)];
        nodes.extend(hosts.iter().zip(&self.free).map(|(host, free)| node(host, *free)));
        let pods = self.pods.iter().enumerate().map(|(i, (cpu, allowed, apart))| {
            let kind = if *apart { "apart" } else { "web" };
            with(pod(&format!("{kind}-{i}"), "a1", *cpu), |spec| {
                // `x` is no node: the pods have no bond to `a1`, which would be another answer
                let mut on: Vec<&str> = vec!["x"];
                on.extend(hosts.iter().zip(allowed).filter(|(_, allowed)| **allowed).map(|(host, _)| host.as_str()));
                spec.node_rules.affinity = Some(on_hosts(&on));
                if *apart {
                    spec.anti_affinity = vec![term("app=apart", HOST)];
                }
            })
        });
        view(nodes, pods.collect())
    }

    fn takes(&self, placed: &[Option<usize>], pod: usize, node: usize) -> bool {
        let (cpu, allowed, apart) = &self.pods[pod];
        let on_node = |other: &usize| placed[*other] == Some(node);
        let others: Vec<usize> = (0..self.pods.len()).filter(on_node).collect();
        let used: i64 = others.iter().map(|other| self.pods[*other].0).sum();
        allowed[node] && used + cpu <= self.free[node] && !(*apart && others.iter().any(|other| self.pods[*other].2))
    }

    /// Reports whether some order and choice places all, and whether every one does.
    fn search(&self, placed: &mut Vec<Option<usize>>, waiting: &[usize]) -> (bool, bool) {
        if waiting.is_empty() {
            return (true, true);
        }
        let (mut some, mut every) = (false, true);
        for pod in waiting {
            let rest: Vec<usize> = waiting.iter().copied().filter(|other| other != pod).collect();
            let nodes: Vec<usize> = (0..self.free.len()).filter(|node| self.takes(placed, *pod, *node)).collect();
            every &= !nodes.is_empty();
            for node in nodes {
                placed[*pod] = Some(node);
                let (one, all) = self.search(placed, &rest);
                placed[*pod] = None;
                some |= one;
                every &= all;
            }
        }
        (some, every)
    }
}

#[test]
fn answers_agree_with_a_complete_search() {
    let mut dice = fastrand::Rng::with_seed(33);
    let (mut uncertain, mut wrong, mut seen) = (0, 0, [0; 3]);
    for case in 0..CASES {
        let tiny = Tiny::random(&mut dice);
        let (some, every) =
            tiny.search(&mut vec![None; tiny.pods.len()], &(0..tiny.pods.len()).collect::<Vec<usize>>());
        let answer = leave(&tiny.view(), &["a1"]).answer;
        seen[answer as usize] += 1;
        if every {
            assert_eq!(answer, LandingAnswer::Fits, "case {case}");
        }
        if !some {
            assert_eq!(answer, LandingAnswer::Cannot, "case {case}");
        }
        match answer {
            LandingAnswer::Fits => assert!(some, "case {case}"),
            LandingAnswer::Cannot => wrong += usize::from(some),
            LandingAnswer::Uncertain => uncertain += 1,
        }
    }
    assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    assert!(wrong * 200 <= CASES, "{wrong} of {CASES} possible sets were called impossible");
    assert!(uncertain * 100 <= CASES * 15, "{uncertain} of {CASES} are uncertain");
}
