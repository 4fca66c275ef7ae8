//! YAML parser whose values are counted as they are made.
//!
//! The underlying parser reads `012` and `1_000` as numbers. Users mean serial numbers and labels by them, and
//! `serde_yaml` keeps them as texts. So this module looks at the text of each number.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{Options, Spanned};

use super::{Bounded, MAX_VALUE_BYTES};

thread_local! {
    /// Bytes that the values of the present document may still take.
    static BYTES_LEFT: Cell<usize> = const { Cell::new(0) };
    /// Text of the present document.
    static SOURCE: RefCell<Rc<str>> = RefCell::new(Rc::from(""));
}

/// Reads one document.
pub(super) fn read(text: &str, options: Options) -> Result<Value, String> {
    BYTES_LEFT.set(MAX_VALUE_BYTES);
    SOURCE.replace(Rc::from(text));
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |from| {
        Spanned::<Node>::deserialize(from).map(resolve_number)
    });
    SOURCE.replace(Rc::from(""));
    read.map_err(|e| e.to_string())
}

/// Returns the value if its text is a number, else the text.
fn resolve_number(node: Spanned<Node>) -> Value {
    let Node(value) = node.value;
    if !value.is_number() {
        return value;
    }
    let span = node.defined.span();
    let place = span.byte_offset().zip(span.byte_len());
    let place = place.and_then(|(from, len)| Some((usize::try_from(from).ok()?, usize::try_from(len).ok()?)));
    let written = place.and_then(|(from, len)| {
        SOURCE.with_borrow(|text| Some(text.get(from..from.checked_add(len)?)?.trim().to_owned()))
    });
    match written {
        Some(written) if looks_like_text(&written) => Value::String(written),
        _ => value,
    }
}

/// Reports whether digits are no number: `012`, `1_000`.
fn looks_like_text(written: &str) -> bool {
    let digits = written.trim_start_matches(['-', '+']);
    let zero = digits.strip_prefix('0').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && (zero || digits.contains('_'))
}

/// A value of the document.
struct Node(Value);

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NodeVisitor).map(Self)
    }
}

struct NodeVisitor;

/// Makes one value without children, and counts it.
fn scalar<E: Error>(make: impl FnOnce(Bounded<'_>) -> Result<Value, E>) -> Result<Value, E> {
    BYTES_LEFT.with(|left| make(Bounded(left)))
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        scalar(|bounded| bounded.take(0).map(|()| Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        scalar(|bounded| bounded.visit_bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        scalar(|bounded| bounded.visit_i64(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        scalar(|bounded| bounded.visit_u64(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        scalar(|bounded| bounded.visit_f64(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        scalar(|bounded| bounded.visit_str(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        scalar::<A::Error>(|bounded| bounded.take(0).map(|()| Value::Null))?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Node>>()? {
            list.push(resolve_number(item));
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        scalar::<A::Error>(|bounded| bounded.take(0).map(|()| Value::Null))?;
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            scalar::<A::Error>(|bounded| bounded.visit_str(&key))?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate entry with key {key:?}")));
            }
            map.insert(key, resolve_number(fields.next_value::<Spanned<Node>>()?));
        }
        Ok(Value::Object(map))
    }
}
