//! Cost of the hot paths, counted and not timed: allocations, and instructions where valgrind is installed. The figures
//! are compared with the table in `docs/performance.md`, with a little slack, and with the permitted growth in larger
//! clusters. This is a program of its own, because the counting allocator applies to a whole program.
//!
//! `UPDATE_DOCS=1 cargo test --test cost` rewrites the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod cases;
#[path = "../figures/scene.rs"]
mod scene;
mod table;

use std::{fs, hint::black_box, process::Command};

use cketerm_rules::seen::Seen;

use self::{
    cases::{CASES, Case},
    table::{Budget, Figures},
};

/// Compared sizes in nodes. The number of entries is twice as large.
const SIZES: [u64; 2] = [500, 5_000];
/// Calls before counting, until everything that is kept has been allocated.
const WARM_UP_CALLS: usize = 3;

/// Repeats the action until its cost is stable.
fn warmed_up(case: &Case, scene: &Seen) -> Box<dyn FnMut()> {
    let mut work = (case.prepare)(scene);
    for _ in 0..WARM_UP_CALLS {
        work();
    }
    work
}

fn scenes() -> [Seen; 2] {
    SIZES.map(|nodes| scene::seen(nodes, 2 * nodes))
}

fn allocations() -> Vec<Figures> {
    let scenes = scenes();
    let count = |case: &Case, scene| allocation_counter::measure(warmed_up(case, scene)).count_total;
    CASES.iter().map(|case| scenes.each_ref().map(|scene| count(case, scene))).collect()
}

/// Function in which valgrind counts; it counts nothing outside.
#[inline(never)]
fn counted_by_callgrind(work: &mut dyn FnMut()) {
    black_box(work)();
}

#[test]
#[ignore = "run by the test below, in valgrind"]
fn every_case_once() {
    let scenes = scenes();
    for case in &CASES {
        for scene in &scenes {
            counted_by_callgrind(&mut warmed_up(case, scene));
        }
    }
}

/// Thousands of instructions of each case; `None` without valgrind.
fn instructions() -> Option<Vec<Figures>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIP: valgrind is not installed (apt-get install valgrind): INSTRUCTIONS ARE NOT COUNTED");
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let of = |option: &str| format!("--{option}=cost::counted_by_callgrind");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", &of("toggle-collect"), &of("dump-after")])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", "every_case_once", "--ignored", "--test-threads", "1"])
        .output()
        .expect("valgrind runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    // one file for each return from the function: out.1, out.2, …, and some empty ones
    let texts = (1..).map_while(|n| fs::read_to_string(folder.path().join(format!("out.{n}"))).ok());
    let totals =
        texts.filter_map(|text| text.lines().find_map(|l| l.strip_prefix("totals:")?.trim().parse::<u64>().ok()));
    let totals: Vec<u64> = totals.filter(|n| *n > 0).map(|n| n / 1000).collect();
    assert_eq!(
        totals.len(),
        CASES.len() * SIZES.len(),
        "valgrind reports one total for each case and size: {totals:?}"
    );
    Some(totals.chunks(SIZES.len()).map(|pair| [pair[0], pair[1]]).collect())
}

#[test]
fn every_case_stays_within_its_budget_and_growth_limit() {
    let (allocations, instructions) = (allocations(), instructions());
    for (i, case) in CASES.iter().enumerate() {
        println!("{}: {:?} {:?}", case.name, allocations[i], instructions.as_ref().map(|all| all[i]));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let instructions = instructions.expect("an update needs valgrind");
        table::write(&CASES, &allocations, &instructions);
        return;
    }
    let mut failures = Vec::new();
    for (i, case) in CASES.iter().enumerate() {
        let budget = Budget::of(case.name);
        failures.extend(budget.allocations.excess("allocations", allocations[i], case.max_allocation_growth));
        // budgets are for the build of `cargo test`; the permitted growth applies to every build
        if let Some(all) = &instructions {
            let most = if cfg!(debug_assertions) { budget.instructions } else { table::Limits::ANY };
            failures.extend(most.excess("thousand instructions", all[i], case.max_instruction_growth));
        }
        failures.iter_mut().filter(|w| !w.contains(": ")).for_each(|w| *w = format!("{}: {w}", case.name));
    }
    assert!(failures.is_empty(), "{}\nIf intended: UPDATE_DOCS=1 cargo test --test cost", failures.join("\n"));
}
