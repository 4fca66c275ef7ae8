//! Lexer: splits a text into tokens outside and inside of actions.

use super::Fault;

/// A token, with the character at which it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) what: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// Text outside of actions, as it is printed.
    Text(String),
    /// `{{`
    Open,
    /// `}}`
    Close,
    /// `.Rack.X` as its names. Empty: the dot alone.
    Field(Vec<String>),
    /// An identifier: a function, a keyword, `true`, `false`, `nil`.
    Word(String),
    /// A string.
    Quoted(String),
    /// A whole number.
    Number(i64),
    /// `|`
    Pipe,
    /// `(`
    Left,
    /// `)`
    Right,
}

pub(super) fn lex(text: &str) -> Result<Vec<Token>, Fault> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let mut at = 0;
    let mut trim = false;
    while at < chars.len() {
        let open = find(&chars, at, "{{").unwrap_or(chars.len());
        let mut piece: String = chars[at..open].iter().collect();
        if trim {
            piece.drain(..piece.len() - piece.trim_start().len());
        }
        let mut inside = open + 2;
        // a minus before a digit belongs to a number, as in Go
        let trims = chars.get(inside) == Some(&'-') && chars.get(inside + 1).is_some_and(|c| c.is_whitespace());
        if open < chars.len() && trims {
            piece.truncate(piece.trim_end().len());
            inside += 1;
        }
        if !piece.is_empty() {
            out.push(Token { at, what: TokenKind::Text(piece) });
        }
        if open == chars.len() {
            break;
        }
        (at, trim) = action(&chars, open, inside, &mut out)?;
    }
    Ok(out)
}

fn find(chars: &[char], from: usize, what: &str) -> Option<usize> {
    let what: Vec<char> = what.chars().collect();
    (from..chars.len().checked_sub(what.len() - 1)?).find(|&i| chars[i..].starts_with(&what))
}

/// Reads one action. Returns where the text goes on, and whether its leading white space is trimmed.
fn action(chars: &[char], open: usize, inside: usize, out: &mut Vec<Token>) -> Result<(usize, bool), Fault> {
    let mut at = inside;
    while chars.get(at).is_some_and(|c| c.is_whitespace()) {
        at += 1;
    }
    if chars[at.min(chars.len())..].starts_with(&['/', '*']) {
        let end = find(chars, at + 2, "*/").ok_or_else(|| Fault::new(open, "the comment does not end"))? + 2;
        return closing(chars, end).ok_or_else(|| Fault::new(end, "a comment must be followed by }} and nothing else"));
    }
    out.push(Token { at: open, what: TokenKind::Open });
    loop {
        if let Some(closed) = closing(chars, at) {
            out.push(Token { at, what: TokenKind::Close });
            return Ok(closed);
        }
        let Some(&c) = chars.get(at) else { return Err(Fault::new(open, "the action {{ does not end with }}")) };
        if c.is_whitespace() {
            at += 1;
            continue;
        }
        let (what, next) = piece(chars, at, c)?;
        out.push(Token { at, what });
        at = next;
    }
}

/// Returns the place after `}}` or ` -}}`, if one is here, and whether it trims.
fn closing(chars: &[char], at: usize) -> Option<(usize, bool)> {
    let rest = chars.get(at..)?;
    if rest.starts_with(&['}', '}']) {
        return Some((at + 2, false));
    }
    let spaces = rest.iter().take_while(|c| c.is_whitespace()).count();
    let behind_space = at > 0 && chars[at - 1].is_whitespace();
    if rest[spaces..].starts_with(&['-', '}', '}']) && (spaces > 0 || behind_space) {
        return Some((at + spaces + 3, true));
    }
    None
}

fn piece(chars: &[char], at: usize, c: char) -> Result<(TokenKind, usize), Fault> {
    match c {
        '|' => Ok((TokenKind::Pipe, at + 1)),
        '(' => Ok((TokenKind::Left, at + 1)),
        ')' => Ok((TokenKind::Right, at + 1)),
        '"' => quoted(chars, at),
        '`' => {
            let end = find(chars, at + 1, "`").ok_or_else(|| Fault::new(at, "the string does not end"))?;
            Ok((TokenKind::Quoted(chars[at + 1..end].iter().collect()), end + 1))
        }
        '.' => field(chars, at),
        '$' => Err(Fault::new(at, "variables are not supported in labels")),
        '+' | '-' | '0'..='9' => {
            let word: String = chars[at..].iter().take_while(|c| !is_delimiter(**c)).collect();
            let number = word.strip_prefix('+').unwrap_or(&word).parse();
            let number = number.map_err(|_| Fault::new(at, format!("{word:?} is not a whole number")))?;
            Ok((TokenKind::Number(number), at + word.chars().count()))
        }
        c if c.is_alphabetic() || c == '_' => {
            let word: String = chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
            let next = at + word.chars().count();
            Ok((TokenKind::Word(word), next))
        }
        other => Err(Fault::new(at, format!("unexpected {other:?}"))),
    }
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace() || matches!(c, '|' | '(' | ')' | '}' | '"' | '`')
}

fn field(chars: &[char], start: usize) -> Result<(TokenKind, usize), Fault> {
    let mut names = Vec::new();
    let mut at = start;
    while chars.get(at) == Some(&'.') {
        let name: String = chars[at + 1..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
        if name.is_empty() {
            if names.is_empty() && chars.get(at + 1).is_none_or(|c| is_delimiter(*c)) {
                return Ok((TokenKind::Field(names), at + 1));
            }
            return Err(Fault::new(at, "a dot must be followed by the name of a field"));
        }
        at += 1 + name.chars().count();
        names.push(name);
    }
    match chars.get(at) {
        Some(&c) if !is_delimiter(c) => Err(Fault::new(at, format!("{c:?} is not allowed in the name of a field"))),
        _ => Ok((TokenKind::Field(names), at)),
    }
}

fn quoted(chars: &[char], start: usize) -> Result<(TokenKind, usize), Fault> {
    let mut text = String::new();
    let mut at = start + 1;
    loop {
        match chars.get(at) {
            None | Some('\n') => return Err(Fault::new(start, "the string does not end")),
            Some('"') => return Ok((TokenKind::Quoted(text), at + 1)),
            Some('\\') => {
                let c = match chars.get(at + 1) {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some(&c @ ('"' | '\\')) => c,
                    other => {
                        let seen = other.map_or_else(String::new, |c| format!("{c}"));
                        return Err(Fault::new(at, format!("the escape \\{seen} is not supported")));
                    }
                };
                text.push(c);
                at += 2;
            }
            Some(&c) => {
                text.push(c);
                at += 1;
            }
        }
    }
}
