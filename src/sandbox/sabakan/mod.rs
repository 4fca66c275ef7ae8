//! sabakan in the simulated data centre: the machines that it knows, and its GraphQL and REST answers as the real
//! program's were recorded.

mod answer;
mod graphql;
mod params;
mod record;
mod site;
mod stock;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http::{Request, Response};
use tokio::sync::watch;

pub use self::{
    record::{Record, State},
    site::Site,
    stock::stock,
};
use super::machines::Machines;
use crate::clock::Clock;

/// How it misbehaves, for whoever has to live with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Misbehaviour {
    /// Not at all.
    #[default]
    None,
    /// It never answers.
    Silent,
    /// This status and this body, whatever is asked.
    Says(u16, String),
    /// The first half of its answer.
    Half,
}

/// sabakan. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Sabakan {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Inner {
    /// By serial.
    machines: BTreeMap<String, Record>,
    misbehaviour: Misbehaviour,
}

/// Why a state was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such machine.
    NotFound,
    /// Not from this state.
    Transition(State),
}

impl Sabakan {
    /// With these machines.
    pub fn new(machines: Vec<Record>, clock: Clock) -> Self {
        let machines = machines.into_iter().map(|m| (m.serial.clone(), m)).collect();
        let inner = Inner { machines, ..Inner::default() };
        Self { clock, inner: Arc::new(Mutex::new(inner)), changed: Arc::new(watch::Sender::new(0)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machines for which `wanted` says yes, by serial.
    pub fn search(&self, wanted: impl Fn(&Record) -> bool) -> Vec<Record> {
        self.lock().machines.values().filter(|m| wanted(m)).cloned().collect()
    }

    /// One machine.
    pub fn get(&self, serial: &str) -> Option<Record> {
        self.lock().machines.get(serial).cloned()
    }

    /// The machine with this address.
    pub fn by_address(&self, address: &str) -> Option<Record> {
        self.lock().machines.values().find(|m| m.ipv4.first().is_some_and(|a| a == address)).cloned()
    }

    /// Registers a machine, or changes it.
    pub fn put(&self, machine: Record) {
        self.lock().machines.insert(machine.serial.clone(), machine);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Forgets a machine; false if there is none.
    pub fn remove(&self, serial: &str) -> bool {
        let removed = self.lock().machines.remove(serial).is_some();
        self.changed.send_modify(|n| *n += 1);
        removed
    }

    /// A rack's machines lose their power for good, and are forgotten; how many there were.
    pub fn rack_gone(&self, rack: i64, machines: &Machines) -> usize {
        let gone = self.search(|m| m.rack == rack);
        for record in &gone {
            if let Some(address) = record.ipv4.first() {
                machines.die(address);
            }
            self.remove(&record.serial);
        }
        gone.len()
    }

    /// Sets a state, where sabakan lets it; the machine as it is then. The same state again changes nothing.
    pub fn set_state(&self, serial: &str, state: State) -> Result<Record, Refused> {
        let mut inner = self.lock();
        let now = self.clock.wall();
        let machine = inner.machines.get_mut(serial).ok_or(Refused::NotFound)?;
        if !machine.state.may_become(state) {
            return Err(Refused::Transition(machine.state));
        }
        if machine.state != state {
            (machine.state, machine.since) = (state, now);
        }
        let machine = machine.clone();
        drop(inner);
        self.changed.send_modify(|n| *n += 1);
        Ok(machine)
    }

    /// Misbehaves from now on.
    pub fn misbehave(&self, how: Misbehaviour) {
        self.lock().misbehaviour = how;
    }

    /// Wakes with every change of a machine.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The answer to a request, or the misbehaviour in its place.
    pub async fn serve(&self, request: Request<Bytes>) -> Response<Bytes> {
        let how = self.lock().misbehaviour.clone();
        match how {
            Misbehaviour::None => self.answer(&request),
            Misbehaviour::Silent => std::future::pending().await,
            Misbehaviour::Says(status, body) => {
                let mut response = Response::new(Bytes::from(body));
                *response.status_mut() =
                    http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
                response
            }
            Misbehaviour::Half => self.answer(&request).map(|body| body.slice(..body.len() / 2)),
        }
    }
}
