//! Parser of one theme file: its base, the faces that it defines, and its faults by line.

use std::collections::BTreeMap;

use cketerm_model::text::nearest;
use serde_yaml::{Mapping, Value};

use super::{ROLES, colour};

/// Style of one role.
#[allow(clippy::struct_excessive_bools)] // four independent switches of a terminal
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Face {
    /// One of the 16 colours by name; none = the terminal's foreground.
    pub fg: Option<String>,
    /// Bold.
    pub bold: bool,
    /// Dim.
    pub dim: bool,
    /// Underlined.
    pub underline: bool,
    /// Foreground and background swapped.
    pub reverse: bool,
}

/// Fields of a face.
const ATTRIBUTES: [&str; 5] = ["fg", "bold", "dim", "underline", "reverse"];

impl Face {
    /// Returns the face in the form of a file: `{ fg: red, bold: true }`.
    pub fn yaml(&self) -> String {
        let on = [(self.bold, "bold"), (self.dim, "dim"), (self.underline, "underline"), (self.reverse, "reverse")];
        let fg = self.fg.iter().map(|fg| format!("fg: {fg}"));
        let attributes: Vec<String> =
            fg.chain(on.iter().filter(|(on, _)| *on).map(|(_, name)| format!("{name}: true"))).collect();
        if attributes.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", attributes.join(", ")) }
    }

    /// Reports whether two faces differ at most in their colours.
    pub fn same_modifiers(&self, other: &Self) -> bool {
        let shape = |face: &Self| Self { fg: None, ..face.clone() };
        shape(self) == shape(other)
    }
}

/// Fault of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line of the fault, counted from 1, if it is known.
    pub line: Option<usize>,
    /// Description of the fault.
    pub text: String,
}

/// Content of a theme file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Name of the base theme.
    pub base: Option<String>,
    /// Roles that the file defines, each in place of the base's.
    pub roles: BTreeMap<&'static str, Face>,
}

/// Parses a theme's YAML. Returns what is valid, and the faults of the rest.
pub fn read(text: &str) -> (File, Vec<Fault>) {
    let (mut file, mut faults) = (File::default(), Vec::new());
    let map = match serde_yaml::from_str(text) {
        Ok(Value::Mapping(map)) => map,
        Ok(Value::Null) => Mapping::new(),
        Ok(_) => {
            faults.push(Fault { line: Some(1), text: "expected roles with attributes: `good: { fg: green }`".into() });
            return (file, faults);
        }
        Err(e) => {
            let line = e.location().map(|at| at.line());
            faults.push(Fault { line, text: format!("is not YAML: {e}") });
            return (file, faults);
        }
    };
    for (key, value) in &map {
        let key = rendered(key);
        let line = line_of(text, 0, &key);
        let mut wrong = |text: String| faults.push(Fault { line, text });
        if key == "base" {
            match value.as_str() {
                Some(base) => file.base = Some(base.to_owned()),
                None => wrong("base: expected a theme's name".to_owned()),
            }
        } else if key == "name" {
            wrong("name: a theme's name is that of its file: remove this line".to_owned());
        } else if let Some((role, _)) = ROLES.iter().find(|(role, _)| *role == key) {
            let (face, role_faults) = face(value);
            faults.extend(role_faults.into_iter().map(|(attribute, why)| Fault {
                line: line.and_then(|from| line_of(text, from - 1, &attribute)).or(line),
                text: format!("{role}: {why}"),
            }));
            file.roles.insert(role, face);
        } else {
            let hint = nearest(&key, ROLES.iter().map(|(role, _)| *role));
            let hint = hint.map_or_else(
                || format!("the roles are {}", ROLES.map(|(role, _)| role).join(", ")),
                |role| format!("did you mean {role}?"),
            );
            wrong(format!("{key:?} is not a role: {hint}"));
        }
    }
    (file, faults)
}

/// Parses the face of a role, and returns it with its faults.
fn face(value: &Value) -> (Face, Vec<(String, String)>) {
    let (mut face, mut wrong) = (Face::default(), Vec::new());
    let map = match value {
        Value::Null => return (face, wrong),
        Value::Mapping(map) => map,
        _ => {
            wrong.push((String::new(), "expected attributes such as { fg: red, bold: true }".to_owned()));
            return (face, wrong);
        }
    };
    for (key, value) in map {
        let key = rendered(key);
        let slot = match key.as_str() {
            "fg" => {
                match value.as_str().map(colour) {
                    Some(Ok(_)) => face.fg = value.as_str().map(str::to_owned),
                    Some(Err(why)) => wrong.push((key, format!("fg: {why}"))),
                    None => wrong.push((key, "fg: expected one of the 16 colours by name".to_owned())),
                }
                continue;
            }
            "bold" => &mut face.bold,
            "dim" => &mut face.dim,
            "underline" => &mut face.underline,
            "reverse" => &mut face.reverse,
            "bg" => {
                wrong.push((key, "bg: not supported, the terminal's own background is kept".to_owned()));
                continue;
            }
            _ => {
                let hint = nearest(&key, ATTRIBUTES).map(|attribute| format!(": did you mean {attribute}?"));
                let hint = hint.unwrap_or_else(|| format!(": there are {}", ATTRIBUTES.join(", ")));
                wrong.push((key.clone(), format!("{key:?} is not an attribute{hint}")));
                continue;
            }
        };
        match value.as_bool() {
            Some(on) => *slot = on,
            None => wrong.push((key.clone(), format!("{key}: expected true or false"))),
        }
    }
    (face, wrong)
}

