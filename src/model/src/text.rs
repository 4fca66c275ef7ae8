//! Text from outside, made safe to show (CLI-4).

use unicode_width::UnicodeWidthChar;

/// Maximum number of accents on one letter.
const MAX_COMBINING_MARKS: usize = 4;

/// Replaces control characters (escape sequences, NUL, carriage returns …) by visible ones, so that a pod's name or a
/// command's output never controls a terminal. Newlines stay if `lines` is true; tabs become a space.
pub fn visible(text: &str, lines: bool) -> String {
    // The usual case.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut marks = 0;
    for c in text.chars() {
        match c {
            '\n' if lines => out.push('\n'),
            '\t' => out.push(' '),
            // C0: the control pictures.
            '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('?')),
            '\u{7f}' => out.push('\u{2421}'),
            c if unseen(c) => out.push('\u{fffd}'),
            // A mark on the letter before it: no name has more than a few of them.
            c if !c.is_ascii() && c.width() == Some(0) => {
                marks += 1;
                if marks <= MAX_COMBINING_MARKS {
                    out.push(c);
                }
                continue;
            }
            c => out.push(c),
        }
        marks = 0;
    }
    out
}

/// Reports whether the character is invisible: C1, bidirectional overrides, zero-width joiners, variation selectors,
/// tags. Readers do not see these, and many terminals obey them.
pub fn unseen(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Reports whether a document for machines (JSON, YAML) must escape the character: control characters except line feed
/// and tab, and all [`unseen`] ones.
pub fn steers(c: char) -> bool {
    unseen(c) || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// Returns the last `limit` bytes of output as text, cut at a character, with control characters made visible.
pub fn tail(bytes: &[u8], limit: usize) -> String {
    let from = bytes.len().saturating_sub(limit);
    let start = (from..bytes.len()).find(|&i| bytes[i] & 0xc0 != 0x80).unwrap_or(bytes.len());
    visible(&String::from_utf8_lossy(&bytes[start..]), true)
}

/// Returns the name among `known` that was probably meant: at most a third of its letters differ.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let scored = known.into_iter().map(|k| (distance(&name, &k.to_lowercase()), k));
    scored.filter(|(d, k)| *d <= k.chars().count().max(3) / 3).min_by_key(|(d, _)| *d).map(|(_, k)| k)
}

/// Returns the number of letters to insert, delete, replace or swap (Levenshtein with swapped neighbours).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_returns_the_closest_known_name() {
        let known = ["reboot_command", "boot_check_command", "command_retries"];
        assert_eq!(nearest("reboot_comand", known), Some("reboot_command"));
        assert_eq!(nearest("Command_Retires", known), Some("command_retries"));
        assert_eq!(nearest("colour", known), None);
    }

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(visible("a\u{1b}[2Jb\r\n", false), "a␛[2Jb␍␊");
        assert!(!visible("x\u{202e}y", true).contains('\u{202e}'));
    }

    #[test]
    fn accents_are_kept_but_stacked_ones_are_cut() {
        assert_eq!(visible("e\u{301}a\u{308}\u{304}", false), "e\u{301}a\u{308}\u{304}");
        let stacked = format!("e{}x{}", "\u{301}".repeat(5000), "\u{301}".repeat(3));
        assert_eq!(visible(&stacked, false).chars().count(), 2 + MAX_COMBINING_MARKS + 3);
        assert_eq!(visible("a\u{fe0f}b\u{e0041}", false), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn a_tail_starts_at_a_character_boundary() {
        assert_eq!(tail("ééé".as_bytes(), 3), "é");
        assert_eq!(tail(b"abc", 10), "abc");
    }
}
