//! Agents as processes on the machines of a site. Honest ones run the agent's own code (`agent_protocol`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use cketerm_clients::kubernetes::{Kube, Watched};
use cketerm_model::{
    agent::{Order, Report},
    clock::{Clock, SkewedClock},
    names::NodeName,
};
use cketerm_rules::agent::Obeyed;
use cketerm_runtime::tasks::Gate;
use cketerm_sandbox::{
    faults::{Link, Odds, RequestFault},
    machines::{CommandOrigin, Machine, MachineStatus, State},
};
use cketerm_scenario::{Stage, kube};
use fastrand::Rng;
use jiff::SignedDuration;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use super::{conduct::Conduct, liars};
use crate::{
    agent_protocol::{self, Agent},
    observers::record::AgentReboot,
};

/// Faults of the connections of agents and commands, in requests per thousand.
const ODDS: Odds = Odds {
    delay_request: 40,
    delay_reply: 40,
    lose_request: 20,
    lose_reply: 20,
    swallow: 5,
    double: 10,
    crash_before: 0,
    crash_after: 0,
    pause_before: 0,
    pause_after: 0,
};

/// All agents of a site, and the truth about them.
pub struct Agents {
    pub stage: Arc<Stage>,
    pub clock: Clock,
    /// Records of obeyed orders, by address: the disks.
    records: Mutex<BTreeMap<String, Obeyed>>,
    /// Addresses of machines whose sentinel is there.
    pub sentinels: Mutex<BTreeSet<String>>,
    /// Reboots that agents requested.
    pub reboots: Mutex<Vec<AgentReboot>>,
    /// Entry of each order that a command gave, by the order's id.
    pub entries: Mutex<BTreeMap<String, String>>,
    /// Number of boots with a liar, and of crashes of honest agents.
    pub lies: AtomicU64,
    pub crashes: AtomicU64,
    /// Whether faults have ended.
    calm: AtomicBool,
    /// Machine whose agent lies nevertheless.
    last_liar: Mutex<Option<String>>,
}

/// One process of an agent.
#[derive(Clone)]
pub struct Process {
    pub agents: Arc<Agents>,
    pub machine: Machine,
    /// Boot id of the machine.
    pub boot_id: String,
    pub conduct: Conduct,
    pub link: Link,
    pub gate: Gate,
    pub rng: Arc<Mutex<Rng>>,
    /// Whether a second process is to be started beside this one.
    doubled: Arc<AtomicBool>,
}

impl Agents {
    pub fn new(stage: &Arc<Stage>, clock: &Clock) -> Arc<Self> {
        Arc::new(Self {
            stage: Arc::clone(stage),
            clock: clock.clone(),
            records: Mutex::default(),
            sentinels: Mutex::default(),
            reboots: Mutex::default(),
            entries: Mutex::default(),
            lies: AtomicU64::new(0),
            crashes: AtomicU64::new(0),
            calm: AtomicBool::new(false),
            last_liar: Mutex::default(),
        })
    }

    /// Starts the agents of all machines.
    pub fn start(self: &Arc<Self>, rng: &mut Rng) {
        for machine in self.stage.sandbox.machines.list() {
            tokio::spawn(supervise(Arc::clone(self), machine, rng.fork()));
        }
    }

