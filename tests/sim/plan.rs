//! Faults of one simulation and their times, drawn from the seed.

use std::time::Duration;

use cketerm_model::boot_time::Seconds;
use cketerm_sandbox::{
    faults::{FaultTarget, Odds, RequestFault, State},
    machines::{Behaviour, OnBoot, OnCheck, OnCommand},
};
use fastrand::Rng;

use crate::quorum;

/// Every fault that must occur somewhere in a large run.
pub static FAULTS: &[&str] = &[
    "delayed-request",
    "delayed-reply",
    "lost-request",
    "lost-reply",
    "swallowed",
    "doubled",
    "crash-before",
    "crash-after",
    "pause-before",
    "pause-after",
    "killed",
    "frozen",
    "etcd-cut",
    "etcd-silent",
    "kubernetes-cut",
    "kubernetes-silent",
    "watches-cut",
    "watches-stale",
    "compaction",
    "lease-expired",
    "clock-step",
    "machine",
    "outage",
    "ill",
    "broken-entry",
    "etcd-restart",
    "api-restart",
    quorum::FAULT_NAME,
    "api-slow",
    "watch-silent",
];

const fn aim(what: &'static str, path: &'static str, body: &'static str) -> FaultTarget {
    FaultTarget { what, path, body }
}

/// Every kind of effect. Processes end or pause right before and after each.
pub static EFFECTS: &[FaultTarget] = &[
    aim("transition", ".KV/Txn", "reboots/data/0"),
    aim("repair", ".KV/Txn", "repairs/data/0"),
    aim("command", ".KV/Txn", "cketerm/attempts/"),
    aim("last look", ".KV/Range", "reboots/data/0"),
    aim("audit record", ".KV/Txn", "cketerm/audit/"),
    aim("cordon", "PATCH /api/v1/nodes/", ""),
    aim("eviction", "POST /api/v1/namespaces/", "Eviction"),
    aim("deletion", "DELETE /api/v1/namespaces/", ""),
    aim("host", "PATCH /apis/metal3.io/", ""),
];

/// Faults that each kind of effect has to meet in a large run.
pub static FATES: &[&str] = &["crash-before", "crash-after", "pause-before", "pause-after"];

/// Number of the first entries of [`FAULTS`], which concern single requests.
pub const REQUEST_FAULT_COUNT: usize = 6;

/// One fault.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Requests of one engine meet these odds for this long, with at most this many crashes.
    Odds { engine: usize, odds: Odds, crashes: u32, seconds: u64 },
    /// The next matching request of each engine meets this fate.
    Aimed { aim: FaultTarget, request_fault: RequestFault },
    /// One engine dies as after SIGKILL.
    Kill(usize),
    /// One engine is paused for this long.
    Freeze { engine: usize, seconds: u64 },
    /// One engine's connection to etcd (or to Kubernetes) is in this state for this long.
    Link { engine: usize, etcd: bool, state: State, seconds: u64 },
    /// All watches of etcd, or of Kubernetes, end.
    CutWatches { etcd: bool },
    /// All watches of etcd, or of Kubernetes, deliver nothing for this long.
    StaleWatches { etcd: bool, seconds: u64 },
    /// etcd compacts its history.
    Compact,
    /// A lease of an engine expires early.
    Expire,
    /// One engine's wall clock is set by this many seconds, and set back after a while.
    Step { engine: usize, by: i64, seconds: u64 },
    /// A machine has this behaviour from now on.
    Machine { machine: usize, behaviour: Behaviour },
    /// One or more machines lose power for this long.
    Outage { machines: Vec<usize>, seconds: u64 },
    /// A machine becomes unhealthy until one or two repairs fix it. sabakan is informed.
    Ill { machine: usize, repairs: u32 },
    /// An unreadable entry is in the queue for this long.
    BrokenEntry { seconds: u64 },
    /// etcd, or the API server, is down for this long.
    Restart { etcd: bool, seconds: u64 },
    /// Each request of one engine to the API server takes one to eight seconds, for this long.
    SlowApi { engine: usize, seed: u64, seconds: u64 },
    /// One watch of an engine is silent for this long while all its other connections work. With `later`, so are the
    /// watches that replace it.
    SilentWatch { engine: usize, path: &'static str, later: bool, seconds: u64 },
}

