//! One possible future of a queue: entries start as the rules let them, and take as long as drawn.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, VecDeque},
};

use super::{
    durations::{Sampler, as_f64},
    model::{Job, Queue, State},
    random::Random,
};

/// Most waiting entries that are examined for the next start.
const MAX_SCANNED: usize = 16;
/// Most drains of one entry that give up.
const MAX_BACKOFFS: u8 = 6;

/// Drain and everything after it, as one run assumes them.
pub(super) type KindSampler<'a> = (Sampler<'a>, Sampler<'a>);

/// Something that happens at a time: a slot or a group becomes free.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Event {
    at: f64,
    slot: bool,
    group: Option<usize>,
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest event is the greatest.
impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at)
    }
}

/// Future of an entry that is in work.
enum Course {
    /// It ends.
    Ends { command: f64, at: f64 },
    /// Its drain ends without a command at the first time. It waits until the second one.
    Returns { at: f64, ready: f64 },
}

/// One run.
pub(super) struct Run<'q, 'r> {
    queue: &'q Queue,
    kinds: &'r [KindSampler<'q>],
    random: &'r mut Random,
    /// Last end in each set, and in all of them.
    ends: &'r mut [f64],
}

impl<'q, 'r> Run<'q, 'r> {
    /// Plays the queue to its end. Writes the end of each set, then of all; infinite if it never ends.
    pub(super) fn play(queue: &'q Queue, kinds: &'r [KindSampler<'q>], random: &'r mut Random, ends: &'r mut [f64]) {
        ends.fill(0.0);
        let mut run = Self { queue, kinds, random, ends };
        let alone_works = queue.alone.iter().any(|job| job.state != State::Waiting);
        if alone_works || (queue.alone_first && !queue.alone.is_empty()) {
            let begun = run.shared(0.0, true);
            if queue.alone_first {
                let done = run.alone(begun.last, |_| true);
                run.rest(begun, done);
            } else {
                let done = run.alone(0.0, |job| job.state != State::Waiting);
                let begun = run.rest(begun, done);
                run.alone(begun, |job| job.state == State::Waiting);
            }
        } else {
            let begun = run.shared(0.0, false);
            run.alone(begun.last, |_| true);
        }
    }

    /// Plays the entries that share the slots. `begun_only`: only those in work now.
    fn shared(&mut self, from: f64, begun_only: bool) -> Shared {
        let mut shared = Shared::new(self.queue);
        for (place, job) in self.queue.shared.iter().enumerate() {
            if job.state == State::Waiting {
                shared.waiting.push_back(place);
            } else {
                self.start(&mut shared, place, job, from);
            }
        }
        if !begun_only {
            shared.last = self.work_off(&mut shared, from);
        }
        shared
    }

    fn rest(&mut self, mut shared: Shared, from: f64) -> f64 {
        // Nothing of them starts before the API servers are done.
        self.work_off(&mut shared, from)
    }

    /// Starts what may start, until nothing is left. Returns the last end.
    fn work_off(&mut self, shared: &mut Shared, from: f64) -> f64 {
        let mut now = from;
        shared.pass(now);
        while !shared.waiting.is_empty() {
            let mut next = f64::INFINITY;
            let mut at = 0;
            while shared.free > 0 && at < shared.waiting.len().min(MAX_SCANNED) {
                let place = shared.waiting[at];
                let job = &self.queue.shared[place];
                let ready = self.queue.windows[job.window].next_start(now.max(shared.ready[place]), self.queue.margin);
                if ready > now {
                    next = next.min(ready);
                    at += 1;
                } else if shared.admits(job.group, self.queue.groups) {
                    shared.waiting.remove(at);
                    self.start(shared, place, job, now);
                    // An entry that came back may be before this place.
                    at = 0;
                } else {
                    at += 1;
                }
            }
            if shared.waiting.is_empty() {
                break;
            }
            let event = shared.events.peek().map_or(f64::INFINITY, |event| event.at);
            now = next.min(event);
            if now.is_infinite() {
                for place in std::mem::take(&mut shared.waiting) {
                    self.end(self.queue.shared[place].set, f64::INFINITY);
                }
                return f64::INFINITY;
            }
            shared.pass(now);
        }
        shared.last
    }

    fn start(&mut self, shared: &mut Shared, place: usize, job: &Job, now: f64) {
        let group = self.queue.groups.map(|_| job.group);
        if let Some(group) = group {
            shared.add_group(group);
        }
        shared.free = shared.free.saturating_sub(1);
        let course = if job.count > 1 {
            self.course_of_many(job, now, &mut shared.left[place])
        } else {
            self.course(job, now, &mut shared.backoffs[place], shared.returned[place])
        };
        match course {
            Course::Ends { command, at } => {
                self.end(job.set, at);
                shared.last = shared.last.max(at);
                let released = at.min(command + self.queue.group_hold);
                let early = group.is_some() && released < at;
                shared.events.push(Event { at, slot: true, group: group.filter(|_| !early) });
                if early {
                    shared.events.push(Event { at: released, slot: false, group });
                }
            }
            Course::Returns { at, ready } => {
                shared.events.push(Event { at, slot: true, group });
                shared.ready[place] = ready;
                shared.returned[place] = true;
                let before = shared.waiting.partition_point(|other| *other < place);
                shared.waiting.insert(before, place);
            }
        }
    }

    /// Draws the course of an entry that starts now, or is in work.
    fn course(&mut self, job: &Job, now: f64, backoffs: &mut u8, returned: bool) -> Course {
        let (drain, after) = &self.kinds[job.kind];
        let state = if returned { State::Waiting } else { job.state };
        let command = match state {
            State::Commanded(elapsed) => {
                return Course::Ends {
                    command: now - elapsed,
                    at: now + after.draw_beyond(elapsed, self.random) - elapsed,
                };
            }
            State::Waiting => now + drain.draw(self.random),
            State::Draining(elapsed) => now + drain.draw_beyond(elapsed, self.random) - elapsed,
        };
        let backoff = self.queue.backoff;
        let closes = self.queue.windows[job.window].close(now);
        if backoff.share > 0.0 && *backoffs < MAX_BACKOFFS && self.random.unit() < backoff.share {
            *backoffs += 1;
            let elapsed = if let State::Draining(elapsed) = state { elapsed } else { 0.0 };
            let at = (now + (backoff.timeout - elapsed).max(0.0)).min(closes);
            let wait = backoff.wait.0 + (backoff.wait.1 - backoff.wait.0) * self.random.unit();
            return Course::Returns { at, ready: at + wait };
        }
        if command > closes {
            return Course::Returns { at: closes, ready: closes };
        }
        Course::Ends { command, at: command + after.draw(self.random) }
    }

    /// Draws the course of several entries, one after another.
    fn course_of_many(&mut self, job: &Job, now: f64, left: &mut f64) -> Course {
        if *left <= 0.0 {
            let (drain, after) = &self.kinds[job.kind];
            let (drains, afters) = (drain.moments(), after.moments());
            let (mean, variance) = (drains.0 + afters.0, drains.1 + afters.1);
            let n = as_f64(job.count);
            let lost = self.queue.backoff.share * self.queue.backoff.timeout;
            *left = (n * (mean + lost) + (n * variance).sqrt() * self.random.normal()).max(n * mean * 0.2);
        }
        let closes = self.queue.windows[job.window].close(now);
        if now + *left > closes {
            *left -= closes - now;
            return Course::Returns { at: closes, ready: closes };
        }
        let at = now + *left;
        *left = 0.0;
        Course::Ends { command: at, at }
    }

    /// Plays the entries that are in work alone, one after another. Returns the last end.
    fn alone(&mut self, from: f64, which: impl Fn(&Job) -> bool) -> f64 {
        let mut now = from;
        for job in self.queue.alone.iter().filter(|job| which(job)) {
            let (mut ready, mut backoffs, mut returned) = (job.ready, 0, false);
            loop {
                if returned || job.state == State::Waiting {
                    now = self.queue.windows[job.window].next_start(now.max(ready), self.queue.margin);
                }
                if now.is_infinite() {
                    break;
                }
                match self.course(job, now, &mut backoffs, returned) {
                    Course::Ends { at, .. } => {
                        now = at;
                        break;
                    }
                    Course::Returns { at, ready: again } => (now, ready, returned) = (at, again, true),
                }
            }
            self.end(job.set, now);
        }
        now
    }

    fn end(&mut self, set: Option<usize>, at: f64) {
        let Some(set) = set else { return };
        let all = self.ends.len() - 1;
        self.ends[all] = self.ends[all].max(at);
        if let Some(end) = self.ends.get_mut(set) {
            *end = end.max(at);
        }
    }
}

/// State of the entries that share the slots.
struct Shared {
    /// Waiting entries by place, in the order of their start.
    waiting: VecDeque<usize>,
    ready: Vec<f64>,
    returned: Vec<bool>,
    backoffs: Vec<u8>,
    /// Seconds that are left of several entries in a row.
    left: Vec<f64>,
    free: usize,
    /// Groups in work, with the number of their entries.
    groups: Vec<(usize, usize)>,
    events: BinaryHeap<Event>,
    last: f64,
}

impl Shared {
    fn new(queue: &Queue) -> Self {
        let n = queue.shared.len();
        Self {
            waiting: VecDeque::with_capacity(n),
            ready: queue.shared.iter().map(|job| job.ready).collect(),
            returned: vec![false; n],
            backoffs: vec![0; n],
            left: vec![0.0; n],
            free: queue.slots.max(1),
            groups: Vec::new(),
            events: BinaryHeap::with_capacity(n),
            last: 0.0,
        }
    }

    /// Lets everything happen up to this time.
    fn pass(&mut self, now: f64) {
        while let Some(event) = self.events.peek().filter(|event| event.at <= now).copied() {
            self.events.pop();
            self.free += usize::from(event.slot);
            if let Some(group) = event.group
                && let Some(place) = self.groups.iter().position(|(name, _)| *name == group)
            {
                self.groups[place].1 -= 1;
                if self.groups[place].1 == 0 {
                    self.groups.swap_remove(place);
                }
            }
        }
    }

    fn add_group(&mut self, group: usize) {
        match self.groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, count)) => *count += 1,
            None => self.groups.push((group, 1)),
        }
    }

    fn admits(&self, group: usize, limit: Option<usize>) -> bool {
        limit.is_none_or(|limit| self.groups.len() < limit || self.groups.iter().any(|(name, _)| *name == group))
    }
}
