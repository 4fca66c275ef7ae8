//! Active keys: the key table with the changes of the configuration, and the look-up of key presses and chords.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    Binding, Command,
    Context::{self, Detail, Dialog, Everywhere, Field, Table},
    TABLE, is_typable, title,
};

/// A key press.
pub type Stroke = (KeyCode, KeyModifiers);

/// An active key, or chord of keys, of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BoundKey {
    context: Context,
    strokes: Vec<Stroke>,
    command: Command,
    name: &'static str,
    /// Whether it comes from the configuration.
    changed: bool,
}

impl BoundKey {
    /// Returns where the key was bound, for error messages.
    fn origin(&self) -> String {
        if self.changed { format!("keys.{}", self.name) } else { "the default table".to_owned() }
    }
}

/// Result of a key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMatch {
    /// Execute a command.
    Command(Command),
    /// The chord is incomplete.
    Prefix,
    /// The key has no command here.
    Unbound,
}

/// The active keys: the table with the changes of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keymap {
    keys: Vec<BoundKey>,
    names: BTreeMap<&'static str, Vec<String>>,
}

impl Default for Keymap {
    fn default() -> Self {
        // The built-in table is valid; a test checks it.
        Self::new(&BTreeMap::new()).unwrap_or(Self { keys: Vec::new(), names: BTreeMap::new() })
    }
}

impl Keymap {
    /// Creates the active keys from the table and the rebound commands (an empty list unbinds one). Refuses duplicates,
    /// and chords that start with a key that has a command of its own. A default key of [`YIELDING`] gives way to the
    /// configuration.
    pub fn new(changed: &BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        if let Some(name) = changed.keys().find(|name| !TABLE.iter().any(|b| b.name == name.as_str())) {
            let names: Vec<_> = TABLE.iter().map(|b| b.name).collect();
            return Err(format!("keys: there is no command {name:?}; the commands are {}", names.join(", ")));
        }
        let mut keys: Vec<BoundKey> = Vec::new();
        let mut names = BTreeMap::new();
        let configured = configured_keys(changed);
        for binding in TABLE {
            let own = changed.get(binding.name);
            let texts: Vec<String> = match own {
                Some(texts) => texts.clone(),
                None => binding
                    .keys
                    .iter()
                    .filter(|key| !yields(binding, key, &configured))
                    .map(|k| (*k).to_owned())
                    .collect(),
            };
            for text in &texts {
                let strokes = chord(text).ok_or_else(|| format!("keys.{}: {text:?} is not a key", binding.name))?;
                validate(binding, text, &strokes)?;
                let one = BoundKey {
                    context: binding.context,
                    strokes,
                    command: binding.command,
                    name: binding.name,
                    changed: own.is_some(),
                };
                if let Some(why) = keys.iter().find_map(|other| conflict(&one, other)) {
                    return Err(why);
                }
                keys.push(one);
            }
            names.insert(binding.name, texts);
        }
        Ok(Self { keys, names })
    }

    /// Returns the command of a single key here.
    pub fn lookup(&self, context: Context, key: KeyEvent) -> Option<Command> {
        match self.match_stroke(context, &[], key) {
            KeyMatch::Command(command) => Some(command),
            KeyMatch::Prefix | KeyMatch::Unbound => None,
        }
    }

    /// Returns the result of a key after the earlier keys of a chord.
    pub fn match_stroke(&self, context: Context, before: &[Stroke], key: KeyEvent) -> KeyMatch {
        let stroke = normalized(key.code, key.modifiers);
        let (mut begun, mut elsewhere) = (false, None);
        for one in &self.keys {
            let here = one.context == context;
            let also = one.context == Everywhere && matches!(context, Table | Detail);
            if !here && !also {
                continue;
            }
            let Some((next, rest)) = one.strokes.strip_prefix(before).and_then(<[Stroke]>::split_first) else {
                continue;
            };
            match (*next == stroke, rest.is_empty(), here) {
                (true, true, true) => return KeyMatch::Command(one.command),
                (true, true, false) => elsewhere = elsewhere.or(Some(one.command)),
                (true, false, _) => begun = true,
                _ => {}
            }
        }
        match elsewhere {
            Some(command) => KeyMatch::Command(command),
            None if begun => KeyMatch::Prefix,
            None => KeyMatch::Unbound,
        }
    }

