//! Generation of a definition from 1,000 to 20,000 machines, 20 to a rack: initialization and one maintenance pass.
//!
//! `cargo bench --bench generate` prints a table: milliseconds as median and longest. With a file as its argument it also
//! writes the table between the file's marks. It fails if a median at the largest size is over its budget, multiplied by
//! the slowness of the machine ([`slowness`]).
#![allow(clippy::unwrap_used, missing_docs)]

mod marks;
mod slowness;

use std::{collections::BTreeSet, fmt::Write as _, time::Instant};

use cketerm_model::{boot_time::Seconds, cluster::Cluster, constraints::Constraints, names::Address, policy::Strategy};
use cketerm_sabakan::{Action, Input, Machine, Plan, State, Template, machine::Date, plan};
use jiff::{SignedDuration, Timestamp};

/// Same allocator as the program's.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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

const SIZES: [usize; 5] = [1_000, 2_000, 5_000, 10_000, 20_000];
/// Budgets in milliseconds on the reference machine, for the largest size.
const FIRST_MS: f64 = 90.0;
const QUIET_MS: f64 = 12.0;

fn main() {
    let mut table = format!(
        "| machines | first definition (≤ {FIRST_MS} ms) | a plan that changes nothing (≤ {QUIET_MS} ms) | a control plane is replaced |\n\
         | --- | --- | --- | --- |\n"
    );
    let mut missed = Vec::new();
    for count in SIZES {
        let mut site = Site::new(count);
        let definition = site.plan(None).cluster.unwrap();
        assert_eq!(definition.nodes.len(), 5 + count * 9 / 10);
        let before = slowness::now();
        let first = timed(15, || site.plan(None));
        assert_eq!(site.plan(Some(&definition)).action, Action::None);
        let quiet = timed(15, || site.plan(Some(&definition)));
        let slowness = f64::midpoint(before, slowness::now());
        let failed_address = definition.nodes[2].address.clone();
        site.machines.iter_mut().find(|m| m.address == failed_address).unwrap().state = State::Unreachable;
        assert_eq!(site.plan(Some(&definition)).action, Action::ReplaceControlPlane);
        let change = timed(15, || site.plan(Some(&definition)));
        let cell = |(median, longest): (f64, f64)| format!("{median:.1} ms (longest {longest:.1})");
        writeln!(table, "| {count} | {} | {} | {} |", cell(first), cell(quiet), cell(change)).unwrap();
        if count == SIZES[SIZES.len() - 1] {
            writeln!(table, "\nSlowness of the machine at {count} machines: {slowness:.2}.").unwrap();
            for (figure, median, budget) in [("first definition", first.0, FIRST_MS), ("no change", quiet.0, QUIET_MS)]
            {
                if median > budget * slowness {
                    missed.push(figure);
                }
            }
        }
    }
    print!("{table}");
    marks::write("generate", &table);
    for figure in &missed {
        eprintln!("over the budget at {} machines: {figure}", SIZES[SIZES.len() - 1]);
    }
    std::process::exit(i32::from(!missed.is_empty()));
}
