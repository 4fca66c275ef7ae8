//! Repeated choice of the best machine, while each choice changes the scores of its rack. Racks are in a heap, the
//! machines of a rack in order. A choice costs the logarithm of the number of racks and does not visit every machine.

use std::{cmp::Reverse, collections::BinaryHeap};

use jiff::Timestamp;

use super::{
    machine::Machine,
    quick::QuickMap,
    score::{Rule, Score},
};

/// Number of nodes of one kind in each rack.
#[derive(Clone, Debug, Default)]
pub(super) struct Racks(QuickMap<i64, u32>);

impl Racks {
    pub(super) fn count(&self, rack: i64) -> u32 {
        self.0.get(&rack).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, rack: i64) {
        *self.0.entry(rack).or_default() += 1;
    }

    pub(super) fn remove(&mut self, rack: i64) {
        if let Some(n) = self.0.get_mut(&rack) {
            *n = n.saturating_sub(1);
        }
    }
}

/// Direction of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PickOrder {
    /// The highest score. Between two choices nodes may only be added.
    Highest,
    /// The lowest score. Of equal scores the last in the order of machines is chosen, because the first is added first.
    /// Between two choices nodes may only be removed.
    Lowest,
}

/// A chosen machine, and the next candidate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pick {
    /// Its index in the list of machines.
    pub(super) machine: usize,
    pub(super) score: Score,
    /// Number of machines that were compared, including this one.
    pub(super) among: usize,
    /// The next candidate and its score.
    pub(super) next: Option<(usize, i64)>,
}

/// Machines to choose from.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    machines: &'a [Machine],
    now: Timestamp,
    rule: Rule,
    order: PickOrder,
    /// Machines by rack. The preferred one is last, so that it can be popped.
    racks: QuickMap<i64, Vec<Entry<'a>>>,
    /// One entry per rack: the worth of its first machine when it was pushed.
    heap: BinaryHeap<Reverse<RankKey>>,
    left: usize,
}

/// Worth of a rack's first machine, where smaller is preferred; then the rack, signed, as the order of equal ones.
type RankKey = (i64, i64);

#[derive(Debug)]
struct Entry<'a> {
    /// The compared value. Smaller is preferred in both directions.
    key: i64,
    index_in_rack: i64,
    serial: &'a str,
    machine: usize,
}

impl<'a> Pool<'a> {
    pub(super) fn new(
        machines: &'a [Machine],
        candidates: impl Iterator<Item = usize>,
        rule: Rule,
        order: PickOrder,
        counts: &Racks,
        now: Timestamp,
    ) -> Self {
        let mut racks: QuickMap<i64, Vec<Entry<'a>>> = QuickMap::default();
        let mut left = 0;
        for machine in candidates {
            let m = &machines[machine];
            let base = rule.base(m, now);
            let key = if order == PickOrder::Highest { -base } else { base };
            let entry = Entry { key, index_in_rack: m.index_in_rack, serial: &m.serial, machine };
            racks.entry(m.rack).or_default().push(entry);
            left += 1;
        }
        for rack in racks.values_mut() {
            rack.sort_unstable_by(|a, b| {
                let place = (a.index_in_rack, a.serial).cmp(&(b.index_in_rack, b.serial));
                let place = if order == PickOrder::Highest { place.reverse() } else { place };
                b.key.cmp(&a.key).then(place)
            });
        }
        let mut pool = Self { machines, now, rule, order, racks, heap: BinaryHeap::new(), left };
        pool.heap = pool.racks.keys().filter_map(|&rack| pool.entry(rack, counts)).collect();
        pool
    }

    /// Returns the present worth of a rack's first machine. Smaller is preferred.
    fn worth(&self, rack: i64, counts: &Racks) -> Option<i64> {
        let first = self.racks.get(&rack)?.last()?;
        Some(first.key + self.spread(rack, counts))
    }

    fn spread(&self, rack: i64, counts: &Racks) -> i64 {
        let term = self.rule.spread(counts.count(rack));
        if self.order == PickOrder::Highest { -term } else { term }
    }

    fn entry(&self, rack: i64, counts: &Racks) -> Option<Reverse<RankKey>> {
        Some(Reverse((self.worth(rack, counts)?, self.signed(rack))))
    }

    /// Returns the rack with the sign of the direction, so that smaller is preferred. It is its own inverse.
    fn signed(&self, rack: i64) -> i64 {
        if self.order == PickOrder::Highest { rack } else { rack.wrapping_neg() }
    }

    /// Returns the rack whose first machine is preferred now. Between two choices the worth of a rack only gets worse,
    /// so an entry whose worth has not changed is the best of all.
    fn first(&mut self, counts: &Racks) -> Option<RankKey> {
        while let Some(&Reverse((pushed, signed))) = self.heap.peek() {
            let now = self.entry(self.signed(signed), counts);
            if now == Some(Reverse((pushed, signed))) {
                return Some((pushed, signed));
            }
            self.heap.pop();
            self.heap.extend(now);
        }
        None
    }

    /// Chooses a machine and removes it. The caller then updates the counts.
    pub(super) fn take(&mut self, counts: &Racks) -> Option<Pick> {
        let (_, signed) = self.first(counts)?;
        let rack = self.signed(signed);
        self.heap.pop();
        let chosen = self.racks.get_mut(&rack)?.pop()?;
        let among = self.left;
        self.left -= 1;
        let other_rack = self.first(counts);
        let same_rack = self.entry(rack, counts);
        self.heap.extend(same_rack);
        let next = [other_rack, same_rack.map(|e| e.0)].into_iter().flatten().min().and_then(|(worth, signed)| {
            let machine = self.racks.get(&self.signed(signed))?.last()?.machine;
            Some((machine, if self.order == PickOrder::Highest { -worth } else { worth }))
        });
        let score = self.rule.score(&self.machines[chosen.machine], counts.count(rack), self.now);
        Some(Pick { machine: chosen.machine, score, among, next })
    }
}
