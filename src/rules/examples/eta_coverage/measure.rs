//! Estimates at a quarter, half and three quarters of each batch, compared with the truth.

use super::eta::{Backoff, Durations, Job, Kind, Openings, Queue, State};
use super::site::{DAY, Doing, Done, EVICTION_TIMEOUT, MARGIN, STUCK_SECONDS, Shape, Site};

/// Points of a batch at which estimates are made.
pub const POINTS: [f64; 3] = [0.25, 0.5, 0.75];
/// Ended entries that an estimate is made from, at most and at least.
const HISTORY: (usize, usize) = (400, 8);
const BATCHES_A_WEEK: usize = 6;

/// Sums at one point.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub estimates: usize,
    pub covered: usize,
    pub early: usize,
    /// Absolute errors of the estimate and of "median × remaining ÷ slots", in seconds.
    pub error: f64,
    pub simple_error: f64,
    pub width: f64,
    /// Ends before the late end of the estimate.
    pub by_high: usize,
    /// Estimates that have an interval for the case that no machine gets stuck, of batches in which none did.
    pub steady: Steady,
}

/// Sums of batches in which no machine got stuck after the estimate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steady {
    pub estimates: usize,
    pub covered: usize,
    pub width: f64,
}

/// Estimate of a batch: low, likely and high; and the interval without stuck machines.
type Estimated = ((f64, f64, f64), Option<[f64; 3]>);

impl Sums {
    pub fn coverage(&self) -> f64 {
        100.0 * self.covered as f64 / self.estimates as f64
    }

    pub fn steady_coverage(&self) -> f64 {
        100.0 * self.steady.covered as f64 / self.steady.estimates as f64
    }

    pub fn late_coverage(&self) -> f64 {
        100.0 * self.by_high as f64 / self.estimates as f64
    }

    fn add(&mut self, now: f64, end: f64, (estimate, steady): Estimated, simple: f64) {
        let (low, likely, high) = estimate;
        self.estimates += 1;
        let left = end - now;
        self.covered += usize::from(low <= left && left <= high);
        self.early += usize::from(left < low);
        self.error += (likely - left).abs();
        self.simple_error += (simple - left).abs();
        self.width += high - low;
        self.by_high += usize::from(left <= high);
        if let Some([low, _, high]) = steady {
            self.steady.estimates += 1;
            self.steady.covered += usize::from(low <= left && left <= high);
            self.steady.width += high - low;
        }
    }
}

/// Plays so many sites, each over so many weeks.
pub fn measure(shape: Shape, sites: u64, weeks: usize) -> [Sums; 3] {
    let mut sums = [Sums::default(); 3];
    for seed in 0..sites {
        let mut history: Vec<Done> = Vec::new();
        for batch in 0..weeks * BATCHES_A_WEEK {
            let seed = 1 + seed * 7919 + batch as u64 * 104_729;
            let start = batch as i64 * 30 * DAY;
            let mut site = Site::new(shape, seed, start);
            let (all, mut open) = (site.machines.len(), Vec::new());
            let mut points = POINTS.iter().map(|share| (all as f64 * share) as usize).peekable();
            while site.left() > 0 {
                site.step();
                site.skip();
                while points.next_if(|point| all - site.left() >= *point).is_some() {
                    let mut known: Vec<Done> = site.history().chain(history.iter().copied()).collect();
                    known.truncate(HISTORY.0);
                    open.push(
                        (known.len() >= HISTORY.1).then(|| (site.now, estimate(&site, &known), simple(&site, &known))),
                    );
                }
            }
            let end = site.machines.iter().map(|m| m.ended).max().unwrap_or(0) as f64;
            for (sums, open) in sums.iter_mut().zip(open) {
                if let Some((now, Some((estimate, steady)), simple)) = open {
                    let steady = steady.filter(|_| !site.gets_stuck_after(now));
                    sums.add(now as f64, end, (estimate, steady), simple);
                }
            }
            let mut known: Vec<Done> = site.history().collect();
            known.append(&mut history);
            known.truncate(HISTORY.0);
            history = known;
        }
    }
    sums
}

/// Estimate that an operator would compute: median × remaining ÷ slots, in the time in which the window is open.
fn simple(site: &Site, known: &[Done]) -> f64 {
    let mut whole: Vec<i64> = known.iter().map(|done| done.drain + done.after).collect();
    whole.sort_unstable();
    let median = whole[whole.len() / 2] as f64;
    let mut left = median * site.left() as f64 / site.shape.slots as f64;
    let mut end = 0.0;
    for (opens, closes) in openings(site).0 {
        if left <= closes - opens {
            return opens + left;
        }
        left -= closes - opens;
        end = closes;
    }
    end
}

fn openings(site: &Site) -> Openings {
    let Some(length) = site.shape.window else { return Openings::always() };
    let today = site.now - site.now.rem_euclid(DAY);
    let of_day = |day: i64| {
        let opens = today + day * DAY;
        ((opens - site.now).max(0) as f64, (opens + length - site.now).max(0) as f64)
    };
    Openings((0..60).map(of_day).filter(|(opens, closes)| opens < closes).collect())
}

/// Estimate of the estimator, from data that an operator can see.
fn estimate(site: &Site, known: &[Done]) -> Option<Estimated> {
    let machine_kinds = [(false, 0), (false, 1), (true, 0)];
    let kinds = machine_kinds.map(|(api_server, kind)| {
        let own: Vec<&Done> = known.iter().filter(|d| d.api_server == api_server && d.kind == kind).collect();
        let foreign = own.len() < 8;
        let of: Vec<&Done> = if foreign { known.iter().collect() } else { own };
        Kind {
            drain: Durations::of(of.iter().map(|d| d.drain as f64).collect(), None, foreign),
            after: Durations::of(of.iter().map(|d| d.after as f64).collect(), Some(STUCK_SECONDS as f64), foreign),
        }
    });
    let backoffs: u32 = known.iter().map(|d| d.backoffs).sum();
    let share = f64::from(backoffs) / (f64::from(backoffs) + known.len() as f64);
    let job = |m: &super::site::Machine| Job {
        kind: if m.api_server { 2 } else { m.kind },
        group: m.rack,
        window: 0,
        set: Some(0),
        state: match m.doing {
            Doing::Draining => State::Draining((site.now - m.since) as f64),
            Doing::Rebooting => State::Commanded((site.now - m.since) as f64),
            Doing::Queued | Doing::Ended => State::Waiting,
        },
        ready: (m.not_before - site.now).max(0) as f64,
        count: 1,
    };
    let left = || site.machines.iter().filter(|m| m.doing != Doing::Ended);
    let queue = Queue {
        slots: site.shape.slots,
        shared: left().filter(|m| !m.api_server).map(job).collect(),
        alone: left().filter(|m| m.api_server).map(job).collect(),
        alone_first: site.shape.api_first,
        groups: site.shape.racks.map(|_| 1),
        group_hold: STUCK_SECONDS as f64,
        windows: vec![openings(site)],
        margin: if site.shape.window.is_some() { MARGIN as f64 } else { 0.0 },
        backoff: Backoff { share, timeout: EVICTION_TIMEOUT as f64, wait: (300.0, 600.0) },
        kinds: kinds.to_vec(),
    };
    let forecast = queue.forecast(1)[0]?;
    Some(((forecast.low, forecast.likely, forecast.high), forecast.steady))
}
