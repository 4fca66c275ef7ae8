//! The racks: machines with power, boots and boot ids, and the commands that a definition runs on them.

mod behaviour;
mod command;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cketerm_model::{boot_time::Seconds, clock::Clock};
use fastrand::Rng;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

pub use self::behaviour::{Behaviour, OnBmc, OnBoot, OnCheck, OnCommand, OnHook};
use super::durations::{Durations, RandomDuration, duration_from_secs};

/// One machine of the data centre.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Host name, and name of its Node.
    pub name: String,
    /// IP address, which commands get as an argument.
    pub address: String,
    /// Whether it runs an API server.
    #[serde(default)]
    pub control_plane: bool,
    /// Whether it is outside the cluster: no kubelet runs on it.
    #[serde(default)]
    pub apart: bool,
    /// Rack number, counted from 0.
    #[serde(default)]
    pub rack: u32,
    /// Boot duration, if it differs from the pace's.
    #[serde(default)]
    pub boot: Option<RandomDuration>,
    /// Initial behaviour.
    #[serde(default)]
    pub behaviour: Behaviour,
}

/// Power state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Without power.
    Off,
    /// Between power-on and a running operating system.
    Booting,
    /// The operating system runs.
    Up,
}

/// Current state of a machine.
#[derive(Clone, Debug)]
pub struct MachineStatus {
    /// Power state.
    pub state: State,
    /// Boot id of the last successful boot.
    pub boot_id: String,
    /// End of that boot.
    pub booted_at: Timestamp,
    /// End of the period in which the kubelet reports a disk problem.
    pub trouble_until: Option<Instant>,
}

/// Event of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerEvent {
    /// A power or repair command began.
    Begin,
    /// The command ended by itself with this code; `None` if it was killed.
    End(Option<i32>),
    /// The machine lost power.
    Down,
    /// The operating system runs again.
    Up,
}

/// One entry of the power log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Power {
    /// Wall time.
    pub at: Timestamp,
    /// The event.
    pub what: PowerEvent,
    /// The machine's address.
    pub address: String,
    /// `CKETERM_ENTRY` of the command that caused it; empty if there was none.
    pub entry: String,
    /// `CKETERM_ATTEMPT` of that command; empty if there was none.
    pub attempt: String,
    /// Whole command line of that command; empty if there was none.
    pub argv: Vec<String>,
}

/// All machines. Cheap to clone; all clones share one state. Commands and boots run as tasks of the tokio runtime.
#[derive(Clone)]
pub struct Machines {
    durations: Arc<Durations>,
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<usize>>,
}

/// Begin of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Time at which it began.
    pub at: Timestamp,
    /// IP address of the machine.
    pub address: String,
}

struct Inner {
    /// Machines by address.
    by_address: BTreeMap<String, MachineRuntime>,
    by_name: BTreeMap<String, String>,
    log: Vec<Power>,
    /// Begins of health checks. None: they are not kept.
    health_checks: Option<Vec<HealthCheck>>,
    /// Addresses that received a login, with the time of the first one.
    logins: BTreeMap<IpAddr, Timestamp>,
    seeds: Rng,
    /// Whether kubelets are frozen.
    frozen: bool,
}

struct MachineRuntime {
    machine: Machine,
    behaviour: Behaviour,
    state: State,
    boot_id: String,
    booted_at: Timestamp,
    /// Number of the last power change. A late task of an earlier boot compares it.
    cycle: u64,
    up_since: Instant,
    trouble_until: Option<Instant>,
    /// One generator for each machine, so that its behaviour does not depend on the others.
    rng: Rng,
}

impl MachineRuntime {
    /// Creates a machine that is up and has settled.
    fn new(machine: Machine, mut rng: Rng, booted_at: Timestamp) -> Self {
        Self {
            behaviour: machine.behaviour.clone(),
            state: State::Up,
            boot_id: uuid(&mut rng),
            booted_at,
            cycle: 0,
            up_since: Instant::now()
                .checked_sub(duration_from_secs(Seconds::new(86_400.0)))
                .unwrap_or_else(Instant::now),
            trouble_until: None,
            rng,
            machine,
        }
    }
}

