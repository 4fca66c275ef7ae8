//! Parser of definitions and other documents into plain JSON. Documents of users are YAML or JSON; values of etcd are
//! JSON only, the form of CKE and `ckecli` (CLU-2).
//!
//! The size is limited before anything is parsed. A YAML alias costs as much as it expands to: every value is counted
//! as it is made. A document therefore never takes more memory than [`MAX_VALUE_BYTES`] allows, whatever its aliases
//! expand to (CLU-3).

mod yaml;

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum size of a document in bytes: twice what etcd takes in one request by default.
pub const MAX_TEXT_BYTES: usize = 3 << 20;
/// Maximum number of bytes of all texts with aliases expanded, plus [`BYTES_PER_VALUE`] for every value.
const MAX_VALUE_BYTES: usize = 32 << 20;
/// Bytes that each value counts beside its text.
const BYTES_PER_VALUE: usize = 16;
/// Maximum number of aliases in a document, and of values that they expand to.
const MAX_ALIASES: usize = 10_000;
const MAX_REPLAYED_EVENTS: usize = 500_000;
/// Maximum nesting, and the stack for it in bytes. An unoptimised build takes about 32 KiB a level.
const MAX_DEPTH: usize = 64;
const PARSER_STACK_BYTES: usize = 16 << 20;

/// Reads one YAML or JSON document of a user. The error is a message with line and column, if known.
pub fn parse(text: &str) -> Result<Value, String> {
    check_size(text)?;
    // JSON has escapes that YAML lacks.
    if text.trim_start().starts_with(['{', '[']) {
        match parse_json(text) {
            Err(e) if e.is_data() => return Err(format!("cannot be read: {e}")),
            Ok(value) => return Ok(value),
            Err(_) => {}
        }
    }
    parse_yaml(text).map_err(|e| format!("is neither YAML nor JSON: {e}"))
}

/// Reads one JSON document of etcd.
pub fn stored(text: &str) -> Result<Value, String> {
    check_size(text)?;
    parse_json(text).map_err(|e| format!("is not JSON: {e}"))
}

fn check_size(text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!("is too large: {} bytes, at most {MAX_TEXT_BYTES} allowed", text.len()));
    }
    Ok(())
}

fn parse_json(text: &str) -> Result<Value, serde_json::Error> {
    let left = Cell::new(MAX_VALUE_BYTES);
    let mut from = serde_json::Deserializer::from_str(text);
    let value = Bounded(&left).deserialize(&mut from)?;
    from.end()?;
    Ok(value)
}

fn parse_yaml(text: &str) -> Result<Value, String> {
    let limits = || {
        serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_events: 4_000_000,
                max_nodes: 2_000_000,
                max_aliases: MAX_ALIASES,
                max_anchors: MAX_ALIASES,
                max_recorded_anchor_events: MAX_REPLAYED_EVENTS,
                max_recorded_anchor_bytes: MAX_VALUE_BYTES,
                max_depth: MAX_DEPTH,
                max_documents: 1,
                max_merge_keys: MAX_ALIASES,
            },
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: MAX_REPLAYED_EVENTS,
                max_replay_stack_depth: 32,
            },
            strict_booleans: true,
            reject_unsupported_tags: true,
            with_snippet: false,
        }
    };
    with_deep_stack(|| yaml::read(text, limits()))
}

/// Runs a reader on a large stack. The parser recurses with every level of nesting, and the caller's stack may be
/// small.
fn with_deep_stack<T: Send>(read: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(PARSER_STACK_BYTES).spawn_scoped(scope, read);
        let reader = reader.map_err(|e| format!("cannot start a parser thread: {e}"))?;
        reader.join().unwrap_or_else(|_| Err("the parser ended early".to_owned()))
    })
}

/// Visitor that makes values and counts their size.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a Cell<usize>);

impl Bounded<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes + BYTES_PER_VALUE);
        self.0.set(left.ok_or_else(|| E::custom(format!("it expands to more than {MAX_VALUE_BYTES} bytes")))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.take(0)?;
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.deserialize(from)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        self.take(0)?;
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        self.take(0)?;
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        self.take(0)?;
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        self.take(0)?;
        let finite = Number::from_f64(number).map(Value::Number);
        finite.ok_or_else(|| E::custom(format!("holds {number}, which JSON cannot hold")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.take(text.len())?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        self.take(text.len())?;
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        self.take(0)?;
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.take(key.len())?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate entry with key {key:?}")));
            }
            let value = fields.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests;
