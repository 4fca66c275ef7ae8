//! Text from outside, made safe to show (DESIGN.md, The console; spec/safety.md, Commands).

/// Replaces control characters (escape sequences, NUL, carriage returns …) by what can be seen, so that a pod's
/// name or a command's output never steers a terminal. Newlines stay when `lines` says so; tabs become a space.
pub fn visible(text: &str, lines: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' if lines => out.push('\n'),
            '\t' => out.push(' '),
            // C0: the control pictures
            '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('?')),
            '\u{7f}' => out.push('\u{2421}'),
            // C1, bidirectional overrides, zero-width joiners: nothing that a reader could see
            '\u{80}'..='\u{9f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}' => {
                out.push('\u{fffd}');
            }
            c => out.push(c),
        }
    }
    out
}

/// The last `limit` bytes of output as text, cut at a character, control characters made visible.
pub fn tail(bytes: &[u8], limit: usize) -> String {
    let from = bytes.len().saturating_sub(limit);
    let start = (from..bytes.len()).find(|&i| bytes[i] & 0xc0 != 0x80).unwrap_or(bytes.len());
    visible(&String::from_utf8_lossy(&bytes[start..]), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(visible("a\u{1b}[2Jb\r\n", false), "a␛[2Jb␍␊");
        assert!(!visible("x\u{202e}y", true).contains('\u{202e}'));
    }

    #[test]
    fn a_tail_is_cut_at_a_character() {
        assert_eq!(tail("ééé".as_bytes(), 3), "é");
        assert_eq!(tail(b"abc", 10), "abc");
    }
}
