//! A cluster whose machines really take as long as drawn: the truth that estimates are compared with. It knows nothing
//! of the estimator. It advances second by second, and each machine has a state of its own.

/// Random numbers, after Knuth's MMIX generator.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(3_037_000_493));
        dice.share();
        dice
    }

    pub fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = self.0 ^ (self.0 >> 33);
        (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 40) as f64 / (1_u64 << 24) as f64
    }

    /// Log-normal with this median and this deviation of the logarithm, from the sum of twelve shares.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let normal = (0..12).map(|_| self.share()).sum::<f64>() - 6.0;
        median * (sigma * normal).exp()
    }

    pub fn up_to(&mut self, n: usize) -> usize {
        ((self.share() * n as f64) as usize).min(n - 1)
    }
}

/// Shape of a cluster.
#[derive(Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    pub slots: usize,
    /// Fewest and most machines in a batch.
    pub batch: (usize, usize),
    /// API servers in each batch.
    pub api_servers: usize,
    pub api_first: bool,
    /// Racks, of which one at a time is in work; none = no limit.
    pub racks: Option<usize>,
    /// Two machine types, one of which boots and drains slower.
    pub mixed: bool,
    /// Share of drains that are blocked until they back off.
    pub blocked: f64,
    /// Nightly window in seconds; none = always.
    pub window: Option<i64>,
}

pub const SHAPES: [Shape; 9] = {
    let base = Shape {
        name: "4 slots",
        slots: 4,
        batch: (30, 70),
        api_servers: 0,
        api_first: false,
        racks: None,
        mixed: false,
        blocked: 0.0,
        window: None,
    };
    [
        Shape { name: "1 slot", slots: 1, batch: (15, 40), ..base },
        base,
        Shape { name: "16 slots", slots: 16, batch: (100, 250), ..base },
        Shape { name: "4 slots, 3 API servers last", api_servers: 3, ..base },
        Shape { name: "4 slots, 3 API servers first", api_servers: 3, api_first: true, ..base },
        Shape { name: "4 slots, one rack at a time", racks: Some(6), ..base },
        Shape { name: "4 slots, two machine types", mixed: true, ..base },
        Shape { name: "4 slots, 5 % of drains back off", blocked: 0.05, ..base },
        Shape { name: "4 slots, nightly window of 40 minutes", window: Some(2400), ..base },
    ]
};

pub const STUCK: f64 = 0.03;
pub const STUCK_SECONDS: i64 = 1800;
/// Multiple of the usual boot after which a machine is visibly stuck: one of forty boots takes longer.
const LATE: f64 = 2.0;
pub const EVICTION_TIMEOUT: i64 = 600;
pub const MARGIN: i64 = 300;
pub const DAY: i64 = 86_400;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doing {
    Queued,
    Draining,
    Rebooting,
    Ended,
}

#[derive(Clone, Debug)]
pub struct Machine {
    pub api_server: bool,
    pub kind: usize,
    pub rack: usize,
    pub doing: Doing,
    /// Start of what it does.
    pub since: i64,
    pub drain_start: i64,
    pub not_before: i64,
    pub backoffs: u32,
    pub ended: i64,
    /// Seconds until what it does is over, which nobody can see.
    hidden: i64,
    pub stuck: bool,
    /// Time from which its boot visibly lasts too long, if it got stuck.
    pub visibly_stuck: Option<i64>,
}

/// Durations of one reboot, as the history has them.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub api_server: bool,
    pub kind: usize,
    pub drain: i64,
    pub after: i64,
    pub backoffs: u32,
}

pub struct Site {
    pub shape: Shape,
    pub machines: Vec<Machine>,
    pub now: i64,
    dice: Dice,
}

impl Site {
    /// A new batch at this time.
    pub fn new(shape: Shape, seed: u64, start: i64) -> Self {
        let mut dice = Dice::new(seed);
        let workers = shape.batch.0 + dice.up_to(shape.batch.1 - shape.batch.0 + 1);
        let mut machines = Vec::new();
        for place in 0..workers + shape.api_servers {
            let api_server = place >= workers;
            machines.push(Machine {
                api_server,
                kind: if shape.mixed && !api_server { dice.up_to(2) } else { 0 },
                rack: shape.racks.map_or(0, |racks| dice.up_to(racks)),
                doing: Doing::Queued,
                since: start,
                drain_start: 0,
                not_before: start,
                backoffs: 0,
                ended: 0,
                hidden: 0,
                stuck: false,
                visibly_stuck: None,
            });
        }
        Self { shape, machines, now: start, dice }
    }

    pub fn left(&self) -> usize {
        self.machines.iter().filter(|m| m.doing != Doing::Ended).count()
    }

