//! Distribution of one duration, from the samples of a cluster: a body of usual durations, and a tail of those that had
//! to wait for somebody.
//!
//! The body is drawn from the samples themselves, so that mixed machines need no model. Few samples know little. Each
//! run therefore draws how far the body as a whole is off, and how large the share of the tail is.

use super::random::Random;

/// Factor over the median from which a sample belongs to the tail. Of log-normal durations with σ = 0.35 one in a
/// million is that long.
const TAIL_FACTOR: f64 = 5.0;
/// Number of points of the table of the body.
const POINTS: usize = 129;
/// Spread of the logarithm of a duration of the tail around a known one.
const TAIL_SPREAD: f64 = 0.35;
/// Shape of the tail beyond everything known: the median of what is left is then 0.41 of what has elapsed.
const PARETO_SHAPE: f64 = 2.0;

/// Distribution of a duration in seconds.
#[derive(Clone, Debug)]
pub struct Durations {
    /// Quantiles of the body, ascending and equally spaced.
    body: Vec<f64>,
    /// The tail, ascending.
    tail: Vec<f64>,
    samples: usize,
    /// Deviation of the mean of the body's logarithm.
    uncertainty: f64,
    /// Weight of the tail before anything is known, as a number of samples.
    prior: f64,
    body_mean: f64,
    body_variance: f64,
    tail_mean: f64,
}

impl Durations {
    /// Computes it from samples; none = always 0. `usual_tail`: duration to expect of the tail while no sample shows
    /// one; none = no tail before one was seen. `foreign`: the samples are of other machines.
    pub fn of(mut samples: Vec<f64>, usual_tail: Option<f64>, foreign: bool) -> Self {
        samples.retain(|seconds| seconds.is_finite() && *seconds >= 0.0);
        samples.sort_by(f64::total_cmp);
        let count = samples.len();
        let limit = (samples.get(count / 2).copied().unwrap_or(0.0) * TAIL_FACTOR).max(60.0);
        let split = samples.partition_point(|seconds| *seconds <= limit);
        let mut tail = samples.split_off(split);
        let known = tail.len();
        if let (true, Some(expected)) = (tail.is_empty(), usual_tail) {
            tail.extend([0.5, 0.8, 1.2, 2.0].map(|factor| factor * expected));
        }
        let logs: Vec<f64> = samples.iter().map(|seconds| seconds.max(0.5).ln()).collect();
        let (_, deviation) = moments(&logs);
        let n = as_f64(samples.len().max(1));
        // Between two samples, and a little beyond the outermost ones.
        let body: Vec<f64> = (0..POINTS).map(|i| smoothed(&logs, as_f64(i) / as_f64(POINTS - 1), deviation)).collect();
        let (body_mean, body_deviation) = moments(&body);
        let uncertainty = (deviation * deviation / n + if foreign { 0.09 } else { 0.0 }).sqrt();
        let (tail_mean, _) = moments(&tail);
        let prior = if tail.is_empty() { 0.0 } else { 0.5 };
        Self {
            body,
            tail,
            samples: known + samples.len(),
            uncertainty,
            prior: prior + as_f64(known),
            body_mean,
            body_variance: body_deviation * body_deviation,
            tail_mean,
        }
    }

    /// Number of samples.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Returns the mean, the tail included.
    pub fn mean(&self) -> f64 {
        let share = (self.prior / as_f64(self.samples + 1)).min(0.9);
        self.body_mean * (1.0 - share) + self.tail_mean * share
    }

    /// Draws how far the samples are off, for one run.
    pub fn sampler(&self, random: &mut Random) -> Sampler<'_> {
        let tail_share =
            if self.prior > 0.0 { (random.gamma(self.prior) / as_f64(self.samples + 1)).min(0.9) } else { 0.0 };
        let factor = (self.uncertainty * random.normal()).exp();
        Sampler { of: self, factor, tail_share, steady: false }
    }
}

/// Distribution of a duration as one run assumes it.
#[derive(Clone, Copy, Debug)]
pub struct Sampler<'a> {
    of: &'a Durations,
    factor: f64,
    tail_share: f64,
    /// Whether nothing gets stuck from now on.
    steady: bool,
}

