//! Generation of a definition from 1,000 to 20,000 machines, 20 to a rack: initialization and one maintenance pass.
//!
//! `cargo bench --bench generate` prints one JSON line for each size: milliseconds as median and maximum. `quiet` is a
//! pass that finds nothing to do. `change` is one that replaces a control plane and so builds the whole definition
//! anew.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{collections::BTreeSet, time::Instant};

use cketerm_model::{boot_time::Seconds, cluster::Cluster, constraints::Constraints, names::Address, policy::Strategy};
use cketerm_sabakan::{Action, Input, Machine, Plan, State, Template, machine::Date, plan};
use jiff::{SignedDuration, Timestamp};

const TEMPLATE: &str = "\
name: large
nodes:
- {user: u, control_plane: true, labels: {cke.cybozu.com/role: compute}}
- {user: u, labels: {cke.cybozu.com/role: compute, cke.cybozu.com/weight: \"6\"}}
- {user: u, labels: {cke.cybozu.com/role: storage, cke.cybozu.com/weight: \"3\"}}
- {user: u, labels: {cke.cybozu.com/role: gpu, cke.cybozu.com/weight: \"1\"}}
";

fn machine(n: usize, now: Timestamp) -> Machine {
    let (rack, index) = (n / 20, n % 20);
    let role = ["compute", "storage", "gpu"][usize::from(index >= 12) + usize::from(index >= 18)];
    let days = i64::try_from((n * 7919) % 3000).unwrap() - 1200;
    let address = format!("10.{}.{}.{}", rack / 250, rack % 250, index + 4);
    Machine {
        serial: format!("SN{n:06}"),
        labels: vec![("product".to_owned(), "r640".to_owned())],
        rack: i64::try_from(rack).unwrap(),
        index_in_rack: i64::try_from(index).unwrap() + 4,
        role: role.to_owned(),
        ipv4: vec![address.clone()],
        address: Address::new(address),
        register_date: Date::utc(now),
        retire_date: Date::utc(now.checked_add(SignedDuration::from_hours(24 * days)).unwrap()),
        bmc_type: "iDRAC-9".to_owned(),
        bmc_ipv4: String::new(),
        state: if n % 50 == 49 { State::Unhealthy } else { State::Healthy },
        since: None,
        duration: Seconds::new(86_400.0),
    }
}

struct Site {
    machines: Vec<Machine>,
    template: Template,
    constraints: Constraints,
    now: Timestamp,
}

impl Site {
    fn new(count: usize) -> Self {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let workers = i64::try_from(count * 9 / 10).unwrap();
        Self {
            machines: (0..count).map(|n| machine(n, now)).collect(),
            template: Template::read(TEMPLATE).unwrap(),
            constraints: Constraints {
                control_plane_count: 5,
                minimum_workers: Some(workers),
                ..Constraints::default()
            },
            now,
        }
    }

    fn plan(&self, current: Option<&Cluster>) -> Plan {
        let generated = plan(&Input {
            machines: &self.machines,
            template: &self.template,
            constraints: &self.constraints,
            current,
            kubernetes_nodes: None,
            rebooting: &BTreeSet::new(),
            template_changed: false,
            wait_seconds: 300,
            strategy: Strategy::Weighted,
            now: self.now,
        });
        generated.unwrap()
    }
}

/// Returns median and maximum of some runs, in milliseconds.
fn timed(runs: usize, mut work: impl FnMut() -> Plan) -> (f64, f64) {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let began = Instant::now();
            let generated = std::hint::black_box(work());
            let took = began.elapsed().as_secs_f64() * 1000.0;
            drop(generated);
            took
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() - 1])
}

fn main() {
    for count in [1_000, 2_000, 5_000, 10_000, 20_000] {
        let mut site = Site::new(count);
        let first = site.plan(None).cluster.unwrap();
        assert_eq!(first.nodes.len(), 5 + count * 9 / 10);
        let initialization = timed(15, || site.plan(None));
        assert_eq!(site.plan(Some(&first)).action, Action::None);
        let quiet = timed(15, || site.plan(Some(&first)));
        let failed_address = first.nodes[2].address.clone();
        site.machines.iter_mut().find(|m| m.address == failed_address).unwrap().state = State::Unreachable;
        assert_eq!(site.plan(Some(&first)).action, Action::ReplaceControlPlane);
        let change = timed(15, || site.plan(Some(&first)));
        println!(
            "{{\"figure\": \"generate\", \"machines\": {count}, \"racks\": {}, \"initialization_ms\": {:.1}, \
             \"initialization_max_ms\": {:.1}, \"quiet_ms\": {:.1}, \"quiet_max_ms\": {:.1}, \"change_ms\": {:.1}, \
             \"change_max_ms\": {:.1}}}",
            count / 20,
            initialization.0,
            initialization.1,
            quiet.0,
            quiet.1,
            change.0,
            change.1
        );
    }
}
