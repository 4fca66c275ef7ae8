//! Bars and gauges: lengths of a progress, slots in use. Block elements where the terminal has them, else ASCII. Each
//! part has its own sign, so that a bar reads without colours.

use ratatui::{style::Style, text::Span};

/// Sign of a part of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// It is done: `█`, `#`.
    Done,
    /// It is in work, or beyond the usual: `▓`, `=`.
    Work,
    /// It is still to come: `░`, `-`.
    Rest,
    /// It was cancelled, and nothing comes: `x`.
    Withdrawn,
}

impl Fill {
    /// Returns the sign of one column.
    pub fn symbol(self, blocks: bool) -> &'static str {
        match (self, blocks) {
            (Self::Done, true) => "\u{2588}",
            (Self::Work, true) => "\u{2593}",
            (Self::Rest, true) => "\u{2591}",
            (Self::Withdrawn, _) => "x",
            (Self::Done, false) => "#",
            (Self::Work, false) => "=",
            (Self::Rest, false) => "-",
        }
    }
}

/// Part of a bar.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its share, in any unit.
    pub amount: usize,
    /// Its sign.
    pub fill: Fill,
    /// Its colour.
    pub style: Style,
}

/// Returns a bar of `width` columns with parts in proportion. A part that is not zero has at least one column while
/// there is room, so that neither the first nor the last machine of hundreds is invisible.
pub fn bar(parts: &[Part], width: usize, blocks: bool) -> Vec<Span<'static>> {
    let amounts: Vec<usize> = parts.iter().map(|part| part.amount).collect();
    let widths = widths(&amounts, width);
    let drawn = parts.iter().zip(widths).filter(|(_, width)| *width > 0);
    drawn.map(|(part, width)| Span::styled(part.fill.symbol(blocks).repeat(width), part.style)).collect()
}

/// Returns a small bar such as `██████░░`: `done` of `all` in `width` columns. It is full only if all is done.
pub fn done_of(done: usize, all: usize, width: usize, style: Style, rest: Style, blocks: bool) -> Vec<Span<'static>> {
    let all = all.max(done);
    let parts =
        [Part { amount: done, fill: Fill::Done, style }, Part { amount: all - done, fill: Fill::Rest, style: rest }];
    bar(&parts, width, blocks)
}

/// Returns a bar for elapsed time against the usual one: `████░░░░` within it, `██████▓▓` beyond it. Times in seconds.
pub fn elapsed_of(
    elapsed: u64,
    usual: u64,
    width: usize,
    style: Style,
    late: Style,
    blocks: bool,
) -> Vec<Span<'static>> {
    let seconds = |n: u64| usize::try_from(n).unwrap_or(usize::MAX / 4);
    let (elapsed, usual) = (seconds(elapsed), seconds(usual.max(1)));
    let parts = [
        Part { amount: elapsed.min(usual), fill: Fill::Done, style },
        Part { amount: elapsed.saturating_sub(usual), fill: Fill::Work, style: late },
        Part { amount: usual.saturating_sub(elapsed), fill: Fill::Rest, style },
    ];
    bar(&parts, width, blocks)
}

/// Most slots that are drawn one by one.
const MAX_SLOTS: usize = 16;

/// Returns the slots in use: `▮▮▮▯ 3/4`, or only the numbers if there are too many.
pub fn slots(used: usize, all: usize, style: Style, blocks: bool) -> Vec<Span<'static>> {
    let numbers = Span::styled(format!("{used}/{all}"), style);
    if all > MAX_SLOTS || used > all {
        return vec![numbers];
    }
    let (full, empty) = if blocks { ("\u{25ae}", "\u{25af}") } else { ("#", "-") };
    let mut spans = vec![Span::styled(full.repeat(used), style), Span::raw(empty.repeat(all - used)), Span::raw(" ")];
    spans.retain(|span| !span.content.is_empty());
    spans.push(numbers);
    spans
}

