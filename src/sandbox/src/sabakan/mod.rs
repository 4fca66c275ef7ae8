//! sabakan in the simulated data centre: its machine records, and its GraphQL and REST responses, modelled on
//! recordings of the real program.

mod answer;
mod graphql;
mod initial_records;
mod params;
mod record;
mod site;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use cketerm_model::clock::Clock;
use http::{Request, Response};
use tokio::sync::watch;

pub use self::{
    initial_records::initial_records,
    record::{Record, State},
    site::SiteOperators,
};
use super::machines::Machines;

/// Injected fault of sabakan.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InjectedFault {
    /// None.
    #[default]
    None,
    /// It never answers.
    Silent,
    /// It answers every request with this status and this body.
    Says(u16, String),
    /// It sends only the first half of its response.
    Half,
}

/// sabakan. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Sabakan {
    clock: Clock,
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Inner {
    /// Machines by serial.
    machines: BTreeMap<String, Record>,
    injected_fault: InjectedFault,
}

/// Reason why a state was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// There is no such machine.
    NotFound,
    /// The transition from this state is not allowed.
    Transition(State),
}

impl Sabakan {
    /// Creates a sabakan with these machines.
    pub fn new(machines: Vec<Record>, clock: Clock) -> Self {
        let machines = machines.into_iter().map(|m| (m.serial.clone(), m)).collect();
        let inner = Inner { machines, ..Inner::default() };
        Self { clock, inner: Arc::new(Mutex::new(inner)), changed: Arc::new(watch::Sender::new(0)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the machines that `wanted` accepts, sorted by serial.
    pub fn search(&self, wanted: impl Fn(&Record) -> bool) -> Vec<Record> {
        self.lock().machines.values().filter(|m| wanted(m)).cloned().collect()
    }

    /// Returns one machine.
    pub fn get(&self, serial: &str) -> Option<Record> {
        self.lock().machines.get(serial).cloned()
    }

    /// Returns the machine with this address.
    pub fn by_address(&self, address: &str) -> Option<Record> {
        self.lock().machines.values().find(|m| m.ipv4.first().is_some_and(|a| a == address)).cloned()
    }

    /// Adds or replaces a machine.
    pub fn put(&self, machine: Record) {
        self.lock().machines.insert(machine.serial.clone(), machine);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Removes a machine. Returns false if there is none.
    pub fn remove(&self, serial: &str) -> bool {
        let removed = self.lock().machines.remove(serial).is_some();
        self.changed.send_modify(|n| *n += 1);
        removed
    }

    /// Cuts the power of a rack's machines for good and removes them. Returns their number.
    pub fn rack_gone(&self, rack: i64, machines: &Machines) -> usize {
        let gone = self.search(|m| m.rack == rack);
        for record in &gone {
            if let Some(address) = record.ipv4.first() {
                machines.fail_permanently(address);
            }
            self.remove(&record.serial);
        }
        gone.len()
    }

    /// Sets a state if sabakan allows the transition. Returns the machine afterwards. Setting the same state changes
    /// nothing.
    pub fn set_state(&self, serial: &str, state: State) -> Result<Record, StateError> {
        let mut inner = self.lock();
        let now = self.clock.wall();
        let machine = inner.machines.get_mut(serial).ok_or(StateError::NotFound)?;
        if !machine.state.can_become(state) {
            return Err(StateError::Transition(machine.state));
        }
        if machine.state != state {
            (machine.state, machine.since) = (state, now);
        }
        let machine = machine.clone();
        drop(inner);
        self.changed.send_modify(|n| *n += 1);
        Ok(machine)
    }

    /// Sets the injected fault.
    pub fn inject_fault(&self, how: InjectedFault) {
        self.lock().injected_fault = how;
    }

    /// Subscribes to changes of machines.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns the response to a request, or applies the injected fault.
    pub async fn serve(&self, request: Request<Bytes>) -> Response<Bytes> {
        let how = self.lock().injected_fault.clone();
        match how {
            InjectedFault::None => self.answer(&request),
            InjectedFault::Silent => std::future::pending().await,
            InjectedFault::Says(status, body) => {
                let mut response = Response::new(Bytes::from(body));
                *response.status_mut() =
                    http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
                response
            }
            InjectedFault::Half => self.answer(&request).map(|body| body.slice(..body.len() / 2)),
        }
    }
}