    /// Ends all faults, except that the agent of this machine lies.
    pub fn calm(&self, last_liar: Option<&str>) {
        self.calm.store(true, Ordering::SeqCst);
        *self.last_liar.lock().unwrap() = last_liar.map(str::to_owned);
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    /// Faults of connections at this time.
    pub fn odds(&self) -> Odds {
        if self.is_calm() { Odds::default() } else { ODDS }
    }

    fn conduct(&self, address: &str, rng: &mut Rng) -> Conduct {
        if self.last_liar.lock().unwrap().as_deref() == Some(address) {
            return Conduct::Lies;
        }
        if self.is_calm() {
            return Conduct::Honest;
        }
        Conduct::draw(rng)
    }

    fn status(&self, machine: &Machine) -> Option<MachineStatus> {
        self.stage.sandbox.machines.machine_status(&machine.address)
    }
}

/// Runs the agents of one machine, boot after boot. The conduct is drawn for each boot, after some minutes, and when the
/// faults end.
async fn supervise(agents: Arc<Agents>, machine: Machine, mut rng: Rng) {
    loop {
        let Some(status) = agents.status(&machine).filter(|status| status.state == State::Up) else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        let conduct = agents.conduct(&machine.address, &mut rng);
        let phase = (agents.is_calm(), agents.last_liar.lock().unwrap().clone());
        agents.lies.fetch_add(u64::from(!conduct.is_honest()), Ordering::SeqCst);
        // most reboots fulfil what the sentinel asks for
        if agents.is_calm() || rng.u32(0..4) > 0 {
            agents.sentinels.lock().unwrap().remove(&machine.address);
        }
        let (began, most) = (Instant::now(), Duration::from_secs(rng.u64(120..600)));
        let is_over = || {
            let now = agents.status(&machine);
            (!agents.is_calm() && began.elapsed() > most)
                || now.is_none_or(|now| now.state != State::Up || now.booted_at != status.booted_at)
                || phase != (agents.is_calm(), agents.last_liar.lock().unwrap().clone())
        };
        let mut processes: Vec<Process> = Vec::new();
        let mut pause = rng.u32(0..15);
        while !is_over() {
            sleep(Duration::from_secs(1)).await;
            // its pod is evicted, or its version changes
            if !agents.is_calm() && rng.u32(0..150) == 0 {
                for process in &processes {
                    process.gate.kill();
                }
            }
            let before = processes.len();
            processes.retain(|process| !process.gate.is_dead());
            agents.crashes.fetch_add((before - processes.len()) as u64, Ordering::SeqCst);
            let is_doubled = processes.iter().any(|process| process.doubled.swap(false, Ordering::SeqCst));
            if !processes.is_empty() && !is_doubled {
                continue;
            }
            if pause > 0 && !is_doubled {
                pause -= 1;
                continue;
            }
            pause = rng.u32(1..60);
            processes.push(Process::start(&agents, &machine, &status.boot_id, conduct, &mut rng));
        }
        for process in &processes {
            process.gate.kill();
        }
    }
}

impl Process {
    fn start(agents: &Arc<Agents>, machine: &Machine, boot_id: &str, conduct: Conduct, rng: &mut Rng) -> Self {
        let gate = Gate::default();
        let link = Link::new(&format!("agent-{}", machine.name), gate.clone(), rng.u64(..));
        link.odds(agents.odds(), 0);
        let process = Self {
            agents: Arc::clone(agents),
            machine: machine.clone(),
            boot_id: boot_id.to_owned(),
            conduct,
            link,
            gate: gate.clone(),
            rng: Arc::new(Mutex::new(rng.fork())),
            doubled: Arc::default(),
        };
        let running = process.clone();
        tokio::spawn(gate.hold(async move {
            match conduct {
                Conduct::Honest | Conduct::WrongClock(_) | Conduct::Forgets | Conduct::Lies | Conduct::WrongBootId => {
                    running.obey().await;
                }
                Conduct::Late
                | Conduct::AnswersForAnotherBoot
                | Conduct::AnswersAnother
                | Conduct::Twice
                | Conduct::Unordered => liars::run(&running).await,
            }
        }));
        process
    }

    /// Connection by the clock of the machine.
    pub fn kube(&self) -> Kube {
        let error = SignedDuration::from_secs(self.conduct.clock_error());
        let clock = Clock::new(SkewedClock::new(&self.agents.clock, error));
        kube(&self.agents.stage.sandbox, &self.link, clock)
    }

    pub fn report(&self) -> Report {
        let is_wrong = self.conduct == Conduct::WrongBootId;
        let boot_id = if is_wrong { format!("not-{}", self.boot_id) } else { self.boot_id.clone() };
        Report { boot_id, version: "simulated".to_owned() }
    }

