//! Section of a configuration file, and the forms of its values.
//!
//! The code requests every key by name. A key that it did not request is an error, which names the nearest known key.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_yaml::{Mapping, Value};

use super::{ConfigError, schema};

/// Mapping of a file whose keys are requested one by one. A value of another type than requested is an error, which
/// names the file and the key.
pub struct Section {
    file: String,
    path: String,
    remaining: Mapping,
    requested_keys: Vec<String>,
}

impl Section {
    /// Creates the section of this file at this path: empty for the whole file, otherwise with a dot at the end.
    pub fn new(file: &str, path: &str, remaining: Mapping) -> Self {
        Self { file: file.to_owned(), path: path.to_owned(), remaining, requested_keys: Vec::new() }
    }

    /// Returns the error about a key of this section.
    pub fn key_error(&self, name: &str, why: &str) -> ConfigError {
        ConfigError(format!("{}: {}{name}: {why}", self.file, self.path))
    }

    /// Reports whether the file contains a key that was not requested yet, even without a value.
    pub fn contains(&self, name: &str) -> bool {
        self.remaining.keys().any(|k| k.as_str().is_some_and(|k| same_key(k, name)))
    }

    /// Returns the keys that have a value and were not requested yet, as the file writes them.
    pub fn given_keys(&self) -> Vec<String> {
        let given = self.remaining.iter().filter(|(_, value)| !value.is_null());
        given.filter_map(|(key, _)| key.as_str().map(str::to_owned)).collect()
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        debug_assert!(
            schema::has_key(&self.path, name),
            "{}{name} is missing in src/cketerm/src/config/schema.rs",
            self.path
        );
        self.requested_keys.push(name.to_owned());
        let key = self.remaining.keys().find(|k| k.as_str().is_some_and(|k| same_key(k, name))).cloned()?;
        self.remaining.remove(&key).filter(|value| !value.is_null())
    }

    /// Returns the section below this key, or `None` if the key is missing.
    pub fn section(&mut self, name: &str) -> Result<Option<Self>, ConfigError> {
        // a section without keys below it is empty, not missing
        let present = self.remaining.keys().any(|k| k.as_str() == Some(name));
        match self.take(name) {
            None if present => Ok(Some(Self::new(&self.file, &format!("{name}."), Mapping::new()))),
            None => Ok(None),
            Some(Value::Mapping(map)) => Ok(Some(Self::new(&self.file, &format!("{name}."), map))),
            Some(_) => Err(self.key_error(name, "expected keys below it")),
        }
    }

    /// Returns a list of sections.
    pub fn sections(&mut self, name: &str) -> Result<Option<Vec<Self>>, ConfigError> {
        let values = match self.take(name) {
            None => return Ok(None),
            Some(Value::Sequence(values)) => values,
            Some(_) => return Err(self.key_error(name, "expected a list")),
        };
        let each = values.into_iter().enumerate().map(|(n, value)| match value {
            Value::Mapping(map) => Ok(Self::new(&self.file, &format!("{}{name}[{n}].", self.path), map)),
            _ => Err(self.key_error(&format!("{name}[{n}]"), "expected keys and values")),
        });
        each.collect::<Result<_, _>>().map(Some)
    }

    /// Sets the name that errors use for this item of a list from now on.
    pub fn set_label(&mut self, name: &str) {
        self.path = format!("{} ({name}).", self.path.trim_end_matches('.'));
    }

    /// Returns a string; a number is taken as its digits.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(self.key_error(name, "expected a string")),
        }
    }

    /// Returns a word of an enumeration; a boolean counts as its word.
    pub fn parsed<T: std::str::FromStr<Err = String>>(&mut self, name: &str) -> Result<Option<T>, ConfigError> {
        let text = match self.take(name) {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(other) => serde_yaml::to_string(&other).unwrap_or_default().trim_end().to_owned(),
        };
        text.parse().map(Some).map_err(|why: String| self.key_error(name, &why))
    }

    /// Returns true or false.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => {
                let found = other.as_str().map(|t| format!(", not {t:?}")).unwrap_or_default();
                Err(self.key_error(name, &format!("expected true or false{found}")))
            }
        }
    }

    /// Returns a whole number of at least 0.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => {
                value.as_u64().map(Some).ok_or_else(|| self.key_error(name, "expected a number of at least 0"))
            }
        }
    }

    /// Returns a list of strings, or the parts of one string with commas.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<String>>, ConfigError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.split(',').map(|t| t.trim().to_owned()).collect())),
            Some(Value::Sequence(values)) => {
                let texts = values.iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
                texts.map(Some).ok_or_else(|| self.key_error(name, "expected a list of strings"))
            }
            Some(_) => Err(self.key_error(name, "expected a list of strings")),
        }
    }

    /// Returns lists of texts by name.
    pub fn lists(&mut self, name: &str) -> Result<BTreeMap<String, Vec<String>>, ConfigError> {
        // a digit is a text here too
        let text = |value: &mut Value| {
            if let Value::Number(number) = value {
                *value = Value::String(number.to_string());
            }
        };
        let remaining = match self.take(name) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Mapping(mut map)) => {
                for (_, value) in &mut map {
                    text(value);
                    value.as_sequence_mut().into_iter().flatten().for_each(text);
                }
                map
            }
            Some(_) => return Err(self.key_error(name, "expected names, each with a list of strings")),
        };
        let mut of = Self::new(&self.file, &format!("{}{name}.", self.path), remaining);
        let names: Vec<String> = of.remaining.keys().filter_map(|k| k.as_str().map(str::to_owned)).collect();
        let mut lists = BTreeMap::new();
        for name in names {
            let list = of.list(&name)?.unwrap_or_default();
            lists.insert(name, list);
        }
        of.finish()?;
        Ok(lists)
    }

    /// Fails if a key is left that the code did not request; the requested keys are the valid ones.
    pub fn finish(self) -> Result<(), ConfigError> {
        let requested_keys = self.requested_keys.clone();
        self.finish_with(&requested_keys.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Fails if a key is left that the code did not request; `valid` are the keys that the error may suggest.
    pub fn finish_with(self, valid: &[&str]) -> Result<(), ConfigError> {
        let Some(key) = self.remaining.keys().next() else { return Ok(()) };
        let key = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
        let distance = |name: &&&str| strsim::damerau_levenshtein(&key.to_lowercase(), name);
        let nearest = valid.iter().min_by_key(distance).map(|n| format!("; the nearest key is {}{n}", self.path));
        Err(ConfigError(format!("{}: unknown key {}{key}{}", self.file, self.path, nearest.unwrap_or_default())))
    }
}

/// Compares keys. Case (as in CKE's reader) and the choice of `-` or `_` do not matter.
pub fn same_key(a: &str, b: &str) -> bool {
    let plain = |t: &str| t.to_lowercase().replace('_', "-");
    plain(a) == plain(b)
}

/// Resolves a path relative to the folder of the configuration file.
pub fn relative_to(file: &Path, path: &str) -> PathBuf {
    file.parent().map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
}

/// Parses a duration in Go's notation: `2s`, `1m30s`, `500ms`, `1.5h`.
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|&n| n > 0)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (name, tail) = tail.split_at(unit);
        let seconds = match name {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    (!text.trim().is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_like_go() {
        assert_eq!(duration("2s"), Some(Duration::from_secs(2)));
        assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        for key_error in ["", "2", "s", "2x", "-1s"] {
            assert_eq!(duration(key_error), None, "{key_error:?}");
        }
    }
}
