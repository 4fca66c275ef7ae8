//! The speed of the machine, by which the benchmarks multiply their budgets of times.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

/// Returns the slowness of this machine now: its time for fixed work in relation to the reference machine's, from 1 to 2.
/// `machine_speed.py` measures it.
pub fn now() -> f64 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/figures/machine_speed.py");
    let output = Command::new("python3").arg(script).output().expect("python3 runs");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().expect("the script prints a number")
}
