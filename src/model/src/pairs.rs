//! For `#[serde(with = "pairs")]`: a map whose keys are not text, serialized as a list of keys and values.

use imbl::OrdMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes `[[key, value], …]` in the order of the keys.
pub fn serialize<K, V, S>(map: &OrdMap<K, V>, out: S) -> Result<S::Ok, S::Error>
where
    K: Ord + Serialize,
    V: Serialize,
    S: Serializer,
{
    out.collect_seq(map.iter())
}

/// Reads the same form.
pub fn deserialize<'de, K, V, D>(from: D) -> Result<OrdMap<K, V>, D::Error>
where
    K: Ord + Clone + Deserialize<'de>,
    V: Clone + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
}
