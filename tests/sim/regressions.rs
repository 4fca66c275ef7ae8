//! Stories that once broke an invariant, played again before anything else: the file `regressions`, a line each.
//!
//! `I14 seed 92 only f3,p1.5,p1.5a: what it was`; without `only` the whole seed. A seed is a story only for as long as its
//! plan is drawn in the same way: what must never come back has a test of its own beside its code, too.

use crate::{keep::Keep, run};

const FILE: &str = include_str!("regressions");

/// Plays all; whether no invariant was broken.
pub fn play() -> bool {
    let mut well = true;
    let mut played = 0;
    for line in FILE.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        let (plan, _) = line.split_once(": ").unwrap_or((line, ""));
        let mut words = plan.split_whitespace().skip_while(|w| *w != "seed").skip(1);
        let seed = words.next().and_then(|w| w.parse().ok()).expect("a seed");
        let keep = words.nth(1).map_or_else(Keep::all, Keep::parse);
        let outcome = run::seed_with(seed, &keep);
        played += 1;
        if !outcome.breaches.is_empty() {
            println!("again broken: {line}");
            print!("{}", outcome.report());
            well = false;
        }
    }
    println!("regressions {played} played");
    well
}
