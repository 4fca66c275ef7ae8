//! Charts for people: the phases of an entry as lengths, numbers over time as heights. ASCII letters and signs, which
//! every font has, unless the terminal has block characters.

use cketerm_model::attempt::Attempt;
use jiff::{SignedDuration, Timestamp};

use crate::state::when;

/// A phase of an entry. It lasts until the next one starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Start of the phase.
    pub from: Timestamp,
    /// Its letter in the bar. The map of the racks uses the same letter, if it has one.
    pub letter: char,
    /// Its name.
    pub label: &'static str,
}

/// Creates a phase.
pub fn phase(from: Timestamp, letter: char, label: &'static str) -> Phase {
    Phase { from, letter, label }
}

/// Returns the phases of attempts: each command, and the wait after it.
pub fn attempts<'a>(all: impl Iterator<Item = &'a Attempt>) -> Vec<Phase> {
    let each = all.filter(|a| a.began()).flat_map(|a| {
        let after = a.outcome.as_ref().map(|o| phase(o.at, 'w', "waiting for the machine"));
        std::iter::once(phase(a.start, 'c', "command")).chain(after)
    });
    each.collect()
}

/// Widest bar, in columns: a wider one shows no more.
const MAX_WIDTH: usize = 72;

/// Returns a bar of at most `width` columns, such as `[qqqqqqqqqqddddrr]`, and its legend, such as `q queued 11m  d
/// draining 3m  r rebooting 42s`. Empty if there are fewer than two phases.
pub fn phases(mut all: Vec<Phase>, end: Timestamp, width: usize) -> Vec<String> {
    all.sort_by_key(|phase| phase.from);
    all.dedup_by(|later, first| later.letter == first.letter);
    let room = width.min(MAX_WIDTH).saturating_sub(2);
    if !all.iter().any(|p| p.letter == 'd')
        && all.iter().any(|p| p.letter == 'c')
        && let Some(first) = all.first_mut().filter(|p| p.letter == 'q')
    {
        // The start of the drain is unknown.
        first.label = "before the command";
    }
    if all.len() < 2 || room < all.len() {
        return Vec::new();
    }
    let ends = all.iter().skip(1).map(|next| next.from).chain([end]);
    let spans: Vec<SignedDuration> =
        all.iter().zip(ends).map(|(p, end)| end.duration_since(p.from).max(SignedDuration::ZERO)).collect();
    let total: f64 = spans.iter().map(SignedDuration::as_secs_f64).sum::<f64>().max(1.0);
    // Every phase gets one column; the rest is divided by their lengths.
    let free = room - all.len();
    let mut bar = String::from("[");
    let (mut past, mut drawn) = (0.0, 0);
    for (phase, span) in all.iter().zip(&spans) {
        past += span.as_secs_f64();
        let filled_until = columns(past / total, free);
        bar.extend(std::iter::repeat_n(phase.letter, 1 + filled_until.saturating_sub(drawn)));
        drawn = filled_until;
    }
    bar.push(']');
    let mut totals: Vec<(char, &str, SignedDuration)> = Vec::new();
    for (phase, span) in all.iter().zip(spans) {
        match totals.iter_mut().find(|(letter, ..)| *letter == phase.letter) {
            Some((.., sum)) => *sum += span,
            None => totals.push((phase.letter, phase.label, span)),
        }
    }
    let totals = totals.iter().map(|(letter, label, sum)| format!("{letter} {label} {}", when::span(*sum)));
    vec![bar, totals.collect::<Vec<_>>().join("  ")]
}

// A share of a screen's width.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn columns(share: f64, of: usize) -> usize {
    ((share.clamp(0.0, 1.0) * of as f64).round() as usize).min(of)
}

/// Heights in ASCII: nothing, some, more, most.
const ASCII: [char; 4] = ['_', '.', ':', '|'];
/// Heights for UTF-8 terminals; the first one is nothing.
const BLOCKS: [char; 9] =
    ['_', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];

/// Draws numbers as heights, one column each. Any number above zero is visible.
pub fn sparkline(values: &[u64], blocks: bool) -> String {
    let symbols: &[char] = if blocks { &BLOCKS } else { &ASCII };
    let steps = u64::try_from(symbols.len() - 1).unwrap_or(1);
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let symbol_for = |value: &u64| {
        let height = (value * steps).div_ceil(most);
        symbols.get(usize::try_from(height).unwrap_or(0)).copied().unwrap_or('?')
    };
    values.iter().map(symbol_for).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::time::after;

    fn at(seconds: i64) -> Timestamp {
        after("2026-11-21T10:00:00Z".parse().unwrap(), seconds)
    }

    #[test]
    fn a_bar_shows_phases_in_proportion_and_each_has_at_least_one_column() {
        let all = vec![phase(at(0), 'q', "queued"), phase(at(600), 'd', "draining"), phase(at(899), 'r', "rebooting")];
        let lines = phases(all, at(900), 23);
        assert_eq!(lines, ["[qqqqqqqqqqqqqdddddddr]", "q queued 10m  d draining 4m  r rebooting 1s"]);
        assert!(lines[0].len() == 23);
        assert_eq!(phases(vec![phase(at(0), 'q', "queued")], at(9), 23), Vec::<String>::new(), "one phase, no bar");
    }

    #[test]
    fn repeated_phases_are_summed_and_a_clock_stepping_back_is_tolerated() {
        let all = vec![
            phase(at(0), 'c', "command"),
            phase(at(10), 'w', "waiting"),
            phase(at(60), 'c', "command"),
            phase(at(50), 'w', "waiting"),
        ];
        let lines = phases(all, at(40), 30);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), 30, "{lines:?}");
        assert!(lines[1].starts_with("c command 10s"), "{lines:?}");
    }

    #[test]
    fn sparklines_use_block_characters_or_ascii() {
        assert_eq!(sparkline(&[0, 1, 5, 9], false), "_.:|");
        assert_eq!(sparkline(&[0, 0], false), "__");
        assert_eq!(sparkline(&[0, 1, 8], true), "_\u{2581}\u{2588}");
        assert_eq!(sparkline(&[], false), "");
    }
}
