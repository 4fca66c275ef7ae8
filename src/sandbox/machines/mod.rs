//! The racks: machines with power, boots and boot ids, and the commands that a definition has for them.

mod behaviour;
mod command;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fastrand::Rng;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

pub use self::behaviour::{Behaviour, OnBmc, OnBoot, OnCheck, OnCommand};
use super::durations::{Durations, Span, length};
use crate::clock::Clock;

/// One machine of the data centre.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its host name, and its Node's name.
    pub name: String,
    /// Its IP address, which commands are given.
    pub address: String,
    /// It runs an API server.
    #[serde(default)]
    pub control_plane: bool,
    /// It is no machine of the cluster: no kubelet runs on it.
    #[serde(default)]
    pub apart: bool,
    /// The rack it stands in, counted from 0.
    #[serde(default)]
    pub rack: u32,
    /// What its boots take, where that is not the pace's.
    #[serde(default)]
    pub boot: Option<Span>,
    /// What is wrong with it in the beginning.
    #[serde(default)]
    pub behaviour: Behaviour,
}

/// Whether it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Without power.
    Off,
    /// Between power and a running system.
    Booting,
    /// Its system runs.
    Up,
}

/// A machine as it is.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Whether it runs.
    pub state: State,
    /// The boot id of its last boot that succeeded.
    pub boot_id: String,
    /// When that boot was over.
    pub booted_at: Timestamp,
    /// Until when its kubelet complains about a disk.
    pub trouble_until: Option<Instant>,
}

/// What happened to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A power or repair command began.
    Begin,
    /// It ended by itself with this code; without one, it was killed.
    End(Option<i32>),
    /// The machine lost power.
    Down,
    /// Its system runs again.
    Up,
}

/// One line of the power log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Power {
    /// When, in wall time.
    pub at: Timestamp,
    /// What.
    pub what: What,
    /// The machine's address.
    pub address: String,
    /// `CKETERM_ENTRY` of the command that did it; empty where there was none.
    pub entry: String,
    /// `CKETERM_ATTEMPT`, likewise.
    pub attempt: String,
    /// Its whole command line, likewise.
    pub argv: Vec<String>,
}

/// All machines. Cheap to clone; all clones are the same. Commands and boots run as tasks of the tokio runtime.
#[derive(Clone)]
pub struct Machines {
    pace: Arc<Durations>,
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<usize>>,
}

struct Inner {
    /// By address.
    racks: BTreeMap<String, Standing>,
    by_name: BTreeMap<String, String>,
    log: Vec<Power>,
    /// Where logins of BMCs came to, and when first.
    logins: BTreeMap<IpAddr, Timestamp>,
    seeds: Rng,
    /// Kubelets do nothing.
    frozen: bool,
}

struct Standing {
    machine: Machine,
    behaviour: Behaviour,
    state: State,
    boot_id: String,
    booted_at: Timestamp,
    /// Of the boot that was last: what a late task of an earlier one compares.
    cycle: u64,
    up_since: Instant,
    trouble_until: Option<Instant>,
    /// One for each machine, so that what happens to one does not depend on the others.
    rng: Rng,
}

impl Standing {
    /// It runs, and has for long.
    fn new(machine: Machine, mut rng: Rng, booted_at: Timestamp) -> Self {
        Self {
            behaviour: machine.behaviour.clone(),
            state: State::Up,
            boot_id: uuid(&mut rng),
            booted_at,
            cycle: 0,
            up_since: Instant::now().checked_sub(length(86_400.0)).unwrap_or_else(Instant::now),
            trouble_until: None,
            rng,
            machine,
        }
    }
}

