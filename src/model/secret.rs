//! Takes secrets out of what is shown: states, timelines, pictures, logs, messages. The settings' own passwords and keys
//! are never among what is shown; but a definition may have some in its command lines, a program may print them, and a
//! URL may have a user part.

mod words;

use serde_json::Value;

/// What stands in their place: one word, so that what was masked is read back as it is.
const MASKED: &str = "***";

/// A text – a command line, the end of an output, a sentence – without what looks like a secret: by the option or the
/// name before it, or by its own form.
pub fn masked(text: &str) -> String {
    if text.contains("PRIVATE KEY-----") || text.contains("client-key-data:") {
        return MASKED.to_owned();
    }
    // values of etcd that are kept as they were written
    if text.starts_with(['{', '['])
        && let Ok(mut value) = serde_json::from_str::<Value>(text)
    {
        let before = value.clone();
        mask(&mut value);
        return if value == before { text.to_owned() } else { value.to_string() };
    }
    words::of_text(text)
}

/// How much more than what is shown is looked at: what stands before a secret, or what it is in, reaches no farther.
pub const WINDOW: usize = 4096;

/// The first `most` characters of a text that may be of any length, masked: no more than a window of it is looked at, and the
/// masked text is cut. What the window cuts off cannot be shown by that: a quote that is left open holds all that follows.
pub fn beginning(text: &[u8], most: usize) -> String {
    let window = most.saturating_mul(4).saturating_add(WINDOW);
    let cut = text.len() > window;
    let text = String::from_utf8_lossy(&text[..text.len().min(window)]);
    let masked = if cut { words::of_beginning(&text) } else { masked(&text) };
    masked.chars().take(most).collect()
}

/// The last `most` bytes of a text of which the last `WINDOW + most` at least are given, masked before the cut. Where
/// `whole` is false the text began earlier: its first word, which may be the end of a secret, is left out.
pub fn end(text: &str, most: usize, whole: bool) -> String {
    // a word that is longer than the window is no secret
    let window = (WINDOW.min(text.len())..=text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    let known = if whole { 0 } else { text[..window].find(char::is_whitespace).unwrap_or(window) };
    let masked = masked(&text[known..]);
    let from = masked.len().saturating_sub(most);
    let start = (from..=masked.len()).find(|&i| masked.is_char_boundary(i)).unwrap_or(masked.len());
    masked[start..].to_owned()
}

/// Steps of the search, counted in tests: what masking costs for each byte.
mod steps {
    #[cfg(test)]
    thread_local! {
        pub static COUNTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[cfg(test)]
    pub fn add(steps: usize) {
        COUNTED.set(COUNTED.get() + steps);
    }

    #[cfg(not(test))]
    pub const fn add(_: usize) {}
}

/// A command line for people: its words, separated by spaces.
pub fn argv(words: &[String]) -> String {
    words::of_argv(words.iter().map(String::as_str)).join(" ")
}

/// Masks a document in place; lists of strings are taken for command lines.
pub fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(text) if names_a_secret(key) && !text.is_empty() => MASKED.clone_into(text),
                    other => mask(other),
                }
            }
        }
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let words = words::of_argv(list.iter().filter_map(Value::as_str));
            *list = words.into_iter().map(Value::String).collect();
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        Value::String(text) => *text = masked(text),
        _ => {}
    }
}

/// A URL as messages name it: without user and password.
pub fn url(url: &str) -> String {
    match user_part(url) {
        Some((from, to)) => format!("{}{}", &url[..from], &url[to..]),
        None => url.to_owned(),
    }
}

/// Where the user part of the first URL in a word lies, its `@` included.
fn user_part(word: &str) -> Option<(usize, usize)> {
    let from = word.find("://")? + 3;
    let rest = &word[from..];
    let authority = rest.find(['/', '?', '#', '"', '\'', ',', ';', ')']).unwrap_or(rest.len());
    let at = rest[..authority].rfind('@').filter(|at| *at > 0);
    // a password that was not encoded may hold any of these; behind the colon of a host stands a port
    let odd = || {
        let before = &rest[..rest.find('@')?];
        let password = before[..authority.min(before.len())].split_once(':')?.1;
        (!password.is_empty() && !password.bytes().all(|b| b.is_ascii_digit())).then_some(before.len())
    };
    let at = at.or_else(odd)?;
    Some((from, from + at + 1))
}

/// Whether what a field, a variable or an option of this name holds is a secret.
fn names_a_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let plain: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    let ends = [
        "password",
        "passwd",
        "passphrase",
        "sshpass",
        "secret",
        "token",
        "privatekey",
        "keydata",
        "apikey",
        "accesskey",
        "secretkey",
    ];
    let mut parts = lower.rsplit(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let last = parts.next().unwrap_or_default();
    // PWD alone is a folder
    ends.iter().any(|end| plain.ends_with(end))
        || matches!(last, "pass" | "pw" | "kgkey")
        || (last == "pwd" && parts.next().is_some())
}

#[cfg(test)]
mod tests;
