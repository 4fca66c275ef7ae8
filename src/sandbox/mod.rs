//! The sandbox: a data centre inside the process, spoken to over the real protocols (DESIGN.md, "The sandbox speaks the
//! real protocols").
//!
//! It knows the wire and nothing of the engine: etcd's gRPC services, Kubernetes' HTTP API, machines that boot. The
//! engine, the console and the words cannot tell it from the real servers. Time is one injected [`crate::clock::Clock`]
//! and tokio's timers, so that a test with a paused clock runs an hour in a moment.

pub mod bmc;
pub mod durations;
pub mod etcd;
pub mod faults;
pub mod kubernetes;
pub mod machines;
pub mod members;
pub mod metal3;
mod plain;
pub mod sabakan;
pub mod serve;
pub mod workload;

use tokio::task::JoinSet;

use self::{
    durations::Durations,
    etcd::Etcd,
    kubernetes::{
        Objects,
        api::{Api, ApiOptions},
        controllers::Controllers,
    },
    machines::Machines,
    members::Members,
    metal3::Bmo,
    sabakan::{Sabakan, Site},
    workload::Population,
};
use crate::clock::Clock;

/// A data centre: etcd, Kubernetes, machines, and what moves in them. It stands still when it is dropped.
pub struct Sandbox {
    /// etcd.
    pub etcd: Etcd,
    /// The objects of Kubernetes, for whoever is not a client.
    pub objects: Objects,
    /// Kubernetes' API.
    pub api: Api,
    /// The machines.
    pub machines: Machines,
    /// The members of Kubernetes' etcd.
    pub members: Members,
    /// The registry of machines, empty where the population has none.
    pub sabakan: Sabakan,
    _controllers: Controllers,
    _tasks: JoinSet<()>,
}

impl Sandbox {
    /// Builds one. To be called inside a tokio runtime. `seed` decides every chance; the error names what the population
    /// has wrong.
    pub fn new(
        population: &Population,
        pace: Durations,
        api: ApiOptions,
        clock: Clock,
        seed: u64,
    ) -> Result<Self, String> {
        let objects = Objects::new(clock.clone());
        let machines = Machines::new(population.machines(), pace.clone(), clock.clone(), seed);
        population.settle(&objects, &machines).map_err(|e| e.message)?;
        // after the population: it makes the namespaces that are missing then
        let api = Api::new(objects.clone(), api);
        if let Some(site) = &population.metal3 {
            metal3::settle(site, &objects, &machines).map_err(|e| e.message)?;
        }
        let controllers = Controllers::start(objects.clone(), machines.clone(), pace, seed);
        let (etcd, mut tasks) = (Etcd::new(clock.clone()), JoinSet::new());
        tasks.spawn(serve_while_a_control_plane_is_up(api.clone(), machines.clone()));
        let site = population.metal3.as_ref();
        if let Some(operator) = site.and_then(|site| Bmo::new(site, objects.clone(), machines.clone())) {
            tasks.spawn(operator.run());
        }
        let members = Members::new(machines.clone(), clock.clone());
        let sabakan = Sabakan::new(sabakan::stock(population, clock.wall(), seed), clock);
        if let Some(registry) = &population.registry {
            let site = Site::new(sabakan.clone(), machines.clone(), objects.clone(), etcd.clone(), registry, seed);
            tasks.spawn(site.run());
        }
        Ok(Self { etcd, objects, api, machines, members, sabakan, _controllers: controllers, _tasks: tasks })
    }
}

/// The API is behind a balancer: it answers while any control plane does.
async fn serve_while_a_control_plane_is_up(api: Api, machines: Machines) {
    let mut changed = machines.subscribe();
    let mut was = true;
    while changed.changed().await.is_ok() {
        // where no machine runs one, it is somewhere else
        let up = machines.any_api_server().unwrap_or(true);
        if up != was {
            was = up;
            api.set_available(up);
        }
    }
}