    pub fn history(&self) -> impl Iterator<Item = Done> {
        let mut ended: Vec<&Machine> = self.machines.iter().filter(|m| m.doing == Doing::Ended).collect();
        ended.sort_by_key(|m| -m.ended);
        ended.into_iter().map(|m| Done {
            api_server: m.api_server,
            kind: m.kind,
            drain: m.since - m.drain_start,
            after: m.ended - m.since,
            backoffs: m.backoffs,
        })
    }

    /// The window opens at midnight.
    pub fn closes(&self) -> Option<i64> {
        self.shape.window.map(|length| self.now - self.now.rem_euclid(DAY) + length)
    }

    /// Reports whether a machine of the batch got stuck, and nobody could see it at this time.
    pub fn gets_stuck_after(&self, at: i64) -> bool {
        self.machines.iter().any(|m| m.visibly_stuck.is_some_and(|visible| visible > at))
    }

    fn working(m: &Machine) -> bool {
        matches!(m.doing, Doing::Draining | Doing::Rebooting)
    }

    /// One second passes.
    pub fn step(&mut self) {
        let open = self.closes().is_none_or(|closes| self.now < closes);
        let (now, shape) = (self.now, self.shape);
        for m in &mut self.machines {
            match m.doing {
                Doing::Draining => {
                    m.hidden -= 1;
                    if !open {
                        (m.doing, m.since) = (Doing::Queued, now);
                    } else if m.hidden <= 0 {
                        if m.stuck {
                            m.backoffs += 1;
                            (m.doing, m.since, m.stuck) = (Doing::Queued, now, false);
                            m.not_before = now + 300 + (self.dice.share() * 300.0) as i64;
                        } else {
                            let (boot, settle) =
                                if m.api_server { (120.0, 60.0) } else { ([90.0, 240.0][m.kind], 0.0) };
                            m.stuck = self.dice.share() < STUCK;
                            m.visibly_stuck = m.stuck.then_some(now + (LATE * (boot + settle)) as i64);
                            let waits = if m.stuck { self.dice.log_normal(1200.0, 0.5) } else { 0.0 };
                            let seconds = self.dice.log_normal(boot, 0.35) + settle + waits;
                            (m.doing, m.since, m.hidden) = (Doing::Rebooting, now, seconds as i64);
                        }
                    }
                }
                Doing::Rebooting => {
                    m.hidden -= 1;
                    if m.hidden <= 0 {
                        (m.doing, m.ended) = (Doing::Ended, now);
                    }
                }
                Doing::Queued | Doing::Ended => {}
            }
        }
        if open && self.closes().is_none_or(|closes| now + MARGIN <= closes) {
            while let Some(place) = self.next() {
                let m = &mut self.machines[place];
                let usual = self.dice.log_normal([40.0, 80.0][m.kind], 0.5) as i64;
                m.stuck = self.dice.share() < shape.blocked;
                m.hidden = if m.stuck { EVICTION_TIMEOUT } else { usual.min(EVICTION_TIMEOUT) };
                (m.doing, m.since, m.drain_start) = (Doing::Draining, now, now);
            }
        }
        self.now += 1;
    }

    /// The next machine that may start.
    fn next(&self) -> Option<usize> {
        let working = self.machines.iter().filter(|m| Self::working(m)).count();
        if working >= self.shape.slots || self.machines.iter().any(|m| m.api_server && Self::working(m)) {
            return None;
        }
        let can = |m: &Machine| m.doing == Doing::Queued && m.not_before <= self.now;
        let find = |api: bool| self.machines.iter().position(|m| m.api_server == api && can(m));
        let api = find(true);
        if self.shape.api_first && api.is_some() {
            return api.filter(|_| working == 0);
        }
        let late = |m: &Machine| m.doing == Doing::Rebooting && self.now - m.since >= STUCK_SECONDS;
        let busy = |rack| self.machines.iter().any(|m| m.rack == rack && Self::working(m) && !late(m));
        let any_busy = self.machines.iter().any(|m| Self::working(m) && !late(m));
        let admitted = |m: &Machine| self.shape.racks.is_none() || busy(m.rack) || !any_busy;
        let worker = self.machines.iter().position(|m| !m.api_server && can(m) && admitted(m));
        let candidates = self.machines.iter().any(|m| !m.api_server && can(m));
        worker.or(api.filter(|_| working == 0 && !candidates))
    }

    /// Nothing happens before the window opens.
    pub fn skip(&mut self) {
        if let Some(closes) = self.closes()
            && self.now >= closes
            && !self.machines.iter().any(Self::working)
        {
            self.now += DAY - self.now.rem_euclid(DAY);
        }
    }
}