impl Fault {
    /// Name in counts and traces. Odds count themselves, request by request.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Odds { .. } | Self::Aimed { .. } => "odds",
            Self::Kill(_) => "killed",
            Self::Freeze { .. } => "frozen",
            Self::Link { etcd: true, state: State::Cut, .. } => "etcd-cut",
            Self::Link { etcd: true, .. } => "etcd-silent",
            Self::Link { state: State::Cut, .. } => "kubernetes-cut",
            Self::Link { .. } => "kubernetes-silent",
            Self::CutWatches { .. } => "watches-cut",
            Self::StaleWatches { .. } => "watches-stale",
            Self::Compact => "compaction",
            Self::Expire => "lease-expired",
            Self::Step { .. } => "clock-step",
            Self::Machine { .. } => "machine",
            Self::Outage { .. } => "outage",
            Self::Ill { .. } => "ill",
            Self::BrokenEntry { .. } => "broken-entry",
            Self::Restart { etcd: true, .. } => "etcd-restart",
            Self::Restart { .. } => "api-restart",
            Self::SlowApi { .. } => "api-slow",
            Self::SilentWatch { .. } => "watch-silent",
        }
    }
}

/// Everything that is drawn before a simulation begins.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of engines.
    pub engines: usize,
    /// TTL of their leases in seconds.
    pub ttl: u64,
    /// Faults with their times, in order.
    pub faults: Vec<(Duration, Fault)>,
    /// `max_concurrent_reboots` of the definition.
    pub concurrent: u64,
    /// `command_retries` of the definition.
    pub retries: u64,
    /// Whether the policy `api_server_order` is `first`.
    pub api_servers_first: bool,
    /// Whether lists of Kubernetes are streamed.
    pub streaming: bool,
}

/// Time at which faults end. Then people stop acting, and everything has to end.
pub const FAULT_PERIOD: Duration = Duration::from_mins(12);

impl Plan {
    pub fn draw(rng: &mut Rng, machines: usize) -> Self {
        let engines = rng.usize(2..4);
        let count = rng.usize(5..16);
        let mut faults: Vec<(Duration, Fault)> = (0..count)
            .map(|_| {
                let at = Duration::from_millis(rng.u64(5_000..FAULT_PERIOD.as_secs() * 1000 - 60_000));
                (at, fault(rng, engines, machines))
            })
            .collect();
        // machines that one to three repairs fix
        for _ in 0..rng.usize(2..8) {
            let at = Duration::from_millis(rng.u64(5_000..FAULT_PERIOD.as_secs() * 1000 - 60_000));
            faults.push((at, Fault::Ill { machine: rng.usize(..machines), repairs: rng.u32(1..4) }));
        }
        faults.sort_by_key(|(at, _)| *at);
        Self {
            engines,
            ttl: [5, 10, 20, 60][rng.usize(..4)],
            faults,
            concurrent: rng.u64(1..4),
            retries: rng.u64(0..3),
            api_servers_first: rng.u32(0..4) == 0,
            streaming: rng.u32(0..4) != 0,
        }
    }
}

impl Plan {
    /// All faults in order with their names: those of the plan and those of connections.
    pub fn all_faults(&self, seed: u64) -> Vec<(Duration, String, Fault)> {
        let drawn = self.faults.iter().enumerate().map(|(i, (at, fault))| (*at, format!("f{i}"), fault.clone()));
        let others = connection_faults(seed, self.engines).into_iter().enumerate();
        let mut all: Vec<_> = drawn.chain(others.map(|(i, (at, fault))| (at, format!("x{i}"), fault))).collect();
        all.sort_by_key(|(at, ..)| *at);
        all
    }
}