impl Machines {
    /// Creates machines that have been up for a day. `seed` determines boot ids and jitter.
    pub fn new(machines: Vec<Machine>, durations: Durations, clock: Clock, seed: u64) -> Self {
        let (mut by_address, mut by_name) = (BTreeMap::new(), BTreeMap::new());
        let mut seeds = Rng::with_seed(seed);
        let day = jiff::SignedDuration::from_hours(24);
        let booted_at = clock.wall().checked_sub(day).unwrap_or_default();
        for machine in machines {
            by_name.insert(machine.name.clone(), machine.address.clone());
            let runtime = MachineRuntime::new(machine, seeds.fork(), booted_at);
            by_address.insert(runtime.machine.address.clone(), runtime);
        }
        let inner = Inner {
            by_address,
            by_name,
            log: Vec::new(),
            health_checks: None,
            logins: BTreeMap::new(),
            seeds,
            frozen: false,
        };
        Self {
            durations: Arc::new(durations),
            clock,
            inner: Arc::new(Mutex::new(inner)),
            changed: Arc::new(watch::Sender::new(0)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all machines as they were described, sorted by the text of their addresses.
    pub fn list(&self) -> Vec<Machine> {
        self.lock().by_address.values().map(|s| s.machine.clone()).collect()
    }

    /// Returns the machine with this address.
    pub fn machine(&self, address: &str) -> Option<Machine> {
        self.lock().by_address.get(address).map(|s| s.machine.clone())
    }

    /// Returns the address of the machine with this name.
    pub fn address_of(&self, name: &str) -> Option<String> {
        self.lock().by_name.get(name).cloned()
    }

    /// Returns the current state of the machine.
    pub fn machine_status(&self, address: &str) -> Option<MachineStatus> {
        self.lock().by_address.get(address).map(|s| MachineStatus {
            state: s.state,
            boot_id: s.boot_id.clone(),
            booted_at: s.booted_at,
            trouble_until: s.trouble_until,
        })
    }

    /// Returns the current behaviour of the machine.
    pub fn behaviour(&self, address: &str) -> Option<Behaviour> {
        self.lock().by_address.get(address).map(|s| s.behaviour.clone())
    }

    /// Changes the machine's behaviour from now on. Returns false if there is no such machine.
    pub fn behave(&self, address: &str, behaviour: Behaviour) -> bool {
        self.lock().by_address.get_mut(address).map(|s| s.behaviour = behaviour).is_some()
    }

    /// Returns the status code of the machine's API server for `/readyz`: 500 until it has settled. `None` means no
    /// connection.
    pub fn readyz(&self, address: &str) -> Option<u16> {
        let inner = self.lock();
        let runtime = inner.by_address.get(address).filter(|s| s.machine.control_plane && s.state == State::Up)?;
        Some(if runtime.up_since.elapsed() < duration_from_secs(self.durations.api_settle) { 500 } else { 200 })
    }

    /// Reports whether any API server's machine is up. Returns `None` if no machine runs an API server.
    pub fn any_api_server(&self) -> Option<bool> {
        let inner = self.lock();
        let mut planes = inner.by_address.values().filter(|s| s.machine.control_plane).peekable();
        planes.peek()?;
        Some(planes.any(|s| s.state == State::Up))
    }

    /// Adds a machine that has just booted. Returns false if its name or address is taken.
    pub fn rack(&self, machine: Machine) -> bool {
        let mut inner = self.lock();
        let address = machine.address.clone();
        if inner.by_address.contains_key(&address) || inner.by_name.contains_key(&machine.name) {
            return false;
        }
        let rng = inner.seeds.fork();
        inner.by_name.insert(machine.name.clone(), address.clone());
        inner.by_address.insert(address.clone(), MachineRuntime::new(machine, rng, self.clock.wall()));
        self.log_event(&mut inner, &CommandOrigin::default(), &address, PowerEvent::Up);
        true
    }

    /// Removes a machine for good. Returns false if there is none.
    pub fn unrack(&self, address: &str) -> bool {
        let mut inner = self.lock();
        let Some(runtime) = inner.by_address.remove(address) else { return false };
        inner.by_name.remove(&runtime.machine.name);
        self.log_event(&mut inner, &CommandOrigin::default(), address, PowerEvent::Down);
        true
    }

    /// Makes the machine run an API server from now on, which then has to settle, or stops it. Returns false if there
    /// is no such machine.
    pub fn promote(&self, address: &str, control_plane: bool) -> bool {
        let mut inner = self.lock();
        let Some(runtime) = inner.by_address.get_mut(address) else { return false };
        if runtime.machine.control_plane != control_plane {
            runtime.machine.control_plane = control_plane;
            runtime.up_since = Instant::now();
        }
        true
    }

    /// Handles a reset that the BMC accepted (`On`, `ForceOff`, `GracefulShutdown`). The power changes a little later.
    pub fn request_reset(&self, address: &str, kind: &str) {
        let takes = {
            let mut inner = self.lock();
            let Some(runtime) = inner.by_address.get_mut(address) else { return };
            self.durations.command.draw(&mut runtime.rng) + duration_from_secs(runtime.behaviour.bmc_seconds)
        };
        let origin = CommandOrigin {
            argv: vec!["redfish".to_owned(), kind.to_owned(), address.to_owned()],
            ..CommandOrigin::default()
        };
        let (machines, address, on) = (self.clone(), address.to_owned(), kind == "On");
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            if on { machines.boot(&address, &origin) } else { machines.down(&address, &origin) }
        });
    }

    /// Reports whether the BMC refuses this request, and decrements the number of pending failures.
    pub fn bmc_fails(&self, address: &str) -> bool {
        let mut inner = self.lock();
        let Some(runtime) = inner.by_address.get_mut(address) else { return true };
        let fails = runtime.behaviour.fails > 0;
        runtime.behaviour.fails = runtime.behaviour.fails.saturating_sub(1);
        fails
    }

    /// Cuts the machine's power for good. Only another behaviour brings it back.
    pub fn fail_permanently(&self, address: &str) {
        let behaviour = self.behaviour(address).unwrap_or_default();
        self.behave(address, Behaviour { boot: OnBoot::Never, ..behaviour });
        self.down(address, &CommandOrigin::default());
    }

    /// Freezes or thaws the kubelets of all machines. Frozen kubelets neither start nor stop pods, and report nothing.
    pub fn freeze_kubelets(&self, frozen: bool) {
        let mut inner = self.lock();
        inner.frozen = frozen;
        self.changed.send_replace(inner.log.len());
    }

    /// Reports whether kubelets are frozen.
    pub fn kubelets_frozen(&self) -> bool {
        self.lock().frozen
    }

    /// Records that a login was sent to this address, which may or may not be a BMC.
    pub fn record_login(&self, to: IpAddr) {
        let now = self.clock.wall();
        self.lock().logins.entry(to).or_insert(now);
    }

    /// Returns the addresses that received a login, with the time of the first one.
    pub fn logins(&self) -> BTreeMap<IpAddr, Timestamp> {
        self.lock().logins.clone()
    }

    /// Returns the whole power log, oldest first.
    pub fn power_log(&self) -> Vec<Power> {
        self.power_since(0)
    }

    /// Returns the power log after its first `seen` entries.
    pub fn power_since(&self, seen: usize) -> Vec<Power> {
        self.lock().log.get(seen..).unwrap_or_default().to_vec()
    }

    /// Keeps the begin of every health check from now on.
    pub fn keep_health_checks(&self) {
        self.lock().health_checks.get_or_insert_default();
    }

    /// Returns the begins of all health checks, oldest first. None if they are not kept.
    pub fn health_checks(&self) -> Option<Vec<HealthCheck>> {
        self.lock().health_checks.clone()
    }

    /// Subscribes to the power log and to freezes and thaws of the kubelets. The value is the length of the log.
    pub fn subscribe(&self) -> watch::Receiver<usize> {
        self.changed.subscribe()
    }

    fn log_event(&self, inner: &mut Inner, origin: &CommandOrigin, address: &str, what: PowerEvent) {
        let CommandOrigin { argv, entry, attempt } = origin.clone();
        let at = self.clock.wall();
        inner.log.push(Power { at, what, address: address.to_owned(), entry, attempt, argv });
        self.changed.send_replace(inner.log.len());
    }

    /// Records the beginning or the end of a command that reaches the machine without [`Machines::command`].
    pub fn record_command(&self, address: &str, origin: &CommandOrigin, what: PowerEvent) {
        self.log_event(&mut self.lock(), origin, address, what);
    }

    /// Restarts the machine's operating system, as its own `reboot` would. Nothing happens unless it is up.
    pub fn restart(&self, address: &str, origin: &CommandOrigin) {
        if self.machine_status(address).is_some_and(|machine| machine.state == State::Up) {
            self.down(address, origin);
            self.boot(address, origin);
        }
    }

    /// Cuts the machine's power.
    fn down(&self, address: &str, origin: &CommandOrigin) {
        let mut inner = self.lock();
        let Some(runtime) = inner.by_address.get_mut(address) else { return };
        runtime.cycle += 1;
        if std::mem::replace(&mut runtime.state, State::Off) != State::Off {
            self.log_event(&mut inner, origin, address, PowerEvent::Down);
        }
    }

    /// Powers the machine on and boots it.
    fn boot(&self, address: &str, origin: &CommandOrigin) {
        let (cycle, takes) = {
            let mut inner = self.lock();
            let Some(runtime) = inner.by_address.get_mut(address) else { return };
            if runtime.state != State::Off {
                return;
            }
            runtime.state = State::Booting;
            runtime.cycle += 1;
            let span = runtime.machine.boot.unwrap_or(self.durations.boot);
            let takes = span.draw(&mut runtime.rng) + duration_from_secs(runtime.behaviour.late_seconds);
            (runtime.cycle, takes)
        };
        let (machines, address, origin) = (self.clone(), address.to_owned(), origin.clone());
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            machines.up(&address, cycle, &origin);
        });
    }

    fn up(&self, address: &str, cycle: u64, origin: &CommandOrigin) {
        let mut inner = self.lock();
        let wall = self.clock.wall();
        let Some(runtime) = inner.by_address.get_mut(address) else { return };
        // The power was switched again meanwhile, or the machine hangs in its firmware.
        if runtime.cycle != cycle || runtime.behaviour.boot == OnBoot::Never {
            return;
        }
        let id = uuid(&mut runtime.rng);
        if runtime.behaviour.boot != OnBoot::SameId {
            runtime.boot_id = id;
        }
        runtime.state = State::Up;
        runtime.booted_at = wall;
        runtime.up_since = Instant::now();
        let trouble = runtime.behaviour.disk_trouble_seconds;
        runtime.trouble_until = (trouble > Seconds::ZERO).then(|| Instant::now() + duration_from_secs(trouble));
        self.log_event(&mut inner, origin, address, PowerEvent::Up);
    }
}

/// The command behind an event.
#[derive(Clone, Debug, Default)]
pub struct CommandOrigin {
    /// Its command line.
    pub argv: Vec<String>,
    /// Its `CKETERM_ENTRY`.
    pub entry: String,
    /// Its `CKETERM_ATTEMPT`.
    pub attempt: String,
}

/// Returns a random UUID.
fn uuid(rng: &mut Rng) -> String {
    let (a, b) = (rng.u64(..), rng.u64(..));
    let (time, clock) = ((a & 0xfff) | 0x4000, ((b >> 48) & 0x3fff) | 0x8000);
    format!("{:08x}-{:04x}-{time:04x}-{clock:04x}-{:012x}", a >> 32, (a >> 16) & 0xffff, b & 0xffff_ffff_ffff)
}