fn rendered(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        other => serde_yaml::to_string(other).map(|text| text.trim().to_owned()).unwrap_or_default(),
    }
}

/// Returns the first line from `from` (counted from 0) that has this key, counted from 1. Comments do not count.
fn line_of(text: &str, from: usize, key: &str) -> Option<usize> {
    let has = |line: &str| {
        let line = line.split('#').next().unwrap_or_default().replace(['"', '\''], "");
        let mut rest = line.as_str();
        while let Some(at) = rest.find(key) {
            let before = rest[..at].chars().next_back();
            let word = before.is_none_or(|c| !c.is_alphanumeric() && c != '-' && c != '_');
            rest = &rest[at + key.len()..];
            if word && rest.trim_start().starts_with(':') {
                return true;
            }
        }
        false
    };
    if key.is_empty() {
        return None;
    }
    text.lines().skip(from).position(has).map(|at| from + at + 1)
}

/// Roles that are newer than themes which users have written, each with the older role whose face it takes.
const NEWER_ROLES: [(&str, &str); 3] = [("draining", "key"), ("rebooting", "mark"), ("border", "muted")];

/// Adds the newer roles that a theme without a base lacks.
pub fn add_newer_roles(faces: &mut BTreeMap<&'static str, Face>) {
    for (newer, older) in NEWER_ROLES {
        if let Some(face) = faces.get(older).cloned() {
            faces.entry(newer).or_insert(face);
        }
    }
    // a full-width bar; the cells keep their own colours
    faces.entry("selection").or_insert(Face { reverse: true, ..Face::default() });
}

/// Pairs of roles that must differ, because a mix-up would cause wrong actions.
const DISTINCT_ROLES: [(&str, &str); 5] =
    [("good", "trouble"), ("good", "danger"), ("trouble", "danger"), ("muted", "danger"), ("muted", "trouble")];

/// Returns the faults of all roles together: those that must differ and do not.
pub fn indistinct_roles(faces: &BTreeMap<&'static str, Face>) -> Vec<String> {
    let mut out = Vec::new();
    for (one, two) in DISTINCT_ROLES {
        let (Some(a), Some(b)) = (faces.get(one), faces.get(two)) else { continue };
        if a == b {
            out.push(format!("{one} and {two} look the same: give one of them another colour, or underline it"));
        } else if one == "good" && a.same_modifiers(b) && hue(a) == 'g' && hue(b) == 'r' {
            out.push(format!(
                "{one} and {two} differ by green and red alone, which many people cannot tell apart: make {two} bold"
            ));
        }
    }
    out
}

/// Returns `g` for greens and `r` for reds.
fn hue(face: &Face) -> char {
    match face.fg.as_deref().map(str::to_lowercase) {
        Some(fg) if fg.contains("green") => 'g',
        Some(fg) if fg.contains("red") => 'r',
        _ => '-',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<(Option<usize>, String)> {
        read(text).1.into_iter().map(|f| (f.line, f.text)).collect()
    }

    #[test]
    fn every_fault_is_reported_with_its_line() {
        let text = "# a theme\nbase: dark\ngoood: { fg: green }\ndanger:\n  fg: crimson\n  bald: true\nmuted: { bg: blue, dim: 3 }\n";
        let all = faults(text);
        let one = |line: usize, rendered: &str| {
            let hit = all.iter().find(|(_, text)| text.contains(rendered));
            assert_eq!(hit.and_then(|(line, _)| *line), Some(line), "{rendered}: {all:?}");
        };
        one(3, "\"goood\" is not a role: did you mean good?");
        one(5, "danger: fg: \"crimson\" is not one of the 16 colours");
        one(6, "danger: \"bald\" is not an attribute: did you mean bold?");
        one(7, "muted: bg: not supported");
        one(7, "muted: dim: expected true or false");
        assert_eq!(all.len(), 5, "{all:?}");
        assert_eq!(faults("good: { fg: green\n")[0].0, Some(2), "{:?}", faults("good: { fg: green\n"));
        assert!(faults("- 1\n")[0].1.contains("expected roles"));
        assert!(faults("name: mine\n")[0].1.contains("that of its file"));
        assert!(faults("good: green\n")[0].1.contains("expected attributes"));
        assert!(faults("good: {fg: green}\ngood: {}\n")[0].1.contains("duplicate"));
    }

    #[test]
    fn a_face_survives_a_round_trip_through_yaml() {
        let text = "danger: { fg: light-red, bold: true, underline: true }\n";
        let (file, faults) = read(text);
        assert_eq!((faults, format!("danger: {}\n", file.roles["danger"].yaml())), (Vec::new(), text.to_owned()));
        assert_eq!(read("good:\n").0.roles["good"].yaml(), "{}");
    }

    #[test]
    fn roles_that_look_alike_are_reported() {
        let indistinct_roles = |text: &str| super::indistinct_roles(&read(text).0.roles);
        let same = indistinct_roles("good: {bold: true}\ntrouble: {bold: true}\ndanger: {underline: true}\n");
        assert!(same.len() == 1 && same[0].contains("good and trouble look the same"), "{same:?}");
        let red = indistinct_roles("good: {fg: green}\ndanger: {fg: light-red}\n");
        assert!(red.len() == 1 && red[0].contains("green and red alone"), "{red:?}");
        assert_eq!(indistinct_roles("good: {fg: green}\ndanger: {fg: red, bold: true}\n"), Vec::<String>::new());
    }
}
