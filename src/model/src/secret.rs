//! Masking of secrets in everything that is shown: states, timelines, screenshots, logs, messages. Passwords and keys
//! of the settings are never shown at all. But the command lines of a definition may contain secrets, a program may
//! print them, and a URL may have a user part.

mod words;

use serde_json::Value;

/// Text in place of a secret: one word, so that masked text is stable when it is masked again.
const MASKED: &str = "***";

/// Masks secrets in a text: a command line, the end of an output, or a sentence. A secret is recognised by the option
/// or name before it, or by its own form.
pub fn masked(text: &str) -> String {
    if text.contains("PRIVATE KEY-----") || text.contains("client-key-data:") {
        return MASKED.to_owned();
    }
    // Values of etcd in the form in which they were stored.
    if text.starts_with(['{', '['])
        && let Ok(mut value) = serde_json::from_str::<Value>(text)
    {
        let before = value.clone();
        mask(&mut value);
        return if value == before { text.to_owned() } else { value.to_string() };
    }
    words::mask_text(text)
}

/// Number of bytes to look at beyond the shown part. The context that marks a secret reaches no farther.
pub const WINDOW: usize = 4096;

/// Returns the first `most` characters of a text of any length, masked. Only a window of it is examined, and the masked
/// text is cut. The window cannot reveal what it cuts off: an open quote masks all that follows.
pub fn beginning(text: &[u8], most: usize) -> String {
    let window = most.saturating_mul(4).saturating_add(WINDOW);
    let cut = text.len() > window;
    let text = String::from_utf8_lossy(&text[..text.len().min(window)]);
    let masked = if cut { words::mask_truncated(&text) } else { masked(&text) };
    masked.chars().take(most).collect()
}

/// Returns the last `most` bytes of a text, masked before the cut. At least the last `WINDOW + most` bytes must be
/// given. With `whole` false the text began earlier. Its first word is then left out, because it may be the end of a
/// secret.
pub fn end(text: &str, most: usize, whole: bool) -> String {
    // A word that is longer than the window is no secret.
    let window = (WINDOW.min(text.len())..=text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    let known = if whole { 0 } else { text[..window].find(char::is_whitespace).unwrap_or(window) };
    let masked = masked(&text[known..]);
    let from = masked.len().saturating_sub(most);
    let start = (from..=masked.len()).find(|&i| masked.is_char_boundary(i)).unwrap_or(masked.len());
    masked[start..].to_owned()
}

/// Returns the last `most` bytes of a text that is still being written, masked before the cut, as [`end`] does. Only
/// complete lines count: what marks a word as a secret may follow it, on the same line.
pub fn end_so_far(text: &str, most: usize, whole: bool) -> String {
    let lines = text.rfind(['\n', '\r']).map_or(0, |at| at + 1);
    end(&text[..lines], most, whole)
}

/// Steps of the search, counted in tests: the cost of masking for each byte.
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

/// Returns a command line for display: its words, masked, separated by spaces.
pub fn argv(words: &[String]) -> String {
    words::mask_argv(words.iter().map(String::as_str)).join(" ")
}

/// Masks a document in place. Lists of strings count as command lines.
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
            let words = words::mask_argv(list.iter().filter_map(Value::as_str));
            *list = words.into_iter().map(Value::String).collect();
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        Value::String(text) => *text = masked(text),
        _ => {}
    }
}

/// Returns a URL for messages, without user and password.
pub fn url(url: &str) -> String {
    match user_part(url) {
        Some((from, to)) => format!("{}{}", &url[..from], &url[to..]),
        None => url.to_owned(),
    }
}

/// Returns the range of the user part of the first URL in a word, including its `@`.
fn user_part(word: &str) -> Option<(usize, usize)> {
    let from = word.find("://")? + 3;
    let rest = &word[from..];
    let authority = rest.find(['/', '?', '#', '"', '\'', ',', ';', ')']).unwrap_or(rest.len());
    let at = rest[..authority].rfind('@').filter(|at| *at > 0);
    // A password that is not encoded may contain any of these. A host is followed by a colon and a port.
    let unescaped_at = || {
        let before = &rest[..rest.find('@')?];
        let password = before[..authority.min(before.len())].split_once(':')?.1;
        (!password.is_empty() && !password.bytes().all(|b| b.is_ascii_digit())).then_some(before.len())
    };
    let at = at.or_else(unescaped_at)?;
    Some((from, from + at + 1))
}

/// Reports whether a field, a variable or an option of this name holds a secret.
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
    // `PWD` alone is a directory.
    ends.iter().any(|end| plain.ends_with(end))
        || matches!(last, "pass" | "pw" | "kgkey")
        || (last == "pwd" && parts.next().is_some())
}

#[cfg(test)]
mod tests;