    /// Runs the agent's own code.
    async fn obey(self) {
        let (kube, node) = (self.kube(), NodeName::new(self.machine.name.as_str()));
        let (to, mut seen) = watch::channel(Watched::default());
        let follower = kube.clone();
        let mut follow = std::pin::pin!(follower.follow_node(&node, &to));
        let mut agent = Agent::new(kube, self.clone(), self.report(), &|_| {});
        let mut polls = interval(Duration::from_secs(10));
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = polls.tick() => {}
                _ = seen.changed() => {}
                () = &mut follow => return,
            }
            let state = seen.borrow_and_update().clone();
            if let Watched::Present(row) = state {
                let has_sentinel = self.agents.sentinels.lock().unwrap().contains(&self.machine.address);
                agent.step(&row, has_sentinel.then_some("/run/reboot-required: libc6")).await;
            }
        }
    }

    /// Notes that a reboot is requested.
    fn note_reboot(&self, order: Option<&Order>) {
        self.agents.reboots.lock().unwrap().push(AgentReboot {
            at: self.agents.clock.wall(),
            node: self.machine.name.clone(),
            boot_id: self.boot_id.clone(),
            order_id: order.map(|order| order.id.clone()).unwrap_or_default(),
            attempt: order.map(|order| order.attempt.clone()).unwrap_or_default(),
            honest: self.conduct.is_honest(),
            clock_error: self.conduct.clock_error(),
        });
    }

    /// Requests a reboot, which takes a moment.
    pub fn request_reboot(&self, order: Option<&Order>) {
        self.note_reboot(order);
        if self.conduct == Conduct::Lies {
            return;
        }
        // no entry explains the reboot of a liar, or a late one
        let entries = self.agents.entries.lock().unwrap().clone();
        let order = order.filter(|_| self.conduct == Conduct::Honest);
        let entry = order.and_then(|order| entries.get(&order.id)).cloned().unwrap_or_default();
        let attempt = order.map(|order| order.attempt.clone()).unwrap_or_default();
        let origin = CommandOrigin { argv: vec!["agent".to_owned(), self.machine.address.clone()], entry, attempt };
        let shutdown = Duration::from_millis(self.rng.lock().unwrap().u64(100..10_000));
        let (agents, machine, boot_id) = (Arc::clone(&self.agents), self.machine.clone(), self.boot_id.clone());
        // outside the gate: the machine goes down even if the agent ends
        tokio::spawn(async move {
            sleep(shutdown).await;
            if agents.status(&machine).is_some_and(|status| status.boot_id == boot_id) {
                agents.stage.sandbox.machines.restart(&machine.address, &origin);
            }
        });
    }
}

impl agent_protocol::Machine for Process {
    fn obeyed(&self) -> Result<Obeyed, String> {
        if self.conduct == Conduct::Forgets {
            return Ok(Obeyed::default());
        }
        Ok(self.agents.records.lock().unwrap().get(&self.machine.address).cloned().unwrap_or_default())
    }

    /// The next write is the answer: it may meet a crash, or come so late that another process runs by then.
    fn record(&self, obeyed: &Obeyed) -> Result<(), String> {
        let mut rng = self.rng.lock().unwrap();
        let fault = match rng.u32(0..10) {
            0 if !self.agents.is_calm() => return Err("no space left on device".to_owned()),
            1 => RequestFault::CrashBefore,
            2 => RequestFault::CrashAfter,
            3 => RequestFault::PauseBefore(Duration::from_millis(rng.u64(1_000..100_000))),
            4 => RequestFault::DelayRequest(Duration::from_millis(rng.u64(5_000..60_000))),
            5 => RequestFault::LoseReply,
            _ => RequestFault::Pass,
        };
        if self.conduct != Conduct::Forgets {
            self.agents.records.lock().unwrap().insert(self.machine.address.clone(), obeyed.clone());
        }
        if !self.agents.is_calm() && fault != RequestFault::Pass {
            self.doubled.store(matches!(fault, RequestFault::PauseBefore(_)), Ordering::SeqCst);
            self.link.next("/api/v1/nodes", fault);
        }
        Ok(())
    }

    /// A lock of another program may hold the machine.
    async fn may_reboot(&self) -> Result<(), String> {
        let is_blocked = !self.agents.is_calm() && self.rng.lock().unwrap().u32(0..12) == 0;
        if is_blocked { Err("inhibitor-blocked".to_owned()) } else { Ok(()) }
    }

    async fn reboot(&self, order: &Order) -> Result<(), String> {
        if !self.agents.is_calm() && self.conduct != Conduct::Lies && self.rng.lock().unwrap().u32(0..5) == 0 {
            // it was requested all the same
            self.note_reboot(Some(order));
            return Err("logind does not answer".to_owned());
        }
        self.request_reboot(Some(order));
        Ok(())
    }
}
