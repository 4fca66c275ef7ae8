//! Charts for people: the phases of an entry as lengths, numbers over time as heights. ASCII letters and signs, which
//! every font has, unless the terminal has block characters.

use cketerm_model::attempt::Attempt;
use jiff::{SignedDuration, Timestamp};

use ratatui::{
    style::Modifier,
    text::{Line, Span},
};

use crate::{
    state::when,
    theme::{Severity, Theme},
};

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

/// Returns the severity of a phase, which decides its colour.
fn severity(letter: char) -> Severity {
    match letter {
        'd' => Severity::Draining,
        'c' | 'w' => Severity::Rebooting,
        'b' => Severity::Slow,
        _ => Severity::Waiting,
    }
}

/// Returns a bar of at most `width` columns, such as `[ddddcwwww]`, and its legend, such as `queued 11m, then  d
/// draining 3m  c command 2s`. Time in the queue has no place in the bar: beside it nothing else would be visible.
/// With `blocks`, each phase is a coloured block that begins with its letter. Empty if there are fewer than two phases.
pub fn phases(
    mut all: Vec<Phase>,
    end: Timestamp,
    width: usize,
    (theme, blocks): (&Theme, bool),
) -> Vec<Line<'static>> {
    all.sort_by_key(|phase| phase.from);
    all.dedup_by(|later, first| later.letter == first.letter);
    let queued = all.first().filter(|phase| phase.letter == 'q').cloned();
    let work: Vec<&Phase> = all.iter().filter(|phase| phase.letter != 'q').collect();
    let room = width.min(MAX_WIDTH).saturating_sub(2);
    if work.len() < 2 || room < work.len() {
        return Vec::new();
    }
    let ends = work.iter().skip(1).map(|next| next.from).chain([end]);
    let spans: Vec<SignedDuration> =
        work.iter().zip(ends).map(|(p, end)| end.duration_since(p.from).max(SignedDuration::ZERO)).collect();
    let total: f64 = spans.iter().map(SignedDuration::as_secs_f64).sum::<f64>().max(1.0);
    // Every phase gets one column; the rest is divided by their lengths.
    let free = room - work.len();
    let mut bar = vec![Span::raw(if blocks { " " } else { "[" })];
    let (mut past, mut drawn) = (0.0, 0);
    for (phase, span) in work.iter().zip(&spans) {
        past += span.as_secs_f64();
        let filled_until = columns(past / total, free);
        let more = filled_until.saturating_sub(drawn);
        drawn = filled_until;
        let style = theme.shape(severity(phase.letter));
        if blocks {
            bar.push(Span::styled(phase.letter.to_string(), style.add_modifier(Modifier::REVERSED)));
            bar.push(Span::styled("\u{2588}".repeat(more), style));
        } else {
            bar.push(Span::styled(phase.letter.to_string().repeat(1 + more), style));
        }
    }
    bar.extend((!blocks).then(|| Span::raw("]")));
    vec![Line::from(bar), legend(queued.as_ref(), &work, spans, theme)]
}

/// Returns the time in the queue, and the sum of each phase.
fn legend(queued: Option<&Phase>, work: &[&Phase], spans: Vec<SignedDuration>, theme: &Theme) -> Line<'static> {
    let mut totals: Vec<(char, &str, SignedDuration)> = Vec::new();
    for (phase, span) in work.iter().zip(spans) {
        match totals.iter_mut().find(|(letter, ..)| *letter == phase.letter) {
            Some((.., sum)) => *sum += span,
            None => totals.push((phase.letter, phase.label, span)),
        }
    }
    // Without a known start of the drain, that drain counts as time before the command.
    let drained = work.iter().any(|phase| phase.letter == 'd');
    let before = if drained { "queued" } else { "before the command" };
    let waited = queued.zip(work.first()).map(|(queued, first)| when::age(queued.from, first.from));
    let waited = waited.map(|waited| Span::styled(format!(" {before} {waited}, then  "), theme.muted));
    let mut line = vec![waited.unwrap_or_else(|| Span::raw(" "))];
    for (letter, label, sum) in totals {
        line.push(Span::styled(letter.to_string(), theme.severity(severity(letter))));
        line.push(Span::raw(format!(" {label} {}  ", when::span(sum))));
    }
    Line::from(line)
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

