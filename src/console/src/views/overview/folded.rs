//! Lines whose text goes on in a second line where their panel has room for it; else it is cut.

use ratatui::{style::Style, text::Span};
use unicode_width::UnicodeWidthStr;

use super::{PanelLine, cut_words, text};
use crate::{state::short_text::Forms, table::wrap};

/// Most lines that go on with one text.
const MAX_MORE: usize = 2;

/// A line, whole or cut.
pub(super) struct Folded {
    /// The line with its text cut.
    cut: PanelLine,
    /// The line with the beginning of its text, if the rest has its own lines.
    first: PanelLine,
    /// The lines with the rest. Empty if the text is whole, or if there is no room.
    pub(super) more: Vec<PanelLine>,
}

impl Folded {
    /// Creates a line in which a text gets `room` columns: all of it in several lines, or the form that fits. The rest
    /// begins at a column of a panel of some width: `place` has both. `line` draws the line with a part of the text.
    pub(super) fn new(
        forms: &Forms,
        room: usize,
        place: (usize, usize),
        style: Style,
        line: impl Fn(&str) -> PanelLine,
    ) -> Self {
        Self::with_end(forms, "", room, place, style, line)
    }

    /// Same as [`Self::new`] for a text with an end that is never cut, and never inside the text.
    pub(super) fn with_end(
        forms: &Forms,
        end: &str,
        room: usize,
        place: (usize, usize),
        style: Style,
        line: impl Fn(&str) -> PanelLine,
    ) -> Self {
        let room = room.saturating_sub(end.width());
        let whole = forms.whole.as_str();
        if whole.width() <= room {
            return Self { cut: line(&format!("{whole}{end}")), first: Vec::new(), more: Vec::new() };
        }
        let (indent, width) = place;
        let begin = wrap(whole, room).into_iter().next().filter(|begin| begin.width() <= room).unwrap_or_default();
        let rest = whole.strip_prefix(begin.as_str()).unwrap_or_default().trim_start();
        let rest_width = width.saturating_sub(indent + end.width());
        let mut rest = wrap(rest, rest_width);
        let is_cut = rest.len() > MAX_MORE;
        rest.truncate(MAX_MORE);
        if let Some(last) = rest.last_mut() {
            if is_cut {
                crate::table::mark_cut(last, rest_width);
            }
            last.push_str(end);
        }
        let more = rest.into_iter().map(|rest| vec![Span::raw(" ".repeat(indent)), text(rest, style)]).collect();
        let cut = cut_words(forms.within(room).to_owned(), room);
        Self { cut: line(&format!("{cut}{end}")), first: line(&begin), more }
    }

    /// Returns its lines.
    pub(super) fn into_lines(self) -> Vec<PanelLine> {
        if self.more.is_empty() { vec![self.cut] } else { std::iter::once(self.first).chain(self.more).collect() }
    }
}

/// Returns the lines that fit into a height: the first ones go on where there is room, the others are cut.
pub(super) fn within(mut all: Vec<Folded>, height: usize) -> Vec<Folded> {
    all.truncate(height);
    let mut room = height.saturating_sub(all.len());
    for folded in &mut all {
        if folded.more.len() > room {
            folded.more.clear();
        }
        room -= folded.more.len();
    }
    all
}

/// Returns a line of several styles in as many lines of this width as it takes. All but the first begin with so many
/// spaces.
pub(super) fn spans(line: &PanelLine, width: usize, indent: usize) -> Vec<PanelLine> {
    let mut lines: Vec<PanelLine> = vec![Vec::new()];
    let mut used = 0;
    for span in line {
        for word in span.content.split_inclusive(' ') {
            if used + word.trim_end().width() > width && used > indent {
                // a space at the end of a full line would count as cut
                if let Some(last) = lines.last_mut().and_then(|line| line.last_mut()) {
                    last.content = last.content.trim_end().to_owned().into();
                }
                lines.push(vec![Span::raw(" ".repeat(indent))]);
                used = indent;
            }
            used += word.width();
            if let Some(line) = lines.last_mut() {
                line.push(Span::styled(word.to_owned(), span.style));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of further reasons stood in the middle of a sentence that went on in the next line.
    #[test]
    fn the_end_of_a_text_follows_its_last_line() {
        let lines = |text: &str, is_cut: bool| -> Vec<String> {
            let forms = Forms::only(text.to_owned());
            let draw = |part: &str| vec![Span::raw(part.to_owned())];
            let mut folded = Folded::with_end(&forms, " +1", 20, (2, 40), Style::new(), draw);
            if is_cut {
                folded.more.clear();
            }
            let joined = |line: PanelLine| line.iter().map(|span| span.content.as_ref()).collect::<String>();
            folded.into_lines().into_iter().map(joined).collect()
        };
        let long = "a text that goes on in a second line";
        assert_eq!(lines(long, false), ["a text that goes", "  on in a second line +1"]);
        assert_eq!(lines(long, true), ["a text that goes~ +1"]);
        assert_eq!(lines("a short text", false), ["a short text +1"]);
    }
}
