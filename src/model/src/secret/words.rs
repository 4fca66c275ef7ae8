//! Masking word by word in a command line or a text. The words before a word decide whether it is a secret.

use super::{MASKED, masked, names_a_secret, steps, user_part};

/// Beginning of a list of texts, as JSON writes it without spaces.
const LIST: &str = "[\"";

/// Programs whose `-p` is a password. In other programs it is a port.
const SHORT_PASSWORD_PROGRAMS: [&str; 5] = ["sshpass", "racadm", "redfishtool", "ipmipower", "mysql"];

/// Returns a text, masked; white space stays as it is.
pub(super) fn mask_text(text: &str) -> String {
    of(text, false)
}

/// Masks a text. With `cut` the text goes on behind its end, where a quote may close.
fn of(text: &str, cut: bool) -> String {
    let (mut masker, mut out, mut rest) = (Masker::default(), String::with_capacity(text.len()), text);
    while !rest.is_empty() {
        let (space, word, left) = next_word(rest, cut);
        out.push_str(space);
        if !word.is_empty() {
            masker.put(word, &mut out);
        }
        steps::add(space.len() + word.len());
        rest = left;
    }
    out
}

/// Returns the masked beginning of a longer text. A quote or list that closes behind its end masks everything up to the
/// end.
pub(super) fn mask_truncated(text: &str) -> String {
    if text.contains("PRIVATE KEY") || text.contains("client-key-data:") {
        return MASKED.to_owned();
    }
    of(text, true)
}

/// Returns the words of a command line, masked. A word with white space may be a command line itself.
pub(super) fn mask_argv<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut masker = Masker::default();
    words.map(|word| masker.whole(word)).collect()
}

/// Splits a text into white space, the next word, and the rest. A quote at the beginning of a word, or after the `=` or
/// `:` of a name, keeps its content in the word.
fn next_word(text: &str, cut: bool) -> (&str, &str, &str) {
    let from = text.len() - text.trim_start().len();
    let (space, rest) = text.split_at(from);
    let (mut to, mut before) = (0, ' ');
    while let Some(c) = rest[to..].chars().next().filter(|c| !c.is_whitespace()) {
        to += c.len_utf8();
        if matches!(c, '"' | '\'') && matches!(before, ' ' | '=' | ':') {
            to += match closing(&rest[to..], c) {
                Some(inside) => inside + 1,
                // A quoted secret that closes behind the end of the examined part.
                None if cut && names_secret_before(&rest[..to - 1]) => rest[to..].find('\n').unwrap_or(rest.len() - to),
                None => 0,
            };
        }
        before = c;
    }
    (space, &rest[..to], &rest[to..])
}

/// Reports whether the text before a quote, `NAME=` or `NAME:`, names a secret.
fn names_secret_before(before: &str) -> bool {
    let name = before.strip_suffix(['=', ':']).unwrap_or_default();
    let is_separator = |c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c));
    names_a_secret(name.trim_end_matches(['"', '\'', '\\']).rsplit(is_separator).next().unwrap_or_default())
}

/// Returns the position of the next closing quote on this line that no backslash precedes.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        steps::add(1);
        match c {
            '\n' => return None,
            c if c == quote && before != '\\' => return Some(at),
            c => before = c,
        }
    }
    None
}

/// Expectation for the next word.
#[derive(Clone, Copy, Default, PartialEq)]
enum Next {
    #[default]
    Plain,
    Secret,
    /// After `Authorization:`: a secret, or its scheme and then a secret.
    Scheme,
    /// A user name, possibly with a password after a colon.
    User,
}

#[derive(Default)]
struct Masker {
    next: Next,
    /// Whether its `-p` or `-P` is a password.
    expects_short_password: bool,
    ipmitool: bool,
}

impl Masker {
    /// Masks a word of a text, or a list of words in JSON: `["ipmitool","-P","secret"]`, complete or cut off.
    fn put(&mut self, word: &str, out: &mut String) {
        let mut rest = word;
        while let Some(from) = rest.find(LIST) {
            let (before, list) = rest.split_at(from + 1);
            if before.len() > 1 {
                out.push_str(&self.word(before));
            } else {
                out.push_str(before);
            }
            let to = list.find("\"]").unwrap_or(list.len());
            steps::add(from + to);
            for (n, word) in list[1..to.max(1)].split("\",\"").enumerate() {
                out.push_str(if n == 0 { "\"" } else { "\",\"" });
                out.push_str(&self.one(word));
            }
            rest = &list[to.max(1)..];
            if rest.starts_with("\"]") {
                out.push_str("\"]");
                rest = &rest[2..];
            }
        }
        if !rest.is_empty() {
            out.push_str(&self.word(rest));
        }
    }