/// Divides `width` columns in proportion to the amounts: one column for each that is not zero, the rest by the largest
/// remainder.
fn widths(amounts: &[usize], width: usize) -> Vec<usize> {
    let total: u128 = amounts.iter().map(|n| *n as u128).sum();
    let mut widths = vec![0; amounts.len()];
    if total == 0 {
        return widths;
    }
    let mut left = width;
    for (drawn, amount) in widths.iter_mut().zip(amounts) {
        if *amount > 0 && left > 0 {
            (*drawn, left) = (1, left - 1);
        }
    }
    // the share of each part beyond what it has, largest first, one column at a time
    let share = |drawn: usize, amount: usize| (amount as u128 * width as u128).saturating_sub(drawn as u128 * total);
    let whole: Vec<usize> = amounts
        .iter()
        .zip(&widths)
        .map(|(amount, drawn)| usize::try_from(share(*drawn, *amount) / total).unwrap_or(0))
        .collect();
    for (drawn, more) in widths.iter_mut().zip(whole) {
        let more = more.min(left);
        *drawn += more;
        left -= more;
    }
    while left > 0 {
        let rest = |at: &usize| share(widths.get(*at).copied().unwrap_or(0), amounts.get(*at).copied().unwrap_or(0));
        let Some(next) = (0..amounts.len()).filter(|at| rest(at) > 0).max_by_key(rest) else { break };
        if let Some(drawn) = widths.get_mut(next) {
            *drawn += 1;
        }
        left -= 1;
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(spans: &[Span]) -> String {
        spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn a_bar_fills_its_width_in_proportion_and_shows_every_part() {
        for (amounts, expected) in [
            (vec![34, 4, 22], vec![17, 2, 11]),
            (vec![1, 0, 9999], vec![1, 0, 29]),
            (vec![9999, 1, 1], vec![28, 1, 1]),
            (vec![0, 0, 0], vec![0, 0, 0]),
            (vec![5], vec![30]),
            (vec![1, 1, 1, 1], vec![8, 8, 7, 7]),
        ] {
            let mut found = widths(&amounts, 30);
            assert_eq!(found.iter().sum::<usize>(), if amounts.iter().sum::<usize>() == 0 { 0 } else { 30 });
            if amounts == [1, 1, 1, 1] {
                found.sort_by_key(|n| std::cmp::Reverse(*n));
            }
            assert_eq!(found, expected, "{amounts:?}");
        }
        assert_eq!(widths(&[1, 1, 1], 2), [1, 1, 0], "too narrow for all");
        assert_eq!(widths(&[usize::MAX, usize::MAX], 10), [5, 5]);
    }

    #[test]
    fn bars_have_a_sign_for_each_part_in_blocks_and_in_ascii() {
        let plain = Style::new();
        assert_eq!(text(&done_of(6, 8, 8, plain, plain, true)), "██████░░");
        assert_eq!(text(&done_of(6, 8, 8, plain, plain, false)), "######--");
        assert_eq!(text(&done_of(799, 800, 8, plain, plain, false)), "#######-", "not full before the end");
        assert_eq!(text(&elapsed_of(50, 40, 10, plain, plain, true)), "████████▓▓");
        assert_eq!(text(&elapsed_of(10, 40, 8, plain, plain, false)), "##------");
    }

    #[test]
    fn slots_are_drawn_one_by_one_until_they_are_too_many() {
        assert_eq!(text(&slots(3, 4, Style::new(), true)), "▮▮▮▯ 3/4");
        assert_eq!(text(&slots(4, 4, Style::new(), false)), "#### 4/4");
        assert_eq!(text(&slots(0, 2, Style::new(), false)), "-- 0/2");
        assert_eq!(text(&slots(12, 40, Style::new(), true)), "12/40");
        assert_eq!(text(&slots(5, 4, Style::new(), true)), "5/4", "an engine may lower the limit meanwhile");
    }
}
