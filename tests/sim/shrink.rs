//! Shrinks a failing seed: leaves out faults, actions and queued machines by halves, as long as the same invariant is
//! broken.

use std::collections::BTreeSet;

use crate::{run, selection::Selection};

/// Result of shrinking.
pub struct Shrunk {
    #[cfg_attr(not(feature = "mutations"), expect(dead_code, reason = "only the search for mutations reads it"))]
    pub code: &'static str,
    /// Number of names before.
    pub of: usize,
    /// Names that are left.
    pub names: Vec<String>,
    pub replays: u32,
    /// Trace and breaches of the shrunk scenario.
    pub report: String,
}

impl Shrunk {
    /// Line that plays it again.
    pub fn line(&self, seed: u64) -> String {
        format!("SEEDS=1 SEED_FROM={seed} ONLY={} make sim", self.names.join(","))
    }
}

/// Shrinks a seed in which `code` was broken, with at most this many replays. None if it is not broken again.
pub fn shrink(seed: u64, code: &'static str, max_replays: u32) -> Option<Shrunk> {
    let mut replays = 0;
    let mut replay = |names: &[String]| {
        replays += 1;
        let outcome = run::seed_with(seed, &Selection::only(names));
        let found = outcome.breaches.iter().any(|b| b.code == code);
        found.then(|| (outcome.met.clone(), outcome.report()))
    };
    let all = {
        let selection = Selection::all();
        let outcome = run::seed_with(seed, &selection);
        if !outcome.breaches.iter().any(|b| b.code == code) {
            return None;
        }
        outcome.met
    };
    let of = all.len();
    let (mut remaining, mut report) = (all, String::new());
    let mut parts = 2;
    let mut used = 0;
    while remaining.len() > 1 && used < max_replays {
        let size = remaining.len().div_ceil(parts);
        let mut shorter = None;
        for part in remaining.chunks(size) {
            if used >= max_replays {
                break;
            }
            used += 1;
            let without: BTreeSet<&String> = part.iter().collect();
            let rest: Vec<String> = remaining.iter().filter(|n| !without.contains(n)).cloned().collect();
            if let Some(found) = replay(&rest) {
                shorter = Some(found);
                break;
            }
        }
        match shorter {
            // a part that no longer occurs in the shorter scenario is not needed either
            Some((met, text)) => {
                (remaining, report) = (met, text);
                parts = parts.saturating_sub(1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(remaining.len()),
        }
    }
    Some(Shrunk { code, of, names: remaining, replays, report })
}
