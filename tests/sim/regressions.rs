//! Scenarios that once broke an invariant, played before anything else: a line each in the file `regressions`.
//!
//! A line has the form `CODE seed N only NAMES: text`, such as `only f3,p1.5,p1.5a`; without `only` the whole seed is
//! played. A seed gives the same scenario only as long as its plan is drawn in the same way. So a defect that must
//! never come back also has a test of its own beside the code.

use crate::{run, selection::Selection};

const FILE: &str = include_str!("regressions");

/// Plays all, and reports whether every invariant held.
pub fn run_all() -> bool {
    let mut ok = true;
    let mut played = 0;
    for line in FILE.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        let (plan, _) = line.split_once(": ").unwrap_or((line, ""));
        let mut words = plan.split_whitespace().skip_while(|w| *w != "seed").skip(1);
        let seed = words.next().and_then(|w| w.parse().ok()).expect("the line names a seed");
        let selection = words.nth(1).map_or_else(Selection::all, Selection::parse);
        let outcome = run::seed_with(seed, &selection);
        played += 1;
        if !outcome.breaches.is_empty() {
            println!("broken again: {line}");
            print!("{}", outcome.report());
            ok = false;
        }
    }
    println!("regressions {played} played");
    ok
}
