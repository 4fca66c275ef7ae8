//! One pass over 10,000 entries and 5,000 nodes: the time of `decide` alone. Also asserts that it makes no request.
//!
//! `cargo bench --bench pass` prints one JSON line: microseconds as median, 99th percentile and maximum of 300 passes.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod scene;

use std::time::Instant;

use cketerm_rules::decide::decide;

const NODES: u64 = 5_000;
const ENTRIES: u64 = 10_000;
const PASSES: usize = 300;

fn main() {
    let (snap, now) = (scene::snapshot(NODES, ENTRIES), scene::now());
    let first = decide(&snap, now);
    assert_eq!(first.effects.len(), scene::SLOTS as usize, "the front of the queue starts");
    assert_eq!(first.reasons.len() as u64, ENTRIES, "every entry has a reason");
    let mut times: Vec<u128> = (0..PASSES)
        .map(|_| {
            let began = Instant::now();
            std::hint::black_box(decide(std::hint::black_box(&snap), now));
            began.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{{\"figure\": \"pass\", \"entries\": {ENTRIES}, \"nodes\": {NODES}, \"median_us\": {}, \"p99_us\": {}, \"max_us\": {}}}",
        at(50),
        at(99),
        at(100)
    );
}