impl Sampler<'_> {
    /// Returns the sampler of a future in which nothing gets stuck from now on. What has lasted for so long that it is
    /// rather stuck stays stuck.
    pub fn without_tail(self) -> Self {
        Self { steady: true, ..self }
    }

    /// Returns the share of futures in which something that has lasted this long does not get stuck. 1 if it is rather
    /// stuck already.
    pub fn steady_share(&self, elapsed: f64) -> f64 {
        let (of_body, of_tail, _) = self.weights(elapsed);
        if of_body < of_tail || of_body <= 0.0 { 1.0 } else { of_body / (of_body + of_tail) }
    }

    /// Returns the weights of the body and of the tail for something that has lasted this long, and the number of known
    /// durations of the tail that are over.
    fn weights(&self, elapsed: f64) -> (f64, f64, usize) {
        let (body, tail) = (&self.of.body, &self.of.tail);
        if elapsed <= 0.0 {
            return (1.0 - self.tail_share, self.tail_share, 0);
        }
        // The usual time is over, or the share of the tail grows with time.
        let passed = place(body, elapsed / self.factor);
        let known = tail.partition_point(|seconds| *seconds <= elapsed);
        let tail_left = if tail.is_empty() { 0.0 } else { 1.0 - as_f64(known) / as_f64(tail.len()) };
        ((1.0 - self.tail_share) * (1.0 - passed), self.tail_share * tail_left, known)
    }

    /// Draws a duration.
    pub fn draw(&self, random: &mut Random) -> f64 {
        self.draw_beyond(0.0, random)
    }

    /// Draws a duration of something that has lasted this long already.
    pub fn draw_beyond(&self, elapsed: f64, random: &mut Random) -> f64 {
        let body = &self.of.body;
        if elapsed <= 0.0 {
            let in_tail = !self.steady && self.tail_share > 0.0 && random.unit() < self.tail_share;
            return if in_tail { self.draw_tail(0, random) } else { at(body, random.unit()) * self.factor };
        }
        let passed = place(body, elapsed / self.factor);
        let (of_body, of_tail, known) = self.weights(elapsed);
        let of_tail = if self.steady && of_body >= of_tail { 0.0 } else { of_tail };
        if of_body + of_tail <= f64::EPSILON {
            return elapsed * (1.0 - random.unit()).powf(-1.0 / PARETO_SHAPE);
        }
        if random.unit() * (of_body + of_tail) < of_body {
            (at(body, passed + (1.0 - passed) * random.unit()) * self.factor).max(elapsed)
        } else {
            // The spread may fall below what has elapsed.
            let drawn = self.draw_tail(known, random);
            if drawn > elapsed { drawn } else { elapsed + (drawn * 0.1).min(elapsed * 0.1) }
        }
    }

    fn draw_tail(&self, from: usize, random: &mut Random) -> f64 {
        let tail = &self.of.tail;
        let index = from + index_of(random.unit(), tail.len().saturating_sub(from));
        tail.get(index).copied().unwrap_or(0.0)
            * (TAIL_SPREAD * random.normal() - TAIL_SPREAD * TAIL_SPREAD / 2.0).exp()
    }

    /// Returns mean and variance of a duration in this run.
    pub fn moments(&self) -> (f64, f64) {
        let (share, tail) = (if self.steady { 0.0 } else { self.tail_share }, self.of.tail_mean);
        let body = self.of.body_mean * self.factor;
        let mean = body * (1.0 - share) + tail * share;
        let body_square = self.of.body_variance * self.factor * self.factor + body * body;
        let tail_square = tail * tail * 1.5;
        (mean, (body_square * (1.0 - share) + tail_square * share - mean * mean).max(0.0))
    }
}

/// Returns a quantile of samples given by their ascending logarithms.
fn smoothed(logs: &[f64], share: f64, deviation: f64) -> f64 {
    let n = as_f64(logs.len());
    if logs.is_empty() {
        return 0.0;
    }
    // Quantile i of n belongs to the share (i + 0.5) / n. Beyond the outermost samples the logarithm goes on evenly.
    let position = share * n - 0.5;
    let last = n - 1.0;
    let log = if position < 0.0 {
        logs[0] + position * deviation * 0.6
    } else if position > last {
        logs[logs.len() - 1] + (position - last) * deviation * 0.6
    } else {
        let below = index_of(position / n, logs.len());
        let above = (below + 1).min(logs.len() - 1);
        logs[below] + (logs[above] - logs[below]) * (position - as_f64(below))
    };
    log.exp()
}

/// Returns the value of a table of quantiles at a share.
fn at(table: &[f64], share: f64) -> f64 {
    let place = share * as_f64(table.len() - 1);
    let below = index_of(share, table.len() - 1);
    let above = (below + 1).min(table.len() - 1);
    table[below] + (table[above] - table[below]) * (place - as_f64(below))
}

/// Returns the share of a table of quantiles that lies below a value.
fn place(table: &[f64], value: f64) -> f64 {
    let above = table.partition_point(|quantile| *quantile <= value);
    if above == 0 || above == table.len() {
        return if above == 0 { 0.0 } else { 1.0 };
    }
    let (low, high) = (table[above - 1], table[above]);
    let within = if high > low { (value - low) / (high - low) } else { 0.0 };
    (as_f64(above - 1) + within) / as_f64(table.len() - 1)
}

/// Returns mean and deviation.
pub(super) fn moments(values: &[f64]) -> (f64, f64) {
    let n = as_f64(values.len());
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

#[allow(clippy::cast_precision_loss)] // counts, far below 2^53
pub(super) fn as_f64(n: usize) -> f64 {
    n as f64
}

/// Returns the index at this share of so many values.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share is from 0 to 1
pub(super) fn index_of(share: f64, n: usize) -> usize {
    ((share.max(0.0) * as_f64(n)) as usize).min(n.saturating_sub(1))
}
