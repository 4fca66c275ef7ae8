//! Faults that the parser finds in the file of BMCs, in words: the entry, the key, and the form that its value needs. No
//! text shows a value, because it may be a secret.

use std::net::IpAddr;

/// A key of the file, and the form of its value.
#[derive(Clone, Copy)]
pub(super) struct Key {
    /// The key.
    pub(super) name: &'static str,
    /// The form, as advice: `write a URL`.
    pub(super) form: &'static str,
}

impl Key {
    pub(super) const fn new(name: &'static str, form: &'static str) -> Self {
        Self { name, form }
    }
}

const SECONDS: &str = "write a whole number of seconds";
const TEXT: &str = "write a text";
const PATH: &str = "write a path";
const MAPPING: &str = "write keys with values: {key: value, …}";

/// Keys of the file.
const FILE: &[Key] = &[
    Key::new("networks", "write a list of networks: [10.1.0.0/16, {cidr: 10.2.0.0/24, http: true}, …]"),
    Key::new("defaults", MAPPING),
    Key::new("bmcs", "write the BMC of each address: {10.0.0.11: {url: …}, …}"),
    Key::new("others", "write the driver of all other machines: {driver: agent}"),
];

/// Keys of `defaults`, of `others` and of each entry.
const ENTRY: &[Key] = &[
    Key::new("url", "write a URL"),
    Key::new("system", TEXT),
    Key::new("username", TEXT),
    Key::new("password", TEXT),
    Key::new("password-file", PATH),
    Key::new("ca-file", PATH),
    Key::new("insecure", "write true or false"),
    Key::new("sign-in", "write auto, basic or session"),
    Key::new("soft-seconds", SECONDS),
    Key::new("off-seconds", SECONDS),
    Key::new("on-seconds", SECONDS),
    Key::new("poll-seconds", SECONDS),
    Key::new("registry-port", "write a port, 1 to 65535"),
    Key::new("driver", "write the name of a driver"),
    Key::new("settings", MAPPING),
];

/// Returns the fault of the file: the place, as a path of keys, and the form.
pub(super) fn of_file(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    let line = error.location().map(|l| format!(" (error at line {})", l.line())).unwrap_or_default();
    let why = match place(&text) {
        Place::File => unknown_or(&text, FILE, ""),
        Place::Key(key) => Some(format!("{}: {}", key.name, key.form)),
        Place::In { section, key: None } => {
            unknown_or(&text, ENTRY, &section).or(Some(format!("{section}: {MAPPING}")))
        }
        Place::In { section, key: Some(key) } => Some(format!("{section}.{}: {}", key.name, key.form)),
    };
    match why {
        Some(why) => format!("not a BMC file: {why}{line}"),
        None => format!("not a BMC file{line}; see docs/power.md"),
    }
}

/// Returns the fault of a driver's settings, which have these keys.
pub(super) fn of_settings(settings: &serde_yaml::Value, error: &serde_yaml::Error, keys: &[Key]) -> String {
    let text = error.to_string();
    if let Some(key) = named(&text, "missing field `").and_then(|name| keys.iter().find(|key| key.name == name)) {
        return format!("settings: {} is missing; {}", key.name, key.form);
    }
    if let Some(unknown) = unknown_or(&text, keys, "settings") {
        return unknown;
    }
    match settings.as_mapping().and_then(|_| first_key(&text, keys)) {
        Some(key) => format!("{}: {}", key.name, key.form),
        None => format!("settings: {MAPPING}; the keys are {}", names(keys)),
    }
}

/// Part of the file that an error of the parser is about.
enum Place {
    /// The file as a whole.
    File,
    /// A key of the file.
    Key(Key),
    /// `defaults`, `others`, or an entry of `bmcs`.
    In {
        section: String,
        /// The key in it, unless the whole is wrong.
        key: Option<Key>,
    },
}

/// Reads the path of keys with which the parser begins its message: `bmcs.10.0.0.1.url: invalid type …`.
fn place(text: &str) -> Place {
    let Some(key) = first_key(text, FILE) else { return Place::File };
    // An address of IPv6 contains colons, but none with a blank.
    let path = text.split_once(": ").map_or(text, |(path, _)| path);
    let rest = path.strip_prefix(key.name).and_then(|rest| rest.strip_prefix('.'));
    match (key.name, rest) {
        (section @ ("defaults" | "others"), rest) => {
            Place::In { section: section.to_owned(), key: rest.and_then(|rest| first_key(rest, ENTRY)) }
        }
        ("bmcs", Some(rest)) => {
            // A driver's settings may be of any form, so nothing below them can be wrong here.
            let found = ENTRY.iter().find_map(|key| Some((rest.strip_suffix(key.name)?.strip_suffix('.')?, *key)));
            let (entry, key) = found.map_or((rest, None), |(entry, key)| (entry, Some(key)));
            // Another name may be a value that a forgotten colon made a key.
            let section = if entry.parse::<IpAddr>().is_ok() { format!("bmcs.{entry}") } else { "bmcs".to_owned() };
            Place::In { section, key }
        }
        _ => Place::Key(key),
    }
}

/// Returns the key with which a message begins.
fn first_key(text: &str, keys: &[Key]) -> Option<Key> {
    let is_end = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[', ':']);
    keys.iter().find(|key| text.strip_prefix(key.name).is_some_and(is_end)).copied()
}

/// Returns the fault of an unknown key, if the message is about one. The key is named only if it looks like one of
/// cketerm's. Otherwise it may be a value that a forgotten colon made a key.
fn unknown_or(text: &str, keys: &[Key], section: &str) -> Option<String> {
    let name = named(text, "unknown field `")?;
    let shown = if looks_like_key(name) { format!(" `{name}`") } else { String::new() };
    let section = if section.is_empty() { String::new() } else { format!("{section}: ") };
    Some(format!("{section}unknown field{shown}; the keys are {}", names(keys)))
}

fn named<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.split(before).nth(1).and_then(|rest| rest.split('`').next())
}

fn names(keys: &[Key]) -> String {
    keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// Reports whether a name has the form of cketerm's keys.
fn looks_like_key(name: &str) -> bool {
    name.len() < 20 && name.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c))
}