    /// Returns the chords that continue these key presses: the remaining keys, and the command's name.
    pub fn chords(&self, before: &[Stroke]) -> Vec<(String, &'static str)> {
        let rest = |one: &BoundKey| {
            let rest = one.strokes.strip_prefix(before).filter(|rest| !rest.is_empty())?;
            Some((rest.iter().map(|s| stroke_name(*s)).collect::<Vec<_>>().join(" "), one.name))
        };
        self.keys.iter().filter_map(rest).collect()
    }

    /// Returns the first key of a command, for hints. `None` if it is unbound.
    pub fn key(&self, name: &str) -> Option<&str> {
        self.names.get(name).and_then(|keys| keys.first()).map(String::as_str)
    }

    /// Returns the first key of a command for use in a sentence, or `:NAME` if it is unbound.
    pub fn shown(&self, name: &str) -> String {
        self.key(name).map_or_else(|| format!(":{name}"), title)
    }

    /// Returns all keys of a binding for the help, or its command-line name if it has none.
    pub fn all(&self, binding: &Binding) -> String {
        let titles = |keys: &Vec<String>| keys.iter().map(|key| title(key)).collect::<Vec<_>>().join(" ");
        match self.names.get(binding.name).map(titles).filter(|keys| !keys.is_empty()) {
            Some(keys) => keys,
            None if is_typable(binding.context) => format!(":{}", binding.name),
            None => String::new(),
        }
    }
}

/// Default keys that a configuration of version 0.1 could give to other commands: by command and key. The command loses
/// such a key to the configuration, so that an old configuration keeps its meaning.
const YIELDING: &[(&str, &str)] = &[
    ("open", "d"),
    ("close", "d"),
    ("lead", "T"),
    ("yaml", "y"),
    ("previous-entry", "["),
    ("next-entry", "]"),
    ("previous-view", "backtab"),
    ("half-page-down", "ctrl-d"),
    ("half-page-up", "ctrl-u"),
    ("top", "g g"),
];

/// Returns the keys of the configuration, with the contexts of their commands.
fn configured_keys(changed: &BTreeMap<String, Vec<String>>) -> Vec<(Context, Vec<Stroke>)> {
    let of = |binding: &'static Binding| changed.get(binding.name).map(|texts| (binding.context, texts));
    let keys = TABLE.iter().filter_map(of).flat_map(|(context, texts)| texts.iter().map(move |text| (context, text)));
    keys.filter_map(|(context, text)| Some((context, chord(text)?))).collect()
}

/// Reports whether a default key gives way to a key of the configuration.
fn yields(binding: &Binding, key: &str, configured: &[(Context, Vec<Stroke>)]) -> bool {
    let Some(strokes) = chord(key).filter(|_| YIELDING.contains(&(binding.name, key))) else { return false };
    configured.iter().any(|(context, other)| {
        overlap(binding.context, *context) && (strokes.starts_with(other) || other.starts_with(&strokes))
    })
}

/// Returns the key that a terminal sends instead of this ctrl combination, if it cannot send the combination.
fn terminal_equivalent((code, modifiers): Stroke) -> Option<&'static str> {
    if !modifiers.contains(KeyModifiers::CONTROL) {
        return None;
    }
    match code {
        KeyCode::Char('i') => Some("tab"),
        KeyCode::Char('m') => Some("enter"),
        KeyCode::Char('[' | '3') => Some("esc"),
        KeyCode::Char('8') => Some("backspace"),
        KeyCode::Char('@' | '2' | '`') => Some("ctrl-space"),
        // The four control codes after those of the letters.
        KeyCode::Char('\\') => Some("ctrl-4"),
        KeyCode::Char(']') => Some("ctrl-5"),
        KeyCode::Char('^') => Some("ctrl-6"),
        KeyCode::Char('_' | '/') => Some("ctrl-7"),
        KeyCode::Char('A'..='Z') => Some("the same key without shift"),
        KeyCode::Char('a'..='z' | ' ' | '4'..='7') => None,
        KeyCode::Char(_) | KeyCode::Enter | KeyCode::Esc | KeyCode::Tab | KeyCode::BackTab => {
            Some("the same key without ctrl, if it sends anything")
        }
        KeyCode::Backspace => Some("ctrl-h"),
        _ => None,
    }
}

