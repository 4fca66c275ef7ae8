//! Many possible futures, and the intervals that most of them end in: of all, and of those in which nothing gets stuck.

use std::borrow::Cow;

use super::{
    durations::{as_f64, moments},
    model::{Job, Queue, State},
    random::Random,
    run::{KindSampler, Run},
};
use crate::usual::quantile;

/// Entries drawn for one forecast, over all runs.
const DRAWS: usize = 6000;
/// Fewest and most runs.
const RUNS: (usize, usize) = (24, 100);
/// Most jobs: more entries are put together.
const MAX_JOBS: usize = 250;
/// Jobs of this many entries each that are put in order together before they are made.
const BLOCK: usize = 8;
/// Number of runs from which the quantiles are counted instead of computed from mean and deviation.
const COUNTED_RUNS: usize = 60;
/// Most runs without anything stuck: their ends differ little.
const MAX_STEADY_RUNS: usize = COUNTED_RUNS;
/// Least share of futures in which nothing gets stuck that an interval of their own is given for.
const MIN_STEADY_SHARE: f64 = 0.1;
/// Standard normal quantile of 0.9.
const Z90: f64 = 1.2816;
const SEED: u64 = 29;

/// Seconds from now on until a set of entries has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// In one of ten futures it has ended by then.
    pub low: f64,
    /// In half of the futures it has ended by then.
    pub likely: f64,
    /// In nine of ten futures it has ended by then.
    pub high: f64,
    /// The same three quantiles of the futures in which nothing gets stuck from now on. None if such futures are rare.
    pub steady: Option<[f64; 3]>,
}

impl Queue {
    /// Forecasts the end of each set of entries, then of all sets. `None`: it is not in sight, because a window does not
    /// open for long enough.
    pub fn forecast(&self, sets: usize) -> Vec<Option<Forecast>> {
        let (queue, runs) = self.prepared();
        let queue = queue.as_ref();
        let mut shares = vec![0.0; sets + 1];
        let all = queue.play(sets, runs, |kinds| {
            shares.iter_mut().enumerate().for_each(|(set, share)| *share += queue.steady_share(kinds, set, sets));
        });
        let is_common = |share: &f64| *share >= MIN_STEADY_SHARE * as_f64(runs);
        let steady = if shares.iter().any(is_common) {
            queue.play(sets, runs.min(MAX_STEADY_RUNS), |kinds| {
                for (drain, after) in kinds {
                    (*drain, *after) = (drain.without_tail(), after.without_tail());
                }
            })
        } else {
            vec![Vec::new(); sets + 1]
        };
        let with_steady = |((all, steady), share): ((Vec<f64>, Vec<f64>), &f64)| {
            let steady = interval(steady).filter(|_| is_common(share));
            interval(all).map(|[low, likely, high]| Forecast { low, likely, high, steady })
        };
        all.into_iter().zip(steady).zip(&shares).map(with_steady).collect()
    }