impl Machines {
    /// All are up, since long ago. `seed` decides boot ids and jitter.
    pub fn new(machines: Vec<Machine>, pace: Durations, clock: Clock, seed: u64) -> Self {
        let (mut racks, mut by_name) = (BTreeMap::new(), BTreeMap::new());
        let mut seeds = Rng::with_seed(seed);
        let day = jiff::SignedDuration::from_hours(24);
        let booted_at = clock.wall().checked_sub(day).unwrap_or_default();
        for machine in machines {
            by_name.insert(machine.name.clone(), machine.address.clone());
            let standing = Standing::new(machine, seeds.fork(), booted_at);
            racks.insert(standing.machine.address.clone(), standing);
        }
        let inner = Inner { racks, by_name, log: Vec::new(), logins: BTreeMap::new(), seeds, frozen: false };
        Self {
            pace: Arc::new(pace),
            clock,
            inner: Arc::new(Mutex::new(inner)),
            changed: Arc::new(watch::Sender::new(0)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All machines as they were described, in the order of their addresses' text.
    pub fn list(&self) -> Vec<Machine> {
        self.lock().racks.values().map(|s| s.machine.clone()).collect()
    }

    /// The machine with this address.
    pub fn machine(&self, address: &str) -> Option<Machine> {
        self.lock().racks.get(address).map(|s| s.machine.clone())
    }

    /// The address of the machine with this name.
    pub fn address_of(&self, name: &str) -> Option<String> {
        self.lock().by_name.get(name).cloned()
    }

    /// The machine as it is now.
    pub fn look(&self, address: &str) -> Option<Seen> {
        self.lock().racks.get(address).map(|s| Seen {
            state: s.state,
            boot_id: s.boot_id.clone(),
            booted_at: s.booted_at,
            trouble_until: s.trouble_until,
        })
    }

    /// What is wrong with it.
    pub fn behaviour(&self, address: &str) -> Option<Behaviour> {
        self.lock().racks.get(address).map(|s| s.behaviour.clone())
    }

    /// Makes it behave otherwise from now on; false if there is no such machine.
    pub fn behave(&self, address: &str, behaviour: Behaviour) -> bool {
        self.lock().racks.get_mut(address).map(|s| s.behaviour = behaviour).is_some()
    }

    /// What the API server of that machine answers to `/readyz`: none = no connection, 500 until it has settled.
    pub fn readyz(&self, address: &str) -> Option<u16> {
        let inner = self.lock();
        let standing = inner.racks.get(address).filter(|s| s.machine.control_plane && s.state == State::Up)?;
        Some(if standing.up_since.elapsed() < length(self.pace.api_settle) { 500 } else { 200 })
    }

    /// Whether any API server answers on its machine; none if no machine runs one.
    pub fn any_api_server(&self) -> Option<bool> {
        let inner = self.lock();
        let mut planes = inner.racks.values().filter(|s| s.machine.control_plane).peekable();
        planes.peek()?;
        Some(planes.any(|s| s.state == State::Up))
    }

    /// Brings another machine, which has just booted; false if the name or the address is taken.
    pub fn rack(&self, machine: Machine) -> bool {
        let mut inner = self.lock();
        let address = machine.address.clone();
        if inner.racks.contains_key(&address) || inner.by_name.contains_key(&machine.name) {
            return false;
        }
        let rng = inner.seeds.fork();
        inner.by_name.insert(machine.name.clone(), address.clone());
        inner.racks.insert(address.clone(), Standing::new(machine, rng, self.clock.wall()));
        self.note(&mut inner, &Order::default(), &address, What::Up);
        true
    }

    /// Takes a machine out for good; false if there is none.
    pub fn unrack(&self, address: &str) -> bool {
        let mut inner = self.lock();
        let Some(standing) = inner.racks.remove(address) else { return false };
        inner.by_name.remove(&standing.machine.name);
        self.note(&mut inner, &Order::default(), address, What::Down);
        true
    }

    /// Makes it run an API server from now on, which then has to settle, or none any more; false if there is no such
    /// machine.
    pub fn promote(&self, address: &str, control_plane: bool) -> bool {
        let mut inner = self.lock();
        let Some(standing) = inner.racks.get_mut(address) else { return false };
        if standing.machine.control_plane != control_plane {
            standing.machine.control_plane = control_plane;
            standing.up_since = Instant::now();
        }
        true
    }

    /// Its BMC took a reset (`On`, `ForceOff`, `GracefulShutdown`): the power changes a little later.
    pub fn press(&self, address: &str, kind: &str) {
        let takes = {
            let mut inner = self.lock();
            let Some(standing) = inner.racks.get_mut(address) else { return };
            self.pace.command.draw(&mut standing.rng) + length(standing.behaviour.bmc_seconds)
        };
        let order = Order { argv: vec!["redfish".to_owned(), kind.to_owned(), address.to_owned()], ..Order::default() };
        let (machines, address, on) = (self.clone(), address.to_owned(), kind == "On");
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            if on { machines.boot(&address, &order) } else { machines.down(&address, &order) }
        });
    }

    /// Whether its BMC refuses this time; counted down.
    pub fn bmc_fails(&self, address: &str) -> bool {
        let mut inner = self.lock();
        let Some(standing) = inner.racks.get_mut(address) else { return true };
        let fails = standing.behaviour.fails > 0;
        standing.behaviour.fails = standing.behaviour.fails.saturating_sub(1);
        fails
    }

    /// Takes its power away for good: nothing brings it back but another behaviour.
    pub fn die(&self, address: &str) {
        let behaviour = self.behaviour(address).unwrap_or_default();
        self.behave(address, Behaviour { boot: OnBoot::Never, ..behaviour });
        self.down(address, &Order::default());
    }

    /// Makes the kubelets of all machines stand still, or go on: pods neither start nor end, nobody reports.
    pub fn freeze_kubelets(&self, frozen: bool) {
        let mut inner = self.lock();
        inner.frozen = frozen;
        self.changed.send_replace(inner.log.len());
    }

    /// Whether they stand still.
    pub fn kubelets_frozen(&self) -> bool {
        self.lock().frozen
    }

    /// A BMC, or somebody who is none, was sent a login.
    pub fn note_login(&self, to: IpAddr) {
        let now = self.clock.wall();
        self.lock().logins.entry(to).or_insert(now);
    }

    /// Addresses that were sent a login, and when first.
    pub fn logins(&self) -> BTreeMap<IpAddr, Timestamp> {
        self.lock().logins.clone()
    }

    /// Everything that happened, oldest first.
    pub fn power_log(&self) -> Vec<Power> {
        self.power_since(0)
    }

    /// What happened after the first `seen` lines of the log.
    pub fn power_since(&self, seen: usize) -> Vec<Power> {
        self.lock().log.get(seen..).unwrap_or_default().to_vec()
    }

    /// Wakes with every line of the log, and when kubelets freeze or thaw; the value is the log's length.
    pub fn subscribe(&self) -> watch::Receiver<usize> {
        self.changed.subscribe()
    }

    fn note(&self, inner: &mut Inner, order: &Order, address: &str, what: What) {
        let Order { argv, entry, attempt } = order.clone();
        let at = self.clock.wall();
        inner.log.push(Power { at, what, address: address.to_owned(), entry, attempt, argv });
        self.changed.send_replace(inner.log.len());
    }

    /// Takes its power away.
    fn down(&self, address: &str, order: &Order) {
        let mut inner = self.lock();
        let Some(standing) = inner.racks.get_mut(address) else { return };
        standing.cycle += 1;
        if std::mem::replace(&mut standing.state, State::Off) != State::Off {
            self.note(&mut inner, order, address, What::Down);
        }
    }

    /// Gives it power; what runs afterwards is a boot.
    fn boot(&self, address: &str, order: &Order) {
        let (cycle, takes) = {
            let mut inner = self.lock();
            let Some(standing) = inner.racks.get_mut(address) else { return };
            if standing.state != State::Off {
                return;
            }
            standing.state = State::Booting;
            standing.cycle += 1;
            let span = standing.machine.boot.unwrap_or(self.pace.boot);
            let takes = span.draw(&mut standing.rng) + length(standing.behaviour.late_seconds);
            (standing.cycle, takes)
        };
        let (machines, address, order) = (self.clone(), address.to_owned(), order.clone());
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            machines.up(&address, cycle, &order);
        });
    }

    fn up(&self, address: &str, cycle: u64, order: &Order) {
        let mut inner = self.lock();
        let wall = self.clock.wall();
        let Some(standing) = inner.racks.get_mut(address) else { return };
        // Somebody switched it again meanwhile, or it hangs in its firmware.
        if standing.cycle != cycle || standing.behaviour.boot == OnBoot::Never {
            return;
        }
        let id = uuid(&mut standing.rng);
        if standing.behaviour.boot != OnBoot::SameId {
            standing.boot_id = id;
        }
        standing.state = State::Up;
        standing.booted_at = wall;
        standing.up_since = Instant::now();
        let trouble = standing.behaviour.disk_trouble_seconds;
        standing.trouble_until = (trouble > 0.0).then(|| Instant::now() + length(trouble));
        self.note(&mut inner, order, address, What::Up);
    }
}

/// Who asked for what.
#[derive(Clone, Debug, Default)]
struct Order {
    argv: Vec<String>,
    entry: String,
    attempt: String,
}

/// A random UUID.
fn uuid(rng: &mut Rng) -> String {
    let (a, b) = (rng.u64(..), rng.u64(..));
    let (time, clock) = ((a & 0xfff) | 0x4000, ((b >> 48) & 0x3fff) | 0x8000);
    format!("{:08x}-{:04x}-{time:04x}-{clock:04x}-{:012x}", a >> 32, (a >> 16) & 0xffff, b & 0xffff_ffff_ffff)
}