/// Faults of connections to the API server in half of the seeds, with a random generator of their own, so that the rest
/// of the seed's scenario does not change.
fn connection_faults(seed: u64, engines: usize) -> Vec<(Duration, Fault)> {
    let mut rng = Rng::with_seed(seed ^ 0x6c69_6e6b);
    if rng.bool() {
        return Vec::new();
    }
    let watches = ["/api/v1/nodes", "/api/v1/pods", "/apis/policy/", "/api/v1/namespaces"];
    let count = rng.usize(1..4);
    let mut faults: Vec<(Duration, Fault)> = (0..count)
        .map(|_| {
            let at = Duration::from_millis(rng.u64(5_000..FAULT_PERIOD.as_secs() * 1000 - 60_000));
            let (engine, seconds) = (rng.usize(..engines), rng.u64(20..240));
            let fault = if rng.bool() {
                Fault::SlowApi { engine, seed: rng.u64(..), seconds }
            } else {
                Fault::SilentWatch { engine, path: watches[rng.usize(..watches.len())], later: rng.bool(), seconds }
            };
            (at, fault)
        })
        .collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

fn fault(rng: &mut Rng, engines: usize, machines: usize) -> Fault {
    let engine = rng.usize(..engines);
    let seconds = rng.u64(1..60);
    match rng.u32(0..115) {
        100.. => {
            let pause = Duration::from_secs(rng.u64(1..90));
            let request_fault = match rng.u32(0..6) {
                0 => RequestFault::CrashBefore,
                1 => RequestFault::CrashAfter,
                2 => RequestFault::PauseBefore(pause),
                3 => RequestFault::PauseAfter(pause),
                4 => RequestFault::LoseReply,
                _ => RequestFault::Duplicate,
            };
            Fault::Aimed { aim: EFFECTS[rng.usize(..EFFECTS.len())], request_fault }
        }
        0..30 => {
            let odds = Odds {
                delay_request: rng.u32(0..60),
                delay_reply: rng.u32(0..60),
                lose_request: rng.u32(0..40),
                lose_reply: rng.u32(0..60),
                swallow: rng.u32(0..20),
                double: rng.u32(0..60),
                crash_before: rng.u32(0..20),
                crash_after: rng.u32(0..20),
                pause_before: rng.u32(0..20),
                pause_after: rng.u32(0..20),
            };
            Fault::Odds { engine, odds, crashes: rng.u32(0..3), seconds: seconds * 3 }
        }
        30..38 => Fault::Kill(engine),
        38..46 => Fault::Freeze { engine, seconds: seconds * 2 },
        46..58 => {
            let state = if rng.bool() { State::Cut } else { State::Silent };
            Fault::Link { engine, etcd: rng.bool(), state, seconds }
        }
        58..63 => Fault::CutWatches { etcd: rng.bool() },
        63..70 => Fault::StaleWatches { etcd: rng.bool(), seconds: seconds / 2 + 1 },
        70..74 => Fault::Compact,
        74..79 => Fault::Expire,
        79..83 => Fault::Step { engine, by: rng.i64(-3600..3600), seconds },
        83..87 => Fault::BrokenEntry { seconds: seconds * 4 },
        87..91 => {
            let machines = (0..rng.usize(1..4)).map(|_| rng.usize(..machines)).collect();
            Fault::Outage { machines, seconds: seconds * 2 }
        }
        91..95 => Fault::Restart { etcd: rng.bool(), seconds: seconds / 3 + 1 },
        _ => Fault::Machine { machine: rng.usize(..machines), behaviour: behaviour(rng) },
    }
}

fn behaviour(rng: &mut Rng) -> Behaviour {
    let mut b = Behaviour::default();
    match rng.u32(0..8) {
        0 => b.command = OnCommand::Hangs,
        1 => b.command = OnCommand::Ignores,
        2 => b.fails = rng.u32(1..3),
        3 => b.boot = OnBoot::Never,
        4 => b.late_seconds = Seconds::new(rng.f64() * 120.0),
        5 => b.disk_trouble_seconds = Seconds::new(rng.f64() * 60.0),
        6 => b.check = OnCheck::Silent,
        _ => b.check = OnCheck::No,
    }
    b
}