    /// Plays so many futures. `change` sees and changes what each one assumes. Returns the ends of each set, then of all.
    fn play(&self, sets: usize, runs: usize, mut change: impl FnMut(&mut [KindSampler<'_>])) -> Vec<Vec<f64>> {
        let mut random = Random::new(SEED);
        let (mut ends, mut all) = (vec![0.0; sets + 1], vec![Vec::with_capacity(runs); sets + 1]);
        for _ in 0..runs {
            let kinds = self.kinds.iter();
            let mut kinds: Vec<KindSampler<'_>> =
                kinds.map(|kind| (kind.drain.sampler(&mut random), kind.after.sampler(&mut random))).collect();
            change(&mut kinds);
            Run::play(self, &kinds, &mut random, &mut ends);
            all.iter_mut().zip(&ends).for_each(|(all, end)| all.push(*end));
        }
        all
    }

    /// Returns the share of futures in which no entry of a set gets stuck; of any entry for the set after the last one.
    fn steady_share(&self, kinds: &[KindSampler<'_>], set: usize, sets: usize) -> f64 {
        let of_set = |job: &&Job| job.set.is_some_and(|of| set == sets || of == set);
        let share = |job: &Job| {
            let Some((drain, after)) = kinds.get(job.kind) else { return 1.0 };
            let of_one = match job.state {
                State::Waiting => drain.steady_share(0.0) * after.steady_share(0.0),
                State::Draining(elapsed) => drain.steady_share(elapsed) * after.steady_share(0.0),
                State::Commanded(elapsed) => after.steady_share(elapsed),
            };
            of_one.powf(as_f64(job.count))
        };
        self.shared.iter().chain(&self.alone).filter(of_set).map(share).product()
    }

    /// Returns the queue as it is played, and the number of runs.
    pub(super) fn prepared(&self) -> (Cow<'_, Self>, usize) {
        let grouped = self.grouped().map_or(Cow::Borrowed(self), Cow::Owned);
        let queue = grouped.compressed().map_or(grouped, Cow::Owned);
        let runs = (DRAWS / queue.jobs().max(1)).clamp(RUNS.0, RUNS.1);
        (queue, runs)
    }

    /// Returns the number of jobs.
    pub(super) fn jobs(&self) -> usize {
        self.shared.len() + self.alone.len()
    }

    /// Returns the queue with the entries of a group one after another, if groups are limited. Machines of a group in
    /// work start before those of others; of two groups the one with the earlier entry.
    fn grouped(&self) -> Option<Self> {
        self.groups?;
        let groups = self.shared.iter().map(|job| job.group + 1).max().unwrap_or(0);
        let mut order = vec![usize::MAX; groups];
        for (place, job) in self.shared.iter().enumerate() {
            let rank = if job.state == State::Waiting { place + 1 } else { 0 };
            order[job.group] = order[job.group].min(rank);
        }
        let mut shared = self.shared.clone();
        shared.sort_by_key(|job| order[job.group]);
        Some(Self { shared, ..self.clone() })
    }

    /// Returns the queue with alike entries in a row put together, if it is long. The last entries stay single, because
    /// the end depends on each of them.
    fn compressed(&self) -> Option<Self> {
        let tail = self.slots.saturating_mul(4).clamp(16, MAX_JOBS / 4);
        if self.shared.len() <= MAX_JOBS {
            return None;
        }
        let together = self.shared.len().div_ceil(MAX_JOBS - tail) + 1;
        let single = self.shared.len() - tail;
        let mut ordered = self.shared.clone();
        // Machine types may alternate. A little further up or down in the queue changes little.
        for group in ordered[..single].chunk_by_mut(|a, b| a.group == b.group) {
            for block in group.chunks_mut(together * BLOCK) {
                block.sort_by_key(|job| (job.state == State::Waiting, job.kind, job.window, job.set));
            }
        }
        let mut shared: Vec<Job> = Vec::with_capacity(MAX_JOBS);
        for (place, job) in ordered.iter().enumerate() {
            let alike = |last: &&mut Job| {
                place < single
                    && last.count < together
                    && (last.kind, last.group, last.window, last.set) == (job.kind, job.group, job.window, job.set)
                    && last.state == State::Waiting
                    && job.state == State::Waiting
                    && (last.ready, job.ready) == (0.0, 0.0)
            };
            match shared.last_mut().filter(alike) {
                Some(last) => last.count += job.count,
                None => shared.push(job.clone()),
            }
        }
        Some(Self { shared, ..self.clone() })
    }
}

/// Returns three quantiles: of one tenth, of the half and of nine tenths of the futures.
fn interval(mut ends: Vec<f64>) -> Option<[f64; 3]> {
    ends.sort_by(f64::total_cmp);
    if ends.iter().filter(|end| end.is_infinite()).count() * 10 > ends.len() {
        return None;
    }
    ends.retain(|end| end.is_finite());
    let median = ends.get(ends.len() / 2).copied()?;
    if ends.len() < COUNTED_RUNS {
        // Late ends are further away than early ones, so that the logarithm is nearer to a normal distribution.
        let logs: Vec<f64> = ends.iter().map(|end| end.max(1.0).ln()).collect();
        let (mean, deviation) = moments(&logs);
        let at = |z: f64| (mean + z * deviation).exp();
        return Some([at(-Z90), median, at(Z90)]);
    }
    // Of n ends, the share k / (n + 1) of all futures ends before the k-th.
    let n = as_f64(ends.len());
    let at = |share: f64| quantile(&ends, (share * (n + 1.0) - 1.0) / (n - 1.0));
    Some([at(0.1), median, at(0.9)])
}