/// Refuses bindings that a command must not have: chords where text is typed and, for verbs that change the cluster,
/// keys that people press for something harmless.
fn validate(binding: &Binding, text: &str, strokes: &[Stroke]) -> Result<(), String> {
    let name = binding.name;
    if let Some((equivalent, stroke)) = strokes.iter().find_map(|stroke| Some((terminal_equivalent(*stroke)?, *stroke)))
    {
        let key = stroke_name(stroke);
        return Err(format!("keys.{name}: {text:?}: a terminal sends {key} as {equivalent}: choose another key"));
    }
    if strokes.len() > 1 {
        if matches!(binding.context, Dialog | Field) {
            return Err(format!("keys.{name}: {text:?}: chords work in tables and panes, not where text is typed"));
        }
        if strokes.iter().any(|(code, _)| *code == KeyCode::Esc) {
            return Err(format!("keys.{name}: {text:?}: Esc cancels a chord, so it cannot be part of one"));
        }
        return Ok(());
    }
    let harmless = strokes.iter().any(|(code, modifiers)| {
        modifiers.contains(KeyModifiers::CONTROL)
            || !matches!(code, KeyCode::Char(_) | KeyCode::F(_) | KeyCode::Delete)
            || *code == KeyCode::Char(' ')
    });
    if binding.changes && harmless {
        return Err(format!(
            "keys.{name}: {text} looks harmless, and {name} changes the cluster: choose a letter, a function key or a \
             chord such as \"ctrl-x c\""
        ));
    }
    Ok(())
}

/// Returns why two bindings cannot both be active. The message blames the one from the configuration.
fn conflict(one: &BoundKey, other: &BoundKey) -> Option<String> {
    if !overlap(one.context, other.context) {
        return None;
    }
    let (new, old) = if one.changed || !other.changed { (one, other) } else { (other, one) };
    let text = |of: &BoundKey| of.strokes.iter().map(|s| stroke_name(*s)).collect::<Vec<_>>().join(" ");
    if new.strokes == old.strokes {
        let (name, key, origin) = (new.name, text(new), old.origin());
        return Some(format!("keys.{name}: {key} is the key of {} already ({origin})", old.name));
    }
    let (long, short) = if new.strokes.len() > old.strokes.len() { (new, old) } else { (old, new) };
    long.strokes.starts_with(&short.strokes).then(|| {
        format!(
            "keys.{}: the chord {:?} of {} begins with {}, which is the key of {} alone ({})",
            new.name,
            text(long),
            long.name,
            text(short),
            short.name,
            if long == new { short.origin() } else { long.origin() },
        )
    })
}

/// Returns true if the same key press can reach both contexts.
fn overlap(one: Context, other: Context) -> bool {
    let typing = |c| matches!(c, Dialog | Field);
    one == other || (one == Everywhere && !typing(other)) || (other == Everywhere && !typing(one))
}

/// Parses a key: `X`, `ctrl-f`, `space`, `pgdn`, and so on.
pub fn parse(text: &str) -> Option<(KeyCode, KeyModifiers)> {
    let (rest, modifiers) = match (text.strip_prefix("ctrl-"), text.strip_prefix("alt-")) {
        (Some(rest), _) => (rest, KeyModifiers::CONTROL),
        (_, Some(rest)) => (rest, KeyModifiers::ALT),
        _ => (text, KeyModifiers::NONE),
    };
    let mut chars = rest.chars();
    let code = match (rest, chars.next(), chars.next()) {
        (_, Some(c), None) => KeyCode::Char(c),
        ("space", ..) => KeyCode::Char(' '),
        ("enter", ..) => KeyCode::Enter,
        ("esc", ..) => KeyCode::Esc,
        ("tab", ..) => KeyCode::Tab,
        ("backtab", ..) => KeyCode::BackTab,
        ("up", ..) => KeyCode::Up,
        ("down", ..) => KeyCode::Down,
        ("left", ..) => KeyCode::Left,
        ("right", ..) => KeyCode::Right,
        ("home", ..) => KeyCode::Home,
        ("end", ..) => KeyCode::End,
        ("pgup", ..) => KeyCode::PageUp,
        ("pgdn", ..) => KeyCode::PageDown,
        ("backspace", ..) => KeyCode::Backspace,
        ("delete", ..) => KeyCode::Delete,
        _ => match rest.strip_prefix('f').and_then(|n| n.parse().ok()) {
            Some(n @ 1..=12) => KeyCode::F(n),
            _ => return None,
        },
    };
    Some((code, modifiers))
}

