//! The sandbox: a data centre inside the process, behind the real protocols (`docs/sandbox.md`).
//!
//! It implements etcd's gRPC services, the Kubernetes HTTP API and machines that boot. It does not depend on the
//! engine. The engine, the console and the subcommands cannot tell it from real servers. Time comes from one injected
//! [`cketerm_model::clock::Clock`] and tokio's timers, so a test with a paused clock simulates an hour in a moment.

pub mod bmc;
pub mod cke;
pub mod durations;
pub mod etcd;
pub mod faults;
pub mod kubernetes;
pub mod machines;
pub mod members;
pub mod metal3;
pub mod prometheus;
mod protobuf;
pub mod sabakan;
pub mod serve;
pub mod workload;

use cketerm_model::clock::Clock;
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
    metal3::BaremetalOperator,
    prometheus::Prometheus,
    sabakan::{Sabakan, SiteOperators},
    workload::Population,
};

/// A data centre: etcd, Kubernetes, machines, and the controllers that act on them. Everything stops when it is
/// dropped.
pub struct Sandbox {
    /// etcd.
    pub etcd: Etcd,
    /// Kubernetes objects, for direct access without the API.
    pub objects: Objects,
    /// The Kubernetes API.
    pub api: Api,
    /// The machines.
    pub machines: Machines,
    /// Members of the Kubernetes etcd.
    pub members: Members,
    /// The machine registry; empty if the population has none.
    pub sabakan: Sabakan,
    /// Prometheus, in which nothing fires by default.
    pub prometheus: Prometheus,
    _controllers: Controllers,
    _tasks: JoinSet<()>,
}

impl Sandbox {
    /// Builds a data centre. Must be called inside a tokio runtime. `seed` determines every random choice. The error
    /// names what is wrong with the population.
    pub fn new(
        population: &Population,
        durations: Durations,
        api: ApiOptions,
        clock: Clock,
        seed: u64,
    ) -> Result<Self, String> {
        let objects = Objects::new(clock.clone());
        let machines = Machines::new(population.machines(), durations.clone(), clock.clone(), seed);
        population.create_objects(&objects, &machines).map_err(|e| e.message)?;
        // After the population: this creates the namespaces that are still missing.
        let api = Api::new(objects.clone(), api);
        if let Some(site) = &population.metal3 {
            metal3::create_objects(site, &objects, &machines).map_err(|e| e.message)?;
        }
        let controllers = Controllers::start(objects.clone(), machines.clone(), durations, seed);
        let (etcd, mut tasks) = (Etcd::new(clock.clone()), JoinSet::new());
        tasks.spawn(serve_while_a_control_plane_is_up(api.clone(), machines.clone()));
        let site = population.metal3.as_ref();
        if let Some(operator) = site.and_then(|site| BaremetalOperator::new(site, objects.clone(), machines.clone())) {
            tasks.spawn(operator.run());
        }
        let members = Members::new(machines.clone(), clock.clone());
        let prometheus = Prometheus::new(clock.clone());
        let sabakan = Sabakan::new(sabakan::initial_records(population, clock.wall(), seed), clock);
        if let Some(registry) = &population.registry {
            let site =
                SiteOperators::new(sabakan.clone(), machines.clone(), objects.clone(), etcd.clone(), registry, seed);
            tasks.spawn(site.run());
        }
        Ok(Self {
            etcd,
            objects,
            api,
            machines,
            members,
            sabakan,
            prometheus,
            _controllers: controllers,
            _tasks: tasks,
        })
    }
}

/// Makes the API available while any control plane is up, as behind a load balancer.
async fn serve_while_a_control_plane_is_up(api: Api, machines: Machines) {
    let mut changed = machines.subscribe();
    let mut was = true;
    while changed.changed().await.is_ok() {
        // If no machine runs an API server, the API server is somewhere else.
        let up = machines.any_api_server().unwrap_or(true);
        if up != was {
            was = up;
            api.set_available(up);
        }
    }
}
