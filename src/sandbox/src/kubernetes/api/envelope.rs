//! Protobuf bodies, which Go clients send for built-in types: `k8s\0`, an envelope with version and kind, and the
//! object inside. Only the kinds that drains, `kubectl create namespace` and `kubectl auth can-i` send are supported.
//!
//! The field numbers are those of `generated.proto` in k8s.io/api and k8s.io/apimachinery.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::status_error::StatusError;
use crate::protobuf::Fields;

/// Media type of a protobuf body.
pub(super) const MEDIA: &str = "application/vnd.kubernetes.protobuf";
/// Prefix of a protobuf body.
const MAGIC: &[u8] = b"k8s\0";

/// JSON type of a field.
enum Kind {
    Text,
    Number,
    Flag,
    /// Strings, in order.
    TextList,
    /// A map from strings to strings.
    TextMap,
    Message(&'static [Member]),
}

/// A field: its number, its JSON name, its type.
struct Member(u64, &'static str, Kind);

static META: &[Member] = &[
    Member(1, "name", Kind::Text),
    Member(2, "generateName", Kind::Text),
    Member(3, "namespace", Kind::Text),
    Member(5, "uid", Kind::Text),
    Member(6, "resourceVersion", Kind::Text),
    Member(11, "labels", Kind::TextMap),
    Member(12, "annotations", Kind::TextMap),
    Member(14, "finalizers", Kind::TextList),
];

static DELETE_OPTIONS: &[Member] = &[
    Member(1, "gracePeriodSeconds", Kind::Number),
    Member(
        2,
        "preconditions",
        Kind::Message(&[Member(1, "uid", Kind::Text), Member(2, "resourceVersion", Kind::Text)]),
    ),
    Member(3, "orphanDependents", Kind::Flag),
    Member(4, "propagationPolicy", Kind::Text),
    Member(5, "dryRun", Kind::TextList),
];

static EVICTION: &[Member] =
    &[Member(1, "metadata", Kind::Message(META)), Member(2, "deleteOptions", Kind::Message(DELETE_OPTIONS))];

static NAMESPACE: &[Member] = &[
    Member(1, "metadata", Kind::Message(META)),
    Member(2, "spec", Kind::Message(&[Member(1, "finalizers", Kind::TextList)])),
];

static ACCESS: &[Member] = &[
    Member(1, "metadata", Kind::Message(META)),
    Member(
        2,
        "spec",
        Kind::Message(&[
            Member(
                1,
                "resourceAttributes",
                Kind::Message(&[
                    Member(1, "namespace", Kind::Text),
                    Member(2, "verb", Kind::Text),
                    Member(3, "group", Kind::Text),
                    Member(4, "version", Kind::Text),
                    Member(5, "resource", Kind::Text),
                    Member(6, "subresource", Kind::Text),
                    Member(7, "name", Kind::Text),
                ]),
            ),
            Member(
                2,
                "nonResourceAttributes",
                Kind::Message(&[Member(1, "path", Kind::Text), Member(2, "verb", Kind::Text)]),
            ),
        ]),
    ),
];

static RULES: &[Member] = &[
    Member(1, "metadata", Kind::Message(META)),
    Member(2, "spec", Kind::Message(&[Member(1, "namespace", Kind::Text)])),
];

/// Converts a protobuf body to the JSON of the same object.
pub(super) fn read(body: &[u8]) -> Result<Value, StatusError> {
    let broken = || StatusError::bad("the body is no object in Kubernetes' protobuf encoding");
    let envelope = body.strip_prefix(MAGIC).map(Bytes::copy_from_slice).and_then(Fields::read).ok_or_else(broken)?;
    let type_meta = envelope.message(1).and_then(Fields::read).unwrap_or_default();
    let (version, kind) = (type_meta.text(1), type_meta.text(2));
    let members = match kind.as_str() {
        "DeleteOptions" => DELETE_OPTIONS,
        "Eviction" => EVICTION,
        "Namespace" => NAMESPACE,
        "SelfSubjectAccessReview" => ACCESS,
        "SelfSubjectRulesReview" => RULES,
        _ => {
            return Err(StatusError::new(
                415,
                "UnsupportedMediaType",
                format!(
                    "the sandbox reads no {kind} in {MEDIA}: send it as application/json or application/yaml \
                     (kubectl apply does)"
                ),
            ));
        }
    };
    let mut object = Map::new();
    for (field, text) in [("kind", kind), ("apiVersion", version)] {
        if !text.is_empty() {
            object.insert(field.to_owned(), json!(text));
        }
    }
    object.extend(message(envelope.bytes(2), members).ok_or_else(broken)?);
    Ok(Value::Object(object))
}

/// Converts a message. Empty strings are omitted, because Go's encoder writes the empty strings of non-pointer fields.
fn message(bytes: Bytes, members: &[Member]) -> Option<Map<String, Value>> {
    let fields = Fields::read(bytes)?;
    let mut object = Map::new();
    for Member(number, name, kind) in members {
        let value = match kind {
            Kind::Text => Some(json!(fields.text(*number))).filter(|text| text != ""),
            Kind::Number => fields.optional_number(*number).map(|number| json!(number.cast_signed())),
            Kind::Flag => fields.optional_number(*number).map(|number| json!(number != 0)),
            Kind::TextList => {
                let all: Vec<Value> = fields.all(*number).map(|text| json!(String::from_utf8_lossy(&text))).collect();
                (!all.is_empty()).then(|| json!(all))
            }
            Kind::TextMap => {
                let pair = |entry| Fields::read(entry).map(|pair| (pair.text(1), json!(pair.text(2))));
                let all = fields.all(*number).map(pair).collect::<Option<Map<_, _>>>()?;
                (!all.is_empty()).then(|| Value::Object(all))
            }
            Kind::Message(members) => match fields.message(*number) {
                Some(bytes) => Some(Value::Object(message(bytes, members)?)),
                None => None,
            },
        };
        if let Some(value) = value {
            object.insert((*name).to_owned(), value);
        }
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::Message;

    fn encoded(version: &str, kind: &str, object: &Message) -> Vec<u8> {
        let type_meta = Message::default().bytes(1, version.as_bytes()).bytes(2, kind.as_bytes());
        let envelope = Message::default().message(1, &type_meta).message(2, object).bytes(3, b"").bytes(4, b"");
        [MAGIC, &envelope.into_bytes()].concat()
    }

    #[test]
    fn protobuf_delete_options_and_evictions_decode_to_their_json() {
        let options = |grace: i64| {
            let only = Message::default().bytes(1, b"u-1");
            Message::default().number(1, grace.cast_unsigned()).message(2, &only).bytes(4, b"Orphan").bytes(5, b"All")
        };
        let as_json = json!({"gracePeriodSeconds": -1, "preconditions": {"uid": "u-1"}, "propagationPolicy": "Orphan",
            "dryRun": ["All"]});
        let mut with_type_meta = as_json.clone();
        with_type_meta["kind"] = json!("DeleteOptions");
        with_type_meta["apiVersion"] = json!("v1");
        assert_eq!(read(&encoded("v1", "DeleteOptions", &options(-1))).unwrap(), with_type_meta);
        let label = |key: &str| Message::default().bytes(1, key.as_bytes()).bytes(2, b"x");
        let meta = Message::default().bytes(1, b"p").bytes(2, b"").bytes(3, b"ns");
        let meta = meta.message(11, &label("a")).message(11, &label("b"));
        let eviction = Message::default().message(1, &meta).message(2, &options(-1));
        assert_eq!(
            read(&encoded("policy/v1", "Eviction", &eviction)).unwrap(),
            json!({"kind": "Eviction", "apiVersion": "policy/v1", "deleteOptions": as_json,
                "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "x", "b": "x"}}})
        );
    }

    #[test]
    fn invalid_protobuf_bodies_are_refused() {
        let code = |body: &[u8]| read(body).unwrap_err().code;
        assert_eq!(code(&encoded("batch/v1", "Job", &Message::default())), 415);
        for body in [&b""[..], b"{}", b"k8s", b"k8s\0\x0b", &encoded("v1", "Namespace", &Message::default())[..10]] {
            assert!(matches!(code(body), 400 | 415), "{body:?}");
        }
        let broken = Message::default().bytes(1, b"\x0b");
        assert_eq!(code(&encoded("v1", "Namespace", &broken)), 400);
    }
}