/// Parses one key, or several in sequence: `ctrl-x c`.
fn chord(text: &str) -> Option<Vec<Stroke>> {
    let strokes: Option<Vec<Stroke>> = text.split_whitespace().map(parse).collect();
    strokes.filter(|strokes| !strokes.is_empty())
}

/// Formats a key as [`parse`] reads it.
pub fn stroke_name((code, modifiers): Stroke) -> String {
    let name = match code {
        KeyCode::Char(' ') => "space".to_owned(),
        KeyCode::Char(c) => c.to_string(),
        KeyCode::F(n) => format!("f{n}"),
        KeyCode::PageUp => "pgup".to_owned(),
        KeyCode::PageDown => "pgdn".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    };
    let before = if modifiers.contains(KeyModifiers::CONTROL) {
        "ctrl-"
    } else if modifiers.contains(KeyModifiers::ALT) {
        "alt-"
    } else {
        ""
    };
    format!("{before}{name}")
}

/// Drops the shift modifier: the character contains it already, and terminals disagree about reporting it.
pub fn normalized(code: KeyCode, modifiers: KeyModifiers) -> Stroke {
    (code, modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_can_be_rebound_and_unbound_and_duplicates_are_refused() {
        let change = |name: &str, keys: &[&str]| {
            let keys = keys.iter().map(|k| (*k).to_owned()).collect();
            Keymap::new(&BTreeMap::from([(name.to_owned(), keys)]))
        };
        let map = change("cancel", &["f8"]).unwrap();
        assert_eq!(map.lookup(Table, KeyEvent::from(KeyCode::F(8))), Some(Command::Cancel));
        assert_eq!(map.lookup(Table, KeyEvent::from(KeyCode::Char('X'))), None);
        assert_eq!(change("force", &[]).unwrap().key("force"), None);
        let twice = change("cancel", &["j"]).unwrap_err();
        assert_eq!(twice, "keys.cancel: j is the key of down already (the default table)");
        let both = BTreeMap::from([
            ("filter".to_owned(), vec!["f9".to_owned()]),
            ("cancel".to_owned(), vec!["f9".to_owned()]),
        ]);
        assert_eq!(Keymap::new(&both).unwrap_err(), "keys.filter: f9 is the key of cancel already (keys.cancel)");
        assert!(change("filter", &["X"]).unwrap_err().contains("cancel"));
        assert!(change("nothing", &["x"]).unwrap_err().contains("reset-backoff"));
        assert!(change("cancel", &["hyper-x"]).unwrap_err().contains("not a key"));
    }

    #[test]
    fn chords_are_matched_key_by_key_and_a_chord_with_a_bound_prefix_is_refused() {
        let change = |all: &[(&str, &str)]| {
            Keymap::new(&all.iter().map(|(name, key)| ((*name).to_owned(), vec![(*key).to_owned()])).collect())
        };
        let map = change(&[("cancel", "ctrl-x c"), ("repaint", "ctrl-x r")]).unwrap();
        let begun = KeyEvent::new(KeyCode::Char('x'), KeyModifiers::CONTROL);
        assert_eq!(map.match_stroke(Table, &[], begun), KeyMatch::Prefix);
        assert_eq!(map.match_stroke(Field, &[], begun), KeyMatch::Unbound, "chords do not work in text fields");
        let before = [normalized(begun.code, begun.modifiers)];
        let then = |c| map.match_stroke(Detail, &before, KeyEvent::from(KeyCode::Char(c)));
        assert_eq!((then('c'), then('d')), (KeyMatch::Command(Command::Cancel), KeyMatch::Unbound));
        assert_eq!(
            map.match_stroke(Table, &[], KeyEvent::from(KeyCode::Char('c'))),
            KeyMatch::Command(Command::Copy),
            "alone"
        );
        assert_eq!(map.chords(&before), [("c".to_owned(), "cancel"), ("r".to_owned(), "repaint")]);
        assert_eq!(map.shown("cancel"), "Ctrl-x c");

        let why = change(&[("bottom", "s s")]).unwrap_err();
        let expected = "keys.bottom: the chord \"s s\" of bottom begins with s, which is the key of sort alone (the default table)";
        assert_eq!(why, expected);
        assert!(change(&[("bottom", "g e")]).is_ok(), "beside the chord of the first row");
        assert!(change(&[("yes", "g y")]).unwrap_err().contains("not where text is typed"));
        assert!(change(&[("top", "z esc")]).unwrap_err().contains("Esc cancels a chord"));
    }

    /// Destructive keys must not be next to harmless ones.
    #[test]
    fn a_command_that_changes_the_cluster_cannot_use_a_harmless_key() {
        for key in ["ctrl-d", "ctrl-k", "enter", "space", "pgdn", "left"] {
            let change = BTreeMap::from([("force".to_owned(), vec![key.to_owned()])]);
            let why = Keymap::new(&change).unwrap_err();
            assert!(why.starts_with(&format!("keys.force: {key} looks harmless")), "{why}");
        }
        let change = BTreeMap::from([("down".to_owned(), vec!["ctrl-k".to_owned()])]);
        assert!(Keymap::new(&change).is_ok(), "a command that changes nothing may use it");
    }

    /// Such keys must be refused, because nobody could press them.
    #[test]
    fn a_key_that_terminals_send_as_another_key_is_refused() {
        for (key, equivalent) in [("ctrl-i", "tab"), ("ctrl-m", "enter"), ("ctrl-[", "esc"), ("ctrl-x ctrl-m", "enter")]
        {
            let change = BTreeMap::from([("top".to_owned(), vec![key.to_owned()])]);
            let why = Keymap::new(&change).unwrap_err();
            assert!(why.contains(&format!(" as {equivalent}: choose another key")), "{why}");
        }
        // The control codes after the letters, and keys that have no control code at all.
        for key in ["ctrl-\\", "ctrl-]", "ctrl-^", "ctrl-_", "ctrl-/", "ctrl-1", "ctrl-9", "ctrl-;", "ctrl-enter"] {
            let change = BTreeMap::from([("top".to_owned(), vec![key.to_owned()])]);
            assert!(Keymap::new(&change).unwrap_err().contains(": choose another key"), "{key}");
        }
        for key in ["ctrl-4", "ctrl-7", "ctrl-space", "ctrl-left", "alt-]"] {
            let change = BTreeMap::from([("top".to_owned(), vec![key.to_owned()])]);
            assert!(Keymap::new(&change).is_ok(), "{key}");
        }
    }

    /// Configurations of version 0.1 could give these keys to other commands.
    #[test]
    fn a_default_key_that_an_old_configuration_uses_gives_way_to_it() {
        let of = |name: &str, key: &str| {
            Keymap::new(&BTreeMap::from([(name.to_owned(), vec![key.to_owned()])]))
                .unwrap_or_else(|why| panic!("{why}"))
        };
        for (loser, key) in YIELDING {
            let first = key.split(' ').next().unwrap();
            // a verb has no harmless key
            let taker = if *key == "T" { "cancel" } else { "sort" };
            let map = of(taker, first);
            let binding = TABLE.iter().find(|b| b.name == *loser).unwrap();
            assert_eq!(map.key(taker), Some(first), "{loser}");
            let overlapping = overlap(binding.context, TABLE.iter().find(|b| b.name == taker).unwrap().context);
            assert_eq!(map.names[*loser].iter().any(|k| k == key), !overlapping, "{loser}");
        }
        // its other keys stay
        assert_eq!(of("sort", "d").key("open"), Some("enter"));
        assert_eq!(of("sort", "g").key("top"), Some("home"));
        // a chord that begins with a default chord's key needs no way out
        assert_eq!(of("sort", "g s").key("top"), Some("g g"));
        // the configured first row of 0.1
        assert_eq!(of("top", "g").key("top"), Some("g"));
        // a command that uses any other default key is refused as before
        assert!(Keymap::new(&BTreeMap::from([("sort".to_owned(), vec!["j".to_owned()])])).is_err());
    }

    #[test]
    fn key_names_round_trip() {
        for key in TABLE
            .iter()
            .flat_map(|b| b.keys)
            .filter(|key| !key.contains(' '))
            .chain(&["f12", "alt-x", "delete", "home"])
        {
            assert_eq!(parse(key).map(stroke_name).as_deref(), Some(*key));
        }
    }
}