/// Draws numbers as heights over several lines, `wide` columns each: the top line first. Any number above zero is visible.
pub fn chart(values: &[u64], wide: usize, lines: usize, blocks: bool) -> Vec<String> {
    let symbols: &[char] = if blocks { &BLOCKS } else { &ASCII };
    let steps = u64::try_from(symbols.len() - 1).unwrap_or(1);
    let height = steps.saturating_mul(u64::try_from(lines).unwrap_or(1));
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let line = |from_top: usize| {
        let below = steps.saturating_mul(u64::try_from(lines - 1 - from_top).unwrap_or(0));
        let symbol = |value: &u64| {
            let filled = value.saturating_mul(height).div_ceil(most).saturating_sub(below).min(steps);
            // the lowest line shows the hours without any, so that the axis is visible
            let symbol = symbols.get(usize::try_from(filled).unwrap_or(0)).copied().unwrap_or('?');
            let symbol = if filled == 0 && below > 0 { ' ' } else { symbol };
            std::iter::repeat_n(symbol, wide).collect::<String>()
        };
        values.iter().map(symbol).collect()
    };
    (0..lines).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cketerm_model::time::after;

    fn at(seconds: i64) -> Timestamp {
        after("2026-11-21T10:00:00Z".parse().unwrap(), seconds)
    }

    fn drawn(all: Vec<Phase>, end: Timestamp, width: usize, blocks: bool) -> Vec<String> {
        let theme = Theme::named("terminal", true).unwrap();
        phases(all, end, width, (&theme, blocks)).iter().map(|line| line.to_string().trim().to_owned()).collect()
    }

    #[test]
    fn a_bar_shows_phases_in_proportion_without_the_time_in_the_queue() {
        let all = || {
            vec![
                phase(at(0), 'q', "queued"),
                phase(at(600), 'd', "draining"),
                phase(at(800), 'c', "command"),
                phase(at(899), 'w', "waiting for the machine"),
            ]
        };
        let legend = "queued 10m, then  d draining 3m  c command 1m  w waiting for the machine 1s";
        assert_eq!(drawn(all(), at(900), 23, false), ["[dddddddddddddcccccccw]", legend]);
        let blocks = drawn(all(), at(900), 23, true);
        assert_eq!(blocks[0].replace('\u{2588}', "-"), "d------------c------w");
        assert_eq!(blocks[1], legend);
        let one = vec![phase(at(0), 'q', "queued"), phase(at(9), 'd', "draining")];
        assert_eq!(drawn(one, at(19), 23, false), Vec::<String>::new(), "one phase, no bar");
    }

    #[test]
    fn a_phase_has_the_colour_of_its_severity() {
        let theme = Theme::named("dark", true).unwrap();
        let all = vec![phase(at(0), 'd', "draining"), phase(at(10), 'b', "backoff"), phase(at(20), 'c', "command")];
        let lines = phases(all, at(30), 40, (&theme, false));
        let styles: Vec<_> = lines[0].spans[1..4].iter().map(|span| span.style).collect();
        assert_eq!(styles, [theme.draining, theme.trouble, theme.rebooting]);
    }

    #[test]
    fn repeated_phases_are_summed_and_a_clock_stepping_back_is_tolerated() {
        let all = vec![
            phase(at(0), 'c', "command"),
            phase(at(10), 'w', "waiting"),
            phase(at(60), 'c', "command"),
            phase(at(50), 'w', "waiting"),
        ];
        let lines = drawn(all, at(40), 30, false);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), 30, "{lines:?}");
        assert!(lines[1].starts_with("c command 10s"), "{lines:?}");
    }

    #[test]
    fn a_chart_grows_over_its_lines() {
        assert_eq!(chart(&[0, 1, 8, 16], 1, 2, true), ["   \u{2588}", "_\u{2581}\u{2588}\u{2588}"]);
        assert_eq!(chart(&[0, 6], 2, 2, false), ["  ||", "__||"]);
    }

    #[test]
    fn sparklines_use_block_characters_or_ascii() {
        assert_eq!(sparkline(&[0, 1, 5, 9], false), "_.:|");
        assert_eq!(sparkline(&[0, 0], false), "__");
        assert_eq!(sparkline(&[0, 1, 8], true), "_\u{2581}\u{2588}");
        assert_eq!(sparkline(&[], false), "");
    }
}