    /// Masks a word of a text, including its quotes.
    fn word(&mut self, word: &str) -> String {
        let quote = ['"', '\''].into_iter().find(|q| word.starts_with(*q));
        let ends = quote.and_then(|q| closing(&word[1..], q).map(|inside| (q, inside + 1)));
        // A quoted text before a colon is a name, as in `"name": …`.
        match ends.filter(|(_, to)| !word[to + 1..].starts_with([':', '='])) {
            Some((quote, to)) => format!("{quote}{}{}", self.whole(&word[1..to]), &word[to..]),
            None => self.one(word),
        }
    }

    /// Masks a word of a command line or a quoted part, which may be a text itself.
    fn whole(&mut self, word: &str) -> String {
        if self.next == Next::Plain && word.contains(char::is_whitespace) { masked(word) } else { self.one(word) }
    }

    fn one(&mut self, word: &str) -> String {
        match std::mem::take(&mut self.next) {
            Next::Secret | Next::Scheme if word.is_empty() => String::new(),
            // An option without its value.
            Next::Secret if word.starts_with("--") => self.plain(word),
            Next::Scheme if ["basic", "bearer", "token", "digest"].contains(&word.to_ascii_lowercase().as_str()) => {
                self.next = Next::Secret;
                word.to_owned()
            }
            Next::Secret | Next::Scheme => MASKED.to_owned(),
            Next::User => user(word),
            Next::Plain => self.plain(word),
        }
    }

    fn plain(&mut self, word: &str) -> String {
        let program = word.rsplit('/').next().unwrap_or(word);
        if SHORT_PASSWORD_PROGRAMS.contains(&program) || program.starts_with("fence_") {
            self.expects_short_password = true;
        } else if program == "ipmitool" {
            self.ipmitool = true;
        }
        match word {
            "-P" | "Bearer" => self.next = Next::Secret,
            "-p" if self.expects_short_password => (self.next, self.expects_short_password) = (Next::Secret, false),
            "-k" | "-y" if self.ipmitool => self.next = Next::Secret,
            "-u" | "-U" | "--user" | "--proxy-user" => self.next = Next::User,
            _ => return self.attached(word),
        }
        word.to_owned()
    }

    /// Masks names and values in one word: `-Psecret`, `NAME=secret`, `--token=secret`, `"password":"secret"`, a URL.
    fn attached(&mut self, word: &str) -> String {
        let short = word.len() > 2 && word.starts_with('-') && !word.starts_with("--");
        if short
            && ((self.ipmitool && word.starts_with("-P")) || (self.expects_short_password && word.starts_with("-p")))
        {
            self.expects_short_password = false;
            return format!("{}{MASKED}", &word[..2]);
        }
        if short && (word.starts_with("-u") || word.starts_with("-U")) && word.contains(':') {
            return user(word);
        }
        if word.starts_with('-') && !word.contains(['=', ':']) {
            if names_a_secret(word) {
                self.next = Next::Secret;
            }
            return word.to_owned();
        }
        let word = match user_part(word) {
            Some((from, to)) => format!("{}{MASKED}@{}", &word[..from], &word[to..]),
            None => word.to_owned(),
        };
        self.assigned(&word)
    }

    fn assigned(&mut self, word: &str) -> String {
        let (mut out, mut rest) = (String::with_capacity(word.len()), word);
        let url = word.contains("://");
        steps::add(2 * word.len());
        while let Some(at) = rest.find(['=', ':']) {
            let (before, after) = rest.split_at(at + 1);
            out.push_str(before);
            rest = after;
            let name = before[..at].trim_end_matches(['"', '\'', '\\']);
            let quoted = name.len() < at;
            let is_separator = |c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c));
            let name = name.rsplit(is_separator).next().unwrap_or_default();
            let scheme = name.eq_ignore_ascii_case("authorization");
            if matches!(name, "--user" | "--proxy-user") {
                out.push_str(&user(rest));
                return out;
            }
            let quote = ["\\\"", "\"", "'"].into_iter().find(|q| rest.starts_with(q));
            let inside = quote.and_then(|q| {
                let to = rest[q.len()..].find(q);
                steps::add(to.unwrap_or(rest.len()));
                to.map(|to| (q, q.len() + to))
            });
            if !scheme && !names_a_secret(name) {
                if let Some((quote, to)) = inside {
                    out.push_str(quote);
                    out.push_str(&masked(&rest[quote.len()..to]));
                    rest = &rest[to..];
                }
                continue;
            }
            if rest.is_empty() {
                self.next = if scheme { Next::Scheme } else { Next::Secret };
                break;
            }
            let to = match inside {
                Some((quote, to)) => {
                    out.push_str(quote);
                    to
                }
                None if quoted => rest.find([',', '}', ']']).unwrap_or(rest.len()),
                None if url => rest.find(['&', '#']).unwrap_or(rest.len()),
                None => rest.len(),
            };
            out.push_str(MASKED);
            rest = &rest[to..];
        }
        out.push_str(rest);
        out
    }
}

/// Returns `name:password` without the password.
fn user(word: &str) -> String {
    match word.split_once(':').filter(|(_, password)| !password.is_empty()) {
        Some((name, _)) => format!("{name}:{MASKED}"),
        None => word.to_owned(),
    }
}
