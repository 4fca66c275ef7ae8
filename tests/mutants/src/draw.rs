//! The draw: an order of all candidates by a commit's hash, and a share for each part of the workspace.

use std::collections::BTreeMap;

use crate::mutant::Mutant;

/// Returns all candidates in the order of their draw, numbered from 1.
///
/// Each prefix holds about the same share of every part and is spread evenly over the parts.
pub fn in_order(mut candidates: Vec<Mutant>, hash: &str) -> Vec<Mutant> {
    let start = digest(hash, 0);
    candidates.sort_by_cached_key(|mutant| (digest(&mutant.key(), start), mutant.key()));
    let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
    for mutant in &candidates {
        *sizes.entry(mutant.part()).or_default() += 1;
    }
    // the n-th of a part stands where an even spread puts it
    let mut numbers: BTreeMap<&str, u64> = BTreeMap::new();
    let mut placed: Vec<(u64, Mutant)> = Vec::with_capacity(candidates.len());
    for mutant in candidates {
        let number = numbers.entry(mutant.part()).or_default();
        let size = sizes.get(mutant.part()).copied().unwrap_or(1);
        let place = (2 * *number + 1) * 1_000_000 / size;
        *number += 1;
        placed.push((place, mutant));
    }
    placed.sort_by_key(|(place, _)| *place);
    let numbered = placed.into_iter().zip(1..).map(|((_, mutant), id)| Mutant { id, ..mutant });
    numbered.collect()
}

/// FNV-1a with the last steps of `SplitMix64`, so that equal ends of texts do not matter.
fn digest(text: &str, seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    let mut value =
        text.bytes().fold(start, |value, byte| (value ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::{Edit, Kind};

    fn candidate(file: &str, line: usize) -> Mutant {
        Mutant {
            id: 0,
            file: file.to_owned(),
            line,
            column: 1,
            kind: Kind::Literal,
            function: "f".to_owned(),
            original: "1".to_owned(),
            mutated: "2".to_owned(),
            nth: line,
            edit: Edit::Skip { range: 0..1 },
        }
    }

    fn candidates() -> Vec<Mutant> {
        let rules = (0..300).map(|line| candidate("src/rules/src/a.rs", line));
        rules.chain((0..100).map(|line| candidate("src/engine/src/b.rs", line))).collect()
    }

    #[test]
    fn the_same_hash_draws_the_same_mutants() {
        let (one, again, other) =
            (in_order(candidates(), "abc"), in_order(candidates(), "abc"), in_order(candidates(), "abd"));
        assert_eq!(one, again);
        assert_ne!(one, other);
        assert_eq!(one.iter().map(|m| m.id).collect::<Vec<_>>(), (1..=400).collect::<Vec<_>>());
    }

    #[test]
    fn a_prefix_has_the_share_of_every_part() {
        let drawn = in_order(candidates(), "abc");
        assert_eq!(drawn.iter().take(40).filter(|m| m.part() == "engine").count(), 10);
    }
}
